"""Cases to fit on: every question of a data set with its candidates, their features and which of them are answers.

The stores are filled through the facade, and the features are those that a search computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random

import numpy as np

from fitting.regression import Array
from locomo import Conversation, filled
from measures.personas import Asked, Persona, say_facts, store_facts
from measures.stores import SCOPE, StoppedClock, new_memory
from palimpsest.core.models import Scope
from palimpsest.memory import Memory
from palimpsest.recall.features import Candidates
from palimpsest.recall.query import ParsedQuery
from palimpsest.recall.search import Ranking, SearchQuery, TakenApart

# The features that get a weight, by the kind of entry. No other that was tried brought half a point left out.
FEATURES = {
    "memory": ("meaning", "words", "said", "told"),
    "message": ("message", "meaning", "words", "speaker", "session", "question", "said", "told", "answer type"),
}

# Those of other wordings of a question.
OF_OTHERS = ("meaning of others", "words of others")

# The sorts of store whose answers are turns.
OF_CONVERSATIONS = ("turns", "mixed")

# How many small memories of each size are made of a persona's facts. Set by hand: about as many questions of each.
SMALL_MEMORIES = {1: 6, 3: 4, 8: 3, 16: 2}

# The kind of questions about something else than all that is stored.
FAR_OFF = "far off"

# How many far-off questions are asked, by the sort of store.
ASKED = {"facts": 30, "hinted": 30, "said": 30, "few": 12, "turns": 60, "mixed": 0}

# How many candidates of a question are kept, the best by a first guess, besides its answers.
KEPT = 160

FIRST_GUESS = {"meaning": 1.0, "words": 2.0, "speaker": 1.5, "meaning of others": 1.0, "words of others": 2.0}


@dataclass(frozen=True)
class Case:
    """A question, its best candidates by a first guess and its answers, their features, and which are answers.

    `group` is the persona or the conversation and `family` the sort of store: "facts", "hinted", "few", "said", "all",
    "turns" or "mixed".
    `evidence` are the turns that answer the question, and `sources` those of each candidate; personas have neither.
    """

    group: str
    family: str
    kind: str
    query: ParsedQuery
    candidates: Candidates
    features: dict[str, Array]
    answers: Array
    number_of_answers: int = 1
    evidence: frozenset[str] = frozenset()
    sources: tuple[frozenset[str], ...] = ()

    @property
    def mode(self) -> str:
        """Return which weights are for the case: alone, hints, also or both."""
        hinted = "hinted" in self.family
        return ("both" if hinted else "also") if self.query.also else "hints" if hinted else "alone"

    @property
    def is_message(self) -> Array:
        """Return which candidates are messages."""
        return np.array([entry.kind == "message" for entry in self.candidates.entries])


async def of_persona(persona: Persona, embedder: str, far_off: Sequence[Asked], *, family: str) -> list[Case]:
    """Return the cases of a persona, each question without and with other wordings.

    Its facts are memories, with hints if the family is "hinted", or messages of the user if it is "said". Some far-off
    questions are asked, too.
    """
    clock = StoppedClock()
    async with new_memory(clock, embedder) as memory:
        if family == "said":
            ids = await say_facts(memory, clock, persona)
        else:
            ids = await store_facts(memory, clock, persona, with_hints=family == "hinted")
        known = [
            (asked.text, also, {ids[answer] for answer in asked.answers}, asked.kind)
            for asked in persona.questions
            for also in persona.wordings(asked.text)
        ]
        far = [(text, also, set[str](), FAR_OFF) for text, also in _some_of(far_off, persona.name, family)]
        return [
            _case(memory, SCOPE, clock.at, text, also, answers=answers, group=persona.name, kind=kind, family=family)
            for text, also, answers, kind in (*known, *far)
        ]


async def of_all(personas: Sequence[Persona], embedder: str, *, with_hints: bool) -> list[Case]:
    """Return the cases of all personas in one memory, each question without and with other wordings."""
    clock, cases, ids = StoppedClock(), list[Case](), dict[tuple[str, str], str]()
    async with new_memory(clock, embedder) as memory:
        for persona in personas:
            stored = await store_facts(memory, clock, persona, with_hints=with_hints)
            ids |= {(persona.name, fact): memory_id for fact, memory_id in stored.items()}
        clock.at = max(persona.asked_at for persona in personas)
        for persona in personas:
            for asked in persona.questions:
                cases += [
                    _case(
                        memory,
                        SCOPE,
                        clock.at,
                        asked.text,
                        also,
                        answers={ids[persona.name, answer] for answer in asked.answers},
                        group=persona.name,
                        kind=asked.kind,
                        family="all, hinted" if with_hints else "all",
                    )
                    for also in persona.wordings(asked.text)
                ]
    return cases


async def of_small_memories(persona: Persona, embedder: str, far_off: Sequence[Asked]) -> list[Case]:
    """Return cases of small memories, each of a few facts of a persona drawn at random, always the same ones."""
    draw = Random(f"few facts of {persona.name}")  # noqa: S311 - not for secrets
    cases: list[Case] = []
    for size, times in SMALL_MEMORIES.items():
        for _ in range(times):
            cases += await of_persona(_with_few_facts(persona, size, draw), embedder, far_off, family="few")
    return cases


def _with_few_facts(persona: Persona, size: int, draw: Random) -> Persona:
    chosen = {fact.id for fact in draw.sample(persona.facts, min(size, len(persona.facts)))}
    answered = [asked for asked in persona.questions if chosen.issuperset(asked.answers)]
    facts = tuple(fact for fact in persona.facts if fact.id in chosen)
    return replace(persona, facts=facts, questions=tuple(answered))


def _some_of(far_off: Sequence[Asked], group: str, family: str) -> list[Asked]:
    """Return the far-off questions that are asked of a store, always the same ones."""
    draw = Random(f"far-off questions to {group}, {family}")  # noqa: S311 - not for secrets
    return draw.sample(far_off, min(ASKED[family], len(far_off)))


async def of_conversation(
    conversation: Conversation, embedder: str, far_off: Sequence[Asked], *, facts: bool
) -> list[Case]:
    """Return the cases of a conversation of LoCoMo, whose turns are stored alone or with the facts learned from it."""
    scope, family = Scope(user_id=conversation.name), "mixed" if facts else "turns"
    now = conversation.sessions[-1].said_at + timedelta(days=1)
    known = [(asked.text, asked.evidence, str(asked.category)) for asked in conversation.questions]
    far = [(text, frozenset[str](), FAR_OFF) for text, _ in _some_of(far_off, conversation.name, family)]
    async with filled(conversation, embedder, facts=facts) as memory:
        return [
            _case(memory, scope, now, text, (), answers=evidence, group=conversation.name, kind=kind, family=family)
            for text, evidence, kind in (*known, *far)
        ]


def _case(  # noqa: PLR0913 - passed by name
    memory: Memory,
    scope: Scope,
    now: datetime,
    text: str,
    also: Sequence[str],
    *,
    answers: Iterable[str],
    group: str,
    kind: str,
    family: str,
) -> Case:
    """Return the case of one question; `answers` are ids of memories, or external ids of turns."""
    engine = memory.engine
    taken_apart = TakenApart(engine, SearchQuery(scope, text, now, also=tuple(also)))
    with engine.ledger.read() as conn:
        ranking = taken_apart.rank(conn)
    candidates = ranking.candidates
    answers = frozenset(answers)
    sources = _sources(memory, candidates) if family in OF_CONVERSATIONS else ()
    if sources:
        is_answer = np.array([bool(own & answers) for own in sources])
    else:
        is_answer = np.array([entry.owner_id in answers for entry in candidates.entries], dtype=bool)
    features, first = _features(ranking)
    right: list[int] = np.flatnonzero(is_answer).tolist()
    kept = sorted({*first, *right})
    rows = np.array(kept, dtype=int)
    return Case(
        group,
        family,
        kind,
        ranking.scoring.query,
        _some(candidates, rows),
        {name: column[rows] for name, column in features.items()},
        is_answer[rows],
        len(answers),
        answers if sources else frozenset(),
        tuple(sources[row] for row in kept) if sources else (),
    )


def _features(ranking: Ranking) -> tuple[dict[str, Array], list[int]]:
    """Return every feature of all candidates, and the rows of the best by a first guess."""
    features = ranking.scoring.features(ranking.candidates)
    guess = np.sum([weight * features[name] for name, weight in FIRST_GUESS.items() if name in features], axis=0)
    rows: list[int] = np.argsort(-guess, kind="stable")[:KEPT].tolist()
    zeros = np.zeros(len(ranking.candidates.entries))
    names = (*FEATURES["memory"], *FEATURES["message"], *OF_OTHERS)
    return {name: features.get(name, zeros) for name in names}, rows


def _some(candidates: Candidates, rows: Array) -> Candidates:
    """Return some of the candidates; their vectors take half the memory."""

    def chosen(vectors: Array | None) -> Array | None:
        return None if vectors is None else vectors[rows].astype(np.float16)

    place = {row: number for number, row in enumerate(rows.tolist())}
    return replace(
        candidates,
        source_pairs=[
            (place[one], place[other]) for one, other in candidates.source_pairs if one in place and other in place
        ],
        entries=[candidates.entries[row] for row in rows],
        vectors=chosen(candidates.vectors),
        contexts=None,
        has_vector=candidates.has_vector[rows],
        bm25=candidates.bm25[rows],
        words=[candidates.words[row] for row in rows],
        words_in_context=[candidates.words_in_context[row] for row in rows],
    )


def _sources(memory: Memory, candidates: Candidates) -> list[frozenset[str]]:
    """Return the external ids of the turns behind each candidate."""
    from palimpsest.recall.hits import hits_of  # noqa: PLC0415

    with memory.engine.ledger.read() as conn:
        hits = hits_of(conn, candidates.entries)
    return [frozenset(hits[entry.seq].sources) for entry in candidates.entries]
