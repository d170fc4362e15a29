"""Score the candidates of a search: a feature is one function, and a part of a score is a feature times its weight.

The weights are fitted (`weights.json`, made by benchmarks/fit.py), separately for memories and messages, and for
questions with and without other wordings. "Z-score" means the distance from the mean of all candidates in standard
deviations, which makes features with different units comparable.
"""

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from functools import lru_cache
from itertools import islice
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from palimpsest.core.clock import EARLIEST, LATEST, TimeSpan, in_zone, parse_date
from palimpsest.core.models import Candidate, Entity, KnownRelation
from palimpsest.core.protocols import Vector
from palimpsest.llm.user_name import is_about_user
from palimpsest.recall import features
from palimpsest.recall.features import MIN_SPREAD, Candidates, Column, Matrix, Ranked, Weights, best_first, z_scores
from palimpsest.recall.forgetting import SECONDS_A_DAY, WEIGHT
from palimpsest.recall.hits import LINKED, same_words_key
from palimpsest.recall.query import Moment, ParsedQuery, exact_form, held_in, is_about, is_wish, said_match, text_match
from palimpsest.text.dates.date_finder import appointments_in, dates_in
from palimpsest.text.dates.date_spans import DateSpan
from palimpsest.text.names.name_finder import find_names, is_given_name
from palimpsest.text.relation_updates import is_several, words_in, words_that_ask
from palimpsest.text.stopwords import asked_types, can_hold
from palimpsest.text.tokenizer import search_tokens, subject_tokens

# What a memory gains because it is linked with the best one of a search (A-Mem, section 3.4).

# The name of the part of a score.
CONNECTED = "connected"

# How far below the best memory one is put that it is linked with. Chosen by the first half of the questions of
# benchmarks/two_hops.json: with 0.3 a few more answers are among the first three hits, and fewer everyday answers are.
DISTANCE = 1.0


# Of how many of the best memories the links count: of as many hits as a search shows by default.
SHOWN = 10


def connected(candidates: Candidates, scores: Column) -> Column:
    """Return what each candidate gains by being linked with one of the best memories. Shape (n,).

    It comes to stand below the best of these, and no candidate loses anything, so what answers by itself stays first.
    What is linked only with a memory that gains by a link gains nothing: links are followed one hop.
    """
    gains = np.zeros(len(scores))
    of_memories = np.array([entry.kind == "memory" for entry in candidates.entries])
    best = set(best_first(np.where(of_memories, scores, -np.inf))[:SHOWN])
    for row, other in candidates.link_pairs:
        if other in best:
            gains[row] = max(gains[row], scores[other] - DISTANCE - scores[row])
    return gains


# What candidates say about each other: those of one session, a question and its answer, a message and its memories.

# What a memory or a message loses whose other half stands above it: enough to leave its place to what the reply does
# not say yet, and not so much that a good hit is lost.
REPEATED = 4.0

# How many messages of a session stand for it: more are seldom about one question.
SESSION_TOP = 3


def best_of_session(entries: Sequence[Candidate], guess: Column) -> Column:
    """Return for each candidate how well the best of its session match by a first guess: sessions have subjects."""
    by_session: dict[str, list[float]] = {}
    for entry, score in zip(entries, cast("list[float]", guess.tolist()), strict=True):
        if entry.session:
            by_session.setdefault(entry.session, []).append(max(score, 0.0))
    means = {name: sum(sorted(scores, reverse=True)[:SESSION_TOP]) / SESSION_TOP for name, scores in by_session.items()}
    return np.array([means.get(entry.session, 0.0) for entry in entries])


def repeated(candidates: Candidates, scores: Column) -> Column:
    """Return 1 for each memory or message with a candidate above it that it is linked to, else 0.

    One that is itself such a repetition does not count.
    """
    repeats = np.zeros(len(scores))
    if not candidates.source_pairs:
        return repeats
    others: dict[int, list[int]] = {}
    for memory, message in candidates.source_pairs:
        others.setdefault(memory, []).append(message)
        others.setdefault(message, []).append(memory)
    above: set[int] = set()
    for row in best_first(scores):
        if above.isdisjoint(others.get(row, ())):
            above.add(row)
        else:
            repeats[row] = 1.0
    return repeats


# What pages of documents lose: of the many pages of a library some match any question.

# What every page loses. Chosen by trials on conversations with handbooks beside them: more finds more of what people
# said, and less of what stands on pages.
PAGE = 0.25

# What every page loses more than the page above it, so that the first hits are not all pages. Chosen as `PAGE` was.
FURTHER = 1.0


def page_losses(candidates: Candidates, scores: Column) -> dict[str, Column]:
    """Return the parts of the score that pages lose, by name, each of shape (n,). There are none without pages."""
    is_page = np.array([entry.is_page for entry in candidates.entries], dtype=np.bool_)
    if not is_page.any():
        return {}
    further = np.zeros(len(scores))
    pages = [row for row in best_first(scores) if is_page[row]]
    further[pages] = np.arange(len(pages))
    return {"page": -PAGE * is_page, "further page": -FURTHER * further}


# Newer candidates before the older ones they replace, and the other way round for questions about the past.

# How many of the first candidates are compared with each other. An update that is worded differently can be far below
# what it replaces.
FIRST = 32

# A query of at least this many words that stands in an older text word by word asks for that text: fewer words stand in
# many texts by chance.
MIN_EXACT_WORDS = 3

# The share of the older one's query words, by weight, that the newer of the two best has at least: with less in common,
# the older one often is the only answer.
SAME_WORDS = 0.65

# By how much both of the two best score higher than all others, if they stand out.
CLEAR = 0.5

# How rare the rarest common word is at least, as a share of the rarity of a word that no text has: a name that stands
# in two texts of three, or in every other one, does not say that two texts are about one matter.
IDENTIFYING = 0.55

# By how much the older of the two may score higher: what is told in passing is that far below. What is further below is
# about something else.
MAX_LEAD = 4.0

# What is enough to come first.
FIRST_BY = 1e-6

# How far above the newer one the older one rises if the query asks about the past. It is small.
HEAD_START = 0.5

# How many texts of candidates, of at most 400 characters each, are kept with their words. The same come up again and
# again: two to five megabytes.
KEPT_TEXTS = 2_048


