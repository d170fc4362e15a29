"""Turn an event of a client into a record in the spool and a reply. Standard library alone."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from binascii import crc32
from itertools import pairwise

from palimpsest.hooks import spool

TYPE_CHECKING = False
if TYPE_CHECKING:  # a hook loads it only for a question
    import socket

# What each client gives to its hooks, and the form in which it takes a reply.
#
# The names are those of the clients' documentation: Claude Code, Codex (`codex-rs/hooks/schema`), Gemini CLI, Cursor
# and VS Code, whose fields are in camelCase.

# Our event, the field with the text and the field with the detail, by the name of the client's event.
#
# The first letter is lowered here: Claude Code, Codex, Gemini CLI and VS Code write it in upper case, and Cursor, which
# maps the names of Claude Code's events onto its own, in lower case. All other events are of no interest.
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
ROLES = {"prompt": "user", "reply": "assistant"}

# Cursor has both of the first two; its transcripts are named after the conversation.
SESSION_FIELDS = ("conversation_id", "session_id", "sessionId")
# What tells a text from the same text said again. All hooks of one event are given the same value.
TURN_FIELDS = {
    "claude-code": "prompt_id",
    "codex": "turn_id",
    "gemini": "timestamp",
    "cursor": "generation_id",
    "vscode": "timestamp",
}
# Clients that let a hook add to a prompt. VS Code takes context at the start of a session only.
TAKES_RECALLED = ("claude-code", "codex", "gemini", "cursor")
# Clients whose agent goes on with a text when a hook answers so at the end of its turn.
GOES_ON = ("claude-code", "codex")
PROMPT_EVENTS = {"gemini": "BeforeAgent"}


class Event:
    """An event in our words. `kind` is prompt, reply, compact, end or start; `text` is as the client gave it."""

    def __init__(self, client: str, payload: dict[str, object]) -> None:
        self.kind, text_field, detail_field = EVENTS[_event_name(payload)]
        self.client = client
        self.session = first_text(payload, *SESSION_FIELDS)
        self.turn = first_text(payload, TURN_FIELDS[client])
        self.text = first_text(payload, text_field)
        self.detail = first_text(payload, detail_field)
        self.transcript = first_text(payload, "transcript_path", "transcriptPath")
        # An agent that has gone on already is let go, and while it plans it cannot store anything.
        self.may_go_on = payload.get("stop_hook_active") is not True and payload.get("permission_mode") != "plan"
        roots = spool.texts_in(payload.get("workspace_roots"))  # Cursor's, whose payloads often have an empty `cwd`
        self.cwd = first_text(payload, "cwd") or (roots[0] if roots else "")

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
    return Event(client, payload) if _event_name(payload) in EVENTS and not payload.get("agent_id") else None


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
    if kind == "reply":
        return {"decision": "block", "reason": text}
    if client == "cursor":
        goes_on: dict[str, object] = {"continue": True} if kind == "prompt" else {}
        return {**goes_on, "additional_context": text}
    name = PROMPT_EVENTS.get(client, "UserPromptSubmit") if kind == "prompt" else "SessionStart"
    return {"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}}


def first_text(payload: dict[str, object], *fields: str) -> str:
    """Return the first of some fields that is a text with anything in it, else ""."""
    values = (payload.get(field) for field in fields)
    return next((value for value in values if isinstance(value, str) and value), "")


def _event_name(payload: dict[str, object]) -> str:
    name = first_text(payload, "hook_event_name", "hookEventName")
    return name[:1].lower() + name[1:]


# What the hook finds for a session: the brief it begins with, running servers, and the memories that it was shown.

# So many servers are tried. Those that were killed refuse at once.
MAX_SERVERS = 8
MAX_SHOWN_BYTES = 1024 * 1024

# The newest ids of a session that go into a request. A session that has seen more has been compacted long ago.
MAX_SHOWN = 500
# Sources and reasons of a session whose model no longer sees what it was shown.
CONTEXT_LOST = ("clear", "compact")
# Claude Code keeps transcripts for 30 days, so an older session can no longer be resumed.
SHOWN_SECONDS = 30 * 24 * 3600


class Injection:
    """A text for the model, and the ids of the memories that it names."""

    def __init__(self, text: str, ids: list[str]) -> None:
        self.text = text
        self.ids = ids


def find_brief(data_dir: str, user: str, folder: str) -> Injection | None:
    """Return the brief for a session of a user in a folder; None if there is none or its file is damaged."""
    try:
        users = spool.read_object(spool.folders_file(data_dir)).get("users")
        folders = users.get(user) if spool.is_object(users) else None
        key = _nearest(folders, folder) if spool.is_object(folders) else None
    except (OSError, ValueError):
        return None
    return read_brief(data_dir, key) if isinstance(key, str) and key.isalnum() else None


def read_brief(data_dir: str, key: str) -> Injection | None:
    """Return the brief in the file of a key; None if there is none or it is damaged."""
    try:
        brief = spool.read_object(spool.brief_file(data_dir, key))
    except (OSError, ValueError):
        return None
    text = brief.get("text")
    shown = spool.without_past(text) if isinstance(text, str) else ""
    return Injection(shown, spool.texts_in(brief.get("ids"))) if shown else None


def find_servers(data_dir: str) -> list[str]:
    """Return the files by which running servers are reached, the newest first, from a folder that is ours alone."""
    if not spool.is_private_folder(folder := spool.sockets_dir(data_dir)):
        return []
    with os.scandir(folder) as entries:
        files = [entry for entry in entries if entry.name.endswith(spool.SOCKET_SUFFIX)]
        found = [(entry.stat(follow_symlinks=False).st_mtime, entry.path) for entry in files]
    return [path for _, path in sorted(found, reverse=True)[:MAX_SERVERS]]


def shown_ids(data_dir: str, client: str, session: str) -> list[str]:
    """Return the ids of the memories that a session was shown since it began or was compacted."""
    try:
        with open(spool.shown_file(data_dir, client, session), encoding="utf-8") as file:
            return file.read(MAX_SHOWN_BYTES).split()[-MAX_SHOWN:]
    except (OSError, ValueError):
        return []


def note_shown(data_dir: str, client: str, session: str, ids: list[str]) -> None:
    """Write down that a session was shown some memories. Raises OSError."""
    if ids:
        spool.make_private_folder(spool.hooks_dir(data_dir))
        spool.make_private_folder(spool.shown_dir(data_dir))
        spool.append_line(spool.shown_file(data_dir, client, session), "\n".join(ids))


def forget_shown(data_dir: str, event: Event) -> None:
    """Forget what a session was shown when its context is thrown away, and old sessions when a new one begins.

    Raises OSError.
    """
    is_lost = event.kind == "compact" or (event.kind in ("start", "end") and event.detail in CONTEXT_LOST)
    if is_lost and os.path.exists(path := spool.shown_file(data_dir, event.client, event.session)):
        os.unlink(path)
    if event.kind == "start" and os.path.isdir(folder := spool.shown_dir(data_dir)):
        oldest = time.time() - SHOWN_SECONDS
        with os.scandir(folder) as entries:
            old = [entry.path for entry in entries if entry.stat(follow_symlinks=False).st_mtime < oldest]
        for path in old:
            os.unlink(path)


def is_within(place: str, folder: str) -> bool:
    """Return whether a path is a folder or lies below it, as written or with all links followed."""
    for plain in (os.path.abspath, os.path.realpath):
        path, above = os.path.normcase(plain(place)), os.path.normcase(plain(folder))
        if path == above or path.startswith(os.path.join(above, "")):
            return True
    return False


def _nearest(folders: dict[str, object], folder: str) -> object:
    """Return the value of the nearest folder at or above a folder, else that of ""."""
    for place in (folder, os.path.realpath(folder)) if folder else ():
        above, last = place, ""
        while above not in ("", last):
            if above in folders:
                return folders[above]
            above, last = os.path.dirname(above), above
    return folders.get("")


# What the hook is told: by its arguments, by the environment, and by the file that servers and commands write.

CAPTURING = ("on", "capture")
RECALLING = ("on", "recall")
MODES = ("on", "off", "capture", "recall")

# The folder that a session began in. It stays excluded when the session goes on in another folder.
PROJECT_VARIABLES = ("CLAUDE_PROJECT_DIR", "CURSOR_PROJECT_DIR", "GEMINI_PROJECT_DIR")
ENTRYPOINT_VARIABLE = "CLAUDE_CODE_ENTRYPOINT"

# `claude -p` and the Agent SDK: a program talks, often from a hook, and nobody wants to remember that.
PROGRAM_ENTRYPOINT = "sdk-"


class Options:
    """The arguments and the environment of the hook. `client` and `user` are "" if nothing says them."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        given = dict(pairwise(arguments))
        self.client = given.get("--client", "")
        data_dir = given.get("--data-dir") or environment.get("PALIMPSEST_DATA_DIR") or default_data_dir(environment)
        self.data_dir = os.path.abspath(os.path.expanduser(data_dir))
        self.user = given.get("--user") or environment.get("PALIMPSEST_USER_ID", "")
        self.mode = environment.get("PALIMPSEST_HOOKS", "").strip().lower()
        self.project_folders = [environment[name] for name in PROJECT_VARIABLES if environment.get(name)]
        self.started_by_program = environment.get(ENTRYPOINT_VARIABLE, "").startswith(PROGRAM_ENTRYPOINT)


