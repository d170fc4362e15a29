"""What each client tells its hooks, and the form in which it takes an answer.

The names are those of the clients' documentation: Claude Code, Codex (`codex-rs/hooks/schema`), Gemini CLI, Cursor and
VS Code, whose fields are in camelCase.
"""

from __future__ import annotations

from binascii import crc32

from palimpsest.hook.json_values import texts_in

EVENTS = {
    "sessionStart": ("start", "", "source"),
    "userPromptSubmit": ("prompt", "prompt", ""),
    "beforeAgent": ("prompt", "prompt", ""),
    "beforeSubmitPrompt": ("prompt", "prompt", ""),
    "stop": ("reply", "last_assistant_message", ""),
    "afterAgent": ("reply", "prompt_response", ""),
    "afterAgentResponse": ("reply", "text", ""),
    "preCompact": ("compact", "", "trigger"),
    "preCompress": ("compact", "", "trigger"),
    "sessionEnd": ("end", "", "reason"),
}
"""Our event, the field with the text and the field with the detail, by the name of the client's event.

The first letter is lowered here: Claude Code, Codex, Gemini CLI and VS Code write it in upper case, and Cursor, which
maps the names of Claude Code's events onto its own, in lower case. All other events are of no interest.
"""
ROLES = {"prompt": "user", "reply": "assistant"}
SESSION_FIELDS = ("conversation_id", "session_id", "sessionId")
"""Cursor has both of the first two; its transcripts are named after the conversation."""
TURN_FIELDS = {
    "claude-code": "prompt_id",
    "codex": "turn_id",
    "gemini": "timestamp",
    "cursor": "generation_id",
    "vscode": "timestamp",
}
"""What tells a text from the same text said again. All hooks of one event are given the same value."""
OWN_HOOKS = {"codex": ".codex", "gemini": ".gemini", "cursor": ".cursor"}
"""The folder, in the home folder or a project, of the file in which a client has hooks of its own."""
TAKES_RECALLED = ("claude-code", "codex", "gemini", "cursor")
"""Clients that let a hook add to a prompt. VS Code takes context at the start of a session only."""
PROMPT_EVENTS = {"gemini": "BeforeAgent"}


class Event:
    """An event in our words. `kind` is prompt, reply, compact, end or start; `text` is as the client gave it."""

    __slots__ = ("client", "cwd", "detail", "kind", "session", "text", "transcript", "turn")

    def __init__(self, client: str, kind: str, payload: dict[str, object]) -> None:
        name = _event_name(payload)
        _, text_field, detail_field = EVENTS[name]
        self.client = client
        self.kind = kind
        self.session = first_text(payload, *SESSION_FIELDS)
        self.turn = first_text(payload, TURN_FIELDS[client])
        self.text = first_text(payload, text_field)
        self.detail = first_text(payload, detail_field)
        self.transcript = first_text(payload, "transcript_path", "transcriptPath")
        self.cwd = first_text(payload, "cwd") or _first_root(payload)

    @property
    def role(self) -> str:
        """Return who said the text; "" for an event without one."""
        return ROLES.get(self.kind, "")

    def message_id(self, text: str) -> str:
        """Return what tells a text of this event from all others of the session; "" if the client says nothing of it.

        A turn can have several prompts and replies, so the turn alone is not enough.
        """
        check = crc32(f"{self.role}\0{text}".encode("utf-8", "surrogatepass"))
        return f"{self.turn}:{check:08x}" if self.turn else ""


def read_event(payload: dict[str, object], client: str) -> Event | None:
    """Return the event of a payload; None for an event of no interest and for one of a subagent."""
    kind = EVENTS.get(_event_name(payload), ("", "", ""))[0]
    return Event(client, kind, payload) if kind and not payload.get("agent_id") else None


def host_of(payload: dict[str, object], installed_for: str) -> str:
    """Return the client that runs the hook. Only the payload tells: the environment is inherited by other clients.

    `installed_for` is the client that the hook was installed for, or "".
    """
    name = _event_name(payload)
    if "cursor_version" in payload or name in ("beforeSubmitPrompt", "afterAgentResponse"):
        return "cursor"
    if name in ("beforeAgent", "afterAgent", "preCompress"):
        return "gemini"
    if "hookEventName" in payload:
        return "vscode"
    if "turn_id" in payload:
        return "codex"
    # Claude Code and Codex give no time. Copilot does, also with Claude Code's names of fields, and so does Gemini CLI.
    if "timestamp" in payload and "permission_mode" not in payload:
        return "gemini" if installed_for == "gemini" else "vscode"
    return installed_for if installed_for in TURN_FIELDS else "claude-code"


def answer(client: str, kind: str, text: str) -> dict[str, object]:
    """Return the JSON object that puts a text before a client's model. It has no other keys: Codex refuses them."""
    if client == "cursor":
        goes_on: dict[str, object] = {"continue": True} if kind == "prompt" else {}
        return {**goes_on, "additional_context": text}
    name = PROMPT_EVENTS.get(client, "UserPromptSubmit") if kind == "prompt" else "SessionStart"
    return {"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}}


def first_text(payload: dict[str, object], *fields: str) -> str:
    """Return the first of some fields that is a text with anything in it, else ""."""
    for field in fields:
        value = payload.get(field)
        if isinstance(value, str) and value:
            return value
    return ""


def _event_name(payload: dict[str, object]) -> str:
    name = first_text(payload, "hook_event_name", "hookEventName")
    return name[:1].lower() + name[1:]


def _first_root(payload: dict[str, object]) -> str:
    """Return the first folder of Cursor's workspace, whose payloads often have an empty `cwd`."""
    roots = texts_in(payload.get("workspace_roots"))
    return roots[0] if roots else ""
