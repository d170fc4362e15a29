"""Read text, Markdown, HTML and PDF files within limits of size, time and memory."""

import codecs
import io
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import anyio

from palimpsest.core.errors import InputError
from palimpsest.core.files import refuse_special
from palimpsest.text.display import shorten

# Read Markdown and plain text: bytes to text, without guessing at encodings.

# The byte order marks that name an encoding, at the beginning of a file.
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def decoded(data: bytes, declared: str = "") -> str:
    """Return the text of a file: UTF-8, the encoding that its first bytes mark, or the one it declares.

    Raises InputError for other bytes. A wrong guess would store a text that nobody can read or find.
    """
    marked = next((name for mark, name in _MARKS if data.startswith(mark)), "")
    if not marked and b"\0" in data:
        raise InputError("it is not text: it has zero bytes")
    for name in dict.fromkeys(filter(None, (marked, "utf-8", declared))):
        try:
            return data.decode(name)
        except (UnicodeDecodeError, LookupError):
            continue
    raise InputError("it is not text in UTF-8. Save it as UTF-8")


# Read HTML as Markdown: headings, paragraphs, lists, tables and code keep what splitting into pages looks for.
#
# The parser of the standard library calls a function for each tag and builds no tree, so deep nesting costs nothing.

# In how many bytes from the beginning an encoding is declared. HTML says 1,024; some pages need a little more.
DECLARED_WITHIN = 2_048

_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_BLOCKS = """address article aside blockquote body dd details dialog div dl dt fieldset figcaption figure footer form
    header hgroup hr html main nav ol p pre section summary table tbody tfoot thead ul"""
_PARAGRAPHS = frozenset(_BLOCKS.split()) | _HEADINGS.keys()

# What stands before the text of an element.
_PREFIXES = {**_HEADINGS, "li": "- ", "td": "| ", "th": "| "}

# What has text that is no part of a paragraph, or that is not shown.
_APART = frozenset({"title", "pre", "script", "style"})


def read_html(data: bytes) -> str:
    """Return the text of an HTML file as Markdown. Raises InputError if it is not text."""
    declared = _CHARSET.search(data[:DECLARED_WITHIN])
    reader = _Reader()
    reader.feed(decoded(data, declared[1].decode("ascii") if declared else ""))
    reader.close()
    return reader.markdown()


class _Reader(HTMLParser):
    """Collects Markdown while it is fed. `_apart` is the open element of `_APART`, and `_prefix` waits for a text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._title = self._apart = self._prefix = ""
        self._is_cell = self._has_heading = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin what a tag begins."""
        del attrs
        self._apart = tag if tag in _APART else self._apart
        self._has_heading |= tag in _HEADINGS
        self._is_cell = tag in {"td", "th"} or (self._is_cell and tag != "tr")
        self._break("\n" if tag in {"li", "br", "tr"} else "\n\n" if tag in _PARAGRAPHS else "")
        self._prefix = _PREFIXES.get(tag, self._prefix)
        if tag == "pre":
            self._parts.append("```\n")

    def handle_endtag(self, tag: str) -> None:
        """End what a tag ends."""
        if tag == self._apart:
            self._apart = ""
            if tag == "pre":
                self._parts.append("```" if self._parts[-1].endswith("\n") else "\n```")
        self._is_cell = self._is_cell and tag not in {"tr", "table"}
        self._break("\n\n" if tag in _PARAGRAPHS else "")
        self._prefix = "" if tag in _HEADINGS else self._prefix

    def handle_data(self, data: str) -> None:
        """Add text: to the code as it is, elsewhere with single spaces."""
        if self._apart == "title":
            self._title += data
        elif self._apart == "pre":
            self._parts.append(data)
        elif not self._apart:
            self._parts.append((self._prefix if data.strip() else "") + re.sub(r"\s+", " ", data))
            self._prefix = "" if data.strip() else self._prefix

    def markdown(self) -> str:
        """Return what was read. The title heads it if no heading does."""
        title = " ".join(self._title.split())
        lines = [f"# {title}", ""] if title and not self._has_heading else []
        is_code = False
        for line in "".join(self._parts).split("\n"):
            is_fence = line == "```"
            text = line if is_code else " ".join(line.split())
            if text or is_code or (lines and lines[-1]):
                lines.append(f"{text} |" if text.startswith("| ") and not is_code else text)
            is_code ^= is_fence
        return "\n".join(lines).strip() + "\n"

    def _break(self, text: str) -> None:
        """End a line. Within a cell of a table it is a space."""
        self._parts.append(" " if self._is_cell else text)


# Read the text of a PDF file with pypdf, which is written in Python alone.

# More pages are refused: several thick books.
MAX_PDF_PAGES = 5_000


