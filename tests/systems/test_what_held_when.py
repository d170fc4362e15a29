"""Questions about time (Zep's validity in the world, Mem0g's relations marked invalid), with what an agent gives.

The states of one thing are a chain: the last that has begun holds now, another one held before.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest.core.clock import TimeSpan
from palimpsest.core.errors import InputError
from palimpsest.core.models import Memory as StoredMemory
from palimpsest.core.models import Relation, Undo
from palimpsest.learn.commit import WriteResult
from palimpsest.memory import Memory
from tests.support.learning_jobs import do_due_jobs
from tests.support.mcp_client import reply_text
from tests.support.memory import ALICE, StoppedClock, add_text, llm_settings, memory_in, messages_from
from tests.support.scripted_model import answering, given
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

PINNED = {"pinned": True}


async def first(memory: Memory, question: str, **rest: Any) -> str:
    return (await memory.search(ALICE, question, **rest)).hits[0].text


async def tell(memory: Memory, clock: StoppedClock, day: str, text: str, **rest: Any) -> str:
    clock.at = datetime.fromisoformat(f"{day}T12:00:00+00:00")
    return await add_text(memory, text, **rest)


async def until_of(memory: Memory, memory_id: str) -> str:
    """Return until when a memory holds."""
    found = await memory.get(ALICE, memory_id)
    return found.until if isinstance(found, StoredMemory) else ""


async def test_what_held_then_is_found_with_its_times(tmp_path: Path) -> None:
    """A year in the question, or `held_at`, is answered from that year; now is answered by now."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        for town, since, until in (("Turku", "2021", "2024-03"), ("Vaasa", "2024-03", ""), ("Kemi", "2026-01", "")):
            home = [Relation("Aarne", "lives in", town)]
            text = f"Aarne lives in {town}"
            await tell(memory, clock, "2026-02-01", text, since=since, until=until, relations=home)
        clock.at = datetime(2026, 11, 25, tzinfo=UTC)
        assert await first(memory, "Where does Aarne live?") == "Aarne lives in Kemi"
        assert await first(memory, "Where did Aarne live in 2022?") == "Aarne lives in Turku"
        assert await first(memory, "Where did Aarne live?", held_at="2024-05/2024-06") == "Aarne lives in Vaasa"
        assert await first(memory, "Where did Aarne live before Kemi?") == "Aarne lives in Vaasa"
        turku = (await memory.search(ALICE, "Where did Aarne live in 2022?")).hits[0]
        assert (turku.since, turku.until) == ("2021", "2024-03")


async def test_the_line_of_a_life_names_gaps_and_plans(tmp_path: Path) -> None:
    """What held when, in order, with what is not known between, what is planned, and the ids of the memories."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        told = [
            ("Turku", "2016", "2018-06"),
            ("Vaasa", "2021-03", ""),
            ("Kemi", "2024-05", ""),
            ("Oulu", "2027-02", ""),
        ]
        ids: list[str] = []
        for town, since, until in reversed(told):
            home = [Relation("Aarne", "lives in", town)]
            ids.append(await tell(memory, clock, "2026-11-20", town, since=since, until=until, relations=home))
        line = await memory.summary(ALICE, "timeline:Aarne")
    oulu, kemi, vaasa, turku = (memory_id[:8] for memory_id in ids)
    assert line.text.splitlines()[1:] == [
        "lives in:",
        f"- 2016 to 2018-06: Turku [{turku}]",
        "- 2018-06 to 2021-03: nothing is known",
        f"- 2021-03 to 2024-05, when the next began: Vaasa [{vaasa}]",
        f"- since 2024-05: Kemi [{kemi}]",
        f"- planned for 2027-02: Oulu [{oulu}]",
    ]


async def test_an_appointment_on_another_day_is_named(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        asks = ("When is the book presented?", "Which evening is the party at the bookshop?")
        launch = [Relation("launch", "takes place at", "Vent d'Ouest")]
        days: dict[str, Any] = {"hints": asks, "relations": launch}
        first = {"since": "2027-03-20", "until": "2027-03-20"}
        old = await tell(memory, clock, "2026-11-20", "The launch of the book is on 20 March 2027.", **first, **days)
        text = "The launch of the book moves to 27 March 2027."
        moved = await memory.add_text(ALICE, text, since="2027-03-27", until="2027-03-27", infer=False, **days)
    similar = moved.similar[moved.outcomes[0].memory.id]
    assert [item.memory.id for item in similar if not item.is_only_near] == [old]


async def test_today_is_answered_by_what_holds_today(tmp_path: Path) -> None:
    """What was said today and begins later does not come before it; how it has changed is answered by all states."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        cost, now = Relation("goatskin", "costs", "14 euros"), Relation("goatskin", "costs", "15 euros")
        old = await tell(memory, clock, "2026-11-01", "A foot of goatskin costs 14 euros.", relations=[cost])
        text = "A foot of goatskin costs 15 euros."
        present = await tell(memory, clock, "2026-11-20", text, relations=[now], replaces=[old])
        later = Relation("goatskin", "costs", "16 euros")
        plan = "A foot of goatskin will cost 16 euros from January 2027."
        await tell(memory, clock, "2026-11-29", plan, since="2027-01", relations=[later], replaces=[present])
        for question in ("What does a foot of goatskin cost today?", "What does goatskin cost?"):
            assert await first(memory, question, also=("goatskin costs … euros",)) == text
        told = [hit.text for hit in (await memory.search(ALICE, "What did I tell you today?")).hits]
        changed = {hit.text for hit in (await memory.search(ALICE, "How has the price of goatskin changed?")).hits}
    assert told[0] == plan
    assert changed >= {text, plan, "A foot of goatskin costs 14 euros."}


