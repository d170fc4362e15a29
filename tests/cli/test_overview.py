"""Where the memory is installed: what `doctor` finds wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.client_files import content_of, run, write_json
from tests.support.command_line import palimpsest_json


def finding(home: Path, *, ok: bool) -> str:
    report = palimpsest_json(home, "doctor", code=0 if ok else 1, settings={"XDG_CONFIG_HOME": str(home / ".config")})
    [found] = [found for found in report["findings"] if found["part"] == "clients"]
    assert found["ok"] is ok
    return found["text"]


def test_a_damaged_file_of_one_client_hides_no_other(tmp_path: Path) -> None:
    """Guards the doctor: the file is named, and it is not called a fault of the memory."""
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text("{")
    run(tmp_path, "install", "codex")
    text = finding(tmp_path, ok=True)
    assert text.startswith("Codex (memory); ")
    assert "mcp.json cannot be read" in text


def test_the_doctor_names_the_clients_that_have_the_memory(tmp_path: Path) -> None:
    assert finding(tmp_path, ok=True) == "in no client; palimpsest install CLIENT adds it"
    run(tmp_path, "install", "gemini", "--hooks")
    run(tmp_path, "install", "vscode", "--project")
    assert finding(tmp_path, ok=True) == "Gemini CLI (memory, hooks), VS Code (memory)"


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("enabled", [True, False])
def test_the_doctor_warns_of_hooks_that_run_twice(tmp_path: Path, *, enabled: bool) -> None:
    """Guards against the plugin beside installed hooks; a plugin that is turned off does nothing."""
    run(tmp_path, "install", "claude-code", "--hooks")
    file = tmp_path / ".claude" / "settings.json"
    write_json(file, {**content_of(file), "enabledPlugins": {"palimpsest@palimpsest": enabled, "x@y": True}})
    text = finding(tmp_path, ok=not enabled)
    assert ("runs the hooks twice" in text) is enabled
    run(tmp_path, "uninstall", "claude-code")
    assert finding(tmp_path, ok=True).startswith("Claude Code (plugin)" if enabled else "in no client")


def test_the_doctor_warns_of_programs_that_are_gone(tmp_path: Path) -> None:
    """Guards a Python environment that was removed: it says which command mends it, and that command does."""
    gone = "/gone/bin/palimpsest"
    hook: dict[str, Any] = {"type": "command", "command": f"{gone}-hook", "args": []}
    write_json(tmp_path / ".claude.json", {"mcpServers": {"palimpsest": {"command": gone}}})
    write_json(tmp_path / ".claude" / "settings.json", {"hooks": {"Stop": [{"hooks": [hook]}]}})
    line = {"type": "command", "command": "'/gone dir/palimpsest-hook' --client codex"}
    write_json(tmp_path / ".codex" / "hooks.json", {"hooks": {"Stop": [{"hooks": [line]}]}})
    text = finding(tmp_path, ok=False)
    assert f"{gone} no longer exists; palimpsest install claude-code mends it" in text
    assert f"{gone}-hook no longer exists; palimpsest install claude-code --hooks mends it" in text
    assert "/gone dir/palimpsest-hook no longer exists; palimpsest install codex --hooks mends it" in text
    run(tmp_path, "install", "claude-code", "--hooks")
    run(tmp_path, "install", "codex", "--hooks")
    assert finding(tmp_path, ok=True) == "Claude Code (memory, hooks), Codex (memory, hooks)"
