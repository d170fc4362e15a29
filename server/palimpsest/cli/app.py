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
from palimpsest.cli import prompts as prompt_commands
from palimpsest.cli import tokens as token_commands
from palimpsest.cli import transfer as transfer_commands
from palimpsest.cli.clients import commands as client_commands
from palimpsest.cli.console import (
    CALLER,
    AsJson,
    Options,
    guard,
    hits_table,
    out,
    plain,
    progress,
    settings_of,
    show,
    show_notes,
    with_memory,
)
from palimpsest.core import validation
from palimpsest.core.clock import now, parse_until
from palimpsest.core.errors import InputError
from palimpsest.core.validation import MessageInput
from palimpsest.memory import Memory
from palimpsest.server.replies import render
from palimpsest.server.replies.models import AddReply, HistoryReply, PageReply, SearchReply, SummaryReply

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Long-term memory for chat and coding agents.")
app.add_typer(client_commands.app)
app.add_typer(care_commands.app)
app.add_typer(transfer_commands.app)
app.add_typer(prompt_commands.app, name="prompts")
app.add_typer(token_commands.app, name="token")

LEARN_BATCH = 40
"""Messages in one add: with a model, what one extraction reads."""

Limit = Annotated[int, typer.Option(min=1, max=validation.MAX_LIMIT, help="How many at most.")]


@app.callback()
def main(
    ctx: typer.Context,
    config: Annotated[Path | None, typer.Option(help="Settings file, TOML or JSON.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where the memory lies.")] = None,
    user: Annotated[str | None, typer.Option(help="Whose memory.")] = None,
    project: Annotated[str | None, typer.Option(help="Which project's memory besides the user's own.")] = None,
) -> None:
    """Remember, recall, and look after a memory."""
    given = {"data_dir": data_dir, "user_id": user, "project": project}
    ctx.obj = Options(config, {name: value for name, value in given.items() if value is not None})


@app.command()
def serve(
    ctx: typer.Context,
    transport: Annotated[Literal["stdio", "http", "sse", "all"], typer.Option(help="all is http and sse.")] = "stdio",
    host: Annotated[str | None, typer.Option(help="For http and sse; 127.0.0.1 unless set.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="8765 unless set; 0 for any that is free.")] = None,
) -> None:
    """Serve MCP over stdio, or over HTTP: streamable HTTP at /mcp, SSE at /sse."""
    from palimpsest.server.app import run_stdio, settings_loader  # noqa: PLC0415 - it imports the MCP SDK

    options = cast("Options", ctx.obj)
    load_settings = settings_loader(options.config, **options.overrides)
    if transport == "stdio":
        run_stdio(load_settings)
        return
    from palimpsest.server.http import app as http_app  # noqa: PLC0415 - it imports a web server

    guard(lambda: http_app.serve(load_settings, transport, host, port))


@app.command()
def add(
    ctx: typer.Context,
    text: Annotated[str, typer.Argument(help="One fact.")],
    replaces: Annotated[list[str] | None, typer.Option(help="Id of a memory it supersedes.")] = None,
    as_json: AsJson = False,
) -> None:
    """Store one fact."""

    async def work(memory: Memory) -> None:
        where = memory.scope
        done = await memory.add_text(where, validation.text_from(text), replaces=replaces or (), caller=CALLER)
        show(
            as_json,
            AddReply.of(done, where).as_json(),
            lambda: out.print(plain(render.added_text(done, where))),
        )

    with_memory(ctx, work)


@app.command()
def learn(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="A conversation: JSON or JSON lines of {role, content, name?, at?}.")],
    ask: Annotated[list[str] | None, typer.Option(help="A question to answer from it; may be repeated.")] = None,
    temporary: Annotated[bool, typer.Option(help="In a memory of its own that is thrown away afterwards.")] = False,
    as_json: AsJson = False,
) -> None:
    """Learn a conversation from a file, and answer questions from it."""

    async def work(memory: Memory) -> None:
        said = [turn for turn in _turns_in(file) if validation.text_of(turn.content).strip()]
        with progress("learning") as told:
            kept, learnt = 0, 0
            notes: dict[str, None] = {}
            for start in range(0, len(said), LEARN_BATCH):
                batch = validation.conversation_from(said[start : start + LEARN_BATCH], memory.scope, now())
                done = await memory.add_messages(batch.messages, context=batch.context, caller=CALLER)
                kept += done.kept_messages
                learnt += len(done.outcomes)
                notes.update(dict.fromkeys(done.notes))
                told(min(start + LEARN_BATCH, len(said)), len(said))
        answers = {question: await memory.search(memory.scope, question, limit=3) for question in ask or ()}

        def tables() -> None:
            out.print(plain(f"learnt {kept} messages and {learnt} facts from {file}"))
            show_notes(tuple(notes))
            for question, answer in answers.items():
                out.print(hits_table(answer.hits, question))

        content = {
            "kept_messages": kept,
            "facts": learnt,
            "notes": list(notes),
            "answers": {question: SearchReply.of(found, memory.scope).as_json() for question, found in answers.items()},
        }
        show(as_json, content, tables)

    if not temporary:
        with_memory(ctx, work)
        return
    settings = guard(lambda: settings_of(ctx))
    with tempfile.TemporaryDirectory(prefix="palimpsest-") as folder:
        elsewhere = {"data_dir": Path(folder), "history_db_path": None}
        with_memory(ctx, work, settings.model_copy(update=elsewhere))


