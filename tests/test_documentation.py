"""What the documentation says of the project: its links, its pictures, and the commands it names."""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from typer.main import get_command

import pictures
from palimpsest.cli.console import app
from tests.support.command_line import palimpsest
from tests.support.environment import clean_environment
from tests.support.mcp_client import reply_text, text_of
from tests.support.server_in_process import connect

REPOSITORY = Path(__file__).parents[1]
SHORT_ID, MADE_AT = re.compile(r"\b[0-9a-f]{8}\b"), re.compile(r"^\d{4}-\d\d-\d\dT[\d:]+Z", re.MULTILINE)
PAGES = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])

LINK = re.compile(r"\]\((?!https?:|mailto:)(?P<path>[^)#\s]*)(?:#(?P<heading>[^)\s]+))?\)")
HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)
COMMAND = re.compile(r"(?:^|`)palimpsest (?:--[a-z-]+ \S+ )*(?P<name>[a-z][a-z-]+)\b", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    titles = (match["title"].lower() for match in HEADING.finditer(page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_leads_somewhere(page: Path) -> None:
    """Guards a reader from dead ends, also after a page was renamed."""
    for link in LINK.finditer(page.read_text("utf-8")):
        target = (page.parent / link["path"]).resolve() if link["path"] else page
        assert target.exists(), link[0]
        if link["heading"]:
            assert link["heading"] in anchors(target), link[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_command_exists(page: Path) -> None:
    """Guards what people copy into a terminal."""
    known = set(getattr(get_command(app), "commands", {}))
    named = {match["name"] for match in COMMAND.finditer(page.read_text("utf-8"))}
    assert named - known == set()


def test_every_page_is_in_the_index() -> None:
    """Guards that a page can be found."""
    index = (REPOSITORY / "docs" / "README.md").read_text("utf-8")
    pages = {page.name for page in (REPOSITORY / "docs").glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


def test_every_module_that_a_page_names_exists() -> None:
    """Guards who looks for the code behind a sentence. A name in capitals stands for any."""
    named = {
        match["path"]
        for page in PAGES
        for match in re.finditer(r"`(?P<path>[\w/]+/\w+\.py)`", page.read_text("utf-8"))
        if not re.search(r"NAME|NNNN", match["path"])
    }
    places = (REPOSITORY, REPOSITORY / "server" / "palimpsest", REPOSITORY / "tests" / "support")
    assert {path for path in named if not any((place / path).is_file() for place in places)} == set()


@pytest.mark.nightly
@pytest.mark.anyio
async def test_the_example_of_a_client_works_as_it_is(tmp_path: Path) -> None:
    """Its server has the memory of the command line, whoever the user is."""
    entries = json.loads((REPOSITORY / "claude_desktop_config.example.json").read_text("utf-8"))["mcpServers"]
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**clean_environment(tmp_path), "PATH": path}
    del environment["PALIMPSEST_USER_ID"]
    server = StdioServerParameters(**entries["palimpsest"], cwd=tmp_path)
    server.env = {**environment, **(server.env or {})}
    async with Client(server) as agent:
        reply_text(await agent.call_tool("add_memory", {"text": "The lamp is yellow"}))
    assert "The lamp is yellow" in palimpsest(tmp_path, "list", settings={"PALIMPSEST_USER_ID": getpass.getuser()})


def test_the_badges_say_what_the_project_says() -> None:
    """Guards the badges against a change of the Python version, the license or the protocol."""
    drawn = {name: (pictures.PICTURES / f"{name.lower()}.svg").read_text("utf-8") for name in pictures.badges()}
    assert drawn == {name: pictures.badge(name, value) for name, value in pictures.badges().items()}


@pytest.mark.nightly
def test_the_picture_shows_commands_that_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the picture: each of its commands succeeds, and the questions are answered."""
    monkeypatch.setenv("PALIMPSEST_EMBEDDER__PROVIDER", "e5")
    shown = pictures.terminal(tmp_path).replace("&#160;", " ")
    assert "tags its releases" in shown.partition("do we release")[2]
    assert "Pixel must not eat chicken" in shown.partition("welches Futter")[2]


@pytest.mark.nightly
def test_the_drawings_of_the_graph_are_those_of_the_tool(tmp_path: Path) -> None:
    """Guards the page on the graph: the tool still draws what it shows, and the picture has all that Ana is part of."""
    page = pictures.GRAPH_PAGE.read_text("utf-8")
    assert all(f"<!-- drawn: {name} -->" in page for name in pictures.GRAPHS)
    pictures.fill_graph(tmp_path)
    assert pictures.with_graphs(page, tmp_path) == page
    drawn = (pictures.PICTURES / "dossier.svg").read_text("utf-8").replace("&#160;", " ")
    shown = pictures.output(pictures.DOSSIER, tmp_path)
    assert all(
        text in drawn and text in shown for text in ("Ana lives in Lyon", "Ana — lives in → Porto", "Held before:")
    )


@pytest.mark.anyio
async def test_the_tools_reply_what_the_page_says(tmp_path: Path) -> None:
    """The calls follow each other. Ids and the times of a history differ from run to run."""
    page = (REPOSITORY / "docs" / "replies.md").read_text("utf-8")
    called = re.findall(r"^> (\w+) (\{.*?\})\n(.*?)\n(?=\n>|```)", page, re.DOTALL | re.MULTILINE)
    ids: dict[str, str] = {}
    async with connect(tmp_path, PALIMPSEST_USER_ID="ana") as agent:
        assert {tool for tool, _, _ in called} == {tool.name for tool in (await agent.list_tools()).tools}
        for tool, arguments, shown in called:
            given = SHORT_ID.sub(lambda match: ids.get(match[0], match[0]), arguments)
            reply = text_of(await agent.call_tool(tool, json.loads(given))).partition("\nnote: memories are")[0]
            ids.update(zip(SHORT_ID.findall(shown), SHORT_ID.findall(reply), strict=True))
            expected = SHORT_ID.sub(lambda match: ids[match[0]], shown)
            assert MADE_AT.sub("", reply) == MADE_AT.sub("", expected)


@pytest.mark.parametrize(
    ("number", "printed"),
    [
        (0, "Alice is allergic to peanuts and nuts\nADD Alice is allergic to peanuts\n"),
        (1, "Alice is allergic to peanuts\n" * 2),
    ],
    ids=["synchronous", "asynchronous"],
)
def test_the_examples_of_the_library_print_what_the_page_says(tmp_path: Path, number: int, printed: str) -> None:
    """Guards who calls it from a program of their own: the examples run as they are printed."""
    page = (REPOSITORY / "docs" / "library.md").read_text("utf-8")
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 2
    settings = {"PALIMPSEST_EMBEDDER__PROVIDER": "static"}
    done = subprocess.run(
        [sys.executable, "-c", examples[number]],
        env=clean_environment(tmp_path, **settings),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == printed
    for line in printed.splitlines():
        assert f"`{line}`" in page


def test_the_table_of_systems_names_tests_that_exist() -> None:
    """Guards who wants to see a mechanism at work."""
    page = (REPOSITORY / "docs" / "memory.md").read_text("utf-8")
    table = page.partition("## Systems whose ideas are here")[2].partition("\n## ")[0]
    modules = {path.stem: path.read_text("utf-8") for path in (REPOSITORY / "tests" / "systems").glob("test_*.py")}
    system, shown = "", set[str]()
    for line in table.split("\n|---|---|---|---|\n")[1].strip().splitlines():
        first, _, how, test = (cell.strip() for cell in line.strip("|").split("|"))
        system = first or system
        module = "test_" + system.partition(",")[0].lower().replace("-", "").replace(" ", "_")
        assert how
        assert f"def {test.strip('`')}(" in modules[module]
        shown.add(module)
    assert shown == {*modules}