def order_features(
    query: ParsedQuery, candidates: Candidates, scores: Column, replacement: Mapping[str, float]
) -> dict[str, Column]:
    """Return the features of the order, each of shape (n,).

    `replaced` is the probability that a newer candidate replaces this one, `update` by how much the score of what this
    one replaces is higher, weighted by that probability. If the query asks about the past, both are 0, and `former` is
    by how much the score of what replaces this one is higher.
    """
    columns = {name: np.zeros(len(candidates.entries)) for name in ("replaced", "update", "former")}
    rows = best_first(scores)[:FIRST]
    if len(rows) < 2 or candidates.vectors is None:  # noqa: PLR2004 - a pair
        return columns
    entries = [candidates.entries[row] for row in rows]
    texts = [entry.text for entry in entries]
    words, is_older = [_words_of(text) for text in texts], _may_be_replaced(entries)
    replaces = features.replacement_probability(candidates.vectors[rows], words, texts, is_older, replacement)
    # Not if the query asks for the older one by a number or by its exact words.
    replaces = np.where(_is_asked_for(query, entries) | _is_plan_for(query, entries), 0.0, replaces)
    lead = scores[rows][np.newaxis, :] - scores[rows][:, np.newaxis]  # by how much the column is above the row
    if query.is_about_the_past:
        columns["former"][rows] = (replaces * np.maximum(HEAD_START - lead, 0)).max(axis=0)
    else:
        # A closed candidate is here because it still holds, or held at the time asked about.
        replaces[:, [entry.is_closed for entry in entries]] = 0.0
        columns["replaced"][rows] = replaces.max(axis=0)
        columns["update"][rows] = (replaces * np.maximum(lead, 0)).max(axis=1)
    return columns


def _is_plan_for(query: ParsedQuery, entries: Sequence[Candidate]) -> npt.NDArray[np.bool_]:
    """Return for each pair whether only the newer one begins after the time that is asked about."""
    if query.moment is None:
        return np.zeros((len(entries), len(entries)), dtype=np.bool_)
    last = query.moment.span.last
    lies_ahead = np.array([entry.begins is not None and entry.begins > last for entry in entries])
    return np.logical_and.outer(lies_ahead, ~lies_ahead)


def newer_of_two(query: ParsedQuery, candidates: Candidates, scores: Column) -> Column:
    """Return what the newer of the two best candidates gains to come first, as a column of shape (n,).

    It gains that only if the two stand out from all others and share words of the query: then they are about one
    matter, however differently they are worded. A fact told in passing is recognized by nothing else. Where a memory
    has hints, or the query other wordings, an update is recognized without it, and other answers would be lost.
    """
    gains = np.zeros(len(candidates.entries))
    if query.is_about_the_past or len(scores) < 2:  # noqa: PLR2004 - a pair
        return gains
    older, newer, *others = best_first(scores)[:3]
    lead = scores[older] - scores[newer]
    stands_out = not others or scores[newer] - scores[others[0]] >= CLEAR
    entries = [candidates.entries[row] for row in (newer, older)]
    has_help = entries[0].kind == "memory" and (entries[0].has_hints or bool(query.also))
    if has_help or lead > MAX_LEAD or not stands_out or not _have_common_words(candidates, newer, older):
        return gains
    is_other = _is_asked_for(query, entries) | _is_plan_for(query, entries)
    if _may_be_replaced(entries)[0, 1] and not entries[1].is_closed and not is_other[0, 1]:
        gains[newer] = lead + FIRST_BY
    return gains


def told_since(query: ParsedQuery, candidates: Candidates, scores: Column, alike: float) -> Column:
    """Return what each memory gains to come before older messages about the same matter, as a column of shape (n,).

    What is known now comes before old talk.
    """
    gains = np.zeros(len(scores))
    for memory, message in later_memories(query, candidates, scores, alike):
        lead = scores[message] - scores[memory]
        if lead >= 0:
            gains[memory] = max(gains[memory], lead + FIRST_BY)
    return gains


def later_memories(query: ParsedQuery, candidates: Candidates, scores: Column, alike: float) -> list[tuple[int, int]]:
    """Return the rows of memories and of older messages about the same matter, in pairs, the best memories first.

    The two are about one matter if they are `alike` and the memory has the words of the query that the message has.
    Memories that were learned from messages are in no pair.
    """
    vectors, entries = candidates.vectors, candidates.entries
    if vectors is None or query.is_about_the_past:
        return []
    rows = best_first(scores)[:FIRST]
    messages = [row for row in rows if entries[row].kind == "message" and not entries[row].is_page]
    learned = {memory for memory, _ in candidates.source_pairs}
    memories = [row for row in rows if entries[row].kind == "memory" and not entries[row].is_closed]
    return [
        (memory, message)
        for memory in memories
        for message in messages
        if memory not in learned
        and entries[memory].at > entries[message].at
        and scores[message] - scores[memory] <= MAX_LEAD
        and vectors[memory] @ vectors[message] >= alike
        and _common_share(candidates, memory, message) >= SAME_WORDS
    ]


def _have_common_words(candidates: Candidates, newer: int, older: int) -> bool:
    weights = candidates.weights
    of_both = weights.keys() & candidates.words[older] & candidates.words[newer]
    rarest = max((weights[word] for word in of_both), default=0.0)
    least = IDENTIFYING * math.log(1 + max(candidates.collection, 1))  # as in `rarity`
    return rarest >= least and _common_share(candidates, newer, older) >= SAME_WORDS


def _common_share(candidates: Candidates, newer: int, older: int) -> float:
    """Return the share of the older one's query words, by weight, that the newer one has; 0 if it has none itself."""
    weights = candidates.weights
    of_older = weights.keys() & candidates.words[older]
    total = sum(weights[word] for word in of_older)
    return sum(weights[word] for word in of_older & candidates.words[newer]) / total if total else 0.0


def _is_asked_for(query: ParsedQuery, entries: Sequence[Candidate]) -> Matrix:
    """Return for each pair whether the query has a number or exact words of the older one that the newer one lacks.

    Or its other value, if they differ in one word: "allergic to nuts" and "allergic to latex".
    """
    texts = [entry.text for entry in entries]
    is_asked_for = np.zeros((len(entries), len(entries)), dtype=bool)
    for word in query.words:
        if any(char.isdigit() for char in word):  # a version, a port, a code, a year
            has_number = np.array([word in _words_of(text) for text in texts])
            is_asked_for |= np.outer(~has_number, has_number)
    exact = same_words_key(query.text)
    if len(exact.split()) >= MIN_EXACT_WORDS or not exact.isascii():
        space = " " if " " in exact else ""  # whole words, if the script divides them by spaces
        has_exact = np.array([f"{space}{exact}{space}" in f"{space}{_key_of(text)}{space}" for text in texts])
        is_asked_for |= np.outer(~has_exact, has_exact)
    asked, words = frozenset(query.all_words), [_words_of(text) for text in texts]
    for older in (row for row, own in enumerate(words) if own & asked):
        for newer, own in enumerate(words):
            value = words[older] - own
            if len(value) == 1 and value <= asked and len(own - words[older]) == 1:
                is_asked_for[newer, older] = True
    return is_asked_for


