"""The command line: the same facade as the MCP tools, with tables for people and `--json` for programs."""

from __future__ import annotations

import difflib
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import anyio
import typer
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from palimpsest import __version__, inputs, replies
from palimpsest.clock import now, parse_instant
from palimpsest.config import Settings, load_settings
from palimpsest.doctor import examine
from palimpsest.engine import NEEDED_PROMPTS
from palimpsest.errors import InputError, PalimpsestError
from palimpsest.inputs import Turn
from palimpsest.memory import Memory, open_memory
from palimpsest.prompts import PromptShelf, shipped_directory
from palimpsest.records import Hit

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Long-term memory for chat and coding agents.")
prompts_app = typer.Typer(no_args_is_help=True, help="See and check the prompts that a language model is given.")
app.add_typer(prompts_app, name="prompts")

out = Console()
err = Console(stderr=True)

CALLER = "cli"

LEARN_BATCH = 40
"""Messages in one add: with a model, what one extraction reads."""

_T = TypeVar("_T")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Limit = Annotated[int, typer.Option(min=1, max=inputs.MAX_LIMIT, help="How many at most.")]


@dataclass(frozen=True, slots=True)
class Options:
    """Hold the options that stand before the command."""

    config: Path | None
    overrides: dict[str, Any]


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
def serve(ctx: typer.Context) -> None:
    """Serve MCP over stdio."""
    from palimpsest import tools  # noqa: PLC0415 - it builds the server

    options = cast("Options", ctx.obj)
    tools.serve_options = (options.config, options.overrides)
    tools.mcp.run("stdio")


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
        done = await memory.add_text(where, inputs.text_from(text), replaces=replaces or (), caller=CALLER)
        _show(
            as_json,
            replies.done_json(done, done.notes, where),
            lambda: out.print(_plain(replies.done_text(done, done.notes, where))),
        )

    _with_memory(ctx, work)


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
        said = [turn for turn in _turns_in(file) if inputs.text_of(turn.content).strip()]
        with _progress("learning") as told:
            kept, learnt = 0, 0
            notes: dict[str, None] = {}
            for start in range(0, len(said), LEARN_BATCH):
                batch = inputs.turns_from(said[start : start + LEARN_BATCH], memory.scope, now())
                done = await memory.add_messages(batch.messages, context=batch.context, caller=CALLER)
                kept += done.kept_messages
                learnt += len(done.changes)
                notes.update(dict.fromkeys(done.notes))
                told(min(start + LEARN_BATCH, len(said)), len(said))
        answers = {question: await memory.search(memory.scope, question, limit=3) for question in ask or ()}

        def tables() -> None:
            out.print(_plain(f"learnt {kept} messages and {learnt} facts from {file}"))
            for note in notes:
                out.print(_plain(f"note: {note}"))
            for question, answer in answers.items():
                out.print(_hits_table(answer.hits, question))

        content = {
            "kept_messages": kept,
            "facts": learnt,
            "notes": list(notes),
            "answers": {question: replies.answer_json(found, memory.scope) for question, found in answers.items()},
        }
        _show(as_json, content, tables)

    if not temporary:
        _with_memory(ctx, work)
        return
    settings = _guard(lambda: _settings(ctx))
    with tempfile.TemporaryDirectory(prefix="palimpsest-") as folder:
        elsewhere = {"data_dir": Path(folder), "history_db_path": None}
        _with_memory(ctx, work, settings.model_copy(update=elsewhere))


@app.command()
def search(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(help="A question or key words.")],
    limit: Limit = 10,
    as_of: Annotated[str, typer.Option(help="ISO 8601: what was believed then.")] = "",
    as_json: AsJson = False,
) -> None:
    """Find memories and conversation turns by meaning and by words."""

    async def work(memory: Memory) -> None:
        instant = parse_instant(as_of, "--as-of") if as_of else None
        asked = inputs.query_from(query)
        answer = await memory.search(memory.scope, asked, limit=limit, max_tokens=inputs.MAX_TOKENS, as_of=instant)
        _show(as_json, replies.answer_json(answer, memory.scope), lambda: out.print(_hits_table(answer.hits, query)))

    _with_memory(ctx, work)


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
            out.print(_hits_table(page.hits, f"memories of {memory.scope}"))
            if page.cursor:
                out.print(f"more: --cursor {page.cursor}")

        _show(as_json, replies.page_json(page, memory.scope), table)

    _with_memory(ctx, work)


@app.command()
def history(ctx: typer.Context, memory_id: str, as_json: AsJson = False) -> None:
    """Show every version of a memory."""

    async def work(memory: Memory) -> None:
        found, entries = await memory.history(memory.scope, memory_id)
        text = replies.history_text(found, entries)
        _show(as_json, replies.history_json(found, entries), lambda: out.print(_plain(text)))

    _with_memory(ctx, work)


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
        text = replies.summary_text(found, memory.scope)
        _show(as_json, replies.summary_json(found, memory.scope), lambda: out.print(_plain(text)))

    _with_memory(ctx, work)


