"""`palimpsest learn`: store a conversation from a file."""

from __future__ import annotations

import json
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from palimpsest.capture.sessions import SessionsRequest
from palimpsest.cli.commands.learning.documents import learn_documents
from palimpsest.cli.commands.learning.sessions import learn_sessions
from palimpsest.cli.console import (
    CALLER,
    AsJson,
    exit_on_error,
    progress_bar,
    settings_of,
    with_memory,
)
from palimpsest.cli.hits import search_parts
from palimpsest.cli.options import CONVERSATIONS, Options
from palimpsest.cli.output import Part, notes_text, print_result
from palimpsest.core import validation
from palimpsest.core.clock import parse_instant
from palimpsest.core.errors import InputError
from palimpsest.core.files import open_plain_file, refuse_special
from palimpsest.core.message_forms import LeftOut, conversations_in
from palimpsest.core.models import Scope
from palimpsest.core.validation import ConversationInput
from palimpsest.learn.apply import is_on_embedding
from palimpsest.learn.documents.folder import CONVERSATIONS as JSON_SUFFIXES
from palimpsest.learn.documents.readers.plain import decoded
from palimpsest.learn.documents.readers.reading import MARKUP, TEXT
from palimpsest.memory import Memory
from palimpsest.server.replies.models import SearchReply
from palimpsest.server.replies.notes import left_out_notes
from palimpsest.text.counting import counted

app = typer.Typer()

BEGINNING_BYTES = 200
"""How much of a file is looked at to see whether it is JSON."""

JSON_LINES = (".jsonl", ".ndjson")

MAX_LATIN = 0.1
"""The largest part of a text in Latin-1 that is not ASCII. In other alphabets it is larger, and nothing is guessed."""

_EXPORTS = "palimpsest import takes in the exports of ChatGPT, Claude and other tools"

LEARN_BATCH = 40
"""Messages per write. With a model, one extraction reads this many."""


@app.command(rich_help_panel=CONVERSATIONS)
def learn(  # noqa: PLR0913, PLR0917 - typer passes the options of a command by name
    ctx: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE|FOLDER",
            help="A conversation as JSON, or documents: Markdown, text, HTML, PDF, or a folder of them.",
        ),
    ] = None,
    claude_code: Annotated[bool, typer.Option("--claude-code", help="Take in old sessions of Claude Code.")] = False,
    codex: Annotated[bool, typer.Option("--codex", help="Take in old sessions of Codex.")] = False,
    folder: Annotated[Path | None, typer.Option(help="Where the sessions are, if not in the client's folder.")] = None,
    since: Annotated[str, typer.Option(help="An ISO 8601 date. Only what was said since then.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what sessions would bring.")] = False,
    ask: Annotated[
        list[str] | None, typer.Option(help="A question to search the memory for afterwards. May be repeated.")
    ] = None,
    temporary: Annotated[bool, typer.Option(help="Use a new memory that is deleted afterwards.")] = False,
    as_json: AsJson = False,
) -> None:
    """Store a conversation or documents from files, or the old sessions of a client, and learn from them."""
    clients = [name for name, is_chosen in (("claude-code", claude_code), ("codex", codex)) if is_chosen]
    if len(clients) + (file is not None) != 1:
        exit_on_error(lambda: _refuse("give one of: a file, --claude-code, --codex. Nothing was stored"))
    if clients:
        if ask or temporary:
            exit_on_error(lambda: _refuse("--ask and --temporary go with a file. Nothing was stored"))
        zones = exit_on_error(lambda: settings_of(ctx)).zones
        at = exit_on_error(lambda: parse_instant(since, "--since", zones.default)) if since else None
        learn_sessions(ctx, SessionsRequest(clients[0], folder, at, is_dry_run=dry_run, caller=CALLER), as_json)
    elif file is not None:
        if folder or since or dry_run:
            exit_on_error(lambda: _refuse("--folder, --since and --dry-run go with sessions. Nothing was stored"))
        if not exit_on_error(lambda: _is_conversation(file)):
            learn_documents(ctx, file, ask or [], temporary=temporary, as_json=as_json)
            return
        _learn_file(ctx, file, ask or [], temporary=temporary, as_json=as_json)


def _is_conversation(file: Path) -> bool:
    """Return whether a file is JSON, by its name, or by its beginning if the name says nothing.

    Raises InputError for a device or a pipe.
    """
    suffix = file.suffix.lower()
    if file.exists():
        refuse_special(file)
    if suffix in JSON_SUFFIXES:
        return True
    if file.is_dir() or suffix in TEXT | MARKUP:
        return False
    try:
        with open_plain_file(file) as stream:
            beginning = stream.read(BEGINNING_BYTES).decode("utf-8-sig", "replace")
    except OSError:  # reading it as a document says what is wrong
        return False
    return "".join(beginning.split()).startswith(("[{", '{"'))


