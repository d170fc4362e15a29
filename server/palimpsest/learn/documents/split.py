"""Split a text into pages at natural breaks, as in ReadAgent (Lee et al. 2024, section 3.1), without a model.

A page ends before a heading if it can, else after a paragraph, else after a sentence. Code blocks and tables stay whole
if they fit a page. Pure: the same text always has the same pages, and joined they are the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from palimpsest.text.windows import WORD_CHARS, count_words

MAX_WORDS = 600
"""About how many words a page has at most; a short piece may come on top. The same as in ReadAgent, and what a search
can show whole."""

FULL_WORDS = 300
"""A page of so many words ends at the next heading. Set by hand: half of the limit. Shorter sections are joined."""

SHORT_WORDS = 50
"""A section this short is joined to the page before it, if it fits. Set by hand: two or three sentences."""

MAX_RUN_CHARS = MAX_WORDS * WORD_CHARS // 4
"""A run of characters without a space is cut at this length. Set by hand: a quarter of a page in any script."""

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_HEADING = re.compile(r"(#{1,6})(?:\s|$)")
_UNDERLINE = re.compile(r"(=|-|~|\^|\*|\+)\1{2,}")
_FENCE = re.compile(r"`{3,}|~{3,}")
_SENTENCE_END = re.compile(r"[.!?…][\"')\]»”’]*\s+|[。！？｡۔।][\"'」』”’）]*\s*|\n+")  # noqa: RUF001
_RUN = re.compile(r"\S+\s*|\s+")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a text that stays together. `level` is that of a heading, from 1 for the highest; 0 for other text."""

    text: str
    words: float
    level: int = 0
    is_table: bool = False


def split(text: str) -> list[str]:
    """Return the pages of a text, in order. Each has at most about `MAX_WORDS` words."""
    return [page.text for page in _joined(_divided(list(_blocks(text))))]


def trails(pages: Sequence[str]) -> list[tuple[str, ...]]:
    """Return for each page the headings that it stands under, the highest first, with those that it begins with."""
    found: list[tuple[str, ...]] = []
    open_headings: dict[int, str] = {}
    for page in pages:
        at_start = True
        trail = dict(open_headings)
        for block in _blocks(page):
            if not block.level:
                at_start = at_start and not block.text.strip()
                continue
            kept = {level: title for level, title in open_headings.items() if level < block.level}
            open_headings = {**kept, block.level: _title(block.text)}
            if at_start:
                trail = dict(open_headings)
        found.append(tuple(title for title in trail.values() if title))
    return found


def first_heading(text: str) -> str:
    """Return the first heading of a text, or without one its first line that shows something."""
    for block in _blocks(text):
        if block.level and _title(block.text):
            return _title(block.text)
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _title(heading: str) -> str:
    lines = heading.strip().splitlines()
    return lines[0].strip().strip("#").strip() if lines else ""


def _blocks(text: str) -> Iterator[_Piece]:
    """Yield headings, paragraphs, code blocks and tables, each with the blank lines after it."""
    lines: list[str] = []
    kind = fence = ""
    is_over = False
    for line in _LINE.findall(text):
        bare = line.strip()
        if fence:
            lines.append(line)
            if bare.startswith(fence) and not bare.strip(fence[0]):
                fence, is_over = "", True
            continue
        next_kind = _kind(bare)
        if next_kind == "blank":
            is_over = bool(lines)
        elif next_kind == "underline" and kind == "paragraph" and not is_over and len(lines) == 1:
            kind = "heading 1" if bare.startswith("=") else "heading 2"
        elif lines and (is_over or next_kind != kind or kind.startswith("heading")):
            yield _block(lines, kind)
            lines, kind, is_over = [], "", False
        lines.append(line)
        if next_kind != "blank" and not kind:
            kind = "paragraph" if next_kind == "underline" else next_kind
        if kind == "code" and next_kind == "code":
            fence = bare[: len(bare) - len(bare.lstrip(bare[0]))]
    if lines:
        yield _block(lines, kind)


def _kind(bare: str) -> str:
    """Return what a line begins: blank, code, heading with its level, table, underline or paragraph."""
    if not bare:
        return "blank"
    if heading := _HEADING.match(bare):
        return f"heading {len(heading[1])}"
    if _FENCE.match(bare):
        return "code"
    if bare.startswith("|"):
        return "table"
    return "underline" if _UNDERLINE.fullmatch(bare) else "paragraph"


def _block(lines: Sequence[str], kind: str) -> _Piece:
    text = "".join(lines)
    level = int(kind.removeprefix("heading ")) if kind.startswith("heading") else 0
    return _Piece(text, count_words(text), level, is_table=kind in {"code", "table"})


def _divided(blocks: Sequence[_Piece]) -> list[_Piece]:
    """Return the sections of a text, each no longer than a page: cut at the highest headings, and these at the next."""
    if not blocks:
        return []
    if sum(block.words for block in blocks) <= MAX_WORDS:
        return [_merged(blocks)]
    levels = {block.level for block in blocks[1:] if block.level}
    if not levels:
        return _filled(piece for block in blocks for piece in _fragments(block))
    top = min(levels)
    starts = [0, *(place for place, block in enumerate(blocks) if place and block.level == top), len(blocks)]
    return [piece for start, end in pairwise(starts) for piece in _joined(_divided(blocks[start:end]))]


def _joined(sections: Sequence[_Piece]) -> list[_Piece]:
    """Return the sections with short ones joined to what comes before them."""
    pages: list[_Piece] = []
    for section in sections:
        last = pages[-1] if pages else None
        is_short = last is not None and (last.words < FULL_WORDS or section.words < SHORT_WORDS)
        if last is not None and is_short and _fit(last.words, section.words):
            pages[-1] = _merged((last, section))
        else:
            pages.append(section)
    return pages


def _filled(pieces: Iterable[_Piece]) -> list[_Piece]:
    """Return pages of as many pieces as fit."""
    pages: list[list[_Piece]] = []
    words = 0.0
    for piece in pieces:
        if not pages or not _fit(words, piece.words):
            pages.append([])
            words = 0.0
        pages[-1].append(piece)
        words += piece.words
    return [_merged(page) for page in pages]


def _fit(words: float, more: float) -> bool:
    """Return whether two parts of so many words fit a page. A heading goes with what it heads in any case."""
    return words + more <= MAX_WORDS + (SHORT_WORDS if min(words, more) < SHORT_WORDS else 0)


def _merged(pieces: Sequence[_Piece]) -> _Piece:
    return _Piece("".join(piece.text for piece in pieces), sum(piece.words for piece in pieces))


def _fragments(block: _Piece) -> Iterator[_Piece]:
    """Yield a block, or the parts of one that is too long for a page: lines of a table or code, else sentences."""
    if block.words <= MAX_WORDS:
        yield block
        return
    for part in _LINE.findall(block.text) if block.is_table else sentences(block.text):
        words = count_words(part)
        if words <= MAX_WORDS:
            yield _Piece(part, words)
            continue
        for run in _RUN.findall(part):
            for start in range(0, len(run), MAX_RUN_CHARS):
                cut = run[start : start + MAX_RUN_CHARS]
                yield _Piece(cut, count_words(cut))


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, or its lines where these are shorter. Joined they are the text."""
    ends = [0, *(end.end() for end in _SENTENCE_END.finditer(text)), len(text)]
    return [text[start:end] for start, end in pairwise(ends) if start < end]
