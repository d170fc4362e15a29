"""Erase what is said of erased pages elsewhere in their documents: in the gists of other pages, and in titles.

A gist names the headings that its page stands under, and a title may be the first of them. Both may be of a page that a
purge erases.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select, update

from palimpsest.core.models import PAGE
from palimpsest.store.mapping import chunks
from palimpsest.store.schema import conversations, messages
from palimpsest.store.views import gists
from palimpsest.store.views.care.link_care import content_words


def erase(conn: Connection, message_ids: Sequence[str]) -> set[str]:
    """Erase gists and titles with words that only erased pages explain. Return the ids of the pages concerned.

    A page without a gist is found by its own words, and a document without a title is called by its uri. The rows of
    the erased pages are still there.
    """
    erased = set(message_ids)
    documents = {
        session_id
        for chunk in chunks(message_ids)
        for session_id in conn.execute(
            select(messages.c.session_id).where(messages.c.id.in_(chunk), messages.c.role == PAGE)
        ).scalars()
    }
    changed: set[str] = set()
    for document in documents:
        query = select(messages.c.id, messages.c.content).where(
            messages.c.session_id == document, messages.c.role == PAGE
        )
        words = {row.id: content_words(row.content) for row in conn.execute(query)}
        gone = frozenset[str]().union(*(words[page] for page in words.keys() & erased))
        left = words.keys() - erased
        told = gists.of_pages(conn, sorted(left))
        changed |= {page for page, gist in told.items() if (content_words(gist.text) & gone) - words[page]}
        _erase_title(conn, document, gone - frozenset[str]().union(*(words[page] for page in left)))
    gists.erase(conn, sorted(changed))
    return changed


def _erase_title(conn: Connection, document: str, gone: frozenset[str]) -> None:
    is_document = conversations.c.session_id == document
    for row in conn.execute(select(conversations.c.title, conversations.c.external_id).where(is_document)).all():
        if content_words(row.title) & gone:
            conn.execute(update(conversations).where(is_document).values(title=row.external_id))
