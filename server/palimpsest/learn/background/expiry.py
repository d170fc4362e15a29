"""Close memories whose time has come: what they say held until then.

A search does not wait for it. Whoever reads memories leaves out those that have expired, closed or not.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, tzinfo
from functools import partial

from palimpsest.core.clock import Precision, parse_date
from palimpsest.core.errors import LedgerError
from palimpsest.core.models import EXPIRE, EXPIRES_AT, Decision, Event, Memory, Provenance, Scope, end_of
from palimpsest.core.protocols import LanguageModel
from palimpsest.learn.apply import apply_write
from palimpsest.learn.engine import Engine
from palimpsest.store.queries import jobs as job_queries
from palimpsest.store.queries.jobs import Job, JobEnd
from palimpsest.store.views.ending import ending_memories, scopes_ending
from palimpsest.store.writes.apply import Write
from palimpsest.store.writes.jobs.queue import JobRequest

logger = logging.getLogger(__name__)


async def expire(engine: Engine, model: LanguageModel | None, job: Job) -> JobEnd:
    """Close the memories of a job's scope that have expired, as one edit, and come back for the next ones."""
    del model  # what somebody said holds until Friday needs no opinion
    now = engine.clock()
    ending = await engine.run(lambda: _ending(engine, job.scope))
    zone = engine.ledger.zones.of(job.scope.user_id)
    expired = [memory for memory, end in ending if end <= now]
    write = Write(
        job.scope,
        Provenance(EXPIRE),
        decisions=tuple(_closed(memory, zone) for memory in expired),
        read={memory.id: memory.revision for memory in expired},
    )
    outcomes = (await apply_write(engine, write)).outcomes if expired else ()
    return JobEnd(outcomes, again_at=min((end for _, end in ending if end > now), default=None))


async def queue_expiry(engine: Engine) -> None:
    """Queue the closing of memories that no job waits for: those of an import, or of an older version.

    A failure is logged. The next start tries again.
    """
    try:
        for scope, end in (await engine.run(lambda: _not_queued(engine))).items():
            await engine.write(partial(engine.ledger.queue_job, scope, JobRequest("expire", due_at=end)))
    except LedgerError as error:
        logger.warning("memories that end at a time are not closed: %s", error)


def _ending(engine: Engine, scope: Scope) -> list[tuple[Memory, datetime]]:
    """Return the living memories of a scope that end at a time, and when."""
    with engine.ledger.read() as conn:
        memories = ending_memories(conn, scope)
    zone = engine.ledger.zones.of(scope.user_id)
    return [(memory, end) for memory in memories if (end := end_of(memory.metadata, zone)) is not None]


def _not_queued(engine: Engine) -> dict[Scope, datetime]:
    """Return the scopes with memories that end at a time and no job for it, and when the first one ends."""
    first: dict[Scope, datetime] = {}
    with engine.ledger.read() as conn:
        for scope, metadata in scopes_ending(conn):
            if (end := end_of(metadata, engine.ledger.zones.of(scope.user_id))) is not None:
                first[scope] = min(end, first.get(scope, end))
        jobs = [job for user in {scope.user_id for scope in first} for job in job_queries.jobs_of(conn, user)]
    queued = {job.scope: job.due_at for job in jobs if job.kind == "expire" and job.state == "waiting"}
    return {scope: end for scope, end in first.items() if scope not in queued or queued[scope] > end}


def _closed(memory: Memory, zone: tzinfo) -> Decision:
    """Return the decision that a memory held until its end. A day, month or year is stored as it is in UTC."""
    named = parse_date(str(memory.metadata[EXPIRES_AT]))
    precision: Precision = "" if named is None else named[1]
    ended_at = end_of(memory.metadata, UTC if precision else zone)
    return Decision(Event.DELETE, memory_id=memory.id, ended_at=ended_at, ended_precision=precision)
