"""Show what was learned from a message before, or directly below, the message itself.

A memory can be read on its own: it has names and dates where the message has "she" and "yesterday". The message holds
more, so both are hits; only their places change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from palimpsest.core.search.hits import Hit
from palimpsest.recall.folding import FoldWords, same_words_key
from palimpsest.text.tokenizer import query_tokens, search_tokens

FOLLOWED = 3
"""In how many of the first places a message has its memory directly below it. Set by hand: a memory that moves up takes
the place of another hit. Further down that costs more answers than it brings memories (`benchmarks/locomo.py`)."""


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
    memories = [hit for hit in (*placed[place + 1 :], *spare) if hit.kind == "memory" and message.id in hit.message_ids]
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
    return replace(hit, score=other.score, relevance=other.relevance, score_parts=other.score_parts)
