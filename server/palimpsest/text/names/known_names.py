"""Split a text into words, and find known names, namesakes, loose spellings and the user's own name in it."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import pairwise

from palimpsest.core.models import SELF_NAMES, EntityType, name_key, plain_name
from palimpsest.text.stopwords import ALL_FUNCTION_WORDS
from palimpsest.text.word_lists import patterns, word_sets

_WORDS = word_sets("palimpsest.text.names", "known_names.txt")
_RE = patterns("palimpsest.text.names", "known_names.txt")

# Split a text into words for finding names: each with its place, and whether it begins a sentence.

# A part of a text, and what it names.


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a text that names something, or with the name "" one that holds no names, such as a command."""

    start: int
    end: int
    name: str = ""
    type: EntityType = "other"


def span_of(match: re.Match[str], kind: EntityType = "other", group: int | None = None) -> Span:
    """Return the part of a match that a group has: the first group with text if none is named, or 0 for the whole."""
    if group is None:
        group = next(number for number in range(1, len(match.groups()) + 1) if match[number])
    return Span(match.start(group), match.end(group), match[group], kind)


# How much of a text is searched for names. A fact is one or two sentences. A page names what it is about at its
# beginning, and reading 4,000 characters takes a few milliseconds.
MAX_CHARS = 4_000


@dataclass(frozen=True)
class Word:
    """A word of a text. `is_first` says that it begins the text, a sentence, a list item or a quotation."""

    text: str
    start: int = 0
    end: int = 0
    is_first: bool = False

    @cached_property
    def has_capital(self) -> bool:
        """Return whether the word begins with a capital letter, perhaps behind a joined article: "d'Odile"."""
        first = self.text[self.elided : self.elided + 1]
        return first.isupper() or first.istitle()

    @cached_property
    def folded(self) -> str:
        """Return the word in lower case."""
        return self.text.casefold()

    @cached_property
    def plain(self) -> str:
        """Return the word without an article that is joined to it, and without a genitive."""
        return without_genitive(self.text[self.elided :])

    @cached_property
    def elided(self) -> int:
        """Return how long the article is that is joined to the word."""
        found = _RE["elision"].match(self.text)
        return found.end() if found else 0

    @cached_property
    def is_genitive(self) -> bool:
        """Return whether the word is an English genitive."""
        return self.text.endswith(("'s", "\u2019s"))


def without_genitive(name: str) -> str:
    """Return a name without the ending of a genitive."""
    return _RE["genitive"].sub("", name)


def beginning(text: str) -> str:
    """Return the part of a text that is searched for names, with composed characters (NFC)."""
    return unicodedata.normalize("NFC", text[:MAX_CHARS])


def words_of(text: str) -> list[Word]:
    """Return the words of a text, in order.

    A hyphen or an apostrophe inside a word belongs to it. A word ends where Latin letters meet Han, Kana or Hangul.
    """
    words: list[Word] = []
    for start, end in (place for match in _RE["word"].finditer(text) for place in _parts(match)):
        between = text[words[-1].end : start] if words else ""
        is_first = not words or (between not in ("", " ") and _RE["sentence end"].search(between) is not None)
        words.append(Word(text[start:end], start, end, is_first))
    return words


def _parts(match: re.Match[str]) -> list[tuple[int, int]]:
    """Return where the parts of a word are that are each in a script with spaces, or in one without."""
    if match[0].isascii():
        return [match.span()]
    return [(match.start() + part.start(), match.start() + part.end()) for part in _RE["one script"].finditer(match[0])]


def is_adjacent(text: str, word: Word, following: Word) -> bool:
    """Return whether nothing but a space is between two words."""
    return text[word.end : following.start] in (" ", "\u00a0")


# Find names in a text that are known already, in any script and spelling.

# How many words a known name has at most. Longer ones are found by their other names only.
MAX_WORDS = 5

# How many characters a known name has at most in a script without spaces between words.
MAX_UNSPACED = 8

# How many sequences of words are looked up for a text. A fact has about a hundred.
MAX_CANDIDATES = 2_000


# What may be between two words of a name. Nothing is where Latin letters meet Han, Kana or Hangul.
_BETWEEN = ("", " ", "\u00a0", ". ", " & ", "\n")


def name_candidates(text: str) -> list[str]:
    """Return the keys of the names that a text may have in it: of its sequences of words, without repetitions.

    The list is bounded, and in the order of the text.
    """
    keys: dict[str, None] = {}
    for place in _places(beginning(text)):
        if key := _key(place.name):
            keys.setdefault(key)
        if len(keys) >= MAX_CANDIDATES:
            break
    return list(keys)


def known_names(text: str, known: Mapping[str, EntityType]) -> list[Span]:
    """Return where a text has names that are known by their keys, the longest first, overlaps included."""
    if not known:
        return []
    places = [place for place in _places(text) if _key(place.name) in known and place.name not in ALL_FUNCTION_WORDS]
    return sorted(places, key=lambda place: (place.start - place.end, place.start))


