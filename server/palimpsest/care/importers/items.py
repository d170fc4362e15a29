"""The conversations, messages and memories of another tool's file as items of the export format.

The id of an item is derived from the tool, the scope and what identifies the item, so a second import recognizes it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from palimpsest.care.importers.records import ImportedFile, ImportedMemory, ImportedMessage
from palimpsest.core.models import MAX_SCOPE_CHARS, Event, Scope
from palimpsest.core.validation import one_line
from palimpsest.learn.sanitize import Cleaner
from palimpsest.store.writes.conversations import MAX_TITLE_CHARS, session_id_of

NAMESPACE = uuid.UUID("5b1f9a34-0a52-4a0e-9d0c-6a8f0f2c9b1e")


def items_of(imported: ImportedFile, scope: Scope, cleaner: Cleaner, now: datetime) -> list[dict[str, Any]]:
    """Return each conversation, message and memory of a file as an item for `scope`, without secrets.

    `now` is when they are imported, which is the time of the edit. All other times are those of the content.
    """
    memories = (_memory_item(imported.format, memory, scope, cleaner) for memory in imported.memories)
    items = [*_conversation_items(imported, scope, cleaner), *memories]
    for version in (version for item in items for version in item.get("history", ())):
        version["recorded_at"] = now
    return items


def derived_id(*parts: str) -> str:
    """Return the UUID that belongs to these texts: always the same one."""
    return str(uuid.uuid5(NAMESPACE, "\0".join(parts)))


def _conversation_items(imported: ImportedFile, scope: Scope, cleaner: Cleaner) -> Iterator[dict[str, Any]]:
    """Yield every conversation and, after it, its messages, which are one session however long it paused."""
    for conversation in imported.conversations:
        first = conversation.messages[0]
        external_id = one_line(cleaner.text(conversation.id))[:MAX_SCOPE_CHARS]
        known_by = external_id or _message_id(imported, first, scope)
        session_id = session_id_of(scope, imported.format, known_by)
        yield {
            "type": "conversation",
            "session_id": session_id,
            "project": scope.project,
            "agent_id": scope.agent_id,
            "run_id": scope.run_id,
            "client": imported.format,
            "external_id": external_id,
            "title": one_line(cleaner.text(conversation.title))[:MAX_TITLE_CHARS],
            "created_at": first.said_at,
        }
        for message in conversation.messages:
            yield _message_item(message, scope, _message_id(imported, message, scope), session_id, cleaner)


def _message_id(imported: ImportedFile, message: ImportedMessage, scope: Scope) -> str:
    return derived_id(imported.format, str(scope), message.id, message.said_at.isoformat(), message.content)


def _message_item(
    message: ImportedMessage, scope: Scope, message_id: str, session_id: str, cleaner: Cleaner
) -> dict[str, Any]:
    added = {"event": Event.ADD.value, "updated_at": message.said_at, "stage": "import", "caller": "cli", "change": 1}
    return {
        "type": "turn",
        "id": message_id,
        "project": scope.project,
        "agent_id": scope.agent_id,
        "run_id": scope.run_id,
        "role": message.role,
        "name": one_line(cleaner.text(message.name))[:MAX_SCOPE_CHARS],
        "content": cleaner.text(message.content),
        "external_id": one_line(cleaner.text(message.id))[:MAX_SCOPE_CHARS],
        "session_id": session_id,
        "said_at": message.said_at,
        "created_at": message.said_at,
        "learnt": False,
        "deleted_at": None,
        "history": [added],
    }


def _memory_item(tool_format: str, memory: ImportedMemory, scope: Scope, cleaner: Cleaner) -> dict[str, Any]:
    first, last = memory.versions[0], memory.versions[-1]
    texts = [None if version.text is None else cleaner.text(version.text) for version in memory.versions]
    text = next((version_text for version_text in reversed(texts) if version_text), "")
    deleted_at = last.at if last.text is None else None
    metadata = cleaner.value(dict(memory.metadata))
    # The time is not part of the id: a memory without a time of its own gets that of the import.
    memory_id = derived_id(tool_format, str(memory.metadata.get("mem0_id") or text), str(scope))
    labels: dict[str, Any] = {"metadata": metadata, "keywords": [], "tags": [cleaner.text(tag) for tag in memory.tags]}
    labels |= {"happened_at": None, "happened_precision": ""}
    return {
        "type": "memory",
        "id": memory_id,
        "project": scope.project,
        "agent_id": scope.agent_id,
        "run_id": scope.run_id,
        "text": text,
        **labels,
        "actor_id": "",
        "role": "",
        "stated_at": last.at,
        "valid_from": None,
        "valid_from_precision": "",
        "valid_until": None,
        "valid_until_precision": "",
        "created_at": first.at,
        "updated_at": last.at,
        "deleted_at": deleted_at,
        "superseded_by": None,
        "is_forgotten": deleted_at is not None,
        "revision": len(memory.versions),
        "history": _history_rows(memory, memory_id, texts, labels),
        "sources": [],
    }


def _history_rows(
    memory: ImportedMemory, memory_id: str, texts: Sequence[str | None], labels: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return one row of history per version. All rows of an import belong to one edit."""
    return [
        {
            "id": derived_id(memory_id, str(index)),
            "old_memory": next((previous for previous in reversed(texts[:index]) if previous), None),
            "new_memory": text,
            "event": version.event.value,
            "created_at": memory.versions[0].at,
            "updated_at": version.at,
            "is_deleted": text is None,
            "actor_id": "",
            "role": "",
            "state": {**labels, "stated_at": version.at.isoformat(), "valid_from": None, "superseded_by": None},
            "stage": "import",
            "model": "",
            "prompt": "",
            "caller": "cli",
            "change": 1,
        }
        for index, (version, text) in enumerate(zip(memory.versions, texts, strict=True))
    ]