@lru_cache(maxsize=KEPT_TEXTS)
def _words_of(text: str) -> frozenset[str]:
    return frozenset(search_tokens(text))


_key_of = lru_cache(maxsize=KEPT_TEXTS)(same_words_key)
_exact_form = lru_cache(maxsize=KEPT_TEXTS)(exact_form)


def _may_be_replaced(entries: Sequence[Candidate]) -> Matrix:
    """Return whether the candidate of a column is older than that of a row: shape (m, m).

    Only candidates of the same sort and person are compared, and none of the same session. Each search compares a
    thousand pairs, so they are compared as arrays.
    """
    times = np.array([entry.at.timestamp() for entry in entries])
    people = np.array([f"{entry.kind} {entry.speaker}" for entry in entries])
    sessions = np.array([entry.session or f"none, as of {entry.seq}" for entry in entries])
    is_older = times[:, np.newaxis] > times[np.newaxis, :]
    is_same_person = people[:, np.newaxis] == people[np.newaxis, :]
    return is_older & is_same_person & (sessions[:, np.newaxis] != sessions[np.newaxis, :])


# Put what held at the time that a question asks about before what held at other times.
#
# Memories tell states: where somebody lives, who leads what, what a thing costs. The states of one thing are a chain,
# in which each holds until the next begins. An agent's relations tell the chain: the same source and relation, or the
# same relation and destination. Where there are none, likeness tells it, less surely. The best hits vote for a chain,
# and of its states the one comes first that held: now, at a date, at the time of an event, or before another state.

# How many of the best hits vote for a chain.
ANCHORS = 6

# How much more a better hit's vote counts: a score is about log-odds, but most of it comes from the question's words
# and little from which state is meant.
SHARPNESS = 0.3

# The power of its length that the votes for a chain are divided by, so that a long chain has no other advantage.
LENGTH = 0.2

# How much more a vote for a chain counts that begins or ends at what the question names.
NAMED = 3.0

# How far below an older state a newer one of its chain may stand to take its place: by its relations if the question
# does not say when, by likeness if it says "now" or before what, and by likeness if it does not say when.
SURE_GAP, GUESSED_GAP, UNSAID_GAP = 4.0, 5.0, 2.0

# How far below the best hit a state may stand and still come first. One further below belongs to another chain, which
# some of the best hits happen to share.
FURTHEST = 10.0

# How far below the best hit a predecessor may stand that only likeness tells.
BEFORE_GAP = 8.0

# What the newest state of a chain by likeness gains in a question with other wordings that does not say when.
UNSAID = 1.0

# What a memory gains that began in the stretch whose changes are asked for: more than most differences of scores.
BEGAN = 5.0

# What a memory gains that begins when a question about what is to come says: a plan is one of few.
PLANNED = 2.0

# How long what stands in for something else, or is an exception of it, holds at most: about three months.
BRIEF = timedelta(days=92)

# What an event gains that has a date, when the date of an event is looked for.
DATED_EVENT = 2.0

# What a memory loses whose given times lie outside of the time that a date asks about: it may only say what came before
# or after. It is less than a good match of the question is worth.
OUTSIDE = 3.0

# By how much the state that held comes first, and the event that says when stands below it.
HELD_FIRST_BY = 0.1

# How far the event stands out from what is as near to the clause that asks for it by chance, as a z-score. In the lives
# of benchmarks/lives_in_time.json the events that are told stand at 1.6 and above.
EVENT_STANDS_OUT = 1.5

INSTANT = timedelta(microseconds=1)


# Relations: the source, the key and the destination of each.
Triples: TypeAlias = AbstractSet[tuple[str, str, str]]


class State(NamedTuple):
    """A state of a chain: between which times it holds, as far as that is known, and when it was told."""

    begins: datetime | None
    ends: datetime | None
    told: datetime
    number: int


def beginnings(states: Sequence[State]) -> list[datetime]:
    """Return since when each state of a chain holds: since it was told if nothing else is known.

    One without a beginning comes after what was told before it, and before what was told after it: of two states the
    later told one is the later one, unless it is known to have begun before others, or to have ended. One that only
    ended may have held ever before.
    """
    found = [state.begins or (state.told if state.ends is None else EARLIEST) for state in states]
    in_order = sorted(range(len(states)), key=lambda place: states[place][2:])
    for number in reversed(range(len(in_order))):
        state, place = states[in_order[number]], in_order[number]
        if state.begins is None and state.ends is None:
            known = (states[other].begins for other in in_order[:number])
            former = max((at for at in known if at is not None and at <= state.told), default=EARLIEST)
            later = (other for other in in_order[number + 1 :] if (states[other].ends or LATEST) >= state.told)
            found[place] = min([state.told, *(found[other] - INSTANT for other in later if found[other] > former)])
    return found


def in_order(relations: Sequence[KnownRelation]) -> list[KnownRelation]:
    """Return the states of one thing that relations tell, the earliest first."""
    told = sorted(relations, key=lambda item: (item.told_at, item.created_at))
    states: list[State] = []
    for place, item in enumerate(told):
        begins, ends = parse_date(item.valid_from), parse_date(item.valid_until)
        states.append(State(begins and begins[0], ends and ends[0], item.told_at, place))
    begin = beginnings(states)

    def position(place: int) -> tuple[datetime, bool]:
        # What is only known to have ended stands where it did.
        state = states[place]
        is_open = state.begins is not None or state.ends is None
        return begin[place] if is_open else min(state.told, state.ends or LATEST), is_open

    return [told[place] for place in sorted(range(len(told)), key=position)]


@dataclass(frozen=True, slots=True)
class Guess:
    """The scores of the candidates for the question without its clause, and for the clause alone. Shape (n,) each."""

    main: Column
    event: Column


