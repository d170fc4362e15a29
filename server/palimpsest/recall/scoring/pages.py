"""What pages of documents lose: of the many pages of a library some match any question."""

from __future__ import annotations

from typing import cast

import numpy as np

from palimpsest.recall.retrieval.features import Candidates
from palimpsest.recall.scoring.ranking import Column

PAGE = 0.25
"""What every page loses. Set by hand with benchmarks/documents.py: more finds more of what people said, and less of
what stands on pages."""

FURTHER = 1.0
"""What every page loses more than the page above it, so that the first hits are not all pages. Set by hand with
benchmarks/documents.py, as `PAGE`."""

FURTHER_PAGE = "further page"
"""The name of this part of a score."""


def page_losses(candidates: Candidates, scores: Column) -> dict[str, Column]:
    """Return the parts of the score that pages lose, by name, each of shape (n,). There are none without pages."""
    is_page = np.array([entry.is_page for entry in candidates.entries], dtype=np.bool_)
    if not is_page.any():
        return {}
    further = np.zeros(len(scores))
    pages = [row for row in cast("list[int]", np.argsort(-scores, kind="stable").tolist()) if is_page[row]]
    further[pages] = np.arange(len(pages))
    return {"page": -PAGE * is_page, FURTHER_PAGE: -FURTHER * further}
