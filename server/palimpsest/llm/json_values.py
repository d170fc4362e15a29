"""Find the JSON values in a model's reply, which may think aloud, draft, comment, and write JSON as JavaScript does.

What stands in tags for thoughts is not the reply. A value that is cut off or garbled takes everything before it away:
that was a draft. All of it takes time in proportion to the length of the reply, whatever the reply is.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

MAX_BRACKETS = 1_000
"""How many brackets of a reply are tried as the start of a JSON value. It bounds the time for hostile replies."""

MAX_LENIENT_READS = 2
"""How often the length of a reply is read leniently, all brackets together."""

MAX_RESTARTS = 16
"""How often a reply may begin again after a broken draft."""

MAX_ESCAPES = 3
"""How often JSON is written as a string inside JSON, at most."""

_NAMES = (
    r"think(?:ing)?|thoughts?|reason(?:ing|s)?|analysis|analy[sz]e|reflect(?:ions?)?|self_?reflection|scratch_?pad|"
    r"plan(?:ning)?|draft|critique|rationale|deliberation|inner_?monologue|monologue|chain_of_thought|cot|brainstorm"
)
_END = rf"</\s*(?:\w{{1,20}}:)?(?:{_NAMES})\s*>|\[/THINK\]|\u25c1/think\u25b7|<\|END_THINKING\|>"
_BEGINNING = (
    rf"<(?:\w{{1,20}}:)?(?:{_NAMES})(?:\s[^<>\n]{{0,100}})?(?<!/)>|\[THINK\]|\u25c1think\u25b7|<\|START_THINKING\|>"
)
_TAG = re.compile(rf"(?P<end>{_END})|(?P<beginning>{_BEGINNING})", re.IGNORECASE)
_TAG_OR_BRACKET = re.compile(rf"{_TAG.pattern}|[{{\[]", re.IGNORECASE)
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)[^<]{0,50}(?:<\|constrain\|>[^<]{0,20})?<\|message\|>")
"""What begins the thoughts ("analysis") and the answer ("final") of OpenAI's open models."""

_ESCAPED = re.compile(r'[{\[](?:\s|\\[nrt]|[{\[]){0,40}+\\{1,9}"')
"""The beginning of JSON that is escaped as in a string."""

_ESCAPE = re.compile(r"\\(?:u|(.))", re.DOTALL)
_ESCAPED_CHARS = {"n": "\n", "r": "\r", "t": "\t"}

_AFTER_STRING = r"\s*+(?:[,:\]}]|//|/\*|\#|\Z)"
"""What follows a string. A quotation mark before anything else belongs to the text."""

_STRING_OR_RESTART = re.compile(
    rf'"(?:\\.|[^"\\])*+"(?={_AFTER_STRING})|\\.|(?P<end>{_END})|(?P<fence>```\w{{0,10}}\s{{0,9}}(?=[{{\[]))',
    re.IGNORECASE | re.DOTALL,
)
"""Where the reply may begin again after a broken draft, and strings, in which it does not."""