class _Told:
    """Between which times each candidate holds and whom it is about, read when it is first asked for."""

    def __init__(self, entries: Sequence[Candidate], people: AbstractSet[str]) -> None:
        self._entries, self._people = entries, people
        self._rows = {entry.owner_id: row for row, entry in enumerate(entries) if entry.kind == "memory"}
        self._times: dict[int, tuple[datetime | None, datetime | None]] = {}

    def times(self, row: int) -> tuple[datetime | None, datetime | None]:
        """Return the first and the last instant, as given or as the text says; None for what is not known."""
        if row not in self._times:
            entry = self._entries[row]
            first, last = entry.begins, entry.ends
            if (first is None and last is None) or (first is None and entry.is_closed):
                told_first, told_last = held_in(entry.text, entry.at)
                # What was replaced began when it was said, if nothing else is known.
                last = last or told_last
                is_told_late = last is not None and last < entry.at
                first = told_first or (entry.at if entry.is_closed and not is_told_late else None)
            self._times[row] = first, last
        return self._times[row]

    def begins(self, row: int) -> datetime:
        """Return since when it holds by itself."""
        return self.beginnings([row])[row]

    def beginnings(self, rows: Sequence[int]) -> dict[int, datetime]:
        """Return since when each of the states of a chain holds."""
        states = [State(*self.times(row), self._entries[row].at, self._entries[row].seq) for row in rows]
        found = dict(zip(rows, beginnings(states), strict=True))
        for row in sorted(rows, key=lambda row: -self._entries[row].seq):
            if (successor := self._rows.get(self._entries[row].successor, row)) in found and successor != row:
                if found[successor] == EARLIEST:  # what replaced another did not hold ever before
                    found[successor] = self._entries[successor].at
                found[row] = min(found[row], found[successor] - INSTANT)
        return found

    def ends(self, row: int) -> datetime:
        return self.times(row)[1] or LATEST

    def last_state(self, row: int) -> int:
        """Return the last of the candidates that replaced each other from this one on."""
        met = {row}
        while (successor := self._rows.get(self._entries[row].successor, -1)) not in met | {-1}:
            met.add(row := successor)
        return row

    def holds_briefly(self, row: int, span: TimeSpan) -> bool:
        """Return whether it holds in a stretch of time, and for three months at most, as a stand-in does."""
        first, last = self.times(row)
        is_brief = first is not None and last is not None and last - first <= BRIEF
        return is_brief and span.last < LATEST and not is_outside(self._entries[row], span)

    def is_undated(self, row: int) -> bool:
        """Return whether nobody said since when it holds: then it may have held before it was told."""
        entry = self._entries[row]
        return entry.begins is None and held_in(entry.text, entry.at)[0] is None

    def is_about(self, row: int) -> bool:
        return self._entries[row].kind == "memory" and is_about(self._entries[row].text, self._people)


def held_gains(
    query: ParsedQuery,
    candidates: Candidates,
    scores: Column,
    guess: Guess | None,
    *,
    named: AbstractSet[str],
    alike: float,
) -> Column:
    """Return what each candidate gains because it held at the time that a question asks about. Shape (n,).

    `named` are the ids of the entities that the question names. `guess` is there if an event says when it was. Memories
    with a cosine of `alike` and no relations may tell states of one thing. Without other wordings and relations a
    question that does not say when changes nothing.
    """
    gains = np.zeros(len(scores))
    entries, moment, has_help = candidates.entries, query.moment, bool(query.also)
    if moment is None or not moment.sense or candidates.vectors is None or len(entries) <= 1:
        return gains
    if moment.sense == "unsaid" and guess is None and not (has_help or candidates.states):
        return gains
    told = _Told(entries, query.asked.about)
    if moment.sense in ("changed", "planned"):
        begin = np.array([told.is_about(row) and moment.has(told.begins(row)) for row in range(len(entries))])
        if moment.sense == "planned":
            begin |= [told.is_about(row) and told.holds_briefly(row, moment.span) for row in range(len(entries))]
            is_none = [is_outside(entry, moment.span) or _was_before(entry, moment.span) for entry in entries]
            return PLANNED * begin - OUTSIDE * np.array(is_none)
        return BEGAN * (begin & ~np.array([is_wish(entry.text) for entry in entries]))
    if moment.sense in ("at", "now"):
        gains -= OUTSIDE * np.array([is_outside(entry, moment.span) for entry in entries])
    event, ranking = _event(candidates, guess, told), scores
    if guess is not None and event is not None:
        at = told.times(event)[0] or told.times(event)[1] or entries[event].at
        moment, ranking = Moment("at", TimeSpan(at, at)), guess.main
    chains = _Chains(candidates, ranking, told, named, event, alike, is_timed=moment.sense != "unsaid")
    if moment.sense == "before":
        chosen, gain = chains.before(query.asked.named, scores), None
    else:
        chosen, gain = chains.holding(moment, has_help=has_help)
    if chosen is None:
        return gains
    top = float(scores.max())
    gains[chosen] = max(top + HELD_FIRST_BY - float(scores[chosen]), 0.0) if gain is None else gain
    if event is not None:
        gains[event] = max(top + HELD_FIRST_BY / 2 - float(scores[event]), 0.0)
    return gains


def _event(candidates: Candidates, guess: Guess | None, told: _Told) -> int | None:
    """Return the event that the clause of a question names; None if there is no clause, or nothing tells of it."""
    if guess is None or candidates.vectors is None or candidates.clause is None:
        return None
    likely = best_first(guess.event)[:ANCHORS]
    event = max(likely, key=lambda row: float(guess.event[row]) + DATED_EVENT * any(told.times(row)))
    return event if z_scores(candidates.vectors @ candidates.clause[1])[event] >= EVENT_STANDS_OUT else None


def is_outside(entry: Candidate, span: TimeSpan) -> bool:
    """Return whether somebody said between which times it holds, and that is not in a stretch of time."""
    begins_later = entry.begins is not None and entry.begins > span.last
    return begins_later or (entry.ends is not None and entry.ends < span.first)


def _was_before(entry: Candidate, span: TimeSpan) -> bool:
    """Return whether it tells of appointments that are over before a stretch of time."""
    return max((day.end for day, _ in appointments_in(entry.text, entry.at)), default=LATEST) <= span.first


def _are_states_of_one(states: Triples, others: Triples) -> bool:
    """Return whether two memories tell different ends of one relation; what tells the same is no other state."""
    return any(
        key == other_key
        and (source == other_source) is not (destination == other_destination)
        and not is_several(key, is_holder=destination == other_destination)
        for source, key, destination in states
        for other_source, other_key, other_destination in others
    )


