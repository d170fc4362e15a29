"""Measure search beside 500 pages of documents, and what is found in the documents. No language model is asked.

    python benchmarks/documents.py
    python benchmarks/documents.py --embedder static --misses

The questions of the personas in `everyday.json` are asked twice: of a memory of the persona's facts, and of one that
has ten made-up handbooks beside them. Forty more questions are about the handbooks; each answer stands on one page,
and the facts of three personas are beside them. These are also asked in words that only the gists of the pages have,
after gists with these words were written.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import anyio

import embedders
from harness import parser_of
from measures.hand_written import data_file
from measures.handbooks import Answered, Handbooks, made_handbooks
from measures.personas import Persona, read_personas, store_facts
from measures.stores import AMPLE, DEFAULT, LIMIT, SCOPE, START, StoppedClock, new_memory
from measures.tables import Table, Tally, print_table
from palimpsest.core.models import Provenance
from palimpsest.learn.commit import apply_write, embed_texts
from palimpsest.memory import Memory
from palimpsest.recall.search import SearchResult
from palimpsest.store.apply import Write
from palimpsest.store.documents import Gist

DEPTHS = (1, 3, 5)

BESIDE = 3
"""The facts of so many personas are beside the documents when these are asked about."""


async def measure(embedder: str) -> list[Table]:
    """Return the figures of the personas' questions without and with documents, and those of the documents."""
    handbooks = made_handbooks()
    with tempfile.TemporaryDirectory(prefix="documents-") as root:
        base = Path(root, "base")
        await _learn(base, Path(root), handbooks, embedder)
        personas = Tally("questions about a person, without documents and with 500 pages beside the facts")
        for persona in read_personas([data_file("everyday")]):
            for name, start in (("without", None), ("with", base)):
                folder = Path(root, "persona")
                if start is not None:
                    shutil.copytree(start, folder)
                await _ask_persona(folder, embedder, persona, name, personas)
                shutil.rmtree(folder)
        pages = Tally("questions about the documents")
        await _ask_handbooks(base, embedder, handbooks, pages)
    return [personas.table(), pages.table()]


async def _learn(folder: Path, root: Path, handbooks: Handbooks, embedder: str) -> None:
    """Learn the handbooks as files."""
    files = root / "handbooks"
    files.mkdir()
    for name, text in handbooks.texts.items():
        file = files / f"{name}.md"
        file.write_text(text, "utf-8")
        os.utime(file, (START.timestamp(), START.timestamp()))
    async with new_memory(StoppedClock(), embedder, folder) as memory:
        learned = await memory.documents.learn_folder(SCOPE, files, lambda _done, _total: None)
        await memory.documents.embed(lambda _done, _total: None)
        pages = {document.title.removesuffix(".md"): document.pages for document in learned.learned}
    if set(pages.values()) != {50}:
        raise RuntimeError(f"each handbook should have 50 pages: {pages}")


async def _ask_persona(folder: Path, embedder: str, persona: Persona, name: str, tally: Tally) -> None:
    clock = StoppedClock()
    async with new_memory(clock, embedder, folder) as memory:
        ids = await store_facts(memory, clock, persona)
        for question in persona.questions:
            result = await _search(memory, question.text)
            answers = {ids[answer] for answer in question.answers}
            ranks = [place for place, hit in enumerate(result.hits, 1) if hit.id in answers]
            found: dict[str, float] = {f"among {depth}": bool(ranks) and ranks[0] <= depth for depth in DEPTHS}
            page_first = bool(result.hits) and result.hits[0].document is not None
            tally.record([f"answerable, {name}"], found | {"a page first": page_first, "confident": result.confident})
            if not found["among 3"]:
                tally.miss(f"{name}: {question.text}", persona.texts[question.answers[0]], result.hits)
        for text in persona.unknown:
            result = await _search(memory, text)
            page_first = bool(result.hits) and result.hits[0].document is not None
            tally.record([f"unknown, {name}"], {"a page first": page_first, "confident": result.confident})


async def _ask_handbooks(folder: Path, embedder: str, handbooks: Handbooks, tally: Tally) -> None:
    clock = StoppedClock()
    async with new_memory(clock, embedder, folder) as memory:
        for persona in read_personas([data_file("everyday")])[:BESIDE]:
            await store_facts(memory, clock, persona)
        for question in handbooks.questions:
            await _ask_page(memory, "of the page", question.question, question, tally)
        for question in handbooks.questions:
            await _ask_page(memory, "of the gist, before it is written", question.about, question, tally)
        await _write_gists(memory, handbooks.questions)
        for question in handbooks.questions:
            await _ask_page(memory, "of the gist", question.about, question, tally)
            await _ask_page(memory, "of the gist, in other words", question.meant, question, tally)
            await _ask_page(memory, "of the page, after the gists", question.question, question, tally)


async def _ask_page(memory: Memory, row: str, text: str, expected: Answered, tally: Tally) -> None:
    place = f"{expected.handbook}.md, page {expected.number}"
    result = await _search(memory, text)
    ranks = [rank for rank, hit in enumerate(result.hits, 1) if str(hit.document) == place]
    found: dict[str, float] = {f"among {depth}": bool(ranks) and ranks[0] <= depth for depth in DEPTHS}
    shown = (await memory.search(SCOPE, text, max_tokens=DEFAULT)).hits
    is_shown = any(str(hit.document) == place and expected.fact in hit.text for hit in shown)
    tally.record([row], found | {"answer shown": is_shown, "confident": result.confident})
    if not found["among 3"]:
        tally.miss(f"{row}: {text}", f"{place}: {expected.fact}", result.hits)


async def _write_gists(memory: Memory, questions: Sequence[Answered]) -> None:
    """Give the pages that answer the gists that a model might write."""
    gists: dict[str, Gist] = {}
    for document in await memory.documents.list(SCOPE):
        _, pages = await memory.documents.pages(SCOPE, document.id)
        for question in questions:
            if f"{question.handbook}.md" == document.title:
                page = pages[question.number - 1]
                gists[page.message.id] = Gist(f"{question.gist} {page.gist}", "scripted")
    engine = memory.engine
    vectors, _ = await embed_texts(engine, [gist.text for gist in gists.values()])
    write = Write(SCOPE, Provenance("gist"), gists=gists, vectors=vectors, embedder=engine.embedder.fingerprint)
    await apply_write(engine, write)


async def _search(memory: Memory, text: str) -> SearchResult:
    return await memory.search(SCOPE, text, limit=LIMIT, max_tokens=AMPLE)


def main() -> None:
    """Measure and print the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--misses", action="store_true", help="print every question whose answer was not among 3")
    embedders.add_option(parser)
    options = parser.parse_args()
    for table in anyio.run(measure, options.embedder):
        print_table(table, misses=options.misses)


if __name__ == "__main__":
    main()
