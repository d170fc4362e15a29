"""The gists of pages: what a page says in a few sentences. Search reads a gist beside its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, and_, delete, insert, select, update

from palimpsest.core.models import PAGE
from palimpsest.core.protocols import Vector
from palimpsest.store.mapping import chunks, listed, packed, unpacked
from palimpsest.store.schema import messages, vectors
from palimpsest.store.views.tables import gists


@dataclass(frozen=True, slots=True)
class Gist:
    """What a page says, and the model and prompt that it comes from; both are "" if no model wrote it."""

    text: str
    model: str = ""
    prompt: str = ""


class GistVector(NamedTuple):
    """The text of a gist, and its vector of shape (dims,) with the embedder that made it; "" and None without one."""

    text: str
    embedder: str = ""
    vector: Vector | None = None


def put(
    conn: Connection, new: Mapping[str, Gist], made: Mapping[str, Vector] | None = None, embedder: str = ""
) -> list[str]:
    """Store the gists of pages by their ids, and return the ids. Pages that were purged meanwhile are left out.

    `made` are the vectors of texts by the embedder. Only what a model wrote has one: other gists repeat their page.
    """
    known = made or {}
    stored: list[str] = []
    for chunk in chunks(list(new)):
        pages = conn.execute(select(messages.c.id).where(messages.c.id.in_(chunk), messages.c.role == PAGE)).scalars()
        stored += list(pages)
    erase(conn, stored)
    if stored:
        rows = [(page, new[page]) for page in stored]
        conn.execute(
            insert(gists),
            [
                {"message_id": page, "text": gist.text, "model": gist.model, "prompt": gist.prompt}
                | _vector_values(known.get(gist.text) if gist.model else None, embedder)
                for page, gist in rows
            ],
        )
    return stored


def _vector_values(vector: Vector | None, embedder: str) -> dict[str, Any]:
    return {"vector": None, "embedder": ""} if vector is None else {"vector": packed(vector), "embedder": embedder}


def vectors_of(conn: Connection, page_ids: Sequence[str]) -> dict[str, GistVector]:
    """Return the gists of pages with their vectors, by the ids of the pages."""
    return {
        row.message_id: GistVector(row.text, row.embedder, None if row.vector is None else unpacked(row.vector))
        for chunk in chunks(page_ids)
        for row in conn.execute(_OF_PAGES, {"ids": chunk})
    }


def without_vector(conn: Connection, embedder: str, limit: int) -> dict[str, str]:
    """Return gists by a model that have no vector of an embedder while their page has one: texts by ids of pages."""
    page = and_(vectors.c.kind == "message", vectors.c.owner_id == gists.c.message_id)
    query = (
        select(gists.c.message_id, gists.c.text)
        .join(vectors, page)
        .where(gists.c.model != "", gists.c.embedder != embedder, vectors.c.embedder == embedder)
        .order_by(gists.c.message_id)
        .limit(limit)
    )
    return {row.message_id: row.text for row in conn.execute(query)}


def give_vectors(conn: Connection, embedder: str, texts: Mapping[str, str], made: Sequence[Vector]) -> list[str]:
    """Store the vectors of gists by the ids of their pages, and return the ids of those that still say the same."""
    given: list[str] = []
    for (page, text), vector in zip(texts.items(), made, strict=True):
        same = (gists.c.message_id == page, gists.c.text == text)
        if conn.execute(update(gists).where(*same).values(**_vector_values(vector, embedder))).rowcount:
            given.append(page)
    return given


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
