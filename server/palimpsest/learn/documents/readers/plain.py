"""Read Markdown and plain text: bytes to text, without guessing at encodings."""

from __future__ import annotations

import codecs

from palimpsest.core.errors import InputError

_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
"""The byte order marks that name an encoding, at the beginning of a file."""


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
