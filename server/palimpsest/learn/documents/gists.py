"""The gist of each page: its most central sentences at once, and what a model writes of it later, in the background."""

from __future__ import annotations

import re
from collections.abc import Sequence

from palimpsest.core.errors import ModelError, PromptError
from palimpsest.core.models import PAGE, Message, Provenance
from palimpsest.core.protocols import LanguageModel
from palimpsest.learn.apply import apply_write, embed_texts
from palimpsest.learn.documents.split import sentences, trails
from palimpsest.learn.engine import Engine
from palimpsest.learn.views.extractive import Passage, most_telling
from palimpsest.llm.views.gist import write_gist
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries.jobs import Job, JobEnd
from palimpsest.store.views import documents as document_queries
from palimpsest.store.views import gists as gist_rows
from palimpsest.store.views.gists import Gist
from palimpsest.store.writes.apply import Write

GIST_TOKENS = 80
"""How long a gist without a model is. Set by hand: two or three sentences, a tenth of a page."""

MIN_SENTENCE_CHARS = 20
"""A shorter line says too little by itself. Set by hand: shorter are list items and captions."""

PAGES_AT_ONCE = 10
"""After so many pages other jobs have their turn. Set by hand: less than a minute of a model."""

_WRAP = re.compile(r"(?<=[^\n])\n(?=[^\s#|>`*+\-\d])")
"""A line break within a paragraph, which ends no sentence."""

TRAIL = " › "  # noqa: RUF001 - the sign between headings


def plain_gist(page: str, headings: Sequence[str]) -> Gist:
    """Return the headings that a page stands under and its most central sentences, in their order, without a model."""
    lines = [" ".join(sentence.split()) for sentence in sentences(_WRAP.sub(" ", page))]
    told = [line for line in lines if len(line) >= MIN_SENTENCE_CHARS and not line.startswith(("#", "|", "```"))]
    chosen = sorted(most_telling([Passage(line) for line in told], GIST_TOKENS))
    text = " ".join(told[place] for place in chosen)
    return Gist(": ".join(filter(None, (TRAIL.join(headings), text))))


async def write_gists(engine: Engine, model: LanguageModel, job: Job) -> JobEnd:
    """Write the gists of the pages of a job that no model has written yet, a few of them at once."""
    waiting = await engine.run(lambda: _waiting(engine, job))
    prompt = engine.prompts.get("gist")
    for page, title, headings in waiting[:PAGES_AT_ONCE]:
        try:
            text = await write_gist(model, prompt, title=title, headings=headings, page=page.content)
        except (ModelError, PromptError) as error:
            return JobEnd(error=error)
        gist = Gist(text, model.name, prompt.fingerprint)
        vectors, _ = await embed_texts(engine, [text])  # what cannot be embedded now waits for the background
        write = Write(
            page.scope,
            Provenance("gist", model.name, prompt.fingerprint),
            gists={page.id: gist},
            vectors=vectors,
            embedder=engine.embedder.fingerprint,
        )
        await apply_write(engine, write)
    return JobEnd(is_unfinished=len(waiting) > PAGES_AT_ONCE)


def _waiting(engine: Engine, job: Job) -> list[tuple[Message, str, Sequence[str]]]:
    """Return the living pages of a job that no model wrote a gist of, with their titles and headings."""
    with engine.ledger.read() as conn:
        known = gist_rows.of_pages(conn, job.message_ids)
        without = [page for page in job.message_ids if page not in known or not known[page].model]
        found = message_queries.messages_by_id(conn, without)
        places = document_queries.places(conn, without)
        living = [found[page] for page in without if page in found and found[page].deleted_at is None]
        return [(page, places[page.id].title, trails([page.content])[0]) for page in living if page.role == PAGE]
