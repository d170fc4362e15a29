"""Questions about personas, in a store for each persona that holds its facts, added in the order of their dates.

*First*: the first hit is an answer. *Among 3*: the share of the answers that are among the first three hits, or among
the first as many hits as there are answers, if these are more. *Newer first*: of an outdated fact and the newer one
that a question is about, the newer one comes before the older one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from measures.personas import Persona, PersonaQuestion, read_personas, store_facts
from measures.stores import StoppedClock, ask, new_memory, rank
from measures.tables import ALL, Table, Tally
from palimpsest.core.models import Hit

UPDATE = "update"
OTHER_WORDS = ("paraphrase", "inference")


# Whether the facts have hints and the questions other wordings, by what a table is called.
HELP = {"question alone": (False, False), "hints": (True, False), "also": (False, True), "both": (True, True)}


async def everyday(files: Sequence[Path], embedder: str) -> list[Table]:
    """Ask the questions of each persona. Return the results by kind and language, and those of updates.

    Files of personas with hints and other wordings are asked in four ways, with and without each.
    """
    tables: list[Table] = []
    for file in files:
        personas = read_personas([file])
        has_help = any(persona.also for persona in personas)
        for way, (with_hints, with_also) in HELP.items() if has_help else [("", (False, False))]:
            title = ", ".join(filter(None, ("" if file.stem == "everyday" else file.stem, way)))
            answered, current = Tally(f"everyday: {title}"), Tally(f"everyday, updates: {title}")
            for persona in personas:
                await _ask_persona(
                    persona,
                    embedder,
                    answered,
                    current,
                    with_hints=with_hints,
                    with_also=with_also,
                )
            tables += [tally.table() for tally in (answered, current) if tally.results]
    return tables


async def cross_language(files: Sequence[Path], embedder: str) -> list[Table]:
    """Ask the questions that are in another language than the facts. Return the results by pair of languages."""
    tally = Tally("cross-language")
    for persona in read_personas(files):
        clock = StoppedClock()
        async with new_memory(clock, embedder) as memory:
            ids = await store_facts(memory, clock, persona)
            for question in persona.questions:
                if question.language != persona.language:
                    rows = (f"{question.language} on {persona.language}", ALL)
                    _record(tally, rows, persona, question, ids, await ask(memory, question.text))
    return [tally.table()]


async def _ask_persona(
    persona: Persona,
    embedder: str,
    answered: Tally,
    current: Tally,
    *,
    with_hints: bool,
    with_also: bool,
) -> None:
    clock = StoppedClock()
    async with new_memory(clock, embedder) as memory:
        ids = await store_facts(memory, clock, persona, with_hints=with_hints)
        for question in persona.questions:
            hits = await ask(memory, question.text, also=persona.also.get(question.text, ()) if with_also else ())
            languages = [persona.language, ALL]
            in_other_words = ["+".join(OTHER_WORDS)] if question.kind in OTHER_WORDS else []
            _record(answered, [question.kind, *in_other_words, *languages], persona, question, ids, hits)
            for older, newer in persona.outdated_by(question.answers) if question.kind == UPDATE else []:
                newer_first = rank(hits, ids[newer]) < rank(hits, ids[older])
                current.record(languages, {"newer first": newer_first})
                if not newer_first:
                    current.miss(question.text, persona.texts[newer], hits)


def _record(
    tally: Tally,
    rows: Sequence[str],
    persona: Persona,
    question: PersonaQuestion,
    ids: Mapping[str, str],
    hits: Sequence[Hit],
) -> None:
    answers = {ids[answer] for answer in question.answers}
    if not tally.record_answers(rows, answers, hits):
        expected = " / ".join(persona.texts[answer] for answer in question.answers)
        tally.miss(f"[{persona.name}, {question.kind}] {question.text}", expected, hits)