async def test_what_is_to_be_known_before_something_is_no_question_of_the_past(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        old = await tell(memory, clock, "2026-11-01", "The herbarium is due on 15 January 2027.")
        now = "The herbarium is now due on 12 February 2027."
        await tell(memory, clock, "2026-11-20", now, replaces=[old])
        for question in (
            "What must I know before the herbarium is due?",
            "Que faut-il savoir avant l'herbarium ?",
            "The herbarium before Christmas: what the locum has to hear",
            "Herbarium vor Weihnachten: wer gibt ab?",
            "who hands in the herbarium before Monday",
        ):
            assert [hit.text for hit in (await memory.search(ALICE, question)).hits] == [now], question
        for question in ("when was the herbarium due before 2026?", "When was the herbarium due before October?"):
            assert len((await memory.search(ALICE, question)).hits) == 2, question  # also what was replaced


async def test_the_words_of_a_time_find_nothing_that_happens_so_often(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        await tell(memory, clock, "2026-12-04", "L'échafaudage de la rue d'Ivry coûte 1 150 € par semaine.")
        await tell(memory, clock, "2026-12-04", "L'architecte de la rue d'Ivry veut des volets gris.")
        await tell(memory, clock, "2026-12-04", "The scaffolding is paid once a week, the crane once a month.")
        await tell(memory, clock, "2026-12-04", "The shutters are painted grey.")
        clock.at = datetime(2026, 12, 11, tzinfo=UTC)
        assert "volets" in await first(memory, "quels volets étaient prévus la semaine dernière")
        assert "shutters" in await first(memory, "which shutters were wanted last week")


@pytest.mark.parametrize(
    ("old", "new", "tomorrow", "tuesday"),
    [
        (
            "The vegetables come from He Miao, every morning at half past five.",
            "From 7 December 2026 the vegetables come from Mrs Chen in Pengzhen, every morning at five.",
            "Who brings the vegetables tomorrow morning?",
            "Who brings the vegetables next Tuesday?",
        ),
        (
            "小馆的蔬菜由小何供货, 每天早上五点半送到",
            "从2026年12月7日起小馆的蔬菜改由彭镇的陈嬢嬢送, 每天早上五点送到",
            "明天早上蔬菜哪个送",
            "下周二早上蔬菜哪个送",
        ),
        (
            "Davide Rinaldi lavora in studio il lunedì, il mercoledì e il venerdì.",
            "Dal 7 dicembre 2026 Davide Rinaldi lavora in studio il giovedì invece del venerdì.",
            "Quali giorni lavora Davide in studio domani?",
            "Davide lavora in studio venerdì 18 dicembre?",
        ),
    ],
)
async def test_a_day_that_lies_ahead_is_answered_by_what_holds_on_it(
    tmp_path: Path, old: str, new: str, tomorrow: str, tuesday: str
) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        replaced = await tell(memory, clock, "2026-12-01", old)
        await tell(memory, clock, "2026-12-04", new, since="2026-12-07", replaces=[replaced])
        assert await first(memory, tomorrow) == old
        assert await first(memory, tuesday) == new


@pytest.mark.parametrize(
    ("past", "coming", "question"),
    [
        (
            "The blood test of Geoffrey at the hospital is on 9 December 2026 at 10:00; Marcus drives him to hospital.",
            "The blood test of Geoffrey is on 23 December 2026 at 09:20.",
            "When do I have to drive Geoffrey to the hospital for a blood test next?",
        ),
        (
            "Die Blutprobe von Gerd im Krankenhaus ist am 9. Dezember 2026 um 10 Uhr; Mark fährt ihn zum Krankenhaus.",
            "Die Blutprobe von Gerd ist am 23. Dezember 2026 um 9:20 Uhr.",
            "Wann ist die nächste Blutprobe von Gerd im Krankenhaus?",
        ),
        (
            "Badanie krwi Gerarda w szpitalu jest 9 grudnia 2026 o 10:00; Marek wiezie go do szpitala.",
            "Badanie krwi Gerarda jest 23 grudnia 2026 o 9:20.",
            "Kiedy jest następne badanie krwi Gerarda w szpitalu?",
        ),
    ],
)
async def test_what_comes_next_is_before_what_was_on_a_day(
    tmp_path: Path, past: str, coming: str, question: str
) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        await tell(memory, clock, "2026-12-01", past, since="2026-12-09")
        await tell(memory, clock, "2026-12-09", coming, since="2026-12-23")
        clock.at = datetime(2026, 12, 16, tzinfo=UTC)
        assert await first(memory, question) == coming


@pytest.mark.parametrize(
    "question",
    [
        "What have I got on the 10th of December?",
        "Was ist am 10. Dezember?",
        "¿Qué hay el 10 de diciembre?",
        "Co jest 10 grudnia?",
    ],
)
async def test_a_day_without_a_year_is_the_one_to_come(tmp_path: Path, question: str) -> None:
    """An hour or a house number is not the day."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        await tell(memory, clock, "2026-12-01", "The surveyor inspects 10 Larch Road on 2026-12-08 at 10:00.")
        await tell(memory, clock, "2026-12-02", "Suresh sees the cardiologist on 2026-12-10 at 09:20.")
        clock.at = datetime(2026, 12, 4, 12, tzinfo=UTC)
        assert "cardiologist" in await first(memory, question)


@pytest.mark.parametrize(("day", "answer"), [("2026-12-02", "post"), ("2026-12-10", "telephone")])
async def test_what_only_ends_began_when_it_replaced_another(tmp_path: Path, day: str, answer: str) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        old = await tell(memory, clock, "2026-12-01", "The fair takes orders by post")
        new = "The fair takes orders by telephone"
        await tell(memory, clock, "2026-12-05", new, until="2026-12-14", replaces=[old])
        assert answer in await first(memory, "How does the fair take orders?", held_at=day)


async def test_the_users_name_is_the_user_in_a_question(tmp_path: Path) -> None:
    """What is told of the user by name is about the "I" of a question, and no chain of something else comes first."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        for text, place, since, until in (
            ("The workshop of Odile is in Rue Kervégan until January 2027.", "Rue Kervégan", "", "2027-01"),
            ("Le nouvel atelier est au quai des Antilles.", "quai des Antilles", "2027-02", ""),
        ):
            stated = [Relation("workshop", "is at", place)]
            await tell(memory, clock, "2026-11-20", text, relations=stated, since=since, until=until)
        await add_text(memory, "Odile Farrow, the user, is a bookbinder.")
        await add_text(memory, "Odile speaks English and Breton.", relations=[Relation("user", "speaks", "Breton")])
        answer = await first(memory, "Which languages do I speak?", also=("Odile speaks …",))
    assert answer == "Odile speaks English and Breton."


async def test_an_update_drops_the_relation_whose_number_it_changes(tmp_path: Path) -> None:
    """However the number is written; who somebody's mother is outlives a visit that is called off."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        cost = [Relation("Cermenati 4", "costs", "1450 euro a month")]
        rent = await add_text(memory, "The rent of Cermenati 4 is 1.450 euro a month.", relations=cost)
        updated = await memory.update(ALICE, rent, text="1.380", old="1.450")
        mother, visit = Relation("user", "has mother", "Wanda Rota"), Relation("Wanda Rota", "visits", "Lecco")
        text = "Wanda Rota, the user's mother, visits Lecco on 9 December 2026."
        plan = await tell(memory, clock, "2026-11-20", text, since="2026-12-09", relations=[mother, visit])
        off = await memory.add_text(ALICE, "The visit of Wanda Rota is called off.", replaces=[plan], infer=False)
    assert updated.outcomes[0].memory.relations == ()
    assert [each.key for each in updated.outcomes[0].unstated] == [cost[0].key]
    assert [each.key for each in off.outcomes[0].memory.relations] == [mother.key]
    assert mother.key not in {each.key for each in off.outcomes[0].closed}


async def test_a_number_of_any_length_can_be_changed(tmp_path: Path) -> None:
    async with memory_in(tmp_path, StoppedClock()) as memory:
        long = await add_text(memory, f"Pi begins with {'31' * 2_500}", relations=[Relation("Pi", "begins with", "3")])
        updated = await memory.update(ALICE, long, text="Pi begins with 3")
    assert updated.outcomes[0].memory.text == "Pi begins with 3"


async def test_a_phone_number_does_not_end_with_the_stay_it_is_told_with(tmp_path: Path) -> None:
    async with memory_in(tmp_path, StoppedClock()) as memory:
        stated = [Relation("Ida Tessier", "keeps", "the cat"), Relation("Ida Tessier", "has phone", "06 12 44 80 17")]
        text = "Ida Tessier keeps the cat from 14 to 20 May; her phone is 06 12 44 80 17."
        await add_text(memory, text, since="2026-05-14", until="2026-05-20", relations=stated)
        told = (await memory.summary(ALICE, "about:Ida Tessier")).text.splitlines()
    assert "- Ida Tessier — has phone → 06 12 44 80 17" in told
    assert "- Ida Tessier — keeps → the cat (since 2026-05-14 until 2026-05-20)" in told


async def test_the_line_of_a_life_tells_what_came_of_what(tmp_path: Path) -> None:
    """An agent says it in words, or by the id of a memory."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        closed = await tell(memory, clock, "2026-11-01", "Leya, where Ada worked, closed in March 2026.")
        home = [Relation("Ada", "lives in", "Porto")]
        because = {"because": closed[:8]}
        await tell(
            memory, clock, "2026-11-02", "Ada moved to Porto.", since="2026-05", relations=home, metadata=because
        )
        await tell(memory, clock, "2026-11-03", "Ada rents a studio.", metadata={"because": "the flat is too small"})
        line = (await memory.summary(ALICE, "timeline:Ada")).text
    assert "- since 2026-05: Porto" in line
    assert "] because: Leya, where Ada worked, closed in March 2026." in line
    assert "Ada rents a studio. because: the flat is too small" in line


async def test_what_may_hold_several_times_ends_nothing_on_the_line_of_a_life(tmp_path: Path) -> None:
    """An allergy does not end when another one is told, nor does what one memory states of several things."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        for day, allergy in (("2026-11-20", "latex"), ("2026-11-23", "penicillin")):
            stated = [Relation("Odile", "is allergic to", allergy)]
            await tell(memory, clock, day, f"Odile is allergic to {allergy}.", relations=stated)
        papers = [Relation("Odile", "works with", paper) for paper in ("tengujo", "washi")]
        await tell(memory, clock, "2026-11-24", "Odile works with tengujo and washi.", relations=papers)
        line = await memory.summary(ALICE, "timeline:Odile")
    assert "next began" not in line.text
    assert {"latex", "penicillin", "tengujo", "washi"} <= set(line.text.replace("[", " ").split())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "Bogdan ma u dentystki Moniki Cyman wizytę 11 grudnia 2026 o 16:45.",
            "Dentystka Monika Cyman przełożyła wizytę Bogdana z 11 na 14 grudnia 2026, na 17:30.",
        ),
        (
            "Bogdan sees the dentist Monika Cyman on 11 December 2026 at 16:45.",
            "The dentist Monika Cyman postponed her appointment with Bogdan to 14 December 2026, 17:30.",
        ),
    ],
)
async def test_an_appointment_that_is_put_off_on_its_day_is_named(tmp_path: Path, old: str, new: str) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        known = await tell(memory, clock, "2026-12-04", old, since="2026-12-11")
        await tell(memory, clock, "2026-12-04", "Bogdan jedzie 11 grudnia 2026 do Gdańska.", since="2026-12-11")
        clock.at = datetime(2026, 12, 11, 13, 10, tzinfo=UTC)
        moved = await memory.add_text(ALICE, new, since="2026-12-14", infer=False)
    similar = moved.similar[moved.outcomes[0].memory.id]
    assert [item.memory.id for item in similar if not item.is_only_near] == [known]


async def test_what_answers_the_same_question_is_named_as_a_change(tmp_path: Path) -> None:
    """Hints are questions: what answers the one of a known memory otherwise changes it, in whatever words."""
    hints = {
        "The card game is at Muriel's on Tuesdays.": ("When does she have cards?", "Where does she go to play bridge?"),
        "Her thesis advisor is Professor Lindqvist.": ("Who supervises her doctorate?", "Whom does she report to?"),
        "She insures her cameras.": ("Is the equipment covered against theft?", "Has she a policy for her lenses?"),
    }
    cards, _, cameras = hints
    async with memory_in(tmp_path, StoppedClock()) as memory:
        for text, asks in hints.items():
            await add_text(memory, text, hints=asks)
        asks = ("When does she have cards?", "Where does she go to play bridge?")
        moved = await memory.add_text(ALICE, "The bridge four meets at the club on Thursdays.", hints=asks, infer=False)
        asks = ("Has she photographs of the flood?", "What did she show at the gallery?")
        other = await memory.add_text(ALICE, "She showed pictures of the flood in May.", hints=asks, infer=False)

    def named(result: WriteResult) -> list[str]:
        return [item.memory.text for item in result.similar[result.outcomes[0].memory.id] if not item.is_only_near]

    assert named(moved) == [cards]
    assert cameras not in named(other)


async def test_what_was_replaced_answers_questions_about_the_past_alone(tmp_path: Path) -> None:
    """A closed memory is found by a question about before, with its end, and not by a question of now."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        old = await tell(memory, clock, "2024-01-10", "Inês works as a baker at Norte")
        await tell(memory, clock, "2026-03-01", "Inês works as a baker at Leya", replaces=[old])
        now = await memory.search(ALICE, "Where does Inês work?")
        before = await memory.search(ALICE, "Where did Inês work before Leya?")
        assert [hit.text for hit in now.hits] == ["Inês works as a baker at Leya"]
        assert before.hits[0].text == "Inês works as a baker at Norte"
        assert before.hits[0].until == "2026-03-01"
        await memory.delete(ALICE, [old])  # forgotten, though it was closed before
        gone = await memory.search(ALICE, "Where did Inês work before Leya?")
        assert [hit.text for hit in gone.hits] == ["Inês works as a baker at Leya"]


async def test_a_clause_takes_its_date_from_the_event(tmp_path: Path) -> None:
    """Who led when something happened: the event's date, then the chain. The event stands beside the answer."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        for who, since in (("Bram", "2019-04"), ("Yasmin", "2022-02"), ("Leon", "2024-08")):
            lead = [Relation(who, "leads", "sales")]
            await tell(memory, clock, "2025-01-07", f"{who} leads sales", since=since, relations=lead)
        await tell(memory, clock, "2025-01-08", "The office moved to Coupure Links", since="2021-11-19")
        found = await memory.search(ALICE, "Who led sales when the office moved to Coupure Links?")
    assert [hit.text for hit in found.hits][:2] == ["Bram leads sales", "The office moved to Coupure Links"]


async def test_nothing_but_another_state_of_what_is_asked_for_comes_first(tmp_path: Path) -> None:
    """What is told again, "als letztes" and "beim Konzert" lift nothing above the answer."""
    clock = StoppedClock()
    encore = "Das Harzlied fällt weg, als Zugabe spielt die Kapelle den Radetzkymarsch"
    planted = "Statt Bergahorn pflanzt Revier Nord Vogelbeere, weil der Ahorn krank ist"
    works, delivers = Relation("Petra Kühn", "arbeitet bei", "Kühn"), Relation("Kühn", "liefert an", "Revier Nord")
    rowan, maple = (Relation("Revier Nord", "pflanzt", name) for name in ("Vogelbeere", "Bergahorn"))
    async with memory_in(tmp_path, clock) as memory:
        told = partial(tell, memory, clock)
        await told("2026-11-01", "Revier Nord pflanzt 2027 Bergahorn und Rotbuche", since="2027-03", relations=[maple])
        both = "Kühn liefert die Pflanzen für Revier Nord, Petra Kühn hilft; zugesagt ist der 15. März 2027"
        await told("2026-11-02", both, relations=[works, delivers])
        await told("2026-11-03", planted, since="2027-03", relations=[rowan])
        later = "Kühn verschiebt die Lieferung für Revier Nord auf den 29. März 2027"
        await told("2026-11-04", later, since="2027-03-29", relations=[delivers])
        await told("2026-11-05", "Wer bei Kühn die Pflanzen für Revier Nord liefert, ist Petra Kühn", relations=[works])
        await told("2026-11-06", "Auf dem Programm stehen der Steigermarsch und als Zugabe das Harzlied")
        await told("2026-11-07", encore)
        await told("2026-11-08", "Druckschluss für das Programmheft ist der 2. April 2027")
        assert await first(memory, "Pflanzen wir Ahorn?", also=["Revier Nord pflanzt Bergahorn"]) == planted
        asked = "Was kommt als letztes Stück dran?"
        assert await first(memory, asked, also=["Als Zugabe spielt die Kapelle …"]) == encore
        invited = "Die Einladung an den Musikverein Bad Harzburg ist geschickt, eine Antwort steht aus"
        await told("2026-11-09", invited)
        asked = "Wer sind unsere Gäste beim Konzert, wer hat noch nicht zugesagt?"
        assert await first(memory, asked, also=["Eine Antwort von … steht aus", "eingeladene Kapelle"]) == invited


async def test_a_plan_holds_from_its_day_on(tmp_path: Path) -> None:
    """Until it comes into force the state before it holds."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        helen = [Relation("Helen", "is boss of", "Sam")]
        await tell(memory, clock, "2026-05-02", "Helen is Sam's boss", relations=helen)
        dmitri = [Relation("Dmitri", "is boss of", "Sam")]
        await tell(memory, clock, "2026-10-20", "Dmitri is Sam's boss", since="2026-11-01", relations=dmitri)
        assert await first(memory, "Who is Sam's boss now?") == "Helen is Sam's boss"
        clock.at = datetime(2026, 11, 25, tzinfo=UTC)
        assert await first(memory, "Who is Sam's boss now?") == "Dmitri is Sam's boss"


async def test_the_end_that_was_given_survives_deletion_undo_and_replacement(tmp_path: Path) -> None:
    """A restored memory holds as long as was said, whatever closed or deleted it meanwhile."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        told = await tell(memory, clock, "2025-05-05", "Mara rents the studio", since="2020", until="2023-06")
        await memory.delete(ALICE, [told])
        await memory.restore(ALICE, told)
        assert await until_of(memory, told) == "2023-06"
        newer = await tell(memory, clock, "2025-06-05", "Mara rents the loft", replaces=[told])
        assert await until_of(memory, told) == "2023-06"
        await memory.delete(ALICE, [newer])
        await memory.restore(ALICE, told)
        assert await until_of(memory, told) == "2023-06"


async def test_times_that_cannot_be_are_refused(tmp_path: Path) -> None:
    """An end before the beginning and a range that runs backwards say what is wrong, and nothing is stored."""
    async with memory_in(tmp_path) as memory:
        with pytest.raises(InputError, match="until 2019 is before since 2020-05"):
            await add_text(memory, "Mara rents the studio", since="2020-05", until="2019")
        with pytest.raises(InputError, match="ends before it begins"):
            await memory.search(ALICE, "Who rents the studio?", held_at="2024/2023")
        assert not (await memory.scope_contents(ALICE)).memories


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_agent_says_and_reads_times(tmp_path: Path, mode: str) -> None:
    """The tools take since, until and held_at, and a reply shows between which times something held."""
    async with connect(tmp_path, mode) as client:
        added = await client.call_tool(
            "add_memory", {"text": "Lena Brandt led billing", "since": "2024-05", "until": "2026-08"}
        )
        assert "(2024-05 to 2026-08)" in reply_text(added)
        found = await client.call_tool("search_memories", {"query": "who led billing", "held_at": "2025"})
        assert "(2024-05 to 2026-08) Lena Brandt led billing" in reply_text(found)


@pytest.mark.parametrize(
    ("former", "later", "since", "is_named"),
    [
        (("Ana", "lives in", "Ghent"), ("Ana", "lives in", "Bruges"), "2026-03", True),
        (("Grete", "leads", "billing"), ("Ife", "leads", "billing"), "2026-04", True),
        (("Ana", "lives in", "Ghent"), ("Ana", "lives in", "Leith"), "2027-03", True),  # a plan
        (("Ana", "is allergic to", "nuts"), ("Ana", "is allergic to", "latex"), "", False),
        (("Ana", "lives in", "Ghent"), ("Tom", "lives in", "Ghent"), "2026-03", False),
    ],
)
async def test_a_new_state_names_the_former_one(
    tmp_path: Path, former: tuple[str, str, str], later: tuple[str, str, str], since: str, *, is_named: bool
) -> None:
    """However differently two texts say it: relations tell that one takes the place of the other."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        old = await tell(
            memory, clock, "2026-05-01", "Above the bakery since the winter", relations=[Relation(*former)]
        )
        clock.at = datetime(2026, 11, 25, tzinfo=UTC)
        text = "Everything was carried over by van"
        added = await memory.add_text(ALICE, text, since=since, relations=[Relation(*later)], infer=False)
    items = [item for found in added.similar.values() for item in found]
    named = [item.memory.id for item in items if not item.is_only_near]
    assert named == ([old] if is_named else [])