class _Chains:
    """The chains that the best hits of a question vote for, the most probable first."""

    def __init__(
        self,
        candidates: Candidates,
        scores: Column,
        told: _Told,
        named: AbstractSet[str],
        event: int | None,
        least: float,
        *,
        is_timed: bool,
    ) -> None:
        self._entries, self._scores, self._told = candidates.entries, scores, told
        order = best_first(scores)
        anchors = list(islice((row for row in order if row != event and told.is_about(row)), ANCHORS))
        self._best, self._anchors, self._event = anchors[0] if anchors else -1, anchors, event
        states = [candidates.states.get(entry.owner_id, frozenset()) for entry in candidates.entries]
        sides = [
            {(source, key) for source, key, _ in stated if not is_several(key)}
            | {(key, destination, "") for _, key, destination in stated if not is_several(key, is_holder=True)}
            for stated in states
        ]
        ends = [{end for source, _, destination in stated for end in (source, destination)} for stated in states]
        self._named = [of_state & named for of_state in ends]
        has_one = [bool(of_state) or not stated for of_state, stated in zip(sides, states, strict=True)]
        # Where a question says no time, what will replace the answer later is not the answer.
        last = [told.last_state(row) if is_timed else row for row in range(len(states))]
        vectors = cast("Column", candidates.vectors)
        votes = np.exp(SHARPNESS * (scores - scores[anchors[0]])) if anchors else scores

        def may_share(row: int, other: int) -> bool:
            # What is related to other things is no state of this one, however alike, nor is one of several.
            is_of_others = ends[row] and ends[other] and ends[row].isdisjoint(ends[other])
            return row != event and has_one[row] and has_one[other] and not is_of_others

        chains: list[tuple[float, list[int], frozenset[int]]] = []
        for anchor in anchors:
            alike = vectors @ vectors[anchor] >= least
            rows = [
                row
                for row in range(len(states))
                if last[row] == last[anchor]
                or ((alike[row] or sides[row] & sides[anchor]) and may_share(row, anchor) and told.is_about(row))
            ]
            sure = frozenset(
                row for row in rows if last[row] == last[anchor] or _are_states_of_one(states[row], states[anchor])
            )
            vote = float(sum(votes[row] for row in rows if row in anchors)) / max(len(rows), 1) ** LENGTH
            chains.append((vote * (NAMED if ends[anchor] & named else 1.0), rows, sure))
        self._chains = [(rows, sure) for _, rows, sure in sorted(chains, key=lambda chain: -chain[0])]

    def before(self, name: str, scores: Column) -> int | None:
        """Return the state before the first one that has most of a name's words; None if no chain has both."""
        wanted = set(search_tokens(name))
        least = float(scores.max()) - BEFORE_GAP
        of_chains = {row for rows, _ in self._chains for row in rows}
        shares = {row: len(wanted & set(search_tokens(self._entries[row].text))) for row in of_chains}
        most = max(shares.values(), default=0)
        for rows, sure in self._chains if most else ():
            having = [row for row in rows if shares[row] == most]
            if not having:
                continue
            begins = self._told.beginnings(rows)
            # What is only known to have ended tells no beginning.
            first = min((begins[row] for row in having if begins[row] > EARLIEST), default=EARLIEST)
            former = [
                row
                for row in rows
                if row not in having and begins[row] < first and (row in sure or scores[row] >= least)
            ]
            if former:
                return self._newest(former, begins, sure)
        return None

    def holding(self, moment: Moment, *, has_help: bool) -> tuple[int | None, float | None]:
        """Return the state that held at a moment, and what it gains: None for as much as brings it to the top.

        There is none if the best hit that may have held then has no other state, or was only told later: nothing shows
        that it did not hold.
        """
        span, is_unsaid = moment.span, moment.sense == "unsaid"
        likely = -1 if is_unsaid else self._may_have_held(moment)
        for rows, sure in self._chains:
            # What is not said is only guessed of a chain that has the best hit.
            if is_unsaid and not (len(sure) > 1 or self._best in rows):
                continue
            begins = self._told.beginnings(rows)
            valid = [row for row in rows if begins[row] <= span.last and self._told.ends(row) >= span.first]
            if moment.sense == "at":  # what was only wished for never held
                valid = [row for row in valid if not is_wish(self._entries[row].text)]
            if not valid:
                if (
                    self._event is None
                    and likely == min(rows, key=begins.__getitem__)
                    and self._told.is_undated(likely)
                ):
                    break
                continue
            chosen = self._newest(valid, begins, sure, moment)
            is_known = chosen in sure and len(sure) > 1
            if not self._is_near(chosen, rows, is_unsaid=is_unsaid):
                continue
            # Without another state, what says no time holds at any.
            if len(rows) < 2 and (moment.sense != "at" or not any(self._told.times(chosen))):  # noqa: PLR2004
                if likely in rows:
                    break
                continue
            if is_known or not is_unsaid:
                return chosen, None
            # What is over is left behind by what is alike, without help as well.
            is_over = self._best in rows and self._told.ends(self._best) < span.first
            return (chosen, UNSAID) if has_help or is_over else (None, None)
        return None, None

    def _may_have_held(self, moment: Moment) -> int:
        """Return the best hit of which nobody said that it held at another time; -1 if there is none."""
        rows = (row for row in self._anchors if not is_outside(self._entries[row], moment.span))
        return next((row for row in rows if moment.sense != "at" or not is_wish(self._entries[row].text)), -1)

    def _is_near(self, chosen: int, rows: Sequence[int], *, is_unsaid: bool) -> bool:
        if not is_unsaid:
            return self._scores[self._best] - self._scores[chosen] <= FURTHEST
        # A message may answer, too.
        return float(self._scores.max()) - self._scores[chosen] <= (FURTHEST if self._best in rows else SURE_GAP)

    def _newest(
        self, rows: Sequence[int], begins: Mapping[int, datetime], sure: frozenset[int], moment: Moment | None = None
    ) -> int:
        """Return the best of the states that no later one takes the place of.

        A later one does if it stands at most so far below; at any distance, if relations tell that both are of one
        chain and the question says when. One whose end a question of now names is asked for and stays. So does what is
        known to hold on, unless relations tell what came after it.
        """
        is_unsaid, is_now = moment is not None and moment.sense == "unsaid", moment is not None and moment.sense != "at"

        def gap(row: int, other: int) -> float:
            if {row, other} <= sure:
                return SURE_GAP if is_unsaid else math.inf
            end = self._told.times(row)[1]
            if moment is not None and not is_unsaid and end is not None and end >= moment.span.first:
                return -math.inf
            return UNSAID_GAP if is_unsaid else GUESSED_GAP

        def is_replaced(row: int) -> bool:
            return any(
                begins[other] > begins[row]
                and not (is_now and self._named[row] - self._named[other])
                and self._scores[row] - self._scores[other] <= gap(row, other)
                # Where relations tell a chain, what is only alike is no state of it.
                for other in rows
            )

        return max((row for row in rows if not is_replaced(row)), key=lambda row: float(self._scores[row]))


# The parts of the score of a search.

# What a candidate of this moment gains. It is small: it decides between equals.
RECENCY = 0.1

# After how many days that gain has fallen to 1/e. Memories stay useful for years.
RECENCY_DAYS = 365.0