@app.command()
def search(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(help="A question or key words.")],
    limit: Limit = 10,
    as_of: Annotated[str, typer.Option(help="ISO 8601: what was believed then.")] = "",
    explain: Annotated[bool, typer.Option(help="Say part by part why a hit is where it is.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find memories and conversation turns by meaning and by words."""

    async def work(memory: Memory) -> None:
        instant = parse_until(as_of, "--as-of") if as_of else None
        asked = validation.query_from(query)
        explained = explain or memory.settings.explain
        room = validation.MAX_TOKENS
        answer = await memory.search(
            memory.scope, asked, limit=limit, max_tokens=room, as_of=instant, explain=explained
        )

        def table() -> None:
            out.print(hits_table(answer.hits, query))
            show_notes(answer.notes)

        show(as_json, SearchReply.of(answer, memory.scope).as_json(), table)

    with_memory(ctx, work)


@app.command("list")
def list_(
    ctx: typer.Context,
    limit: Limit = 20,
    cursor: Annotated[str | None, typer.Option(help="From the last page.")] = None,
    deleted: Annotated[bool, typer.Option(help="What was deleted instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Page through the memories, newest first."""

    async def work(memory: Memory) -> None:
        page = await memory.list(memory.scope, limit=limit, cursor=cursor, deleted=deleted)

        def table() -> None:
            out.print(hits_table(page.hits, f"memories of {memory.scope}"))
            if page.cursor:
                out.print(f"more: --cursor {page.cursor}")

        show(as_json, PageReply.of(page, memory.scope).as_json(), table)

    with_memory(ctx, work)


@app.command()
def history(ctx: typer.Context, memory_id: str, as_json: AsJson = False) -> None:
    """Show every version of a memory."""

    async def work(memory: Memory) -> None:
        found, entries = await memory.history(memory.scope, memory_id)
        text = render.history_text(found, entries)
        show(as_json, HistoryReply.of(found, entries).as_json(), lambda: out.print(plain(text)))

    with_memory(ctx, work)


@app.command()
def summary(
    ctx: typer.Context,
    kind: Annotated[str, typer.Option(help="overall or recent")] = "overall",
    refresh: Annotated[bool, typer.Option(help="Write it anew first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what is known, in a paragraph."""

    async def work(memory: Memory) -> None:
        found = await memory.summary(memory.scope, kind, refresh=refresh, caller=CALLER)
        text = render.summary_text(found, memory.scope)
        show(as_json, SummaryReply.of(found, memory.scope).as_json(), lambda: out.print(plain(text)))

    with_memory(ctx, work)


@app.command()
def version() -> None:
    """Print the version."""
    out.print(__version__)


def _turns_in(file: Path) -> list[MessageInput]:
    """Return the turns in a file: a JSON list, an object with `messages`, or JSON lines. Raises InputError."""
    try:
        text = file.read_text("utf-8-sig")
        whole: Any = (
            [json.loads(line) for line in text.split("\n") if line.strip()] if _is_lines(text) else json.loads(text)
        )
        if isinstance(whole, dict):
            whole = cast("dict[str, Any]", whole).get("messages", whole)
        return TypeAdapter(list[MessageInput]).validate_python(whole)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{file} is no JSON: {error}") from error
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise InputError(f"{file} is no conversation: {place}: {fault['msg']}") from error


def _is_lines(text: str) -> bool:
    """Say whether a text is JSON lines: several lines, the first of them a whole JSON object."""
    first, _, rest = text.strip().partition("\n")
    return bool(rest) and first.startswith("{") and first.rstrip().endswith("}")