def extract(request: dict[str, Any]) -> dict[str, Any]:
    """Read the dates of a job as a model does."""
    text = given(request, "New messages")[0]["text"]
    return {"facts": [{"text": text, "sources": [1], "valid_from": "2020-10", "valid_until": "2021-07"}]}


@pytest.mark.parametrize(
    ("old", "new", "is_named"),
    [
        ("Milo's blood test is in May", "Milo's blood test was moved to June", True),
        ("Milo's blood test is in May", "Greta's blood test was moved to June", False),
        ("web-ui's coverage bound is 90%", "api-core's coverage bound was lowered to 70%", False),
        ("Milo drives a Golf to work", "His brother sold the Golf and drives to work in a Zoe", False),
        ("api-core keeps its queue in Rabbit", "Fixed a leak of Rabbit in api-core, no worker hangs any longer", False),
        ("ミロの弟は京都で働いている", "ミロの姉はもう京都で働いていない", False),
    ],
)
async def test_what_is_told_of_another_replaces_nothing(tmp_path: Path, old: str, new: str, *, is_named: bool) -> None:
    """However alike the texts are: another person, project or relative, and a repair, which changes no decision."""
    async with memory_in(tmp_path) as memory:
        await add_text(memory, old)
        for other in ("Nadja bakes rye bread", "The boat is called Fulmar", "The dentist is in Elm Street"):
            await add_text(memory, other)
        added = await memory.add_text(ALICE, new, infer=False)
        items = added.similar[added.outcomes[0].memory.id]
    assert [item.memory.text for item in items if not item.is_only_near] == ([old] if is_named else [])


