"""Read the vocabulary of dates.

`vocabulary.txt` has a section for each language. A line gives the class of its words and mostly a value, then the
words; a word may be a phrase. `months`, `abbreviations`, `weekdays`, `numbers` and `ordinals` list their words in the
order of their values, from January, Monday and one; "/" stands between words of the same value, "-" for none. A
question mark follows months that are also names or other words, and words that mean something else in another language.
" + " joins the classes of a phrase that counts as two.

A holiday whose name has a weekday is no weekday: "Good Friday".

The classes of `CUES` say in which direction a day lies. They are no part of a date, so their words may be parts of
words: "*ed" are words that end so, "ge*t" words that also begin so. `date_finder.py` reads them.
"""

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, TypeVar

from palimpsest.text.tokenizer import fold_case_and_marks
from palimpsest.text.word_lists import patterns, word_lists

_T = TypeVar("_T")

# A number, a word such as "spring", a word and a number, or the numbers of a date.
Value: TypeAlias = Any

RE = patterns("palimpsest.text.dates", "rules.txt")
SECTIONS = word_lists("palimpsest.text.dates", "rules.txt")


def _classes(section: str) -> dict[str, str]:
    """Return what stands before the colon of a line for each class that it lists."""
    lines = (line.partition(": ") for line in SECTIONS[section].splitlines())
    return {name: value for value, _, names in lines for name in names.split(", ")}


# The letter of each class of words, in which the rules are written.
LETTERS = _classes("letters")

# The value of the first word of the classes whose words are listed in order.
FIRST_VALUE = {name: int(value) for name, value in _classes("first values").items()}

# What a word says of the days beside it, see `date_finder.py`.
Cue: TypeAlias = str

CUES = frozenset(" ".join(SECTIONS["cues"].split()).split(", "))

# What a word says beside its tense.
ASIDE: frozenset[Cue] = frozenset(("moved", "moved from", "moved to", "replaced"))

NO_CUES: frozenset[Cue] = frozenset()

# The letter of months that are also names or other words.
WEAK_MONTH = "m"

# The section of Chinese and Japanese. Its words are found without spaces between them.
UNSPACED = "zh-ja"

DATE_LETTERS = frozenset("MmbWKSDRrqCT")
UNIT_LETTERS = frozenset("Uu")

# Only a text with a number, with a word of a date, or with a unit and a word such as "last" can name a date.
MOVER_LETTERS = frozenset("LlAaFihBE")

# Other words that a word of a date becomes without its marks: Marco for março, a name; "passe" for "passé".
_UNFOLDED = frozenset(("marco", "ar", "ete", "var", "host", "passe"))

_LATIN_END = "\u0250"
WORD = RE["word"]


class Item(NamedTuple):
    """A part of a text as the rules see it: the letter of its class, its value and where it stands."""

    letter: str
    value: Value
    start: int
    end: int


Entry: TypeAlias = tuple[tuple[str, Value], ...]


# By the first word of a phrase the other words of each such phrase, and what is known of it.
Phrases: TypeAlias = dict[str, list[tuple[tuple[str, ...], _T]]]


@dataclass(frozen=True, slots=True, eq=False)
class Language:
    """The words of one language.

    `words` and `phrases` are those of dates, the longest phrase first. `homographs` are words that mean something else
    in another language. The others say in which direction a day lies: `cues` are whole words, `cue_phrases` phrases,
    and `cue_parts` the beginning, the end and the cue of words that are known by these.
    """

    name: str
    words: dict[str, Entry] = field(default_factory=dict[str, Entry])
    phrases: Phrases[Entry] = field(default_factory=Phrases[Entry])
    homographs: set[str] = field(default_factory=set[str])
    cues: dict[str, set[Cue]] = field(default_factory=dict[str, set[Cue]])
    cue_phrases: Phrases[Cue] = field(default_factory=Phrases[Cue])
    cue_parts: list[tuple[str, str, Cue]] = field(default_factory=list[tuple[str, str, Cue]])

    def add_cue(self, phrase: str, cue: Cue) -> None:
        """Add a word, a phrase, or a part of words with a star that say something."""
        begin, star, end = phrase.partition("*")
        first, *rest = RE["word or sign"].findall(phrase)
        if star:
            self.cue_parts.append((begin, end, cue))
        elif rest:
            self.cue_phrases.setdefault(first, []).append((tuple(rest), cue))
        else:
            self.cues.setdefault(first, set()).add(cue)

    def cues_of(self, word: str) -> Set[Cue]:
        """Return what a word says by itself. Exceptions and whole words count more than parts of words."""
        known = self.cues.get(word, NO_CUES)
        if not known <= ASIDE:
            return known
        return known | {
            cue
            for begin, end, cue in self.cue_parts
            if word.endswith(end) and word.startswith(begin) and len(word) > len(begin) + max(len(end), 2)
        }


