"""Names of files that every system accepts: Windows, macOS, Linux, and the links of Obsidian."""

from __future__ import annotations

import re
import unicodedata

MAX_NAME_BYTES = 120
"""A name may have 255 bytes, and 143 in an encrypted folder. What makes it unique and its ending need some of them."""

UNNAMED = "unnamed"

_FORBIDDEN = re.compile(r'[<>:"/\\|?*#^\[\]%`]+')
"""What Windows forbids, and what ends a link of Obsidian."""

_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)
"""Names of devices on Windows, which it also finds before a full stop."""


def safe_name(name: str) -> str:
    """Return a name without an ending that is a file name on every system. Different names may become the same."""
    plain = unicodedata.normalize("NFC", name)
    plain = "".join(" " if char.isspace() else char for char in plain if char.isspace() or _is_written(char))
    plain = " ".join(_FORBIDDEN.sub(" ", plain).split())
    plain = plain.encode()[:MAX_NAME_BYTES].decode(errors="ignore").strip(" .")
    plain = unicodedata.normalize("NFC", plain) or UNNAMED
    return f"{plain}_" if _RESERVED.fullmatch(plain) else plain


def _is_written(char: str) -> bool:
    return unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn")


def name_taken(name: str) -> str:
    """Return what is equal for two names that are one file where case or composition do not count."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
