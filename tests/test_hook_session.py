"""A session through the hooks, as real programs, and what a command makes of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from palimpsest.hooks.spool import utc_now
from tests.support.environment import clean_environment
from tests.support.hook_program import run_hook
from tests.support.repositories import repository
from tests.support.sessions import ClaudeSession


@pytest.mark.nightly
def test_a_command_renders_what_it_took_in(tmp_path: Path) -> None:
    """Where no server had run yet, the brief of a folder stayed empty after a command had taken its session in."""
    shop = repository(tmp_path / "tea-shop")
    environment = clean_environment(tmp_path, PALIMPSEST_LLM__PROVIDER="none", PALIMPSEST_PROJECT="auto")
    transcript = ClaudeSession(tmp_path / "first.jsonl", "first", str(shop))

    def run(event: str, session: str = "first", **fields: Any) -> Any:
        place = {"transcript_path": str(transcript.path), "cwd": str(shop)}
        payload = {"session_id": session, "hook_event_name": event, **place, **fields}
        return run_hook(shop, payload, "--client", "claude-code", env=environment)

    run("UserPromptSubmit", prompt="We ship on Fridays only")
    transcript.user("We ship on Fridays only", timestamp=utc_now())
    reply = "Noted: releases are on Fridays."
    run("Stop", last_assistant_message=reply, stop_hook_active=False)
    transcript.assistant(reply, timestamp=utc_now())
    subprocess.run(  # in the folder of the session, as a person does
        [sys.executable, "-m", "palimpsest", "list"], env=environment, cwd=shop, check=True, capture_output=True
    )
    brief = run("SessionStart", "second", source="startup")["hookSpecificOutput"]["additionalContext"]
    assert f'- user: "We ship on Fridays only"\n- assistant: "{reply}"' in brief
