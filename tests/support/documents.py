"""Documents for tests: texts of several pages, and PDF files, sound and hostile."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

HUT = """# Hut handbook

## Water

Water comes from the spring behind the hut. In a dry August the spring fails, and water is carried up from the Lohnsee.

## Stove

Light the stove with the damper open. Ash goes into the zinc bucket only.
"""


def chapter(name: str, sentence: str, count: int = 55) -> str:
    """Return a section that fills a page."""
    return f"## {name}\n\n" + " ".join(f"{sentence} ({number})" for number in range(count)) + "\n\n"


def book(*chapters: str) -> str:
    """Return a book with a page for each chapter."""
    return "# Book\n\n" + "".join(chapter(name, f"The {name} is painted again every spring.") for name in chapters)


def write_pdf(file: Path, pages: Sequence[str], *, compressed: bool = True) -> Path:
    """Write a PDF file with a line of text for each line of each page."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode())
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for number, page in enumerate(pages):
        resources = "/Resources << /Font << /F1 3 0 R >> >>"
        content = f"/MediaBox [0 0 612 792] /Contents {5 + 2 * number} 0 R"
        objects.append(f"<< /Type /Page /Parent 2 0 R {resources} {content} >>".encode())
        lines = "".join(f"({line.translate(_ESCAPED)}) Tj T* " for line in page.splitlines())
        objects.append(stream(f"BT /F1 12 Tf 14 TL 50 740 Td {lines} ET".encode("latin-1"), compressed=compressed))
    return write_objects(file, objects)


def write_objects(file: Path, objects: Sequence[bytes]) -> Path:
    """Write a PDF file of these objects, of which the first is its catalog."""
    data = b"%PDF-1.7\n"
    places: list[int] = []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    count = len(objects) + 1
    data_end = b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R >>\n" % (count, table, count)
    file.write_bytes(data + data_end + b"startxref\n%d\n%%%%EOF\n" % len(data))
    return file


def stream(content: bytes, *, compressed: bool = True) -> bytes:
    """Return a stream object of a PDF file."""
    body, filters = (zlib.compress(content), b"/Filter /FlateDecode ") if compressed else (content, b"")
    return b"<< %s/Length %d >>\nstream\n%s\nendstream" % (filters, len(body), body)


_ESCAPED = str.maketrans({"(": "\\(", ")": "\\)", "\\": "\\\\"})
