"""Where the memory is installed: what `palimpsest install` lists, and what `doctor` finds wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palimpsest.cli.clients.catalog import CLIENTS
from tests.support.client_files import FOREIGN_SERVER, content_of, run, write_json
from tests.support.command_line import palimpsest_json


def finding(home: Path, *, ok: bool) -> str:
    """Return what the doctor says about clients, which must be well or not."""
    report = palimpsest_json(home, "doctor", code=0 if ok else 1, settings={"XDG_CONFIG_HOME": str(home / ".config")})
    [found] = [found for found in report["findings"] if found["part"] == "clients"]
    assert found["ok"] is ok
    return found["text"]


def rows(home: Path) -> dict[str, list[str]]:
    lines = [line.split() for line in run(home, "install").splitlines()]
    return {words[0]: words[1:] for words in lines if words and words[0] in CLIENTS}


def test_install_alone_lists_the_clients(tmp_path: Path) -> None:
    """Guards someone who does not know the names, or forgot one: all are listed, with what is on this machine."""
    assert "name a client" in run(tmp_path, "install", "--hooks", code=2)
    (tmp_path / ".codex").mkdir()
    write_json(tmp_path / ".cursor" / "mcp.json", {"mcpServers": {"palimpsest": FOREIGN_SERVER}})
    write_json(tmp_path / ".gemini" / "settings.json", {"mcpServers": {"palimpsest": {"command": "palimpsest"}}})
    run(tmp_path, "install", "claude-code", "--hooks")
    assert rows(tmp_path) == {
        "claude-desktop": ["none"],
        "claude-code": ["found", "installed", "installed"],
        "codex": ["found"],
        "gemini": ["found", "installed"],
        "cursor": ["found", "another", "server"],
        "vscode": ["none"],
    }


def test_a_damaged_file_of_one_client_hides_no_other(tmp_path: Path) -> None:
    """Guards the list and the doctor: the file is named, and it is not called a fault of the memory."""
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text("{")
    run(tmp_path, "install", "codex")
    assert rows(tmp_path)["codex"] == ["found", "installed"]
    assert "cannot be read" in " ".join(rows(tmp_path)["cursor"])
    text = finding(tmp_path, ok=True)
    assert text.startswith("Codex (memory); ")
    assert "mcp.json cannot be read" in text


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


def test_the_doctor_warns_of_hooks_of_the_user_and_of_the_folder(tmp_path: Path) -> None:
    """Guards clients that run the hooks of both files; Claude Code runs two that are the same once."""
    project = {"HOME": str(tmp_path / "home")}
    for client in ("codex", "claude-code"):
        run(tmp_path, "install", client, "--hooks", settings=project)
        run(tmp_path, "install", client, "--hooks", "--project", settings=project)
    report = palimpsest_json(tmp_path, "doctor", code=1, settings=project)
    [text] = [found["text"] for found in report["findings"] if found["part"] == "clients"]
    assert "Codex runs the hooks twice" in text
    assert "palimpsest uninstall codex --project" in text
    assert "Claude Code runs" not in text


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