class Vocabulary(NamedTuple):
    """All languages by their names, and those that have a word, with the letters of its classes."""

    languages: dict[str, Language]
    words: dict[str, list[tuple[Language, frozenset[str]]]]


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    """Read the vocabulary."""
    sections = word_lists("palimpsest.text.dates", "vocabulary.txt")
    languages = {name: Language(name) for name in sections}
    for name, language in languages.items():
        for line in sections[name].splitlines():
            head, _, listed = line.partition(": ")
            listed = listed.casefold()
            if head in CUES:
                for phrase in listed.split(", "):
                    language.add_cue(phrase, head)
                continue
            for phrase, entry in _entries_of(head, listed):
                _add(language, phrase.removesuffix("?"), entry)
                if phrase.endswith("?"):
                    language.homographs.add(phrase.removesuffix("?"))
    words: dict[str, list[tuple[Language, frozenset[str]]]] = {}
    for language in languages.values():
        letters: dict[str, set[str]] = {}
        # Of a phrase its longest word counts, which is mostly its rarest.
        phrases = [(first, *phrase) for first, phrases in language.phrases.items() for phrase in phrases]
        longest = [(max((first, *rest), key=len), entry) for first, rest, entry in phrases]
        for word, entry in (*language.words.items(), *longest):
            letters.setdefault(word, set()).update(letter for letter, _ in entry)
        for word, known in letters.items():
            words.setdefault(word, []).append((language, frozenset(known)))
    return Vocabulary(languages, words)


def _entries_of(head: str, listed: str) -> Iterator[tuple[str, Entry]]:
    """Yield the words of a line with their entries."""
    groups = [group.strip() for group in listed.split(", ")]
    if head in FIRST_VALUE:
        for value, group in enumerate(groups, FIRST_VALUE[head]):
            for word in group.split("/"):
                letter = WEAK_MONTH if word.endswith("?") else LETTERS[head]
                yield word.removesuffix("?"), ((letter, value),)
        return
    entry = tuple(_class_and_value(part) for part in head.split(" + "))
    for word in groups:
        yield word, entry


def _class_and_value(head: str) -> tuple[str, Value]:
    """Return the letter and the value of a class such as "unit day" or "period week -1"."""
    if head in LETTERS:
        return LETTERS[head], 0
    name, *values = head.split(" ")
    letter, value = LETTERS.get(f"{name}={values[0]}", LETTERS[name]), values[0]
    if len(values) > 1:
        return letter, (value, int(values[1]))
    return letter, int(value) if value.lstrip("-").isdigit() else value


def _add(language: Language, phrase: str, entry: Entry) -> None:
    """Add a word or a phrase, and the same without marks, as many people type it."""
    for variant in dict.fromkeys((phrase, _without_marks(phrase))):
        first, *rest = RE["word or sign"].findall(variant) if language.name != UNSPACED else [variant]
        if first == "-":
            continue
        if rest:
            phrases = language.phrases.setdefault(first, [])
            phrases.append((tuple(rest), entry))
            phrases.sort(key=lambda phrase: -len(phrase[0]))
        elif variant == phrase or variant not in language.words:
            language.words[first] = entry


def _without_marks(phrase: str) -> str:
    if phrase[0] >= _LATIN_END:
        return phrase
    plain = fold_case_and_marks(phrase)
    return phrase if plain in _UNFOLDED else plain


# Split a text into the parts that the rules of dates are written in.

# The letter of an English month that is another word in lower case, as in "may" and "march".
LOWER_CASE_MONTH = "w"

# The letter of a time of day.
CLOCK = "c"

_UNKNOWN = "x"
_YEARS = range(1900, 2100)
_DAYS = range(1, 32)
_MONTHS = range(1, 13)
_MAX_NUMBER = 999

_HAN_DIGITS = "〇一二三四五六七八九"
_HAN_NUMBERS = {**{digit: value for value, digit in enumerate(_HAN_DIGITS)}, "零": 0, "两": 2, "兩": 2}
_HAN_TEN = "十"

# Apostrophes stand for "of": they join "d'avril" and "year's".
_PUNCTUATION = dict(zip(",.!?-\u2013'\u2019(\uff08", ",.!!--oo((", strict=True))


_WORD_KINDS = frozenset(("word", "prefix", "han", "other"))


class Token(NamedTuple):
    """A word in lower case, or a number with its letter and value; where it stands, and as it was written."""

    word: str
    letter: str
    value: Value
    start: int
    end: int
    written: str