async def test_a_model_reads_between_which_times_something_held(tmp_path: Path) -> None:
    """Extraction fills the same fields that an agent gives."""
    said = "Mara worked nights at a depot"
    with OpenAIServer(answering(extract=extract)) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.add_messages(messages_from(("user", said)))
            found = (await memory.search(ALICE, "Where did Mara work?", held_at="2021-01")).hits[0]
    assert (found.text, found.since, found.until) == (said, "2020-10", "2021-07")


async def test_a_model_says_what_a_fact_came_of(tmp_path: Path) -> None:
    """Another fact of its reply by the number, or in words. A relation may have times of its own there."""

    def caused(_request: dict[str, Any]) -> dict[str, Any]:
        bought = [["Ada", "lives in", "Porto", "2026-05", ""], ["Ada", "rents", "a studio", "soon"]]
        told = ["Leya, where Ada worked, closed.", "Ada moved to Porto and rents a studio.", "Ada sold the car."]
        causes = [None, 1, "the trams go everywhere"]
        facts = [{"text": text, "sources": [1], "because": cause} for text, cause in zip(told, causes, strict=True)]
        return {"facts": [facts[0], {**facts[1], "relations": bought}, facts[2], {**facts[2], "because": 9}]}

    with OpenAIServer(answering(extract=caused)) as server:
        async with memory_in(tmp_path, llm=llm_settings(server.base_url)) as memory:
            await memory.add_messages(messages_from(("user", "Leya closed, so I moved to Porto and sold the car")))
            line = (await memory.summary(ALICE, "timeline:Ada")).text
    assert "- since 2026-05: Porto" in line
    assert "] because: Leya, where Ada worked, closed." in line
    assert "Ada sold the car. because: the trams go everywhere" in line
    assert "Leya, where Ada worked, closed. because" not in line
    assert "studio [" not in line


