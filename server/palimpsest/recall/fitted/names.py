"""From when on two names are taken for one: thresholds by embedder.

`benchmarks/fit.py --names` writes the file and says in it what they were fitted on. Nothing else changes them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class NameThresholds:
    """The least cosine of the vectors of two names, and of the mean vectors of what is said of their bearers.

    The latter are centred as everywhere in the search.
    """

    name: float
    context: float


@cache
def name_thresholds_for(fingerprint: str) -> NameThresholds | None:
    """Return the thresholds for the embedder with this fingerprint; None if they were never fitted."""
    content: Any = json.loads((files("palimpsest.recall.fitted") / "names.json").read_text("utf-8"))
    known = content["thresholds"].get(fingerprint)
    return None if known is None else NameThresholds(**known)
