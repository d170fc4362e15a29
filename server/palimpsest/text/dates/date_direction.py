"""Tell whether a weekday or a day without a year lies ahead or behind, by the words around it.

"The vet comes on Friday" is ahead, "I went on Friday" behind, "Bins go out on Tuesday" a habit, which has no date. In
English the nearest verb decides. In other languages the present tense also tells of the future, so a day is behind if
there is a past tense, and else ahead, if there is a whole sentence. What cannot be told is "".

Only the words of the sentence count, and of a long one only the nearest, so the time grows with the length of a text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence, Set
from functools import cached_property
from typing import Literal, TypeAlias

from palimpsest.text.dates.vocabulary import CLOCK, RE, UNSPACED, Cue, Language, Token, phrase_at

Direction: TypeAlias = Literal["past", "coming", "habit", "yearly", ""]

REACH = 30
"""How many words before and after a day are looked at: a long sentence."""

LEAST_WORDS, FEWEST_WORDS = 3, 2
"""How many other words make a sentence in the present tense, and in languages without articles and prepositions:

a heading is none.
"""

MOST_BETWEEN = 2
"""How many words stand at most between two weekdays that belong together."""

PASSIVE_REACH = 2
"""How far before a participle its "be" stands at most: "has to be filed"."""

PLANNED_REACH = 4
"""How far before "scheduled" its "is" stands at most."""

PREPOSITIONS, WEEKDAYS = frozenset("PiBGghy"), frozenset("WKk")
"""The letters of words before a day, and of weekdays."""

_ENDS = frozenset(".!?;。！？；")
_FEW_WORDS = ("fi", "tr", "ko")
_BREAKS = frozenset(",:，：、")
_COLONS = frozenset(":：")
_BE = frozenset(("is", "are", "am", "m", "re", "s", "be", "being", "get", "gets", "getting"))
_DID = frozenset(("did", "didn"))
_JOINING = frozenset(("&", "+", "/", ",", "-", "to", "bis", "和", "と", "や"))
_TOWARDS = frozenset(("for", "to"))

REACH_CHARS = 80
"""How far around a day in Chinese or Japanese is looked at. As `REACH`."""

LONGEST_PHRASE = 3
"""How many words a phrase of the vocabulary has at most."""

_NOT_PAST: frozenset[Cue] = frozenset(("not past", "past", "participle"))

_PAST_HANGUL, _PRESENT_HANGUL = 20, "있겠"
"""Which final consonant the past tense of Korean has, and the syllables that have it in the present and the future."""


class Directions:
    """The words of a text that say in which direction its days lie, as words of one language.

    `letters` are those of the words, in which the rules of dates are written.
    """

    def __init__(self, text: str, tokens: Sequence[Token], language: Language, letters: str) -> None:
        self._text = text
        self._tokens = tokens
        self._language = language
        self._letters = letters
        self._known: dict[int, Set[Cue]] = {}

    @cached_property
    def _starts(self) -> list[int]:
        return [token.start for token in self._tokens]

    def has_determiner(self, start: int) -> bool:
        """Return whether a word before a day says which of several things is meant, as in "my Tuesday shift"."""
        place = bisect_left(self._starts, start)
        return place > 0 and "determiner" in self._cues(place - 1)

    def are_joined(self, end: int, start: int) -> bool:
        """Return whether a day that ends and one that begins there stand together, as in "Tuesday and Thursday"."""
        places = range(bisect_left(self._starts, end), bisect_left(self._starts, start))
        words = [self._tokens[place].word for place in places[: MOST_BETWEEN + 1]]
        is_joined = any(
            word in _JOINING or "conjunction" in self._cues(place) for word, place in zip(words, places, strict=False)
        )
        return len(words) <= MOST_BETWEEN and is_joined

    def moved(self, start: int) -> Direction:
        """Return "coming" for a day that something is moved to, and "habit" for one that it was moved from.

        That day has no date any more.
        """
        place = bisect_left(self._starts, start)
        cues = self._cues(place - 1) if place else frozenset[Cue]()
        if cues.isdisjoint(("moved from", "moved to")):
            return ""
        is_pair = "moved to" in cues and place > 1 and self._letter(place - 2) in WEEKDAYS
        if is_pair and "moved from" not in self._cues(max(place - 3, 0)):
            return ""  # "the shifts changed, Monday to Thursday"
        before, after = self._around(place, place)
        if not any("moved" in self._cues(at) for at in (*before, *after)):
            return ""
        return "coming" if "moved to" in cues else "habit"

    def _letter(self, place: int) -> str:
        """Return the letter of a word as a part of a date; "" for another word."""
        entry = self._language.words.get(self._tokens[place].word)
        return "" if entry is None else entry[0][0]

    def by_words(self, start: int, end: int, *, is_yearly: bool) -> Direction:
        """Return in which direction the day that stands from `start` to `end` lies.

        With `is_yearly` it may be one that comes every year, such as a birthday.
        """
        if self._language.name == UNSPACED:
            return self._unspaced(start, end, is_yearly=is_yearly)
        first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
        before, after = self._around(first, last)
        sentence = (*before, *after)
        own = [*self._clause(before), *self._clause(after)]
        if is_yearly and any("yearly" in self._cues(place) for place in sentence):
            return "yearly"
        if any("habit" in self._cues(place) for place in own):
            return "habit"
        if before and "ever since" in self._cues(before[0]):
            return "past"
        if self._language.name == "en":
            return self._in_english(first, last, own) or self._in_english(first, last, sentence)
        return self._in_clause(own) or self._in_sentence(own, sorted(set(sentence) - set(own)))

    def says_habit(self, start: int, end: int) -> bool:
        """Return whether a word such as "every" or "usually" stands in the sentence of a day."""
        first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
        return any("habit" in self._cues(place) for places in self._around(first, last) for place in places)

    def _around(self, first: int, last: int) -> tuple[list[int], list[int]]:
        """Return the places of the words of the sentence before and after a day, the nearest first."""
        after: list[int] = []
        for place in range(last, min(last + REACH, len(self._tokens))):
            if self._ends_at(place) or (place > last and self._is_on_next_line(place)):
                break
            after.append(place)
        before: list[int] = []
        for place in range(first - 1, max(first - REACH, 0) - 1, -1):
            is_colon = self._tokens[place].word in _COLONS
            if self._ends_at(place) or (is_colon and len(before) + len(after) >= LEAST_WORDS):
                break  # what stands behind a colon is a sentence of its own
            before.append(place)
        return before, after

    def _ends_at(self, place: int) -> bool:
        """Return whether a sentence ends at a token: a full stop behind a number ends none."""
        token = self._tokens[place]
        if token.word in _ENDS and not (token.word == "." and place and self._tokens[place - 1].letter):
            return True
        return place + 1 < len(self._tokens) and self._is_on_next_line(place + 1) and not token.letter

    def _is_on_next_line(self, place: int) -> bool:
        return "\n" in self._text[self._tokens[place - 1].end : self._tokens[place].start]

    def _clause(self, places: Sequence[int]) -> Iterator[int]:
        """Yield the nearest words until a comma or a conjunction."""
        for place in places:
            if self._tokens[place].word in _BREAKS or "conjunction" in self._cues(place):
                return
            yield place

    def _cues(self, place: int) -> Set[Cue]:
        """Return what a word says, with what a phrase says that begins there."""
        if place not in self._known:
            self._known[place] = self._read(place)
        return self._known[place]

    def _read(self, place: int) -> Set[Cue]:
        token, language = self._tokens[place], self._language
        if not token.word:
            return frozenset()
        if language.name == "ko":
            return language.cues.get(token.word) or ({"past"} if _is_past_in_korean(token.word) else frozenset())
        for back in range(min(LONGEST_PHRASE, place + 1)):
            phrases = language.cue_phrases.get(self._tokens[place - back].word, ())
            if found := phrase_at(self._tokens, place - back, phrases, back):
                return frozenset() if found[0] == "not past" else {found[0]}
        if language.name == "de" and token.word not in language.cues and not token.written[0].islower():
            return frozenset()  # a noun
        said = language.cues_of(token.word)
        return said - _NOT_PAST if "not past" in said else said

    def _in_clause(self, places: Sequence[int]) -> Direction:
        """Return what the verbs of a clause say, in languages whose present tense tells of the future, too."""
        cues = {cue for place in places for cue in self._cues(place)}
        if "past" in cues:
            return "past" if "due" not in cues or "auxiliary" in cues else "coming"
        if "due" in cues:
            return "coming"
        if {"auxiliary", "participle"} <= cues:
            return "past"
        return "coming" if "ready" in cues else ""

    def _in_sentence(self, own: Sequence[int], rest: Sequence[int]) -> Direction:
        """Return what the other clauses of a sentence say; if nothing, that a sentence is in the present."""
        if direction := self._in_clause(rest):
            return direction
        if any("habit" in self._cues(place) for place in rest):
            return "habit"
        cues = {cue for place in own for cue in self._cues(place)}
        if "either" in cues:  # a form of the present and of the past
            return ""
        if "appointment" in cues or any(self._tokens[place].letter == CLOCK for place in own):
            return "coming"
        words = sum(self._tokens[place].word.isalpha() for place in (*own, *rest))
        least = FEWEST_WORDS if self._language.name in _FEW_WORDS else LEAST_WORDS
        return "coming" if words >= least else ""

    def _in_english(self, first: int, last: int, places: Sequence[int]) -> Direction:
        """Return what the nearest verb says; without one, what an appointment does."""
        nearest: tuple[int, Direction] | None = None
        toward = first > 0 and self._tokens[first - 1].word in _TOWARDS
        has_preposition = first > 0 and self._letter(first - 1) in PREPOSITIONS
        is_appointment = False
        for place in places:
            cues = self._cues(place)
            is_appointment |= "appointment" in cues
            direction = self._english_cue(place, cues, toward=toward)
            earlier = range(max(place - PLANNED_REACH, 0), place)
            if direction == "coming" and any(self._tokens[at].word in _DID for at in earlier):
                direction = "past"  # "what did we do in March"
            if place < first:
                distance = first - place
            elif place == last and direction == "coming" and not has_preposition:
                distance = 0  # the day is its subject: "they said Friday is fine"
            else:  # a verb behind belongs to the day less than one before: "the lesson I missed on Monday is …"
                distance = place - last + 2
            if self._tokens[place].word == "s":  # it may be a genitive
                distance += REACH
            if direction and (nearest is None or distance < nearest[0]):
                nearest = distance, direction
        if nearest is not None:
            return nearest[1]
        begin = min(places, default=first)
        is_plan = begin < first and (begin == 0 or self._ends_at(begin - 1)) and self._is_task(begin)
        has_time = any(self._tokens[place].letter == CLOCK for place in places)
        return "coming" if is_appointment or is_plan or has_time else ""

    def _is_task(self, place: int) -> bool:
        """Return whether a sentence begins as people note what is to be done: "Picking up the keys", "Pay the rent"."""
        word, cues = self._tokens[place].word, self._cues(place)
        return "task" in cues or (word.endswith("ing") and "not past" not in self._language.cues_of(word))

    def _english_cue(self, place: int, cues: Set[Cue], *, toward: bool) -> Direction:
        if "planned" in cues:
            words = {self._tokens[at].word for at in range(max(place - PLANNED_REACH, 0), place)}
            if toward or words & _BE:
                return "coming"
            return "past" if self._tokens[place].word.endswith("ed") else ""
        if "past" in cues:
            before = {self._tokens[at].word for at in range(max(place - PASSIVE_REACH, 0), place)}
            is_participle = self._tokens[place].word.endswith(("ed", "en", "n", "ne", "lt", "ld", "nt", "id"))
            is_passive = "being" in before or (is_participle and before & _BE)
            return "" if toward or is_passive else "past"
        if "habitual" in cues:
            return "habit"
        return "coming" if cues & {"coming", "due"} else ""

    def _unspaced(self, start: int, end: int, *, is_yearly: bool) -> Direction:
        """Return in which direction a day lies in Chinese or Japanese."""
        head = self._text[max(start - REACH_CHARS, 0) : start]
        tail = self._text[end : end + REACH_CHARS]
        if moved := _moved_in_han(head, tail):
            return moved
        begin = max((match.end() for match in RE["sentence end"].finditer(head)), default=0)
        stop = RE["sentence end"].search(tail)
        head, tail = head[begin:], tail if stop is None else tail[: stop.start() + 1]
        sentence = head + tail
        if is_yearly and RE["yearly han"].search(sentence):
            return "yearly"
        is_japanese = RE["kana"].search(sentence) is not None
        if RE["habit han"].search(sentence):
            return "habit"
        if is_japanese:
            if RE["asked kana"].search(tail):
                return "coming" if "予定" in tail else ""
            return "past" if RE["past kana"].search(tail) else "coming" if RE["ahead kana"].search(tail) else ""
        if RE["due han"].search(sentence):
            return "coming"
        return "past" if RE["past han"].search(tail) else "coming" if RE["ahead han"].search(sentence) else ""


def _moved_in_han(head: str, tail: str) -> Direction:
    """Return "coming" for the day that something is moved to, "habit" for the one it was moved from, which has none."""
    if RE["moved kana"].match(tail) or RE["moved han"].search(head[-3:]):
        return "coming"
    return "habit" if RE["from kana"].match(tail) or RE["moved han"].match(tail) else ""


def _is_past_in_korean(word: str) -> bool:
    return any(
        "가" <= char <= "힣" and (ord(char) - ord("가")) % 28 == _PAST_HANGUL and char not in _PRESENT_HANGUL
        for char in word
    )
