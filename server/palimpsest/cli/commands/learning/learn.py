"""`palimpsest learn`: store a conversation from a file."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from pydantic import TypeAdapter, ValidationError

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
from palimpsest.cli.options import CONVERSATIONS
from palimpsest.cli.output import Part, notes_text, print_result, search_parts
from palimpsest.core import validation
from palimpsest.core.clock import now, parse_instant
from palimpsest.core.errors import InputError
from palimpsest.core.files import open_plain_file, refuse_special
from palimpsest.core.validation import MessageInput
from palimpsest.learn.documents.folder import CONVERSATIONS as JSON_SUFFIXES
from palimpsest.learn.documents.readers.reading import MARKUP, TEXT
from palimpsest.memory import Memory
from palimpsest.server.replies.models import SearchReply
from palimpsest.text.counting import counted

app = typer.Typer()

BEGINNING_BYTES = 200
"""How much of a file is looked at to see whether it is JSON."""

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
        at = exit_on_error(lambda: parse_instant(since, "--since")) if since else None
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
        messages = [
            message for message in _messages_in(file) if validation.trimmed(validation.text_of(message.content))
        ]
        with progress_bar("learning") as progress:
            kept, learned = 0, 0
            notes: dict[str, None] = {}
            for start in range(0, len(messages), LEARN_BATCH):
                batch = validation.conversation_from(messages[start : start + LEARN_BATCH], memory.scope, now())
                result = await memory.add_messages(batch.messages, context=batch.context, caller=CALLER)
                kept += result.kept_messages
                learned += len(result.outcomes)
                notes.update(dict.fromkeys(result.notes))
                progress(min(start + LEARN_BATCH, len(messages)), len(messages))
        answers = {question: await memory.search(memory.scope, question, limit=3, caller=CALLER) for question in ask}

        done = f"learned {counted(kept, 'message')} and {counted(learned, 'fact')} from {file}"
        parts: list[Part] = [done, *notes_text(tuple(notes))]
        for question, answer in answers.items():
            parts += search_parts(answer, question, memory.scope)
        content = {
            "kept_messages": kept,
            "facts": learned,
            "notes": list(notes),
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


def _messages_in(file: Path) -> list[MessageInput]:
    """Return the messages in a file: a JSON list, an object with `messages`, or JSON lines. Raises InputError."""
    try:
        text = file.read_text("utf-8-sig")
        value: Any = (
            [json.loads(line) for line in text.split("\n") if line.strip()]
            if _is_json_lines(text)
            else json.loads(text)
        )
        if isinstance(value, dict):
            value = cast("dict[str, Any]", value).get("messages", value)
        return TypeAdapter(list[MessageInput]).validate_python(value)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}. Nothing was stored") from error
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{file} is not JSON: {error}. Nothing was stored") from error
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise InputError(f"{file} is not a conversation: {place}: {fault['msg']}. Nothing was stored") from error


def _is_json_lines(text: str) -> bool:
    """Return whether a text is JSON lines: more than one line, and the first one is a whole JSON object."""
    first, _, rest = text.strip().partition("\n")
    return bool(rest) and first.startswith("{") and first.rstrip().endswith("}")
