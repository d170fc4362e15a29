"""Read documents: their pages and the gists of the pages."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, and_, delete, func, insert, select, update

from palimpsest.core.errors import InputError, MemoryNotFoundError, StaleDecisionError
from palimpsest.core.models import MAX_SCOPE_CHARS, PAGE, DocumentPage, Message, Scope
from palimpsest.core.protocols import Vector
from palimpsest.core.validation import one_line
from palimpsest.store import rows
from palimpsest.store.messages import read_messages
from palimpsest.store.schema import IS_MESSAGE, OF_CONVERSATION, conversations, gists, messages, vectors

# The gists of pages: what a page says in a few sentences. Search reads a gist beside its page.


@dataclass(frozen=True, slots=True)
class Gist:
    """What a page says, and the model and prompt that it comes from; both are "" if no model wrote it."""

    text: str
    model: str = ""
    prompt: str = ""


class EmbeddedText(NamedTuple):
    """A text, and its vector of shape (dims,) with the embedder that made it; "" and None without one."""

    text: str
    embedder: str = ""
    vector: Vector | None = None


def put(
    conn: Connection, new: Mapping[str, Gist], made: Mapping[str, Vector] | None = None, embedder: str = ""
) -> list[str]:
    """Store the gists of pages by their ids, and return the ids. Pages that were purged meanwhile are left out.

    `made` are the vectors of texts by the embedder. Only what a model wrote has one: other gists repeat their page.
    """
    are_pages = (rows.among(messages.c.id, new), messages.c.role == PAGE)
    stored = list(conn.execute(select(messages.c.id).where(*are_pages)).scalars())
    erase(conn, stored)
    for page in stored:
        gist = new[page]
        vector = (made or {}).get(gist.text) if gist.model else None
        row = {"message_id": page, **asdict(gist), **vector_values(EmbeddedText(gist.text, embedder, vector))}
        conn.execute(insert(gists), row)
    return stored


def vector_values(of: EmbeddedText) -> dict[str, Any]:
    """Return the vector of a text, if it has one, and the embedder, as they are stored."""
    if of.vector is None:
        return {"vector": None, "embedder": ""}
    return {"vector": rows.packed(of.vector), "embedder": of.embedder}


def vectors_of(conn: Connection, page_ids: Sequence[str]) -> dict[str, EmbeddedText]:
    """Return the gists of pages with their vectors, by the ids of the pages."""
    return {
        row.message_id: EmbeddedText(row.text, row.embedder, None if row.vector is None else rows.unpacked(row.vector))
        for row in conn.execute(_OF_PAGES, {"ids": page_ids})
    }


def without_vector(conn: Connection, embedder: str, limit: int) -> dict[str, str]:
    """Return gists by a model that have no vector of an embedder while their page has one: texts by ids of pages."""
    page = and_(vectors.c.kind == "message", vectors.c.owner_id == gists.c.message_id)
    is_wanted = (gists.c.model != "", gists.c.embedder != embedder, vectors.c.embedder == embedder)
    query = select(gists.c.message_id, gists.c.text).join(vectors, page).where(*is_wanted)
    found = conn.execute(query.order_by(gists.c.message_id).limit(limit))
    return {row.message_id: row.text for row in found}


def give_vectors(conn: Connection, embedded: Mapping[str, EmbeddedText]) -> set[str]:
    """Store the vectors of gists by the ids of their pages, and return the ids of those that still say the same."""
    given: set[str] = set()
    for page, new in embedded.items():
        same = update(gists).filter_by(message_id=page, text=new.text)
        if conn.execute(same.values(**vector_values(new))).rowcount:
            given.add(page)
    return given


def of_pages(conn: Connection, page_ids: Sequence[str]) -> dict[str, Gist]:
    """Return the gists of pages by the ids of these, as far as they have one."""
    found = conn.execute(_OF_PAGES, {"ids": page_ids})
    return {row.message_id: Gist(row.text, row.model, row.prompt) for row in found}


_OF_PAGES = select(gists).where(gists.c.message_id.in_(rows.listed("ids")))


def exported(conn: Connection, message: Row[Any]) -> dict[str, Any]:
    """Return the gist of a message as it stands in an export; nothing if it has none, or is no page."""
    gist = of_pages(conn, [message.id]).get(message.id) if message.role == PAGE else None
    return {} if gist is None else {"gist": asdict(gist)}


def erase(conn: Connection, page_ids: Sequence[str]) -> None:
    """Delete the gists of pages."""
    conn.execute(delete(gists).where(rows.among(gists.c.message_id, page_ids)))


# Read documents: conversations of the client "document", whose messages are their pages.

# The client of the conversation that a document is.
CLIENT = "document"

_DIGEST_CHARS = 16


@dataclass(frozen=True, slots=True)
class Document:
    """A document with living pages. `id` is the session id of these, and `uri` is where it comes from."""

    id: str
    project: str
    title: str
    uri: str
    pages: int
    learned_at: datetime


@dataclass(frozen=True, slots=True)
class PageWithGist:
    """A page of a document, by its number, with its gist."""

    number: int
    message: Message
    gist: str


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A stored page without its text: its number, the hash of its text, and whether it is deleted."""

    id: str
    number: int
    digest: str
    is_deleted: bool


