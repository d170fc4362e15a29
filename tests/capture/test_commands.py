"""Commands take in what hooks captured, and say what a person should know about it."""

from __future__ import annotations

import json
from pathlib import Path

from palimpsest.hooks import spool
from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.sessions import ClaudeSession, spooled, waiting


def capture_finding(folder: Path) -> tuple[bool, str]:
    """Return what doctor says about capture."""
    findings = json.loads(palimpsest(folder, "doctor", "--json", code=doctor_code(folder)))["findings"]
    return next((finding["ok"], finding["text"]) for finding in findings if finding["part"] == "capture")


def doctor_code(folder: Path) -> int:
    """Return 1 if a record was set aside, which degrades the installation."""
    return int((Path(spool.spool_dir(str(folder / "data"))) / "damaged").exists())


class TestCommands:
    def test_a_command_takes_in_before_it_works(self, tmp_path: Path) -> None:
        """What was said a moment ago is found."""
        spooled(tmp_path / "data", "prompt", "The deploy key is in the vault")
        assert "in the vault" in palimpsest(tmp_path, "search", "where is the deploy key?")
        assert waiting(tmp_path / "data") == []

    def test_a_command_for_another_scope_leaves_the_spool_alone(self, tmp_path: Path) -> None:
        """An option that names a scope says nothing about where the session was held."""
        spooled(tmp_path / "data", "prompt", "The deploy key is in the vault")
        for option in ("--user", "--project"):
            palimpsest(tmp_path, option, "other", "list")
        assert len(waiting(tmp_path / "data")) == 1

    def test_a_spool_that_cannot_be_taken_in_is_one_note(self, tmp_path: Path) -> None:
        """The command does its work all the same."""
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "hooks").write_text("a file where the folder should be")
        said = palimpsest(tmp_path, "add", "Ana likes tea", answer=" ")
        assert said.count("what hooks captured waits") == 1
        assert "Ana likes tea" in palimpsest(tmp_path, "list")

    def test_undo_passes_over_what_hooks_captured(self, tmp_path: Path) -> None:
        """A person means the last edit of their own; the other can be undone by its number."""
        palimpsest(tmp_path, "add", "Ana likes tea")
        spooled(tmp_path / "data", "prompt", "captured meanwhile")
        assert "Ana likes tea" in palimpsest(tmp_path, "undo")
        [_, captured, _] = palimpsest_json(tmp_path, "log")["edits"]
        assert "captured meanwhile" in palimpsest(tmp_path, "undo", "--edit", str(captured["edit"]))


class TestDoctor:
    def test_it_names_what_waits_and_what_could_not_be_read(self, tmp_path: Path) -> None:
        """Counts, reasons and where to look."""
        assert capture_finding(tmp_path) == (True, "hooks = on; waiting: 0 records")
        data = tmp_path / "data"
        session = ClaudeSession(tmp_path / "t.jsonl")
        session.other("hologram")
        spooled(data, "end", transcript=str(session.path))
        (Path(spool.spool_dir(str(data))) / "1-1-a.json").write_text("{")
        spool.note_refusal(str(data), "large")
        palimpsest(tmp_path, "list")
        spooled(data, "prompt", "said after")
        ok, text = capture_finding(tmp_path)
        assert not ok
        assert "waiting: 1 record;" in text
        assert "cannot be read: 1 record in" in text
        assert "not kept: 1 time, the client gave more" in text
        assert "unknown in transcripts of claude-code, and left out: hologram (1)" in text


class TestHookSettings:
    def test_hooks_are_told_the_settings(self, tmp_path: Path) -> None:
        """The file is written when a memory is opened, if it says something new. No file means the defaults."""
        file = Path(spool.settings_file(str(tmp_path / "data")))
        palimpsest(tmp_path, "list")
        assert not file.exists()
        for mode in ("off", "on"):
            settings = {"PALIMPSEST_HOOKS": mode, "PALIMPSEST_HOOKS_EXCLUDED_FOLDERS": '["/secret"]'}
            palimpsest(tmp_path, "list", settings=settings)
            written = file.stat()
            assert json.loads(file.read_text("utf-8")) == {"mode": mode, "excluded_folders": ["/secret"]}
            palimpsest(tmp_path, "list", settings=settings)
            assert file.stat().st_mtime_ns == written.st_mtime_ns
            assert file.stat().st_mode & 0o777 == 0o600