def _key(name: str) -> str:
    """Return the key of some words. They begin and end with a letter or a digit, so mostly case is all that differs."""
    return name.casefold() if name.isascii() and "\n" not in name else name_key(name)


def _places(text: str) -> Iterator[Span]:
    words = words_of(text)
    for number, word in enumerate(words):
        yield from _in_unspaced(word)
        is_unspaced = _RE["unspaced"].fullmatch(word.text) is not None
        if is_unspaced and number + 1 < len(words):
            yield from _into_next(text, word, words[number + 1])
        if is_unspaced or (word.text in ALL_FUNCTION_WORDS and word.text not in _WORDS["articles"]):
            continue
        end = word.start
        for following in words[number : number + MAX_WORDS]:
            if text[end : following.start] not in _BETWEEN:
                break
            if _RE["unspaced"].fullmatch(following.text):
                for last in range(following.start + 1, min(following.end, following.start + MAX_UNSPACED) + 1):
                    yield Span(word.start, last, text[word.start : last])
                break
            end = following.end
            if following.text not in ALL_FUNCTION_WORDS:  # a name ends with none
                for name_end in _ends(following):
                    yield Span(word.start, name_end, text[word.start : name_end])


def _in_unspaced(word: Word) -> Iterator[Span]:
    for run in _RE["unspaced"].finditer(word.text):
        for start in range(run.start(), run.end() - 1):
            for end in range(start + 2, min(start + MAX_UNSPACED, run.end()) + 1):
                yield Span(word.start + start, word.start + end, word.text[start:end])


def _into_next(text: str, word: Word, following: Word) -> Iterator[Span]:
    """Yield what begins in a word without spaces and ends with the Latin word after it, such as a brand and a model."""
    if text[word.end : following.start] in ("", " ") and not _RE["unspaced"].fullmatch(following.text):
        for start in range(max(word.start, word.end - MAX_UNSPACED), word.end):
            yield Span(start, following.end, text[start : following.end])


def _ends(word: Word) -> Iterator[int]:
    """Yield where a name that ends with a word may end: with it, or before an ending such as a genitive's."""
    if word.is_genitive:
        yield word.end - 2
        return
    yield word.end
    if len(word.text) > 3 and word.text[-1] == "s" and word.text[-2] != "s":  # noqa: PLR2004 - "Annas", "Jos"
        yield word.end - 1
    elif hangul := _RE["hangul"].search(word.text):  # a name and its particles
        yield from range(word.end - 1, word.start + hangul.start() + 1, -1)


def name_beginnings(text: str) -> set[str]:
    """Return the first names that a text uses alone, and the surnames with a title, as beginnings of keys of names."""
    words = pairwise((*words_of(beginning(text)), Word("")))
    alone = {word.folded for word, following in words if word.has_capital > following.has_capital}
    return {f"{word} " for word in alone - ALL_FUNCTION_WORDS} | {*_RE["surname"].findall(beginning(text))}


# Find where a text says that it means another one of a name: "another Tom", "also named Tom", "Tom (the plumber)".

# How many characters before a name may say that it is another one. Compiling a pattern for each name takes 5 ms.
_WINDOW = 100


def _occurrences(text: str, name: str) -> Iterator[tuple[str, int, int]]:
    """Yield where a text has a name: the text as `plain_name` gives it, and where the name begins and ends in it."""
    plain, called = plain_name(text), plain_name(name)
    start = plain.find(called)
    while start >= 0:
        yield plain, start, start + len(called)
        start = plain.find(called, start + 1)


def _is_in_word(plain: str, place: int) -> bool:
    """Return whether a character of a text is a letter, a digit or an underscore."""
    return 0 <= place < len(plain) and (plain[place].isalnum() or plain[place] == "_")


def says_another(text: str, name: str) -> bool:
    """Return whether a text says that it means another one of that name than the one that is known."""
    for plain, start, end in _occurrences(text, name):
        introducing = [_RE["before unspaced"]] if _is_in_word(plain, end) else [_RE["before"], _RE["before unspaced"]]
        if any(pattern.search(plain, max(0, start - _WINDOW), start) for pattern in introducing):
            return True
    return False


def qualifier(text: str, name: str) -> str:
    """Return what a text adds to a name to tell it apart, such as "the plumber" in "Tom (the plumber)"; else ""."""
    for plain, start, end in _occurrences(text, name):
        if not _is_in_word(plain, start - 1) and (found := _RE["qualifier"].match(plain, end)):
            return " ".join(found[1].split())
    return ""