# What a message loses if all its facts were superseded: enough to come after what is current. No data set has such
# messages, so it is not fitted.
SUPERSEDED = 2.0

# What a candidate gains whose text is the query, word by word, or which alone has a number, a code or a quoted phrase
# of it: more than all other parts differ between texts that are as alike, because it was asked for.
EXACT = 8.0

# What a memory gains that states a relation to which a question is far nearer than to most. With less it may not be
# among the hits at all if its text has other words. Asked of the lives in benchmarks/lives_in_time.json with their
# relations, more puts other states of what is asked for first; this costs one of 244 questions.
RELATION = 1.5

# What a memory loses that answers the question for somebody else, if another memory answers it for whoever is named: as
# much as an exact match gains.
OF_ANOTHER = 8.0

# What a candidate loses that speaks of a look-alike of what is asked for: about the gain of good hints.
OTHER_NAME = 4.0

# What a memory gains that tells of the very day that the question names, or begins on it: as much as all of the
# question's words, for "what is on the 10th" has no others.
SAME_DAY = 4.0

# How much a word of the question counts that only the context of a text has. On LoCoMo it may count as much as one of
# the text itself; but of a message and its neighbours, the one that has the word must come first.
IN_CONTEXT = 0.9

# The weight of a named speaker in the first guess that a session is judged by. It is about half of the fitted weight,
# because the guess is a mean of z-scores and thus half as wide.
GUESSED_SPEAKER = 1.6

# A text that is this many times as long as another one does not have the same words, so that long texts are not
# compared.
MAX_RATIO = 2


@dataclass(frozen=True, slots=True)
class SearchScoring:
    """The scoring of one search. `now` is the instant recency is measured from.

    `retention` is how well each candidate is remembered, of shape (n,); None if memories do not fade. `named` are the
    ids of the entities that the query names.
    """

    query: ParsedQuery
    now: datetime
    weights: Weights
    retention: Column | None = None
    named: AbstractSet[str] = frozenset()

    def parts(self, candidates: Candidates) -> dict[str, Column]:
        """Return what speaks for and against each candidate, by name."""
        parts = self._own_parts(candidates)
        if candidates.near:
            stands_out = np.array([entry.owner_id in candidates.near for entry in candidates.entries])
            parts["relation"] = RELATION * stands_out.astype(np.float32)
        if self.named and not self.query.asked.has_relative:
            parts["of another"] = -OF_ANOTHER * self._of_another(candidates)
        if candidates.link_pairs:
            parts[CONNECTED] = connected(candidates, _sum(parts))
        order = order_features(self.query, candidates, _sum(parts), self.weights.replacement)
        parts |= self._weighted(order, candidates)
        parts |= page_losses(candidates, _sum(parts))
        parts["newer of two"] = newer_of_two(self.query, candidates, _sum(parts))
        parts["told since"] = told_since(self.query, candidates, _sum(parts), self.weights.alike)
        if self.query.moment is not None:
            guess, scores = self._guess(candidates), _sum(parts)
            parts["held"] = held_gains(
                self.query, candidates, scores, guess, named=self.named, alike=self.weights.alike
            )
        parts["repeated"] = -REPEATED * repeated(candidates, _sum(parts))
        return parts

    def _of_another(self, candidates: Candidates) -> Column:
        """Return 1 for memories that state what is asked, but only of others than the question names; else 0.

        All are 0 if no memory states it of those who are named.
        """
        asking, columns = words_in(self.query.text), np.zeros((2, len(candidates.entries)), dtype=np.float32)
        for row, entry in enumerate(candidates.entries):
            for source, key, _ in candidates.states.get(entry.owner_id, ()):
                if words_that_ask(asking, key.replace("_", " ")):
                    columns[int(source not in self.named), row] = 1
        own, others = columns
        return others * (1 - own) * own.any()

    def _own_parts(self, candidates: Candidates) -> dict[str, Column]:
        """Return what each candidate gains by itself, whatever the others say."""
        parts = self._weighted(self.features(candidates), candidates)
        outdated = [entry.owner_id in candidates.outdated for entry in candidates.entries]
        parts["superseded"] = -SUPERSEDED * np.array(outdated, dtype=np.float32)
        parts["exact"] = EXACT * exact_match(self.query, candidates)
        if self.query.look_alikes:
            parts["other name"] = -OTHER_NAME * other_names(self.query, candidates)
        # "Which Saturday" asks for a day and names none.
        if days := [date for date in self.query.dates if date.unit == "day" and not date.is_weekday]:
            parts["same day"] = SAME_DAY * self._on_days(days, candidates)
        parts["recency"] = RECENCY * _recency([entry.at for entry in candidates.entries], self.now)
        if self.retention is not None:
            parts["faded"] = -WEIGHT * (1 - self.retention)
        return parts

    def _on_days(self, days: Sequence[DateSpan], candidates: Candidates) -> Column:
        """Return 1 for memories that begin on one of some days or name it in their text, else 0."""
        columns = np.zeros(len(candidates.entries), dtype=np.float32)
        for row, entry in enumerate(candidates.entries):
            if entry.kind == "memory":
                told = (
                    each.start for each in dates_in(entry.text, _local_time(self.query, entry)) if each.unit == "day"
                )
                starts = [at for at in (entry.begins, *told) if at is not None]
                columns[row] = any(day.start <= at < day.end for day in days for at in starts)
        return columns

    def _weighted(self, columns: Mapping[str, Column], candidates: Candidates) -> dict[str, Column]:
        is_message = np.array([entry.kind == "message" for entry in candidates.entries])
        has_hints = [entry.has_hints for entry in candidates.entries if entry.kind == "memory"]
        with_others, hinted = bool(self.query.also), sum(has_hints) / max(len(has_hints), 1)
        of_message = self.weights.of_messages(with_others=with_others)
        of_memory = self.weights.of_memories(with_others=with_others, hinted=hinted)
        return {
            name: np.where(is_message, of_message.get(name, 0.0), of_memory.get(name, 0.0)) * column
            for name, column in columns.items()
        }

    def _guess(self, candidates: Candidates) -> Guess | None:
        """Return the scores for the question without its clause that says when, and for the clause."""
        if candidates.clause is None or candidates.queries is None:
            return None
        asked, known, others = self.query.asked, candidates.weights, candidates.queries[1:]
        main = replace(self, query=self.query.part(asked.main, known))
        clause = replace(self, query=replace(self.query.part(asked.clause, known), also=()))
        return Guess(
            _sum(main._own_parts(replace(candidates, queries=np.vstack([candidates.clause[:1], others])))),  # noqa: SLF001
            _sum(clause._own_parts(replace(candidates, queries=candidates.clause[1:]))),  # noqa: SLF001
        )

    def features(self, candidates: Candidates) -> dict[str, Column]:
        """Return the fitted features by name, each of shape (n,)."""
        query, entries = self.query, candidates.entries
        meaning = _meaning(candidates, candidates.vectors)
        guess = GUESSED_SPEAKER * named(query, candidates)
        guess += (z_scores(candidates.bm25) + meaning + _meaning(candidates, candidates.contexts)) / 3
        columns = {
            "message": np.array([entry.kind == "message" for entry in entries], dtype=np.float32),
            "meaning": damped(meaning),
            "words": coverage(candidates, query.words),
            "speaker": named(query, candidates),
            "session": best_of_session(entries, guess),
            "question": np.array([entry.is_question for entry in entries], dtype=np.float32),
            "answer type": _answer_type(query, candidates),
        }
        if query.also:
            columns["meaning of others"] = damped(_meaning(candidates, candidates.vectors, of_others=True))
            columns["words of others"] = np.mean([coverage(candidates, own) for own in query.also], axis=0)
        if query.dates:
            times = [_local_time(query, entry) for entry in entries]
            dates = [dates_in(entry.text, at, guesses=True) for entry, at in zip(entries, times, strict=True)]
            past = [date for date in query.dates if date.start <= self.now]  # nothing was said yet at a time to come
            columns["said"] = np.array([said_match(past, at) for at in times])
            columns["told"] = np.array([text_match(query.dates, found) for found in dates])
        return columns


