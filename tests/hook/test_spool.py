"""The spool: whole files for their owner only, within a bound, and which part of a text is kept or asked about."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from palimpsest.hooks import spool

needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions and links")


def record(text: str = "I moved to Lisbon.") -> dict[str, str | int]:
    return spool.new_record("claude-code", "prompt", "s1", role="user", text=text)


def spooled(data_dir: Path) -> list[Path]:
    return sorted(Path(spool.spool_dir(str(data_dir))).glob("*.json"))


@needs_posix
def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    opened = Path(spool.spool_dir(str(tmp_path / "open")))
    opened.mkdir(parents=True)
    for folder in (opened, opened.parent):
        folder.chmod(0o755)
    for name in ("new", "open"):
        path = Path(spool.write_record(str(tmp_path / name), record()))
        modes = [stat.S_IMODE(os.stat(place).st_mode) for place in (path, path.parent, path.parent.parent)]
        assert modes == [0o600, 0o700, 0o700], name
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    for number, level in enumerate(("hooks", "hooks/spool")):
        link = tmp_path / str(number) / level
        link.parent.mkdir(parents=True, mode=0o700)
        link.symlink_to(elsewhere)
        with pytest.raises(OSError, match="exists"):
            spool.write_record(str(tmp_path / str(number)), record())
    assert list(elsewhere.iterdir()) == []


def test_a_spool_with_too_many_files_or_bytes_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "FEW_FILES", 1)
    for name, limit, value, size in (("a", "MAX_FILES", 3, 1), ("b", "MAX_SPOOL_BYTES", 2_000, 600)):
        monkeypatch.setattr(spool, limit, value)
        for _ in range(3):
            spool.write_record(str(tmp_path / name), record("x" * size))
        with pytest.raises(spool.SpoolFullError):
            spool.write_record(str(tmp_path / name), record())
        assert len(spooled(tmp_path / name)) == 3
        monkeypatch.setattr(spool, limit, 10**9)


KEPT = (
    ("The door code is <private>4711</private>, and I live in Lisbon.", "The door code is , and I live in Lisbon."),
    ("<private>all of it</private>", ""),
    ("a <PRIVATE>b</Private> c", "a  c"),
    ("a <private>b <private>c</private> d</private> e", "a  e"),
    ("a <private>b", "a"),
    ("a </private> b", "a </private> b"),
    ("<private>a</private> b <private>c</private> d", "b  d"),
    ("<palimpsest-memory>\nold\n</palimpsest-memory>\nI moved.", "I moved."),
    ("What does <palimpsest-memory> mean?", "What does <palimpsest-memory> mean?"),
    ("<palimpsest-memory><private></palimpsest-memory> b", "b"),
    ("1 < 2 and <b>bold</b>", "1 < 2 and <b>bold</b>"),
    ("  \n ", ""),
    # Commands and notifications.
    ("/clear", ""),
    ("/palimpsest:recall", ""),
    ("!ls -l", ""),
    ("<task-notification>\n<task-id>b1</task-id>\n</task-notification>", ""),
    ("<command-name>/model</command-name>", ""),
    ("<local-command-stdout>done</local-command-stdout>", ""),
    ("<system-reminder>Do not…</system-reminder>", ""),
    ("[Request interrupted by user]", ""),
    # Words of people.
    ("/plan We use Postgres from now on.", "/plan We use Postgres from now on."),
    ("/etc/hosts is wrong", "/etc/hosts is wrong"),
    ("yes", "yes"),
    ("a" * 250_000, "a" * 100_000 + "… (250000 characters)"),
)
QUESTIONS = (
    ("Which database do we use?", "Which database do we use?"),
    ("a" * 19, ""),
    ("a" * 20, "a" * 20),
    ("/plan the move to Postgres", ""),
    ("!git log --oneline --graph", ""),
    ("a" * 9_000, "a" * 4_000),
)
BLOCKS = (
    ("<palimpsest-memory>\nx\n</palimpsest-memory>", True),
    ("x", False),
    ("<palimpsest-memory>\nx", False),
    ("<palimpsest-memory>" + "x" * 9_000 + "</palimpsest-memory>", False),
)


def test_what_of_a_text_is_kept_asked_and_injected() -> None:
    for text, kept in KEPT:
        assert spool.kept_part(text) == kept, text[:60]
    for prompt, question in QUESTIONS:
        assert spool.question(prompt) == question, prompt[:60]
    for text, is_ours in BLOCKS:
        assert spool.is_block(text) is is_ours, text[:60]
    cut = spool.injected("<palimpsest-memory>\n" + "Ada lives in Lisbon.\n" * 1_000 + "</palimpsest-memory>")
    assert len(cut) < 8_100
    assert cut.endswith("\nAda lives in Lisbon.\n</palimpsest-memory>")
    # A text full of tags is read once: the watchdog cannot end the process while a regular expression runs for minutes.
    assert spool.without_private("<private>" * 200_000) == ""
    assert spool.without_private("<palimpsest-memory>" * 200_000) == "<palimpsest-memory>" * 200_000
