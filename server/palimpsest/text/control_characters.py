"""Make control characters visible, so that no stored text steers a terminal or hides and reorders what is read.

What is stored stays as it is; only what people and models read goes through here.
"""

from __future__ import annotations

import json
import re

_FLAG = "\U0001f3f4\U000e0067\U000e0062(?:{})\U000e007f".format(
    "|".join("".join(chr(0xE0000 + ord(letter)) for letter in country) for country in ("eng", "sct", "wls"))
)
"""The flags of England, Scotland and Wales, which are written with tag characters."""

_CONTROLS = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and line break, delete, C1
    r"\u2028\u2029\ud800-\udfff"  # line and paragraph separators, lone surrogates
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"  # bidi controls, and the deprecated format characters
    r"\ufff9-\ufffb\U000e0000-\U000e007f]"  # annotations and tags, whose text shows nowhere
)
_FLAG_OR_CONTROL = re.compile(f"{_FLAG}|{_CONTROLS}")
_CONTROL = re.compile(_CONTROLS)


def visible(text: str) -> str:
    r"""Return a text with its control characters as escapes such as `\x1b` and `\u202e`; twice is as good as once.

    Line breaks and tabs stay, and a carriage return before a line break is left out.
    """
    if text.isprintable():
        return text
    return _FLAG_OR_CONTROL.sub(_escape, text.replace("\r\n", "\n"))


def visible_json(document: str) -> str:
    r"""Return a JSON document of the same value with its control characters escaped, such as `\u009b`."""
    return _CONTROL.sub(lambda match: json.dumps(match[0])[1:-1], document)


def _escape(match: re.Match[str]) -> str:
    is_flag = len(match[0]) > 1
    return match[0] if is_flag else match[0].encode("unicode_escape").decode("ascii")