def _sum(parts: Mapping[str, Column]) -> Column:
    return cast("Column", np.sum(list(parts.values()), axis=0))


def coverage(candidates: Candidates, words: Iterable[str]) -> Column:
    """Return the share of some words of the query that each candidate has, by weight; from 0 to 1.

    Words that only its context has count `IN_CONTEXT`.
    """
    weights = {word: candidates.weights[word] for word in words}
    total = sum(weights.values()) or 1.0
    # Many candidates have the same few words of the query.
    distinct = {*candidates.words, *candidates.words_in_context}
    shares = {own: sum(weights[word] for word in weights.keys() & own) / total for own in distinct}
    own, around = (
        np.array([shares[found] for found in texts]) for texts in (candidates.words, candidates.words_in_context)
    )
    return IN_CONTEXT * around + (1 - IN_CONTEXT) * own


def named(query: ParsedQuery, candidates: Candidates) -> Column:
    """Return 1 for messages of a speaker whom the query names, and for memories that are about one; else 0."""
    return np.array(
        [
            entry.speaker in query.speakers or (entry.kind == "memory" and not query.names.isdisjoint(words))
            for entry, words in zip(candidates.entries, candidates.words, strict=True)
        ],
        dtype=np.float32,
    )


def _meaning(candidates: Candidates, vectors: Vector | None, *, of_others: bool = False) -> Column:
    """Return the z-scores of the cosines with the query, or of their mean with its other wordings.

    Where there is no vector, the words stand in for it.
    """
    queries = candidates.queries
    if vectors is None or queries is None:
        return z_scores(coverage(candidates, candidates.weights))
    has_vector = candidates.has_vector
    cosines = (vectors @ queries[1:].T).mean(axis=1) if of_others else vectors @ queries[0]
    by_vectors = z_scores(cosines, has_vector, MIN_SPREAD)
    if has_vector.all():
        return by_vectors
    return np.where(has_vector, by_vectors, z_scores(coverage(candidates, candidates.weights)))


def damped(z_scores: Column) -> Column:
    """Return the logarithm of 1 and more for the distance from the mean: far above it, nearer is hardly better."""
    return np.sign(z_scores) * np.log1p(np.abs(z_scores))


def _answer_type(query: ParsedQuery, candidates: Candidates) -> Column:
    """Return 1 for candidates that have a number or a time, if the query asks for one; else 0."""
    kinds = asked_types(query.text)
    return np.array([any(can_hold(entry.text, kind) for kind in kinds) for entry in candidates.entries], np.float32)


def exact_match(query: ParsedQuery, candidates: Candidates) -> Column:
    """Return 1 for candidates whose text is the query, and for the only one that has a part that was asked for.

    Punctuation, case and white space make no difference. A memory and a message that it was learned from are one.
    """
    entries = candidates.entries
    key, words, most = same_words_key(query.text), frozenset(query.words), MAX_RATIO * len(query.text)
    found = np.array(
        [
            words <= own and len(entry.text) <= most and same_words_key(entry.text) == key
            for entry, own in zip(entries, candidates.words, strict=True)
        ]
    )
    for part in query.exact_parts:
        rows = [row for row, entry in enumerate(entries) if part in _exact_form(entry.text)]
        pairs = {frozenset(pair) for pair in candidates.source_pairs}
        if len(rows) == 1 or (len(rows) == 2 and frozenset(rows) in pairs):  # noqa: PLR2004 - a memory and its message
            found[rows] = True
    return found.astype(np.float32)


def other_names(query: ParsedQuery, candidates: Candidates) -> Column:
    """Return 1 for candidates with a name like one that the question has, and without that one, if another has it."""
    others = np.zeros(len(candidates.entries), dtype=np.float32)
    for name, alike in query.look_alikes:
        having = np.array([name in _exact_form(entry.text) for entry in candidates.entries])
        if having.any():
            is_other = [alike.search(entry.text) is not None for entry in candidates.entries]
            others[np.array(is_other) & ~having] = 1.0
    return others


def _local_time(query: ParsedQuery, entry: Candidate) -> datetime:
    """Return when an entry was said, as a time of the zone of the query.

    What is known to the day is stored as that day's beginning in UTC, and is that day in every zone.
    """
    return entry.at.replace(tzinfo=query.zone) if entry.at.time() == time() else in_zone(entry.at, query.zone)


def _recency(times: Sequence[datetime], now: datetime) -> Column:
    days = np.array([(now - at).total_seconds() for at in times], dtype=np.float32) / SECONDS_A_DAY
    return np.exp(-np.maximum(days, 0.0) / RECENCY_DAYS)


# How well a candidate matches what is asked, from 0 to 1, comparable between searches; and why.
#
# The score orders the candidates of one search and says little about another: the best of many unrelated texts has a
# high score, too. So a logistic regression over four signs says how probable it is that a text is about what is asked
# at all. That tells questions about something else entirely. Whether a text about the same thing holds the answer
# cannot be told from vectors: to "What is Femke's last name?" a text about Femke is as near with the name as without.

# The key of the log-odds below which a question with other wordings is about something else. One without has another:
# with help the best match is surer.
THRESHOLD_OF_OTHERS = "threshold, with other wordings"

