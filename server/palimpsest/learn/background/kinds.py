"""The kinds of jobs: what does the work of each, and whether it needs a language model.

A function gets the engine, the model and the job, and returns how far it came. It may be killed at any time, and may be
called again for what it has done. So it looks at what is left to do, and each of its writes is a whole. Work on many
memories or pages stops after some calls of the model, with `is_unfinished`, so that other jobs have their turn. The
model counts its calls, and raises DailyLimitError in place of one that is too many, which the function lets pass.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from palimpsest.core.protocols import LanguageModel
from palimpsest.learn.background.expiry import expire
from palimpsest.learn.background.learning import learn
from palimpsest.learn.documents.gists import write_gists
from palimpsest.learn.engine import Engine
from palimpsest.learn.links.job import link
from palimpsest.learn.views.job import summarize_due
from palimpsest.store.queries.jobs import Job, JobEnd, JobKind

Ask: TypeAlias = Callable[[Engine, LanguageModel, Job], Awaitable[JobEnd]]
Work: TypeAlias = Callable[[Engine, LanguageModel | None, Job], Awaitable[JobEnd]]


@dataclass(frozen=True, slots=True)
class NeedsModel:
    """Work that waits until there is a language model."""

    work: Ask


@dataclass(frozen=True, slots=True)
class NeedsNoModel:
    """Work that is done without a language model too. It gets None if there is none."""

    work: Work


KINDS: Mapping[JobKind, NeedsModel | NeedsNoModel] = {
    "learn": NeedsModel(learn),
    "capture": NeedsModel(learn),
    "expire": NeedsNoModel(expire),
    "summarize": NeedsModel(summarize_due),
    "link": NeedsNoModel(link),
    "gist": NeedsModel(write_gists),
}


def kinds_for(model: LanguageModel | None) -> tuple[JobKind, ...]:
    """Return the kinds that can be worked on with a model, or without one."""
    return tuple(kind for kind, entry in KINDS.items() if model is not None or isinstance(entry, NeedsNoModel))


async def do(engine: Engine, model: LanguageModel | None, job: Job) -> JobEnd:
    """Do the work of a job and return how far it came. Raises what the work raises."""
    entry = KINDS[job.kind]
    if isinstance(entry, NeedsNoModel):
        return await entry.work(engine, model, job)
    if model is None:
        raise ValueError(f"a job of the kind {job.kind} was begun without a model")
    return await entry.work(engine, model, job)