_TOKEN = re.compile(
    rf"""(?P<nothing>\s++|//[^\n]*+|\#[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)
    |(?P<string>"(?:\\.|[^"\\]|"(?!{_AFTER_STRING}))*+"
    |'(?:\\.|[^'\\]|'(?!{_AFTER_STRING}))*+'
    |[\u201c\u201d\u201e](?:\\.|[^\u201c\u201d\\])*+[\u201c\u201d])
    |(?P<mark>[{{}}\[\]:,])
    |(?P<word>[\w$.+-]++)""",
    re.DOTALL | re.VERBOSE,
)
_IN_STRING = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\\'|\\|"')
_COLON = re.compile(r"\s*+:")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,30})(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?")
_LITERALS = {
    **{word: word for word in ("true", "false", "null")},
    "True": "true",
    "False": "false",
    "None": "null",
    "undefined": "null",
    "NaN": "null",
}

_OPENERS = ('"', "'", "/*", "\u201c", "\u201d", "\u201e")

_DECODER = json.JSONDecoder(strict=False)


@dataclass(slots=True)
class ReplyValues:
    """The outermost JSON values of a reply, in order, and the reply without thoughts as one text.

    `is_broken` is whether a value came last that was cut off or garbled. Then there is no other.
    """

    values: list[Any] = field(default_factory=list[Any])
    answer: str = ""
    is_broken: bool = False


class _FaultError(Exception):
    """A text is no JSON, not even leniently: strictly up to `position`, and leniently for `read` characters."""

    def __init__(self, position: int, *, has_content: bool, read: int = 0) -> None:
        super().__init__()
        self.position = position
        self.has_content = has_content
        self.read = read


def reply_values(text: str, depth: int = 0) -> ReplyValues:
    """Return what a reply holds.

    A bracket that fails to parse before its first string is prose. A value that fails later was cut off or garbled:
    values inside it are not the reply, and what came before it was a draft, unless the reply begins again in a fence.
    """
    text = _final_channel(text)
    found = ReplyValues()
    thoughts = _Thoughts(text)
    parts: list[str] = []
    position = begin = restarts = 0
    lenient = MAX_LENIENT_READS * len(text)
    for _ in range(MAX_BRACKETS):
        if (mark := _TAG_OR_BRACKET.search(text, position)) is None:
            break
        at = mark.start()
        if mark["beginning"]:
            parts.append(text[begin:at])
            begin = position = thoughts.end_of(mark)
        elif mark["end"]:  # the beginning is missing: the prompt had it
            found, parts = ReplyValues(), []
            begin = position = mark.end()
        elif depth < MAX_ESCAPES and _ESCAPED.match(text, at):
            inner = reply_values(_unescaped(text[at:]), depth + 1)
            found.values = [] if inner.is_broken else [*found.values, *inner.values]
            found.is_broken = inner.is_broken
            break
        else:
            try:
                value, position = _decode(text, at, is_lenient=lenient > 0)
                found.values.append(value)
            except _FaultError as fault:
                lenient -= fault.read
                position = max(at + 1, fault.position)
                if not fault.has_content:
                    continue
                found.values = []
                restarts += 1
                restart = _restart(text, at) if text[:at].strip() and restarts <= MAX_RESTARTS else None
                if restart is None:
                    found.is_broken = True
                    break
                position = restart
    else:
        found.values, found.is_broken = [], True
    found.answer = "".join((*parts, text[begin:])).strip()
    return found


def _restart(text: str, broken: int) -> int | None:
    """Return where a reply begins again after a value that is broken: at the end of a thought, or in a fence."""
    for found in _STRING_OR_RESTART.finditer(text, broken):
        if found["end"]:
            return found.start()
        if found["fence"]:
            return found.end()
    return None


def without_thoughts(text: str) -> str:
    """Return a reply without the model's thoughts, unless it begins with JSON."""
    return text if text.lstrip().startswith(("{", "[")) else reply_values(text).answer


class _Thoughts:
    """The ends of the thoughts of a reply, by the name of their tags."""

    def __init__(self, text: str) -> None:
        self._length = len(text)
        self._ends: dict[str, list[int]] = {}
        for tag in _TAG.finditer(text):
            if tag["end"]:
                self._ends.setdefault(_family(tag[0]), []).append(tag.end())

    def end_of(self, beginning: re.Match[str]) -> int:
        """Return where a thought ends: at the first tag of its name, or else at the end of the reply."""
        ends = self._ends.get(_family(beginning[0]), [])
        place = bisect_left(ends, beginning.end())
        return ends[place] if place < len(ends) else self._length


def _family(tag: str) -> str:
    """Return the beginning of the name of a tag: "think" and "thinking" are one."""
    words = re.findall(r"[a-z_]{2,}", tag.casefold())
    named = [word.removeprefix("start_").removeprefix("end_") for word in words]
    return next((word[:4] for word in named if re.fullmatch(_NAMES, word)), "")


def _final_channel(text: str) -> str:
    """Return what stands in the last channel of a reply that has channels; "" if that are thoughts."""
    channels = list(_CHANNEL.finditer(text))
    if not channels:
        return text
    return "" if channels[-1][1].casefold() == "analysis" else text[channels[-1].end() :]


def _unescaped(text: str) -> str:
    """Return a text with one level of escapes less. A letter by its number is left to the JSON that it is in."""
    return _ESCAPE.sub(lambda found: _ESCAPED_CHARS.get(found[1], found[1]) if found[1] else found[0], text)


def _decode(text: str, at: int, *, is_lenient: bool) -> tuple[Any, int]:
    """Return the value that begins at a bracket, and where it ends. Raises _FaultError."""
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        position = error.pos
    except (RecursionError, ValueError) as error:  # nested too deep, or a number with too many digits
        raise _FaultError(len(text), has_content=True) from error
    has_content = '"' in text[at : position + 1]
    if not is_lenient:
        raise _FaultError(position, has_content=has_content)
    try:
        return _decode_leniently(text, at)
    except _FaultError as fault:
        raise _FaultError(position, has_content=has_content or fault.has_content, read=fault.read) from fault


def _decode_leniently(text: str, at: int) -> tuple[Any, int]:
    """Return the value that begins at a bracket, written as JavaScript or Python writes it. Raises _FaultError.

    Comments, single and curly quotation marks, trailing commas, bare keys, and quotation marks inside a text are
    understood.
    """
    written: list[str] = []
    brackets: list[str] = []
    position, has_key = at, False
    while token := _TOKEN.match(text, position):
        position = token.end()
        if token["nothing"]:
            continue
        is_key = token["mark"] is None and _COLON.match(text, position) is not None
        has_key |= is_key
        if not _may_follow(written, token, is_key=is_key):
            break
        if token["mark"] in ("}", "]"):
            if written[-1] == ",":
                written.pop()
            if brackets.pop() != token[0]:
                break
        elif token["mark"] in ("{", "["):
            brackets.append("}" if token[0] == "{" else "]")
        written.append(_as_string(token[0]) if token["string"] or is_key else _LITERALS.get(token[0], token[0]))
        if not brackets:
            try:
                return json.loads("".join(written), strict=False), position
            except (RecursionError, ValueError):
                break
    is_open = text.startswith(_OPENERS, position)  # a string or comment without an end was looked for to the end
    raise _FaultError(position, has_content=has_key, read=(len(text) if is_open else position) - at)


def _may_follow(written: list[str], token: re.Match[str], *, is_key: bool) -> bool:
    """Return whether a token may stand after what is written. What is left open here, JSON refuses at the end."""
    if token["mark"] in ("}", "]", ",", ":"):
        return True
    if token["word"] and not is_key and token[0] not in _LITERALS and not _NUMBER.fullmatch(token[0]):
        return False
    return not written or written[-1] in (("{", ",") if is_key else ("[", ",", ":"))


def _as_string(token: str) -> str:
    """Return a string or a bare key as JSON writes it."""
    inner = token[1:-1] if token[0] in "\"'\u201c\u201d\u201e" else token

    def escaped(found: re.Match[str]) -> str:
        kept = {"\\'": "'", "\\": "\\\\", '"': '\\"'}
        return kept.get(found[0], found[0])

    return f'"{_IN_STRING.sub(escaped, inner)}"'
