"""What a memory hands on to the one that replaces it, and what of it a correction puts right, as an agent is told."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from palimpsest.text.redaction import redact
from tests.support.mcp_client import reply_results, reply_text
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

SITE = {
    "text": "ferry-web usa PostgreSQL y cobra con Redsys.",
    "relations": [["ferry-web", "uses", "PostgreSQL"], ["ferry-web", "charges with", "Redsys"]],
}

# What is known, what replaces or corrects it, or what is told, and lines of the reply to that; then texts with a
# weekday that may be that of every week, and what is told with its beginning.
CASES = json.loads((Path(__file__).parent / "replacing.json").read_text("utf-8"))


@pytest.mark.parametrize(("known", "given", "lines"), CASES["replaced"])
async def test_what_holds_on_is_told_and_what_does_not_is_closed(
    tmp_path: Path, known: dict[str, Any], given: dict[str, Any], lines: tuple[str, ...]
) -> None:
    async with connect(tmp_path) as agent:
        (old,) = reply_results(await agent.call_tool("add_memory", known))
        reply = reply_text(await agent.call_tool("add_memory", {**given, "replaces": [old["id"]]}))
    told = [line.strip() for line in reply.splitlines()]
    assert set(lines) <= set(told)


TWELVE, THIRTEEN = "zwölf Module", "dreizehn Module"


@pytest.mark.parametrize("tells", [False, True])
async def test_what_is_closed_is_stated_nowhere_else(tmp_path: Path, *, tells: bool) -> None:
    """The number was handed on to the weekday. It goes from there too, or is not closed if that text tells it."""
    told = f"Das Konzept hat {TWELVE}, die mittwochs stattfinden."
    weekday = f"Das Konzept hat seine {TWELVE if tells else 'Module'} künftig donnerstags."
    has = [["Konzept", "has", number] for number in (TWELVE, THIRTEEN)]
    async with connect(tmp_path) as agent:
        days = [["Module", "finden statt", day] for day in ("mittwochs", "donnerstags")]
        first = {"text": told, "relations": [has[0], days[0]]}
        (old,) = reply_results(await agent.call_tool("add_memory", first))
        second = {"text": weekday, "relations": [days[1]], "replaces": [old["id"]]}
        reply = await agent.call_tool("add_memory", second)
        assert f"still states Konzept — has → {TWELVE}" in reply_text(reply)
        (moved,) = reply_results(reply)
        again = {"text": f"Konzept: {TWELVE} zu 45 Minuten", "relations": [has[0]]}
        (number,) = reply_results(await agent.call_tool("add_memory", again))
        more = {"text": f"Konzept: nun {THIRTEEN} zu 45 Minuten", "relations": [has[1]], "replaces": [number["id"]]}
        reply = await agent.call_tool("add_memory", more)
        history = reply_text(await agent.call_tool("get_history", {"memory_id": moved["id"]}))
    assert (f"closes Konzept — has → {TWELVE}" in reply_text(reply)) is not tells
    assert (f"\n  states Konzept — has → {TWELVE}" in history) is tells


TODAY = datetime.now(UTC).date()
YESTERDAY, LONG_AGO = TODAY - timedelta(1), TODAY - timedelta(20)
BEFORE = (TODAY - timedelta(40)).isoformat()

# Memories that hold from a day in the past or from today: the appointments among them are off, and the others go on.
# What was to come is off, too, if it is put off on its day, soon after, or with its day named, as LONG_AGO is. So is
# what waited for an answer.
OVER = [
    {"text": "The meeting with Ute is on 18 November.", "since": "2025-11-18", "until": "2025-11-18"},
    {"text": "Bella is booked for a spay on 18 November 2025 at 09:30.", "since": "2025-11-18"},
    {"text": "Der Termin ist am 18. November 2025 um 9 Uhr.", "since": "2025-11-18"},
    {"text": "Le rendez-vous est le 18 novembre 2025 à 9 h 20."},
    {"text": "沈国栋2025年11月18日下午3点看牙", "since": "2025-11-18"},
    {"text": f"Emma has the dentist on {TODAY:%d %B %Y} at 16:00.", "since": TODAY.isoformat()},
    {"text": f"The boiler is delivered on {TODAY:%d %B %Y}.", "since": TODAY.isoformat(), "at": BEFORE},
    {"text": f"The boiler is delivered on {YESTERDAY:%d %B %Y}.", "at": BEFORE},
    {"text": f"The boiler is delivered on {LONG_AGO:%d %B %Y}.", "since": LONG_AGO.isoformat(), "at": BEFORE},
    {
        "text": "El permiso lo pidió Vicent el 20 de noviembre de 2025 y todavía no hay respuesta.",
        "since": "2025-11-20",
    },
    {"text": "Für den Umbau steht die Genehmigung noch aus."},
    {"text": "Wniosek Anny: nadal nie ma odpowiedzi."},
    {"text": "許可の返事はまだない"},
]
ON = [
    {"text": "Ana moved to Graz on 18 November 2025.", "since": "2025-11-18"},
    {"text": "Depuis le 18 novembre 2025 à 8 h, Sandrine conduit la grue.", "since": "2025-11-18"},
    {"text": "Practice is on Wednesdays at 17:30."},
    {"text": f"Anna works at Lidl from {YESTERDAY:%d %B %Y}.", "since": YESTERDAY.isoformat(), "at": BEFORE},
    {"text": f"Anna starts at Lidl on {YESTERDAY:%d %B %Y}.", "since": YESTERDAY.isoformat(), "at": BEFORE},
    {"text": f"On {LONG_AGO:%d %B %Y} Anna joins Lidl.", "since": LONG_AGO.isoformat(), "at": BEFORE},
    {
        "text": f"On {YESTERDAY:%d %B %Y} Anna is at Aldi.",
        "at": BEFORE,
        "relations": [["Anna", "works at", "Aldi", YESTERDAY.isoformat()]],
    },
    {"text": f"The boiler was delivered on {YESTERDAY:%d %B %Y}.", "since": YESTERDAY.isoformat()},
    {"text": "The shop is still open on Sundays."},
]


@pytest.mark.parametrize("known", [*OVER, *ON])
async def test_an_appointment_of_the_past_does_not_go_on(tmp_path: Path, known: dict[str, Any]) -> None:
    async with connect(tmp_path) as agent:
        (held,) = reply_results(await agent.call_tool("add_memory", known))
        new = {
            "text": f"Not on {LONG_AGO:%d %B %Y}, but otherwise then.",
            "since": "2098-12-01",
            "replaces": [held["id"]],
        }
        assert ("goes on until" in reply_text(await agent.call_tool("add_memory", new))) is (known in ON)
        history = reply_text(await agent.call_tool("get_history", {"memory_id": held["id"]}))
    assert ("2098-12-01" in history.splitlines()[0]) is (known in ON)


async def test_what_is_on_a_weekday_goes_on_until_another_takes_its_place(tmp_path: Path) -> None:
    """If what takes its place is on one day, that day was of one week as well."""
    monday = (TODAY - timedelta(21 + TODAY.weekday())).isoformat()
    async with connect(tmp_path) as agent:
        for number, text in enumerate(CASES["weekly"]):
            for told in (monday, TODAY.isoformat()):
                scope = {"scope": {"user_id": f"{number} {told}"}}
                (held,) = reply_results(await agent.call_tool("add_memory", {"text": text, "at": told, **scope}))
                new = {"text": "木曜日の16時30分になる。", "since": "2098-12-10", "replaces": [held["id"]], **scope}
                assert "goes on until 2098-12-10" in reply_text(await agent.call_tool("add_memory", new)), text
        (held,) = reply_results(await agent.call_tool("add_memory", {"text": CASES["weekly"][0], "at": monday}))
        new = {"text": "Not until 10 December 2098 at 16:30.", "since": "2098-12-10", "replaces": [held["id"]]}
        assert "goes on until" not in reply_text(await agent.call_tool("add_memory", {**new, "until": "2098-12-10"}))


async def test_a_reason_is_not_handed_on(tmp_path: Path) -> None:
    """Why the roof was put off the first time is not why it is put off again. Other metadata is about the roof."""
    async with connect(tmp_path) as agent:
        roof = ["Jörg", "deckt neu", "Laubendach"]
        given = {
            "text": "Das Neudecken des Laubendachs ist auf den 21. November 2098 verschoben.",
            "metadata": {"because": "Nachtdienst am 7. November", "site": "Parzelle 47"},
            "relations": [[*roof, "2098-11-21"]],
        }
        (put_off,) = reply_results(await agent.call_tool("add_memory", given))
        again = {
            "text": "Das Neudecken des Laubendachs fällt wegen Sturm aus und wird auf März 2099 verschoben.",
            "relations": [[*roof, "2099-03"]],
            "replaces": [put_off["id"]],
        }
        reply = reply_text(await agent.call_tool("add_memory", again))
        line = reply_text(await agent.call_tool("get_summary", {"kind": "timeline:Laubendach"}))
    assert "keeps the metadata of what it replaced: site\n" in reply
    assert line.count("because: Nachtdienst") == 1


async def test_what_several_memories_told_keeps_its_beginning(tmp_path: Path) -> None:
    """Two are put together: what only one of them dated began then, and the rest did not."""
    async with connect(tmp_path) as agent:
        (open_one,) = reply_results(await agent.call_tool("add_memory", SITE))
        bizum = {
            "text": "Desde el 16 de noviembre ferry-web acepta Bizum.",
            "since": "2025-11-16",
            "relations": [["ferry-web", "charges with", "Bizum"]],
        }
        (dated_one,) = reply_results(await agent.call_tool("add_memory", bizum))
        both = {
            "text": "ferry-web cobra con Redsys y, desde el 16 de noviembre, también por Bizum.",
            "since": "2025-11-16",
            "relations": [["ferry-web", "charges with", "Redsys"], ["ferry-web", "charges with", "Bizum"]],
            "replaces": [open_one["id"], dated_one["id"]],
        }
        reply = reply_text(await agent.call_tool("add_memory", both))
        line = reply_text(await agent.call_tool("get_summary", {"kind": "timeline:ferry-web"}))
        about = reply_text(await agent.call_tool("get_summary", {"kind": "about:ferry-web"}))
    assert about.count("charges with → Bizum") == 1
    assert "still states ferry-web — charges with → Redsys\n" in reply
    assert "still states ferry-web — charges with → Bizum (since 2025-11-16)" in reply
    assert "2025-11-16 to" not in line


# Two relations of which several hold at a time, and whose timeline has them.
SEVERAL = [
    (["user", "owns", "Skoda"], ["user", "owns", "Leaf", "2026-10"], "user"),
    (["Hanne", "takes", "Ramipril 5 mg", "2026-10"], ["Hanne", "takes", "Eliquis", "2026-10-26"], "Hanne"),
    (["Silke", "singt in", "Kantorei", "2019"], ["Silke", "singt in", "Projektchor", "2026-11"], "Silke"),
    (["Rui", "é membro de", "Banda", "2019"], ["Rui", "é membro de", "Coro", "2026-11"], "Rui"),
    (["Ruth", "lives in", "Leeds", "2019"], ["Ben", "lives in", "Leeds", "2026-11"], "Leeds"),
    (["Pavol", "leads", "choir", "2019"], ["Pavol", "leads", "orchestra", "2026-11"], "Pavol"),
]


@pytest.mark.parametrize(("first", "second", "name"), SEVERAL)
async def test_a_timeline_ends_nothing_of_which_several_hold(
    tmp_path: Path, first: list[str], second: list[str], name: str
) -> None:
    async with connect(tmp_path) as agent:
        for number, relation in enumerate((first, second)):
            given = {"text": f"What was told as number {number}", "relations": [relation]}
            await agent.call_tool("add_memory", given)
        line = reply_text(await agent.call_tool("get_summary", {"kind": f"timeline:{name}"}))
    assert line.count("since 20") == 2


# Two statements of one thing, the second of which gives another number, price, day or version, or another time to come.
CHANGED = [
    (["Ecos da Ría", "rehearses on", "martes 20:30"], ["Ecos da Ría", "rehearses on", "jueves 20:00"], ""),
    (["ferry-web", "uses", "Django 4.2"], ["ferry-web", "uses", "Django 5.2"], ""),
    (["billete de niño", "costs", "8 €"], ["billete de niño", "costs", "9 €"], "2098-04"),
    (["Carmiña", "will be launched on", "2098-05-15"], ["Carmiña", "will be launched on", "2098-06-12"], "2098-06-12"),
    (["Brais", "works at", "Navantia"], ["Brais", "works at", "Damen"], "2098-01-11"),
    (["Fisio Patraix", "abre", "15 de febrero de 2098"], ["Fisio Patraix", "abre", "1 de marzo de 2098"], "2098-03-01"),
    (["Atelier", "ouvre", "12 février 2098"], ["Atelier", "ouvre", "1er mars 2098"], ""),
    (["Carmen Llopis", "recoge", "lunes y miércoles 16:30"], ["Carmen Llopis", "recoge", "lunes 16:30"], ""),
    (["Maite Roig", "gestiona", "préstamo"], ["Sergi Bonet", "gestiona", "préstamo"], ""),
]
OTHERS = [
    (["user", "takes", "enalapril"], ["Dolores", "takes", "paracetamol"], ""),
    (["user", "owns", "Rosalía"], ["user", "owns", "Carmiña"], ""),
    (["Antonia Ruiz", "es paciente de", "Lucía"], ["Javier Martínez", "es paciente de", "Lucía"], ""),
]


@pytest.mark.parametrize(("before", "after", "since"), [*CHANGED, *OTHERS])
async def test_another_value_of_the_same_thing_is_named(
    tmp_path: Path, before: list[str], after: list[str], since: str
) -> None:
    """The texts have nothing in common, so only the relations tell."""
    async with connect(tmp_path) as agent:
        await agent.call_tool("add_memory", {"text": "Así es desde siempre en esta casa", "relations": [before]})
        given = {"text": "Lo han cambiado todo, dice ella", "since": since, "relations": [after]}
        (added,) = reply_results(await agent.call_tool("add_memory", given))
    assert bool(added.get("similar")) is ((before, after, since) in CHANGED)


NAMED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("named.json").read_text("utf-8"))


async def test_what_a_text_changes_is_named_and_what_it_stands_beside_is_not(tmp_path: Path) -> None:
    """The first of what is known is what it is about. Each case is of a user of its own."""
    wrong: dict[str, list[str]] = {}
    async with connect(tmp_path) as agent:
        for number, (name, case) in enumerate(NAMED.items()):
            scope = {"scope": {"user_id": f"user-{number}"}}
            (first, *_) = [
                reply_results(await agent.call_tool("add_memory", given | scope))[0] for given in case["known"]
            ]
            (added,) = reply_results(await agent.call_tool("add_memory", case["new"] | scope))
            named = added.get("similar", ())
            if [item["id"] for item in named] != [first["id"]][: case["named"]]:
                wrong[name] = [str(item) for item in named]
    assert wrong == {}


async def test_what_is_settled_is_not_named_again(tmp_path: Path) -> None:
    """What was replaced may hold until a day to come, and the rest of it is added as the note asks."""
    async with connect(tmp_path) as agent:
        known = {"text": "Jörg singt im Bass der Hunte-Kantorei; geprobt wird dienstags um 19:30 Uhr in Osternburg."}
        (old,) = reply_results(await agent.call_tool("add_memory", known))
        given = {"text": "Die Hunte-Kantorei probt ab 2099 dienstags um 20 Uhr.", "since": "2099-01-01"}
        (change,) = reply_results(await agent.call_tool("add_memory", {**given, "replaces": [old["id"]]}))
        (rest,) = reply_results(await agent.call_tool("add_memory", {"text": "Jörg singt im Bass der Hunte-Kantorei."}))
    assert "similar" not in change
    assert "similar" not in rest


@pytest.mark.parametrize(
    ("old", "new", "end"),
    [("120 pasajeros", "118 pasajeros", "118 pasajeros"), ("120", "1.118", "1.118 pasajeros"), ("Rosalía", "Rosa", "")],
)
async def test_a_correction_is_one_of_the_relations_too(tmp_path: Path, old: str, new: str, end: str) -> None:
    async with connect(tmp_path) as agent:
        given = {"text": "El Rosalía lleva 120 pasajeros", "relations": [["Rosalía", "carries", "120 pasajeros"]]}
        (added,) = reply_results(await agent.call_tool("add_memory", given))
        change = {"memory_id": added["id"], "old": old, "text": new}
        reply = reply_text(await agent.call_tool("update_memory", change))
    source = "Rosalía" if end else new
    assert f"states {source} — carries → {end or '120 pasajeros'}" in reply


SECRETS = [
    "Los clientes usan Ons-verano-88 como contraseña del wifi, y Nieves quiere otra.",
    "Suso puso Meloxo1998 de contraseña en el router del ferry.",
    "El candado del astillero lo abre 7719.",
    "La caja fuerte del astillero se abre girando 8-16-24.",
    "Nieves entra en la web de la Xunta con el usuario nieves58 y Rosalia_2026!.",
    "O contrasinal do ordenador do estaleiro é Dorna1959!",
]
NO_SECRETS = [
    "La clave de la restauración es el roble.",
    "El código postal de Bueu es 36930.",
    "Cambió de contraseña el lunes.",
    "ISO-27001 habla de contraseñas seguras.",
]


@pytest.mark.parametrize("text", [*SECRETS, *NO_SECRETS])
def test_a_secret_before_its_name_is_removed_too(text: str) -> None:
    assert bool(redact(text).kinds) is (text in SECRETS)


@pytest.mark.parametrize(("given", "lines"), CASES["own times"])
async def test_a_relation_with_times_of_its_own(tmp_path: Path, given: dict[str, Any], lines: list[str]) -> None:
    async with connect(tmp_path) as agent:
        reply = reply_text(await agent.call_tool("add_memory", {"text": "Das alles ist so", **given}))
    assert [line.strip() for line in reply.splitlines() if "—" in line] == lines


@pytest.mark.parametrize(("known", "correction", "lines"), CASES["corrected"])
async def test_a_correction_leaves_what_it_does_not_touch(
    tmp_path: Path, known: dict[str, Any], correction: dict[str, Any], lines: list[str]
) -> None:
    async with connect(tmp_path) as agent:
        (added,) = reply_results(await agent.call_tool("add_memory", known))
        reply = reply_text(await agent.call_tool("update_memory", {"memory_id": added["id"], **correction}))
    assert [line.strip() for line in reply.splitlines() if "—" in line] == lines


async def test_what_was_due_is_named_by_what_came_instead(tmp_path: Path) -> None:
    """What has only an end may be a deadline that has passed. What had a beginning as well is over."""
    until = (TODAY - timedelta(4)).isoformat()
    cost = ["repair of Plichta's Haibike", "costs", "890 zł"]
    text = f"Jerzy Plichta left his Haibike with error 504; estimate 890 zł, ready by {until}."
    async with connect(tmp_path) as agent:
        for name, times in {"due": {}, "over": {"since": BEFORE}}.items():
            scope = {"scope": {"user_id": name}}
            given = {"text": text, "at": BEFORE, "until": until, "relations": [cost], **times, **scope}
            await agent.call_tool("add_memory", given)
            late = {"text": "The Haibike of Mr Plichta went to Bosch.", "relations": [[*cost[:2], "650 zł"]], **scope}
            (added,) = reply_results(await agent.call_tool("add_memory", late))
            assert bool(added.get("similar")) is (name == "due"), name


async def test_what_is_put_off_on_its_own_day_before_its_hour_is_named(tmp_path: Path) -> None:
    visit = f"Bogdan ma u dentystki Moniki Cyman wizytę {TODAY.isoformat()} o 23:59."
    async with connect(tmp_path) as agent:
        known = {"text": visit, "since": TODAY.isoformat(), "hints": {"words": ["stomatolog"]}}
        (first,) = reply_results(await agent.call_tool("add_memory", known))
        text = "Dentystka Monika Cyman przełożyła wizytę Bogdana na 14 grudnia 2098, na 17:30."
        given = {"text": text, "since": "2098-12-14", "hints": {"words": ["ząb"]}}
        (added,) = reply_results(await agent.call_tool("add_memory", given))
    assert [item["id"] for item in added["similar"]] == [first["id"]]


async def test_an_edit_says_no_word_of_what_says_the_same(tmp_path: Path) -> None:
    """A text is often put right in the words of a newer one. Setting it back corrects nothing either."""
    old, new = "w niedziele o 15:00", "w soboty o 11:00"
    async with connect(tmp_path) as agent:
        known = {"text": f"Bogdan odwiedza matkę w „Pod Klonami” {old}.", "at": BEFORE, "since": BEFORE}
        (held,) = reply_results(await agent.call_tool("add_memory", known))
        await agent.call_tool("add_memory", {"text": f"Bogdan jeździ do matki {new} zamiast {old}."})
        change = {"memory_id": held["id"], "old": old, "text": new, "since": TODAY.isoformat()}
        first = reply_text(await agent.call_tool("update_memory", change))
        back = {"memory_id": held["id"], "old": new, "text": old, "since": BEFORE}
        second = reply_text(await agent.call_tool("update_memory", back))
    assert "resembles" not in first + second
    assert ("corrects the past" in first, "corrects the past" in second) == (True, False)


async def test_what_shares_only_the_name_of_the_user_is_not_near(tmp_path: Path) -> None:
    texts = [
        "Priya works in two repositories, bedflow and lab-sync.",
        "Priya plays second oboe in the Clifton Community Orchestra.",
        "Priya sees the dentist Mr Mensah on Wednesday.",
        "Priya banks with Severn Building Society.",
        "Priya takes the number 76 bus.",
        "Priya cycles to Avonmead Hospital.",
        "Priya dislikes coriander.",
        "Priya has a Skoda Fabia with winter tyres.",
    ]
    async with connect(tmp_path) as agent:
        for text in texts:
            await agent.call_tool("add_memory", {"text": text})
        (added,) = reply_results(
            await agent.call_tool("add_memory", {"text": "Priya is learning Welsh in the evenings."})
        )
    assert not added.get("near")


async def test_a_correction_of_what_held_says_how_to_keep_it(tmp_path: Path) -> None:
    """The value or the beginning is another than that of days ago; what was told today may be a slip."""
    told = "this corrects the past; if the old held until now"
    go = {"text": "tariffd is written in Go 1.24.", "relations": [["tariffd", "is written in", "Go 1.24"]]}
    edits = {
        "another value": (BEFORE, {"old": "1.24", "text": "1.25"}, True),
        "another beginning": (BEFORE, {"old": "Go", "text": "Golang", "since": "2026-01"}, True),
        "told today": (TODAY.isoformat(), {"old": "1.24", "text": "1.25"}, False),
        "one more value": (
            BEFORE,
            {
                "text": "tariffd is written in Go 1.24 and C.",
                "relations": [*go["relations"], ["tariffd", "is written in", "C"]],
            },
            False,
        ),
        "only an end": (BEFORE, {"until": "2098"}, False),
    }
    async with connect(tmp_path) as agent:
        for name, (at, edit, is_told) in edits.items():
            scope = {"scope": {"user_id": name}}
            (added,) = reply_results(await agent.call_tool("add_memory", {**go, **scope, "at": at}))
            given = {"memory_id": added["id"], **edit, **scope}
            assert (told in reply_text(await agent.call_tool("update_memory", given))) is is_told, name


async def test_a_day_that_moves_in_the_text_alone_is_told_and_the_text_can_be_put_back(tmp_path: Path) -> None:
    given = {"text": "Anika sees Dr Pellow on 2098-12-15 at 09:40.", "since": "2098-12-15"}
    told = "since stays 2098-12-15, which the text no longer names"
    edits = [
        ({"old": "2098-12-15", "text": "2098-12-22"}, True),
        ({"old": "2098-12-15", "text": "2098-12-22", "since": "2098-12-22"}, False),
        ({"old": "09:40", "text": "13:00"}, False),
    ]
    async with connect(tmp_path) as agent:
        for number, (edit, is_told) in enumerate(edits):
            scope = {"scope": {"user_id": str(number)}}
            (added,) = reply_results(await agent.call_tool("add_memory", given | scope))
            one = {"memory_id": added["id"], **scope}
            assert (
                given["text"] not in reply_text(await agent.call_tool("update_memory", {**one, "restore": True}))[120:]
            )
            assert (told in reply_text(await agent.call_tool("update_memory", one | edit))) is is_told, edit
            restored = reply_text(await agent.call_tool("update_memory", {**one, "restore": True}))
            assert f"an update with the earlier text takes a change back: {given['text']}" in restored


async def test_what_a_plan_was_to_end_is_restored(tmp_path: Path) -> None:
    async with connect(tmp_path) as agent:
        (old,) = reply_results(await agent.call_tool("add_memory", {"text": "Pepa comes on Fridays at 10."}))
        plan = {"text": "Pepa comes on Tuesdays.", "since": "2098-12-15", "replaces": [old["id"]]}
        await agent.call_tool("add_memory", plan)
        reply = reply_text(await agent.call_tool("update_memory", {"memory_id": old["id"], "restore": True}))
        again = reply_text(await agent.call_tool("update_memory", {"memory_id": old["id"], "until": "2098"}))
    assert reply.startswith("restored (no plan ends it now): ")
    assert "(same text; until changed)" in again


async def test_a_pin_and_hints_are_handed_on(tmp_path: Path) -> None:
    """Also to what is stored already. Hints of its own count alone."""
    known = {
        "text": "Geoffrey takes warfarin, 3 mg each evening.",
        "metadata": {"pinned": True},
        "hints": {"asks": ["what does grandpa take for his blood"]},
    }
    less = {"text": "Dr Sutcliffe lowered the warfarin of Geoffrey to 2 mg."}
    async with connect(tmp_path) as agent:
        for number, own in enumerate(({}, {"hints": {"words": ["dose"]}})):
            scope = {"scope": {"user_id": str(number)}}
            (old,) = reply_results(await agent.call_tool("add_memory", known | scope))
            (new,) = reply_results(await agent.call_tool("add_memory", less | own | scope))
            given = {"text": new["id"][:8], "replaces": [old["id"]], **scope}
            reply = reply_text(await agent.call_tool("add_memory", given))
            history = reply_text(await agent.call_tool("get_history", {"memory_id": new["id"], **scope}))
            assert f"keeps the metadata of what it replaced: pinned{'' if own else ', hints'}\n" in reply
            assert f"hints: {'dose' if own else 'what does grandpa take for his blood'}\n" in history


async def test_what_is_stored_already_replaces_by_ids_alone(tmp_path: Path) -> None:
    """With what it was stored with. A text that only looks like an id is a text, and an unknown id is none."""
    swims, at = "From 2098-01-09 Asha swims on Saturdays at Easton.", ["Asha", "swims at", "Easton", "2098-01-09"]
    async with connect(tmp_path) as agent:
        (old,) = reply_results(await agent.call_tool("add_memory", {"text": "Asha swims on Wednesdays at Bristol."}))
        given = {"text": swims, "since": "2098-01-09", "relations": [at]}
        (new,) = reply_results(await agent.call_tool("add_memory", given))
        begin, later = new["id"][:8], old["id"][:8]
        reply = reply_text(await agent.call_tool("add_memory", {"text": f"[{begin}]", "replaces": [later]}))
        assert reply.startswith(f"replaced: [{begin}] {swims} (since 2098-01-09) (was: [{later}] ")
        assert "states Asha — swims at → Easton (since 2098-01-09)" in reply
        unknown = await agent.call_tool("add_memory", {"text": "deadbeef", "replaces": [later]})
        assert unknown.is_error
        plain = reply_text(await agent.call_tool("add_memory", {"text": "deadbeef"}))
    assert plain.startswith("added: ")


async def test_a_correction_that_is_taken_back_brings_its_relations_back(tmp_path: Path) -> None:
    nuts = [["Toby", "is allergic to", "cashews"], ["Toby", "is allergic to", "pistachios"]]
    async with connect(tmp_path) as agent:
        given = {"text": "Toby is allergic to cashews and pistachios.", "relations": nuts}
        (added,) = reply_results(await agent.call_tool("add_memory", given))
        parts = ("cashews and pistachios", "peanuts")
        for old, new in (parts, parts[::-1]):
            change = {"memory_id": added["id"], "old": old, "text": new}
            reply = reply_text(await agent.call_tool("update_memory", change))
    assert [line.strip() for line in reply.splitlines() if "—" in line] == [
        "states Toby — is allergic to → cashews",
        "states Toby — is allergic to → pistachios",
    ]


@pytest.mark.parametrize("case", ["says more", "says no more"])
async def test_what_said_more_than_what_replaces_it_is_named(tmp_path: Path, case: str) -> None:
    """The reply quotes it whole, and a day or a number that has changed is not more."""
    wrong: list[str] = []
    async with connect(tmp_path) as agent:
        for known, text in CASES[case]:
            (old,) = reply_results(await agent.call_tool("add_memory", {"text": known}))
            reply = reply_text(await agent.call_tool("add_memory", {"text": text, "replaces": [old["id"]]}))
            note = f"note: [{old['id'][:8]}] said more: add what of it still holds"
            wrong += [reply] if (note in reply) is (case == "says no more") or known not in reply else []
    assert wrong == []


async def test_a_day_that_is_given_is_no_question(tmp_path: Path) -> None:
    async with connect(tmp_path) as agent:
        for text, since in CASES["dated"]:
            reply = reply_text(await agent.call_tool("add_memory", {"text": text, "since": since}))
            assert "past or to come" not in reply, text
            assert "note: read on" not in reply, text
