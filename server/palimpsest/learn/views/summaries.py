"""The summary of a scope: refreshed in the background after a number of changes, and on demand."""

from __future__ import annotations

from dataclasses import dataclass

from palimpsest.core.errors import ModelError, PromptError
from palimpsest.core.models import Provenance, Scope, Summary
from palimpsest.core.protocols import LanguageModel
from palimpsest.learn.engine import Engine
from palimpsest.learn.views.about.text import ABOUT, text_about
from palimpsest.learn.views.kinds import Material, SummaryKind, SummaryRequest
from palimpsest.learn.views.registry import kind_named
from palimpsest.llm.views.summarize import summarize
from palimpsest.store.queries import index_log as log_queries
from palimpsest.store.queries import summaries as summary_queries
from palimpsest.store.writes.apply import Write


@dataclass(frozen=True, slots=True)
class SummaryResult:
    """A summary for the caller. `changes_since` is how many changes of memories were made since it was written.

    `lines` are what a text about an entity rests on.
    """

    text: str
    kind: str
    changes_since: int
    notes: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()


async def get_summary(engine: Engine, scope: Scope, kind: str, *, refresh: bool, caller: str) -> SummaryResult:
    """Return the summary of a kind. It is written now if it is missing, or if it is outdated and `refresh` is set.

    If no model answers, return a list of the newest memories, with a note. The kind "about:NAME" is what is known about
    somebody or something, and never outdated. Raises InputError for an unknown kind or name.
    """
    kind = kind.strip()
    if kind.lower().startswith(ABOUT):
        known = await text_about(engine, scope, kind[len(ABOUT) :], caller)
        return SummaryResult(known.text, kind, 0, known.notes, known.lines)
    view, argument = kind_named(kind)
    ask = SummaryRequest(scope, argument, engine.clock(), engine.embedder.fingerprint)
    last, missed, is_outdated = await engine.run(lambda: _last(engine, scope, _stored_as(view, argument)))
    if engine.model is None:
        if last is not None and not missed:  # written while there was a model, and nothing has changed since
            return SummaryResult(last.text, view.name, 0)
        return await _plain(engine, view, ask, "there is no language model to ask")
    # A summary that may say what was deleted, replaced or reworded since is not returned again.
    is_stale = is_outdated or (refresh and (missed > 0 or view.ages))
    if last is not None and not is_stale:
        return SummaryResult(last.text, view.name, missed)
    try:
        text = await write_summary(engine, engine.model, view, ask, caller)
    except (ModelError, PromptError) as error:
        if last is None or is_outdated:
            return await _plain(engine, view, ask, f"the summary could not be written ({error})")
        return SummaryResult(last.text, view.name, missed, (f"the summary could not be refreshed: {error}",))
    if text is None:
        return await _plain(engine, view, ask, "nothing was learned yet")
    return SummaryResult(text, view.name, 0)


async def _plain(engine: Engine, view: SummaryKind, ask: SummaryRequest, reason: str) -> SummaryResult:
    plain = await engine.read(lambda conn: view.plain(conn, ask))
    notes = (f"{reason}: these are the {plain.of} themselves",) if plain.of else ()
    return SummaryResult(plain.text, view.name, 0, notes)


async def write_summary(
    engine: Engine, model: LanguageModel, view: SummaryKind, ask: SummaryRequest, caller: str
) -> str | None:
    """Write a new summary and return it; None if there is nothing to summarize.

    Raises ModelError and PromptError; the last summary is kept then.
    """
    seq, material = await engine.run(lambda: _material(engine, view, ask))
    if material.is_empty:
        return None
    prompt = engine.prompts.get(view.prompt)
    kind = _stored_as(view, ask.argument)
    await engine.report_progress(f"asking the model for the summary of {len(material.memories)} memories")
    text = await summarize(
        model,
        prompt,
        kind=kind,
        previous=material.previous,
        memories=material.memories,
        messages=material.messages,
        now=ask.now,
    )
    made = Summary(ask.scope, kind, text, seq, ask.now, material.sources, material.message_ids)
    write = Write(ask.scope, Provenance("summarize", model.name, prompt.fingerprint, caller), summary=made)
    await engine.write(lambda: engine.ledger.apply(write))
    return text


async def missed_changes(engine: Engine, scope: Scope, kind: str) -> int:
    """Return how many changes of memories were made since the summary of a scope was written."""
    _, missed, _ = await engine.run(lambda: _last(engine, scope, kind))
    return missed


def _last(engine: Engine, scope: Scope, kind: str) -> tuple[Summary | None, int, bool]:
    """Return the last summary, how many changes were made since, and whether it may say what no longer holds."""
    with engine.ledger.read() as conn:
        last = summary_queries.latest_summary(conn, scope, kind)
        missed = summary_queries.count_changes_since(conn, scope, last.seq if last else 0)
        return last, missed, last is not None and summary_queries.current_summary(conn, scope, kind) is None


def _material(engine: Engine, view: SummaryKind, ask: SummaryRequest) -> tuple[int, Material]:
    """Return the end of the index log, and what the summary is made from."""
    with engine.ledger.read() as conn:
        return log_queries.newest_log_number(conn), view.material(conn, ask)


def _stored_as(view: SummaryKind, argument: str) -> str:
    """Return the kind under which the ledger keeps a summary, such as day:2026-11-21."""
    return f"{view.name}:{argument}" if argument else view.name
