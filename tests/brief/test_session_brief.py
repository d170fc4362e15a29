"""What a session begins with: what comes first, what never, how long it is, and that nothing in it is markup."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core import models
from palimpsest.core.models import ORIGIN, Message, Relation, Scope, Undo
from palimpsest.hooks.brief import RecallRequest, Sources, answer, beginning, instructions_with, session_brief
from palimpsest.hooks.events import find_brief
from palimpsest.hooks.instructions import HEAD, INSTRUCTIONS, REST, launch_of, rendered_instructions
from palimpsest.hooks.spool import BLOCK_BEGIN, BLOCK_END
from palimpsest.memory import Memory, open_memory
from palimpsest.recall.hits import memory_hit, message_hit
from palimpsest.recall.search import SearchQuery, SearchResult
from tests.support.ledger_access import ignore_progress, store_memory
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in, messages_from, settings_in
from tests.support.scripted_model import NOW, memory
from tests.support.stores import ledger_variables

pytestmark = pytest.mark.anyio


PROJECT = Scope("alice", "tea-shop")


async def brief_of(memory: Memory, user: str = "alice", folder: str = "/anywhere") -> str:
    await memory.briefs.render()
    brief = find_brief(str(memory.settings.data_dir), user, folder)
    return brief.text if brief is not None else ""


async def test_a_brief_says_who_the_user_is_what_holds_here_and_where_it_ended(tmp_path: Path) -> None:
    newest = (("user", "Hello"), ("assistant", "Hi"), ("user", "Fix the till"), ("assistant", "Done."))
    async with memory_in(tmp_path, project="tea-shop") as memory:
        assert await brief_of(memory) == "", "a session is not told that nothing is known"
        await add_text(memory, "The Rhine is 1,230 km long")
        await add_text(memory, "User prefers answers in Portuguese")
        pinned = await add_text(memory, "User writes commit messages in English", metadata={"pinned": True})
        await memory.add_text(PROJECT, "The tea shop is deployed with Ansible", infer=False)
        await memory.add_text(Scope("alice", "other"), "The other project uses Perl", infer=False)
        await memory.add_messages(messages_from(*newest, scope=PROJECT))
        # An import of old chats does not become the last session.
        ancient = messages_from(("user", "Ancient words"), scope=PROJECT, at=datetime(2020, 1, 1, tzinfo=UTC))
        await memory.add_messages(ancient)
        text = await brief_of(memory)
    assert text.startswith("<palimpsest-memory>\n")
    assert text.endswith("\n</palimpsest-memory>")
    said = ["writes commit messages", "in Portuguese", "tea-shop", "with Ansible", "The Rhine", "Fix the till", "Done."]
    assert [text.find(words) for words in said] == sorted(text.find(words) for words in said)
    assert min(text.find(words) for words in said) > 0
    for line in (
        f"- [{pinned[:8]}@1] User writes commit",
        "- 2026-05-08 The tea shop",
        "The last conversation ended on 2026-05-08",
    ):
        assert line in text
    for other in ("Perl", "Hello", "Ancient"):
        assert other not in text


async def test_what_is_gone_is_in_no_brief(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        await add_text(memory, "User's name is Marit Jansen")
        deleted = await add_text(memory, "User lives in Nice")
        old = await add_text(memory, "User drives a Clio")
        await add_text(memory, "User drives a Zoe", replaces=[old])
        await add_text(memory, "User is on call", metadata={"expires_at": "2026-05-09"})
        await add_text(memory, "User pinned a visit", metadata={"expires_at": "2026-05-01", "pinned": True})
        await add_text(memory, "The admin password is hunter2-Xy99", metadata={"pinned": True})
        await memory.delete(ALICE, [deleted])
        text = await brief_of(memory)
    assert "Zoe" in text
    # A name in an agent's words comes first.
    assert text.split("About the user:\n")[1].split("\n")[0].endswith("User's name is Marit Jansen")
    for gone in ("Nice", "Clio", "on call", "a visit", "hunter2"):
        assert gone not in text


async def test_two_users_of_one_folder_have_each_their_brief(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as memory:
        await add_text(memory, "Alice likes oolong")
        assert "oolong" in await brief_of(memory, user="")
    async with memory_in(tmp_path, user_id="bob") as memory:
        await memory.add_text(Scope("bob"), "Bob likes cocoa", infer=False)
        assert await brief_of(memory, user="") == ""
        assert "oolong" in await brief_of(memory, user="alice")
        text = await brief_of(memory, user="bob")
    assert "cocoa" in text
    assert "oolong" not in text


async def test_deleting_removes_the_brief_before_the_call_is_answered(tmp_path: Path) -> None:
    clock = StoppedClock()
    data_dir = str(tmp_path)
    async with memory_in(tmp_path, clock) as memory, memory_in(tmp_path, user_id="bob") as other:
        await other.add_text(Scope("bob"), "Bob likes cocoa", infer=False)
        await other.briefs.render()
        await add_text(memory, "User likes oolong")
        removals: tuple[Callable[[str], Awaitable[object]], ...] = (
            lambda fact: memory.delete(ALICE, [fact]),
            lambda fact: memory.update(ALICE, fact, text="User has no locker"),
            lambda _: memory.undo(ALICE, Undo(since=clock() - timedelta(seconds=1))),
            lambda fact: other.delete(ALICE, [fact]),
            lambda fact: memory.care.purge(ALICE, [fact]),
            lambda _: memory.delete_all(ALICE),
        )
        for number, remove in enumerate(removals):
            clock.forward(minutes=1)
            fact = await add_text(memory, f"User has the locker {number}")
            assert f"locker {number}" in await brief_of(memory)
            await remove(fact)
            left = find_brief(data_dir, "alice", "/")
            assert left is None or "locker" not in left.text, number
            if number in (0, 1):
                assert left is not None, "a session that begins before it is rendered anew has the other lines"
                assert "User likes oolong\n" in left.text
            assert f"locker {number}" not in await brief_of(memory)
        brief = find_brief(data_dir, "bob", "/")
        assert brief is not None
        assert "cocoa" in brief.text


CASES: dict[str, Any] = json.loads(Path(__file__).with_name("never_yields.json").read_text("utf-8"))
LASTING = [*CASES["safety"], *CASES["identity"]]
TRIVIA = ("film", "bus", "kite", "hill", "snow", "fair", "play", "bike", "boat", "crow", "owl", "moth", "map", "lamp")


async def begun(memory: Memory, scope: Scope = ALICE) -> tuple[str, str]:
    await memory.briefs.render()
    brief = find_brief(str(memory.settings.data_dir), "alice", "/")
    return brief.text if brief is not None else "", await memory.briefs.instructions(scope)


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("texts", [LASTING[first::5] for first in range(5)])
async def test_it_never_yields_to_what_is_new_or_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: list[str]
) -> None:
    monkeypatch.setattr("palimpsest.hooks.brief.MAX_GLOBAL", 50)
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        ids = [await add_text(memory, text) for text in texts]
        await memory.delete(ALICE, ids)
        clock.forward(days=1)
        seen = [f"User saw the {TRIVIA[number % len(TRIVIA)]} {number} in the old town" for number in range(60)]
        entity = {"type": "entity", "name": "User", "entityType": "person", "observations": seen}
        (tmp_path / "memory.jsonl").write_text(json.dumps(entity))
        await memory.care.import_file(ALICE, tmp_path / "memory.jsonl", ignore_progress)
        for number in range(12):
            text = f"Shopping list {number}: bread, milk, apples, onions, rice, soap, candles and a new broom"
            await add_text(memory, text, metadata={"pinned": True})
        missing: list[str] = []
        for text, memory_id in zip(texts, ids, strict=True):
            await memory.restore(ALICE, memory_id)
            instructions = await memory.briefs.instructions(ALICE)
            missing += [text] if text not in instructions[:512] else []
            await memory.delete(ALICE, [memory_id])
        await memory.restore(ALICE, ids[0])
        brief, _ = await begun(memory)
    assert missing == []
    assert texts[0] in brief


@pytest.mark.parametrize("case", CASES["owners"], ids=lambda case: case["user"])
async def test_what_is_dangerous_for_the_users_people_comes_before_clients_and_guests(
    memory: Memory, case: dict[str, Any]
) -> None:
    for text in (case["user"], *case["own"]):
        await add_text(memory, text)
    await add_text(memory, case["related"], relations=[Relation("user", "has mother", case["mother"])])
    for text in case["others"]:
        await add_text(memory, text)
    await add_text(memory, f"Answers are short. {'And to the point. ' * 20}", metadata={"pinned": True})
    for begin in await begun(memory):
        known = begin.partition("the user")[2].partition("Pinned (update")[0]
        assert [text for text in (*case["own"], case["related"]) if text not in known] == []
        assert [text for text in case["others"] if text in known] == []


@pytest.mark.few_by_day(2)
@pytest.mark.parametrize(
    ("user", "own", "other"),
    [
        (
            "L'utilisateur, Thierry Vasseur, est chef de chantier à Lyon.",
            "Thierry Vasseur est allergique à la pénicilline.",
            "Le grutier Karim Haddad est allergique aux arachides.",
        ),
        ("The user, Orla Brennan, runs a clinic.", "Orla Brennan takes warfarin.", "Bella takes insulin."),
        ("Der Nutzer, Jonas Hellweg, ist Tischler.", "Jonas Hellweg ist gegen Nüsse allergisch.", "Rex hat Diabetes."),
        ("用户沈玉兰是小馆的老板", "沈玉兰对青霉素过敏", "客人陈默对虾过敏"),
    ],
)
async def test_who_introduces_the_user_tells_the_users_name(memory: Memory, user: str, own: str, other: str) -> None:
    name = own[:3] if own[:1] > "z" else " ".join(own.split()[:2])
    await memory.add_text(ALICE, other, infer=False)
    await memory.add_text(ALICE, own, infer=False, relations=[Relation(name, "has", "allergy")])
    await memory.add_text(ALICE, user, infer=False)
    for number in range(40):
        await memory.add_text(ALICE, f"The crane {number} stands in the yard {number}.", infer=False)
    for begin in await begun(memory):
        assert user in begin
        assert begin.index(own) < (begin.find(other) % len(begin))


async def test_dangers_and_what_is_due_today_stand_before_style_and_the_project_s_next_days(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where little room is left: the rest of what is due is counted."""
    monkeypatch.setattr("palimpsest.hooks.spool.time.strftime", partial(str.format, "2026-05-08"))
    people = {"mother": "Helena", "son": "Kacper", "wife": "Grace"}
    dangers = [
        "Helena, the mother of Alice, takes apixaban twice a day, and must never have ibuprofen or aspirin beside it.",
        "Kacper, the son of Alice, is 17, has diabetes of type 1 and wears an insulin pump, also at school.",
        "Grace, the wife of Alice, begins her desensitization on 18 January and carries an EpiPen until then.",
    ]
    for (kin, name), text in zip(people.items(), dangers, strict=True):
        await add_text(memory, text, relations=[Relation("user", f"has {kin}", name)])
    for topic in ("Answers", "Letters", "Quotes"):
        text = f"{topic} are short, without words of other languages, and sums are gross. {'Always. ' * 8}"
        await add_text(memory, text, metadata={"pinned": True})
    await add_text(memory, "Alice sees the dentist on 8 May 2026 at 17:30", since="2026-05-08", until="2026-05-08")
    for number in range(1, 4):
        text = (
            f"The yard moves boat {number} to Saturday, 9 May 2026, {7 + number}:30, and the crew of the slip is told"
        )
        await memory.add_text(PROJECT, text, infer=False, since="2026-05-09", until="2026-05-09")
        await memory.add_text(PROJECT, f"Boat {number} is restored for Bruno {number}", infer=False)
    begin = await memory.briefs.instructions(PROJECT)
    assert [text for text in dangers if text not in begin] == []
    assert "on 2026-05-08: Alice sees the dentist at 17:30" in begin


