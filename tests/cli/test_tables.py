"""Tables at every width of the terminal: nothing is lost, no line is too long, and characters stay whole."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from palimpsest.cli.output import Rows, cut_to_width
from palimpsest.server import access_tokens
from tests.support.command_line import palimpsest, palimpsest_json, palimpsest_process
from tests.support.examples import examples

pieces = st.lists(st.sampled_from(["北", "a", " ", "é", "👩‍👩‍👧", "🇩🇪", "。", "x" * 30, "\n"]), max_size=60).map(
    "".join
)


def printed_at(width: int, rows: Rows) -> list[str]:
    """Return the lines of a table on a terminal of this width."""
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
def test_without_colours_no_escape_is_printed(tmp_path: Path) -> None:
    """Guards NO_COLOR and a dumb terminal in the doctor's green and the errors' red."""
    for settings in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {}):
        assert "\x1b" not in palimpsest_process(tmp_path, "doctor", settings=settings)
        assert "\x1b" not in palimpsest_process(tmp_path, "get", "x", code=1, settings=settings)
    helped = palimpsest_process(tmp_path, "--help", settings={"NO_COLOR": "1"})
    assert "\x1b" not in helped
    assert "\nMemories:\n" in helped


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("list",), "no memory of user alice was found"),
        (("list", "--deleted"), "no deleted memory of user alice was found"),
        (("search", "tea"), "nothing was found for: tea"),
        (("token", "list"), "there are no access tokens"),
        (("jobs",), "there are no jobs"),
        (("log",), "nothing has been changed yet"),
    ],
    ids=str,
)
def test_an_empty_result_is_a_sentence(tmp_path: Path, command: tuple[str, ...], sentence: str) -> None:
    """Guards against the heads of a table with nothing below."""
    assert sentence in palimpsest(tmp_path, *command)


@pytest.mark.nightly
def test_tokens_say_until_when_they_are_valid(tmp_path: Path) -> None:
    """Guards the whole time in 80 columns, what has expired, and what only ends when it is revoked."""
    lasting = palimpsest_json(tmp_path, "token", "create", "--user", "ana")
    ending = palimpsest_json(tmp_path, "token", "create", "--days", "3", "--project", "web", "--yes")
    assert ending["expires_at"] > ending["created_at"]
    file = tmp_path / "data" / access_tokens.FILE
    file.write_text(file.read_text("utf-8").replace(lasting["created_at"], "2020-05-08T00:00:00Z", 1), "utf-8")
    printed = palimpsest_process(tmp_path, "token", "list", settings={"COLUMNS": "80"})
    assert re.search(rf"{lasting['id']}  ana .*  2020-05-08  it is revoked", printed)
    assert re.search(rf"{ending['id']}  alice  web .*  {ending['expires_at']}", printed)
    assert "expired" not in printed
    file.write_text(file.read_text("utf-8").replace(ending["expires_at"], "2020-05-09T00:00:00Z"), "utf-8")
    assert "2020-05-09T00:00:00Z (expired)" in palimpsest(tmp_path, "token", "list")