async def test_what_changed_since_a_day_is_listed(tmp_path: Path) -> None:
    """What was edited or stored since is listed, and among the deleted ones what was replaced since."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        kept = await tell(memory, clock, "2026-05-01", "Ana keeps bees")
        edited = await tell(memory, clock, "2026-05-02", "Ana sings in a choir")
        old = await tell(memory, clock, "2026-05-03", "Ana drives a Fiat")
        clock.at = datetime(2026, 6, 10, tzinfo=UTC)
        await memory.update(ALICE, edited, text="Ana sings in two choirs")
        new = await tell(memory, clock, "2026-06-11", "Ana drives a Zoe", replaces=[old])
        since = {"changed": {"gte": "2026-06-01"}}
        listed = {hit.id for hit in (await memory.list(ALICE, filters=since)).hits}
        replaced = {hit.id for hit in (await memory.list(ALICE, filters=since, deleted=True)).hits}
    assert (listed, replaced) == ({edited, new}, {old})
    assert kept not in listed


async def test_what_began_or_ended_since_a_day_is_listed_and_searched(tmp_path: Path) -> None:
    """It may have been told long after, and what ended may have been replaced. What says no time matches neither."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        await tell(memory, clock, "2026-05-01", "Ada lives in Turku", since="2021", until="2024-03")
        await tell(memory, clock, "2026-05-01", "Ada lives in Kemi", since="2024-04")
        await tell(memory, clock, "2026-05-01", "Ada sails")
        old = await tell(memory, clock, "2026-05-02", "Ada drives a Fiat", since="2019")
        await tell(memory, clock, "2026-06-11", "Ada drives a Zoe", replaces=[old])

        async def found(filters: dict[str, Any]) -> tuple[set[str], set[str]]:
            listed = await memory.list(ALICE, filters=filters)
            searched = await memory.search(ALICE, "What does Ada do?", filters=filters)
            return {hit.text for hit in listed.hits}, {hit.text for hit in searched.hits}

        began = await found({"began": {"gte": "2021"}})
        assert began == ({"Ada lives in Turku", "Ada lives in Kemi"},) * 2
        assert await found({"ended": {"lt": "2026"}}) == ({"Ada lives in Turku"},) * 2
        assert await found({"ended": {"gte": "2026-06-01"}}) == ({"Ada drives a Fiat"},) * 2


async def test_what_has_ended_is_not_told_as_what_holds(tmp_path: Path) -> None:
    """What somebody said had ended is history in every summary, though nothing replaced it. Days keep what was said."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        await tell(memory, clock, "2026-05-01", "Ada lives in Turku", since="2021", until="2024-03")
        await tell(memory, clock, "2026-05-01", "Ada lives in Kemi", since="2026-01")
        await tell(memory, clock, "2026-05-01", "The user must not run until June", until="2026-06", metadata=PINNED)
        for kind in ("overall", "profile"):
            text = (await memory.summary(ALICE, kind)).text
            assert "must not run" in text
            assert "Kemi" in text
            assert "Turku" not in text
        assert "Turku" in (await memory.summary(ALICE, "day:2026-05-01")).text
        holds, _, held = (await memory.summary(ALICE, "about:Ada")).text.partition("Held before:")
        assert "Kemi" in holds
        assert "Turku" in held
        clock.at = datetime(2026, 7, 1, tzinfo=UTC)
        assert "must not run" not in (await memory.summary(ALICE, "overall")).text


async def test_a_models_summary_is_written_again_when_something_in_it_has_ended(tmp_path: Path) -> None:
    """The model is told until when it held. Nothing was changed, and of a day it was said all the same."""

    def summarize(request: dict[str, Any]) -> dict[str, Any]:
        told = [f"{item['text']} until {item.get('until', 'now')}" for item in given(request, "Memories")]
        return {"summary": "; ".join(sorted(told))}

    clock, runs = StoppedClock(), "Ada must not run"
    with OpenAIServer(answering(summarize=summarize, day=summarize)) as server:
        async with memory_in(tmp_path, clock, llm=llm_settings(server.base_url)) as memory:
            await tell(memory, clock, "2026-05-01", runs, until="2026-06-30")
            await tell(memory, clock, "2026-05-01", "Ada sails")
            assert (await memory.summary(ALICE)).text == f"{runs} until now; Ada sails until now"
            day = await memory.summary(ALICE, "day:2026-05-01")
            for now, written in (("2026-06-30", 2), ("2026-07-01", 3), ("2026-07-02", 3)):
                clock.at = datetime.fromisoformat(f"{now}T12:00:00+00:00")
                text = (await memory.summary(ALICE)).text
                assert ("until 2026-06-30" in text.rpartition("\n\n")[2]) == (written > 2)
                assert (await memory.summary(ALICE, "day:2026-05-01")).text == day.text
                assert len(server.chat_requests) == written


async def test_lists_summaries_and_the_graph_answer_from_a_time(tmp_path: Path) -> None:
    """`held_at` asks what held in the world then: what ended, and what was replaced since, is part of it."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        turku = [Relation("Ada", "lives in", "Turku")]
        old = await tell(memory, clock, "2022-05-01", "Ada lives in Turku", since="2021", relations=turku)
        kemi = [Relation("Ada", "lives in", "Kemi")]
        now = "Ada lives in Kemi"
        await tell(memory, clock, "2026-02-01", now, since="2026-01", relations=kemi, replaces=[old])
        await tell(memory, clock, "2026-02-01", "Ada sails")
        assert [hit.text for hit in (await memory.list(ALICE, held_at="2023")).hits] == ["Ada lives in Turku"]
        assert [hit.text for hit in (await memory.list(ALICE, held_at="2026-03")).hits] == ["Ada sails", now]
        for when, known in (("2023", "Ada lives in Turku"), ("2026-03", now)):
            found = await memory.search(ALICE, "Where does Ada live?", held_at=when)
            assert [hit.text for hit in found.hits] == [known, "Ada sails"]
        for kind in ("about:Ada", "profile", "overall"):
            text = (await memory.summary(ALICE, kind, held_at="2023-06")).text
            assert "Turku" in text
            assert "Kemi" not in text
        june = datetime(2023, 6, 1, tzinfo=UTC)
        drawn = await memory.graph.subgraph(ALICE, about="Ada", held_at=TimeSpan(june, june))
        assert [item.destination for item in drawn.relations] == ["Turku"]
        for kind in ("day:2023-06-01", "timeline:Ada"):
            with pytest.raises(InputError, match="time"):
                await memory.summary(ALICE, kind, held_at="2023")
        with pytest.raises(InputError, match="give one of them"):
            await memory.list(ALICE, held_at="2023", deleted=True)


async def test_an_agent_corrects_times_and_relations(tmp_path: Path) -> None:
    """A wrong year or a wrong relation is corrected in place, and the history keeps what was said first."""
    async with connect(tmp_path) as agent:
        given = {"since": "2025", "until": "2026-12", "relations": [["Ada", "lives in", "Kemi"]]}
        added = await agent.call_tool("add_memory", {"text": "Ada lives in Kemi", **given})
        assert "states Ada — lives in → Kemi (since 2025 until 2026-12)" in reply_text(added)
        memory_id = added.structured_content["results"][0]["id"]
        for changes in (
            {"since": "2026-01", "until": "2026-10"},
            {"relations": [["Ada", "works in", "Kemi"]]},
            {"until": "none"},
        ):
            assert reply_text(await agent.call_tool("update_memory", {"memory_id": memory_id, **changes}))
        hit = (await agent.call_tool("search_memories", {"query": "Ada Kemi"})).structured_content["results"][0]
        assert (hit["valid_from"], "valid_until" in hit) == ("2026-01", False)
        about = reply_text(await agent.call_tool("get_summary", {"kind": "about:Ada"}))
        assert "works in → Kemi (since 2026-01)" in about
        assert "lives in →" not in about
        wrong = await agent.call_tool("update_memory", {"memory_id": memory_id, "until": "2020"})
        assert wrong.is_error
        assert "before it began" in str(wrong.content)


