"""Search one project or all of them, or list one, with notes on a filter that finds nothing. Blocking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from palimpsest.core.models import Scope
from palimpsest.core.validation import bounded
from palimpsest.facade.recall.filter_notes import filter_notes
from palimpsest.learn.engine import Engine
from palimpsest.recall.listing import Page, page
from palimpsest.recall.pipeline import SearchQuery, SearchResult, search, search_all_projects
from palimpsest.recall.scoring.forgetting import Forgetting
from palimpsest.store.ledger import Ledger

MAX_HOPS = 2
"""How far relations may lead from the entities that a question names. What is further away seldom says anything of
them, and with the first two there may be thousands."""


def list_memory(
    ledger: Ledger,
    scope: Scope,
    *,
    limit: int,
    max_tokens: int,
    cursor: str | None,
    deleted: bool,
    filters: Mapping[str, Any] | None,
    forgetting: Forgetting,
) -> Page:
    """Return a page of a listing. Raises InputError and LedgerError."""
    found = page(ledger, scope, limit, max_tokens, cursor, deleted=deleted, filters=filters, forgetting=forgetting)
    return replace(found, notes=(*found.notes, *filter_notes(ledger, scope, filters, found.hits, deleted=deleted)))


def search_memory(engine: Engine, query: SearchQuery, *, all_projects: bool) -> SearchResult:
    """Return the result of a search. Raises InputError and LedgerError."""
    bounded("hops", query.hops, 0, MAX_HOPS)
    query = replace(query, follows_links=engine.has_links)
    if all_projects:
        return search_all_projects(engine.ledger, engine.embedder, engine.index, query)
    result = search(engine.ledger, engine.embedder, engine.index, query)
    deleted = False if query.as_of is None else None
    notes = filter_notes(engine.ledger, query.scope, query.filters, result.hits, deleted=deleted)
    return replace(result, notes=(*result.notes, *notes))
