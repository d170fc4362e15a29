"""Read what a question asks of time and of whom, and of whom and when a text says that something holds."""

from __future__ import annotations

import re
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Literal, TypeAlias

from palimpsest.core.models import SELF_NAMES, name_key
from palimpsest.text.dates.date_finder import dates_in
from palimpsest.text.names.name_finder import find_names
from palimpsest.text.relation_updates import KIN
from palimpsest.text.word_lists import patterns

_RE = patterns("palimpsest.text", "time_questions.txt")

MAX_CHARS = 400
"""How much of a question or a text is read: a long one asks about more than a time."""

TimeSense: TypeAlias = Literal["", "now", "changed", "length", "before"]
"""What a question asks of time in its words: what holds now, what changed, since when or how long, what was before."""

_SENSES: tuple[TimeSense, ...] = ("length", "before", "changed", "now")
"""The order in which they are looked for."""


@dataclass(frozen=True, slots=True)
class TimeQuestion:
    """What a question asks of time.

    `main` is the question without the `clause` that says when: "who led sales" and "we moved to AWS". `named` is what
    the answer was before. With `is_plan` it may ask about what is to come. `about` are the keys of those whom it is
    about: "" for the user; nobody if that cannot be told.
    """

    sense: TimeSense = ""
    main: str = ""
    clause: str = ""
    named: str = ""
    is_plan: bool = False
    about: AbstractSet[str] = frozenset()

    @classmethod
    def of(cls, question: str, people: Collection[str] = ()) -> TimeQuestion:
        """Read a question. `people` are the names of others that it has."""
        text = question[:MAX_CHARS].strip()
        plain = text.casefold()
        main, clause = _parts(text, plain)
        named = "" if clause else _named_before(text)
        senses: list[TimeSense] = [name for name in _SENSES if (named if name == "before" else _RE[name].search(plain))]
        main = (main or text).replace(named, "")
        # Who leads what, or is whose boss, is told of somebody else.
        about = frozenset[str]() if _RE["who"].search(main.casefold()) else _about(main, people)
        return cls(senses[0] if senses else "", main, clause, named, _RE["plan"].search(plain) is not None, about)


def _parts(text: str, plain: str) -> tuple[str, str]:
    """Return the question without the clause that says when it was, and the clause; "" for none.

    "When" also begins a condition: only what is asked of the past has an event for a time.
    """
    if _RE["not when"].search(plain) or not _RE["past"].search(plain):
        return "", ""
    found = _RE["when in han"].search(text) or _RE["when"].search(text)
    return (found["main"], found["clause"]) if found else ("", "")


_MAX_NAME_WORDS = 4


def _named_before(text: str) -> str:
    """Return the name of what a question asks the predecessor of; "" if it asks for none, or of an action."""
    found = _RE["before"].search(text) or _RE["before in han"].search(text)
    if found is None or _RE["obliged"].search(text.casefold()):
        return ""
    named = found["named"].split(",")[0]
    return named if len(named.split()) <= _MAX_NAME_WORDS and _RE["a name"].search(named) else ""


def _about(main: str, people: Collection[str]) -> frozenset[str]:
    plain = main.casefold()
    if _RE["others"].search(plain) or _RE["others in han"].search(main) or not KIN.isdisjoint(plain.split()):
        return frozenset()
    named = frozenset(name_key(name) for name in people if name.casefold() in plain)
    # Japanese leaves out whoever speaks.
    return frozenset({""}) if _RE["self"].search(plain) or (not named and _RE["kana"].search(main)) else named


# Whom a text is about, and between which times what it says holds.

_SELF = sorted((name for name in SELF_NAMES if name.isascii()), key=len, reverse=True)
_BEGINS_WITH_SELF = re.compile(
    rf"(?:(?:{'|'.join(map(re.escape, _SELF))}|(?:die |der )?(?:be)?nutzer(?:in)?|użytkowni(?:k|czka))(?=\W|$)"
    r"|ユーザー(?:一家|たち)?|用户|私)(?P<owner>['\u2019]s\s|の|的)?",
    re.IGNORECASE,
)
_OWNED_WORDS = 2


@lru_cache(maxsize=2_048)
def subject_of(text: str) -> str | None:
    """Return the key of the name of the person whom a text is about: "" for the user, None if that cannot be told.

    Of the relative of somebody it is "?", whoever that is.
    """
    text = text[:MAX_CHARS].strip()
    found = _BEGINS_WITH_SELF.match(text)
    if found is not None:
        owned = text[found.end() :]
        return "?" if found["owner"] and _is_person(owned) else ""
    if _RE["another in han"].match(text):
        return "?"
    first = _RE["first name"].match(text)
    if first is None or not text[0].isupper():
        return None
    if text[first.end() :].startswith(","):  # "Kit, the user's sister, …"
        return name_key(first[0])
    if _is_person(text):
        return "?"
    people = (name.name for name in find_names(text, {}) if name.type == "person")
    return next((name_key(name) for name in people if text.startswith(name)), None)


def _is_person(text: str) -> bool:
    """Return whether a text begins with a word for a relative, a friend or the like, perhaps behind an article."""
    words = " ".join(text.casefold().split()[:_OWNED_WORDS])
    is_kin = not KIN.isdisjoint(word.strip(",.;") for word in words.split())
    return is_kin or _RE["others"].search(words) is not None or _RE["others in han"].match(text) is not None


def is_about(text: str, people: AbstractSet[str]) -> bool:
    """Return whether a text may be about some people, as `TimeQuestion.about` names them."""
    subject = subject_of(text)
    if not people or subject is None:
        return True
    if "" in people or subject in ("", "?"):
        return subject in people
    return any(person in subject or subject in person for person in people)


@lru_cache(maxsize=2_048)
def told_times(text: str, at: datetime) -> tuple[datetime | None, datetime | None]:
    """Return since when and until when a text said at a time says that something holds; None for what it leaves out."""
    begins = ends = None
    for span in dates_in(text[:MAX_CHARS], at):
        before, behind = text[: span.position], text[span.position + len(span.phrase) :]
        if span.start > at and _RE["clause end"].search(before):
            continue  # what is to come, beside what holds already
        ends_here = _RE["until"].search(before) or _RE["until in han"].match(behind)
        if ends_here or (begins is not None and _RE["to"].search(before)):
            ends = ends or span.end
        elif begins is None:
            begins = span.start
    return begins, ends


def is_wish(text: str) -> bool:
    """Return whether a text tells what somebody wants or plans, which may never have come true."""
    return _RE["wish"].search(text[:MAX_CHARS].casefold()) is not None