def mode_in(options: Options, folder: str) -> str:
    """Return on, off, capture or recall for a session in a folder.

    A mode that is not known, or a settings file that cannot be read, means off: it may have been an opt-out.
    """
    try:
        settings = spool.read_object(spool.settings_file(options.data_dir))
    except FileNotFoundError:
        settings = {}
    except (OSError, ValueError):
        return "off"
    mode = options.mode or settings.get("mode", "on")
    if not isinstance(mode, str) or mode not in MODES:
        return "off"
    places = [place for place in (folder, *options.project_folders) if place]
    excluded = [os.path.expanduser(name) for name in spool.texts_in(settings.get("excluded_folders"))]
    return "off" if any(is_within(place, name) for place in places for name in excluded) else mode


def default_data_dir(environment: dict[str, str]) -> str:
    """Return the data directory of the settings' default, which platformdirs finds for them."""
    if sys.platform == "win32":
        return os.path.join(environment.get("LOCALAPPDATA") or os.path.expanduser("~\\AppData\\Local"), "palimpsest")
    if os.path.isabs(given := environment.get("XDG_DATA_HOME", "").strip()):
        return os.path.join(given, "palimpsest")
    home = "~/Library/Application Support" if sys.platform == "darwin" else "~/.local/share"
    return os.path.join(os.path.expanduser(home), "palimpsest")


