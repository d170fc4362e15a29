"""Find the names in a text, with no model: names that are known already, and those that the text shows to be names."""

import gzip
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import takewhile
from pathlib import Path
from typing import Literal, cast

from palimpsest.core.models import MAX_NAME_CHARS, SELF_NAMES, EntityType, NamedEntity, name_key
from palimpsest.text.names.known_names import (
    Span,
    Word,
    beginning,
    is_adjacent,
    known_names,
    span_of,
    without_genitive,
    words_of,
)
from palimpsest.text.stopwords import ALL_FUNCTION_WORDS, function_word_counts
from palimpsest.text.tokenizer import stem_in
from palimpsest.text.word_lists import LazyPattern, headings, patterns, word_lists, word_sets

_RE = patterns("palimpsest.text.names", "name_finder.txt")
_WORDS = word_sets("palimpsest.text.names", "name_finder.txt")
_KATAKANA = _RE["katakana"].pattern

# Words that show that a name is beside them and of what, and capitalized words that are no names.

WORDS = word_sets("palimpsest.text.names", "lexicon.txt")
_LISTS = word_lists("palimpsest.text.names", "lexicon.txt")


def _types(beginning: str) -> dict[str, EntityType]:
    """Return the type of each word in the sections that begin with a word and go on with a type."""
    return cast("dict[str, EntityType]", headings(WORDS, beginning))


# What a word says about the name that follows it, by the word in lower case.
CUES: dict[str, EntityType | Literal["pet"]] = {**_types("cue ")}

# What the last or the first word of a name says about it, by the word in lower case.
LAST_WORDS, FIRST_WORDS = _types("last "), _types("first ")

# What the end of a compound says about the name that it is.
LAST_PARTS = _types("end ")

# What a word says about the name before it.
CUES_AFTER = _types("after ")

# Endings, each with that of the nominative: the first that makes a listed name is it.
RUSSIAN_CASES = _LISTS["russian cases"].split()

# Words that stand before the name of a person, and are left out before a full name; all cues of persons; of pets.
TITLES, PERSON, PETS = WORDS["titles"], WORDS["cue person"], WORDS["cue pet"]

# Lists of names and words, which tell a name from a word where the spelling does not.
#
# `benchmarks/fitting/word_lists.py` wrote them. Each says in its first line what it was made from. A list is
# unpacked when it is first needed, and searched as it is: making sets of all lists would take 60 ms, and unpacking
# them takes 5.

_FOLDER = Path(__file__).parent / "data"


# German nouns of two or three letters with which compounds end.
_SHORT_ENDS = tuple(_LISTS["short ends"].split())


@cache
def _read(name: str) -> bytes:
    """Return a list: sorted lines in UTF-8, without the first one, between line ends."""
    text = gzip.decompress((_FOLDER / f"{name}.txt.gz").read_bytes())
    return text[text.index(b"\n") :]