@dataclass(frozen=True, slots=True)
class PagesRead:
    """The pages of a document, living and deleted, that a write was decided on."""

    uri: str
    pages: frozenset[StoredPage]


def kept_uri(uri: str) -> str:
    """Return a uri as the ledger keeps it. One that is too long or has odd spaces ends in a hash of the whole."""
    if len(uri) <= MAX_SCOPE_CHARS and one_line(uri) == uri:
        return uri
    return f"{one_line(uri)[: MAX_SCOPE_CHARS - _DIGEST_CHARS - 1]}#{_digest(uri)}"


def external_id(uri: str, number: int) -> str:
    """Return the id of a page within its scope. It says where the page stands, and not what it says."""
    return f"document:{_digest(uri)}:{number}"


def _digest(uri: str) -> str:
    return hashlib.sha256(uri.encode()).hexdigest()[:_DIGEST_CHARS]


# The conditions for a living page with a place in its document. One that another page of a merged project took the
# place of has none.
_IS_NUMBERED = (messages.c.role == PAGE, messages.c.external_id != "", messages.c.deleted_at.is_(None))


def _number(external: str) -> int:
    return int(external.rpartition(":")[2])


def pages_of_uri(conn: Connection, scope: Scope, uri: str) -> list[StoredPage]:
    """Return the pages of a document of exactly this scope, living or deleted, the living ones first."""
    prefix = external_id(uri, 0)[:-1]
    in_document = and_(messages.c.external_id >= prefix, messages.c.external_id < f"{prefix};")  # ";" follows "9"
    columns = (messages.c.id, messages.c.external_id, messages.c.content_hash, messages.c.deleted_at)
    query = select(*columns).where(rows.is_scope(messages, scope), in_document, messages.c.role == PAGE)
    found = conn.execute(query.order_by(messages.c.deleted_at.is_not(None), messages.c.seq))
    return [StoredPage(page, _number(name), digest, deleted_at is not None) for page, name, digest, deleted_at in found]


def refuse_changed(conn: Connection, scope: Scope, read: PagesRead) -> None:
    """Raise StaleDecisionError if the pages of a document are no longer those that were read.

    Otherwise two processes that learn a file at the same moment would leave two pages at one place.
    """
    if frozenset(pages_of_uri(conn, scope, read.uri)) != read.pages:
        raise StaleDecisionError("another process learned or edited the document at the same moment; learn it again")


def documents(conn: Connection, scope: Scope, session_id: str = "") -> list[Document]:
    """Return the documents that the scope sees, the one that was learned last first; with an id only that one."""
    known = conversations.c
    learned_at = func.max(messages.c.created_at)
    columns = (known.session_id, known.project, known.title, known.external_id, func.count(), learned_at)
    is_read = (rows.sees(conversations, scope), known.client == CLIENT, *_IS_NUMBERED)
    query = select(*columns).join_from(conversations, messages, OF_CONVERSATION).where(*is_read).group_by(known.seq)
    query = query.where(known.session_id == session_id) if session_id else query
    return [Document(*row) for row in conn.execute(query.order_by(learned_at.desc(), known.seq.desc()))]


