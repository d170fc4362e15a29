"""Documents as text and JSON: what was learned, the list, the pages of one with their gists, and one page whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from palimpsest.core.clock import iso, shown_date
from palimpsest.core.validation import one_line
from palimpsest.server.replies.notes import NO_INSTRUCTIONS, short
from palimpsest.text.control_characters import visible
from palimpsest.text.counting import counted

if TYPE_CHECKING:  # slow to import, and only needed for the annotations
    from palimpsest.facade.documents import Document, Page
    from palimpsest.learn.apply import LearnedDocument

DOCUMENT_SCHEME = "document://"


def uri_of(document_id: str, page: int | None = None) -> str:
    """Return the address of a document or of a page, which a client can read."""
    return f"{DOCUMENT_SCHEME}{short(document_id)}" + ("" if page is None else f"/{page}")


def learned_line(learned: LearnedDocument) -> str:
    """Return what became of a document as one line. Its first word says what was done."""
    title = one_line(learned.title) or "a document"
    whole = f"{title}, {counted(learned.pages, 'page')}, {uri_of(learned.id)}"
    if learned.is_unchanged:
        return f"unchanged: {whole}"
    if not learned.removed and learned.added == learned.pages:
        return f"added as a document: {whole}"
    changes = [
        f"{learned.added} added" if learned.added else "",
        f"{learned.removed} deleted" if learned.removed else "",
    ]
    return f"updated: {whole} ({', '.join(filter(None, changes))})"


def learned_json(learned: LearnedDocument) -> dict[str, Any]:
    """Return the same as values that `json` can write."""
    return {
        "id": learned.id,
        "title": learned.title,
        "source": learned.uri,
        "pages": learned.pages,
        "added": learned.added,
        "deleted": learned.removed,
        "uri": uri_of(learned.id),
    }


def document_json(document: Document) -> dict[str, Any]:
    """Return a document of the list as values that `json` can write."""
    return {
        "id": document.id,
        "title": document.title,
        "pages": document.pages,
        "project": document.project,
        "learned_at": iso(document.learned_at),
        "source": document.uri,
        "uri": uri_of(document.id),
    }


def pages_text(document: Document, pages: Sequence[Page], note: str = NO_INSTRUCTIONS) -> str:
    """Return a document with a line for each page: its address and its gist. `note` ends the first line."""
    head = f"{document.title}, {counted(document.pages, 'page')}, learned {shown_date(document.learned_at)} from"
    lines = [f"{uri_of(document.id, page.number)} {one_line(page.gist)}" for page in pages]
    return visible("\n".join([f"{head} {document.uri}{note}", *lines]))


def pages_json(document: Document, pages: Sequence[Page]) -> dict[str, Any]:
    """Return the same as values that `json` can write."""
    return {
        **document_json(document),
        "gists": [{"page": page.number, "id": page.message.id, "gist": page.gist} for page in pages],
    }


def page_text(document: Document, page: Page, note: str = NO_INSTRUCTIONS) -> str:
    """Return one page whole, under its title and number. `note` ends the first line."""
    return visible(f"{document.title}, page {page.number} of {document.pages}{note}\n\n{page.message.content}")
