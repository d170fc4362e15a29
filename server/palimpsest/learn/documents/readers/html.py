"""Read HTML as Markdown: headings, paragraphs, lists, tables and code keep what splitting into pages looks for.

The parser of the standard library calls a function for each tag and builds no tree, so deep nesting costs nothing.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

from palimpsest.learn.documents.readers.plain import decoded

DECLARED_WITHIN = 2_048
"""In how many bytes from the beginning an encoding is declared. HTML says 1,024; some pages need a little more."""

_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_PARAGRAPHS = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "dd",
        "details",
        "dialog",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "header",
        "hgroup",
        "hr",
        "html",
        "main",
        "nav",
        "ol",
        "p",
        "section",
        "summary",
        "table",
        "tbody",
        "tfoot",
        "thead",
        "ul",
    ]
)
_UNSHOWN = frozenset({"script", "style"})
"""What holds no text. The parser reads both up to their end tag, whatever they contain."""


def read_html(data: bytes) -> str:
    """Return the text of an HTML file as Markdown. Raises InputError if it is not text."""
    declared = _CHARSET.search(data[:DECLARED_WITHIN])
    reader = _Reader()
    reader.feed(decoded(data, declared[1].decode("ascii") if declared else ""))
    reader.close()
    return reader.markdown()


class _Reader(HTMLParser):
    """Collects Markdown while it is fed. `_line` is the text of the open line, with its prefix."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._lines: list[str] = []
        self._line: list[str] = []
        self._cells: list[str] | None = None
        self._title: list[str] = []
        self._prefix = ""
        self._is_unshown = self._is_title = self._is_code = self._has_heading = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin what a tag begins."""
        del attrs
        self._is_title = tag == "title"
        if tag in _UNSHOWN:
            self._is_unshown = True
        elif tag in _HEADINGS:
            self._begin(_HEADINGS[tag] + " ")
            self._has_heading = True
        elif tag == "li":
            self._end_line()
            self._prefix = "- "
        elif tag == "br":
            self._end_line()
        elif tag == "pre":
            self._begin()
            self._lines.append("```")
            self._is_code = True
        elif tag == "tr":
            self._end_row()
            self._end_line()
            self._cells = []
        elif tag in {"td", "th"}:
            self._end_cell()
        elif tag in _PARAGRAPHS:
            self._begin()

    def handle_endtag(self, tag: str) -> None:
        """End what a tag ends."""
        if tag in _UNSHOWN:
            self._is_unshown = False
        elif tag == "title":
            self._is_title = False
        elif tag == "pre" and self._is_code:
            self._end_line()
            self._is_code = False
            self._lines += ["```", ""]
        elif tag in {"td", "th"}:
            self._end_cell()
        elif tag == "tr":
            self._end_row()
        elif tag == "table":
            self._end_row()
            self._begin()
        elif tag in _HEADINGS or tag in _PARAGRAPHS:
            self._begin()

    def handle_data(self, data: str) -> None:
        """Add text to the open line."""
        if self._is_unshown:
            return
        if self._is_title:
            self._title.append(data)
        elif self._is_code:
            *whole, rest = data.split("\n")
            for line in whole:
                self._lines.append("".join((*self._line, line)))
                self._line = []
            self._line.append(rest)
        else:
            self._line.append(data)

    def markdown(self) -> str:
        """Return what was read. The title heads it if no heading does."""
        self._end_row()
        self._end_line()
        title = " ".join("".join(self._title).split())
        head = [f"# {title}", ""] if title and not self._has_heading else []
        return "\n".join((*head, *self._lines)).strip() + "\n"

    def _begin(self, prefix: str = "") -> None:
        """End the open line and begin a paragraph. Within a table a paragraph is a part of its cell."""
        if self._cells is not None:
            self._line.append(" ")
            return
        self._end_line()
        if self._lines and self._lines[-1] and not self._is_code:
            self._lines.append("")
        self._prefix = prefix

    def _end_line(self) -> None:
        if self._cells is not None:
            self._line.append(" ")
            return
        text = "".join(self._line) if self._is_code else self._taken()
        self._line = []
        if text:
            self._lines.append(self._prefix + text)
            self._prefix = ""

    def _end_cell(self) -> None:
        if self._cells is not None and (text := self._taken()):
            self._cells.append(text)

    def _end_row(self) -> None:
        self._end_cell()
        cells, self._cells = self._cells, None
        if cells:
            self._lines.append(f"| {' | '.join(cells)} |")

    def _taken(self) -> str:
        """Return the text of the open line with single spaces, and begin an empty one."""
        text = " ".join("".join(self._line).split())
        self._line = []
        return text
