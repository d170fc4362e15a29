"""From an event of a client to a record in the spool and an answer."""

from __future__ import annotations

import json
import os
import re

from palimpsest.hook import payloads, session, spool, texts
from palimpsest.hook.json_values import parsed_object
from palimpsest.hook.options import CAPTURING, RECALLING, Options, mode_in, process_options
from palimpsest.hook.payloads import Event

CONTEXT_KEPT = ("resume", "fork")
"""Sources of a session whose model still sees what it was shown before."""
CONTEXT_LOST = ("clear", "compact")
HOOK_FILES = ("hooks.json", "settings.json", "config.toml")
MAX_HOOKS_FILE = 1024 * 1024


class Taken:
    """An event that was taken in, and what is needed to answer it."""

    __slots__ = ("event", "host", "options")

    def __init__(self, options: Options, host: str, event: Event) -> None:
        self.options = options
        self.host = host
        self.event = event


def take_in(stdin: bytes | None) -> Taken | None:
    """Spool the event on stdin and return it if it may be answered. `stdin` is None if it was too much to read.

    Raises OSError if the data directory cannot be written.
    """
    options = process_options()
    if options.started_by_program:
        return None
    if stdin is None:
        return _refused(options, "large")
    try:
        payload = parsed_object(stdin)
    except (ValueError, RecursionError):
        return _refused(options, "unreadable")
    host = payloads.host_of(payload, options.client)
    event = payloads.read_event(payload, host)
    if event is None or is_foreign_copy(options.client, host, event.cwd):
        return None
    if not event.session:
        return _refused(options, "unreadable")
    mode = mode_in(options, event.cwd)
    if mode in CAPTURING:
        _capture(options, event)
    _forget_shown(options, event)
    return Taken(options, host, event) if mode in RECALLING else None


def answer_to(taken: Taken, deadline: float) -> bytes:
    """Return what to print for an event, b"" for nothing. `deadline` is a time of `time.monotonic`.

    Raises OSError and ValueError if a server cannot be asked, or does not answer as it should.
    """
    options, event = taken.options, taken.event
    if event.kind == "start" and event.detail not in CONTEXT_KEPT:
        found = session.find_brief(options.data_dir, options.user, event.cwd)
    elif event.kind == "prompt":
        found = _recalled(options, event, deadline)
    else:
        found = None
    if found is None:
        return b""
    session.note_shown(options.data_dir, event.client, event.session, found.ids)
    text = texts.injected(found.text)
    return json.dumps(payloads.answer(options.client or taken.host, event.kind, text)).encode()


def is_foreign_copy(installed_for: str, host: str, folder: str) -> bool:
    """Return whether a client runs a hook of another client although it has one of ours that names this client.

    Cursor runs Claude Code's hooks, too. The client's files are asked and not a note of ours, because people edit them.
    """
    place = payloads.OWN_HOOKS.get(host)
    if place is None or installed_for == host:
        return False
    own = re.compile(rb"--client[\s\"',]+" + host.encode())
    homes = (os.path.expanduser("~"), folder)
    return any(_has_ours(os.path.join(home, place, name), own) for home in homes for name in HOOK_FILES)


def _has_ours(path: str, own: re.Pattern[bytes]) -> bool:
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_HOOKS_FILE)
    except OSError:
        return False
    return b"palimpsest-hook" in content and own.search(content) is not None


def _refused(options: Options, reason: str) -> None:
    """Write down that something was not kept, if the hook may keep things."""
    if mode_in(options, "") in CAPTURING:
        spool.note_refusal(options.data_dir, reason)


def _capture(options: Options, event: Event) -> None:
    """Spool what an event says."""
    kept = texts.kept_part(event.text)
    if event.role and not kept:
        return
    record = spool.new_record(
        event.client,
        event.kind,
        event.session,
        message_id=event.message_id(kept) if event.role else "",
        role=event.role,
        text=kept,
        transcript=event.transcript,
        cwd=event.cwd,
        user=options.user,
        detail=event.detail,
    )
    try:
        spool.write_record(options.data_dir, record)
    except spool.SpoolFullError:
        spool.note_refusal(options.data_dir, "full")


def _forget_shown(options: Options, event: Event) -> None:
    """Forget what a session was shown when its context is thrown away, and old sessions when a new one begins."""
    if event.kind == "compact" or (event.kind in ("start", "end") and event.detail in CONTEXT_LOST):
        session.forget_shown(options.data_dir, event.client, event.session)
    if event.kind == "start":
        session.forget_old_sessions(options.data_dir)


def _recalled(options: Options, event: Event, deadline: float) -> session.Injection | None:
    """Return what a running server says about a prompt."""
    asked = texts.question(texts.kept_part(event.text))
    if not asked or event.client not in payloads.TAKES_RECALLED:
        return None
    servers = session.find_servers(options.data_dir)
    if not servers:
        return None
    from palimpsest.hook.recall_request import ask  # noqa: PLC0415 - sockets are loaded only for a question

    request: dict[str, object] = {
        "user": options.user,
        "client": event.client,
        "session": event.session,
        "cwd": event.cwd,
        "prompt": asked,
        "shown": session.shown_ids(options.data_dir, event.client, event.session),
    }
    return ask(servers, request, deadline)