# The question to a running server, over its socket: a line of JSON each way, one connection a request.

VERSION = 1

# A server answers with at most 300 tokens.
MAX_ANSWER_BYTES = 64 * 1024
MAX_ID_CHARS = 64


def ask(servers: list[str], request: dict[str, object], deadline: float) -> Injection | None:
    """Return what a running server says about a prompt; None if there is no server or it has nothing to say.

    `servers` are the files of `find_servers`; the first that can know is asked, not one that is starting or another
    user's. `request` has the keys user, client, session, cwd, prompt ("" at the end of a turn), transcript and shown.
    `deadline` is a time of `time.monotonic`. Raises OSError, TimeoutError among them, and ValueError for an answer that
    is none.
    """
    for path in servers:
        try:
            connection, token = _connect(path, deadline)
        except (OSError, ValueError):
            continue  # a server that has gone, or one that is just starting
        with connection, connection.makefile("rb") as received:
            line = json.dumps({"v": VERSION, "token": token, **request})
            connection.settimeout(_left(deadline))
            connection.sendall(f"{line}\n".encode())
            reply = spool.parsed_object(received.readline(MAX_ANSWER_BYTES))
        if reply.get("is_ready") is not False:
            return _injection_of(reply)
    return None


def _connect(path: str, deadline: float) -> tuple[socket.socket, str]:
    """Return a connection to a server and the token that it wants, "" for a Unix socket."""
    import socket  # noqa: PLC0415 - loaded only for a question

    if sys.platform == "win32":
        place = spool.read_object(path)
        port, token = place.get("port"), place.get("token")
        if not isinstance(port, int) or not isinstance(token, str):
            raise ValueError("no port and token")
        return socket.create_connection(("127.0.0.1", port), timeout=_left(deadline)), token
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_left(deadline))
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection, ""


