"""Hits as tables, with how relevant each is, and how to get the whole of what is cut."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from palimpsest.cli.output import MAX_NAME, MAX_TEXT, Part, cut_to_width, notes_text, plain, table
from palimpsest.core.models import Hit, Scope
from palimpsest.recall.hits import shortest_passages
from palimpsest.recall.search import SearchResult
from palimpsest.server.replies import plain_text
from palimpsest.server.replies.advice import COMMANDS, other_project, short
from palimpsest.text.display import visible


def hits_parts(hits: Sequence[Hit], title: str) -> list[Part]:
    """Return hits as a table, and how to get the whole of what is cut; nothing if there are none."""
    if not hits:
        return []
    rows = table("id", "date", "who", "what", title=title)
    for hit in hits:
        rows.add_row(short(hit.id), hit.date, _who(hit), _what(hit))
    return [rows, *_shortened(hits)]


def search_parts(result: SearchResult, query: str, scope: Scope) -> list[Part]:
    """Return the hits of a search as a table, with the relevance of each, and what was left out.

    A text of another project than the scope's begins with the project's name.
    """
    notes = notes_text(result.notes)
    if not result.hits and not result.omitted:
        return [f"nothing was found for: {cut_to_width(_one_line(query), MAX_TEXT)}", *notes]
    rows = table("id", "relevance", "date", "who", "what", title=query)
    for hit in shortest_passages(result.hits, query):
        rows.add_row(short(hit.id), f"{hit.relevance:.2f}", hit.date, _who(hit), _what(hit, other_project(hit, scope)))
        if hit.score_parts:
            rows.add_row("", "", "", "", plain(f"{hit.score:.3f}: {plain_text.explanation(hit)}"))
    first = [plain_text.WEAK] if result.hits and result.is_weak else []
    omitted = (
        [f"({plain_text.omitted_text(result)}; a smaller --limit leaves them more room)"] if result.omitted else []
    )
    relations = [relation.line for relation in result.relations]
    return [*first, rows, *relations, *omitted, *notes, *_shortened(result.hits)]


def _who(hit: Hit) -> Text:
    return plain(cut_to_width(visible(plain_text.speaker_of(hit)), MAX_NAME))


def _what(hit: Hit, project: str = "") -> Text:
    """Return the text of a hit on one line; of a long one the beginning, and how many characters the whole has.

    `project` is the hit's, if the search went beyond its scope's.
    """
    text = visible(_one_line(hit.text))
    place = f"({project}) " if project else ""
    place += f"(replaced by {short(hit.superseded_by)}) " if hit.superseded_by else ""
    return plain(place + (f"{cut_to_width(text, MAX_TEXT)} ({_length(hit):,} characters)" if _is_cut(hit) else text))


def _is_cut(hit: Hit) -> bool:
    return hit.length is not None or cell_len(visible(_one_line(hit.text))) > MAX_TEXT


def _length(hit: Hit) -> int:
    return len(hit.text) if hit.length is None else hit.length


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _shortened(hits: Sequence[Hit]) -> list[str]:
    """Return how to get the whole texts, if a text is cut."""
    return [COMMANDS.shortened] if any(map(_is_cut, hits)) else []