async def test_a_relation_has_times_of_its_own(tmp_path: Path) -> None:
    """One text tells of two times. The line of a life, the graph and `held_at` go by those of the relation."""
    async with connect(tmp_path) as agent:
        text = "Ada worked at Norte before she moved to Kemi, where she works for Leya"
        relations = [["Ada", "works at", "Norte", "2019", "2024-03"], ["Ada", "lives in", "Kemi", "2024-04", ""]]
        given = {"text": text, "since": "2024-05", "relations": [*relations, ["Ada", "works at", "Leya"]]}
        reply = reply_text(await agent.call_tool("add_memory", given))
        assert "states Ada — works at → Norte (since 2019 until 2024-03)" in reply
        line = reply_text(await agent.call_tool("get_summary", {"kind": "timeline:Ada"}))
        assert "- 2019 to 2024-03: Norte" in line
        assert "- since 2024-04: Kemi" in line
        assert "- since 2024-05: Leya" in line
        then = reply_text(await agent.call_tool("get_summary", {"kind": "about:Ada", "held_at": "2020"}))
        for wrong in (["2024", "2019"], ["soon"], ["2019", "2020", "2021"]):
            told = {"text": "Ada sails", "relations": [["Ada", "sails", "Fulmar", *wrong]]}
            assert "relations.0" in str((await agent.call_tool("add_memory", told)).content)
        only_until = {"text": "Ada kept bees", "relations": [["Ada", "keeps", "bees", "", "2020-05"]]}
        await agent.call_tool("add_memory", only_until)
        about = reply_text(await agent.call_tool("get_summary", {"kind": "about:Ada"}))
        asked = {"query": "Where does Ada work?", "held_at": "2025"}
        shown = (await agent.call_tool("search_memories", asked)).structured_content["relations"]
    assert [item["destination"] for item in shown] == ["Leya", "Kemi"]
    assert "Norte" in then
    assert "Kemi" not in then.partition("Connected with:")[2]
    assert "Ada — keeps → bees (until 2020-05)" in about


@pytest.mark.parametrize("undated_is_first", [True, False])
async def test_of_two_states_the_later_told_one_is_the_later_one(tmp_path: Path, *, undated_is_first: bool) -> None:
    """Where one beginning is not known, when it was said counts from neither end: search, line and relations agree."""
    clock = StoppedClock()
    kemi = ("Ada lives in Kemi", "Kemi", "")
    oulu = ("Ada lives in Oulu", "Oulu", "2026-03")
    told = [kemi, oulu] if undated_is_first else [oulu, kemi]
    async with memory_in(tmp_path, clock) as memory:
        for day, (text, town, since) in zip(("2026-11-19", "2026-11-20"), told, strict=True):
            await tell(memory, clock, day, text, since=since, relations=[Relation("Ada", "lives in", town)])
        found = await memory.search(ALICE, "Where does Ada live now?", also=["Ada lives in …"])
        line = (await memory.summary(ALICE, "timeline:Ada")).text.splitlines()[2:]
    last = told[1]
    assert found.hits[0].text == last[0]
    assert found.relations[0].destination == last[1]
    assert [text.rpartition(" [")[0].rpartition(": ")[2] for text in line] == [told[0][1], last[1]]
    assert ("until 2026-03, when the next began" in line[0]) is undated_is_first


@pytest.mark.parametrize(
    "called_off",
    ["", "Ada is no longer going to work at Leya", "Ada turned down the offer of Leya", "Ada stays at Norte after all"],
)
async def test_a_plan_closes_what_it_replaces_on_its_day(tmp_path: Path, called_off: str) -> None:
    """It is an edit of its own that says why, and is not done again when undone. What is called off closes nothing."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        former, planned = [Relation("Ada", "works at", "Norte")], [Relation("Ada", "works for", "Leya")]
        old = await tell(memory, clock, "2026-11-01", "Ada works at Norte", relations=former)
        text = "Ada works at Leya from 1 December"
        plan = await tell(memory, clock, "2026-11-20", text, since="2026-12-01", relations=planned)
        if called_off:
            await tell(memory, clock, "2026-11-25", called_off)
        await do_due_jobs(memory)
        assert await until_of(memory, old) == ""
        for day in ("2026-12-01", "2026-12-02"):
            clock.at = datetime.fromisoformat(f"{day}T08:00:00+00:00")
            await do_due_jobs(memory)
            edit = (await memory.history(ALICE, old))[1][-1]
            if called_off:
                assert edit.superseded_by is None
                return
            assert (edit.provenance.stage, edit.superseded_by) == ("begin", plan)
            assert await until_of(memory, old) == "2026-12-01"
        assert [hit.text for hit in (await memory.list(ALICE)).hits] == [text]
        assert [hit.text for hit in (await memory.search(ALICE, "Where does Ada work?")).hits] == [text]
        assert "Norte" not in (await memory.summary(ALICE, "profile")).text
        await memory.undo(ALICE, Undo(edit=edit.edit))
        await tell(memory, clock, "2026-12-03", "Ada has a plan", since="2026-12-04")
        clock.at = datetime(2026, 12, 5, tzinfo=UTC)
        await do_due_jobs(memory)
        assert {hit.text for hit in (await memory.list(ALICE)).hits} >= {"Ada works at Norte", text}


HOME, MOVE = "Halina lives in Toruń", "Halina moves to Bydgoszcz in April 2027"


async def told_to_replace(memory: Memory, clock: StoppedClock, folder: str = "2026-11-20") -> tuple[str, str]:
    """Store where Halina lives, and a plan that is to take its place. Return their ids."""
    home = [Relation("Halina", "lives in", "Toruń"), Relation("Halina", "is mother of", "user")]
    old = await tell(memory, clock, "2026-11-01", HOME, relations=home, metadata=PINNED)
    moves = [Relation("Halina", "lives in", "Bydgoszcz")]
    return old, await tell(memory, clock, folder, MOVE, since="2027-04", relations=moves, replaces=[old])


async def lines_under(memory: Memory, heading: str) -> list[str]:
    text = (await memory.summary(ALICE, "about:Halina")).text
    _, _, below = text.partition(f"{heading}\n")
    lines = below.splitlines()
    count = next((number for number, line in enumerate(lines) if not line.startswith("- [")), len(lines))
    return [line[line.index("Halina") :] for line in lines[:count]]


async def test_what_a_plan_is_to_replace_goes_on_until_its_day(tmp_path: Path) -> None:
    """It is listed, summed up and stated as what holds, with its end; the plan stands as a plan until it has begun.

    That the plan then closes it can be undone, and is not done again.
    """
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        old, plan = await told_to_replace(memory, clock)
        assert (await until_of(memory, old), await lines_under(memory, "Holds now:")) == ("2027-04", [HOME])
        assert await lines_under(memory, "Planned:") == [MOVE]
        assert [hit.text for hit in (await memory.list(ALICE)).hits] == [MOVE, HOME]
        found = await memory.search(ALICE, "Where does Halina live?")
        lives = [each.destination for each in found.relations if each.relationship == "lives in"]
        assert (found.hits[0].text, found.hits[0].superseded_by, lives[0]) == (HOME, plan, "Toruń")
        assert HOME in (await memory.summary(ALICE, "profile")).text
        assert [each.valid_until for each in found.relations if each.relationship == "is mother of"] == [""]
        clock.at = datetime(2027, 4, 2, tzinfo=UTC)
        await do_due_jobs(memory)
        assert [hit.text for hit in (await memory.list(ALICE)).hits] == [MOVE]
        assert (await lines_under(memory, "Holds now:"), await lines_under(memory, "Held before:")) == ([MOVE], [HOME])
        edit = (await memory.history(ALICE, old))[1][-1]
        assert (edit.provenance.stage, edit.superseded_by) == ("begin", plan)
        await memory.undo(ALICE, Undo(edit=edit.edit))
        clock.at = datetime(2027, 4, 6, tzinfo=UTC)
        await tell(memory, clock, "2027-04-05", "Ada has a plan", since="2027-04-06")
        await do_due_jobs(memory)
        assert {hit.text for hit in (await memory.list(ALICE)).hits} >= {HOME, MOVE}
        assert await until_of(memory, old) == ""


async def test_a_plan_that_says_its_day_in_its_text_is_dropped_for_another(tmp_path: Path) -> None:
    """It does not hold until the other begins: nothing is delivered on the first day."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        old = await tell(memory, clock, "2026-11-01", "Kühn liefert die Pflanzen am 15. März 2027.")
        new = "Kühn liefert die Pflanzen erst am 29. März 2027."
        await tell(memory, clock, "2026-11-20", new, since="2027-03-29", replaces=[old])
        assert [hit.text for hit in (await memory.list(ALICE)).hits] == [new]
        assert await until_of(memory, old) == "2026-11-20"
        clock.at = datetime(2027, 3, 30, tzinfo=UTC)
        await do_due_jobs(memory)
        assert [hit.text for hit in (await memory.list(ALICE)).hits] == [new]


