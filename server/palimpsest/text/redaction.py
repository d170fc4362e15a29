"""Remove secrets from a text before any of it is stored: keys, tokens, passwords and private keys.

A secret is recognized by its frame (the BEGIN line of a private key), its format, its place in a URL, a command, a
header, a table or an answer, or the words before it (see `secret_finder`). Each function takes time linear in the
length of the text: repetitions are bounded, or cannot start twice at the same place.

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
from palimpsest.text import secret_finder
from palimpsest.text.secret_finder import Span
from palimpsest.text.word_lists import patterns, word_lists

_RE = patterns("palimpsest.text", "redaction.txt")

MAX_DEPTH = 100
"""The deepest nesting of metadata that is accepted. Deeper values would exhaust the interpreter's stack."""

_PASSES = 4
"""Removing a secret can expose another one, so passes are repeated until one finds nothing. Usually the second does."""


MIN_REST = 2
"""How many words beside function words a text says at least beside its secrets."""


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without its secrets, and the kind of each secret that was removed."""

    text: str
    kinds: tuple[str, ...] = ()


def is_marker(text: str) -> bool:
    """Return whether a text consists of nothing but markers for removed secrets."""
    return _RE["marker"].search(text) is not None and not any(map(str.isalnum, _RE["marker"].sub("", text)))


def says_only_secrets(text: str) -> bool:
    """Return whether a text says nothing but that there was a secret: "The admin password is [secret removed: …]"."""
    if _RE["marker"].search(text) is None:
        return False
    from palimpsest.text.tokenizer import query_tokens  # noqa: PLC0415 - redaction itself loads no library for stems

    rest = " ".join(
        clause for clause in _RE["clause end"].split(_RE["marker"].sub("\x00", text)) if "\x00" not in clause
    )
    return len(query_tokens(secret_finder.NAME.sub("", secret_finder.lower_case(rest)))) < MIN_REST


def redact(text: str) -> Redacted:
    """Return a text with a marker in place of each secret. A redacted text is returned unchanged."""
    kinds: list[str] = []
    for _ in range(_PASSES):
        spans = _secrets(text)
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
    """Return a copy of a JSON value with a marker in place of each secret, and the kinds of the secrets.

    A string or number under a key such as `password` or `api_key` is read as a statement of a secret. Raises InputError
    if the value is nested more than MAX_DEPTH deep.
    """
    kinds: list[str] = []
    return _redacted_value(value, "", kinds, 0), tuple(kinds)


def _redacted_value(value: Any, key: str, kinds: list[str], depth: int) -> Any:
    """Return a value without its secrets, and append their kinds to `kinds`. `key` is the key of the value or ""."""
    if depth > MAX_DEPTH:
        raise InputError(
            f"metadata is nested more than {MAX_DEPTH} deep; nothing was stored. Use at most {MAX_DEPTH} levels."
        )
    if isinstance(value, Mapping):
        redacted: dict[Any, Any] = {}
        for item_key, item in cast("Mapping[Any, Any]", value).items():
            new_key = _redacted_value(item_key, "", kinds, depth + 1) if isinstance(item_key, str) else item_key
            while new_key in redacted:  # two secrets of one kind as keys: neither value may be lost
                new_key += " again"
            redacted[new_key] = _redacted_value(item, item_key if isinstance(item_key, str) else "", kinds, depth + 1)
        return redacted
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return type(items)(_redacted_value(item, key, kinds, depth + 1) for item in items)
    if key and isinstance(value, str | int) and not isinstance(value, bool):
        kind = secret_finder.secret_kind(key, str(value))
        if kind:
            kinds.append(kind)
            return f"[secret removed: {kind}]"
    if not isinstance(value, str):
        return value
    result = redact(value)
    kinds.extend(result.kinds)
    return result.text


def _secrets(text: str) -> list[Span]:
    """Return the secrets in order, without overlaps. Overlapping secrets become one, of the kind of the first."""
    # NUL characters belong to no value and end no clause, so a marker does not change how the text around it is read
    unmarked = (
        _RE["marker"].sub(lambda marker: "\x00" * len(marker.group()), text) if "[secret removed: " in text else text
    )
    candidates = (
        *_private_keys(unmarked),
        *_tokens(unmarked),
        *_url_passwords(unmarked),
        *secret_finder.placed_secrets(unmarked),
        *secret_finder.stated_secrets(unmarked),
    )
    spans: list[Span] = []
    for span in sorted(candidates, key=lambda span: span.start):
        if spans and span.start < spans[-1].end:
            spans[-1] = spans[-1]._replace(end=max(span.end, spans[-1].end))
        else:
            spans.append(span)
    return spans


# --- Private keys, by their first and last line


_MAX_KEY_CHARS = 40_000
"""The longest private key with an END line. An RSA key of 16,384 bits has a third of it."""


def _private_keys(text: str) -> Iterator[Span]:
    """Yield whole private keys.

    A key without an END line ends where the text no longer looks like one. A BEGIN line without a key is not a secret.
    """
    if "PRIVATE KEY" not in text and "PuTTY-User" not in text:
        return
    ends = [match.span() for match in _RE["end"].finditer(text)]
    begins = [match.span() for match in _RE["begin"].finditer(text)]
    next_end = 0
    for (start, body), (next_start, _) in zip(begins, [*begins, (len(text), 0)][1:], strict=True):
        while next_end < len(ends) and ends[next_end][0] < body:
            next_end += 1
        if next_end < len(ends) and ends[next_end][0] < min(next_start, body + _MAX_KEY_CHARS):
            end = ends[next_end][1]
        else:
            match = _RE["body"].match(text, body, next_start)
            end = match.end() if match else body
        if _RE["base64"].search(text, body, end):
            yield Span(start, end, "private key")


# --- Keys and tokens, by their format


@cache
def token_formats() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the kind and the pattern of each format, for each of its prefixes.

    Texts without a long word do not need them, so they are compiled on first use.
    """
    found: list[tuple[str, re.Pattern[str]]] = []
    for kind, lines in word_lists("palimpsest.text", "secret_formats.txt").items():
        for line in lines.splitlines():
            *prefixes, rest = line.split()
            # The prefix stands before the assertion about what precedes it: `re` is faster with a leading literal.
            literals = map(re.escape, prefixes or [""])
            found += [(kind, re.compile(f"{literal}(?<![A-Za-z0-9]{literal}){rest}", re.ASCII)) for literal in literals]
    return tuple(found)


def _tokens(text: str) -> Iterator[Span]:
    """Yield the keys and tokens that have one of the formats of `secret_formats.txt`."""
    if not _RE["long word"].search(text):
        return
    for kind, pattern in token_formats():
        end = 0
        for match in pattern.finditer(text):
            start, token_end = match.span(pattern.groups)  # the group, or the whole match if there is no group
            if start >= end and _is_random(text[start:token_end]):
                end = cast("re.Match[str]", _RE["rest"].match(text, token_end)).end()
                yield Span(start, end, kind)


def _is_random(token: str) -> bool:
    """Return False for a masked token (`sk-xxxx`) and for words that look like one (`sk-fade-in-animation`)."""
    return len(set(token[-12:])) > 2 and (secret_finder.looks_random(token) or token.isupper())  # noqa: PLR2004 - `xX`, `x-`


# --- Passwords in URLs


def _url_passwords(text: str) -> Iterator[Span]:
    """Yield the passwords in URLs such as `postgres://user:password@host`."""
    if "://" in text:
        for match in _RE["url password"].finditer(text):
            if not secret_finder.is_placeholder(match[1]):
                yield Span(*match.span(1), "password")
