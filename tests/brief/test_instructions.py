"""The instructions with memories keep to their sizes and never cut a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.core.models import Scope
from palimpsest.hooks.instructions import HEAD, INSTRUCTIONS, REST, Launch, launch_of, rendered_instructions
from palimpsest.memory import open_memory
from tests.support.ledger_access import store_memory
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in, settings_in

pytestmark = pytest.mark.anyio


async def test_instructions_are_never_too_long(tmp_path: Path) -> None:
    for place, words in enumerate(("User likes tea. ", "お茶が好きです。", "🍵🍵. ")):
        async with memory_in(tmp_path / str(place)) as memory:
            texts = [f"Fact {number}: {words * (number % 12 + 1)}" for number in range(36)]
            for number, text in enumerate(texts):
                store_memory(memory, text, metadata={"pinned": True} if number % 12 == 0 else {})
            text = await memory.briefs.instructions(ALICE)
        assert len(text.encode()) <= 2_048
        assert text.startswith(HEAD)
        assert REST in text
        lines = [line for line in text.splitlines() if line.startswith("- ")]
        assert len(lines) > 3
        assert all(line.endswith((".", "。")) for line in lines)
        assert text[:512].count("\n- ") >= 1
        assert not text[512:].startswith(lines[0])


async def test_a_server_in_a_repository_begins_with_its_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository, data = tmp_path / "app", tmp_path / "data"
    (repository / ".git").mkdir(parents=True)
    monkeypatch.chdir(repository)
    here, elsewhere = Launch(data, "all", "here", "any"), Launch(data, "all", "elsewhere", "any")
    settings = settings_in(data, project="auto")
    async with open_memory(settings, clock=StoppedClock(), background=False, launch=here) as memory:
        await add_text(memory, "User likes tea")
        await memory.add_text(Scope("alice", "app"), "Never use time.Sleep in tests", infer=False)
        await memory.briefs.render()
        text = rendered_instructions(here)
        assert text.index("time.Sleep") < text.index("likes tea")
        assert "time.Sleep" not in rendered_instructions(elsewhere)
        assert "likes tea" in rendered_instructions(elsewhere)
    async with memory_in(data) as memory:  # of no project
        await add_text(memory, "User is allergic to peanuts")
        await memory.briefs.render()
        assert "peanuts" in rendered_instructions(here)


async def test_the_first_start_in_a_new_project_knows_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(project: str) -> Launch:
        monkeypatch.setenv("PALIMPSEST_PROJECT", project)
        launch = launch_of(None, {"data_dir": str(tmp_path)})
        assert launch is not None
        return launch

    app = started("app")
    async with open_memory(settings_in(tmp_path, project="app"), clock=StoppedClock(), launch=app) as memory:
        await add_text(memory, "User takes warfarin")
        await memory.add_text(Scope("alice", "app"), "Never use time.Sleep in tests", infer=False)
        await memory.briefs.render()
        assert "time.Sleep" in rendered_instructions(app)
        assert "warfarin" in rendered_instructions(started("new"))
        assert "time.Sleep" not in rendered_instructions(started("new"))
        await memory.delete_all(ALICE)
        await memory.briefs.render()
        assert "warfarin" not in rendered_instructions(started("new"))


async def test_what_was_started_longest_ago_begins_with_less_and_never_with_what_is_outdated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launched(place: str) -> Launch:
        return Launch(tmp_path, place, f"{place} folder", "any" if place in ("old", "app") else place)

    async def start(place: str, scope: Scope, text: str) -> None:
        parts = {"user_id": scope.user_id, "project": scope.project, "agent_id": scope.agent_id}
        settings = settings_in(tmp_path, **{name: part for name, part in parts.items() if part})
        async with open_memory(settings, clock=StoppedClock(), background=False, launch=launched(place)) as memory:
            await memory.add_text(scope, text, infer=False)
            await memory.briefs.render()

    def begun(place: str) -> str:
        return rendered_instructions(launched(place))

    monkeypatch.setattr("palimpsest.hooks.brief.MAX_SCOPES", 3)
    await start("old", Scope("alice", "old"), "The parser is written in Perl")
    await start("app", Scope("alice", "app"), "The logo is green")
    await start("coder", Scope("alice", agent_id="coder"), "Every test runs on Debian")
    await start("bob", Scope("bob"), "User grows leeks")
    async with memory_in(tmp_path) as memory:  # of alice, of no project or agent
        warfarin = await add_text(memory, "User takes warfarin")
        await memory.add_text(Scope("bob"), "User takes insulin", infer=False)
        async with memory.briefs.kept_current():
            tea = await add_text(memory, "User likes tea")
        for place, own in (("app", "logo"), ("coder", "Debian")):
            assert all(words in begun(place) for words in ("takes warfarin", "likes tea", own)), place
            assert not any(words in begun(place) for words in ("insulin", "leeks", "Perl")), place
        assert "likes tea" in begun("old")
        assert "Perl" not in begun("old")
        assert "insulin" in begun("bob")
        assert "warfarin" not in begun("bob")
        await memory.delete(ALICE, [warfarin])
        assert begun("app") == INSTRUCTIONS
        assert "insulin" in begun("bob")
        await memory.briefs.render()
        assert "likes tea" in begun("app")
        monkeypatch.setattr("palimpsest.hooks.brief.END_SECONDS", 0)
        async with memory.briefs.kept_current():
            await memory.update(ALICE, tea, text="User likes coffee")
        assert "likes coffee" in begun("app")
        assert "logo" not in begun("app")
        await memory.briefs.render()
        assert "logo" in begun("app")
        await memory.briefs.render(0)
        assert "logo" in begun("app"), "nothing was written"
