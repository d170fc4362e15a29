"""The command line: the same facade as the MCP tools, with tables for people and `--json` for programs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer
from pydantic import TypeAdapter, ValidationError

from palimpsest import __version__
from palimpsest.cli import care as care_commands
from palimpsest.cli import embedder as embedder_commands
from palimpsest.cli import jobs as job_commands
from palimpsest.cli import prompts as prompt_commands
from palimpsest.cli import tokens as token_commands
from palimpsest.cli import transfer as transfer_commands
from palimpsest.cli.clients import commands as client_commands
from palimpsest.cli.console import (
    CALLER,
    AsJson,
    Options,
    exit_on_error,
    progress_bar,
    settings_of,
    with_memory,
)
from palimpsest.cli.output import Part, hits_table, notes_text, print_result, print_text, search_parts, shortened_text
from palimpsest.core import validation
from palimpsest.core.clock import now, parse_instant, parse_until
from palimpsest.core.errors import InputError
from palimpsest.core.models import Message
from palimpsest.core.validation import MessageInput
from palimpsest.memory import Memory
from palimpsest.server.replies import render
from palimpsest.server.replies.history import HistoryReply
from palimpsest.server.replies.models import AddReply, PageReply, SearchReply, SummaryReply
from palimpsest.server.replies.notes import COMMANDS
from palimpsest.text.counting import counted

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Long-term memory for chat and coding agents.")
app.add_typer(client_commands.app)
app.add_typer(care_commands.app)
app.add_typer(transfer_commands.app)
app.add_typer(embedder_commands.app)
app.add_typer(job_commands.app)
app.add_typer(prompt_commands.app, name="prompts")
app.add_typer(token_commands.app, name="token")

LEARN_BATCH = 40
"""Messages per write. With a model, one extraction reads this many."""

Limit = Annotated[int, typer.Option(min=1, max=validation.MAX_LIMIT, help="The largest number of results.")]


@app.callback()
def main(
    ctx: typer.Context,
    config: Annotated[Path | None, typer.Option(help="Settings file, TOML or JSON.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the memory.")] = None,
    user: Annotated[str | None, typer.Option(help="The user whose memory it is.")] = None,
    project: Annotated[
        str | None, typer.Option(help="A project, whose memory is used beside the user's global one.")
    ] = None,
) -> None:
    """Add to a memory, search it, and look after it."""
    overrides = {"data_dir": data_dir, "user_id": user, "project": project}
    ctx.obj = Options(config, {name: value for name, value in overrides.items() if value is not None})


@app.command()
def serve(
    ctx: typer.Context,
    transport: Annotated[
        Literal["stdio", "http", "sse", "all"], typer.Option(help="all means http and sse.")
    ] = "stdio",
    host: Annotated[str | None, typer.Option(help="For http and sse. Default: 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="For http and sse. Default: 8765. 0 picks a free port.")
    ] = None,
) -> None:
    """Serve MCP over stdio, or over HTTP: streamable HTTP at /mcp, SSE at /sse."""
    from palimpsest.server.app import run_stdio, settings_loader  # noqa: PLC0415 - it imports the MCP SDK

    options = cast("Options", ctx.obj)
    load_settings = settings_loader(options.config, **options.overrides)
    if transport == "stdio":
        run_stdio(load_settings)
        return
    from palimpsest.server.http import app as http_app  # noqa: PLC0415 - it imports a web server

    exit_on_error(lambda: http_app.serve(load_settings, transport, host, port))


@app.command()
def add(
    ctx: typer.Context,
    text: Annotated[str, typer.Argument(help="One fact, as a sentence.")],
    at: Annotated[
        str, typer.Option(help="An ISO 8601 date or time: when it was said or holds from. Default: now.")
    ] = "",
    replaces: Annotated[
        list[str] | None, typer.Option(help="Id of a memory that it replaces. May be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Store one fact."""

    async def work(memory: Memory) -> None:
        scope = memory.scope
        said_at = parse_instant(at, "--at") if at else None
        result = await memory.add_text(
            scope, validation.text_from(text), at=said_at, replaces=replaces or (), caller=CALLER
        )
        reply = render.added_text(result, scope, COMMANDS)
        print_result(as_json, AddReply.of(result, scope, COMMANDS).as_json(), reply, done=reply)

    with_memory(ctx, work)