def _refuse(text: str) -> None:
    raise InputError(text)


def _learn_file(ctx: typer.Context, file: Path, ask: list[str], *, temporary: bool, as_json: bool) -> None:
    """Store a conversation from a file, extract facts from it, and answer questions from it."""

    async def work(memory: Memory) -> None:
        conversations, notes = _conversations_in(file, memory.scope, memory.engine.clock())
        total = sum(len(conversation.messages) for conversation in conversations)
        stays = cast("Options", ctx.obj).names_project
        with progress_bar("learning") as progress:
            kept, learned, done_messages = 0, 0, 0
            for conversation in conversations:
                for start in range(0, len(conversation.messages), LEARN_BATCH):
                    batch = conversation.messages[start : start + LEARN_BATCH]
                    result = await memory.add_messages(
                        batch, context=conversation.context, caller=CALLER, stays_in_project=stays
                    )
                    kept += result.kept_messages
                    learned += len(result.outcomes)
                    notes.update(dict.fromkeys(result.notes))
                    done_messages += len(batch)
                    progress(done_messages, total)
        told = list(notes)
        if ask or temporary:  # nobody asks again once the background has embedded them
            with progress_bar("embedding") as progress:
                waiting = await memory.documents.embed(progress)
            told = told if waiting else [note for note in told if not is_on_embedding(note)]
        answers = {question: await memory.search(memory.scope, question, limit=3, caller=CALLER) for question in ask}

        done = f"learned {counted(kept, 'message')} and {counted(learned, 'fact')} from {file}"
        parts: list[Part] = [done, *notes_text(told)]
        for question, answer in answers.items():
            parts += search_parts(answer, question, memory.scope)
        content = {
            "kept_messages": kept,
            "facts": learned,
            "notes": told,
            "answers": {
                question: SearchReply.of(answer, memory.scope).as_json() for question, answer in answers.items()
            },
        }
        print_result(as_json, content, *parts, done="" if temporary else done)

    if not temporary:
        with_memory(ctx, work)
        return
    settings = exit_on_error(lambda: settings_of(ctx))
    with tempfile.TemporaryDirectory(prefix="palimpsest-") as folder:
        temporary_paths = {"data_dir": Path(folder), "history_db_path": None}
        with_memory(ctx, work, settings.model_copy(update=temporary_paths))


def _conversations_in(file: Path, scope: Scope, now: datetime) -> tuple[list[ConversationInput], dict[str, None]]:
    """Return the conversations in a JSON file, in any form that messages are read in, and notes. Raises InputError."""
    try:
        text, notes = _text_in(file)
        value: Any = (
            [json.loads(line) for line in text.split("\n") if line.strip()]
            if file.suffix.lower() in JSON_LINES or _is_json_lines(text)
            else json.loads(text)
        )
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error}. Nothing was stored") from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{file} is not JSON: {error}. Nothing was stored") from error
    read = [validation.read_conversation(messages, scope, now) for messages in conversations_in(value)]
    conversations = [conversation for conversation in read if conversation.messages]
    if not conversations:
        problem = next((each.problem for each in read if each.problem), "it has no message with text")
        raise InputError(f"{file} is not a conversation: {problem}. {_EXPORTS}. Nothing was stored")
    left_out = sum((conversation.left_out for conversation in read), LeftOut())
    return conversations, dict.fromkeys((*notes, *left_out_notes(left_out)))


def _text_in(file: Path) -> tuple[str, tuple[str, ...]]:
    """Return the text of a file, and a note if its encoding had to be guessed. Raises InputError and OSError."""
    with open_plain_file(file) as stream:
        data = stream.read()
    try:
        return decoded(data), ()
    except InputError as error:
        text = data.decode("cp1252", "ignore")
        foreign = sum(not char.isascii() for char in text)
        if b"\0" in data or foreign > MAX_LATIN * len(text):
            raise InputError(f"{file} cannot be read: {error}. Nothing was stored") from error
        return text, (f"{file.name} is not UTF-8 and was read as Latin-1",)


def _is_json_lines(text: str) -> bool:
    """Return whether a text is JSON lines: more than one line, and the first one is a whole object or list."""
    first, _, rest = text.strip().partition("\n")
    first = first.rstrip()
    return bool(rest) and f"{first[0]}{first[-1]}" in ("{}", "[]")
