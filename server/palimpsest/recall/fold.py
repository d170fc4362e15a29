"""Drop hits whose content another hit already shows, and show memories before their messages."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from palimpsest.core.models import Hit
from palimpsest.text.tokenizer import query_tokens, search_tokens

# Folding drops the hits whose content another hit already shows.
#
# A hit folds into another one only if its words are the same. A message folds into the memories that were learned
# from it, unless it holds more than they do.

MIN_COVERED = 2 / 3
"""The share of a message's content words that its memories must hold, or the message holds more: a memory that says all
of a message in the third person keeps about two of three words. The others are greetings, verbs in other forms and
synonyms. A message with a smaller share mostly tells a detail that its memories leave out."""

MAX_RATIO = 6
"""A message this many times as long as its memories together holds more, whatever its words, so that long messages need
not be taken apart: even a talkative message seldom needs six times the room of what it says."""

_MEANINGFUL = frozenset("#%&*+/@\\")
"""Punctuation that changes what a word means, as in C# and 5 %. All other punctuation only divides words."""

_MINUS = re.compile(r"(?<!\w)-(?=\d)")
"""A hyphen that makes a number negative. It changes the meaning too."""


@dataclass(frozen=True, slots=True)
class FoldWords:
    """Search tokens with a part in folding: those of speakers' names, and those of the query without function words."""

    names: Set[str] = frozenset()
    query: Set[str] = frozenset()

    @classmethod
    def of(cls, hits: Sequence[Hit], query: str) -> FoldWords:
        """Return the names of the speakers of the hits, and the words of a query."""
        names = {token for hit in hits if hit.kind == "message" for token in search_tokens(hit.name)}
        return cls(names, frozenset(query_tokens(query)))


def fold(hits: Sequence[Hit], memories_below: Sequence[Hit] = (), words: FoldWords | None = None) -> list[Hit]:
    """Return the hits in order, without those that only repeat another one.

    A message that holds no more than the memories above it is left out. If it holds no more with one memory that stands
    below it, this memory takes its place and its score. `memories_below` are memories that follow after the hits;
    `words` are by default those of the hits' speakers.
    """
    words = words or FoldWords.of(hits, "")
    kept: list[Hit] = []
    kept_ids: set[str] = set()
    speakers: dict[str, set[str]] = {}
    for place, hit in enumerate(hits):
        if hit.id in kept_ids:
            continue
        shown = _shown_for(hit, kept, (*hits[place + 1 :], *memories_below), words)
        if shown is None:
            continue
        said_by = speakers.setdefault(same_words_key(shown.text), set())
        speaker = shown.name if shown.kind == "message" else ""
        if said_by and (not speaker or "" in said_by or speaker in said_by):  # two people who say the same are two hits
            continue
        said_by.add(speaker)
        kept.append(shown)
        kept_ids.add(shown.id)
    return kept


def _shown_for(hit: Hit, above: Sequence[Hit], below: Sequence[Hit], words: FoldWords) -> Hit | None:
    """Return the hit itself, the memory that takes its place, or None if the memories above say it all."""
    if hit.kind == "memory":
        return hit
    memories = _memories_of(hit, above)
    if memories and not holds_more(hit, memories, words):
        return None
    for memory in _memories_of(hit, below):
        if not holds_more(hit, (*memories, memory), words):
            return _in_place_of(memory, hit)
    return hit


def _memories_of(message: Hit, hits: Sequence[Hit]) -> list[Hit]:
    return [hit for hit in hits if hit.kind == "memory" and message.id in hit.message_ids]


def holds_more(message: Hit, memories: Sequence[Hit], words: FoldWords) -> bool:
    """Return whether a message says something that the memories learned from it do not.

    It does if fewer than `MIN_COVERED` of its content words are in the memories, or if they lack one of its numbers or
    one of its words that the query asks for. Function words, question words and speakers' names do not count.
    """
    text = "\n".join(memory.text for memory in memories)
    if len(message.text) > MAX_RATIO * len(text):
        return True
    content = {
        token
        for token in query_tokens(message.text)
        if not (len(token) == 1 and token.isascii() and token.isalpha())  # what is left of "I'm" and "don't"
    } - words.names
    missing = content.difference(search_tokens(text))
    if missing & words.query or any(char.isdigit() for token in missing for char in token):
        return True
    return len(missing) > (1 - MIN_COVERED) * len(content)


def same_words_key(text: str) -> str:
    """Return a string that is equal for texts which differ only in case, punctuation and white space."""
    plain = _MINUS.sub("\N{MINUS SIGN}", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(plain.translate(_WITHOUT_PUNCTUATION).split()) or text


class _WithoutPunctuation(dict[int, int]):
    """A table for `str.translate` that makes punctuation a space. Each character is looked up once in a process."""

    def __missing__(self, code: int) -> int:
        char = chr(code)
        divides = unicodedata.category(char).startswith("P") and char not in _MEANINGFUL
        self[code] = ord(" ") if divides else code
        return self[code]


_WITHOUT_PUNCTUATION = _WithoutPunctuation()


# Show what was learned from a message before, or directly below, the message itself.
#
# A memory can be read on its own: it has names and dates where the message has "she" and "yesterday". The message
# holds more, so both are hits; only their places change.

FOLLOWED = 3
"""In how many of the first places a message has its memory directly below it: a memory that moves up takes the place of
another hit. Further down that costs more answers than it brings memories (`benchmarks/locomo.py`)."""


def memories_first(hits: Sequence[Hit], memories_below: Sequence[Hit], words: FoldWords) -> list[Hit]:
    """Return folded hits with memories before the messages that they were learned from.

    For a message above all its memories: the best memory that has all the words of the query that the message has takes
    its place, and the message that of the memory. If there is none and the message is one of the first hits, it stays
    where it is, because only it may have the answer, and its best memory follows, unless a single word was asked for.
    `memories_below` are memories that rank below the hits.
    """
    placed = list(hits)
    known = {same_words_key(hit.text) for hit in hits}
    spare = [hit for hit in memories_below if same_words_key(hit.text) not in known]
    seen: set[str] = set()
    for place in range(len(hits)):
        hit = placed[place]
        if hit.kind == "memory":
            seen.update(hit.message_ids)
        elif hit.id not in seen:
            _place_memory(placed, place, spare, words)
            seen.update(placed[place].message_ids)
    return placed


def _place_memory(placed: list[Hit], place: int, spare: list[Hit], words: FoldWords) -> None:
    """Put a memory of the message at a place there, or directly below it. It may come from `spare`."""
    message = placed[place]
    memories = _memories_of(message, (*placed[place + 1 :], *spare))
    common = words.query & set(query_tokens(message.text))
    asked = common - words.names or common
    holder = next((memory for memory in memories if asked <= set(search_tokens(memory.text))), None)
    # Of a query of one word, such as a name, a memory without it says nothing.
    if not memories or (holder is None and (place >= FOLLOWED or len(words.query) == 1)):
        return
    memory = holder or memories[0]
    if memory in spare:
        spare.remove(memory)
    lower = placed.index(memory) if memory in placed else len(placed)
    if holder is not None:
        placed[lower : lower + 1] = [_in_place_of(message, memory)]
        placed[place] = _in_place_of(memory, message)
    else:
        del placed[lower : lower + 1]
        placed.insert(place + 1, _in_place_of(memory, message))


def _in_place_of(hit: Hit, other: Hit) -> Hit:
    """Return a hit with the score of another one, so that the order of the scores stays."""
    return replace(hit, score=other.score, score_parts=other.score_parts)