@pytest.mark.parametrize("how", ["said to be off", "other news", "deleted", "undone", "purged", "restored"])
async def test_a_plan_that_is_called_off_leaves_what_it_was_to_replace(tmp_path: Path, how: str) -> None:
    """However the plan goes, the other holds on, without the end that the plan gave it, and nothing states the plan."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        old, plan = await told_to_replace(memory, clock)
        if how == "said to be off":
            clock.at = datetime(2026, 11, 25, tzinfo=UTC)
            off = await memory.add_text(ALICE, "Halina's move to Bydgoszcz is off", replaces=[plan], infer=False)
            assert any(note.startswith(f"[{old[:8]}] holds on") for note in off.notes)
        elif how == "other news":
            await tell(memory, clock, "2026-11-25", "Halina stays where she is after all", replaces=[plan])
        elif how == "deleted":
            await memory.delete(ALICE, [plan])
        elif how == "purged":
            await memory.care.purge(ALICE, [plan], and_backups=False)
        elif how == "restored":  # to take the place of this one was a mistake
            await memory.restore(ALICE, old)
            await memory.delete(ALICE, [plan])
        else:
            await memory.undo(ALICE)
        for day in (clock.at, datetime(2027, 4, 2, tzinfo=UTC)):
            clock.at = day
            await do_due_jobs(memory)
            stored = await memory.get(ALICE, old)
            assert isinstance(stored, StoredMemory)
            assert (stored.deleted_at, stored.superseded_by, stored.until) == (None, None, "")
            stated = (await memory.search(ALICE, "Where does Halina live?")).relations
            assert {relation.destination for relation in stated if relation.is_current} == {"Toruń", "User"}
        assert HOME in await lines_under(memory, "Holds now:")


async def test_what_was_told_to_go_on_is_not_closed_by_a_later_add(tmp_path: Path) -> None:
    """An end that is taken away by hand stays away; a relation in another language than its text is the text's own."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        tram, office = Relation("Yannick", "works as", "tram driver"), Relation("Yannick", "works as", "dispatcher")
        married = [Relation("user", "is married to", "Yannick"), tram]
        old = await tell(memory, clock, "2026-11-20", "Odile is married to Yannick, a tram driver.", relations=married)
        text = "Yannick devient régulateur le 4 janvier 2027."
        plan = await tell(memory, clock, "2026-11-21", text, since="2027-01-04", relations=[office], replaces=[old])
        await memory.update(ALICE, old, until="none")
        await tell(memory, clock, "2026-11-22", "Yannick stays a tram driver after all.", relations=[tram])
        going_on, planned = await memory.get(ALICE, old), await memory.get(ALICE, plan)
    assert isinstance(going_on, StoredMemory)
    assert isinstance(planned, StoredMemory)
    assert (going_on.until, going_on.superseded_by) == ("", None)
    assert office.key in {relation.key for relation in planned.relations}


async def test_what_takes_the_place_of_another_keeps_its_origin(tmp_path: Path) -> None:
    """A reply says to add the same text with `replaces`: nobody confirms by it what a file says."""
    async with memory_in(tmp_path, StoppedClock()) as memory:
        old = await add_text(memory, "Goatskin costs 14.50 euros")
        text = "Goatskin costs 15.20 euros"
        await add_text(memory, text, metadata={"origin": "file"})
        again = await memory.add_text(ALICE, text, replaces=[old], infer=False)
    assert again.outcomes[0].memory.metadata["origin"] == "file"


@pytest.mark.parametrize(("since", "left"), [("2027-06", "2027-06"), ("2026-11-24", "2026-11-24")])
async def test_what_a_plan_is_to_replace_follows_the_plan(tmp_path: Path, since: str, left: str) -> None:
    """A plan that is put off, or begins earlier, changes until when the other goes on; undone, it is as before."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        old, plan = await told_to_replace(memory, clock)
        new = f"Halina moves to Bydgoszcz, now settled for {since}"
        moved = await tell(memory, clock, "2026-11-25", new, since=since, replaces=[plan])
        assert await until_of(memory, old) == left
        stored = await memory.get(ALICE, old)
        assert isinstance(stored, StoredMemory)
        assert (stored.superseded_by, stored.deleted_at is None) == (moved, since > "2026-11-25")
        await memory.undo(ALICE)
        stored = await memory.get(ALICE, old)
        assert isinstance(stored, StoredMemory)
        assert (stored.superseded_by, stored.deleted_at, stored.until) == (plan, None, "2027-04")


async def test_a_plan_goes_on_with_the_relations_that_it_does_not_end(tmp_path: Path) -> None:
    """Another shift ends neither a job nor a marriage. In Portuguese "no" denies nothing: it is "in the"."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        stated = [Relation("user", "is married to", "Graça"), Relation("Graça", "works at", "Hospital de São Bernardo")]
        text = "Graça, a mulher do Joaquim, é enfermeira no Hospital de São Bernardo e faz noites às terças"
        nights = await tell(memory, clock, "2026-11-29", text, relations=stated)
        text = "A Graça passou para a manhã no Hospital de São Bernardo em dezembro de 2026 e já não faz noites"
        await tell(memory, clock, "2026-11-29", text, since="2026-12", replaces=[nights])
        for when in ("", "2027-02"):
            found = await memory.search(ALICE, "Em que trabalha a Graça?", held_at=when)
            assert {(each.relationship, each.valid_until) for each in found.relations} == {
                ("is married to", ""),
                ("works at", ""),
            }


async def test_the_relations_of_a_plan_move_with_it(tmp_path: Path) -> None:
    """A relation that nobody states again begins when the plan does now, and not when it did before."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        does, when = [Relation("Sam Whitlock", "replates", "Heron")], "1 to 12 February 2027"
        text = "Sam Whitlock replates the boat Heron from"
        times = {"since": "2027-02-01", "until": "2027-02-12"}
        plan = await tell(memory, clock, "2026-11-01", f"{text} {when}", relations=does, **times)
        put_off = {"since": "2027-02-15", "until": "2027-02-26", "replaces": [plan]}
        moved = await tell(memory, clock, "2026-11-08", "The work on Heron moves to 15 to 26 February 2027", **put_off)
        stored = await memory.get(ALICE, moved)
        assert isinstance(stored, StoredMemory)
        assert [(each.name, each.since) for each in stored.relations] == [("replates", "2027-02-15")]


async def test_a_plan_that_was_dropped_never_held(tmp_path: Path) -> None:
    """It is shown as what was planned, and does not stand before what took its place."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        opens = [Relation("bakery", "opens on", "2026-12-15")]
        text = "The bakery opens on 2026-12-15."
        plan = await tell(memory, clock, "2026-11-20", text, since="2026-12-15", relations=opens)
        new = "The opening of the bakery slips to 2027-01-20."
        await tell(memory, clock, "2026-11-25", new, since="2027-01-20", replaces=[plan])
        assert [hit.text for hit in (await memory.search(ALICE, "when does the bakery open")).hits] == [new]
        about = (await memory.summary(ALICE, "about:bakery")).text
        assert "(was planned for 2026-12-15) The bakery opens" in about
        assert "opens on → 2026-12-15" not in about


