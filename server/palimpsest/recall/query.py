"""Parse a query: its words, people and dates, and of which time it asks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Container, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Literal, TypeAlias

from sqlalchemy import Connection

from palimpsest.core.clock import LATEST, TimeSpan, parse_span
from palimpsest.core.models import SELF_NAMES, Scope, name_key
from palimpsest.store import memories, messages
from palimpsest.text.dates.date_finder import dates_in
from palimpsest.text.dates.date_spans import DateSpan
from palimpsest.text.names.name_finder import find_names
from palimpsest.text.relation_updates import KIN
from palimpsest.text.stopwords import has_words_of_the_past
from palimpsest.text.tokenizer import query_tokens, search_tokens
from palimpsest.text.word_lists import patterns

# Read what a question asks of time and of whom, and of whom and when a text says that something holds.

_RE = patterns("palimpsest.text", "time_questions.txt")

# How much of a question or a text is read: a long one asks about more than a time.
MAX_CHARS = 400

# What a question asks of time in its words: what holds now, what changed, since when or how long, what was before, and
# when something is.
TimeSense: TypeAlias = Literal["", "now", "changed", "length", "before", "when"]

# The order in which they are looked for.
_SENSES: tuple[TimeSense, ...] = ("length", "when", "before", "changed", "now")


@dataclass(frozen=True, slots=True)
class TimeQuestion:
    """What a question asks of time.

    `main` is the question without the `clause` that says when: "who led sales" and "we moved to AWS". `named` is what
    the answer was before. With `is_plan` it may ask about what is to come. `about` are the keys of those whom it is
    about: "" for the user; nobody if that cannot be told. With `has_relative` it has a word for somebody's relative or
    friend.
    """

    sense: TimeSense = ""
    main: str = ""
    clause: str = ""
    named: str = ""
    is_plan: bool = False
    about: AbstractSet[str] = frozenset()
    has_relative: bool = False

    @classmethod
    def of(cls, question: str, people: Collection[str] = ()) -> TimeQuestion:
        """Read a question. `people` are the names of others that it has."""
        text = question[:MAX_CHARS].strip()
        plain = text.casefold()
        main, clause = _parts(text, plain)
        named = "" if clause else _named_before(text)
        senses: list[TimeSense] = [name for name in _SENSES if (named if name == "before" else _RE[name].search(plain))]
        if senses[:1] == ["when"] and _has_past_verb(text):  # "when did he move" may be answered by what has ended
            senses = ["length"]
        main = (main or text).replace(named, "")
        # Who leads what, or is whose boss, is told of somebody else.
        has_relative, is_plan = _has_relative(main), _RE["plan"].search(plain) is not None
        about = frozenset[str]() if has_relative or _RE["who"].search(main.casefold()) else _about(main, people)
        return cls(senses[0] if senses else "", main, clause, named, is_plan, about, has_relative)


def _parts(text: str, plain: str) -> tuple[str, str]:
    """Return the question without the clause that says when it was, and the clause; "" for none.

    "When" also begins a condition: only what is asked of the past has an event for a time.
    """
    if _RE["no clause"].search(plain) or not _has_past_verb(text):
        return "", ""
    found = _RE["clause in han"].search(text) or _RE["clause"].search(text)
    return (found["main"], found["clause"]) if found else ("", "")


def _has_past_verb(text: str) -> bool:
    # What is written with a capital inside of a question is no verb.
    first, *rest = text.split() or [""]
    uncapitalized = " ".join((first, *(word for word in rest if not word[0].isupper())))
    return _RE["past"].search(uncapitalized.casefold()) is not None


def _looks_ahead(text: str) -> bool:
    """Return whether a question asks what is, or is to be done, before something, and not how it was before."""
    plain = text.casefold()
    is_present = _RE["present"].search(plain) or _RE["before an event"].search(plain)
    is_past = has_words_of_the_past(text) or _has_past_verb(text)
    return _RE["obliged"].search(plain) is not None or (is_present is not None and not is_past)


_MAX_NAME_WORDS = 4


def _named_before(text: str) -> str:
    """Return the name of what a question asks the predecessor of; "" if it asks for none, or of an action."""
    found = _RE["before"].search(text) or _RE["before in han"].search(text)
    if found is None or _looks_ahead(text):
        return ""
    named = found["named"].split(",")[0]
    named = names[0].strip() if (names := _RE["names first"].match(named)) else named
    return named if len(named.split()) <= _MAX_NAME_WORDS and _RE["a name"].search(named) else ""


def _has_relative(main: str) -> bool:
    plain = main.casefold()
    in_letters = _RE["others"].search(plain) is not None or not KIN.isdisjoint(re.findall(r"\w+", plain))
    return in_letters or _RE["others in han"].search(main) is not None


def _about(main: str, people: Collection[str]) -> frozenset[str]:
    plain = main.casefold()
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
    if (found := _BEGINS_WITH_SELF.match(text)) is not None:
        return "?" if found["owner"] and _is_person(text[found.end() :]) else ""
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
    if not people:
        return True
    subject = subject_of(text)
    if subject is None or subject in people:
        return True
    return subject not in ("", "?") and any(person and (person in subject or subject in person) for person in people)


def with_own_name(people: AbstractSet[str], name: str) -> AbstractSet[str]:
    """Return the people whom a question is about. The user and the user's name stand for each other."""
    own = set(name.split())
    is_own = own and any(not person or own >= set(person.split()) or own <= set(person.split()) for person in people)
    return people | {"", name} if is_own else people


