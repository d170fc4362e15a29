"""What a model finds in the messages of a project goes where it belongs: what is about a person, to all projects."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.core.models import Scope
from tests.support.learning_jobs import memory_learning, model, next_news
from tests.support.memory import memory_in, messages_from

pytestmark = pytest.mark.anyio

ATLAS = Scope("alice", project="atlas")


async def test_a_job_that_learns_later_knows_whether_the_project_was_named(tmp_path: Path) -> None:
    async with memory_learning(model, tmp_path) as (memory, _):
        for name, stays in (("atlas", False), ("beta", True)):
            scope = Scope("alice", project=name)
            fact = f"User is allergic to the dust of {name}"
            await memory.add_messages(messages_from(("user", fact), scope=scope), stays_in_project=stays)
            await next_news(memory, scope)
        everywhere = await memory.list(Scope("alice"))
    assert [hit.text for hit in everywhere.hits] == ["User is allergic to the dust of atlas"]


@pytest.mark.parametrize(
    ("text", "home"),
    [
        ("User does not like small pull requests any more", ""),
        ("User doesn't drink coffee now", ""),
        ("Luis left the company", "atlas"),
        ("Luis works from Lisbon this week", "atlas"),
        ("Luis is allergic to cats", ""),
        ("Luis is married to Nadia", ""),
        ("Maite left the company", ""),
        ("Nadia works for the city", ""),
    ],
)
async def test_the_work_of_somebody_whom_the_project_alone_knows_stays_in_it(
    tmp_path: Path, text: str, home: str
) -> None:
    """A namesake is not made outside. Health, family and taste are general, and so is all of the user."""
    async with memory_in(tmp_path) as memory:
        for project, known in (("atlas", "Luis Ortega reviews all changes"), ("", "Maite is the sister of the user")):
            await memory.add_text(Scope("alice", project=project), known)
        scope = await memory.home_of(ATLAS, text, (), ())
    assert scope.project == home