@lru_cache(maxsize=16_384)
def _has(name: str, entry: str) -> bool:
    """Return whether a list has an entry, by halving the part where it may be."""
    lines, wanted = _read(name), entry.encode("utf-8", "surrogatepass")
    low, high = 0, len(lines) - 1  # line ends, between which the entry may be
    while low < high:
        end = lines.find(b"\n", (low + high) // 2 + 1)
        start = lines.rfind(b"\n", low, end)
        line = lines[start + 1 : end]
        if line == wanted:
            return True
        low, high = (end, high) if line < wanted else (low, start)
    return False


# Return whether a name is a given name in some language, one of a country or a city, or a family name in China, Korea
# or Japan.
is_given_name, is_place, is_surname = (partial(_has, of) for of in ("given", "places", "surnames"))


def is_also_word(word: str) -> bool:
    """Return whether a given name or a place is also a common word."""
    folded = word.casefold()
    return folded in WORDS["also words"] or folded in WORDS["english words"] or folded in WORDS["german words"]


# How German nouns end, and names seldom do.
_GERMAN_NOUN = LazyPattern(
    r"(?:ung|heit|keit|schaft|tion|tät|ment|ling|chen|nis|ismus|iat|thie|nie|gie|phie|trie|lie|enz|anz|innen|rei|erin|arin|orin|eur|gramm"
    r"|ik|iker|ismus|ium|är|logie|loge|eile|itis|ur|ler|thekar|thekarin)(?:e?[ns])?$"
)


@lru_cache(maxsize=8_192)
def is_english_word(word: str, *, compounds: bool = False) -> bool:
    """Return whether a word is a form of an English word, or, with `compounds`, of two of them."""
    folded = word.casefold()
    if folded in WORDS["newer words"] or folded in WORDS["english words"] or _is_form_of("english", folded):
        return True
    return compounds and any(
        _is_form_of("english", folded[:middle]) and _is_form_of("english", folded[middle:])
        for middle in range(3, len(folded) - 3)
    )


@lru_cache(maxsize=8_192)
def is_german_word(word: str, *, compounds: bool = True) -> bool:
    """Return whether a word is a form of a German word, or, with `compounds`, of one that ends with one."""
    folded = word.casefold()
    if folded in WORDS["newer words"] or folded in WORDS["german words"] or _is_form_of("german", folded):
        return True
    if not compounds:
        return False
    if folded.endswith(_SHORT_ENDS) or _GERMAN_NOUN.search(folded):
        return True
    return any(
        folded[n:] in WORDS["german words"] or _is_form_of("german", folded[n:]) for n in range(2, len(folded) - 3)
    )


def _is_form_of(language: str, word: str) -> bool:
    return _has(language, stem_in(language, word)) or _has(language, word)


# Products and companies that everybody knows by name, so that a text need not say what they are.


def _names(words: str) -> frozenset[str]:
    return frozenset(name.strip() for name in words.replace("\n", ",").split(",") if name.strip())


def _known_types(sections: str) -> dict[str, EntityType]:
    kinds: tuple[EntityType, ...] = ("product", "organization")
    return {name: kind for kind in kinds for name in _names(_LISTS[f"{sections}{kind}s"])}


# The type of each name in a script without capitals. None of them is also a common word, or part of one.
WELL_KNOWN_UNCASED = _known_types("uncased ")

# The type of each name, as it is written.
WELL_KNOWN = _known_types("")

# Names of programs that are nothing else in lower case, in which they are often written.
UNMISTAKABLE = frozenset(name.lower() for name in _names(_LISTS["unmistakable"]))


_PEOPLE_AND_PETS = PERSON | PETS
_NO_NAMES_ALONE = PERSON | WORDS["numbered"]
_SAINTS = ("st", "saint")

# How German verbs end. A name after its verb is its subject, and a noun may follow: "isst Malte Grünkohl".
_VERB = LazyPattern(r"[^\W\d_]+(?:t|te|en|ten)")

# Tell what a name is of, by its words and the words before it.


# How many words before "called" may be the noun that says what is called so.
INTRODUCED_REACH = 3


def kind_of(name: str, before: Sequence[str], after: str = "") -> EntityType:
    """Return the type of a name; "other" if nothing shows it.

    `before` are the words before the name, the nearest last, and `after` is the word after it, all in lower case.
    """
    words = name.replace(".", " ").split()
    if known := kind_by_own_words(words) or WELL_KNOWN.get(name):
        return known
    if words[0] in WELL_KNOWN:
        return "product"
    return _cue(before) or _by_lists(name, words, before, after) or _by_form(name, words, before, after)


def kind_by_own_words(words: Sequence[str]) -> EntityType | None:
    """Return the type that the first or the last word of a name shows, such as "Street"; None if they show none."""
    first, last = words[0].casefold(), words[-1].casefold()
    found = LAST_WORDS.get(last) or LAST_WORDS.get(last.removesuffix("s"))
    if len(words) > 1:
        if first in PERSON and first not in FIRST_WORDS and first not in _SAINTS:
            return "person"
        if found := found or FIRST_WORDS.get(first):
            return found
    if "&" in words:
        return "organization"
    return next((kind for end, kind in LAST_PARTS.items() if last.endswith(end) and last != end), None)


def _cue(before: Sequence[str]) -> EntityType | None:
    """Return what the nearest words before a name say, such as "sister" or "a dog called"."""
    end = len(before)
    while end and (
        before[end - 1] in WORDS["introducing"] or (end < len(before) and before[end - 1] in WORDS["skipped"])
    ):
        end -= 1
    reach = 1 if end == len(before) else INTRODUCED_REACH
    for word in reversed(before[max(0, end - reach) : end]):
        if found := CUES.get(word) or CUES.get(word.removesuffix("s")):
            return "other" if found == "pet" else found
    return None


def _by_lists(name: str, words: Sequence[str], before: Sequence[str], after: str) -> EntityType | None:
    near = before[-1] if before else ""
    is_at_place = near in WORDS["place prepositions"]
    if CUES_AFTER.get(after) == "person" and not is_at_place and not _is_acronym(name):
        return "person"
    if is_place(name):
        return "place" if is_at_place or not is_given_name(words[0]) else "person"
    if near in WORDS["employers after"] and not WORDS["employed"].isdisjoint(before[-2:-1]):
        return "organization"
    if is_given_name(words[0]) and not (is_also_word(words[0]) and len(words) == 1 and before):
        return "person"
    lives_there = near in ("in", "to") and not WORDS["living"].isdisjoint(before[-3:-1])
    if near in WORDS["employers"]:
        return "organization"
    return "place" if near in WORDS["towards"] or lives_there else None


def _is_acronym(name: str) -> bool:
    """Return whether a name is in capitals. What "lives" in a vault is then nobody."""
    return name.isascii() and name.isupper()


def _by_form(name: str, words: Sequence[str], before: Sequence[str], after: str) -> EntityType:
    if after in CUES_AFTER and not (CUES_AFTER[after] == "person" and _is_acronym(name)):
        return CUES_AFTER[after]
    if len(words) > 2 and words[0] == "The":  # noqa: PLR2004 - a title; "The Hague" is a place
        return "document"
    if before and before[-1] in WORDS["one"]:
        return "product"
    is_two = len(words) == 2  # noqa: PLR2004 - a given name and a family name
    is_two &= words[0].casefold() not in WORDS["articles"]  # "Les Tilleuls"
    is_full_name = is_two and all(word.istitle() and word[1:2] != "-" and not is_english_word(word) for word in words)
    return "person" if is_full_name else "other"


# Find names by their capitals, in the scripts that have them.

# How many words a name has at most. More capitals in a row are a heading.
MAX_WORDS = 6

TITLE_AND_NAME = 2

# How many letters a part of a number of something has, such as of a number plate.
MAX_CODE = 3

# How many words after the first one of a sentence show its language.
BESIDE = 6

# How many letters a common word in capitals has at least. A shorter one may be an abbreviation.
SHOUTED = 4

MIN_HEADING = 5

# If more than this share of at least five words has capitals, they say nothing.
HEADING = 0.7

# Listed names of two letters, such as "Ab", are mostly words.
SHORTEST = 2


def capital_spans(text: str, words: Sequence[Word], covered: bytearray) -> Iterator[Span]:
    """Yield the names that capitals show. Where `covered` is 1, the text holds no names."""
    language = language_of(tuple(word.folded for word in words))
    if not _capitals_tell(words, language):
        return
    reader = _Reader(text, words, language, covered)
    number = 0
    while number < len(words):
        end = reader.end_of_name(number)
        if end > number:
            yield from reader.span(number, end)
        number = max(end, number + 1)


@lru_cache(maxsize=64)
def language_of(words: tuple[str, ...]) -> str:
    """Return the language that most of the function words are of; "en" if none tells."""
    counts = function_word_counts(words)
    if not any(counts.values()):
        return "de" if any(char in word for word in words for char in "äöüß") else "en"
    return max(counts, key=lambda language: counts[language])


def _is_listed(word: str) -> bool:
    """Return whether a list knows a word as a name, and nobody knows it as a word."""
    if word in WELL_KNOWN:
        return not is_english_word(word)
    return (is_given_name(word) or is_place(word)) and not is_also_word(word)


def _capitals_tell(words: Sequence[Word], language: str) -> bool:
    capitals = sum(word.has_capital for word in words)
    has_case = sum(word.has_capital or word.text[0].islower() for word in words)
    is_heading = language != "de" and has_case >= MIN_HEADING and capitals > HEADING * has_case
    return capitals > 0 and not is_heading


_NO_WORD = Word("")


class _Reader:
    """Reads the words of one text."""

    def __init__(self, text: str, words: Sequence[Word], language: str, covered: bytearray) -> None:
        self._text = text
        self._words = words
        self._language = language
        self._is_german = language == "de"
        self._covered = covered

    def _word(self, number: int) -> Word:
        """Return a word, or an empty one before the first and after the last."""
        return self._words[number] if 0 <= number < len(self._words) else _NO_WORD

    def end_of_name(self, number: int) -> int:
        """Return the number after the last word of the name that begins with a word; the same number if none does."""
        if not self._begins_name(number):
            return number
        end = number + 1
        while end < len(self._words) and end - number < MAX_WORDS:
            joined = self._joined(number, end)
            if joined == end:
                break
            end = joined
        return end

    def span(self, number: int, end: int) -> Iterator[Span]:
        """Yield the name that some words are, without a title and without an ending, if they are one."""
        number = self._without_title(number, end)
        first, last, is_one = self._words[number], self._words[end - 1], end - number == 1
        if is_one and (first.folded in _NO_NAMES_ALONE or self._is_rest(number)):
            return
        start = first.start + first.elided
        name = without_genitive(self._text[start : last.end])
        stop = start + len(name)
        if is_one or is_given_name(first.plain):
            name = self._without_case_ending(name, is_before_noun=self._word(end).has_capital)
        yield Span(start, stop, name, kind_of(name, self._before(number), self._after(end)))

    def _is_rest(self, number: int) -> bool:
        """Return whether a word is what is left of a longer expression beside a word that names nothing: Black Friday."""
        word = self._words[number]
        if self._is_german or _is_listed(word.plain) or word.plain in WELL_KNOWN or self._is_introduced(number):
            return False
        before, after = self._word(number - 1), self._word(number + 1)
        beside = ((before, is_adjacent(self._text, before, word)), (after, is_adjacent(self._text, word, after)))
        return is_english_word(word.plain) and any(
            is_beside and other.text.istitle() and other.folded in WORDS["never"] for other, is_beside in beside
        )

    def _without_title(self, number: int, end: int) -> int:
        """Return the number of the first word after a title, if enough of a name is left without it."""
        title, last = self._words[number].folded, self._words[end - 1].text
        is_relative = title in PERSON and title not in TITLES
        if is_relative and end - number > 1 and self._words[number].is_first:
            return self._without_title(number + 1, end)
        if title not in TITLES or title in _SAINTS:
            return number
        is_given = end - number == TITLE_AND_NAME and is_given_name(last) and not is_also_word(last)
        return number + 1 if is_given or end - number > TITLE_AND_NAME else number

    def _before(self, number: int) -> list[str]:
        """Return up to four words before a name, in lower case, that no punctuation parts from it."""
        first = number
        while first > max(0, number - 4) and is_adjacent(self._text, self._words[first - 1], self._words[first]):
            first -= 1
        return [word.folded for word in self._words[first:number]]

    def _after(self, end: int) -> str:
        """Return what follows a name: the next word, or the person whom a genitive says."""
        if self._words[end - 1].is_genitive:
            return "lives" if any(word.text in PERSON for word in self._words[end : end + 3]) else ""
        return self._word(end).folded

    def _without_case_ending(self, name: str, *, is_before_noun: bool) -> str:
        if is_given_name(name):
            return name
        if self._is_german and is_before_noun and name.endswith("s") and is_given_name(name[:-1]):
            return name[:-1]
        if self._language == "ru" and " " not in name and not is_place(name):
            for ending, nominative in (case.split("/") for case in RUSSIAN_CASES):
                stem = name.removesuffix(ending)
                listed = stem + nominative
                if stem != name and len(stem) > 2 and (is_given_name(listed) or is_place(listed)):  # noqa: PLR2004 - "Al"
                    return listed
        return name

    def _begins_name(self, number: int) -> bool:
        word, is_full = self._words[number], self._is_full_name(number)
        if is_full or not self._may_name(number):
            return is_full
        plain, folded = word.plain, word.plain.casefold()
        if self._is_introduced(number) or (plain in WELL_KNOWN and not word.is_first):
            return True
        is_article = folded in WORDS["articles"] and not word.is_first and self._is_followed_by_capital(number)
        is_common = folded in ALL_FUNCTION_WORDS and not is_article
        is_brand_ending = folded in WORDS["brand endings"] and not _is_listed(plain)
        if is_common or is_brand_ending or (self._is_german and folded in _PEOPLE_AND_PETS):
            return False
        if self._begins_listed_name(number):
            return True
        if self._is_on_screen(number):
            return False
        if self._is_german:
            return self._is_no_german_word(number)
        return not word.is_first or self._is_name_at_beginning(number)

    def _is_full_name(self, number: int) -> bool:
        """Return whether a sentence begins with a given name that is also a word, a family name and what people do."""
        word, family = self._words[number], self._word(number + 1).plain
        is_given = word.is_first and word.has_capital and is_also_word(word.plain) and is_given_name(word.plain)
        if not is_given or not self._is_followed_by_capital(number):
            return False
        is_family = not is_english_word(family) or family.endswith(tuple(WORDS["family ends"]))
        return is_family and self._after(number + 2) in WORDS["person verbs"]

    def _is_on_screen(self, number: int) -> bool:
        """Return whether a common word is what a button or a menu says: "click Save", "the Cancel button"."""
        plain = self._words[number].plain
        if not (is_english_word(plain) or is_german_word(plain, compounds=False)):
            return False
        before = [word for word in self._before(number) if word not in ("the", "on", "auf", "den", "die", "das")]
        return (bool(before) and before[-1] in WORDS["pressed"]) or self._after(number + 1) in WORDS["on screen"]

    def _begins_listed_name(self, number: int) -> bool:
        """Return whether a word is a name by the lists, or a title or a word such as "Bad" before the rest of one."""
        plain = self._words[number].plain
        folded = plain.casefold()
        is_title = folded in TITLES and (not self._is_german or folded in ("dr", "prof"))
        begins_place = self._is_german and folded in WORDS["place beginnings"]
        if (is_title or begins_place) and self._is_followed_by_capital(number):
            return True
        return _is_listed(plain) and len(plain) > SHORTEST

    def _is_name_at_beginning(self, number: int) -> bool:
        """Return whether a first word is a name: it is no word of the language, or what follows shows it."""
        plain, following = self._words[number].plain, self._word(number + 1)
        is_followed = self._is_followed_by_capital(number)
        is_name_too = is_also_word(plain) and is_given_name(plain)
        if is_name_too and following.text in WORDS["person verbs"]:
            return True
        if is_name_too and is_followed:
            return not is_english_word(following.text)
        parts = plain.split("-")
        if len(parts) > 1 and all(is_english_word(part) or part.casefold() in WORDS["prefixes"] for part in parts):
            return False
        if plain.isupper() and len(plain) > 1:
            is_common = is_english_word(plain) or is_german_word(plain, compounds=False)  # "STOP", "WICHTIG"
            return plain in WELL_KNOWN or len(plain) < SHOUTED or not is_common
        if self._words[number].elided:
            return False
        if is_followed and following.folded in LAST_WORDS:
            return True
        is_unknown = self._language == "en" and plain.isascii() and not is_english_word(plain, compounds=True)
        return is_unknown and self._is_english_beside(number)

    def _is_english_beside(self, number: int) -> bool:
        """Return whether most words of the sentence of a first word are English: function words may lack."""
        sentence = takewhile(lambda word: not word.is_first, self._words[number + 1 : number + 1 + BESIDE])
        known = [word for word in sentence if word.text[0].islower()]
        return 2 * sum(is_english_word(word.text) for word in known) > len(known) or not known

    def _is_no_german_word(self, number: int) -> bool:
        plain = self._words[number].plain
        stem = plain.removesuffix("s")
        if stem != plain and is_given_name(stem) and not is_also_word(stem) and not is_german_word(plain):
            return True  # a genitive
        if plain.casefold() in ALL_FUNCTION_WORDS or is_also_word(plain):
            return False
        cue = CUES.get(next(reversed(self._before(number)), ""))
        if cue in ("organization", "project", "document", "product") and not self._words[number].is_first:
            return not is_german_word(plain, compounds=False)
        is_code = plain.isupper() and len(plain) < MAX_CODE
        return not (is_german_word(plain) or is_english_word(plain) or is_code)

    def _is_introduced(self, number: int) -> bool:
        """Return whether the word before says that a name follows: "called", "Frau", "Kater"."""
        word, before = self._words[number], self._word(number - 1)
        if not is_adjacent(self._text, before, word):
            return before.folded in ("dr", "prof", "mr", "mrs", "ms", "st")
        if before.folded in WORDS["introducing"]:
            return self._before(number)[-2:-1] != ["das"]  # "das heißt" explains
        if not self._is_german or not before.has_capital:
            return False
        is_title = before.folded in PETS or before.folded in WORDS["german titles"]
        return is_title or (before.folded in PERSON and not is_german_word(word.plain))

    def _joined(self, first: int, number: int) -> int:
        """Return the number after the words that belong to a name which ends before a word; the same number if none."""
        before, word = self._words[number - 1], self._words[number]
        if before.is_genitive and self._words[first].folded not in _SAINTS:
            return number
        between = self._text[before.end : word.start]
        if between == " & " and word.has_capital:
            return number + 1
        is_abbreviated = between == ". " and (len(before.text) == 1 or before.folded in TITLES)
        if between not in (" ", "\u00a0") and not is_abbreviated:
            return number
        if word.has_capital:
            return number + self._continues(first, number)
        if not self._joins(first, number):
            return number
        following = number + 1 + (self._word(number + 1).text in WORDS["joining"])
        return following + 1 if self._may_name(following) else number

    def _joins(self, first: int, number: int) -> bool:
        """Return whether a word in lower case is inside of a name: of a person, or of an institution."""
        begin, before, joint = self._words[first], self._words[number - 1].folded, self._words[number].text
        if joint == "of":
            is_named = before in FIRST_WORDS or CUES.get(before) in ("organization", "place")
            return begin.text == "The" or is_named
        are_two = joint == "y" and is_given_name(self._word(number + 1).text)  # Ortega y Gasset is one
        if joint not in WORDS["joining"] or are_two:
            return False
        if joint in WORDS["in any name"]:
            return True
        if self._is_german and joint not in ("van", "von", "der", "zu"):
            return False
        return is_given_name(begin.text) or (begin.folded in FIRST_WORDS and not self._is_german)

    def _continues(self, first: int, number: int) -> bool:
        """Return whether a capitalized word goes on with a name."""
        begin, plain, folded = self._words[first], self._words[number].plain, self._words[number].plain.casefold()
        if not self._may_name(number, inside=True):
            return False
        if not self._is_german:
            return True
        if number == first + 1:
            if is_given_name(begin.plain) or begin.folded in TITLES:
                return folded not in _PEOPLE_AND_PETS and not (self._is_after_verb(first) and self._is_object(number))
            if begin.folded in WORDS["place beginnings"]:
                return True
        return folded in LAST_WORDS or self._is_no_german_word(number) or is_given_name(plain)

    def _is_after_verb(self, number: int) -> bool:
        before = next(reversed(self._before(number)), "")
        is_verb = before not in WORDS["no verbs"] and _VERB.fullmatch(before) is not None
        return is_verb and not self._word(number - 1).has_capital

    def _is_object(self, number: int) -> bool:
        """Return whether a word after a verb and a given name is a noun, not the family name: "isst Malte Grünkohl".

        Behind a family name stands the object or the predicate: "leitet Jonas Müller die Kantorei".
        """
        word, after = self._words[number], self._word(number + 1)
        is_before_noun = after.folded in WORDS["german articles"] or self._may_name(number + 1, inside=True)
        is_whole = not word.plain.endswith(tuple(WORDS["german family ends"]))
        is_noun = is_german_word(word.plain, compounds=is_whole)
        return is_noun and not (is_before_noun and is_adjacent(self._text, word, after))

    def _may_name(self, number: int, *, inside: bool = False) -> bool:
        word = self._word(number)
        if not word.has_capital or self._covered.find(1, word.start, word.end) >= 0:
            return False
        plain, folded = word.plain, word.plain.casefold()
        if plain.isupper() and self._is_of_number(word, inside=inside):
            return False
        if len(plain) == 1:
            return inside or self._text[word.end : word.end + 2] == ". "
        if folded in WORDS["never"] or (plain[:-1].isupper() and folded.removesuffix("s") in WORDS["never"]):
            return False
        if folded in WORDS["numbered"] and re.match(r" (?:\d|[A-Z]\b)", self._text[word.end :]) is not None:
            return False
        is_common = inside and folded in ALL_FUNCTION_WORDS and not word.text.istitle()
        return folded not in ("user", "users") and not is_common

    def _is_of_number(self, word: Word, *, inside: bool) -> bool:
        """Return whether capitals are a code, or part of the number of something: "EP 25", "CV19 KHR"."""
        if not inside and any(map(str.isdigit, word.plain)):
            return True
        if len(word.plain) > MAX_CODE:
            return False
        before, after = self._text[max(0, word.start - 8) : word.start], self._text[word.end : word.end + 2]
        is_before_digits = len(word.plain) < MAX_CODE and re.match(r" \d", after) is not None
        return is_before_digits or re.search(r"[A-Z]\d+ $", before) is not None

    def _is_followed_by_capital(self, number: int) -> bool:
        between = self._text[self._words[number].end : self._word(number + 1).start]
        return between in (" ", "\u00a0", ". ") and self._may_name(number + 1, inside=True)


# Find Arabic names: of people after words such as sister, of organizations and places by what they begin with.


# Shorter places are also words.
MIN_PLACE = 4


def arabic_spans(text: str) -> Iterator[Span]:
    """Yield the names in Arabic text."""
    words = list(_RE["ar word"].finditer(text))
    plain = [_RE["ar marks"].sub("", match[0]) for match in words]
    taken = -1
    for number, match in enumerate(words):
        if number <= taken:
            continue
        is_beside = number + 1 < len(words) and text[match.end() : words[number + 1].start()] == " "
        following = plain[number + 1] if is_beside else ""
        length, kind = _arabic_name(plain[number - 1] if number else "", plain[number], following)
        if length:
            taken = number + length - 1
            yield Span(match.start(), words[taken].end(), text[match.start() : words[taken].end()], kind)


def _arabic_name(before: str, word: str, following: str) -> tuple[int, EntityType]:
    """Return how many words a name has that begins with a word, 0 if none does, and its type."""
    if before in _WORDS["ar roles"] and word not in _WORDS["ar stop"] and is_given_name(word):
        return (2 if is_given_name(following) else 1), "person"
    if word in _WORDS["ar orgs"]:
        return (2 if following.startswith("ال") or is_given_name(following) else 0), "organization"
    if word in _WORDS["ar places"]:
        return (2 if following and following not in _WORDS["ar stop"] else 0), "place"
    if following and is_place(f"{word} {following}"):
        return 2, "place"
    is_known = len(word) >= MIN_PLACE and is_place(word) and not is_also_word(word)
    return (1 if is_known and before in _WORDS["ar at"] else 0), "place"


# Find Chinese names: of people by their family names, of places and organizations by what they end with.


# How many characters the name of a person has at most.
MAX_PERSON = 3


def chinese_spans(text: str) -> Iterator[Span]:
    """Yield the names in Chinese text, the surest first."""
    for match in _RE["zh introduced"].finditer(text):
        is_person = _RE["surname zh"].match(match[1]) is not None and len(match[1]) <= MAX_PERSON
        yield span_of(match, "person" if is_person else "other")
    for match in _RE["zh event"].finditer(text):
        starts = range(max(0, match.start() - 4), match.start() - 1)
        start = next((start for start in starts if is_place(text[start : match.start()])), None)
        if start is not None:
            yield Span(start, match.end(), text[start : match.end()], "event")
    for match in _RE["zh org"].finditer(text):
        if not _RE["not in org"].search(match[1]) and not _RE["kinds of org zh"].fullmatch(match[0]):
            yield span_of(match, "organization", 0)
    yield from _found("zh place", text, "place", but="not a place zh")
    yield from (span_of(match, "person", 0) for match in _RE["zh title after"].finditer(text))
    for pattern in (_RE["zh role name"], _RE["zh subject"]):
        for match in pattern.finditer(text):
            if match[1][:2] not in _WORDS["no names zh"]:
                yield span_of(match, "person")
    yield from (span_of(match, "person", 0) for match in _RE["zh doubled"].finditer(text))
    yield from _found("zh familiar", text, "person")


def _found(pattern: str, text: str, kind: EntityType, but: str = "") -> Iterator[Span]:
    """Yield the first group of each match of a pattern, but for one in which another pattern is found."""
    for match in _RE[pattern].finditer(text):
        if not but or not _RE[but].search(match[1]):
            yield span_of(match, kind)


# Find Japanese names: of people by what stands beside them, of places and organizations by what they end with.

# How many characters a given name has at most.
MAX_GIVEN = 3

_QUOTED_JA: tuple[EntityType, ...] = ("organization", "document", "product", "project", "event")


def japanese_spans(text: str) -> Iterator[Span]:
    """Yield the names in Japanese text, the surest first."""
    for match in _RE["ja is"].finditer(text):
        if any(is_surname(match[1][:length]) for length in (1, 2, 3)) and not _RE["no people ja"].search(match[1]):
            yield span_of(match, "person")
    for match in _RE["ja role name"].finditer(text):
        if _is_role_arabic_name(match[2], match[1]):
            yield span_of(match, "other" if match[1] in _WORDS["pets ja"] else "person", 2)
    yield from _found("ja honorific", text, "person", but="no people ja")
    for match in _RE["ja quoted"].finditer(text):
        kinds: list[EntityType] = [kind for kind in _QUOTED_JA if _RE[f"quoted ja {kind}"].search(match[1])]
        if kinds:
            yield span_of(match, kinds[0], 2)
    yield from _found("ja introduced", text, "other", but="no introduced ja")
    for match in _RE["ja suffix"].finditer(text):
        if not _RE["no suffix ja"].search(match[1]):
            is_place_name = match[2] in "駅市区県府町村" or match[2] == "空港"
            yield span_of(match, "place" if is_place_name else "organization", 0)


def _is_role_arabic_name(name: str, role: str) -> bool:
    """Return whether what belongs to a relative, a colleague or a pet is a name: "娘の美咲", not "娘の自転車"."""
    if _RE["no role names ja"].search(name) or _RE["roles ja"].search(name):
        return False
    if role in _WORDS["pets ja"] and not _RE["han char"].match(name):
        return not _RE["pet things ja"].search(name)
    is_short = len(name) <= MAX_GIVEN
    if is_short and _RE["ranks ja"].search(role) and _RE["surname ends ja"].search(name):
        return True
    is_listed = is_given_name(name) or any(is_surname(name[:length]) for length in (2, 3))
    return is_listed or (is_short and _RE["name ends ja"].search(name) is not None)


# Find Korean names, without the particles that are written to them.


# How many characters most full names have: a family name of one and a given name of two.
FULL_NAME = 3


def korean_spans(text: str) -> Iterator[Span]:
    """Yield the names in Korean text."""
    words = list(_RE["hangul word"].finditer(text))
    for number, match in enumerate(words):
        word = _RE["particles ko"].sub("", match[0])
        before = _RE["particles ko"].sub("", words[number - 1][0]) if number else ""
        end = match.start() + len(word)
        if _is_korean_person(word, before, text[end : end + 5]):
            yield Span(match.start(), end, word, "person")
        elif _RE["org ko"].fullmatch(word):
            yield Span(match.start(), end, word, "organization")
        elif _is_korean_place(word) or (_RE["place ko"].fullmatch(word) and _is_korean_place(word[:-1])):
            yield Span(match.start(), end, word, "place")


def _is_korean_person(word: str, before: str, after: str) -> bool:
    has_surname = FULL_NAME - 1 <= len(word) <= FULL_NAME + 1 and (is_surname(word[:1]) or is_surname(word[:2]))
    if before in _WORDS["roles ko"]:
        return word not in _WORDS["roles ko"] and (is_given_name(word) or has_surname)
    if not has_surname or len(word) != FULL_NAME:
        return False
    return bool(_RE["after name ko"].match(after)) or (is_given_name(word[1:]) and not is_also_word(word[1:]))


def _is_korean_place(word: str) -> bool:
    return len(word) > 1 and is_place(word) and not is_also_word(word)


# Find names in scripts without capitals: Chinese, Japanese, Korean and Arabic, and Latin words inside of them.
#
# A name is found by a list, by its form (a family name, a suffix such as that of a university), and by a word beside
# it that introduces a name.


def uncased_spans(text: str) -> Iterator[Span]:
    """Yield the names of a text in scripts without capitals, the surest first."""
    if not _RE["has uncased"].search(text):
        return
    for match in (*_RE["titles quoted"].finditer(text), *_RE["named quoted"].finditer(text)):
        yield span_of(match, "document" if match[0][0] in "《『" else "other")
    for match in _well_known().finditer(text):
        yield span_of(match, WELL_KNOWN_UNCASED[match[0]], 0)
    if _RE["is japanese"].search(text):
        yield from japanese_spans(text)
    elif _RE["han char"].search(text):
        yield from chinese_spans(text)
    yield from korean_spans(text)
    yield from arabic_spans(text)
    yield from _listed_places(text)


@cache
def _well_known() -> re.Pattern[str]:
    """Return the pattern of the well-known names, the longest first, which are no part of a word in Katakana."""
    names = "|".join(sorted(WELL_KNOWN_UNCASED, key=len, reverse=True))
    return re.compile(rf"(?<![{_KATAKANA}])(?:{names})(?![{_KATAKANA}])")


def _listed_places(text: str) -> Iterator[Span]:
    """Yield listed places in Chinese and Japanese, and places in Katakana, the longest first."""
    for run in _RE["katakana run"].finditer(text):
        if is_place(run[0]):
            yield span_of(run, "place", 0)
    for run in _RE["han run"].finditer(text):
        start = run.start()
        while start < run.end() - 1:
            for end in range(min(start + 6, run.end()), start + 1, -1):
                if is_place(text[start:end]) and not is_also_word(text[start:end]):
                    yield Span(start, end, text[start:end], "place")
                    start = end - 1
                    break
            start += 1


# Find what programs know by name: handles, hosts, addresses, file paths, and identifiers of code.


# A name with one dot may also be the end of a sentence.
TWO = 2


def code_spans(text: str) -> Iterator[Span]:
    """Yield codes that the words before them show, such as "E-417" in "error E-417", and people's initials: "M.C."."""
    for match in _RE["code"].finditer(text):
        if _RE["code before"].search(text[max(0, match.start() - 40) : match.start()]):
            yield span_of(match, group=0)
    for match in _RE["cyrillic code"].finditer(text):
        yield span_of(match, group=0)
    for match in _RE["initials"].finditer(text):
        if match[0].replace(".", "") not in _WORDS["no initials"]:
            yield span_of(match, "person", 0)


def technical_spans(text: str) -> Iterator[Span]:
    """Yield what programs know by name, and without a name what holds no names: commands, mail addresses, numbers."""
    for match in _RE["ascii"].finditer(text):
        kind = match.lastgroup or ""
        is_whole = kind == "identifier" or match[0].endswith("()")
        name = match[0] if is_whole else match[0].rstrip(".,;:!?)")
        start, end = match.start(), match.start() + len(name)
        if kind == "code":
            inner = match[0].strip("`")
            name = inner if not re.search(r"\s", inner) and re.match(r"[\w./@#~$]*[A-Za-z]", inner) else ""
            yield Span(start, match.end(), name)
        elif kind in ("command", "mail", "plate"):
            yield Span(start, match.end())
        elif kind == "number":
            continue
        elif kind in ("address", "handle", "channel", "qualified"):
            yield Span(start, end, name)
        elif kind == "path":
            yield Span(start, end, name if _is_path(name, text[max(0, start - 24) : start]) else "")
        elif (found := _code_type(name)) and not _RE["number before"].search(text[max(0, start - 40) : start]):
            yield Span(start, end, name, found)
        elif found or kind == "dotted":
            yield Span(start, end)


def _is_path(name: str, before: str) -> bool:
    segments = [segment for segment in re.split(r"[/\\]", name) if segment]
    is_alone = name[0] == "/" and len(segments) == 1
    if is_alone and not _RE["file"].fullmatch(segments[0]):  # "/script" is a command of a client
        return _RE["folder before"].search(before) is not None
    if name[0] in "/~\\" or name[1:2] == ":" or name.startswith("."):
        has_word = any(len(re.sub(r"[^A-Za-z]", "", segment)) > 1 for segment in segments)
        return has_word and not re.fullmatch(r"/v?\d*/?", name)
    if _RE["file"].fullmatch(segments[-1]) or len(segments) > 3:  # noqa: PLR2004 - "a/b/c" may still be alternatives
        return True
    if any(segment.casefold() in ALL_FUNCTION_WORDS or not re.search(r"[a-z]", segment) for segment in segments):
        return False
    if re.search(r"[_.@\d]|\w-\w", name) and name == name.lower():
        return True
    return name == name.lower() and _RE["folder before"].search(before) is not None


def _code_type(name: str) -> EntityType | None:
    """Return the type of an identifier: "product" for a name as brands write it. None if it is a plain word."""
    if name.isalpha() and (name.islower() or name.istitle()):  # most words
        return "product" if name in UNMISTAKABLE else None
    if name in WELL_KNOWN:
        return None  # its capital shows it, and it may be part of a longer name
    if "." in name.strip("."):
        return _dotted_type(name)
    is_common = name in _WORDS["names of any project"] or name.casefold() in WORDS["never"]
    if is_common or _RE["no code"].fullmatch(name) or _RE["personal"].fullmatch(name):
        return None
    if _RE["snake"].fullmatch(name):
        return "other"
    if _RE["camel"].fullmatch(name) and re.search(r"[a-z]", name):
        return "product" if name[0].isupper() or name[:2] in ("iP", "iO", "eB", "iC", "iM") else "other"
    return "other" if any(form.fullmatch(name) for form in (_RE["ticket"], _RE["machine"], _RE["program"])) else None


def _dotted_type(name: str) -> EntityType | None:
    labels = [label for label in name.removesuffix("()").split(".") if label]
    if _RE["file"].fullmatch(name):
        return "product" if name[0].isupper() and name.endswith((".js", ".io")) else "other"
    is_short = any(all(len(label) == 1 for label in some) for some in (labels[1:], labels[:-1]))
    if is_short or any(not label[0].isalpha() and label[0] != "_" and not label.isdigit() for label in labels):
        return None
    is_host = _RE["host"].fullmatch(name) and labels[-1] not in _WORDS["domains that are words"]
    if is_host or len(labels) > TWO or any(re.search(r"[_\d-]|[a-z][A-Z]", label) for label in labels):
        return "other"
    first, second = labels
    # The space after a full stop may lack.
    is_sentence_end = is_english_word(second) or second.casefold() in ALL_FUNCTION_WORDS
    if first.islower() and second[0].isupper():
        return None if is_sentence_end else "other"
    is_code = first.islower() and second.islower() and not (is_english_word(first) and is_sentence_end)
    return "other" if is_code else None


def find_names(text: str, known: Mapping[str, EntityType]) -> list[NamedEntity]:
    """Return what a text names, each once and in the order of the text. `known` has the types of names by their keys.

    What may be a name or not is left out: a first word of a sentence, or a German noun, is one only if something else
    shows it. So is what is too long for a name, such as an address with a query.
    """
    text = beginning(text)
    taken: list[Span] = []
    covered = bytearray(len(text))
    for span in _spans(text, known, covered):
        if covered.find(1, span.start, span.end) < 0:
            taken.append(span)
            covered[span.start : span.end] = b"\1" * (span.end - span.start)
    named: dict[str, NamedEntity] = {}
    for span in sorted(taken, key=lambda span: span.start):
        key = name_key(span.name)
        if key and key not in SELF_NAMES and len(span.name) <= MAX_NAME_CHARS:
            named.setdefault(key, NamedEntity(span.name, known.get(key, span.type)))
    people = [key for key, entity in named.items() if entity.type == "person"]
    first_names = Counter(key.split()[0] for key in people if " " in key)
    # "Joris wants a viola; he is Joris Claes": one person, by the whole name.
    return [entity for key, entity in named.items() if key not in people or first_names[key] != 1]


def _spans(text: str, known: Mapping[str, EntityType], covered: bytearray) -> Iterator[Span]:
    """Yield the parts of a text that name something, the surest first. The caller marks those it takes in `covered`."""
    words, technical = words_of(text), [*code_spans(text), *technical_spans(text)]
    if places := known_names(text, known):
        in_code = bytearray(len(text))
        for span in technical:
            in_code[span.start : span.end] = b"\1" * (span.end - span.start)
        longer = [*capital_spans(text, words, in_code)]
        by_start, by_end = {span.start: span for span in longer}, {span.end: span for span in longer}
        for place in places:
            span = replace(place, type=known[name_key(place.name)])
            wholes = (by_start.get(span.start), by_end.get(span.end))
            yield next((whole for whole in wholes if whole is not None and _is_part(span, whole)), span)
    yield from technical
    for match in _RE["title"].finditer(text):
        capitals = sum(word[0].isupper() for word in re.findall(r"\w{4,}", match[1]))
        before = text[max(0, match.start() - 60) : match.start()]
        is_title = capitals > 1 or _RE["title before"].search(before) is not None
        if is_title and not match[1].endswith((".", "!", "?")):
            yield span_of(match, "document", 1)
    for match in _RE["quoted"].finditer(text):
        if kind := _quoted_type(match[1].casefold()):
            yield span_of(match, kind, 2)
    if not text.isascii():
        yield from uncased_spans(text)
    yield from capital_spans(text, words, covered)


def _is_part(span: Span, whole: Span) -> bool:
    """Return whether a known name is only a part of a longer one, of somebody or something else.

    "Tom" is known, and a text is about Tom Smith; "García", and it is about Sofia García; "Ghent" is known, and a text
    is about the Ghent Amateur Orchestra. A name that goes on without such a sign may be the known one with a word about
    it, such as "Stripe API".
    """
    if span.type == "person" and whole.name.endswith(f" {span.name}"):
        return whole.type == "person" and is_given_name(whole.name.split()[0])
    if whole.start != span.start or not whole.name.startswith(f"{span.name} "):
        return False
    if span.type == "person":
        return True
    kind = kind_by_own_words(whole.name.split())
    return kind is not None and kind != span.type


def _quoted_type(noun: str) -> EntityType | None:
    """Return of what type something in quotation marks is by the noun before it; None if that does not show it."""
    noun = noun.rsplit("-", 1)[-1]
    kind = CUES.get(noun)
    if kind is not None and kind not in ("pet", "person"):
        return kind
    russian: tuple[EntityType, ...] = ("organization", "place", "document", "product", "project", "event")
    return next((kind for kind in russian if _RE[kind].fullmatch(noun)), None)
