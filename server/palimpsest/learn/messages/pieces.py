"""Split what is to be learned from into pieces that a small model can read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from palimpsest.core.models import Message
from palimpsest.text.tokenizer import count_tokens
from palimpsest.text.windows import windows

PIECE_TOKENS = 2_000
"""How long the messages are that are extracted in one call, in tokens. Set by hand: it leaves a small model with a
context of 8,000 tokens room for the prompt and the reply, and longer pieces lose facts."""

FULL_SHARE = 0.5
"""A piece that is at least this full ends where a session ends, so that few sessions are cut in two. Set by hand."""

_SENTENCE = re.compile(r".+?(?:\n+|[.!?…]+\s+|[。\uff01\uff1f]+|\Z)", re.DOTALL)
"""A text up to the end of a line or of a sentence."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Messages that are extracted in one call, or one part of a long message.

    `finished` are the ids of the messages that end in this piece.
    """

    messages: tuple[Message, ...]
    finished: tuple[str, ...]

    @property
    def unfinished(self) -> set[str]:
        """Return the ids of the messages that end in a later piece."""
        return {message.id for message in self.messages} - set(self.finished)


def pieces(messages: Sequence[Message]) -> Iterator[Piece]:
    """Split messages into pieces of about `PIECE_TOKENS`, where a session ends if possible.

    A message that is longer than a piece is split at the ends of its lines and sentences.
    """
    piece: list[Message] = []
    finished: list[str] = []
    tokens = 0
    for message, is_end in _parts(messages):
        cost = count_tokens(message.content)
        is_next_session = bool(piece) and message.session_id != piece[-1].session_id
        if piece and (tokens + cost > PIECE_TOKENS or (is_next_session and tokens >= FULL_SHARE * PIECE_TOKENS)):
            yield Piece(tuple(piece), tuple(finished))
            piece, finished, tokens = [], [], 0
        piece.append(message)
        finished += [message.id] if is_end else []
        tokens += cost
    if piece:
        yield Piece(tuple(piece), tuple(finished))


def _parts(messages: Sequence[Message]) -> Iterator[tuple[Message, bool]]:
    """Return the messages, a long one as several with parts of its text, and whether a message ends there."""
    for message in messages:
        texts = list(_texts(message.content))
        for number, text in enumerate(texts, 1):
            yield replace(message, content=text), number == len(texts)


def _texts(text: str) -> Iterator[str]:
    """Split a text that is longer than a piece. Joined, the parts are the text."""
    if count_tokens(text) <= PIECE_TOKENS:
        yield text
        return
    part: list[str] = []
    tokens = 0
    for sentence in _SENTENCE.findall(text):
        for fitting in windows(sentence, 4 * PIECE_TOKENS, lambda window: count_tokens(window) <= PIECE_TOKENS):
            cost = count_tokens(fitting)
            if part and tokens + cost > PIECE_TOKENS:
                yield "".join(part)
                part, tokens = [], 0
            part.append(fitting)
            tokens += cost
    yield "".join(part)
