"""The gists of pages: what a page says in a few sentences. Search reads a gist beside its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from palimpsest.core.models import PAGE
from palimpsest.store.mapping import chunks, listed
from palimpsest.store.schema import messages
from palimpsest.store.views.tables import gists


@dataclass(frozen=True, slots=True)
class Gist:
    """What a page says, and the model and prompt that it comes from; both are "" if no model wrote it."""

    text: str
    model: str = ""
    prompt: str = ""


def put(conn: Connection, new: Mapping[str, Gist]) -> list[str]:
    """Store the gists of pages by their ids, and return the ids. Pages that were purged meanwhile are left out."""
    stored: list[str] = []
    for chunk in chunks(list(new)):
        pages = conn.execute(select(messages.c.id).where(messages.c.id.in_(chunk), messages.c.role == PAGE)).scalars()
        stored += list(pages)
    erase(conn, stored)
    if stored:
        rows = [(page, new[page]) for page in stored]
        values = [
            {"message_id": page, "text": gist.text, "model": gist.model, "prompt": gist.prompt} for page, gist in rows
        ]
        conn.execute(insert(gists), values)
    return stored


def of_pages(conn: Connection, page_ids: Sequence[str]) -> dict[str, Gist]:
    """Return the gists of pages by the ids of these, as far as they have one."""
    return {
        row.message_id: Gist(row.text, row.model, row.prompt)
        for chunk in chunks(page_ids)
        for row in conn.execute(_OF_PAGES, {"ids": chunk})
    }


_OF_PAGES = select(gists).where(gists.c.message_id.in_(listed("ids")))


def exported(conn: Connection, message: Row[Any]) -> dict[str, Any]:
    """Return the gist of a message as it stands in an export; nothing if it has none, or is no page."""
    gist = of_pages(conn, [message.id]).get(message.id) if message.role == PAGE else None
    return {} if gist is None else {"gist": {"text": gist.text, "model": gist.model, "prompt": gist.prompt}}


def put_imported(conn: Connection, item: Mapping[str, Any]) -> None:
    """Store the gist of a page of an import, if it has one."""
    if gist := item.get("gist"):
        put(conn, {item["id"]: Gist(gist["text"], gist["model"], gist["prompt"])})


def strays(conn: Connection) -> list[str]:
    """Return the ids that have a gist and belong to no page."""
    pages = select(messages.c.id).where(messages.c.role == PAGE)
    return list(conn.execute(select(gists.c.message_id).where(gists.c.message_id.not_in(pages))).scalars())


def erase(conn: Connection, page_ids: Sequence[str]) -> None:
    """Delete the gists of pages."""
    for chunk in chunks(page_ids):
        conn.execute(delete(gists).where(gists.c.message_id.in_(chunk)))