@app.command()
def rebuild(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Make the full text and the vector index anew from the ledger."""

    async def work(memory: Memory) -> None:
        with _progress("rebuilding") as told:
            rows, vectors = await memory.rebuild(told)
        folder = str(memory.projection.folder or "memory")
        content = {"full_text_rows": rows, "vectors": vectors, "index": folder}
        _show(as_json, content, lambda: out.print(f"rebuilt: {rows} full-text rows, {vectors} vectors in {folder}"))

    _with_memory(ctx, work)


@app.command()
def doctor(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Name every part and what is degraded; exit with 1 when something is."""
    findings = _run(lambda: examine(_settings(ctx)))
    well = all(finding.ok for finding in findings)

    def table() -> None:
        shown = Table("part", "", "what was found", box=None)
        for finding in findings:
            shown.add_row(finding.part, "[green]ok[/]" if finding.ok else "[red]degraded[/]", _plain(finding.text))
        out.print(shown)

    _show(as_json, {"ok": well, "version": __version__, "findings": [asdict(each) for each in findings]}, table)
    if not well:
        raise typer.Exit(1)


@app.command()
def version() -> None:
    """Print the version."""
    out.print(__version__)


@prompts_app.command("list")
def prompts_list(ctx: typer.Context) -> None:
    """List the prompts: name, version, fingerprint, file."""

    def work() -> None:
        shelf = _shelf(ctx)
        table = Table("prompt", "version", "fingerprint", "file", box=None)
        for name in shelf.needed:
            prompt = shelf.get(name)
            table.add_row(name, str(prompt.version), prompt.fingerprint, str(prompt.path))
        out.print(table)

    _guard(work)


@prompts_app.command("show")
def prompts_show(ctx: typer.Context, name: str) -> None:
    """Print the prompt file in use."""
    _guard(lambda: sys.stdout.write(_shelf(ctx).path(name).read_text("utf-8")))  # verbatim, to be redirected


@prompts_app.command("check")
def prompts_check(ctx: typer.Context) -> None:
    """Check every prompt; exit with 1 and the file and variable at fault when one cannot be used."""

    def work() -> None:
        shelf = _shelf(ctx)
        shelf.check()
        out.print(f"{len(shelf.needed)} prompts in order")

    _guard(work)


@prompts_app.command("diff")
def prompts_diff(ctx: typer.Context, name: Annotated[str | None, typer.Argument()] = None) -> None:
    """Show how your prompts differ from the shipped ones."""

    def work() -> None:
        shelf = _shelf(ctx)
        for each in [name] if name else shelf.needed:
            used, shipped = shelf.path(each), shipped_directory() / f"{each}.md"
            lines = [path.read_text("utf-8").splitlines(keepends=True) for path in (shipped, used)]
            sys.stdout.writelines(difflib.unified_diff(*lines, fromfile=str(shipped), tofile=str(used)))

    _guard(work)


def _settings(ctx: typer.Context) -> Settings:
    options = cast("Options", ctx.obj)
    return load_settings(options.config, **options.overrides)


def _shelf(ctx: typer.Context) -> PromptShelf:
    return PromptShelf(NEEDED_PROMPTS, _settings(ctx).prompts_dir)


def _with_memory(
    ctx: typer.Context, work: Callable[[Memory], Awaitable[None]], settings: Settings | None = None
) -> None:
    async def opened() -> None:
        async with open_memory(settings or _settings(ctx), background=False) as memory:
            await work(memory)

    _run(opened)


def _run(work: Callable[[], Awaitable[_T]]) -> _T:
    async def awaited() -> _T:
        return await work()

    return _guard(lambda: anyio.run(awaited))


def _guard(work: Callable[[], _T]) -> _T:
    """Do the work; our errors become one line on stderr and exit code 1."""
    try:
        return work()
    except* PalimpsestError as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        err.print(f"[red]error:[/] {_plain(str(error))}")
    raise typer.Exit(1)


def _show(as_json: bool, content: dict[str, Any], table: Callable[[], object]) -> None:  # noqa: FBT001 - the option's value
    if as_json:
        print(json.dumps(content, ensure_ascii=False, indent=2))  # noqa: T201 - for programs: no markup, no wrapping
    else:
        table()


def _hits_table(hits: tuple[Hit, ...], title: str) -> Table:
    table = Table("id", "date", "who", "what", title=_plain(title), title_justify="left", box=None)
    for hit in hits:
        text = " ".join(hit.text.split())
        table.add_row(replies.short(hit.id), f"{hit.at:%Y-%m-%d}", _plain(hit.name or hit.role), _plain(text))
    return table


def _plain(text: str) -> str:
    """Return a text in which rich sees no markup."""
    return text.replace("[", "\\[")


@contextmanager
def _progress(what: str) -> Generator[Callable[[int, int], None]]:
    """Give a function that shows how many of how many are done; silent where nobody watches."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _turns_in(file: Path) -> list[Turn]:
    """Return the turns in a file: a JSON list, an object with `messages`, or JSON lines. Raises InputError."""
    try:
        text = file.read_text("utf-8-sig")
        whole: Any = (
            [json.loads(line) for line in text.splitlines() if line.strip()] if _is_lines(text) else json.loads(text)
        )
        if isinstance(whole, dict):
            whole = cast("dict[str, Any]", whole).get("messages", whole)
        return TypeAdapter(list[Turn]).validate_python(whole)
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
