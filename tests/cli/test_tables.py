"""Tables at every width of the terminal: nothing is lost, no line is too long, and characters stay whole."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from palimpsest.cli.output import Rows, cut_to_width
from tests.support.command_line import palimpsest, palimpsest_process
from tests.support.examples import examples

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
