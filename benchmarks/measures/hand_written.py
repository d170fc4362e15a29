"""Read the data sets that were written by hand. They are beside `quality.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent


def data_file(name: str) -> Path:
    """Return the path of a data set."""
    return FOLDER / f"{name}.json"


def read_data(name: str) -> Any:
    """Return the content of a data set."""
    return json.loads(data_file(name).read_text("utf-8"))
