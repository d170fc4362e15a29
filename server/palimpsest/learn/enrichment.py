"""Give old memories hints: a person asks for it, and the background does it with a model, a few memories at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from palimpsest.core.errors import DailyLimitError, InputError, StaleDecisionError
from palimpsest.core.models import ENRICH, Decision, Event, Fact, Memory, Provenance, Scope, key_text
from palimpsest.core.protocols import LanguageModel
from palimpsest.learn.commit import apply_decisions, embed_texts
from palimpsest.learn.edit import with_labels
from palimpsest.learn.engine import Engine
from palimpsest.learn.linking import BACKGROUND, MAX_TRIES
from palimpsest.learn.sanitize import Cleaner
from palimpsest.llm import enrich as stage
from palimpsest.store import history
from palimpsest.store import jobs as job_queries
from palimpsest.store.jobs import EDIT, Job, JobEnd
from palimpsest.text.display import counted
from palimpsest.text.redaction import is_marker

AT_ONCE = 12
"""How many memories one call of the model is about: with their hints about a thousand tokens, so that a small model
keeps to the form."""


@dataclass(frozen=True, slots=True)
class Enrichment:
    """How many memories have no hints, how many of them get some, in how many calls of a model, and by which edit.

    `edit` is 0 if nothing was queued.
    """

    without: int
    chosen: int
    edit: int = 0

    @property
    def calls(self) -> int:
        """Return how often a model is asked, if each of its replies can be used."""
        return -(-self.chosen // AT_ONCE)


async def queue_enrichment(engine: Engine, scope: Scope, limit: int | None, *, dry_run: bool) -> Enrichment:
    """Queue the newest memories that a scope sees and that have no hints, at most `limit`; with `dry_run` count them.

    Raises InputError if there is no model that the background can ask.
    """
    without = await engine.read(lambda conn: history.without_hints(conn, scope))
    chosen = without[:limit]
    if dry_run or not chosen:
        return Enrichment(len(without), len(chosen))
    if engine.own_model is None:
        raise InputError(
            "there is no language model to write hints, so nothing was queued. palimpsest setup chooses one. Without "
            "one, a connected agent can give a memory hints with update_memory"
        )
    ledger, user = engine.ledger, scope.user_id
    edit = await engine.write(lambda: ledger.run_for(user, job_queries.queue_enrichment, scope, chosen, ledger.clock()))
    return Enrichment(len(without), len(chosen), edit)


async def enrich(engine: Engine, model: LanguageModel, job: Job) -> JobEnd:
    """Give the next memories of a job hints. What a run does is one edit, whose number the job has.

    Raises ModelError, PromptError and LedgerError; what was done so far is kept.
    """
    edit = int(job.payload[EDIT])
    waiting = await engine.read(lambda conn: history.left_to_enrich(conn, job.memory_ids, edit))
    prompt = engine.prompts.get("enrich")
    provenance = Provenance(ENRICH, model.name, prompt.fingerprint, BACKGROUND)
    for start in range(0, len(waiting), AT_ONCE):
        piece = waiting[start : start + AT_ONCE]
        try:
            found = await stage.enrich(model, prompt, piece)
        except DailyLimitError as error:
            left = counted(len(waiting) - start, "memory")
            raise DailyLimitError(f"{error} {left} still to get hints.") from error
        hints = await engine.run(partial(_cleaned, engine, found))
        if await _give(engine, job.scope, edit, piece, hints, provenance):
            return JobEnd(is_unfinished=start + AT_ONCE < len(waiting))
        # Without any, the next attempt would begin with the same ones.
    return JobEnd()


def _cleaned(engine: Engine, found: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return hints without secrets, and without those that were nothing else."""
    clean = Cleaner(engine).text
    cleaned = {
        memory_id: tuple(dict.fromkeys(text for text in map(clean, hints) if not is_marker(text)))
        for memory_id, hints in found.items()
    }
    return {memory_id: hints for memory_id, hints in cleaned.items() if hints}


async def _give(
    engine: Engine,
    scope: Scope,
    edit: int,
    memories: Sequence[Memory],
    hints: Mapping[str, tuple[str, ...]],
    provenance: Provenance,
) -> bool:
    """Give memories hints and return whether any got some. What changed since the model was asked stays as it is."""
    keys = [key_text(each.text, hints[each.id]) for each in memories if each.id in hints]
    vectors, _ = await embed_texts(engine, keys)  # what cannot be embedded now waits for the background
    revisions = {each.id: each.revision for each in memories}
    for _ in range(MAX_TRIES):
        present = await engine.read(lambda conn: history.left_to_enrich(conn, list(hints), edit))
        same = [each for each in present if each.revision == revisions[each.id]]
        decisions = [
            Decision(Event.UPDATE, with_labels(each, Fact(""), each.tags, hints[each.id]), each.id, sets_labels=True)
            for each in same
        ]
        if not decisions:
            return False
        read = {each.id: each.revision for each in same}
        try:
            await apply_decisions(engine, scope, decisions, provenance, vectors=vectors, read=read, edit=edit)
        except StaleDecisionError:
            continue
        return True
    raise StaleDecisionError("memories kept changing while hints were written for them")