@lru_cache(maxsize=2_048)
def held_in(text: str, at: datetime) -> tuple[datetime | None, datetime | None]:
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


# The time that a question asks about.

Sense: TypeAlias = Literal["", "now", "unsaid", "at", "changed", "before", "planned"]


# Units of dates that are longer than a day.
LONG = frozenset({"week", "month", "quarter", "season", "year"})


@dataclass(frozen=True, slots=True)
class Moment:
    """The time that a question asks about.

    `sense`: what holds now, said or unsaid, what held at a time, what changed in it, what was before something, or what
    is planned for a time.
    """

    sense: Sense
    span: TimeSpan

    def has(self, instant: datetime) -> bool:
        """Return whether an instant lies in the stretch."""
        return self.span.first <= instant <= self.span.last


def moment_of(
    asked: TimeQuestion, text: str, dates: Sequence[DateSpan], now: datetime, held_at: TimeSpan | None
) -> Moment:
    """Return the time that a question with some dates asks about."""
    present = TimeSpan(now, now)
    is_next = not dates and _RE["next"].search(text.casefold()) is not None  # "when is the next test"
    days = [date for date in dates if asked.is_plan or not (date.is_now and date.unit == "day")]  # "today" is now
    coming = next((date for date in days if date.end > now), None)
    is_coming = coming is not None and (asked.is_plan or coming.is_relative or coming.unit == "day")
    # "When must I be there tomorrow" asks of tomorrow.
    is_long = asked.sense in ("length", "when") and not (is_next or is_coming)
    if held_at is None and (asked.sense == "before" or is_long):
        return Moment("" if asked.sense != "before" or dates else "before", present)
    if (span := held_at or _said_time(text, dates)) is not None:
        return Moment("changed" if asked.sense == "changed" else "at", span)
    if asked.sense == "now":
        return Moment("now", present)
    if coming is not None and is_coming:
        days_to_come = _stretch(coming)
        return Moment("planned", replace(days_to_come, first=max(days_to_come.first, now)))
    if is_next or (asked.is_plan and not days):
        return Moment("planned", TimeSpan(now, LATEST))
    return Moment("" if days or asked.sense or asks_for_the_past(text) else "unsaid", present)


def asks_for_the_past(text: str) -> bool:
    """Return whether a question asks how something was before. "What is to be done before the meeting?" does not."""
    text = text[:MAX_CHARS]
    is_past = has_words_of_the_past(text) or _RE["before words"].search(text.casefold()) is not None
    return is_past and not _looks_ahead(text)


