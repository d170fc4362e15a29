"""Tables at every width of the terminal: nothing is lost, no line is too long, and characters stay whole."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len, split_graphemes
from rich.console import Console

from palimpsest.cli.output import Rows, cut_to_width, wrapped
from tests.support.command_line import palimpsest
from tests.support.examples import examples

pieces = st.lists(st.sampled_from(["北", "a", " ", "é", "👩‍👩‍👧", "🇩🇪", "。", "x" * 30, "\n"]), max_size=60).map(
    "".join
)


def printed_at(width: int, rows: Rows) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width).print(rows)
    return file.getvalue().splitlines()


@examples(100)
@given(pieces, st.integers(1, 80))
def test_a_text_is_cut_by_its_width_on_the_terminal(text: str, width: int) -> None:
    """Guards wide characters and what consists of several: the cut fits, and is between two of them."""
    cut = cut_to_width(text, width)
    assert cell_len(cut) <= width
    if cell_len(text) <= width:
        assert cut == text
        return
    assert cut.endswith("…")
    boundaries = {stop for _, stop, _ in split_graphemes(text)[0]} | {0}
    kept = cut.removesuffix("…")
    assert text.startswith(kept)
    assert len(kept) in {len(text[:boundary].rstrip()) for boundary in boundaries}


@examples(30)
@given(st.lists(st.tuples(pieces, pieces), max_size=4), st.integers(20, 120))
def test_no_line_of_a_table_is_wider_than_the_terminal(rows: list[tuple[str, str]], width: int) -> None:
    """Guards every width, side by side and stacked: no letter of a cell is lost."""
    table = Rows("id", "who", "what")
    for who, what in rows:
        table.add_row("1a2b3c4d", cut_to_width(" ".join(who.split()), 8), what)
    lines = printed_at(width, table)
    assert all(cell_len(line) <= width for line in lines)
    shown = "".join("".join(lines).split())
    for letter in "北a🇩x。":
        assert shown.count(letter) >= sum(what.count(letter) for _, what in rows)


@examples(100)
@given(pieces, st.integers(4, 60))
def test_a_text_is_wrapped_without_loss(text: str, width: int) -> None:
    """Guards every letter, the width of every line, and its last line."""
    lines = wrapped(text, width).split("\n")
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_chinese_fills_its_lines_and_no_line_begins_with_a_full_stop() -> None:
    """Guards a text without spaces, which is no single long word."""
    assert wrapped("[1a2b3c4d] 我下个月搬到上海。", 20) == "[1a2b3c4d] 我下个月\n搬到上海。"
    assert wrapped("我下个月搬到上海。", 16) == "我下个月搬到上\n海。"
    assert wrapped("a river runs", 7) == "a river\nruns"


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("list",), "no memories are stored for user alice yet"),
        (("list", "--deleted"), "no memory of user alice is deleted"),
        (("search", "tea"), "nothing was found for: tea"),
        (("search", "tea", "--run", "r1"), "leave out --agent and --run"),
        (("token", "list"), "there are no access tokens"),
        (("jobs",), "there are no jobs"),
        (("log",), "nothing has been changed yet"),
    ],
    ids=str,
)
def test_an_empty_result_is_a_sentence(tmp_path: Path, command: tuple[str, ...], sentence: str) -> None:
    """Guards against the heads of a table with nothing below."""
    assert sentence in palimpsest(tmp_path, *command)
