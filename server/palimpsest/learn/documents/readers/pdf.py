"""Read the text of a PDF file with pypdf, which is written in Python alone."""

from __future__ import annotations

import io

from palimpsest.core.errors import InputError

MAX_PDF_PAGES = 5_000
"""More pages are refused. Set by hand: several thick books."""


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
