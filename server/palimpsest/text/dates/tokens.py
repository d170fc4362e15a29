"""Split a text into the parts that the rules of dates are written in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from palimpsest.text.dates.vocabulary import VOWEL_SIGNS, WEAK_MONTH, Entry, Item, Language, Value, vocabulary

LOWER_CASE_MONTH = "w"
"""The letter of an English month that is another word in lower case, as in "may" and "march"."""

CLOCK = "c"
"""The letter of a time of day."""

_UNKNOWN = "x"
_YEARS = range(1900, 2100)
_DAYS = range(1, 32)
_MONTHS = range(1, 13)
_MAX_NUMBER = 999

_HAN = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_HAN_DIGITS = "〇一二三四五六七八九"
_HAN_NUMBERS = {**{digit: value for value, digit in enumerate(_HAN_DIGITS)}, "零": 0, "两": 2, "兩": 2}
_HAN_TEN = "十"

_PUNCTUATION = {
    ",": ",",
    ".": ".",
    "!": "!",
    "?": "!",
    "-": "-",
    "\u2013": "-",
    "'": "o",
    "\u2019": "o",
    "(": "(",
    "\uff08": "(",
}
"""Apostrophes stand for "of": they join "d'avril" and "year's"."""


_WORDS_OF_WEEKDAYS = frozenset(("sat", "sun"))
"""Weekdays in short that are other words behind a preposition of time: "before sun and wind"."""

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
    han = "|".join(sorted(map(re.escape, vocabulary().han_words), key=lambda word: (-len(word), word)))
    han_number = "".join((*_HAN_NUMBERS, _HAN_TEN))
    number = rf"(?:\d{{1,3}}|[{han_number}]{{1,3}})"
    letter = rf"[^\W\d_{_HAN}]"
    letters = rf"(?:{letter}++(?:{VOWEL_SIGNS}++{letter}*+)*+)"
    return re.compile(
        rf"""
        (?: (?P<word> {letters}++ (?![\d_]|-\d) )
        | (?<![A-Za-z0-9_./-])
        (?: (?P<ymd> \d{{4}}-\d\d-\d\d (?:[T\ ]\d\d:\d\d[\d:.+Zz-]{{0,24}})?
            | \d{{4}}/\d\d?/\d\d? | \d{{4}}\.\d\d?\.\d\d? )
          | (?P<ym> \d{{4}}-\d\d )
          | (?P<dmy> \d\d?(?P<separator>[./-])\d\d?(?P=separator)\d{{4}} )
          | (?P<dm> \d\d?\.\ ?\d\d?\.(?!\ ?\d) ) )
        (?![A-Za-z0-9_] | [./:-][A-Za-z0-9])
        | (?P<han_year> (?:(?:19|20)\d\d | [{han_number}]{{4}})[年년] (?![前后後间間]|\ ?전) )
        | (?P<han_month> {number}[月월] (?![前间間]) )
        | (?P<han_day> {number}[日号號일] (?![前后後间間目以之]|\ ?[전후]|간) )
        | (?P<han> {han} )
        | (?P<han_number> [{han_number}]{{1,3}} )
        | (?P<quarter> (?<![A-Za-z0-9_-])[Qq][1-4](?![A-Za-z0-9_]) )
        | (?P<decade> (?<![\w.-])(?:(?:19|20)\d0|[2-9]0)(?:s|er|ern)(?!\w) )
        | (?P<clock> (?<![\w.:/-])(?:[01]?\d|2[0-4])
            (?: [:.h][0-5]\d(?:\ ?[ap]m)?(?![\w:/-]|\.\d) | \ ?(?:[ap]m|Uhr|uur|h)(?!\w) ) )
        | (?P<code> [$€£¥#]\ ?\d[\d.,]{{0,40}} | [A-Z]{{2,20}}-\d\S{{0,40}}
                  | [A-Za-z_]{{1,40}}\d\w{{0,40}}(?:[.:-]\d\w{{0,40}}){{0,8}}
                  | \d{{1,20}}(?:[.:/]\d{{1,20}}|,\d{{1,3}}(?!\d)){{1,20}}\w{{0,40}} )
        | (?P<number> \d++ (?: (?:st|nd|rd|th|er|re|[eèéº°ª]|ème|:[ae]|-?(?:го|е))(?![^\W{_HAN}]) )?
          (?! [A-Za-z_] | \ ?[$€£¥%] ) )
        | (?P<prefix> {letters} )
        | (?P<other> \d\w{{0,40}} | \w | [^\w\s] ) ) \s*+
        """,
        re.VERBOSE,
    )


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a text."""
    tokens: list[Token] = []
    for match in _token_pattern().finditer(text):
        kind = match.lastgroup or ""
        word = match[kind]
        start = match.start()
        if kind in _WORD_KINDS:
            tokens.append(Token(word.casefold(), "", 0, start, start + len(word), word))
        else:
            letter, value = _number(kind, word)
            tokens.append(Token("", letter, value, start, start + len(word), word))
    return tokens


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
        if word in phrases and (found := _phrase_at(tokens, position, phrases[word])) is not None:
            entry, skip = found
            end = tokens[skip - 1].end  # noqa: PLW2901 - the phrase ends there
        if entry is None:
            items.append(Item(_PUNCTUATION.get(word, _UNKNOWN), 0, start, end))
            continue
        is_other_word = entry[0][0] == WEAK_MONTH and language.name == "en" and written.islower()
        if written in _WORDS_OF_WEEKDAYS and items and items[-1].letter == "B":
            entry = ((_UNKNOWN, 0),)
        items += [Item(LOWER_CASE_MONTH if is_other_word else letter, value, start, end) for letter, value in entry]
    return items


def _phrase_at(
    tokens: Sequence[Token], position: int, phrases: Sequence[tuple[tuple[str, ...], Entry]]
) -> tuple[Entry, int] | None:
    """Return the entry of the phrase that begins with a token, and the position behind the phrase."""
    for rest, entry in phrases:
        end = position + 1 + len(rest)
        following = tuple("'" if token.word == "\u2019" else token.word for token in tokens[position + 1 : end])
        if following == rest:
            return entry, end
    return None


def _number(kind: str, text: str) -> tuple[str, Value]:
    """Return the letter and the value of a token with a number.

    Letters: c is a time of day, I a whole date, J a day and a month, Z a year that says so, Y what may be a year, d
    what may be a day, n and z other numbers, small and large, N a number in words, M a month, q a quarter, C a decade.
    """
    match kind:
        case "ymd" | "ym" | "dmy" | "dm":
            numbers = [int(number) for number in re.findall(r"\d+", text)[:3]]
            date = _ordered(kind, text, numbers)
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
        return tuple(numbers[:3])
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
