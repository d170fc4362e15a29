"""Remove secrets from a text before any of it is stored: keys, tokens, passwords and private keys.

Four functions search a text. A secret is recognized by its frame (the BEGIN line of a private key), by its format (see
`secret_patterns`), by its place in a URL, or by the words before it (see `secret_statements`). Each function takes time
linear in the length of the text: repetitions are bounded, or cannot start twice at the same place.

There is no entropy check, because it would remove hashes and ids. No secret is ever verified with its provider, because
that would send it over the network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from palimpsest.core.errors import InputError
from palimpsest.text.secret_patterns import compiled_formats
from palimpsest.text.secret_statements import REFERENCE, Span, is_mixed, kind_under, names_secret, statements

MAX_DEPTH = 100
"""How deep metadata may be nested."""

_PASSES = 4
"""Taking a secret out might bring another to light: a text is settled when a pass finds nothing. The second does."""

_MARKER = re.compile(r"\[secret removed: [a-z0-9 ]{1,40}\]")


@dataclass(frozen=True, slots=True)
class Redacted:
    """Hold a text without its secrets, and what kinds were taken out, one word or phrase for each secret taken out."""

    text: str
    kinds: tuple[str, ...] = ()


def is_marker(text: str) -> bool:
    """Say whether a text is nothing but what stands for secrets that were taken out."""
    return _MARKER.search(text) is not None and not any(map(str.isalnum, _MARKER.sub("", text)))


def redact(text: str) -> Redacted:
    """Return a text with a marker in place of each secret. What was cleaned once comes back as it is."""
    kinds: list[str] = []
    for _ in range(_PASSES):
        spans = _found(text)
        if not spans:
            break
        parts: list[str] = []
        end = 0
        for span in spans:
            parts += text[end : span.start], f"[secret removed: {span.kind}]"
            end = span.end
        text = "".join(parts) + text[end:]
        kinds.extend(span.kind for span in spans)
    return Redacted(text, tuple(kinds))


def redact_json(value: Any) -> tuple[Any, tuple[str, ...]]:
    """Return a JSON value with a marker in place of each secret, and their kinds; what is given is not changed.

    A string under a key such as `password` or `api_key` is read as a statement of one. Raises InputError when the
    value is nested more than MAX_DEPTH deep.
    """
    kinds: list[str] = []
    return _cleaned_value(value, "", kinds, 0), tuple(kinds)


def _cleaned_value(value: Any, name: str, kinds: list[str], depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise InputError(f"metadata is nested more than {MAX_DEPTH} deep; nothing was stored. Send it flatter.")
    if isinstance(value, Mapping):
        cleaned: dict[Any, Any] = {}
        for key, held in cast("Mapping[Any, Any]", value).items():
            safe = _cleaned_value(key, "", kinds, depth + 1) if isinstance(key, str) else key
            while safe in cleaned:  # two secrets of one kind as keys: neither value may be lost
                safe += " again"
            cleaned[safe] = _cleaned_value(held, key if isinstance(key, str) else "", kinds, depth + 1)
        return cleaned
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return type(items)(_cleaned_value(item, name, kinds, depth + 1) for item in items)
    if name and isinstance(value, str | int) and not isinstance(value, bool):
        kind = kind_under(name, str(value))
        if kind:
            kinds.append(kind)
            return f"[secret removed: {kind}]"
    if not isinstance(value, str):
        return value
    found = redact(value)
    kinds.extend(found.kinds)
    return found.text


def _found(text: str) -> list[Span]:
    """Return what is to be taken out, in order and apart; of what overlaps, the kind is that of the first."""
    # a marker is part of no value and ends no clause, so that it changes nothing for what stands beside it
    seen = _MARKER.sub(lambda marker: "\x00" * len(marker.group()), text) if "[secret removed: " in text else text
    spans: list[Span] = []
    for span in sorted((*_private_keys(seen), *_tokens(seen), *_addresses(seen), *statements(seen)), key=_place):
        if spans and span.start < spans[-1].end:
            spans[-1] = spans[-1]._replace(end=max(span.end, spans[-1].end))
        else:
            spans.append(span)
    return spans


def _place(span: Span) -> int:
    return span.start


# --- by frame

_BEGIN = re.compile(r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|PuTTY-User-Key-File-\d:")
_END = re.compile(r"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|Private-MAC: ?[0-9a-f]{40,64}")
_BASE64 = re.compile(r"(?=[A-Za-z+/]{0,64}\d|[a-z+/]{0,64}[A-Z]|[A-Z+/]{1,64}[a-z])[A-Za-z0-9+/]{12,}")
_BODY = re.compile(
    r"(?:(?:\s|\\[rn]|[>|\"+])*+"
    r"(?:[A-Za-z0-9+/]{16,}+={0,2}|(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset):[^\n]*+))*+"
    r"(?:\s*+[A-Za-z0-9+/]{1,15}={1,2}|\s*+[A-Za-z0-9+/]{0,14}\d[A-Za-z0-9+/]{0,14}\s*\Z)?"
)
"""What follows a BEGIN whose END is missing: lines of base64 and of armour, and a last short one."""

_MAX_KEY_CHARS = 40_000


def _private_keys(text: str) -> Iterator[Span]:
    """Find whole private keys; one without its END goes as far as it looks like one, one without a body stays."""
    if "PRIVATE KEY" not in text and "PuTTY-User" not in text:
        return
    ends = [match.span() for match in _END.finditer(text)]
    begins = [match.span() for match in _BEGIN.finditer(text)]
    at = 0
    for (start, body), (following, _) in zip(begins, [*begins, (len(text), 0)][1:], strict=True):
        while at < len(ends) and ends[at][0] < body:
            at += 1
        if at < len(ends) and ends[at][0] < min(following, body + _MAX_KEY_CHARS):
            end = ends[at][1]
        else:
            match = _BODY.match(text, body, following)
            end = match.end() if match else body
        if _BASE64.search(text, body, end):
            yield Span(start, end, "private key")


# --- by form

_LONG_WORD = re.compile(r"[!-~]{16}")
_REST = re.compile(r"[\w-]*+(?:\.[\w-]{9,})*+", re.ASCII)
"""The rest of a token that is longer than its format says."""


@cache
def _token_formats() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the compiled formats. Texts without a long word do not need them, so they are compiled on first use."""
    return compiled_formats()


def _tokens(text: str) -> Iterator[Span]:
    if not _LONG_WORD.search(text):
        return
    for kind, pattern in _token_formats():
        end = 0
        for match in pattern.finditer(text):
            start, token_end = match.span(pattern.groups)  # the group, or the whole match if there is no group
            if start >= end and _is_random(text[start:token_end]):
                end = cast("re.Match[str]", _REST.match(text, token_end)).end()
                yield Span(start, end, kind)


def _is_random(token: str) -> bool:
    """Return False for a masked token (`sk-xxxx`) and for words that look like one (`sk-fade-in-animation`)."""
    return len(set(token[-12:])) > 2 and (is_mixed(token) or token.isupper())  # noqa: PLR2004 - `xX`, `x-`


# --- by place

_ADDRESS = re.compile(r"://[^\s\x00:/@?#\"'<>`]{0,100}:([^\s\x00/?#\"'<>`,;]{3,200})@(?=[\w\[.-])")


def _addresses(text: str) -> Iterator[Span]:
    if "://" in text:
        for match in _ADDRESS.finditer(text):
            if not names_secret(match[1]) and not REFERENCE.fullmatch(match[1]):
                yield Span(*match.span(1), "password")