def _as_asked(date: DateSpan, text: str, now: datetime) -> DateSpan:
    """Return the coming day in place of the last one if it is nearer, and a question leaves its year open."""
    is_open = date.is_guess and date.is_year_guessed and date.unit == "day" and date.end <= now
    if not is_open or _has_past_verb(text) or has_words_of_the_past(text):
        return date
    last = 28 if date.start.month == 2 else 31  # noqa: PLR2004 - February, whose 29th is not of every year
    start = date.start.replace(year=date.start.year + 1, day=min(date.start.day, last))
    return replace(date, start=start, end=start + (date.end - date.start)) if start - now < now - date.start else date


_YEAR_IN_TEXT = re.compile(r"(?<![\d.,:-])((?:19|20)\d\d)(?![\d:-]|[.,]\d)")


def _stretch(date: DateSpan) -> TimeSpan:
    # What begins with the next day does not begin in it.
    return TimeSpan(date.start.astimezone(UTC), date.end.astimezone(UTC) - timedelta.resolution)


def _said_time(text: str, dates: Sequence[DateSpan]) -> TimeSpan | None:
    """Return the time that a question says with its year. A day or a month without one is seldom about a state."""
    said = next((span for span in dates if not (span.is_year_guessed or span.is_relative)), None)
    if said is not None:
        return _stretch(said)
    if not (years := _YEAR_IN_TEXT.findall(text)):
        return None
    return TimeSpan(parse_span(years[0], "year").first, parse_span(years[-1], "year").last)


