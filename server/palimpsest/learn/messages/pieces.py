"""Split what is to be learned from into pieces that a small model can read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from palimpsest.core.models import Message
from palimpsest.core.validation import one_line
from palimpsest.text.shorten import shorten
from palimpsest.text.tokenizer import count_tokens
from palimpsest.text.windows import windows

PIECE_TOKENS = 2_000
"""How long the messages are that are extracted in one call, in tokens. Set by hand: it leaves a small model with a
context of 8,000 tokens room for the prompt and the reply, and longer pieces lose facts."""

FULL_SHARE = 0.5
"""A piece that is at least this full ends where a session ends, so that few sessions are cut in two. Set by hand."""

BEGINNING_CHARS = 200
BEFORE_CHARS = 600
"""How much of a long message a later part is shown: how it begins, and what stands just before the part. Set by hand:
two lines say whose story it is, and a paragraph says who "she" is."""

_SENTENCE_END = re.compile(r"\n+|(?<![.!?…])[.!?…]++\s+|[。\uff01\uff1f]+")
"""The end of a line or of a sentence. Looked for from a mark that follows a mark, or given back mark by mark, a run of
full stops would take quadratic time."""


@dataclass(frozen=True, slots=True)
class Part:
    """A message, or one part of the text of a long one: the one of this `number` of `count`.

    `beginning` and `before` are how the long message begins and what stands just before this part; "" for the first.
    """

    message: Message
    number: int = 1
    count: int = 1
    beginning: str = ""
    before: str = ""

    @property
    def is_last(self) -> bool:
        """Return whether the message ends here."""
        return self.number == self.count


@dataclass(frozen=True, slots=True)
class Piece:
    """Messages, and parts of long ones, that are extracted in one call."""

    parts: tuple[Part, ...]

    @property
    def messages(self) -> tuple[Message, ...]:
        """Return the messages, a long one with the text of its part."""
        return tuple(part.message for part in self.parts)

    @property
    def finished(self) -> tuple[str, ...]:
        """Return the ids of the messages that end in this piece."""
        return tuple(part.message.id for part in self.parts if part.is_last)

    @property
    def unfinished(self) -> set[str]:
        """Return the ids of the messages that end in a later piece."""
        return {part.message.id for part in self.parts if not part.is_last}

    @property
    def continued(self) -> set[str]:
        """Return the ids of the messages that began in an earlier piece."""
        return {part.message.id for part in self.parts if part.number > 1}

    def notes(self) -> list[str]:
        """Return what the model must know of the parts: that a message goes on, and what came before."""
        return [_note(number, part) for number, part in enumerate(self.parts, 1) if part.count > 1]


def _note(number: int, part: Part) -> str:
    note = f"Message {number} is part {part.number} of {part.count} of one long message"
    if not part.is_last:
        note += ", which goes on after it"
    if part.number > 1:
        note += f'. The message begins: "{part.beginning}" Just before this part it says: "{part.before}"'
    return note


def pieces(messages: Sequence[Message]) -> Iterator[Piece]:
    """Split messages into pieces of about `PIECE_TOKENS`, where a session ends if possible.

    A message that is longer than a piece is split at the ends of its lines and sentences.
    """
    piece: list[Part] = []
    tokens = 0
    for part in _parts(messages):
        message = part.message
        cost = count_tokens(message.content)
        is_next_session = bool(piece) and message.session_id != piece[-1].message.session_id
        if piece and (tokens + cost > PIECE_TOKENS or (is_next_session and tokens >= FULL_SHARE * PIECE_TOKENS)):
            yield Piece(tuple(piece))
            piece, tokens = [], 0
        piece.append(part)
        tokens += cost
    if piece:
        yield Piece(tuple(piece))


def _parts(messages: Sequence[Message]) -> Iterator[Part]:
    """Return the messages, a long one as several parts."""
    for message in messages:
        texts = list(_texts(message.content))
        beginning, before = shorten(one_line(message.content[: 2 * BEGINNING_CHARS]), BEGINNING_CHARS), ""
        for number, text in enumerate(texts, 1):
            whole = replace(message, content=text)
            yield Part(whole, number, len(texts), beginning if number > 1 else "", before)
            before = one_line(text[-BEFORE_CHARS:])


def _texts(text: str) -> Iterator[str]:
    """Split a text that is longer than a piece. Joined, the parts are the text."""
    if count_tokens(text) <= PIECE_TOKENS:
        yield text
        return
    part: list[str] = []
    tokens = 0
    for sentence in _sentences(text):
        for fitting in windows(sentence, 4 * PIECE_TOKENS, lambda window: count_tokens(window) <= PIECE_TOKENS):
            cost = count_tokens(fitting)
            if part and tokens + cost > PIECE_TOKENS:
                yield "".join(part)
                part, tokens = [], 0
            part.append(fitting)
            tokens += cost
    yield "".join(part)


def _sentences(text: str) -> Iterator[str]:
    """Split a text after each line and sentence. Joined, the parts are the text."""
    start = 0
    for end in _SENTENCE_END.finditer(text):
        yield text[start : end.end()]
        start = end.end()
    if start < len(text):
        yield text[start:]
