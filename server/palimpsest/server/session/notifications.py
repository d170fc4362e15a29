"""Tell clients which resources a write changed."""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.core.models import Outcome
from palimpsest.core.search.hits import ChangedMemory
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
    subscribers.note_told((outcome.memory.id, outcome.memory.revision) for outcome in outcomes)
    for number, outcome in enumerate(outcomes):
        replaced = zip(outcome.replaced, outcome.replaced_projects, strict=True)
        for memory_id, project in ((outcome.memory.id, outcome.memory.scope.project), *replaced):
            user = outcome.memory.scope.user_id
            uris = uris_by_project.setdefault((user, project), [f"{SCHEME}{name}" for name in LISTS])
            if number < MAX_ANNOUNCED:
                uris += [f"{SCHEME}{memory_id}", f"{SCHEME}{memory_id}/history"]
    for (user, project), uris in uris_by_project.items():
        await subscribers.notify(uris, user, project)


async def notify_heard(subscribers: Subscribers, changed: Sequence[ChangedMemory]) -> None:
    """Notify subscribers of memories that any server has changed, but not of what `notify_changed` told them."""
    uris_by_project: dict[tuple[str, str], list[str]] = {}
    for memory in changed:
        if not subscribers.was_told(memory.id, memory.revision):
            lists = [f"{SCHEME}{name}" for name in LISTS]
            uris = uris_by_project.setdefault((memory.user_id, memory.project), lists)
            uris += [f"{SCHEME}{memory.id}", f"{SCHEME}{memory.id}/history"]
    for (user, project), uris in uris_by_project.items():
        await subscribers.notify(list(dict.fromkeys(uris)), user, project)
