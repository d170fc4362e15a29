"""`palimpsest learn --claude-code` and `--codex`: take in the old sessions of a client."""

from __future__ import annotations

from typing import Any

import typer

from palimpsest.capture.sessions import SessionsRequest, SessionsResult
from palimpsest.cli.console import AsJson, progress_bar, with_memory
from palimpsest.cli.output import Part, plain, print_result, table
from palimpsest.memory import Memory
from palimpsest.text.counting import counted
from palimpsest.text.shorten import shorten

MAX_CHARS = 70
"""How much of a first text is shown: a line of a terminal."""


def learn_sessions(ctx: typer.Context, request: SessionsRequest, as_json: AsJson) -> None:
    """Take in the sessions, or say what that would bring."""

    async def work(memory: Memory) -> None:
        with progress_bar("reading") as progress:
            result = await memory.capture.take_in_sessions(request, progress)
        done = _done(request, result)
        parts: list[Part] = [done, *([_by_project(result)] if result.messages else []), *_rest(request, result)]
        print_result(as_json, _as_json(request, result), *parts, done="" if request.is_dry_run else done)

    with_memory(ctx, work)


def _done(request: SessionsRequest, result: SessionsResult) -> str:
    what = f"{counted(result.messages.total(), 'message')} of {counted(result.conversations.total(), 'conversation')}"
    verb = "would take in" if request.is_dry_run else "took in"
    restored = f"; brought back after an undo: {counted(result.restored, 'message')}" if result.restored else ""
    return f"{verb} {what} from {result.folder}; known already: {counted(result.known, 'message')}{restored}"


def _by_project(result: SessionsResult) -> Part:
    rows = table("project", "conversations", "messages")
    for project, messages in result.messages.most_common():
        rows.add_row(plain(project or "(none)"), str(result.conversations[project]), str(messages))
    return rows


def _rest(request: SessionsRequest, result: SessionsResult) -> list[Part]:
    """Return the first texts of a dry run, what was left out, and how to go on."""
    parts: list[Part] = []
    if request.is_dry_run:
        parts += [f"- {shorten(text, MAX_CHARS)}" for text in result.examples]
    parts += [f"left out: {reason} ({number:,})" for reason, number in result.left_out.most_common()]
    parts += [f"undo with: palimpsest undo --change {edit}  ({scope})" for scope, edit in result.edits.items()]
    if result.queued:
        parts.append(
            f"learned from in the background, some each day: {counted(result.queued, 'message')}; see palimpsest jobs"
        )
    return parts


def _as_json(request: SessionsRequest, result: SessionsResult) -> dict[str, Any]:
    return {
        "client": request.client,
        "folder": str(result.folder),
        "dry_run": request.is_dry_run,
        "projects": {
            project: {"conversations": result.conversations[project], "messages": messages}
            for project, messages in result.messages.items()
        },
        "known": result.known,
        "restored": result.restored,
        "examples": result.examples,
        "left_out": dict(result.left_out),
        "edits": list(result.edits.values()),
        "queued": result.queued,
    }