def _left(deadline: float) -> float:
    if (left := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    return left


def _injection_of(reply: dict[str, object]) -> Injection | None:
    text, ids = reply.get("text"), spool.texts_in(reply.get("ids"))
    if not isinstance(text, str) or not spool.is_block(text):
        return None
    return Injection(text, [one for one in ids if one.isascii() and one.isprintable() and len(one) <= MAX_ID_CHARS])


# From an event of a client to a record in the spool and an answer.

# Sources of a session whose model still sees what it was shown before.
CONTEXT_KEPT = ("resume", "fork")
# Sources of a session that was there before: what was said in it so far comes first.
CONTINUED = ("resume", "compact")
MAX_HOOKS_FILE = 1024 * 1024


def handle_event(stdin: bytes | None) -> tuple[Options, Event] | None:
    """Spool the event on stdin and return it if it may be answered. `stdin` is None if it was too much to read.

    Raises OSError if the data directory cannot be written, and ValueError or RecursionError for what is no event.
    """
    options = Options(sys.argv[1:], dict(os.environ))
    if options.started_by_program or stdin is None:
        return None
    payload = spool.parsed_object(stdin)
    client = host_of(payload, options.client)
    event = read_event(payload, client)
    if event is None or not event.session or is_foreign_copy(options.client, client, event.cwd):
        return None
    if (mode := mode_in(options, event.cwd)) in CAPTURING:
        _capture(options, event)
    forget_shown(options.data_dir, event)
    return (options, event) if mode in RECALLING else None


def build_reply(options: Options, event: Event, deadline: float) -> bytes:
    """Return what to print for an event, b"" for nothing. `deadline` is a time of `time.monotonic`.

    Raises OSError and ValueError if a server cannot be asked, or does not answer as it should.
    """
    # What an agent was asked is not asked again, also after a compaction.
    seen_as = f"{event.session} asked" if event.kind == "reply" else event.session
    found = _briefs(options, event) if event.kind == "start" else [_answer_of_server(options, event, seen_as, deadline)]
    if not (shown := [injection for injection in found if injection is not None]):
        return b""
    note_shown(options.data_dir, event.client, seen_as, [name for injection in shown for name in injection.ids])
    text = "\n".join(injection.text for injection in shown)
    return json.dumps(answer(options.client or event.client, event.kind, text)).encode()


def _briefs(options: Options, event: Event) -> list[Injection | None]:
    """Return what a session begins with: what was said in it so far, and what is known in its folder."""
    key = spool.hashed(event.client, event.session) if event.detail in CONTINUED else ""
    return [
        read_brief(options.data_dir, key) if key else None,
        None if event.detail in CONTEXT_KEPT else find_brief(options.data_dir, options.user, event.cwd),
    ]


def is_foreign_copy(installed_for: str, host: str, folder: str) -> bool:
    """Return whether Cursor runs a hook of Claude Code, as it does, although it has one of ours.

    Its files are asked and not a note of ours, because people edit them.
    """
    for home in (os.path.expanduser("~"), folder) if host == "cursor" and installed_for != host else ():
        try:
            with open(os.path.join(home, ".cursor", "hooks.json"), "rb") as file:
                content = file.read(MAX_HOOKS_FILE)
        except OSError:
            continue
        if b"palimpsest-hook" in content and re.search(rb"--client[\s\"',]+cursor", content):
            return True
    return False


def _capture(options: Options, event: Event) -> None:
    """Spool what an event says."""
    kept = spool.kept_part(event.text)
    if event.role and not kept:
        return
    said = {"role": event.role, "text": kept, "message_id": event.message_id(kept)} if event.role else {}
    where = {"transcript": event.transcript, "cwd": event.cwd, "user": options.user}
    spool.write_record(options.data_dir, spool.new_record(event.client, event.kind, event.session, **said, **where))


def _answer_of_server(options: Options, event: Event, seen_as: str, deadline: float) -> Injection | None:
    """Return what a running server says about a prompt, or asks at the end of a turn."""
    takes_recalled = event.kind == "prompt" and event.client in TAKES_RECALLED
    goes_on = event.kind == "reply" and event.client in GOES_ON and event.may_go_on
    prompt = spool.question(spool.kept_part(event.text)) if takes_recalled else ""
    if not (servers := find_servers(options.data_dir) if prompt or goes_on else []):
        return None
    request: dict[str, object] = {
        "user": options.user,
        "client": event.client,
        "session": event.session,
        "cwd": event.cwd,
        "prompt": prompt,
        "transcript": event.transcript,
        "shown": shown_ids(options.data_dir, event.client, seen_as),
    }
    return ask(servers, request, deadline)
