"""Show of a page the passage that answers best, because a whole page would fill a reply."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from palimpsest.core.search.hits import Hit
from palimpsest.recall.hits import CUT_LINE_TOKENS, MIN_BEST_TOKENS, hit_tokens
from palimpsest.text.shorten import ELLIPSIS, shorten_to_tokens
from palimpsest.text.tokenizer import count_tokens, query_tokens, search_tokens

PAGE_SHARE = 4
"""A page has at most this part of a reply, one fourth, unless it is whole within that. Set by hand: with 800 tokens
that is a paragraph or two, and a caller that asks for 4,000 gets whole pages."""

MIN_PASSAGE_TOKENS = 60
"""How much of a page is shown at least. Set by hand: two or three sentences."""

_END = re.compile(r"[.!?…][\"')\]»”’]*\s+|[。！？｡۔।]\s*|\n+")  # noqa: RUF001 - full stops are meant


def best_passage(text: str, weights: Mapping[str, float], max_tokens: int) -> str:
    """Return the sentences that stand together, fit and have most of the words, the first of those that are as good."""
    parts = _parts(text)
    first, last = _best_window(parts, weights, max_tokens)
    return "".join(parts[first:last]).strip()


def with_passages(hits: Sequence[Hit], weights: Mapping[str, float], max_tokens: int) -> list[Hit]:
    """Return the hits with long pages cut to the passage that has most of the words of the query.

    `weights` are the search tokens of the query, each with what it counts for.
    """
    room = max(max_tokens // PAGE_SHARE, MIN_PASSAGE_TOKENS + CUT_LINE_TOKENS)
    return [hit if hit.document is None or hit_tokens(hit) <= room else _cut(hit, weights, room) for hit in hits]


def shortest_passages(hits: Sequence[Hit], query: str) -> list[Hit]:
    """Return the hits with pages cut to two or three sentences, for people who look over them."""
    return with_passages(hits, dict.fromkeys(query_tokens(query), 1.0), max_tokens=0)


def _cut(hit: Hit, weights: Mapping[str, float], room: int) -> Hit:
    """Return a page with the sentences that have most of the words, the first of those that are as good."""
    frame = hit_tokens(hit) - count_tokens(hit.text)
    budget = max(room - frame - 2, MIN_BEST_TOKENS)
    parts = _parts(hit.text)
    first, last = _best_window(parts, weights, budget)
    text = shorten_to_tokens("".join(parts[first:last]).strip(), budget)
    before = f"{ELLIPSIS} " if first else ""
    after = f" {ELLIPSIS}" if last < len(parts) and not text.endswith(ELLIPSIS) else ""
    return replace(hit, text=f"{before}{text}{after}", length=len(hit.text))


def _parts(text: str) -> list[str]:
    places = [0, *(end.end() for end in _END.finditer(text)), len(text)]
    return [text[start:end] for start, end in pairwise(places) if start < end]


def _best_window(parts: Sequence[str], weights: Mapping[str, float], budget: int) -> tuple[int, int]:
    """Return the first part and the end of the run of parts that fits and whose words weigh most, each counted once.

    A run begins one part before its first word if that fits, because what a sentence is about is often said before it.
    """
    words = [weights.keys() & set(search_tokens(part)) for part in parts]
    sums = [0, *accumulate(count_tokens(part) for part in parts)]
    best, best_worth = (0, _end_of(0, sums, budget)), -1.0
    for start in range(len(parts)):
        if start and not words[start] and not (start + 1 < len(parts) and words[start + 1]):
            continue
        end = _end_of(start, sums, budget)
        worth = sum(weights[word] for word in set[str]().union(*words[start:end]))
        if worth > best_worth + 1e-9:
            best, best_worth = (start, end), worth
    return best


def _end_of(start: int, sums: Sequence[int], budget: int) -> int:
    """Return where a run of parts that begins here and fits ends; it has at least one part."""
    end = start + 1
    while end + 1 < len(sums) and sums[end + 1] - sums[start] <= budget:
        end += 1
    return end
