"""What is printed: whole at every width, visible whatever a text holds, and said where it cannot be written."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from palimpsest.cli.output import LOST_OUTPUT, Rows, cut_to_width
from palimpsest.core.models import Relation
from tests.support.command_line import palimpsest, palimpsest_json, palimpsest_process
from tests.support.environment import clean_environment
from tests.support.examples import examples
from tests.support.graph_rows import store_stating
from tests.support.memory import memory_in

pieces = st.lists(st.sampled_from(["北", "a", " ", "é", "👩‍👩‍👧", "🇩🇪", "。", "x" * 30, "\n"]), max_size=60).map(
    "".join
)


def printed_at(width: int, rows: Rows) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width).print(rows)
    return file.getvalue().splitlines()


@examples(30)
@given(st.lists(st.tuples(pieces, pieces), max_size=4), st.integers(20, 120))
def test_no_line_of_a_table_is_wider_than_the_terminal(rows: list[tuple[str, str]], width: int) -> None:
    """Guards every width: no letter of a cell is lost."""
    table = Rows("id", "who", "what")
    for who, what in rows:
        table.add_row("1a2b3c4d", cut_to_width(" ".join(who.split()), 8), what)
    lines = printed_at(width, table)
    assert all(cell_len(line) <= width for line in lines)
    shown = "".join("".join(lines).split())
    for letter in "北a🇩x。":
        assert shown.count(letter) >= sum(what.count(letter) for _, what in rows)


@pytest.mark.nightly
def test_an_argument_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    """Guards a text from being stored with "?" in place of what was typed."""
    assert "not UTF-8" in palimpsest_process(tmp_path, "add", os.fsdecode(b"K\xf6ln is on the Rhine"), code=1)
    assert palimpsest_json(tmp_path, "list")["results"] == []


def run_into(folder: Path, stdout: int, *arguments: str, **settings: str) -> tuple[int, str]:
    """Run a command with this standard output. Return its exit code and its standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "palimpsest", *arguments],
        env=clean_environment(folder, **settings),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    return done.returncode, done.stderr


@contextmanager
def lost() -> Generator[tuple[int, int]]:
    """Yield standard outputs that take nothing: a full device, and a pipe that nobody reads."""
    full = os.open("/dev/full", os.O_WRONLY)
    reader, closed = os.pipe()
    os.close(reader)
    try:
        yield full, closed
    finally:
        os.close(full)
        os.close(closed)


@pytest.mark.nightly
def test_a_write_whose_reply_is_lost_says_on_stderr_what_is_stored(tmp_path: Path) -> None:
    """Guards against doing it twice: an undo that is run again takes back one edit more."""
    with lost() as outputs:
        for stdout in outputs:
            for command, said in (
                (("add", "User likes green tea"), "This was done and is kept"),
                (("add", "User likes coffee", "--json"), "User likes coffee"),
                (("undo",), "deleted: ["),
                (("token", "create"), "palimpsest token revoke"),
            ):
                code, error = run_into(tmp_path, stdout, *command)
                assert (code, said in error) == (LOST_OUTPUT, True), command
    assert [hit["text"] for hit in palimpsest_json(tmp_path, "list")["results"]] == ["User likes green tea"]


@pytest.mark.nightly
def test_a_listing_that_cannot_be_written_is_one_line_on_stderr(tmp_path: Path) -> None:
    """Guards against a traceback and an empty file like an empty memory; `palimpsest list | head` is fine."""
    with lost() as (full, closed):
        for command in (("list", "--json"), ("export", "-"), ("prompts", "show", "decide"), ("doctor",)):
            assert run_into(tmp_path, closed, *command) == (0, ""), command
            code, error = run_into(tmp_path, full, *command)
            assert (code, "is kept" in error) == (LOST_OUTPUT, False), command
            assert error.startswith("error: standard output cannot be written"), command


