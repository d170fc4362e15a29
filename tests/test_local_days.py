"""Days are those of the user: of filters, notes, summaries, searches, ends, the page, and of each user over HTTP.

It is two o'clock in the morning of the 13th in Shanghai, and still the 12th in UTC and in New York.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.models import Scope
from palimpsest.learn.summaries.summary_writer import last_days
from palimpsest.page.page_context import Visitor
from palimpsest.server.access_tokens import Grant
from tests.support.command_line import palimpsest
from tests.support.markdown_folder import export_to, import_from, remove_item
from tests.support.memory import ALICE, StoppedClock, memory_in, messages_from
from tests.support.page import page_in

pytestmark = pytest.mark.anyio

NIGHT = datetime(2026, 6, 12, 18, tzinfo=UTC)


READ = (
    ("Asia/Shanghai", None, 'read on 2026-06-13, "yesterday" is 2026-06-12'),
    ("UTC", None, 'read on 2026-06-12, "yesterday" is 2026-06-11'),
    ("UTC", "2026-06-13T02:00:00+08:00", 'read on 2026-06-13, "yesterday" is 2026-06-12'),
    ("America/New_York", "2026-06-13T02:00:00+08:00", 'read on 2026-06-13, "yesterday" is 2026-06-12'),
)


async def test_yesterday_is_that_of_the_user_or_of_the_call(tmp_path: Path) -> None:
    for number, (zone, at, note) in enumerate(READ):
        said_at = None if at is None else datetime.fromisoformat(at)
        async with memory_in(tmp_path / str(number), StoppedClock(NIGHT), timezone=zone) as memory:
            result = await memory.add_text(ALICE, "The boiler broke yesterday", at=said_at)
            (hit,) = (await memory.list(ALICE)).hits
        assert result.notes == (note,)
        assert hit.at == NIGHT


@pytest.mark.parametrize(("zone", "day", "other"), [("Asia/Shanghai", 13, 12), ("America/New_York", 12, 13)])
async def test_filters_searches_summaries_and_ends_have_the_days_of_the_user(
    tmp_path: Path, zone: str, day: int, other: int
) -> None:
    """What holds until a day ends with that day where the user is."""
    clock = StoppedClock(NIGHT)
    async with memory_in(tmp_path, clock, timezone=zone) as memory:
        await memory.add_text(ALICE, "The boiler broke again", infer=False)
        await memory.add_messages(messages_from(("user", "It leaks"), at=NIGHT), infer=False)
        for kind in ("memory", "message"):
            for number, count in ((day, 1), (other, 0)):
                filters = {"kind": kind, "at": f"2026-06-{number}"}
                assert len((await memory.list(ALICE, filters=filters)).hits) == count
                assert len((await memory.search(ALICE, "boiler leaks", filters=filters)).hits) == count
        (hit,) = (await memory.list(ALICE)).hits
        assert hit.date == f"2026-06-{day}"
        assert await last_days(memory.engine, ALICE, 2) == [f"day:2026-06-{day}"]
        assert "boiler" in (await memory.summary(ALICE, "day:today")).text
        for kind in (f"day:2026-06-{other}", "day:yesterday"):
            assert "Nothing was said" in (await memory.summary(ALICE, kind)).text
        await memory.add_text(ALICE, "The pass is valid", metadata={"expires_at": "2026-06-14"}, infer=False)
        for hour, count in ((23, 2), (24, 1)):
            clock.at = datetime(2026, 6, 14, 0, 30, tzinfo=memory.zone).astimezone(UTC)
            clock.forward(hours=hour)
            assert len((await memory.list(ALICE)).hits) == count


async def test_the_page_and_a_user_of_its_own_zone(tmp_path: Path) -> None:
    """Bob's day is his, whoever else uses the server; minutes are shown with the zone they are in."""
    settings: dict[str, Any] = {"timezone": "America/New_York", "user_timezones": {"bob": "Asia/Shanghai"}}
    async with memory_in(tmp_path, StoppedClock(NIGHT), **settings) as memory:
        bob = memory.for_call(user_id="bob")
        assert [f"{each.engine.clock():%d}" for each in (memory, bob)] == ["12", "13"]
        result = await bob.add_text(Scope("bob"), "The boiler broke yesterday")
        assert result.notes == ('read on 2026-06-13, "yesterday" is 2026-06-12',)
        messages = messages_from(("user", "It leaks"), scope=Scope("bob"), at=NIGHT)
        await bob.add_messages(messages, infer=False)
    visitor = Visitor(Grant("bob"), is_owner=False)
    async with page_in(tmp_path, **settings) as page, page.browser(visitor) as browser:
        day, other = [(await browser.get(f"/timeline?period=day&on=2026-06-{number}")).text for number in (13, 12)]
        assert "The boiler broke yesterday" in day
        assert "The boiler broke yesterday" not in other
        assert "Asia/Shanghai, UTC+08:00" in day
        assert "2026-06-13 02:00" in (await browser.get("/conversations")).text


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(("zone", "day", "other"), [("Asia/Shanghai", 13, 12), ("America/New_York", 12, 13)])
async def test_commands_and_files_show_the_days_of_the_user(tmp_path: Path, zone: str, day: int, other: int) -> None:
    """What a person reads has their days and no others, whatever shows it; JSON has times in UTC."""
    folder = tmp_path / "data"
    async with memory_in(folder, StoppedClock(NIGHT), timezone=zone) as memory:
        added = await memory.add_text(ALICE, "Tom mended the boiler", infer=False)
        await memory.update(ALICE, added.outcomes[0].memory.id, text="Tom mended the old boiler")
        await memory.add_messages(messages_from(("user", "It leaks"), at=NIGHT), infer=False)
        (said,) = (await memory.list(ALICE, filters={"kind": "message"})).hits
        await memory.add_text(Scope("alice", "garden"), "Roses grow along the fence", infer=False)
        recent = await memory.summary(ALICE, "recent")
        assert len(re.findall(rf"- (?:\[\w+\] )?2026-06-{day}", recent.text)) == 2, recent.text
        await export_to(memory, tmp_path / "pages")
    settings = {"PALIMPSEST_TIMEZONE": zone, "PALIMPSEST_LLM__PROVIDER": "none"}
    memory_id = added.outcomes[0].memory.id
    commands = (
        *("list", "search boiler", "log", "conversations", "entities", "fading", "projects", "summary"),
        *(f"history {memory_id}", f"get {memory_id}", f"conversations {said.id}"),
        *("conversations 00000000", "list --filter kind=message"),
    )
    for command in commands:
        code = 1 if command.endswith("00000000") else 0
        text = palimpsest(tmp_path, *command.split(), settings=settings, code=code)
        assert f"2026-06-{day}" in text, command
        assert f"2026-06-{other}" not in text, command
        if command.startswith(("list", "search", "log", "conversations")) and code == 0:
            told = palimpsest(tmp_path, *command.split(), "--json", settings=settings)
            assert "2026-06-12T18:00:00Z" in told, command
            assert "2026-06-13" not in told, command
    pages = "".join(page.read_text("utf-8") for page in (tmp_path / "pages").rglob("*.md"))
    assert f"2026-06-{day}" in pages
    assert f"2026-06-{other}" not in pages


async def test_an_export_of_another_zone_is_imported_as_it_was(tmp_path: Path) -> None:
    """An item whose day an earlier export showed by UTC has not changed here, so that removing it is no conflict."""
    async with memory_in(tmp_path / "data", StoppedClock(NIGHT), timezone="UTC") as memory:
        await memory.add_text(ALICE, "The boiler broke", infer=False)
        await memory.add_text(ALICE, "The roof leaks", infer=False)
        await export_to(memory, tmp_path / "pages")
    async with memory_in(tmp_path / "data", StoppedClock(NIGHT), timezone="Asia/Shanghai") as memory:
        assert (await import_from(memory, tmp_path / "pages")).edit == 0
        remove_item(tmp_path / "pages", "The boiler broke")
        imported = await import_from(memory, tmp_path / "pages", deletes=True)
        assert imported.conflicts == ()
        assert [hit.text for hit in (await memory.list(ALICE)).hits] == ["The roof leaks"]
