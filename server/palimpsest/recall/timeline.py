"""Put what held at the time that a question asks about before what held at other times.

Memories tell states: where somebody lives, who leads what, what a thing costs. The states of one thing are a chain, in
which each holds until the next begins. An agent's relations tell the chain: the same source and relation, or the same
relation and destination. Where there are none, likeness tells it, less surely. The best hits vote for a chain, and of
its states the one comes first that held: now, at a date, at the time of an event, or before another state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple, cast

import numpy as np

from palimpsest.core.clock import TimeSpan, parse_date
from palimpsest.core.models import Candidate, KnownRelation
from palimpsest.recall.features import Candidates, Column, best_first
from palimpsest.recall.query import Moment, ParsedQuery
from palimpsest.text.relation_updates import is_several
from palimpsest.text.time_questions import is_about, is_wish, told_times
from palimpsest.text.tokenizer import search_tokens

ANCHORS = 6
"""How many of the best hits vote for a chain."""

SHARPNESS = 0.3
"""How much more a better hit's vote counts: a score is about log-odds, but most of it comes from the question's words
and little from which state is meant."""

LENGTH = 0.2
"""The power of its length that the votes for a chain are divided by, so that a long chain has no other advantage."""

NAMED = 3.0
"""How much more a vote for a chain counts that begins or ends at what the question names."""

SURE_GAP, GUESSED_GAP, UNSAID_GAP = 4.0, 5.0, 2.0
"""How far below an older state a newer one of its chain may stand to take its place if the question does not say when:
by its relations, by likeness if it says "now", and by likeness if it does not."""

FURTHEST = 10.0
"""How far below the best hit a state may stand and still come first. One further below belongs to another chain, which
some of the best hits happen to share."""

BEFORE_GAP = 8.0
"""How far below the best hit a predecessor may stand that only likeness tells."""

UNSAID = 1.0
"""What the newest state of a chain by likeness gains in a question with other wordings that does not say when."""

BEGAN = 5.0
"""What a memory gains that began in the stretch whose changes are asked for: more than most differences of scores."""

PLANNED = 2.0
"""What a memory gains that begins when a question about what is to come says: a plan is one of few."""

DATED_EVENT = 2.0
"""What an event gains that has a date, when the date of an event is looked for."""

OUTSIDE = 3.0
"""What a memory loses whose given times lie outside of the time that a date asks about: it may only say what came
before or after. It is less than a good match of the question is worth."""

FIRST_BY = 0.1
"""By how much the state that held comes first, and the event that says when stands below it."""

EARLIEST, LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
INSTANT = timedelta(microseconds=1)


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
        self._times: dict[int, tuple[datetime | None, datetime | None]] = {}

    def times(self, row: int) -> tuple[datetime | None, datetime | None]:
        """Return the first and the last instant, as given or as the text says; None for what is not known."""
        if row not in self._times:
            entry = self._entries[row]
            first, last = entry.begins, entry.ends
            if (first is None and last is None) or (first is None and entry.is_closed):
                told_first, told_last = told_times(entry.text, entry.at)
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
        return dict(zip(rows, beginnings(states), strict=True))

    def ends(self, row: int) -> datetime:
        return self.times(row)[1] or LATEST

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
    can_compare = candidates.vectors is not None and len(entries) > 1
    if moment is None or not moment.sense or not can_compare:
        return gains
    if moment.sense == "unsaid" and guess is None and not (has_help or candidates.states):
        return gains
    told = _Told(entries, query.asked.about)
    if moment.sense in ("changed", "planned"):
        begin = np.array([told.is_about(row) and moment.has(told.begins(row)) for row in range(len(entries))])
        if moment.sense == "planned":
            return PLANNED * begin
        return BEGAN * (begin & ~np.array([is_wish(entry.text) for entry in entries]))
    if moment.sense == "at":
        gains -= OUTSIDE * np.array([_is_outside(entry, moment.span) for entry in entries])
    event, ranking = None, scores
    if guess is not None:
        likely = best_first(guess.event)[:ANCHORS]
        event = max(likely, key=lambda row: float(guess.event[row]) + DATED_EVENT * any(told.times(row)))
        at = told.times(event)[0] or told.times(event)[1] or entries[event].at
        moment, ranking = Moment("at", TimeSpan(at, at)), guess.main
    chains = _Chains(candidates, ranking, told, named, event, alike)
    if moment.sense == "before":
        chosen, gain = chains.before(query.asked.named, scores), None
    else:
        chosen, gain = chains.holding(moment, has_help=has_help)
    if chosen is None:
        return gains
    top = float(scores.max())
    gains[chosen] = max(top + FIRST_BY - float(scores[chosen]), 0.0) if gain is None else gain
    if event is not None:
        gains[event] = max(top + FIRST_BY / 2 - float(scores[event]), 0.0)
    return gains


def _is_outside(entry: Candidate, span: TimeSpan) -> bool:
    """Return whether somebody said between which times it holds, and that is not in a stretch of time."""
    begins_later = entry.begins is not None and entry.begins > span.last
    return begins_later or (entry.ends is not None and entry.ends < span.first)


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
    ) -> None:
        self._entries, self._scores, self._told = candidates.entries, scores, told
        order = best_first(scores)
        anchors = list(islice((row for row in order if row != event and told.is_about(row)), ANCHORS))
        self._best = anchors[0] if anchors else -1
        states = [candidates.states.get(entry.owner_id, frozenset()) for entry in candidates.entries]
        single = [{state for state in stated if not is_several(state[1])} for stated in states]
        sides = [
            {(source, key) for source, key, _ in stated} | {(key, destination, "") for _, key, destination in stated}
            for stated in single
        ]
        ends = [{end for source, _, destination in stated for end in (source, destination)} for stated in states]
        self._named = [of_state & named for of_state in ends]
        has_one = [bool(of_state) or not stated for of_state, stated in zip(single, states, strict=True)]
        vectors = cast("Column", candidates.vectors)
        votes = np.exp(SHARPNESS * (scores - scores[anchors[0]])) if anchors else scores

        def may_share(row: int, other: int) -> bool:
            # What is related to other things is no state of this one, however alike, nor is one of several.
            is_of_others = ends[row] and ends[other] and ends[row].isdisjoint(ends[other])
            return has_one[row] and has_one[other] and not is_of_others

        chains: list[tuple[float, list[int], frozenset[int]]] = []
        for anchor in anchors:
            alike = vectors @ vectors[anchor] >= least
            rows = [
                row
                for row in range(len(states))
                if row == anchor
                or ((alike[row] or sides[row] & sides[anchor]) and may_share(row, anchor) and told.is_about(row))
            ]
            rows = [row for row in rows if row != event]
            sure = frozenset(row for row in rows if sides[row] & sides[anchor])
            vote = float(sum(votes[row] for row in rows if row in anchors)) / max(len(rows), 1) ** LENGTH
            chains.append((vote * (NAMED if ends[anchor] & named else 1.0), rows, sure))
        self._chains = [(rows, sure) for _, rows, sure in sorted(chains, key=lambda chain: -chain[0])]

    def before(self, name: str, scores: Column) -> int | None:
        """Return the state before the first one that has most of a name's words; None if no chain has both."""
        wanted = set(search_tokens(name))
        least = float(scores.max()) - BEFORE_GAP
        for rows, sure in self._chains:
            shares = {row: len(wanted & set(search_tokens(self._entries[row].text))) for row in rows}
            most = max(shares.values(), default=0)
            if not most:
                continue
            having = [row for row in rows if shares[row] == most]
            begins = self._told.beginnings(rows)
            # What is only known to have ended tells no beginning.
            first = min((begins[row] for row in having if begins[row] > EARLIEST), default=EARLIEST)
            former = [
                row
                for row in rows
                if row not in having and begins[row] < first and (row in sure or scores[row] >= least)
            ]
            if former:
                return self._newest(former, begins, sure, UNSAID_GAP)
        return None

    def holding(self, moment: Moment, *, has_help: bool) -> tuple[int | None, float | None]:
        """Return the state that held at a moment, and what it gains: None for as much as brings it to the top."""
        for rows, sure in self._chains:
            # What is not said is only guessed of a chain that has the best hit.
            if moment.sense == "unsaid" and not (len(sure) > 1 or self._best in rows):
                continue
            begins, span = self._told.beginnings(rows), moment.span
            valid = [row for row in rows if begins[row] <= span.last and self._told.ends(row) >= span.first]
            if moment.sense == "at":
                valid = [row for row in valid if not is_wish(self._entries[row].text)] or valid
            if not valid:
                continue
            gap = UNSAID_GAP if moment.sense == "unsaid" else GUESSED_GAP
            sure_gap = SURE_GAP if moment.sense == "unsaid" else math.inf
            chosen = self._newest(valid, begins, sure, gap, sure_gap, is_now=moment.sense != "at")
            if self._scores[self._best] - self._scores[chosen] > FURTHEST:
                continue
            # Without another state, what says no time holds at any.
            is_alone = len(rows) < 2 and (moment.sense != "at" or not any(self._told.times(chosen)))  # noqa: PLR2004
            is_sure = len(sure) > 1 or moment.sense != "unsaid"
            if is_alone:
                continue
            if not (is_sure or has_help):
                return None, None
            return chosen, None if is_sure else UNSAID
        return None, None

    def _newest(
        self,
        rows: Sequence[int],
        begins: Mapping[int, datetime],
        sure: frozenset[int],
        gap: float,
        sure_gap: float = math.inf,
        *,
        is_now: bool = False,
    ) -> int:
        """Return the best of the states that no later one takes the place of.

        A later one does if it stands at most so far below: `sure_gap` if relations tell that both are of the chain. If
        the question `is_now`, one whose end it names is asked for and stays.
        """

        def is_replaced(row: int) -> bool:
            return any(
                begins[other] > begins[row]
                and not (is_now and self._named[row] - self._named[other])
                and self._scores[row] - self._scores[other] <= (sure_gap if {row, other} <= sure else gap)
                for other in rows
            )

        return max((row for row in rows if not is_replaced(row)), key=lambda row: float(self._scores[row]))
