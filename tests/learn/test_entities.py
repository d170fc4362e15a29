"""Names that look like another's are proposed as the same and stay two; spellings of one name are one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palimpsest.core.models import Relation, Scope
from tests.support.memory import ALICE, add_text, memory_in

pytestmark = pytest.mark.anyio

NAMES = json.loads((Path(__file__).parents[1] / "text" / "names" / "names.json").read_text("utf-8"))


async def test_lookalikes_are_proposed_until_somebody_says_what_they_are(tmp_path: Path) -> None:
    """They are told when the second one is stored, and in what is known of either. No edit is made by itself."""
    async with memory_in(tmp_path) as memory:
        await add_text(memory, "Ana García plays chess")
        first, second = "Ana García", "Ana Garcia"
        (note,) = (await memory.add_text(ALICE, "Ana Garcia has a van", infer=False)).notes
        assert note.startswith("Ana Garcia may be the same as Ana García [")
        assert len(await memory.log(ALICE)) == 2
        for name, other in ((first, second), (second, first)):
            (dossier,) = await memory.graph.dossiers(ALICE, name)
            assert [entity.name for entity in dossier.lookalikes] == [other]
            assert f"May be the same as {other} (person) [" in (await memory.summary(ALICE, f"about:{name}")).text
        await memory.graph.merge(ALICE, second, first)
        (dossier,) = await memory.graph.dossiers(ALICE, first)
        assert dossier.lookalikes == ()
        assert len(dossier.holds) == 2
        await memory.undo(ALICE)
        (dossier,) = await memory.graph.dossiers(ALICE, first)
        assert dossier.lookalikes == (), "whoever took the merge back has said that they are two"


async def test_two_that_one_memory_names_are_two(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        assert (
            await memory.add_text(ALICE, "Ana García and her neighbour Ana Garcia play chess together", infer=False)
        ).notes == ()
        (dossier,) = await memory.graph.dossiers(ALICE, "Ana García")
        assert dossier.lookalikes == ()


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(("kind", "entities", "told"), [("same", 2, 0), ("maybe", 3, 1), ("different", 3, 0)])
async def test_spellings_are_one_and_lookalikes_are_told(tmp_path: Path, kind: str, entities: int, told: int) -> None:
    """The pairs were written by somebody who had not seen how names are compared."""
    async with memory_in(tmp_path) as memory:
        for number, (first, second) in enumerate(NAMES[kind]):
            scope = Scope(f"user{number}")
            for name, text in ((first, "one of them plays chess"), (second, "somebody plays chess on Monday")):
                relations = [Relation(name, "plays", "chess")]
                added = await memory.add_text(scope, text, infer=False, relations=relations)
            assert len(await memory.graph.entities(scope)) == entities, (first, second)
            assert sum("may be the same as" in note for note in added.notes) == told, (first, second)


@pytest.mark.parametrize(
    ("first", "second", "note"),
    [
        ("Marta plays chess", "Marta Lindqvist lives in Lund", "Marta Lindqvist may be the same as Marta ["),
        ("Petra Holm is our tax adviser", "Petra called about it", "Petra may be the same as Petra Holm ["),
        ("Marta plays chess", "Martina Lindqvist lives in Lund", ""),
        ("Anna Holm sells tea", "Petra Holm is our tax adviser", ""),
    ],
)
async def test_a_first_name_may_be_that_of_somebody_known_by_both(
    tmp_path: Path, first: str, second: str, note: str
) -> None:
    async with memory_in(tmp_path) as memory:
        await add_text(memory, first)
        notes = (await memory.add_text(ALICE, second, infer=False)).notes
    assert [one[: len(note)] for one in notes] == ([note] if note else [])
