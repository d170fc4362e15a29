"""Entities found without a model, against those that were labelled by hand in `entities.json`.

*Precision*: the share of what was found that is labelled. *Recall*: the share of what is labelled that was found.
*Type*: the share of what was found rightly that has a right type. Names are compared by their keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from measures.hand_written import data_file, read_data
from measures.personas import read_personas
from measures.tables import ALL, Row, Table, described
from palimpsest.core.models import NamedEntity, name_key
from palimpsest.text.names.name_finder import find_names


@dataclass
class _Count:
    found: int = 0
    labelled: int = 0
    right: int = 0
    right_types: int = 0

    def row(self) -> Row:
        return {
            "labelled": self.labelled,
            "precision": self.right / max(self.found, 1),
            "recall": self.right / max(self.labelled, 1),
            "type": self.right_types / max(self.right, 1),
        }


async def entities() -> list[Table]:
    """Look for the entities of each fact alone. Return a table for each part of the labelled facts."""
    data = read_data("entities")
    texts = {
        (persona.name, fact.id): (persona.language, fact.text)
        for persona in read_personas([data_file("everyday")])
        for fact in persona.facts
    }
    return [_table(part, data[part], texts) for part in ("labelled", "check", "fresh", "fresh_second")]


def _table(part: str, facts: list[dict[str, Any]], texts: dict[tuple[str, str], tuple[str, str]]) -> Table:
    table, counts = Table(f"entities, {part}"), dict[str, _Count]()
    for fact in facts:
        stored = texts[fact["persona"], fact["id"]] if "id" in fact else (fact["language"], fact["text"])
        language, text = stored
        found = find_names(text, {})
        pairs = _right(found, fact["entities"])
        for name in (language, ALL):
            count = counts.setdefault(name, _Count())
            count.found += len(found)
            count.labelled += len(fact["entities"])
            count.right += len(pairs)
            count.right_types += sum(entity.type in types.split("|") for entity, types in pairs)
        if not len(pairs) == len(found) == len(fact["entities"]):
            expected = ", ".join(name for name, _ in fact["entities"]) or "nothing"
            table.misses.append(described(text, expected, [", ".join(entity.name for entity in found)]))
    table.figures = {name: count.row() for name, count in counts.items()}
    return table


def _right(found: list[NamedEntity], labelled: list[list[str]]) -> list[tuple[NamedEntity, str]]:
    """Return what was found rightly, each with the types that it may have. A label counts once."""
    open_labels = [({name_key(name) for name in names.split("|")}, types) for names, types in labelled]
    pairs: list[tuple[NamedEntity, str]] = []
    for entity in found:
        label = next((label for label in open_labels if name_key(entity.name) in label[0]), None)
        if label is not None:
            open_labels.remove(label)
            pairs.append((entity, label[1]))
    return pairs
