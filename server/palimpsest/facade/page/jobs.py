"""The jobs that a visitor may see: those of the scope, with what became of them."""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.core.models import Scope
from palimpsest.learn.background import reports
from palimpsest.learn.background.reports import JobReport
from palimpsest.learn.engine import Engine


async def jobs_seen(engine: Engine, scope: Scope, limit: int) -> Sequence[JobReport]:
    """Return up to `limit` jobs that a scope sees, the newest first. Raises LedgerError."""
    return await engine.run(lambda: reports.reports_seen(engine, scope, limit))
