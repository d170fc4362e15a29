"""Commands on conversations, documents, learning and jobs."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from palimpsest.cli.console import CALLER, Memory, Options, Reply, command, opened, progress_bar, settings_of
from palimpsest.cli.lazy import advice, document_pages, files, intake, job_runner, output, readers, replies, validation
from palimpsest.cli.memory_commands import search_parts
from palimpsest.core.clock import local_iso, parse_instant, shown_date
from palimpsest.core.errors import InputError, raised_as
from palimpsest.text.display import counted, shorten

if TYPE_CHECKING:
    from palimpsest.learn.browsing import ConversationSummary


# The commands that list conversations, read one, and find messages in all of them.

app = typer.Typer()

# How much of a conversation's first message stands for its title: it fits a line of a table.
TITLE_CHARS = 60


@command(app, "conversations")
async def conversations(
    memory: Memory, conversation_id: str | None = None, limit: int = 20, cursor: str | None = None
) -> Reply:
    """List conversations, the newest first, or read one."""
    if conversation_id is None:
        page = await memory.conversations.list(memory.scope, limit=limit, cursor=cursor)
        listed = [
            {**replies.picked(each, "id client messages project began_at ended_at"), "title": _title(each)}
            for each in page.conversations
        ]
        rows = output.Rows("id", "date", "client", "messages", "project", "title")
        for each in page.conversations:
            date = f"{each.ended_at:%Y-%m-%d}"
            rows.add_row(each.id[:8], date, each.client, each.messages, each.project, _title(each))
        listed_parts = [rows, "palimpsest conversations ID reads one"] if listed else ["no conversations"]
        return Reply({"conversations": listed, "cursor": page.cursor}, *listed_parts, *_more(page.cursor))
    read = await memory.conversations.read(memory.scope, conversation_id, limit=limit, cursor=cursor)
    parts: list[output.Part] = []
    for message in read.messages:
        who = f"{message.name} ({message.role})" if message.name else message.role
        parts += [f"{local_iso(message.said_at)} {who}:", message.content, ""]
    members = [replies.picked(message, "id at=said_at role name text=content") for message in read.messages]
    return Reply({"id": read.id, "messages": members, "cursor": read.cursor}, *parts, *_more(read.cursor))


def _title(conversation: ConversationSummary) -> str:
    """Return the title of a conversation, or its first words."""
    if conversation.title or conversation.first is None:
        return conversation.title
    return shorten(validation.one_line(conversation.first.content), TITLE_CHARS)


def _more(cursor: str | None) -> list[output.Part]:
    return [f"more: --cursor {cursor}"] if cursor else []


# The command on documents: list them, read one, delete one; and how `palimpsest learn` keeps files as documents.

# How many skipped files are named for each reason, to fit a screen. JSON names all of them.
MAX_NAMED = 10


@command(app, "documents")
async def documents(
    memory: Memory, document_id: str | None = None, page: int | None = None, delete: bool = False
) -> Reply:
    """List documents that were learned, show the pages of one, or delete one."""
    if document_id is None:
        if page is not None or delete:
            raise InputError("--page and --delete need the ID of a document. Nothing was done")
        listed = await memory.documents.list(memory.scope)
        rows = output.Rows("id", "learned", "pages", "project", "title", "source")
        for item in listed:
            rows.add_row(item.id[:8], shown_date(item.learned_at), item.pages, item.project, item.title, item.uri)
        parts = [rows, "palimpsest documents ID shows the pages of one"]
        content = {"documents": [replies.document_json(item) for item in listed]}
        return Reply(content, *(parts if listed else ["no documents; palimpsest learn FILE adds one"]))
    if delete:
        found, result = await memory.documents.delete(memory.scope, document_id, caller=CALLER)
        done = f"deleted: {found.title}, {counted(found.pages, 'page')}"
        content = {"deleted": replies.document_json(found), "notes": result.notes}
        return Reply(content, done, *output.notes_text(result.notes), done=True)
    if page is not None:
        found, shown = await memory.documents.page(memory.scope, document_id, page)
        content = {**replies.document_json(found), "page": shown.number, "text": shown.message.content}
        return Reply(content, replies.document_page_text(found, shown, note=""))
    found, pages = await memory.documents.pages(memory.scope, document_id)
    return Reply(replies.pages_json(found, pages), replies.pages_text(found, pages, note=""))


async def _learn_documents(memory: Memory, path: Path) -> Reply:
    """Keep a file, or the files of a folder, as documents."""
    with progress_bar("learning") as progress:
        if path.is_dir():  # noqa: ASYNC240 - a moment
            result = await memory.documents.learn_folder(memory.scope, path, progress, caller=CALLER)
        else:
            learned = await memory.documents.learn_file(memory.scope, path, caller=CALLER)
            result = document_pages.LearnedFolder([learned])
    notes = list(dict.fromkeys(note for learned in result.learned for note in learned.notes))
    if not all(learned.is_unchanged for learned in result.learned):
        notes = await _embedded(memory, notes)
    content: dict[str, Any] = {
        "documents": [replies.learned_json(learned) for learned in result.learned],
        "skipped": [replies.picked(item, "path reason") for item in result.skipped],
        "notes": notes,
    }
    return Reply(content, *(_lines(result) or [f"nothing was learned from {path}"]), *output.notes_text(notes))


async def _embedded(memory: Memory, notes: list[str]) -> list[str]:
    """Embed what waits for it, and return notes without those that say so, if nothing waits any more."""
    from palimpsest.learn.commit import is_on_embedding  # noqa: PLC0415 - its help needs none of it

    with progress_bar("embedding") as progress:
        waiting = await memory.documents.embed(progress)
    return notes if waiting else [note for note in notes if not is_on_embedding(note)]


def _lines(result: document_pages.LearnedFolder) -> list[output.Part]:
    """Return a line for each document that is new or has changed, then how many have not, what was skipped, and why."""
    changed = [learned for learned in result.learned if not learned.is_unchanged]
    lines: list[output.Part] = [replies.learned_line(learned) for learned in changed]
    if unchanged := len(result.learned) - len(changed):
        lines.append(f"unchanged: {counted(unchanged, 'document')}")
    for reason, count in Counter(item.reason for item in result.skipped).items():
        names = [item.path for item in result.skipped if item.reason == reason][:MAX_NAMED]
        more = f" and {count - MAX_NAMED} more" if count > MAX_NAMED else ""
        lines.append(f"skipped: {', '.join(names)}{more}: {reason}")
    return lines


# `palimpsest learn --claude-code` and `--codex`: take in the old sessions of a client.


async def learn_sessions(memory: Memory, request: intake.SessionsRequest) -> Reply:
    """Take in the sessions, or say what that would bring."""
    with progress_bar("reading") as progress:
        result = await memory.capture.take_in_sessions(request, progress)
    what = f"{counted(result.messages.total(), 'message')} of {counted(result.conversations.total(), 'conversation')}"
    verb = "would take in" if request.is_dry_run else "took in"
    restored = f"; brought back after an undo: {counted(result.restored, 'message')}" if result.restored else ""
    done = f"{verb} {what} from {result.folder}; known already: {counted(result.known, 'message')}{restored}"
    rows = output.Rows("project", "conversations", "messages")
    for project, messages in result.messages.most_common():
        rows.add_row(project or "(none)", result.conversations[project], messages)
    parts: list[output.Part] = [done, *([rows] if result.messages else [])]
    parts += [f"left out: {reason} ({number:,})" for reason, number in result.left_out.most_common()]
    parts += [f"undo with: palimpsest undo --edit {edit}  ({scope})" for scope, edit in result.edits.items()]
    if result.queued:
        queued = counted(result.queued, "message")
        parts.append(f"learned from in the background, some each day: {queued}; see palimpsest jobs")
    content = {
        "client": request.client,
        "folder": result.folder,
        "dry_run": request.is_dry_run,
        "projects": {
            project: {"conversations": result.conversations[project], "messages": messages}
            for project, messages in result.messages.items()
        },
        **replies.picked(result, "known restored left_out"),
        "edits": list(result.edits.values()),
        "queued": result.queued,
    }
    return Reply(content, *parts, done=not request.is_dry_run)


# `palimpsest learn`: store a conversation from a file.

JSON_LINES = (".jsonl", ".ndjson")

_EXPORTS = "palimpsest import takes in the exports of ChatGPT, Claude and other tools"

# Messages per write. With a model, one extraction reads this many.
LEARN_BATCH = 40


@command(app, "learn")
async def learn(  # noqa: PLR0913 - typer passes the options of a command by name
    ctx: typer.Context,
    file: Path | None = None,
    claude_code: bool = False,
    codex: bool = False,
    folder: Path | None = None,
    since: str = "",
    dry_run: bool = False,
    ask: list[str] | None = None,
    temporary: bool = False,
) -> Reply:
    """Store a conversation or documents from files, or the old sessions of a client, and learn from them."""
    clients = [name for name, is_chosen in (("claude-code", claude_code), ("codex", codex)) if is_chosen]
    is_mixed = bool(ask or temporary) if file is None else bool(folder or since or dry_run)
    if len(clients) + (file is not None) != 1 or is_mixed:
        of_sessions = "--claude-code or --codex, with --folder, --since and --dry-run"
        raise InputError(f"give a file, with --ask and --temporary; or {of_sessions}. Nothing was stored")
    if file is None:
        at = parse_instant(since, "--since", settings_of(ctx).zones.default) if since else None
        request = intake.SessionsRequest(clients[0], folder, at, is_dry_run=dry_run, caller=CALLER)
        async with opened(ctx) as memory:
            return await learn_sessions(memory, request)
    is_conversation = _is_conversation(file)
    async with opened(ctx, temporary=temporary) as memory:
        if is_conversation:
            stays = cast("Options", ctx.obj).names_project
            learned = await _learn_file(memory, file, stays=stays, embeds=bool(ask) or temporary)
        else:
            learned = await _learn_documents(memory, file)
        found = {each: await memory.search(memory.scope, each, limit=3, caller=CALLER) for each in ask or ()}
        answers = {question: replies.search_json(answer, memory.scope) for question, answer in found.items()}
        parts = [part for question, answer in found.items() for part in search_parts(answer, question, memory.scope)]
        return Reply({**learned.content, "answers": answers}, *learned.parts, *parts, done=not temporary)


def _is_conversation(file: Path) -> bool:
    """Return whether a file is JSON, by its name. Raises InputError for a device or a pipe."""
    if file.exists():
        files.refuse_special(file)
    return file.suffix.lower() in document_pages.CONVERSATIONS


async def _learn_file(memory: Memory, file: Path, *, stays: bool, embeds: bool) -> Reply:
    """Store a conversation from a file, and extract facts from it.

    `stays`: all of it stays in the project. `embeds`: texts that wait for it are embedded now.
    """
    conversations, notes = _conversations_in(file, memory)
    total = sum(len(conversation.messages) for conversation in conversations)
    kept = learned = done = 0
    with progress_bar("learning") as progress:
        for conversation in conversations:
            for start in range(0, len(conversation.messages), LEARN_BATCH):
                batch = conversation.messages[start : start + LEARN_BATCH]
                result = await memory.add_messages(
                    batch, context=conversation.context, caller=CALLER, stays_in_project=stays
                )
                kept += result.kept_messages
                learned += len(result.outcomes)
                notes.update(dict.fromkeys(result.notes))
                done += len(batch)
                progress(done, total)
    # Nobody asks again once the background has embedded them.
    told = await _embedded(memory, list(notes)) if embeds else list(notes)
    text = f"learned {counted(kept, 'message')} and {counted(learned, 'fact')} from {file}"
    return Reply({"kept_messages": kept, "facts": learned, "notes": told}, text, *output.notes_text(told))


def _conversations_in(file: Path, memory: Memory) -> tuple[list[validation.ConversationInput], dict[str, None]]:
    """Return the conversations in a JSON file, in any form that messages are read in, and notes. Raises InputError."""
    now, end = memory.engine.clock(), ". Nothing was stored"
    with raised_as(InputError, f"{file} cannot be read", end, OSError, InputError):
        text = readers.decoded(file.read_bytes())
    with raised_as(InputError, f"{file} is not JSON", end, json.JSONDecodeError, RecursionError):
        is_lines = file.suffix.lower() in JSON_LINES
        value = [json.loads(line) for line in text.split("\n") if line.strip()] if is_lines else json.loads(text)
    found = validation.conversations_in(value)
    read = [validation.read_conversation(messages, memory.scope, now) for messages in found]
    if not (conversations := [conversation for conversation in read if conversation.messages]):
        problem = next((each.problem for each in read if each.problem), "it has no message with text")
        raise InputError(f"{file} is not a conversation: {problem}. {_EXPORTS}. Nothing was stored")
    left_out = sum((conversation.left_out for conversation in read), validation.LeftOut())
    return conversations, dict.fromkeys(advice.left_out_notes(left_out))


# The command that shows what is learned in the background.


@command(app, "jobs")
async def jobs(memory: Memory, retry: bool = False) -> Reply:
    """List the work in the background: what waits and for what, what failed, and how often a model was asked."""
    done = [f"due at once: {counted(await memory.care.retry_jobs(), 'job')}"] if retry else []
    reports, use, settings = await memory.care.jobs(), await memory.care.model_use(), memory.settings
    listed = [
        {
            **replies.picked(report.job, "kind state messages=message_ids memories=memory_ids notes"),
            **replies.picked(report.job, "created_at due_at finished_at failures=attempts error"),
            "scope": str(report.job.scope),
            "waits_for": report.waits_for,
            "learned": [
                {"id": memory.id, "memory": memory.text, "holds": memory.deleted_at is None}
                for memory in report.memories
            ],
        }
        for report in reports
    ]
    values = {"jobs": listed, "model": job_runner.as_values(use, settings)}
    rows = output.Rows("job", "scope", "since", "state", "failures", "result")
    for report in reports:
        job = report.job
        about = [(len(job.message_ids), "message"), (len(job.memory_ids), "memory")]
        counts = " and ".join(counted(number, name) for number, name in about if number)
        came = [*map(job_runner.shown_fact, report.memories), *job.notes, *filter(None, (job.error, report.waits_for))]
        kind = f"{job.kind} from {counts}" if counts else job.kind
        rows.add_row(kind, job.scope, local_iso(job.created_at), job.state, job.attempts or "", "\n".join(came))
    model = f"model: {job_runner.in_words(use, settings)}"
    return Reply(values, *done, rows if reports else "there are no jobs", model, done=retry)
