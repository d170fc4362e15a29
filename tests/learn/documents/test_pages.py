"""Reading the text of files, and splitting it into pages."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import InputError
from palimpsest.learn.document_pages import MAX_WORDS, split, trails
from palimpsest.learn.readers import MAX_BYTES, read_file
from palimpsest.text.tokenizer import count_words
from tests.support.documents import stream, write_objects, write_pdf

pytestmark = pytest.mark.anyio

LINES = st.sampled_from(
    [
        *("", "# One", "## Two", "### Three ###", "Title", "=====", "---", "```", "~~~~ python", "| a | b |", "short"),
        *("word " * 40, "A sentence. Another one! A third? " * 30, "x" * 9_000, "漢字の文です。" * 100),
        *("\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22" * 200, "\t", "\r", "\u2028", "\x0c"),
    ]
)
TEXTS = st.one_of(st.text(max_size=400), st.lists(LINES, max_size=40).map("\n".join))


def words(count: int, word: str = "plain") -> str:
    return " ".join(f"{word}{number}." for number in range(count))


@given(TEXTS)
def test_the_pages_joined_are_the_text_and_each_can_be_shown(text: str) -> None:
    pages = split(text)
    assert "".join(pages) == text
    assert all(count_words(page) <= MAX_WORDS for page in pages)
    assert len(trails(pages)) == len(pages)


@pytest.mark.parametrize(
    "whole", ["```python\n" + "x = 1  # a line\n\n" * 90 + "```\n", "| a | b |\n|---|---|\n" + "| one | two |\n" * 90]
)
def test_code_and_tables_stay_whole_if_they_fit(whole: str) -> None:
    pages = split(f"{words(500)}\n\n{whole}\n{words(500)}\n")
    assert sum(whole.strip() in page for page in pages) == 1


PAGE = """<!doctype html><html><head><title>Boiler manual</title><style>p { color: red }</style>
<script>if (a < b) { document.write("<p>never shown</p>") }</script></head><body>
<h1>Boiler</h1><p>The pressure is <b>1.5</b> bar&nbsp;&amp; rising.</p>
<ul><li>Open the valve<li>Close it</ul>
<table><tr><th>Code</th><th>Meaning</th></tr><tr><td>E4</td><td><p>No water</p></td></tr></table>
<pre>reset  --hard
# no heading</pre><h2>Care</h2>Once a year.</body></html>"""

READ: list[tuple[str, bytes, str]] = [
    (
        "boiler.html",
        PAGE.encode(),
        "# Boiler\n\nThe pressure is 1.5 bar & rising.\n\n- Open the valve\n- Close it\n\n| Code | Meaning |\n"
        "| E4 | No water |\n\n```\nreset  --hard\n# no heading\n```\n\n## Care\n\nOnce a year.\n",
    ),
    ("titled.html", b"<title>Notes &amp; more</title><p>One.", "# Notes & more\n\nOne.\n"),
    ("cp1252.html", "<meta charset='windows-1252'><p>Caf\xe9".encode("cp1252"), "Caf\xe9\n"),
    ("utf8.html", "<p>Caf\xe9".encode(), "Caf\xe9\n"),
    ("utf16.html", "<p>Caf\xe9".encode("utf-16"), "Caf\xe9\n"),
    ("deep.html", b"<div><b>" * 20_000 + b"down here", "down here\n"),
    *((f"{mark}.txt", "Grüße, 世界\n".encode(mark), "Grüße, 世界\n") for mark in ("utf-8", "utf-8-sig", "utf-16")),
]

REFUSED = [
    ("note.txt", "Gr\xfc\xdfe".encode("latin-1"), "not text in UTF-8"),
    ("photo.md", b"\x89PNG\0\0\0", "zero bytes"),
    ("broken.pdf", b"%PDF-1.7\nnothing of the kind", "damaged"),
    ("empty.pdf", b"", "damaged"),
    ("picture.html", b"<p>\0\0", "zero bytes"),
]


@pytest.mark.parametrize(("name", "data", "text"), READ, ids=[name for name, *_ in READ])
async def test_each_type_keeps_what_is_text(tmp_path: Path, name: str, data: bytes, text: str) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    assert await read_file(file) == text


@pytest.mark.parametrize(("name", "data", "says"), REFUSED, ids=[name for name, *_ in REFUSED])
async def test_what_is_no_text_says_so(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    with pytest.raises(InputError, match=says):
        await read_file(file)


async def test_a_pdf_names_its_pages_and_one_of_pictures_says_what_to_do(tmp_path: Path) -> None:
    file = write_pdf(tmp_path / "guide.pdf", ["The hut opens in June.", "", "Bring (warm) clothes.\nAnd a torch."])
    expected = "[p. 1]\n\nThe hut opens in June.\n\n[p. 3]\n\nBring (warm) clothes.\nAnd a torch.\n"
    assert await read_file(file) == expected
    with pytest.raises(InputError, match="text recognition"):
        await read_file(write_pdf(tmp_path / "scan.pdf", ["", ""]))


async def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "huge.txt"
    with file.open("wb") as out:
        out.truncate(MAX_BYTES + 1)
    with pytest.raises(InputError, match="more than 50,000,000"):
        await read_file(file)


@pytest.mark.nightly
async def test_hostile_pdfs_end_in_an_error(tmp_path: Path) -> None:
    """Guards memory and time: a few kilobytes unpack to hundreds of megabytes, and pages go in a circle."""
    packed = zlib.compressobj(9)
    line = b"BT /F1 12 Tf (x) Tj ET\n" * 40_000
    inner = b"".join([*(packed.compress(line) for _ in range(300)), packed.flush()])
    catalog = b"<< /Type /Catalog /Pages 2 0 R >>"
    bomb = [
        catalog,
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>",
        stream(inner, compressed=True).replace(b"/FlateDecode", b"[/FlateDecode /FlateDecode]"),
    ]
    for objects in (bomb, [catalog, b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"]):
        with pytest.raises(InputError):
            await read_file(write_objects(tmp_path / "hostile.pdf", objects))
