"""What is known of entities as text, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from palimpsest.core.clock import iso, shown_date
from palimpsest.core.entities import Entity, KnownRelation
from palimpsest.core.models import Memory, Scope
from palimpsest.server.replies.notes import scope_note
from palimpsest.text.control_characters import visible
from palimpsest.text.counting import counted

if TYPE_CHECKING:  # slow to import, and only needed for the annotations
    from palimpsest.facade.graph.graph import Dossier, EntityEdited, ListedEntity

NO_ENTITIES = "no names are known yet; they come with memories"


def entities_text(listed: Sequence[ListedEntity], scope: Scope, limit: int) -> str:
    """Return up to `limit` entities, a line each: name, type, how many memories mention it, and when one last did."""
    lines = [
        f"{_one_line(item.entity.name)} ({item.entity.type}), in {counted(item.mentions, 'memory')}, "
        f"last {shown_date(item.mentioned_at)}"
        for item in listed[:limit]
    ]
    if len(listed) > limit:
        lines.append("(there are more; palimpsest entities lists them)")
    return lines_text(lines or [NO_ENTITIES], scope)


def lines_text(lines: Sequence[str], scope: Scope) -> str:
    """Return lines with the scope below them."""
    return visible("\n".join([*lines, *scope_note(scope)]))


def edited_text(edited: EntityEdited) -> str:
    """Return what an edit of entities did, and how it is undone."""
    if edited.edit is None:
        return visible(f"unchanged: {edited.text}")
    return visible(f"{edited.text}\nedit {edited.edit}; palimpsest undo --change {edited.edit} takes it back")


def entities_json(listed: Sequence[ListedEntity]) -> dict[str, Any]:
    """Return entities as JSON values."""
    return {
        "entities": [
            {**_entity(item.entity), "memories": item.mentions, "mentioned_at": iso(item.mentioned_at)}
            for item in listed
        ]
    }


def dossier_json(dossier: Dossier) -> dict[str, Any]:
    """Return a dossier as JSON values, uncut."""
    return {
        **_entity(dossier.entity),
        "aliases": list(dossier.aliases),
        "holds": [_memory(memory) for memory in dossier.holds],
        "held": [_memory(memory) for memory in dossier.held],
        "memories": dossier.all_holds,
        "former_memories": dossier.all_held,
        "relations": [_relation(item) for item in dossier.relations],
        "two_steps_away": [_relation(item) for item in dossier.further],
        "named_together_with": [{**_entity(other), "memories": count} for other, count in dossier.beside],
    }


def edited_json(edited: EntityEdited) -> dict[str, Any]:
    """Return what an edit of entities did as JSON values."""
    return {"changed": edited.edit is not None, "text": edited.text, "edit": edited.edit}


def _entity(entity: Entity) -> dict[str, Any]:
    return {"id": entity.id, "name": entity.name, "type": entity.type, "is_user": entity.is_user}


def _memory(memory: Memory) -> dict[str, Any]:
    return {
        "id": memory.id,
        "memory": memory.text,
        "date": memory.date,
        "valid_from": memory.since,
        "valid_until": memory.until,
    }


def _relation(item: KnownRelation) -> dict[str, Any]:
    return {
        "source": item.source,
        "relationship": item.relationship,
        "destination": item.destination,
        "valid_from": item.valid_from,
        "valid_until": item.valid_until,
        "holds": item.is_current,
        "memory_id": item.memory_id,
    }


def _one_line(text: str) -> str:
    return " ".join(text.split())
