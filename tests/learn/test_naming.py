"""What memories name is found without a model. Lookalikes are proposed as the same and stay two."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import Relation, Scope
from palimpsest.core.validation import relations_from
from palimpsest.memory import Memory
from tests.support.ledger_access import store_memory
from tests.support.memory import ALICE, add_text

pytestmark = pytest.mark.anyio

NAMES = json.loads((Path(__file__).parents[1] / "text" / "names" / "names.json").read_text("utf-8"))


async def test_lookalikes_are_proposed_until_somebody_says_what_they_are(memory: Memory) -> None:
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


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(("kind", "entities", "told"), [("same", 2, 0), ("maybe", 3, 1), ("different", 3, 0)])
async def test_spellings_are_one_and_lookalikes_are_told(memory: Memory, kind: str, entities: int, told: int) -> None:
    for number, (first, second) in enumerate(NAMES[kind]):
        scope = Scope(f"user{number}")
        store_memory(memory, "one of them plays chess", scope=scope, relations=(Relation(first, "plays", "chess"),))
        relations = [Relation(second, "plays", "chess")]
        text = "somebody plays chess on Monday"
        added = await memory.add_text(scope, text, infer=False, relations=relations)
        assert len(await memory.graph.entities(scope)) == entities, (first, second)
        assert sum("may be the same as" in note for note in added.notes) == told, (first, second)


async def test_a_first_name_is_the_full_name_that_stands_beside_it(memory: Memory) -> None:
    """What a text calls Tom, its relation calls Tom Reyes. The user's own first name is the user."""
    await add_text(memory, "Odile Farrow, the user, is a bookbinder")
    children = [Relation("user", "has child", "Tom Reyes"), Relation("user", "has child", "Ida Reyes")]
    await memory.add_text(ALICE, "Odile has two children, Tom and Ida", relations=children, infer=False)
    await add_text(memory, "Tom is allergic to peanuts")
    assert "peanuts" in (await memory.summary(ALICE, "about:Tom Reyes")).text
    own = (await memory.summary(ALICE, "about:Odile")).text
    assert own.startswith("Odile Farrow (the user)")
    assert "has child → Ida Reyes" in own


async def test_a_name_is_the_one_that_its_relation_tells_apart(memory: Memory) -> None:
    """A text says Bella, and a relation beside it which Bella: nobody is asked who is meant."""
    for text, source, name, destination in (
        ("Bella, the tabby cat of Nuala Quinn, reacted to amoxicillin", "Bella (cat)", "is allergic to", "amoxicillin"),
        ("Bella, the springer spaniel of Ronan Hogan, is spayed by Niamh", "Bella (spaniel)", "is patient of", "Niamh"),
        ("Bella, the springer spaniel of Ronan Hogan, weighs 19 kg", "Bella (spaniel)", "weighs", "19 kg"),
    ):
        relations = [Relation(source, name, destination)]
        assert (await memory.add_text(ALICE, text, infer=False, relations=relations)).notes == ()
    await add_text(memory, "Bella, the tabby cat of Nuala Quinn, eats tuna")
    assert {listed.entity.name for listed in await memory.graph.entities(ALICE)} >= {"Bella (cat)", "Bella (spaniel)"}
    cat, dog = [(await memory.summary(ALICE, f"about:Bella ({which})")).text for which in ("cat", "spaniel")]
    assert ("amoxicillin" in cat, "tuna" in cat, "spayed" in cat, "19 kg" in cat) == (True, True, False, False)
    assert ("amoxicillin" in dog, "tuna" in dog, "spayed" in dog, "19 kg" in dog) == (False, False, True, True)
    two = [Relation("Tom (plumber)", "knows", "Tom")]
    await memory.add_text(ALICE, "Tom knows Tom (the plumber)", infer=False, relations=two)
    assert len(await memory.graph.dossiers(ALICE, "Tom")) == 2


async def test_a_name_is_one_with_its_article_and_without(memory: Memory) -> None:
    drives = [Relation("Karim Haddad", "operates crane at", "Les Tilleuls")]
    await memory.add_text(ALICE, "Karim Haddad conduit la grue aux Tilleuls", infer=False, relations=drives)
    await add_text(memory, "La clé des Tilleuls est chez M. Ouali")
    starts = [Relation("Les Tilleuls", "has", "24 logements")]
    await memory.add_text(ALICE, "Les Tilleuls à Villeurbanne compte 24 logements", infer=False, relations=starts)
    site = (await memory.summary(ALICE, "about:Tilleuls")).text
    assert "(person)" not in site.partition("\n")[0]
    assert ("Karim Haddad" in site, "La clé" in site, "24 logements" in site) == (True, True, True)
    await add_text(memory, "Paz mag Schach", relations=[Relation("Paz", "plays", "chess")])
    await add_text(memory, "Iris fliegt nach La Paz", relations=[Relation("Iris", "flies to", "La Paz")])
    (city,) = await memory.graph.dossiers(ALICE, "La Paz")
    assert city.entity.name == "La Paz"


async def test_a_first_name_that_one_person_has_finds_the_person(memory: Memory) -> None:
    plays, works = Relation("Maïwenn Reyes", "plays", "volleyball"), Relation("Maïwenn Holub", "works as", "nurse")
    await add_text(memory, "Maïwenn Reyes plays volleyball", relations=[plays])
    assert (await memory.summary(ALICE, "about:Maïwenn")).text.startswith("Maïwenn Reyes")
    await add_text(memory, "Maïwenn Holub is a nurse", relations=[works])
    assert "Did you mean" in (await memory.summary(ALICE, "about:Maïwenn")).text


async def test_whom_a_first_name_of_two_people_means_is_asked(memory: Memory) -> None:
    for name in ("Hannah Clarke", "Hannah Pryce"):
        await add_text(memory, f"{name} sails", relations=[Relation(name, "sails", "dinghy")])
    told = await memory.add_text(ALICE, "Hannah is down with flu", infer=False)
    assert [re.sub(r" \[\w+\]", "", note) for note in told.notes] == [
        "Hannah may be Hannah Clarke or Hannah Pryce; if so, use the full name"
    ]


def test_a_relation_that_no_import_would_read_is_refused() -> None:
    for relation in (("Ana", "knows", "B" * 300), ("Ana", "k" * 300, "Bo"), ("Ana", "knows", "!!")):
        with pytest.raises(InputError, match="Nothing was stored"):
            relations_from([relation])
