"""Tell clients which resources a write changed."""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.core.models import Outcome
from palimpsest.server.session.subscriptions import SCHEME, Subscribers

SUMMARY = "summary"
RECENT = "recent"
ENTITIES = "entities"
"""Names that stand in `memory://{id}` in place of an id. These resources always exist."""

LISTS = (RECENT, SUMMARY, ENTITIES)

MAX_ANNOUNCED = 100
"""The number of changed memories that one write announces individually."""


async def notify_changed(subscribers: Subscribers, outcomes: Sequence[Outcome]) -> None:
    """Notify subscribers of the resources that a write changed: the lists, the memories and their histories."""
    uris_by_project: dict[tuple[str, str], list[str]] = {}
    for number, outcome in enumerate(outcomes):
        replaced = zip(outcome.replaced, outcome.replaced_projects, strict=True)
        for memory_id, project in ((outcome.memory.id, outcome.memory.scope.project), *replaced):
            user = outcome.memory.scope.user_id
            uris = uris_by_project.setdefault((user, project), [f"{SCHEME}{name}" for name in LISTS])
            if number < MAX_ANNOUNCED:
                uris += [f"{SCHEME}{memory_id}", f"{SCHEME}{memory_id}/history"]
    for (user, project), uris in uris_by_project.items():
        await subscribers.notify(uris, user, project)
