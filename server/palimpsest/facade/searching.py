"""Search one project or all of them, with notes on a filter that finds nothing. Blocking."""

from __future__ import annotations

from dataclasses import replace

from palimpsest.core.validation import bounded
from palimpsest.facade.filter_notes import filter_notes
from palimpsest.learn.engine import Engine
from palimpsest.recall.pipeline import SearchQuery, SearchResult, search, search_all_projects

MAX_HOPS = 2
"""How far relations may lead from the entities that a question names. What is further away seldom says anything of
them, and with the first two there may be thousands."""


def search_memory(engine: Engine, query: SearchQuery, *, all_projects: bool) -> SearchResult:
    """Return the result of a search. Raises InputError and LedgerError."""
    bounded("hops", query.hops, 0, MAX_HOPS)
    if all_projects:
        return search_all_projects(engine.ledger, engine.embedder, engine.index, query)
    result = search(engine.ledger, engine.embedder, engine.index, query)
    deleted = False if query.as_of is None else None
    notes = filter_notes(engine.ledger, query.scope, query.filters, result.hits, deleted=deleted)
    return replace(result, notes=(*result.notes, *notes))
