"""Texts that look like markup or steer a terminal: every command works on them, and prints them visibly."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.support.command_line import palimpsest, palimpsest_json, palimpsest_process

pytestmark = pytest.mark.nightly

# What must never reach a terminal: every control character but the line break, and what reorders a line.
STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff]")

MARKUP = r"The sign reads \[/red] near the [bold]door[/] :smile: [link=http://localhost]x"
ESCAPES = (
    "red \x1b[31m title \x1b]0;x\x07 paste \x1b]52;c;eA==\x07 c1 \x9b2J \x9d0;y\x9c back \b\b del \x7f "
    "right \u202eleft \u2066x"
)


def steering_in(printed: str) -> list[str]:
    return STEERING.findall(printed)


@pytest.mark.parametrize("text", [MARKUP, ESCAPES], ids=["markup", "escapes"])
def test_every_command_works_on_a_text_that_would_steer_the_terminal(tmp_path: Path, text: str) -> None:
    """Guards every print of the command line against markup and escapes in a stored text."""
    added = palimpsest(tmp_path, "add", text)
    (hit,) = palimpsest_json(tmp_path, "list")["results"]
    assert hit["text"] == text
    printed = [
        added,
        palimpsest(tmp_path, "list"),
        palimpsest(tmp_path, "search", text),
        palimpsest(tmp_path, "search", text, "--explain"),
        palimpsest(tmp_path, "history", hit["id"]),
        palimpsest(tmp_path, "log"),
        palimpsest(tmp_path, "summary"),
        palimpsest(tmp_path, "list", "--json"),
        palimpsest(tmp_path, "export", "-"),
        palimpsest(tmp_path, "add", f"{text} again"),
        palimpsest(tmp_path, "history", text, code=1),
        palimpsest(tmp_path, "list", "--cursor", text, code=1),
        palimpsest(tmp_path, "undo"),
        palimpsest(tmp_path, "purge", hit["id"], answer="y\n"),
    ]
    assert [steering_in(output) for output in printed] == [[]] * len(printed)
    if text == MARKUP:
        assert [MARKUP in output for output in printed[:7]] == [True] * 7


def test_names_metadata_and_files_are_shown_visibly(tmp_path: Path) -> None:
    """Guards the terminal from what comes with a text: speakers, questions, file names, and an import's errors."""
    name = f"[/red]{ESCAPES}"
    file = tmp_path / "chat [red]\x1b]0;x\x07.json"
    message = {"role": "user", "name": name, "content": f"{MARKUP} and {ESCAPES}"}
    file.write_text(json.dumps([message]), "utf-8")
    broken = tmp_path / "broken [red]\x1b[2J.json"
    broken.write_text("{", "utf-8")
    printed = [
        palimpsest(tmp_path, "learn", file.name, "--ask", f"{MARKUP} {ESCAPES}"),
        palimpsest(tmp_path, "search", "sign"),
        palimpsest(tmp_path, "learn", broken.name, code=1),
        palimpsest(tmp_path, "import", broken.name, code=1),
        palimpsest(tmp_path, "restore", broken.name, "--yes", code=1),
        palimpsest(tmp_path, "restore", broken.name, answer="n\n", code=1),
        palimpsest(tmp_path, "list", code=1, settings={"PALIMPSEST_LLM__PROVIDER": name.replace("\0", "")}),
        palimpsest(tmp_path, "doctor", settings={"PALIMPSEST_HISTORY_DB_PATH": str(tmp_path / "[red]\x1b[2J.db")}),
        palimpsest(tmp_path, "prompts", "show", name, code=1),
        palimpsest(tmp_path, "install", name, code=2),
        palimpsest(tmp_path, "list", f"--{name}", code=2),
        palimpsest(tmp_path, name, code=2),
    ]
    assert [steering_in(output) for output in printed] == [[]] * len(printed)
    assert r"[/red]red \x1b[…" in printed[1], "a table cuts a long name"
    (hit,) = palimpsest_json(tmp_path, "search", "sign")["results"]
    assert r"[/red]red \x1b[31m title" in palimpsest(tmp_path, "get", hit["id"])


def test_a_prompt_file_is_redirected_word_for_word(tmp_path: Path) -> None:
    """Guards a prompt of one's own in a language that needs bidi controls: only a terminal gets escapes."""
    own = tmp_path / "own"
    own.mkdir()
    text = palimpsest(tmp_path, "prompts", "show", "decide").replace("You keep a memory", "\u200fYou keep a memory")
    (own / "decide.md").write_text(text, "utf-8")
    settings = {"PALIMPSEST_PROMPTS_DIR": str(own)}
    assert palimpsest(tmp_path, "prompts", "show", "decide", settings=settings) == text
    assert "+\u200fYou keep a memory" in palimpsest(tmp_path, "prompts", "diff", "decide", settings=settings)


def test_an_argument_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    """Guards a text from being stored with "?" in place of what was typed."""
    assert "not UTF-8" in palimpsest_process(tmp_path, "add", os.fsdecode(b"K\xf6ln is on the Rhine"), code=1)
    assert palimpsest_json(tmp_path, "list")["results"] == []