@app.command()
def learn(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="A conversation: JSON or JSON lines of {role, content, name?, at?}.")],
    ask: Annotated[
        list[str] | None, typer.Option(help="A question to search the memory for afterwards. May be repeated.")
    ] = None,
    temporary: Annotated[bool, typer.Option(help="Use a new memory that is deleted afterwards.")] = False,
    as_json: AsJson = False,
) -> None:
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
        answers = {question: await memory.search(memory.scope, question, limit=3) for question in ask or ()}

        done = f"learned {counted(kept, 'message')} and {counted(learned, 'fact')} from {file}"
        parts: list[Part] = [done, *notes_text(tuple(notes))]
        for question, answer in answers.items():
            parts += search_parts(answer, question)
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


@app.command()
def search(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(help="A question or keywords.")],
    limit: Limit = 10,
    as_of: Annotated[str, typer.Option(help="An ISO 8601 date or time. Search the memory as it was then.")] = "",
    explain: Annotated[bool, typer.Option(help="Show the parts of each hit's score.")] = False,
    as_json: AsJson = False,
) -> None:
    """Search memories and messages by meaning and by words."""

    async def work(memory: Memory) -> None:
        instant = parse_until(as_of, "--as-of") if as_of else None
        answer = await memory.search(
            memory.scope,
            validation.query_from(query),
            limit=limit,
            max_tokens=validation.MAX_TOKENS,
            as_of=instant,
            explain=explain or memory.settings.explain,
        )
        print_result(as_json, SearchReply.of(answer, memory.scope).as_json(), *search_parts(answer, query))

    with_memory(ctx, work)


@app.command("list")
def list_(
    ctx: typer.Context,
    limit: Limit = 20,
    cursor: Annotated[str | None, typer.Option(help="The cursor that the previous page ended with.")] = None,
    deleted: Annotated[bool, typer.Option(help="List deleted memories instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """List memories page by page, newest first."""

    async def work(memory: Memory) -> None:
        page = await memory.list(memory.scope, limit=limit, cursor=cursor, deleted=deleted)
        parts = [hits_table(page.hits, f"memories of {memory.scope}"), *shortened_text(page.hits)]
        if page.cursor:
            parts.append(f"more: --cursor {page.cursor}")
        print_result(as_json, PageReply.of(page, memory.scope).as_json(), *parts)

    with_memory(ctx, work)


@app.command()
def history(ctx: typer.Context, memory_id: str, as_json: AsJson = False) -> None:
    """Show every version of a memory, or the whole text of a message."""

    async def work(memory: Memory) -> None:
        owner = await memory.get(memory.scope, memory_id)
        if isinstance(owner, Message):
            reply, text = HistoryReply.of_message(owner), render.whole_text(owner)
        else:
            stored, versions = await memory.history(memory.scope, owner.id)
            predecessors = await memory.predecessors(stored.id)
            reply = HistoryReply.of(stored, versions, predecessors)
            text = render.history_text(stored, versions, predecessors)
        print_result(as_json, reply.as_json(), text)

    with_memory(ctx, work)


@app.command()
def summary(
    ctx: typer.Context,
    kind: Annotated[str, typer.Option(help="overall or recent.")] = "overall",
    refresh: Annotated[bool, typer.Option(help="Write it again first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Summarize the memory in a paragraph."""

    async def work(memory: Memory) -> None:
        result = await memory.summary(memory.scope, kind, refresh=refresh, caller=CALLER)
        text = render.summary_text(result, memory.scope, COMMANDS)
        print_result(as_json, SummaryReply.of(result, memory.scope).as_json(), text)

    with_memory(ctx, work)


@app.command()
def version() -> None:
    """Print the version."""
    print_text(__version__)


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
    except json.JSONDecodeError as error:
        raise InputError(f"{file} is not JSON: {error}. Nothing was stored") from error
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise InputError(f"{file} is not a conversation: {place}: {fault['msg']}. Nothing was stored") from error


def _is_json_lines(text: str) -> bool:
    """Return whether a text is JSON lines: more than one line, and the first one is a whole JSON object."""
    first, _, rest = text.strip().partition("\n")
    return bool(rest) and first.startswith("{") and first.rstrip().endswith("}")