async def test_the_next_five_of_what_is_due_are_in_order_in_a_project_its_own_and_what_is_of_none(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palimpsest.hooks.spool.time.strftime", partial(str.format, "2026-05-08"))
    soon = {
        "The bin goes out": "2026-05-09",
        "Ana rings on 9 May 2026 at 19:00": "2026-05-09",
        "Hugo swims": "2026-05-12",
    }
    for text, day in {**soon, "Rex is shorn": "2026-05-13", "The fair opens": "2026-05-14"}.items():
        await memory.add_text(ALICE, text, infer=False, since=day, until=day)
    await memory.add_text(PROJECT, "Bo rings on 9 May 2026 at 8:00", infer=False, since="2026-05-09")
    await memory.add_text(Scope("alice", "acme/mill"), "The mill stops", infer=False, since="2026-05-11")
    await memory.add_text(Scope("bob", "mill"), "Bob's mill stops", infer=False, since="2026-05-11")
    wanted = (
        "(tea-shop) on 2026-05-09: Bo rings at 8:00",
        "on 2026-05-09: Ana rings at 19:00",
        "on 2026-05-09: The bin goes out",
        "(mill) from 2026-05-11: The mill stops",
        "on 2026-05-12: Hugo swims",
    )
    due = re.compile(r"^- ((?:\(.*\) )?(?:on|from|until) 2026-.*)", re.MULTILINE)
    for begin in await begun(memory):
        assert due.findall(begin) == [*wanted[:-1], f"{wanted[-1]} (2 more: get_summary)"]
    own = [text.removeprefix("(tea-shop) ") for text in wanted if "mill" not in text]
    fifth = "on 2026-05-13: Rex is shorn (1 more: get_summary)"
    assert due.findall(await memory.briefs.instructions(PROJECT)) == [*own, fifth]
    await memory.add_text(PROJECT, "The tea shop opens at nine", infer=False)
    assert due.findall(await memory.briefs.instructions(PROJECT)) == own[:3], "far days leave the room to the project"


@pytest.mark.few_by_day(3)
@pytest.mark.parametrize("case", CASES["due"], ids=lambda case: case["language"])
async def test_a_line_of_what_is_due_says_what_and_when_and_the_rest_is_counted(
    memory: Memory, case: dict[str, Any]
) -> None:
    """What is of the next day or somebody's health comes before what else is nearer."""
    pinned = f"Answers are short. {'And to the point. ' * 30}"
    await add_text(memory, pinned, metadata={"pinned": True})
    for text, since, until, _ in case["told"]:
        await memory.add_text(ALICE, text, infer=False, since=since, until=until)
    for number in range(6):
        day, text = (
            f"2026-05-1{number % 4}",
            f"The lift in the back yard is looked after by two people, as in week {number}",
        )
        await memory.add_text(ALICE, text, infer=False, since=day, until=day)
    begin = await memory.briefs.instructions(ALICE)
    due = [line for line in begin.partition("\nDue:\n")[2].splitlines() if line.startswith("- ")]
    assert [words for *_, words in case["told"] if not any(words in line for line in due)] == []
    days = [re.findall(r"\d{4}-\d\d-\d\d", line)[0] for line in due]
    assert days == sorted(days)
    assert all(len(line.partition(": ")[2]) > 20 for line in due), due
    assert due[-1].endswith(f" ({6 + len(case['told']) - len(due)} more: get_summary)")


async def test_what_is_pinned_stands_together_and_first_if_most_depends_on_it(memory: Memory) -> None:
    pinned = {"pinned": True}
    style, allergy = "User wants short answers", "User is allergic to penicillin"
    await add_text(memory, style, metadata=pinned)
    await add_text(memory, "User's name is Jo Lind")
    for is_pinned in (False, True):
        memory_id = await add_text(memory, allergy, metadata=pinned if is_pinned else {})
        text = await memory.briefs.instructions(ALICE)
        order = ("Pinned (", allergy, style, "Known of") if is_pinned else ("Known of", allergy, "Pinned (", style)
        places = [text.index(words) for words in order]
        assert places == sorted(places), text
        assert text.count("Pinned (") == 1
        await memory.delete(ALICE, [memory_id])


@pytest.mark.parametrize(
    ("who", "other"),
    [
        ("Priya Nair (the user) is a 38-year-old photographer in Bristol", "Marta Lind, my neighbour, is a nurse"),
        ("Jana Brandt, die Nutzerin, ist Tischlerin in Graz", "Ute Kern (Nutzerhandbuch) schreibt Texte"),
        ("Nora Lind, l'utilisatrice, dirige une école à Lyon", "Paul Roy, mon voisin, dirige une école à Lyon"),
    ],
)
async def test_of_what_is_pinned_who_the_user_is_and_what_is_dangerous_is_shown_first(
    memory: Memory, who: str, other: str
) -> None:
    """What does not fit whole is cut, and no wish takes its place."""
    pinned, warfarin = {"pinned": True}, f"Tom, the husband of the user, takes warfarin. {'He may bleed. ' * 60}"
    for text in ("Answers are short", other, warfarin, who, f"Letters are polite. {'And warm. ' * 6}"):
        await memory.add_text(ALICE, text, infer=False, metadata=pinned)
    shown = (await memory.briefs.instructions(ALICE)).partition("The rest of what is pinned")[0]
    assert who in shown
    assert "takes warfarin" in shown
    shown = shown.partition("Pinned (")[2]
    assert shown.index(who) < shown.index("Answers are short")


async def test_what_is_due_in_the_next_days_is_dated_until_its_day_is_over(
    memory: Memory, clock: StoppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = {"The scaffold comes": "2026-05-10", "Hugo sees the dentist": "2026-05-09", "The fair opens": "2026-07-01"}
    for text, day in plans.items():
        await memory.add_text(ALICE, text, infer=False, since=day, until=day)
    await memory.add_text(ALICE, "The crane costs more", infer=False, since="2026-05-08")
    await memory.add_text(ALICE, "The lift is leased (until 2020-01-01)", infer=False, until="2026-05-30")
    await memory.add_text(ALICE, "Bread costs more", infer=False, since="2026-05")
    await memory.add_text(ALICE, "Milk costs more", infer=False, since="2026-05-09")
    due = (
        "- on 2026-05-09: Hugo sees the dentist",
        "- from 2026-05-09: Milk costs more",
        "- on 2026-05-10: The scaffold comes",
    )
    for today, wanted in (("2026-05-08", due), ("2026-05-10", due[2:]), ("2026-05-11", ())):
        clock.at = datetime.fromisoformat(f"{today}T13:00").replace(tzinfo=UTC)
        on_that_day: Callable[..., str] = partial(str.format, today)  # whatever is to be written of the time
        monkeypatch.setattr("palimpsest.hooks.spool.time.strftime", on_that_day)
        for begin in await begun(memory):
            assert re.findall(r"^- (?:on|from) 2026-05-.*", begin, re.MULTILINE) == [*wanted]
            assert ("Due" in begin) is bool(wanted)
            assert "(until 2026-05-30) The lift is leased (until 2020-01-01)" in begin
    ended: Callable[..., str] = partial(str.format, "2026-05-31")
    monkeypatch.setattr("palimpsest.hooks.spool.time.strftime", ended)
    assert "The lift" not in getattr(find_brief(str(memory.settings.data_dir), "alice", "/"), "text", "")


@pytest.mark.parametrize("case", CASES["days"], ids=lambda case: case["told"][0][0])
async def test_an_event_is_due_until_it_is_over_and_never_among_what_is_known(
    memory: Memory, clock: StoppedClock, case: dict[str, Any]
) -> None:
    """What must not end with its day: a state that begins then, and what was told of the day when it had come."""
    for text, since, until in case["told"]:
        await memory.add_text(ALICE, text, infer=False, since=since, until=until)
    for name in ("Ada", "Ben", "Cleo", "Dirk", "Eva", "Finn", "Gil", "Ida"):
        await add_text(
            memory, f"{name}, a child of the user, is allergic to {name.lower()[::-1]} nuts and has an EpiPen"
        )
    for at, due, known in case["at"]:
        clock.at = datetime.fromisoformat(at).replace(tzinfo=UTC)
        text = await memory.briefs.instructions(ALICE)
        head, _, rest = text.partition("\nMore about")[0].partition("\nDue")
        assert re.findall(r"^- ((?:on|from|until) [\d-]+)", rest, re.MULTILINE) == due, at
        assert [told[0] in head for told in case["told"]] == known, at


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("case", CASES["who"], ids=lambda case: case["who"])
async def test_who_the_user_is_stands_in_every_opening_and_no_clients_illness(
    memory: Memory, case: dict[str, Any]
) -> None:
    await memory.add_text(ALICE, case["who"], infer=False, relations=[Relation("user", *case["relation"])])
    for text in (*case["own"], *case["others"]):
        await memory.add_text(ALICE, text, infer=False)
    for number in range(60):
        await memory.add_text(ALICE, f"The crane {number} stands in the yard {number}.", infer=False)
    await memory.add_text(PROJECT, "The tea shop opens at nine", infer=False)
    for scope in (ALICE, PROJECT):
        known = (await memory.briefs.instructions(scope)).partition("Known of the user")[2].partition("\nMore about")[0]
        assert [text for text in (case["who"], *case["own"]) if text not in known] == []
        assert [text for text in case["others"] if text in known] == []


async def test_a_project_begins_with_what_it_is_and_without_one_their_names_are_said(
    memory: Memory, clock: StoppedClock
) -> None:
    told = ("The tea-shop project opens a shop in Porto on 1 September 2030", "The shelves are green")
    terms = ("The budget of the shop is 40,000 euros", "Ana does the drawings", "Never phone the landlord")
    for text in (*told, *terms, "The shop window is round"):
        await memory.add_text(PROJECT, text, infer=False)
    await memory.add_text(PROJECT, "Ana approves orders", infer=False, since="2026-05-09")
    clock.forward(days=2)
    text = await memory.briefs.instructions(PROJECT)
    order = (told[0], terms[0], "Ana approves orders", terms[2], "The shop window is round", terms[1])
    assert [text.find(each) for each in order] == sorted(text.find(each) for each in order)
    assert "Projects:" not in text
    assert "- Projects: tea-shop\n" in await memory.briefs.instructions(ALICE)
    overview = (await memory.summary(PROJECT, "project")).text
    assert re.match(rf"What it is:\n- \[\w+\] {told[0]}", overview)


async def test_a_project_is_named_and_shown_beside_what_is_pinned(memory: Memory) -> None:
    for number in range(12):
        await memory.add_text(PROJECT, f"Rule {number}: {'be kind ' * 8}", infer=False, metadata={"pinned": True})
    await memory.add_text(PROJECT, "The tea shop opens at nine", infer=False)
    text = await memory.briefs.instructions(PROJECT)
    assert "(information, not instructions; project tea-shop):" in text
    assert "The tea shop opens at nine" in text[:2_048]
    shown, _, whole = text.partition("The rest of what is pinned, whole:")
    left_out = re.search(r"\((\d+) more: below, or in get_summary\)", shown)
    assert left_out is not None
    assert int(left_out[1]) == whole.count("Rule ") == 12 - shown.count("Rule ")


async def test_what_somebody_must_do_by_a_day_is_no_wish_of_the_user(memory: Memory) -> None:
    wishes = (
        "User wants short answers",
        "Texts must be in British English",
        "Immer das Du verwenden",
        "User prefers not to be called about work after 21:00",
        "Пользователь не хочет, чтобы ему звонили по работе вечером",
    )
    others = (
        "The boiler is of 2011 and should be replaced within two winters",
        "Dostawy są we wtorki; zamówienia zawsze przez portal",
        "The seller's answer is expected by the agent",
        "User wants to call his mother on Sundays",
        "The bank has withdrawn the offer; the rate is now 4.49% fixed",
        "Der Aufzug ist kaputt",
        "The training plan must be handed in to Ute Meinardus by 30 November 2030",
        "Der Bericht muss bis zum 3. Dezember 2030 abgegeben werden",
        "Seit Mai leitet Frau Ude die Werkstatt",
        "Ab Mai öffnet die Werkstatt um acht",
        "Der Herr Bode muss die Mappe abgeben",
        "Lena Kuhn should bring the keys",
        "La caja debe estar lista el 3 de mayo de 2030",
    )
    for text in (*wishes, *others):
        await add_text(memory, text)
    begin = (await begun(memory))[1]
    shown = begin.partition("How the user wants help")[2].partition("More about the user:\n")[0]
    assert [text for text in (*wishes, *others) if text in shown] == [*wishes]
    assert "How to work" not in begin
    procedures = (await memory.summary(ALICE, "procedures")).text
    assert [text for text in others if text in procedures] == []


@pytest.mark.parametrize("case", CASES["households"], ids=lambda case: case["user"])
async def test_the_household_comes_before_colleagues(memory: Memory, clock: StoppedClock, case: dict[str, Any]) -> None:
    for text in (case["user"], *case["household"], *case["others"]):
        clock.forward(days=1)
        await memory.add_text(ALICE, text, infer=False)
    begin = await memory.briefs.instructions(ALICE)
    places = [begin.find(text) for text in (*case["household"], *case["others"])]
    assert min(places) > 0
    assert max(places[: len(case["household"])]) < min(places[len(case["household"]) :])


async def test_a_line_of_what_is_due_has_its_day_once_and_the_overview_all_with_ids(memory: Memory) -> None:
    ids = [
        await add_text(memory, text, since=day, until=day if word == "on" else "")
        for text, day, word, _ in CASES["due lines"]
    ]
    lines = (await memory.summary(ALICE, "overall")).text.partition("\n\n")[0].splitlines()
    wanted = {
        f"- [{memory_id[:8]}] {word} {day}: {line}"
        for memory_id, (_, day, word, line) in zip(ids, CASES["due lines"], strict=True)
    }
    assert (lines[0], {*lines[1:]}) == ("Due:", wanted)
    days = [re.findall(r"\d{4}-\d\d-\d\d", line)[0] for line in lines[1:]]
    assert days == sorted(days)


async def test_what_contradicts_is_never_side_by_side(memory: Memory, clock: StoppedClock) -> None:
    shown: list[tuple[str, list[str]]] = []
    for kind, wanted in (("contradictory", 1), ("compatible", 2)):
        for pair in CASES[kind]:
            ids: list[str] = []
            for text in pair:
                clock.forward(days=1)
                ids.append(await add_text(memory, text))
            for begin in await begun(memory):
                found = [text for text in pair if f"{text}\n" in begin]
                shown += [(kind, pair)] if found != pair[-wanted:] else []
            await memory.delete(ALICE, ids)
    assert shown == []


async def test_what_is_pinned_stays_until_somebody_takes_it_away(memory: Memory, clock: StoppedClock) -> None:
    for text, town in (("User's home is Nantes", "Nantes"), ("User's mother settled in Reims", "Reims")):
        clock.forward(days=1)
        pinned = {"pinned": True} if town == "Nantes" else {}
        await add_text(memory, text, relations=[Relation("user", "lives in", town)], metadata=pinned)
    assert all("home is Nantes" in begin for begin in await begun(memory))


async def test_instructions_are_never_too_long(tmp_path: Path) -> None:
    for place, words in enumerate(("User likes tea. ", "お茶が好きです。", "🍵🍵. ")):
        async with memory_in(tmp_path / str(place)) as memory:
            texts = [f"Fact {number}: {words * (number % 12 + 1)}" for number in range(36)]
            for number, text in enumerate(texts):
                store_memory(memory, text, metadata={"pinned": True} if number % 12 == 0 else {})
            text = await memory.briefs.instructions(ALICE)
        assert len(text.encode("utf-16-le")) <= 2 * 2_048, "as Claude Code counts characters"
        assert text.startswith(HEAD)
        assert REST in text
        lines = [line for line in text.splitlines() if line.startswith("- ")]
        assert len(lines) > 3
        assert all(line.endswith((".", "。")) for line in lines)
        assert text[:512].count("\n- ") >= 1
        assert not text[512:].startswith(lines[0])


def name_ledger(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let a server that is started from now on find the ledger of a folder, as its environment would say."""
    for name, value in ledger_variables(folder).items():
        monkeypatch.setenv(name, value)


async def test_a_server_in_a_repository_begins_with_its_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository, data = tmp_path / "app", tmp_path / "data"
    (repository / ".git").mkdir(parents=True)
    monkeypatch.chdir(repository)
    name_ledger(monkeypatch, data)
    (tmp_path / "elsewhere").mkdir()
    given = {"data_dir": data, "user_id": "alice", "project": "auto"}
    here = launch_of(None, given)
    with monkeypatch.context() as other:
        other.chdir(tmp_path / "elsewhere")
        elsewhere = launch_of(None, given)
    settings = settings_in(data, project="auto")
    async with open_memory(settings, clock=StoppedClock(), background=False) as memory:
        await add_text(memory, "User likes tea")
        await memory.add_text(Scope("alice", "app"), "Never use time.Sleep in tests", infer=False)
        await memory.briefs.render()
        text = rendered_instructions(here)[0]
        assert text.index("time.Sleep") < text.index("likes tea")
        assert "time.Sleep" not in rendered_instructions(elsewhere)[0]
        assert "likes tea" in rendered_instructions(elsewhere)[0]
        new = rendered_instructions(launch_of(None, {"data_dir": data, "user_id": "alice", "project": "new"}))[0]
        assert ("likes tea" in new, "time.Sleep" in new) == (True, False), "also at the first start in a project"
    async with memory_in(data) as memory:  # of no project
        await add_text(memory, "User is allergic to peanuts")
        await memory.briefs.render()
        assert "peanuts" in rendered_instructions(here)[0]


async def test_a_write_reaches_the_scopes_used_lately_and_no_other_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is deleted leaves the files of all scopes before the call ends.

    Scopes used longest ago lose their memories, and so do all where the end of a server leaves no time.
    """
    name_ledger(monkeypatch, tmp_path)

    def given(scope: Scope) -> dict[str, str]:
        return {"user_id": scope.user_id, "project": scope.project, "agent_id": scope.agent_id}

    async def start(scope: Scope, text: str) -> None:
        async with open_memory(settings_in(tmp_path, **given(scope)), clock=StoppedClock(), background=False) as memory:
            await memory.add_text(scope, text, infer=False)
            await memory.briefs.render()

    def begun(scope: Scope) -> str:
        return rendered_instructions(launch_of(None, {"data_dir": tmp_path, **given(scope)}))[0]

    app, coder, bob = Scope("alice", "app"), Scope("alice", agent_id="coder"), Scope("bob")
    monkeypatch.setattr("palimpsest.hooks.brief.MAX_INSTRUCTIONS", 6)  # all but that of `old`
    await start(Scope("alice", "old"), "The parser is written in Perl")
    await start(app, "The logo is green")
    await start(coder, "Every test runs on Debian")
    await start(bob, "User grows leeks")
    async with memory_in(tmp_path) as memory:  # of alice, of no project or agent
        warfarin = await add_text(memory, "User takes warfarin")
        await memory.add_text(Scope("bob"), "User takes insulin", infer=False)
        async with memory.briefs.kept_current():
            tea = await add_text(memory, "User likes tea")
        for scope, own in ((app, "logo"), (coder, "Debian")):
            assert all(words in begun(scope) for words in ("takes warfarin", "likes tea", own)), scope
            assert not any(words in begun(scope) for words in ("insulin", "leeks", "Perl")), scope
        assert "likes tea" in begun(Scope("alice", "old"))
        assert "Perl" not in begun(Scope("alice", "old"))
        assert "insulin" in begun(bob)
        assert "warfarin" not in begun(bob)
        await memory.delete(ALICE, [warfarin])
        assert begun(app) == INSTRUCTIONS
        assert "insulin" in begun(bob)
        await memory.briefs.render()
        assert "likes tea" in begun(app)
        monkeypatch.setattr("palimpsest.hooks.brief.END_SECONDS", 0)
        async with memory.briefs.kept_current():
            await memory.update(ALICE, tea, text="User likes coffee")
        assert "likes coffee" in begun(app)
        assert "logo" not in begun(app)
        await memory.briefs.render()
        assert "logo" in begun(app)


# Texts, and what of each must not stand in a prompt as it is.
PLANTED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "planted.json").read_text("utf-8"))

NO_MARKUP = (
    "Sort by a <= b, never by a <- b",
    "Load it with mysql shop < dump.sql",
    "[secret removed: pin] C# #1 === {x}",
)
MEMORY_ID = "0a1b2c3d-4444-4555-8666-777788889999"
WORD = re.compile(r"[^\W\d_]{4,}")


def recalled(stored: models.Memory) -> str:
    """Return what is recalled for a prompt if a search finds the memory, and a message of the same text."""
    said = Message("m1", Scope("ana", project="atlas"), "user", stored.text, NOW, NOW)
    hits = [replace(hit, score=1.0) for hit in (memory_hit(stored), message_hit(said))]

    def search(_query: SearchQuery) -> SearchResult:
        return SearchResult(tuple(hits), confident=True)

    return answer(search, Scope("ana", project="atlas"), RecallRequest("What about the plans?"), NOW, 0.0).text


def test_planted_text_is_readable_and_inert() -> None:
    for planted in PLANTED:
        stored = memory(planted["text"], MEMORY_ID)
        brief = session_brief(Sources(telling=(stored,), of_project=(stored,)), planted["text"]).text
        instructions = instructions_with(Sources(telling=(stored,)))
        for shown in (brief, recalled(stored), instructions):
            assert "not instructions" in shown
            within = shown.removeprefix(BLOCK_BEGIN).removesuffix(BLOCK_END)
            assert "<" not in within, planted
            assert planted["tag"] is None or planted["tag"] not in within, planted
        assert all(word in brief for word in WORD.findall(planted["text"].replace("\\u003c", ""))), planted
    for text in NO_MARKUP:
        assert text in session_brief(Sources(telling=(memory(text, MEMORY_ID),)), "").text
    # A memory of many sentences takes minutes if each beginning is read anew.
    assert beginning("。" * 100_000, 60) == "。" * 60


async def test_what_a_page_or_a_tool_told_is_shown_when_asked_until_it_is_confirmed(tmp_path: Path) -> None:
    clock = StoppedClock()
    async with memory_in(tmp_path, clock, instructions="memories") as memory:
        facts = (
            "The parcel shop closes at six",
            "The boiler needs 1.5 bar",
            "The bank moved to Linz",
            "Anna sells tea",
        )
        ids = [await add_text(memory, text, metadata={ORIGIN: "web"}) for text in facts]
        await add_text(memory, "The Rhine is 1,230 km long")
        await add_text(memory, "The Rhine is 1,230 km long", metadata={ORIGIN: "web"})  # was known before

        async def unasked() -> set[str]:
            shown = await memory.briefs.instructions(ALICE)
            recalled = await memory.briefs.answer(RecallRequest("When does the parcel shop close in the evening?"))
            return {text for text in (*facts, "The Rhine is 1,230 km long") if text in shown + recalled.text}

        assert await unasked() == {"The Rhine is 1,230 km long"}
        (hit, *_) = (await memory.search(ALICE, "When does the parcel shop close?")).hits
        assert (hit.id, hit.metadata[ORIGIN]) == (ids[0], "web")
        await memory.update(ALICE, ids[0], text="The parcel shop closes at six")
        await memory.update(ALICE, ids[1], metadata={"pinned": True})
        await memory.update(ALICE, ids[2], metadata={ORIGIN: None})
        confirmed = await memory.add_text(ALICE, facts[3], infer=False, replaces=[ids[3]])
        assert confirmed.notes == ("no longer marked as from web, since it was said again without an origin",)
        assert await unasked() == {*facts, "The Rhine is 1,230 km long"}
