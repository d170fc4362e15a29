"""What the lines of an exported memory must have in common: ids that are in it once, and entities that are in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class LinesSoFar:
    """The ids of the lines that were read, the project of each entity, and whether one is the user.

    `edited` are the entities that edits tell of, which may come later.
    """

    ids: set[str] = field(default_factory=set[str])
    entities: dict[str, str] = field(default_factory=dict[str, str])
    has_user: bool = False
    edited: set[str] = field(default_factory=set[str])

    def fault(self, item: dict[str, Any]) -> str:
        """Remember a line, and return what does not fit the lines before it, or ""."""
        for item_id in _ids_in(item):
            if item_id in self.ids:
                return f"the id {item_id} is in the file twice"
            self.ids.add(item_id)
        named = [mention["entity_id"] for mention in item.get("mentions", ())]
        if item["type"] == "entity":
            named += [item["merged_into"]] if item["merged_into"] else []
            if item["is_user"] and self.has_user:
                return "the file has two entities of the user"
            self.has_user |= item["is_user"]
            self.entities[item["id"]] = item["project"]
            self.edited.update(entity_id for row in item["history"] for entity_id in _edited(row))
        for entity_id in named:
            if entity_id not in self.entities or entity_id == item["id"]:
                return f"no entity {entity_id} comes before this line"
            if self.entities[entity_id] not in ("", item["project"]):
                return f"the entity {entity_id} belongs to another project"
        return ""

    def fault_at_end(self) -> str:
        """Return what the lines together lack, or ""."""
        missing = sorted(self.edited - self.entities.keys())
        return f"an edit tells of the entity {missing[0]}, which is not in the file" if missing else ""


def _edited(row: dict[str, Any]) -> Iterator[str]:
    """Yield the entities that an edit tells of."""
    for part, *names, value in (*row["before"], *row["after"]):
        if part != "mention":
            yield names[0]
        if part == "mention" or (names[1] == "merged_into" and value is not None):
            yield value


def _ids_in(item: dict[str, Any]) -> list[str]:
    """Return the ids in an item: its own and those of its versions. Other rows of history have none."""
    return [item["id"], *(row["id"] for row in item["history"] if "id" in row)] if "id" in item else []
