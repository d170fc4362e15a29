"""Read the vocabulary of dates.

`vocabulary.txt` has a section for each language. A line gives the class of its words and mostly a value, then the
words; a word may be a phrase. `months`, `abbreviations`, `weekdays`, `numbers` and `ordinals` list their words in the
order of their values, from January, Monday and one; "/" stands between words of the same value, "-" for none. A
question mark follows months that are also names or other words, and words that mean something else in another language.
" + " joins the classes of a phrase that counts as two.

A holiday whose name has a weekday is no weekday: "Good Friday".

The classes of `CUES` say in which direction a day lies. They are no part of a date, so their words may be parts of
words: "*ed" are words that end so, "ge*t" words that also begin so. `direction.py` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib.resources import files
from typing import Literal, NamedTuple, TypeAlias, get_args

from palimpsest.text.tokenizer import fold_case_and_marks

Value: TypeAlias = int | str | tuple[str, int] | tuple[int, ...]

LETTERS = {
    "months": "M",
    "abbreviations": "b",
    "weekdays": "W",
    "weekday abbreviations": "k",
    "weekday": "W",
    "plain weekdays": "K",
    "plain-weekday": "K",
    "bracketed weekdays": "H",
    "numbers": "N",
    "number": "N",
    "ordinals": "O",
    "season": "S",
    "unit": "U",
    "direction": "L",
    "offset": "D",
    "period": "R",
    "quarter": "q",
    "part": "E",
    "part-after": "e",
    "ago": "A",
    "ago after": "a",
    "ahead": "F",
    "ahead after": "h",
    "counted from": "g",
    "onward": "s",
    "lasting": "y",
    "weeks-on": "j",
    "in": "i",
    "preposition": "P",
    "before": "B",
    "since": "G",
    "of": "o",
    "the": "t",
    "future": "f",
    "range": "-",
    "recurring": "V",
    "ignore": "x",
    "holiday": "x",
}
"""The letter of each class of words. `grammar.py` writes its rules in these letters."""

Cue: TypeAlias = Literal[
    "past",
    "not past",
    "coming",
    "due",
    "planned",
    "appointment",
    "habit",
    "habitual",
    "yearly",
    "auxiliary",
    "participle",
    "either",
    "function",
    "conjunction",
    "ever since",
    "determiner",
    "task",
    "ready",
    "moved",
    "moved from",
    "moved to",
]
"""What a word says of the days beside it, see `direction.py`."""

CUES: tuple[Cue, ...] = get_args(Cue)

ASIDE: frozenset[Cue] = frozenset(("moved", "moved from", "moved to"))
"""What a word says beside its tense."""

NO_CUES: frozenset[Cue] = frozenset()

WEAK_MONTH = "m"
YEAR_UNIT = "u"
YEAR_PERIOD = "r"
THIS = "l"
"""Letters of words that the rules treat unlike the rest of their class."""

FIRST_VALUE = {
    "months": 1,
    "abbreviations": 1,
    "weekdays": 0,
    "weekday abbreviations": 0,
    "plain weekdays": 0,
    "bracketed weekdays": 0,
    "numbers": 1,
    "ordinals": 1,
}
"""The value of the first word of the classes whose words are listed in order."""

UNSPACED = "zh-ja"
"""The section of Chinese and Japanese. Its words are found without spaces between them."""

_DATE_LETTERS = frozenset("MmbWKSDRrqC")
_UNIT_LETTERS = frozenset("Uu")
_MOVER_LETTERS = frozenset("LlAaFihB")
"""Only a text with a number, with a word of a date, or with a unit and a word such as "last" can name a date."""

_UNFOLDED = frozenset(("marco", "ar", "ete", "var", "host", "passe"))
"""Other words that a word of a date becomes without its marks: Marco for março, a name; "passe" for "passé"."""

_LATIN_END = "\u0250"
VOWEL_SIGNS = "[\u0900-\u0903\u093a-\u094f\u0955-\u0957\u0962\u0963]"
"""The signs of Hindi that belong to a word, which are no letters to Python, as a pattern."""

WORD = re.compile(rf"[^\W\d_]++(?:{VOWEL_SIGNS}++[^\W\d_]*+)*+")
_WORD = re.compile(rf"{WORD.pattern}|[^\w\s]")


class Item(NamedTuple):
    """A part of a text as the rules see it: the letter of its class, its value and where it stands."""

    letter: str
    value: Value
    start: int
    end: int


Entry: TypeAlias = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Cues:
    """The words of one language that say in which direction a day lies.

    `words` are whole ones, `phrases` the further words and the cue of each phrase by its first word, and `parts` the
    beginning, the end and the cue of words that are known by these.
    """

    words: dict[str, set[Cue]] = field(default_factory=dict[str, set[Cue]])
    phrases: dict[str, list[tuple[tuple[str, ...], Cue]]] = field(
        default_factory=dict[str, list[tuple[tuple[str, ...], Cue]]]
    )
    parts: list[tuple[str, str, Cue]] = field(default_factory=list[tuple[str, str, Cue]])

    def add(self, phrase: str, cue: Cue) -> None:
        """Add a word, a phrase, or a part of words with a star."""
        begin, star, end = phrase.partition("*")
        first, *rest = _WORD.findall(phrase)
        if star:
            self.parts.append((begin, end, cue))
        elif rest:
            self.phrases.setdefault(first, []).append((tuple(rest), cue))
        else:
            self.words.setdefault(first, set()).add(cue)

    def of(self, word: str) -> Set[Cue]:
        """Return what a word says by itself. Exceptions and whole words count more than parts of words."""
        known = self.words.get(word, NO_CUES)
        if not known <= ASIDE:
            return known
        by_part: set[Cue] = {
            cue
            for begin, end, cue in self.parts
            if word.endswith(end) and word.startswith(begin) and len(word) > len(begin) + max(len(end), 2)
        }
        return known | by_part


@dataclass(frozen=True, slots=True, eq=False)
class Language:
    """The words of one language.

    `phrases` maps the first word of a phrase to the other words and the entry of each such phrase, the longest first.
    `homographs` are words that mean something else in another language, and `cues` say which day is meant.
    """

    name: str
    words: dict[str, Entry] = field(default_factory=dict[str, Entry])
    phrases: dict[str, list[tuple[tuple[str, ...], Entry]]] = field(
        default_factory=dict[str, list[tuple[tuple[str, ...], Entry]]]
    )
    homographs: set[str] = field(default_factory=set[str])
    cues: Cues = field(default_factory=Cues)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All languages, and which of them have a word: any, one that makes a date, a unit, one that says which unit.

    `triggers` are the words that make a date, and the units; a text without any of them has no date in words.
    `han_words` are the words of the languages that are written without spaces.
    """

    languages: tuple[Language, ...]
    all_words: dict[str, tuple[Language, ...]]
    date_words: dict[str, tuple[Language, ...]]
    units: dict[str, tuple[Language, ...]]
    movers: dict[str, tuple[Language, ...]]
    triggers: frozenset[str]
    han_words: tuple[str, ...]


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    """Read the vocabulary."""
    languages: list[Language] = []
    for line in files("palimpsest.text.dates").joinpath("vocabulary.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            languages.append(Language(line.strip("[]")))
        elif (head := line.partition(":")[0]) in CUES:
            for phrase in line.removeprefix(f"{head}: ").split(", "):
                languages[-1].cues.add(phrase, head)
        elif line and not line.startswith("#"):
            for phrase, entry in _entries_of(line):
                _add(languages[-1], phrase.removesuffix("?"), entry)
                if phrase.endswith("?"):
                    languages[-1].homographs.add(phrase.removesuffix("?"))
    han_words = tuple(next(language for language in languages if language.name == UNSPACED).words)
    by_letters = partial(_languages_by_word, languages)
    every_letter = frozenset("".join(LETTERS.values()))
    return Vocabulary(
        languages=tuple(languages),
        all_words=by_letters(every_letter),
        date_words=by_letters(_DATE_LETTERS),
        units=by_letters(_UNIT_LETTERS),
        movers=by_letters(_MOVER_LETTERS),
        triggers=frozenset(by_letters(_DATE_LETTERS | _UNIT_LETTERS)),
        han_words=han_words,
    )


def _languages_by_word(languages: Sequence[Language], letters: frozenset[str]) -> dict[str, tuple[Language, ...]]:
    """Return the languages of each word that has one of these letters."""
    by_word: dict[str, tuple[Language, ...]] = {}
    for language in languages:
        for word, entry in _words_and_phrases(language):
            if any(letter in letters for letter, _ in entry):
                by_word[word] = tuple(dict.fromkeys((*by_word.get(word, ()), language)))
    return by_word


def _words_and_phrases(language: Language) -> Iterator[tuple[str, Entry]]:
    """Yield the words of a language with their entries, and for each phrase its longest, which is mostly its rarest."""
    yield from language.words.items()
    for first, phrases in language.phrases.items():
        for rest, entry in phrases:
            yield max((first, *rest), key=len), entry


def _entries_of(line: str) -> Iterator[tuple[str, Entry]]:
    """Yield the words of a line with their entries."""
    head, _, listed = line.partition(": ")
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
    letter = LETTERS[name]
    value: Value = (values[0], int(values[1])) if len(values) > 1 else values[0]
    if isinstance(value, str) and value.lstrip("-").isdigit():
        value = int(value)
    if value == "year":
        letter = YEAR_UNIT
    elif letter == "R" and values[0] == "year":
        letter = YEAR_PERIOD
    elif letter == "R" and values[0] == "decade":
        letter = "C"
    elif letter == "L" and value == 0:
        letter = THIS
    return letter, value


def _add(language: Language, phrase: str, entry: Entry) -> None:
    """Add a word or a phrase, and the same without marks, as many people type it."""
    for variant in dict.fromkeys((phrase, _without_marks(phrase))):
        first, *rest = _WORD.findall(variant) if language.name != UNSPACED else [variant]
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