SIGNS = ("meaning", "words", "unknown words", "size")

# The cosine that a text without a vector is taken to have if it has all words of the question: about that of an answer.
NEAR_COSINE = 0.4

# The share of the words of the question from which on a hit says that it has the same words.
MANY = 0.5

# The highest log-odds of a match, 0.993. It leaves what comes below the best one room to be told from it.
SUREST = 5.0


@dataclass(frozen=True, slots=True)
class Matches:
    """How well the candidates match, by row: 0 for what is not ranked. `has_words`: which have the question's words.

    What matches less than `least` is about something else. `confident` is False if all that is ranked is.
    """

    of_rows: Column
    has_words: Column
    least: float
    confident: bool


def matches(scoring: SearchScoring, candidates: Candidates, ranked: Sequence[Ranked]) -> Matches:
    """Return how well the ranked candidates match; it never rises from one to the next.

    A candidate that stands above a better match counts as that, for the order knows more than these signs; but below
    the best one by as much as its score is, whose differences are log-odds. If the embedder failed, or is one that the
    weights were not fitted with, only the words count.
    """
    query, weights = scoring.query, scoring.weights.match
    if candidates.queries is None or math.isinf(scoring.weights.alike):
        candidates = replace(candidates, vectors=None, has_vector=np.zeros_like(candidates.has_vector))
    columns, rows = signs(query, candidates), [item.row for item in ranked]
    logits = weights[features.CONSTANT] + sum(weights[name] * columns[name] for name in SIGNS)
    logits = (logits + EXACT * exact_match(query, candidates))[rows]
    logits = np.maximum.accumulate(np.minimum(logits, SUREST)[::-1])[::-1]
    scores = np.array([item.score for item in ranked])
    logits = np.minimum(logits, np.minimum.accumulate(logits[:1].sum() + scores - scores[:1].sum()))
    of_rows = np.zeros(len(candidates.entries))
    of_rows[rows] = 1 / (1 + np.exp(-logits))
    least = 1 / (1 + math.exp(-weights[THRESHOLD_OF_OTHERS if query.also else features.THRESHOLD]))
    # What has no vector that tells may be about it.
    confident = bool(rows) and bool(of_rows[rows[0]] >= least or not candidates.has_vector.all())
    return Matches(of_rows, columns["words"] >= MANY, least, confident)


def signs(query: ParsedQuery, candidates: Candidates) -> dict[str, Column]:
    """Return what the match is computed from, by name, each of shape (n,).

    `meaning` is the mean of the cosines with the question and with its other wordings, `words` the share of the words
    of the wording that suits a text best, `unknown words` the share of all words that no candidate has, and `size` the
    logarithm of the number of entries.
    """
    weights, own = candidates.weights, set(candidates.words)
    wordings = [subject_tokens(words) or frozenset(words) for words in (query.words, *query.also)]
    shares = {words: max(_share(weights, wording, words) for wording in wordings) for words in own}
    in_words = np.array([shares[words] for words in candidates.words])
    cosines = NEAR_COSINE * in_words
    if candidates.vectors is not None and candidates.queries is not None:
        question, *others = candidates.queries @ candidates.vectors.T
        meaning = (question + np.mean(others, axis=0)) / 2 if others else question
        cosines = np.where(candidates.has_vector, meaning, cosines)
    known = frozenset[str]().union(*own) | query.names
    unknown = 1 - _share(weights, frozenset(query.all_words), known)
    size = float(np.log(max(candidates.collection, 1)))
    everywhere = np.ones(len(cosines))
    return {"meaning": cosines, "words": in_words, "unknown words": unknown * everywhere, "size": size * everywhere}


# The last letter of the Latin script with its accents.
LAST_LATIN = 0x24F

# How much a word resembles a name that may be it, inflected or misspelt.
LIKE_A_NAME = 0.75

# How many of the best candidates are read for words that are like a name.
READ_FOR_NAMES = 10


def asks_of_unknown(query: ParsedQuery, candidates: Candidates, ranked: Sequence[Ranked], user_name: str) -> bool:
    """Return whether a question names people, and what is stored none of them: neither so, nor in a like word.

    A full name may be that of somebody who is only called by the first. What is about a user without a known name may
    be about whoever is named. Only Latin letters are compared.
    """
    named = (found.name.split() for found in find_names(query.text, {}) if found.type == "person")
    people = [words for words in named if is_given_name(words[0])]
    texts = [item.candidate.text for item in ranked[:READ_FOR_NAMES]]
    if not people or not texts or any(ord(char) > LAST_LATIN for char in query.text + texts[0] if char.isalpha()):
        return False
    known = frozenset[str]().union(*candidates.words) | query.names
    like = {*known, *(word for text in texts for word in search_tokens(text))}

    def is_known(name: Sequence[str]) -> bool:
        *_, last = search_tokens(name[-1]) or [""]
        if last in known or difflib.get_close_matches(last, like, n=1, cutoff=LIKE_A_NAME):
            return True
        if len(name) > 1 and not known.isdisjoint(search_tokens(name[0])):
            bare = re.compile(rf"\b{re.escape(name[0])}\b(?! [A-Z])")
            return any(bare.search(text) for text in texts)
        return not user_name and is_about_user(texts[0])

    return not any(map(is_known, people))


def _share(weights: Mapping[str, float], words: frozenset[str], of_text: frozenset[str]) -> float:
    """Return the share of some words of the query that a text has, by weight; from 0 to 1."""
    total = sum(weights[word] for word in words)
    return sum(weights[word] for word in words & of_text) / total if total else 0.0


# How many reasons a hit has: enough to see how it was found.
MAX_REASONS = 2


def reasons(
    query: ParsedQuery, candidates: Candidates, item: Ranked, entities: Sequence[Entity], found: Matches
) -> tuple[str, ...]:
    """Return why a candidate was found: what it has in common with the query, the most telling first.

    `entities` are those that the query names.
    """
    words = candidates.words[item.row]
    has_number = any(char.isdigit() for part in query.exact_parts for char in part)
    names = {entity.name: frozenset(search_tokens(entity.name)) for entity in entities if not entity.is_user}
    shared = [
        *([LINKED] if item.has(CONNECTED) else []),
        *(["same number" if has_number else "same words"] if item.has("exact") else []),
        *(f"about {name}" for name, tokens in names.items() if tokens and tokens <= words),
        *(["dated"] if item.has("told") or item.has("said") else []),
        *(["same words"] if found.has_words[item.row] else []),
        "same meaning",
    ]
    return tuple(dict.fromkeys(shared))[:MAX_REASONS]