# The senses of questions that several states answer together, those that have ended too.
_OF_SEVERAL: tuple[TimeSense, ...] = ("length", "changed")


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A query and what the ranking needs to know of it.

    A speaker's name is on each of their messages, so it says who and not what: `words` are the search tokens to look
    for, without the `names` of speakers unless there are no other words. `also` are those of each other wording.
    `speakers` are the people named. `dates` are read at the time of the query, whose zone is `zone`. Only words and
    meaning count of the other wordings, for a wording may guess a date or a name. `exact_parts` are in the form of
    `exact_form`, and `look_alikes` are as that function returns them. `asked` is what the question asks of time, and
    `moment` which time it asks about.
    """

    text: str
    words: tuple[str, ...]
    names: frozenset[str]
    speakers: frozenset[str]
    dates: tuple[DateSpan, ...]
    is_about_the_past: bool
    zone: tzinfo = UTC
    also: tuple[tuple[str, ...], ...] = ()
    exact_parts: tuple[str, ...] = ()
    look_alikes: tuple[tuple[str, re.Pattern[str]], ...] = ()
    asked: TimeQuestion = field(default_factory=TimeQuestion)
    moment: Moment | None = None

    @classmethod
    def of(
        cls,
        conn: Connection,
        scope: Scope,
        text: str,
        now: datetime,
        *,
        also: Sequence[str] = (),
        people: Sequence[str] = (),
        held_at: TimeSpan | None = None,
    ) -> ParsedQuery:
        """Take a query apart. The speakers are those whose messages the scope sees, `people` others that it names."""
        words = query_tokens(text)
        first_names = {name: search_tokens(name)[:1] for name in messages.speakers(conn, scope.user_id)}
        speakers = {
            name
            for name, first_name in first_names.items()
            if set(first_name) & set(words) and messages.has_speaker(conn, scope, name)
        }
        names = frozenset(word for speaker in speakers for word in first_names[speaker])
        dates = tuple(_as_asked(date, text, now) for date in dates_in(text, now, guesses=True))
        asked = TimeQuestion.of(text, people)
        moment = moment_of(asked, text, dates, now, held_at)
        # "The old units" of a day to come are no past.
        is_ahead = not _has_past_verb(text) and any(date.relation == "before" and date.end > now for date in dates)
        is_ahead = is_ahead or moment.sense == "planned"
        # "Last week" says when, and finds nothing that costs so much a week.
        times = [date.phrase for date in dates if date.is_relative and date.unit in LONG]
        others = {*names, *query_tokens(" ".join(times))}
        about = with_own_name(asked.about, name_key(memories.name_of_user(conn, scope))) if asked.about else asked.about
        asked = replace(asked, about=about)
        return cls(
            text,
            tuple(dict.fromkeys([word for word in words if word not in others] or words)),
            names,
            frozenset(speakers),
            dates,
            asks_for_the_past(text) and not is_ahead,
            now.tzinfo or UTC,
            tuple(tuple(dict.fromkeys(query_tokens(wording))) for wording in also),
            exact_parts(text),
            look_alikes(text),
            asked,
            moment,
        )

    @property
    def asks_of_the_past(self) -> bool:
        """Return whether what was replaced or has ended may answer."""
        is_past = self.moment is not None and self.moment.sense in ("at", "changed", "before")
        return is_past or self.is_about_the_past or self.asked.sense in _OF_SEVERAL or bool(self.asked.clause)

    def part(self, text: str, known: Container[str]) -> ParsedQuery:
        """Return a part of the query as a query of its own, of the words that are known."""
        words = tuple(dict.fromkeys(word for word in query_tokens(text) if word in known))
        return replace(self, text=text, words=words, dates=(), exact_parts=(), asked=TimeQuestion(), moment=None)

    @property
    def all_words(self) -> tuple[str, ...]:
        """Return the words of all wordings, each once."""
        return tuple(dict.fromkeys((*self.words, *(word for words in self.also for word in words))))


# Parts of a query that are asked for as they are written: numbers, codes, paths, quoted phrases.

# Words and numbers; C++ and C# keep their signs.
_EXACT_WORD = re.compile(r"\w+[+#]*")

_QUOTED = re.compile(
    r"[\"\u201c\u201d\u201e\u00ab](.{2,80}?)[\"\u201c\u201d\u00bb]|`(.{2,80}?)`|\u300c(.{2,80}?)\u300d"
)
_CODE = re.compile(
    r"\d{3}"  # a port, a page, a part of a longer number
    r"|[^\W\d_]\d|\d[^\W\d_]|\d[.:/_-]\d"  # v2, 3b, 1.2
    r"|\w_\w|\w@\w|\w[+#]"  # slot_auction, an address, C#
    r"|\w\w\.\w|[^\W\d_]\w*/\w+/|[a-z][A-Z]"  # app.py, src/app/, camelCase
)
_COMPOUND = re.compile(r"[^\W_]+(?:-[^\W_]+)+")

# Names that are easily taken for others: invoice-sync and invoice-sink, M.C. and M.G.
_INITIALS = re.compile(r"\b[^\W\d_]\.(?: ?[^\W\d_]\b\.?)+")


def look_alikes(question: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the names of a question that have others like them, as in an `exact_form`, and the pattern of the others.

    Another compound begins or ends like it; other initials are any.
    """
    found: dict[str, re.Pattern[str]] = {}
    for match in _COMPOUND.finditer(question):
        first, *_, last = match[0].casefold().split("-")
        pattern = rf"\b(?:{re.escape(first)}-[^\W_]|[^\W_]+-{re.escape(last)}\b)"
        found[f" {' '.join(_exact_words(match[0]))} "] = re.compile(pattern, re.IGNORECASE)
    found |= {f" {' '.join(_exact_words(match[0]))} ": _INITIALS for match in _INITIALS.finditer(question)}
    return tuple(found.items())


_YEAR = re.compile(r"(?:19|20)\d\d|\d{1,2}(?:st|nd|rd|th)")

# The digits of a telephone number or an account, however they are grouped.
_SPLIT_NUMBER = re.compile(r"\d(?:[ ./()-]{0,2}\d){6,19}")


def exact_form(text: str) -> str:
    """Return the words of a text in lower case between spaces, and behind them its split numbers in one piece."""
    return f" {' '.join((*_exact_words(text), *_split_numbers(text)))} "


def exact_parts(question: str) -> tuple[str, ...]:
    """Return the parts of a question that are asked for as they are written, each as it stands in an `exact_form`."""
    quoted = [next(filter(None, match.groups())) for match in _QUOTED.finditer(question)]
    words = [word.strip("?!.,;:()[]{}<>'\"\u201c\u201d\u201e") for word in _SPLIT_NUMBER.sub(" ", question).split()]
    codes = [word for word in words if _CODE.search(word) and not _YEAR.fullmatch(word)]
    parts = [" ".join(_exact_words(part)) for part in (*quoted, *codes)]
    return tuple(dict.fromkeys(f" {part} " for part in (*parts, *_split_numbers(question)) if part))


