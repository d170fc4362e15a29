"""The history of memories, and the log of edits, as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from palimpsest.core.models import (
    Edit,
    Event,
    Kind,
    LinkedMemory,
    Memory,
    Message,
    Predecessor,
    Step,
    StepKind,
    Version,
)
from palimpsest.server.replies.models import Instant, LeftOutIfEmpty, LeftOutIfNone, Reply
from palimpsest.server.replies.notes import MAX_ECHO
from palimpsest.text.shorten import shorten


class VersionReply(Reply):
    """One row of a memory's history: the columns of Mem0, and what made the change."""

    id: str
    memory_id: str
    old_memory: str | None
    new_memory: str | None
    event: Event
    created_at: Instant
    updated_at: Instant
    is_deleted: bool
    actor_id: str
    role: str
    stage: str
    model: str
    prompt: str
    caller: str
    change: int
    sources: tuple[str, ...]
    superseded_by: str | None = LeftOutIfNone
    changed: tuple[str, ...] = LeftOutIfEmpty

    @classmethod
    def of(cls, version: Version, changes: Sequence[str] = ()) -> VersionReply:
        """Return the reply for one version. `changes` are what it changed of the labels."""
        made_by = version.provenance
        return cls(
            id=version.id,
            memory_id=version.memory_id,
            old_memory=version.old_memory,
            new_memory=version.new_memory,
            event=version.event,
            created_at=version.created_at,
            updated_at=version.updated_at,
            is_deleted=version.is_deleted,
            actor_id=version.actor_id,
            role=version.role,
            stage=made_by.stage,
            model=made_by.model,
            prompt=made_by.prompt,
            caller=made_by.caller,
            change=version.edit,
            sources=version.sources,
            superseded_by=version.superseded_by,
            changed=tuple(changes),
        )


def with_label_changes(versions: Sequence[Version]) -> Iterator[tuple[Version, list[str]]]:
    """Yield versions with what each changed of the labels: "+tags: home", "-source: crm"."""
    before: frozenset[str] | None = None
    for version in versions:
        if before is None or version.is_deleted:
            yield version, []
        else:
            given, taken = sorted(version.labels - before), sorted(before - version.labels)
            yield version, [*(f"+{label}" for label in given), *(f"-{label}" for label in taken)]
        before = version.labels


class ReplacedReply(Reply):
    """A memory whose place another one took. `valid_until` is until when it held, as exactly as that is known."""

    id: str
    memory: str
    valid_until: str | None
    sources: tuple[str, ...]

    @classmethod
    def of(cls, predecessor: Predecessor) -> ReplacedReply:
        """Return the reply for one replaced memory."""
        old = predecessor.memory
        return cls(id=old.id, memory=old.text, valid_until=old.until or None, sources=predecessor.sources)


class LinkedReply(Reply):
    """A memory that another one is linked with, and why."""

    id: str
    memory: str
    reason: str

    @classmethod
    def of(cls, linked: LinkedMemory) -> LinkedReply:
        """Return the reply for one link."""
        return cls(id=linked.memory.id, memory=linked.memory.text, reason=linked.reason)


class HistoryReply(Reply):
    """The result of `get_history`: the memory as it is now, and its versions, oldest first.

    A long text is whole only where it first stands. Of a message, `memory` is its text, and there are no versions.
    """

    id: str
    kind: Kind | None = LeftOutIfNone
    memory: str
    deleted: bool
    superseded_by: str | None
    valid_from: str | None = LeftOutIfNone
    valid_until: str | None = LeftOutIfNone
    replaced: tuple[ReplacedReply, ...] = LeftOutIfEmpty
    context: str | None = LeftOutIfNone
    linked: tuple[LinkedReply, ...] = LeftOutIfEmpty
    history: tuple[VersionReply, ...]

    @classmethod
    def of(
        cls,
        memory: Memory,
        versions: Sequence[Version],
        predecessors: Sequence[Predecessor],
        linked: Sequence[LinkedMemory],
    ) -> HistoryReply:
        """Return the reply for a memory, what it replaced, what it is linked with, and its versions."""
        return cls(
            id=memory.id,
            memory=memory.text,
            deleted=memory.deleted_at is not None,
            superseded_by=memory.superseded_by,
            valid_from=memory.since or None,
            valid_until=memory.until or None,
            replaced=tuple(map(ReplacedReply.of, predecessors)),
            context=memory.context or None,
            linked=tuple(map(LinkedReply.of, linked)),
            history=tuple(_version_replies(memory, versions)),
        )

    @classmethod
    def of_message(cls, message: Message) -> HistoryReply:
        """Return the reply for a message."""
        deleted = message.deleted_at is not None
        return cls(
            id=message.id, kind="message", memory=message.content, deleted=deleted, superseded_by=None, history=()
        )


def _version_replies(memory: Memory, versions: Sequence[Version]) -> Iterator[VersionReply]:
    """Yield the reply for each version. Texts that stand in the reply before are shortened."""
    texts = {memory.text}

    def once(text: str | None) -> str | None:
        return shorten(text, MAX_ECHO) if text is not None and text in texts else text

    for version, changes in with_label_changes(versions):
        reply = VersionReply.of(version, changes)
        yield reply.model_copy(update={"old_memory": once(reply.old_memory), "new_memory": once(reply.new_memory)})
        texts |= {text for text in (version.old_memory, version.new_memory) if text is not None}


class StepReply(Reply):
    """What an edit did to one memory, message or entity."""

    kind: StepKind
    id: str
    event: Event
    before: str | None
    after: str | None

    @classmethod
    def of(cls, step: Step) -> StepReply:
        """Return the reply for one step."""
        return cls(kind=step.kind, id=step.owner_id, event=step.event, before=step.before, after=step.after)


class EditReply(Reply):
    """What one write changed. `change` is the number that `palimpsest undo --change` takes."""

    change: int
    at: Instant
    stage: str
    model: str
    caller: str
    steps: tuple[StepReply, ...]

    @classmethod
    def of(cls, edit: Edit) -> EditReply:
        """Return the reply for one edit."""
        return cls(
            change=edit.number,
            at=edit.made_at,
            stage=edit.provenance.stage,
            model=edit.provenance.model,
            caller=edit.provenance.caller,
            steps=tuple(map(StepReply.of, edit.steps)),
        )


class EditsReply(Reply):
    """The log of edits, newest first."""

    changes: tuple[EditReply, ...]

    @classmethod
    def of(cls, edits: Sequence[Edit]) -> EditsReply:
        """Return the reply for a list of edits."""
        return cls(changes=tuple(map(EditReply.of, edits)))
