"""Conversations as other programs write them, with what they say and what else they have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# `given` is what a program writes, `said` the messages in it, `left_out` counts the rest. Some are only in files.
FORMS: list[dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