def _exact_words(text: str) -> list[str]:
    return _EXACT_WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _split_numbers(text: str) -> list[str]:
    return ["".join(filter(str.isdigit, match.group())) for match in _SPLIT_NUMBER.finditer(text)]


# How well the dates of a query agree with an entry: with when it was said, and with the dates in its text.

# A date up to this long is exact: a week and a third of a month are, a month is not.
EXACT = timedelta(days=10)

# How long before an exact date and after its end an entry fully agrees with it.
#
# Chosen by trials on LoCoMo: people mean the day of their own time zone, and what is said at night is of the day
# before.
SAME_FROM, SAME_TO = timedelta(days=-1), timedelta(hours=12)

# How long before an exact date and after its end an entry half agrees.
#
# Chosen by trials on LoCoMo: what happened is told within the week.
NEAR_FROM, NEAR_TO = timedelta(days=-2), timedelta(days=7)

NEAR = 0.5

AFTER_TO = timedelta(days=10)

# How well an entry agrees that follows a long date, such as a month, within ten days.
AFTER = 0.4

COARSE_TO = timedelta(days=92)

# How well a text that names a month or a quarter agrees with a day in it. A year says little.
COARSE = 0.5

# How well "in the summer" agrees with a summer of another year than the one that was guessed.
OTHER_YEAR = 0.5

DAYS_OF_A_YEAR = 365.2425


def said_match(dates: Sequence[DateSpan], at: datetime) -> float:
    """Return how well the best of some dates agrees with the time at which something was said, from 0 to 1.

    The year of a date may only be guessed. "What does it cost today?" asks for nothing that was said today.
    """
    return max((_said(span, at) for span in dates if not span.is_now), default=0.0)


def text_match(dates: Sequence[DateSpan], in_text: Sequence[DateSpan]) -> float:
    """Return how well the best of some dates agrees with the dates in a text, from 0 to 1."""
    return max((_match_of_dates(span, other) for span in dates for other in in_text), default=0.0)


def _said(span: DateSpan, at: datetime) -> float:
    years = span.start.year - at.year
    if not years or not span.is_year_guessed or span.relation != "in":
        return _agreement(span, at)
    in_same_year = at + timedelta(days=round(DAYS_OF_A_YEAR * years))
    return max(_agreement(span, at), OTHER_YEAR * _agreement(span, in_same_year))


def _agreement(span: DateSpan, at: datetime) -> float:
    """Return how well a time agrees with a date."""
    if span.relation == "before":
        return float(at < span.start)
    if span.relation == "since":
        return float(at >= span.start)
    if span.end - span.start > EXACT:
        return 1.0 if span.start <= at < span.end else AFTER if span.end <= at < span.end + AFTER_TO else 0.0
    if span.start + SAME_FROM <= at <= span.end + SAME_TO:
        return 1.0
    return NEAR if span.start + NEAR_FROM <= at <= span.end + NEAR_TO else 0.0


def _match_of_dates(span: DateSpan, other: DateSpan) -> float:
    """Return how well a date in a text agrees with a date of a query."""
    years = span.start.year - other.start.year
    if not years or not (span.is_year_guessed or other.is_year_guessed):
        return _overlap(span, other)
    shift = timedelta(days=round(DAYS_OF_A_YEAR * years))
    in_same_year = replace(other, start=other.start + shift, end=other.end + shift)
    certainty = 1.0 if other.is_year_guessed else OTHER_YEAR
    return max(_overlap(span, other), certainty * _overlap(span, in_same_year))


def _overlap(span: DateSpan, other: DateSpan) -> float:
    length = other.end - other.start
    if span.relation != "in" or other.end <= span.start or span.end <= other.start:
        return _agreement(span, other.start)
    if length <= max(span.end - span.start, EXACT):
        return 1.0
    return COARSE if length <= COARSE_TO else 0.0