@lru_cache(maxsize=1)
def _token_pattern() -> re.Pattern[str]:
    words = sorted(map(re.escape, vocabulary().languages[UNSPACED].words), key=lambda word: (-len(word), word))
    return re.compile(RE["token"].pattern.replace("{han}", "|".join(words)))


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a text."""
    tokens: list[Token] = []
    for match in _token_pattern().finditer(text):
        kind = match.lastgroup or ""
        word = match[kind]
        start = match.start()
        letter, value = ("", 0) if kind in _WORD_KINDS else _number(kind, word)
        tokens.append(Token("" if letter else word.casefold(), letter, value, start, start + len(word), word))
    return tokens


def times_in(text: str) -> list[Token]:
    """Return the times of day in a text, and the days of a month that say so themselves, as 19号 does."""
    numbers = [token for token in tokens_of(text) if token.letter in {CLOCK, "d"}]
    behind = [text[token.end : token.end + 1] for token in numbers]
    return [each for each, sign in zip(numbers, behind, strict=True) if sign in _HOURS or not each.written.isdecimal()]


_HOURS = frozenset("点點时時")


def items_of(tokens: Sequence[Token], language: Language) -> list[Item]:
    """Return the parts of a text, with its words read as words of one language."""
    items: list[Item] = []
    words, phrases = language.words, language.phrases
    skip = 0
    for position, (word, letter, value, start, end, written) in enumerate(tokens):
        if position < skip:
            continue
        if letter:
            items.append(Item(letter, value, start, end))
            continue
        entry = words.get(word)
        if word in phrases and (found := phrase_at(tokens, position, phrases[word])) is not None:
            entry, skip = found
            end = tokens[skip - 1].end  # noqa: PLW2901 - the phrase ends there
        if entry is None:
            items.append(Item(_PUNCTUATION.get(word, _UNKNOWN), 0, start, end))
            continue
        is_other_word = entry[0][0] == WEAK_MONTH and language.name == "en" and written.islower()
        items += [Item(LOWER_CASE_MONTH if is_other_word else letter, value, start, end) for letter, value in entry]
    return items


def phrase_at(
    tokens: Sequence[Token], position: int, phrases: Sequence[tuple[tuple[str, ...], _T]], least: int = 0
) -> tuple[_T, int] | None:
    """Return what is known of the phrase that begins with a token, and the position behind the phrase.

    `least` is how many words it has at least after its first one.
    """
    for rest, found in phrases:
        end = position + 1 + len(rest)
        if least <= len(rest) and rest == tuple(
            "'" if token.word == "\u2019" else token.word for token in tokens[position + 1 : end]
        ):
            return found, end
    return None


def _number(kind: str, text: str) -> tuple[str, Value]:
    """Return the letter and the value of a token with a number.

    Letters: c is a time of day, I a whole date, J a day and a month, Z a year that says so, Y what may be a year, d
    what may be a day, n and z other numbers, small and large, N a number in words, M a month, q a quarter, C a decade.
    """
    match kind:
        case "ymd" | "ym" | "dmy" | "dm":
            date = _ordered(kind, text, [int(number) for number in re.findall(r"\d+", text)[:3]])
            return ("J" if kind == "dm" else "I", date) if date is not None else (_UNKNOWN, 0)
        case "han_year":
            year = text[:-1]
            return "Z", int(year) if year.isdigit() else int("".join(str(_HAN_NUMBERS.get(char, 1)) for char in year))
        case "han_month" | "han_day":
            value = _small_number(text[:-1])
            letter, known = ("M", _MONTHS) if kind == "han_month" else ("d", _DAYS)
            return (letter if value in known else _UNKNOWN), value
        case "quarter":
            return "q", int(text[1])
        case "decade":
            digits = int(re.sub(r"\D", "", text))
            return "C", digits if digits in _YEARS else 1900 + digits
        case "han_number":
            return "N", _small_number(text)
        case "number":
            value = _small_number(re.sub(r"\D+$", "", text))
            letters = (("Y", _YEARS), ("d", _DAYS), ("n", range(_MAX_NUMBER + 1)))
            return next((letter for letter, known in letters if value in known), "z"), value
        case _:
            return CLOCK if kind == "clock" else _UNKNOWN, 0


def _ordered(kind: str, text: str, numbers: Sequence[int]) -> tuple[int, ...] | None:
    """Return year, month and perhaps day, or None if their order is not certain. A full stop means day first."""
    if kind in ("ymd", "ym"):
        return tuple(numbers)
    day, month, *year = numbers
    if "." not in text and month > len(_MONTHS):
        day, month = month, day
    elif "." not in text and day <= len(_MONTHS) and day != month:
        return None
    return (*year, month, day)


def _small_number(text: str) -> int:
    """Return a number written in digits or, up to 99, in Chinese."""
    if text.isdecimal():
        return int(text[:6])
    tens, ten, ones = text.rpartition(_HAN_TEN)
    if not ten:
        return _HAN_NUMBERS.get(text[-1:], 0) if len(text) == 1 else -1
    return 10 * _HAN_NUMBERS.get(tens, 1) + (_HAN_NUMBERS.get(ones, 0) if ones else 0)