@pytest.mark.nightly
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_the_encoding_lacks_are_escaped(tmp_path: Path, encoding: str) -> None:
    """Guards a terminal without Unicode: text is escaped, JSON says the same in ASCII, and an export is UTF-8."""
    text = "Ana lives in 北京 🏴 ½"
    (tmp_path / "chat.json").write_text(json.dumps([{"role": "user", "content": text}]), "utf-8")

    def output_of(*arguments: str) -> bytes:
        printed = tmp_path / "printed.txt"
        with printed.open("wb") as file:
            result = run_into(tmp_path, file.fileno(), *arguments, COLUMNS="500", PYTHONIOENCODING=f"{encoding}:strict")
        assert result == (0, "")
        return printed.read_bytes()

    assert b"learned 1 message" in output_of("learn", "chat.json")
    assert rb"\u5317\u4eac \U0001f3f4" in output_of("search", "Ana")
    assert json.loads(output_of("search", "Ana", "--json"))["results"][0]["text"] == text
    exported = output_of("export", "-").decode("utf-8")
    assert text in [json.loads(line).get("content") for line in exported.splitlines()]


# Names that a format could read as its own, or that steer a terminal.
HOSTILE = (
    'quote " and \\ backslash',
    "<b>bold</b> & <script>alert(1)</script>",
    "two\nlines",
    "override \u202egnol",
    "עברית ושם",
    "end; subgraph x %% [(note)] `code` #35; -->",
    "bell \x07 and \x1b[31mred",
)


def test_every_format_takes_every_name(tmp_path: Path) -> None:
    """Guards programs that read the graph, and terminals, from names that are syntax to them."""

    async def store() -> None:
        async with memory_in(tmp_path / "data") as memory:
            for number, name in enumerate(HOSTILE):
                knows = Relation("Ana", f"knows {name}", name)
                store_stating(
                    memory, f"Ana knows number {number}", ("Ana", "person"), (name, "other"), relations=(knows,)
                )

    anyio.run(store)
    graph = json.loads(palimpsest(tmp_path, "graph", "--format", "json"))
    assert {item["name"] for item in graph["entities"]} == {"Ana", *HOSTILE}
    assert len(graph["relations"]) == len(HOSTILE)
    assert set(graph["relations"][0]) == {
        *("source", "relationship", "destination", "valid_from", "valid_until"),
        *("source_id", "destination_id", "memory_id"),
    }
    root = ET.fromstring(palimpsest(tmp_path, "graph", "--format", "graphml"))  # noqa: S314 - our own output
    names = {data.text for data in root.iterfind(".//{*}node/{*}data[@key='name']")}
    assert "<b>bold</b> & <script>alert(1)</script>" in names
    assert len(names) == len(HOSTILE) + 1
    ids = {node.get("id") for node in root.iterfind(".//{*}node")}
    assert all({edge.get("source"), edge.get("target")} <= ids for edge in root.iterfind(".//{*}edge"))
    for form in ("mermaid", "dot", "json", "graphml"):
        text = palimpsest(tmp_path, "graph", "--format", form)
        assert text == palimpsest(tmp_path, "graph", "--format", form)
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)
    mermaid = palimpsest(tmp_path, "graph").splitlines()
    label = r'"(?:[^"<>`{}|;%#()\[\]]|#\d+;|<br/>)*"'
    node, edge = rf"    n\d+(?:\(\[{label}\]\)|\[{label}\])", rf"    n\d+ -->\|{label}\| n\d+"
    assert all(re.fullmatch(f"{node}|{edge}", line) for line in mermaid[1:])
    dot = palimpsest(tmp_path, "graph", "--format", "dot").splitlines()
    quoted = r'"(?:[^"\\]|\\.)*"'
    assert all(re.fullmatch(rf"    n\d+( -> n\d+)? \[(\w+=({quoted}|\w+)(, )?)+\];", line) for line in dot[3:-1])