def describing(text: str, name: str) -> set[str]:
    """Return the words beside a name that say who it is: "cousin" of "my cousin Tom", "dentist" of "Tom, a dentist"."""
    said: set[str] = set()
    for plain, start, end in _occurrences(text, name):
        before = _RE["words before"].search(plain, max(0, start - _WINDOW), start)
        after = _RE["apposition"].match(plain, end)
        said |= set(before[0].split()[-1:] if before else ()) | set(after[1].split() if after else ())
    return {word for word in said if word.isalpha() and word not in ALL_FUNCTION_WORDS and word not in SELF_NAMES}


def other_forms(text: str, name: str) -> list[str]:
    """Return the keys under which a name may be known that has its article, or has one in a text: "aux Tilleuls"."""
    key, articles = name_key(name), _WORDS["articles"]
    article, _, rest = key.partition(" ")
    if article in articles and rest:
        return [rest]
    before = {word for plain, start, _ in _occurrences(text, name) for word in plain[:start].split()[-1:]}
    return [f"{article} {key}" for article in sorted(articles)] if before & (articles | _WORDS["with article"]) else []


def bare_name(name: str) -> str:
    """Return a name without what tells it apart at its end: "Tom" for "Tom (plumber)". A name without that is "".

    A call such as "open(path)" tells nothing apart.
    """
    found = _RE["told apart"].fullmatch(unicodedata.normalize("NFKC", name).strip())
    return found[1] if found else ""


# Find where a text tells the user's own name: "User's name is Lena Brandt.".


def told_self_name(text: str) -> str:
    """Return the name that a text gives the user, or "" if it does not say one and nothing else.

    "User's name for the dog is Rex", "User is called every Monday" and "User is named after an uncle" give none.
    """
    if (match := _RE["telling name"].fullmatch(" ".join(text.split()))) is None:
        return ""
    name = next(filter(None, match.groups()))
    words, inside = name.split(), _WORDS["inside names"]
    has_small = any(word[0].islower() and word not in inside for word in words)
    return "" if has_small or words[0] in inside else name


def asks_about_name(what: str, name: str) -> bool:
    """Return whether a request to forget something is about the user's name."""
    words = {word.casefold() for word in re.findall(r"[^\W\d_]+", what)}
    return not words.isdisjoint(_WORDS["name words"] | {word.casefold() for word in name.split()}) or any(
        sign in what for sign in _WORDS["name signs"]
    )


# Spell names loosely: two that share a spelling may be those of one, with or without accents, titles, legal forms.

# How many names are kept with their loose spellings: a new name is compared with many of a user, time and again.
NAMES_KEPT = 16_384

# What stands before the name of a person, or of a project, and may be left out.
_DROPPED = _WORDS["titles"] | _WORDS["dropped"]

# How names begin that have a title or the like before them, in their first three characters.
BEGINNINGS = tuple(sorted({f"{word[:3]:3}" for word in _DROPPED} | {"dr.", "mr.", "ms.", "sr.", "m. "}))

# How long a first name is at least that another name may begin with: two letters are initials.
MIN_FIRST_NAME = 3
_LETTERS = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ð": "d", "ı": "i", "æ": "ae", "œ": "oe", "ß": "ss", "þ": "th"})  # noqa: RUF001 - Turkish
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"})


def first_letters(name: str) -> set[str]:
    """Return the letters with which the keys of names begin that one may be the same as, but for titles."""
    return {letter for spelling in spellings(name) for letter in _variants().get(spelling[:1], {spelling[:1]})}


@lru_cache(maxsize=NAMES_KEPT)
def spellings(name: str) -> frozenset[str]:
    """Return the name without accents, without what may be left out, and with umlauts as one letter and as two."""
    words = ["and" if word in _WORDS["and"] else word for word in _RE["loose word"].findall(plain_name(name))]
    while len(words) > 1 and words[0] in _DROPPED:
        words = words[1:]
    while len(words) > 1 and (words[-1] in _WORDS["forms"] or words[-1] == "and"):
        words = words[:-1]
    text = " ".join("brothers" if word == "bros" else word for word in words)
    return frozenset(filter(None, (_folded(text), _folded(text.translate(_UMLAUTS)))))


def is_short_form(name: str, other: str) -> bool:
    """Return whether one name is the first name of the other: "Marta" of "Marta Lindqvist", titles left out."""
    return any(
        len(short) == 1 < len(long) and len(short[0]) >= MIN_FIRST_NAME and long[0] == short[0]
        for one in spellings(name)
        for another in spellings(other)
        for short, long in ((one.split(), another.split()), (another.split(), one.split()))
    )


def _folded(text: str) -> str:
    return _RE["accents"].sub("", unicodedata.normalize("NFKD", text.translate(_LETTERS)))


@cache
def _variants() -> dict[str, set[str]]:
    """Return the letters that are each letter without its accents."""
    variants: dict[str, set[str]] = {}
    for letter in map(chr, (*range(0x61, 0x7B), *range(0xDF, 0x250), *range(0x430, 0x460), *range(0x3AC, 0x3D0))):
        variants.setdefault(_folded(letter)[:1], set()).add(letter)
    return variants