def document(conn: Connection, scope: Scope, document_id: str) -> Document:
    """Return the document that an id, or the beginning of one, names.

    Raises MemoryNotFoundError, and InputError for a beginning that is too short or that several ids have.
    """
    prefix = rows.long_enough(document_id)
    ids = ids_beginning(conn, scope, prefix, 2)
    if len(ids) > 1:
        raise InputError(f"several documents begin with '{prefix}': {', '.join(ids)}. Use more characters")
    found = documents(conn, scope, ids[0]) if ids else []
    if not found:
        raise MemoryNotFoundError(f"no document '{prefix[:80]}' for {scope}. palimpsest documents lists them")
    return found[0]


def ids_beginning(conn: Connection, scope: Scope, prefix: str, limit: int) -> list[str]:
    """Return up to `limit` ids of documents that begin with a prefix, the newest first."""
    known = conversations.c
    is_meant = (rows.sees(conversations, scope), known.client == CLIENT, rows.begins(known.session_id, prefix))
    newest = select(known.session_id).where(*is_meant).group_by(known.session_id).order_by(func.max(known.seq).desc())
    return list(conn.execute(newest.limit(limit)).scalars())


def pages(conn: Connection, scope: Scope, found: Document, number: int | None = None) -> list[PageWithGist]:
    """Return the living pages of a document in order, with their gists; with a number only that one."""
    of_document = (messages.c.session_id == found.id, messages.c.project == found.project)
    read = read_messages(conn, rows.sees(messages, scope), *of_document, *_IS_NUMBERED)
    read = [message for message in read if number in {None, _number(message.external_id)}]
    told = of_pages(conn, [message.id for message in read])
    made = [PageWithGist(_number(page.external_id), page, told.get(page.id, Gist("")).text) for page in read]
    return sorted(made, key=lambda page: page.number)


def of_same_source(conn: Connection, user_id: str, project: str, other: str) -> list[tuple[str, str]]:
    """Return the ids of the documents that two projects have of the same source, in pairs."""
    ours, theirs, is_same = rows.in_both(conversations, ("client", "external_id"), user_id, project, other)
    query = select(ours.c.session_id, theirs.c.session_id).where(is_same, ours.c.client == CLIENT)
    return [(one, another) for one, another in conn.execute(query.order_by(ours.c.seq))]


def outdated_pages(conn: Connection, user_id: str, *copies: tuple[str, str]) -> list[str]:
    """Return the ids of the living pages of older copies of a document where the copy that was learned last has a page.

    A copy is a project and the id of the document in it.
    """
    of_user = select(messages.c.id, messages.c.external_id, messages.c.created_at)
    of_user = of_user.filter_by(user_id=user_id, role=PAGE, deleted_at=None)
    living = [conn.execute(of_user.filter_by(project=project, session_id=session)).all() for project, session in copies]
    living.sort(key=lambda pages: max((page.created_at.timestamp() for page in pages), default=0.0))
    *older, newest = living
    taken = {page.external_id for page in newest}
    return [page.id for pages in older for page in pages if page.external_id in taken]


def page_entries_among(conn: Connection, seqs: Sequence[int]) -> set[int]:
    """Return those of some entries that are pages."""
    return set(conn.execute(_PAGE_ENTRIES, {"seqs": seqs}).scalars())


_ARE_PAGES = (vectors.c.seq.in_(rows.listed_numbers("seqs")), messages.c.role == PAGE)
_PAGE_ENTRIES = select(vectors.c.seq).join(messages, IS_MESSAGE).where(*_ARE_PAGES)


def places(conn: Connection, page_ids: Sequence[str]) -> dict[str, DocumentPage]:
    """Return of which page of which document each message is the text, by the ids of the messages."""
    return {
        page: DocumentPage(session, title or "", _number(external))
        for page, session, title, external in conn.execute(_PLACES, {"ids": page_ids})
        if external  # a page that another one of a merged project took the place of has no number
    }


_PLACES = (
    select(messages.c.id, messages.c.session_id, conversations.c.title, messages.c.external_id)
    .outerjoin(conversations, OF_CONVERSATION)
    .where(messages.c.id.in_(rows.listed("ids")), messages.c.role == PAGE)
)