MARCUMAR = "Katrin Wiegand, die Frau von Jörg Wiegand, nimmt Marcumar und muss alle vier Wochen zur Blutkontrolle"
MULES = "The Meanwood Mules kick off at 21:00 from 15 December to the end of January"

# What was said on a day in December 2026, since and until when it holds, and what an agent gives as relations.
Told = tuple[int, str, str, str, tuple[Relation, ...]]


def told(day: int, text: str, since: str = "", until: str = "", *relations: tuple[str, str, str]) -> Told:
    return day, text, since, until, tuple(Relation(*relation) for relation in relations)


def works_in(day: int, place: str, since: str) -> Told:
    return told(day, f"Katrin works in the {place}", since, "", ("Katrin", "works in", place))


@pytest.mark.parametrize(
    ("facts", "day", "question", "rest"),
    [
        pytest.param(
            [
                told(1, "Katrin takes Eliquis, a blood thinner"),
                works_in(1, "kindergarten of Kassel", "2024"),
                works_in(3, "kindergarten of Harleshausen", "2025"),
            ],
            17,
            "Which blood thinner does Katrin take now?",
            {},
            id="what holds now has no other state",
        ),
        pytest.param(
            [
                told(1, "Javier Martín toma el anticoagulante Sintrom"),
                told(4, "Javier Martínez fue operado de la rodilla en octubre de 2026", "2026-10"),
                told(2, "Antonia Ruiz lleva una prótesis de cadera"),
            ],
            7,
            "¿Qué anticoagulante tomaba Javier Martín en noviembre?",
            {"held_at": "2026-11"},
            id="what says no time held before it was told",
        ),
        pytest.param(
            [
                told(2, "The cellar key of Goethestraße 41 is with Mrs Özdemir", "", "2026-12-10"),
                told(2, "The cellar of Goethestraße 41 is cleaned by Mrs Brandt", "2026-11-30"),
                told(11, "The cellar key of Goethestraße 41 is with Mr Krüger", "2026-12-11"),
            ],
            14,
            "Where was the cellar key of Goethestraße 41?",
            {"held_at": "2026-12-05"},
            id="what held on was not replaced by what is only alike",
        ),
        pytest.param(
            [
                told(1, MARCUMAR, "", "", ("Katrin Wiegand", "nimmt", "Marcumar")),
                told(1, "Jörg Wiegand ist gegen Penicillin allergisch (Ausschlag und Atemnot 2011)", "2011"),
                told(1, "Frau Schäffer, Leipziger Straße 112, hat eine Viessmann Vitodens 200-W von 2016", "2016"),
                told(3, "Hannelore Wiegand ist 78 und verträgt kein Ibuprofen (Magenblutung 2023)"),
            ],
            3,
            "Welche Pflaster und Blutverdünner: worauf beim Nasenbluten meiner Frau achten?",
            {"also": ["Katrin nimmt gerinnungshemmendes Medikament"]},
            id="nothing tells of the event that says when",
        ),
        pytest.param(
            [
                told(9, MULES, "2026-12-15", "2027-01-31"),
                told(2, "The Meanwood Mules kick off on Tuesdays at 20:00"),
            ],
            14,
            "when do the Meanwood Mules kick off tomorrow",
            {},
            id="when, on a day to come",
        ),
    ],
)
async def test_no_other_state_stands_before_what_answers(
    tmp_path: Path, facts: list[Told], day: int, question: str, rest: dict[str, Any]
) -> None:
    """Guards answers without a time from states with one. The first of the facts is the answer."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        for said, text, since, until, relations in sorted(facts, key=lambda fact: fact[0]):
            await tell(memory, clock, f"2026-12-{said:02}", text, since=since, until=until, relations=list(relations))
        clock.at = datetime(2026, 12, day, 18, tzinfo=UTC)
        assert await first(memory, question, **rest) == facts[0][1]


DOSE = "Ezio Gallo, il marito di Donatella, prende ogni mattina ramipril 5 mg per la pressione alta."
NEW_DOSE = "Ezio Gallo, il marito di Donatella, prende ramipril 10 mg la sera, dal 12 dicembre 2026."
LESSONS = "Giada Gallo, la figlia, ha pallavolo ad Asti il martedì e il giovedì alle 17:30."
NEW_LESSONS = "Dal 9 dicembre 2026 Giada Gallo ha pallavolo ad Asti il lunedì e il giovedì alle 18:00."
INHALER = "Asha has asthma: Clenil 50 micrograms, one puff morning and night."
NEW_INHALER = "Since 9 December Asha takes Clenil 100 micrograms, two puffs morning and night."
SWIMMING = "Asha has swimming lessons on Wednesdays at 16:30 with the teacher Karen."


@pytest.mark.parametrize(
    ("question", "rest", "answer"),
    [
        ("Quando prende le pastiglie Ezio?", {}, NEW_DOSE),
        ("Quante pastiglie e quando per la pressione di mio marito?", {}, NEW_DOSE),
        ("Quando prendeva le pastiglie al mattino?", {}, DOSE),
        ("Quale dose prendeva Ezio Gallo?", {"held_at": "2026-12-05"}, DOSE),
        ("martedì 15 dicembre Giada si allena?", {}, NEW_LESSONS),
        ("martedì 8 dicembre Giada si allena?", {}, LESSONS),
        ("What dose was she on before the review?", {"held_at": "2026-12-05", "also": ["Asha takes …"]}, INHALER),
        ("What dose is Asha on?", {}, NEW_INHALER),
    ],
)
async def test_what_was_replaced_and_what_replaced_it_are_states_of_one_thing(
    replaced: tuple[Memory, StoppedClock], question: str, rest: dict[str, Any], answer: str
) -> None:
    """However differently they are told: the time that is asked about decides, to the day."""
    memory, clock = replaced
    clock.at = datetime(2026, 12, 4 if "8 dicembre" in question else 13, 18, tzinfo=UTC)
    assert await first(memory, question, **rest) == answer


@pytest.fixture
async def replaced(tmp_path: Path) -> AsyncGenerator[tuple[Memory, StoppedClock]]:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        dose, lessons = [await tell(memory, clock, "2026-12-01", text) for text in (DOSE, LESSONS)]
        takes, swims = Relation("Asha", "takes", "Clenil 50"), Relation("Asha", "swims with", "Karen")
        inhaler = await tell(memory, clock, "2026-12-01", INHALER, relations=[takes])
        await tell(memory, clock, "2026-12-01", SWIMMING, until="2027-01-09", relations=[swims])
        await tell(memory, clock, "2026-12-04", NEW_LESSONS, since="2026-12-09", replaces=[lessons])
        await tell(
            memory,
            clock,
            "2026-12-09",
            NEW_INHALER,
            since="2026-12-09",
            replaces=[inhaler],
            relations=[replace(takes, destination="Clenil 100")],
        )
        await tell(memory, clock, "2026-12-12", NEW_DOSE, since="2026-12-12", replaces=[dose])
        yield memory, clock
