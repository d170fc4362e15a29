"""Keep a document as pages, each a message, and bring the pages of one that has changed up to date.

A page with the same text at the same place stays as it is. The others are added and deleted in one edit, so an undo
takes the whole learning back, and the pages of before stay in the history.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from palimpsest.core.errors import InputError, StaleDecisionError
from palimpsest.core.models import PAGE, Decision, Event, Message, Provenance, Scope
from palimpsest.core.protocols import Vector
from palimpsest.core.validation import trimmed
from palimpsest.learn.apply import LearnedDocument, apply_write, embed_texts
from palimpsest.learn.documents.gists import plain_gist
from palimpsest.learn.documents.split import MAX_WORDS, first_heading, split, trails
from palimpsest.learn.engine import Engine
from palimpsest.learn.sanitize import Cleaner
from palimpsest.store.mapping import content_hash
from palimpsest.store.queries import vectors as vector_queries
from palimpsest.store.views import documents as document_queries
from palimpsest.store.views import gists as gist_rows
from palimpsest.store.views.documents import CLIENT, PagesRead, StoredPage, external_id, kept_uri
from palimpsest.store.views.gists import Gist
from palimpsest.store.writes.apply import Write
from palimpsest.store.writes.conversations import Conversation, session_id_of
from palimpsest.store.writes.jobs.queue import JobRequest
from palimpsest.text.shorten import shorten
from palimpsest.text.windows import count_words

MAX_TITLE_CHARS = 80
"""How much of its first line titles a text that has no name. Set by hand: a line of a list."""

ATTEMPTS = 5
"""How often a document is read and planned if other processes learn it at the same moment. Set by hand: they take
turns, and each changes it once."""


@dataclass(frozen=True, slots=True)
class DocumentText:
    """A document that is to be kept: where it comes from, what it is called, its text and the date of it."""

    uri: str
    title: str
    text: str
    at: datetime


ReadDocument: TypeAlias = Callable[[], Awaitable[DocumentText]]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be written: pages that are new, and the ids of those to delete and to restore.

    `vectors` and `gists` are those of texts that stood at another place before, so that neither is made again.
    """

    title: str
    pages: int
    read: PagesRead
    new: Sequence[Message] = ()
    deleted: Sequence[str] = ()
    restored: Sequence[str] = ()
    vectors: Mapping[str, Vector] = field(default_factory=dict[str, Vector])
    gists: Mapping[str, Gist] = field(default_factory=dict[str, Gist])
    notes: Sequence[str] = ()


def is_long(text: str) -> bool:
    """Return whether a text is too long for a memory, and so a document."""
    return count_words(text) > MAX_WORDS


def text_document(text: str, at: datetime) -> DocumentText:
    """Return a text that has no name as a document. The same text always has the same uri."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    return DocumentText(f"text:{digest}", shorten(first_heading(text), MAX_TITLE_CHARS), text, at)


async def learn_document(engine: Engine, scope: Scope, read: ReadDocument, caller: str) -> LearnedDocument:
    """Keep a document, or bring it up to date. Raises InputError if it has no text, and LedgerError.

    If another process learns it at the same moment, it is read again: what was read may be the older version.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return await _learned(engine, scope, await read(), caller)
        except StaleDecisionError:
            continue
    return await _learned(engine, scope, await read(), caller)


async def _learned(engine: Engine, scope: Scope, source: DocumentText, caller: str) -> LearnedDocument:
    uri = kept_uri(Cleaner(engine).text(source.uri))
    plan = await engine.run(lambda: _plan(engine, scope, source, uri))
    document_id = session_id_of(scope, CLIENT, uri)
    if not plan.new and not plan.deleted and not plan.restored:
        return LearnedDocument(document_id, plan.title, uri, plan.pages)
    vectors, embedding_notes = await embed_texts(engine, [page.content for page in plan.new], plan.vectors)
    decisions = [
        *(Decision(Event.DELETE, memory_id=page, kind="message") for page in plan.deleted),
        *(Decision(Event.ADD, memory_id=page, kind="message") for page in plan.restored),
    ]
    asks_model = engine.model is not None and not engine.is_model_borrowed
    write = Write(
        scope,
        Provenance("learn document", caller=caller),
        tuple(plan.new),
        Conversation(CLIENT, uri, plan.title),
        tuple(decisions),
        vectors=vectors,
        embedder=engine.embedder.fingerprint,
        gists=plan.gists,
        pages_read=plan.read,
        later=(JobRequest("gist", "messages"),) if asks_model else (),
    )
    applied = await apply_write(engine, write)
    if applied.messages:
        document_id = applied.messages[0].session_id
    added, notes = len(plan.new) + len(plan.restored), (*plan.notes, *embedding_notes, *applied.notes)
    return LearnedDocument(document_id, plan.title, uri, plan.pages, added, len(plan.deleted), notes)


def _plan(engine: Engine, scope: Scope, source: DocumentText, uri: str) -> _Plan:
    """Return what a document needs that the ledger has not. Blocking. Raises InputError if it has no text."""
    cleaner = Cleaner(engine)
    parts = split(cleaner.text(source.text))
    headings = {trimmed(part): trail for part, trail in zip(parts, trails(parts), strict=True)}
    texts = [text for part in parts if (text := trimmed(part))]
    if not texts:
        raise InputError("it has no text")
    with engine.ledger.read() as conn:
        stored = document_queries.pages_of_uri(conn, scope, uri)
        same = {(page.number, page.digest): page for page in reversed(stored)}
        wanted = [(number, content_hash(text)) for number, text in enumerate(texts, 1)]
        kept = [same[place] for place in wanted if place in same]
        moved = _by_digest(stored, {digest for place in wanted if place not in same for digest in place[1:]})
        owners = [page.id for page in moved.values()]
        vectors = vector_queries.own_vectors(conn, engine.embedder.fingerprint, "message", owners)
        told = gist_rows.of_pages(conn, owners)
    now = engine.clock()
    new: list[Message] = []
    gists: dict[str, Gist] = {}
    known: dict[str, Vector] = {}
    for (number, digest), text in zip(wanted, texts, strict=True):
        if (number, digest) in same:
            continue
        page = Message(str(uuid.uuid4()), scope, PAGE, text, source.at, now, external_id=external_id(uri, number))
        new.append(page)
        old = moved[digest].id if digest in moved else ""
        gists[page.id] = told.get(old) or plain_gist(text, headings[text])
        known |= {text: vectors[old]} if old in vectors else {}
    kept_ids = {page.id for page in kept}
    deleted = [page.id for page in stored if not page.is_deleted and page.id not in kept_ids]
    restored = [page.id for page in kept if page.is_deleted]
    title = cleaner.text(source.title)
    read = PagesRead(uri, frozenset(stored))
    return _Plan(title, len(texts), read, new, deleted, restored, known, gists, cleaner.notes())


def _by_digest(stored: Sequence[StoredPage], digests: set[str]) -> dict[str, StoredPage]:
    """Return a page for each of these texts that stands, or stood, somewhere in the document."""
    return {page.digest: page for page in reversed(stored) if page.digest in digests}