def read_pdf(data: bytes, max_chars: int) -> str:
    """Return the text of a PDF file. Before the text of each of its pages a line names it, such as "[p. 12]".

    Raises InputError for a locked file, one without text, and one with more than `max_chars` characters. A broken file
    makes pypdf raise whatever it likes.
    """
    from pypdf import PdfReader  # noqa: PLC0415 - imported where a PDF is read, which is seldom

    reader = PdfReader(io.BytesIO(data), strict=False)
    if reader.is_encrypted and not reader.decrypt(""):
        raise InputError("it is locked by a password. Save a copy without one")
    count = len(reader.pages)
    if count > MAX_PDF_PAGES:
        raise InputError(f"it has {count:,} pages, more than {MAX_PDF_PAGES:,}. Split it")
    texts: list[str] = []
    chars = 0
    for number, page in enumerate(reader.pages, 1):
        if text := page.extract_text().strip():
            texts.append(f"[p. {number}]\n\n{text}\n")
            chars += len(text)
        if chars > max_chars:
            raise InputError(f"it has more than {max_chars:,} characters of text. Split it")
    if not texts:
        raise InputError("it has no text, only pictures. Run text recognition (OCR) on it first")
    return "\n".join(texts)


# A process that reads one HTML or PDF file: `python -m palimpsest.learn.readers FILE`.
#
# Both formats let a small file ask for much work: PDF by compression, HTML by what its parser looks for in vain. So
# they are read in a process of their own, with a limit on its memory, and its caller kills it after a while. What it
# read is JSON on standard output: {"text": …} or {"error": …}.

# How many bytes of address space the process may use: the largest file that is read takes a third.
MAX_MEMORY = 1_500_000_000

# The most text that one document may have, in characters: several books, about 1,500 pages of ours.
MAX_CHARS = 5_000_000


def read(file: Path) -> str:
    """Return the text of a file. Raises InputError, and whatever a broken file makes a parser raise."""
    data = file.read_bytes()
    return read_pdf(data, MAX_CHARS) if file.suffix.lower() == ".pdf" else read_html(data)


def _limit_memory() -> None:
    """Limit the memory of this process, where the system can: not on Windows."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - there is none on Windows

    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, most))


def main() -> None:
    """Read the file that the command line names."""
    _limit_memory()
    try:
        reply = {"text": read(Path(sys.argv[1]))}
    except InputError as error:
        reply = {"error": str(error)}
    except MemoryError:
        reply = {"error": "reading it takes too much memory"}
    except Exception as error:  # noqa: BLE001 - a broken PDF makes pypdf raise anything, and the reply says what
        reply = {"error": f"it is damaged: {str(error) or type(error).__name__}"}
    sys.stdout.write(json.dumps(reply))


if __name__ == "__main__":
    main()


# Read a file as text, by its type, within limits of size, time and memory.

# Larger files are refused: a long book with pictures as a PDF.
MAX_BYTES = 50_000_000

# How long reading an HTML or PDF file may take: a PDF of a thousand pages takes half of it.
READ_SECONDS = 60.0

MAX_ERROR_CHARS = 200

# The types that are read in a process of their own.
MARKUP = frozenset({".html", ".htm", ".xhtml", ".pdf"})

# The types that a folder is searched for, besides those of `MARKUP`. A file that is named may be any text.
TEXT = frozenset({".md", ".markdown", ".mdown", ".txt", ".text", ".rst", ".org", ".adoc"})


async def read_file(file: Path) -> str:
    """Return the text of a file, without white space that shows nothing. Raises InputError that says what is wrong."""
    try:
        refuse_special(file)
        async with await anyio.open_file(file, "rb") as stream:
            content = await stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise InputError(f"it has more than {MAX_BYTES:,} bytes")
        text = await _read_apart(file) if file.suffix.lower() in MARKUP else decoded(content)
    except OSError as error:
        raise InputError(f"it cannot be read: {error.strerror or error}") from error
    if len(text) > MAX_CHARS:
        raise InputError(f"it has {len(text):,} characters of text, more than {MAX_CHARS:,}. Split it")
    return text


async def _read_apart(file: Path) -> str:
    """Return what a process of its own reads. It is killed if it takes too long, or if this is cancelled."""
    command = [sys.executable, "-m", "palimpsest.learn.readers", str(file)]
    try:
        with anyio.fail_after(READ_SECONDS):
            done = await anyio.run_process(command, check=False)
    except TimeoutError:
        raise InputError(f"reading it takes longer than {READ_SECONDS:g} seconds") from None
    try:
        reply: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise InputError("it ended the process that read it, which takes too much memory") from None
    if "error" in reply:
        raise InputError(shorten(str(reply["error"]), MAX_ERROR_CHARS))
    return str(reply["text"])
