"""Claude Code as hooks see it: their payloads, and a transcript that grows as the client writes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palimpsest.hooks.spool import utc_now
from tests.support.hook_program import run_hook
from tests.support.sessions import ClaudeSession


class ClaudeCode:
    """A session of Claude Code in a folder, whose hooks are the real program. Each method returns what was injected."""

    def __init__(self, session: str, folder: Path, home: Path, environment: Mapping[str, str]) -> None:
        self.session, self.folder = session, folder
        self._environment = environment
        self._prompts = 0
        place = home / ".claude" / "projects" / folder.name / f"{session}.jsonl"
        self.transcript = ClaudeSession(place, session, str(folder))

    def start(self, source: str = "startup") -> str:
        """Begin, resume or clear the session, or begin again after a compaction."""
        return self._run("SessionStart", source=source)

    def prompt(self, text: str) -> str:
        """Send a prompt. The client writes it down after the hooks have run, and what they injected below it."""
        self._prompts += 1
        injected = self._run("UserPromptSubmit", prompt=text)
        self._user(text)
        if injected:
            self._attach(injected)
        return injected

    def reply(self, text: str, *, thought: str = "", result: str = "") -> str:
        """End a turn: with what the assistant thought, what a tool told it, and what it said."""
        if thought:
            self._assistant([{"type": "thinking", "thinking": thought, "signature": "x"}])
        if result:
            call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
            self._assistant([call])
            self._user([{"type": "tool_result", "tool_use_id": "toolu_1", "content": result}])
        # The file is written late: the last line follows after the hook.
        injected = self._run("Stop", last_assistant_message=text, stop_hook_active=False)
        self._assistant(text)
        return injected

    def interrupt(self, text: str) -> None:
        """Write down a reply that the user interrupts. No hook runs."""
        self._assistant(text)
        self._user("[Request interrupted by user]")

    def compact(self, summary: str) -> str:
        """Compact the context: the hooks before it, its lines in the transcript, and the start after it."""
        injected = self._run("PreCompact", trigger="auto", custom_instructions="")
        self.transcript.other(
            "system",
            subtype="compact_boundary",
            content="Conversation compacted",
            compactMetadata={"trigger": "auto", "preTokens": 155_000},
        )
        beginning = "This session is being continued from a previous conversation that ran out of context."
        self._user(f"{beginning}\n{summary}", isCompactSummary=True, isVisibleInTranscriptOnly=True)
        return injected + self.start("compact")

    def end(self) -> str:
        """End the session."""
        return self._run("SessionEnd", reason="prompt_input_exit")

    def _user(self, content: Any, **rest: Any) -> None:
        self.transcript.user(content, timestamp=utc_now(), **rest)

    def _assistant(self, content: Any) -> None:
        self.transcript.assistant(content, timestamp=utc_now())

    def _attach(self, text: str) -> None:
        attachment = {"type": "hook_additional_context", "content": [text], "hookEvent": "UserPromptSubmit"}
        self.transcript.other("attachment", attachment=attachment, sessionId=self.session, isSidechain=False)

    def _run(self, event: str, **fields: Any) -> str:
        """Run the hook at an event, and return what it puts before the model; "" for nothing."""
        payload: dict[str, Any] = {
            "session_id": self.session,
            "prompt_id": f"{self.session}-{self._prompts}",
            "transcript_path": str(self.transcript.path),
            "cwd": str(self.folder),
            "permission_mode": "default",
            "hook_event_name": event,
            **fields,
        }
        answer = run_hook(self.folder, payload, "--client", "claude-code", env=self._environment)
        if answer is None:
            return ""
        output = answer["hookSpecificOutput"]
        assert (set(answer), output["hookEventName"]) == ({"hookSpecificOutput"}, event)
        return output["additionalContext"]
