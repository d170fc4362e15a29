"""The command line, and what all commands share: options, settings, an open memory, one-line errors."""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import io
import os
import sys
import tomllib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_group

from palimpsest import __version__
from palimpsest.cli.lazy import advice, core_settings, facade, output
from palimpsest.core.errors import PalimpsestError

if TYPE_CHECKING:
    from palimpsest.core.protocols import Progress
    from palimpsest.core.settings import Settings
    from palimpsest.memory import Memory
else:
    Memory = Settings = object  # what the parameters of commands are annotated with


# The commands, the options that each of them takes before its name or after it, and the panels of the help.
#
# A command's module is imported when the command is called. The help of all commands needs none of them.


@dataclass(frozen=True, slots=True)
class ListedCommand:
    """A command as `commands.toml` has it: its panel, its help, and its module, as `module` or `module:app`.

    `parameters` are what Typer is told of each.
    """

    name: str
    panel: str
    help: str
    module: str = ""
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])


_STORED = tomllib.loads(Path(__file__).with_name("commands.toml").read_text("utf-8"))

# All commands, and the commands of commands under both names.
COMMANDS = {name: ListedCommand(name, panel, **row) for panel, rows in _STORED.items() for name, row in rows.items()}

# The module whose commands are imported whatever is called: this one.
MAIN = "console"

SHARED_PANEL = "Options of every command"

# The setting that each shared option overrides. `--config` overrides none; it names the file.
SETTINGS = {"data_dir": "data_dir", "user": "user_id", "project": "project", "agent": "agent_id", "run": "run_id"}


@dataclass(frozen=True, slots=True)
class Options:
    """The shared options of one call. Paths are absolute. `overrides` are settings by name."""

    config: Path | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def names_project(self) -> bool:
        """Return whether the call names its project, so that what it stores stays there."""
        return self.overrides.get("project") not in (None, "auto")

    def with_value(self, name: str, value: str | Path | None) -> Options:
        """Return these options with one more, by its parameter's name; None leaves them as they are."""
        if value is None:
            return self
        if name == "config":
            return replace(self, config=absolute(value))
        kept = absolute(value) if name == "data_dir" else str(value)
        return replace(self, overrides={**self.overrides, SETTINGS[name]: kept})


def absolute(path: str | Path) -> Path:
    """Return a path that means the same in every folder, because `install` writes it into another program's file."""
    return Path(path).expanduser().absolute()


class PlainHelp:
    """A help without frames, which Rich would draw, and take as long to import as all else here."""

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        """Write the options and commands by panel."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        records: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                panel = getattr(param, "rich_help_panel", None) or f"{param.param_type_name.capitalize()}s"
                records.setdefault(panel, []).append(record)
        for row in COMMANDS.values():
            of, _, name = row.name.rpartition(" ")
            if isinstance(self, CommandLine) and row.module:
                records.setdefault(row.panel, []).append((name, row.help))
            elif of == self.name:
                records.setdefault("Commands", []).append((name, row.help))
        for title, lines in records.items():
            with formatter.section(title):
                formatter.write_dl(lines)


class Command(PlainHelp, TyperCommand):
    """A command with a plain help."""


class Commands(PlainHelp, TyperGroup):
    """Commands of a command, with a plain help."""


class CommandLine(Commands):
    """The whole command line: its own shared options are options of every command too, in one panel of the help."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        own = [param for param in self.params if isinstance(param, TyperOption)]
        self._shared = [option for option in own if option.name == "config" or option.name in SETTINGS]
        for option in self._shared:
            option.rich_help_panel = SHARED_PANEL
        _prepare(self, self._shared)
        listed = [row for row in COMMANDS.values() if row.module not in ("", MAIN)]
        self.commands = {**{row.name: Command(row.name, help=row.help) for row in listed}, **self.commands}

    def invoke(self, ctx: Any) -> Any:
        """Run the command. A PalimpsestError becomes one line on stderr and exit code 1."""
        try:
            return super().invoke(ctx)
        except PalimpsestError as error:
            output.print_error(advice.error_text(error, advice.COMMANDS))
        raise typer.Exit(1)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is called."""
        if args and args[0] in self.commands:
            self.load(args[0])
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Print the help if no command is called. Typer leaves that to Rich."""
        if not args:
            sys.stderr.write(f"{ctx.get_help()}\n")
            raise typer.Exit(2)
        return super().parse_args(ctx, args)

    def load(self, name: str) -> None:
        """Import the module of a command. Until then only its help is known."""
        module, _, app = COMMANDS[name].module.partition(":")
        if module == MAIN:
            return
        group = get_group(getattr(importlib.import_module(f"palimpsest.cli.{module}"), app or "app"))
        if name not in group.commands:  # the whole module is one command with commands of its own
            group.name = name
            group = TyperGroup(name="", commands={name: group})
        _prepare(group, self._shared)
        self.commands.update(group.commands)


def _prepare(command: Any, shared: list[TyperOption]) -> None:
    """Give a command, and the commands it has, the shared options, and name in the help what each parameter takes.

    A command that has an option of that name keeps its own. Typer would name the Python type: `<bool>` for a flag.
    """
    own = {name for param in command.params for name in param.opts}
    for option in [copy.copy(option) for option in shared if own.isdisjoint(option.opts)]:
        option.expose_value = False
        option.callback = cast("Any", _keep)  # its type names classes that Typer keeps to itself
        command.params.append(option)
    for param in (*command.params, command.get_help_option(typer.Context(command))):
        is_option = isinstance(param, TyperOption)
        if is_option and param.is_flag:
            param.metavar = ""
        elif is_option and param.type_descriptor.is_choice:
            continue  # the help names what may be chosen; of an argument beside its name
        elif param is not None and param.metavar is None:
            param.metavar = param.name.rpartition("_")[2].upper()
    for inner in command.commands.values() if isinstance(command, TyperGroup) else ():
        _prepare(inner, shared)


def _keep(ctx: typer.Context, param: TyperOption, value: Any) -> None:
    """Put the value of a shared option into the context, because the function of the command does not take it."""
    ctx.obj = cast("Options", ctx.obj).with_value(param.name, value)


# What all commands share: the settings, an open memory, one-line errors, and the progress of long work.
#
# What only some commands use is imported inside functions: the version and the help are printed at once.

CALLER = "cli"

# After this long a command begins no further batch of what hooks captured: nobody notices it.
INTAKE_SECONDS = 0.2

# With one of these options a command works in another scope than the one that captured conversations belong to.
OTHER_SCOPE = frozenset({"user_id", "project", "agent_id", "run_id"})

_T = TypeVar("_T")
_Work = TypeVar("_Work", bound=Callable[..., Any])


def prepare_streams() -> None:
    """Make every text printable: what an encoding lacks is escaped, and a closed stream swallows what it is given."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_AS_JSON = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson)


def settings_of(ctx: typer.Context) -> Settings:
    """Return the settings from files, environment and the options of the call. Raises SettingsError."""
    options = cast("Options", ctx.obj)
    return core_settings.load_settings(options.config, **options.overrides)


class Reply:
    """What a command prints: `content` as JSON with `--json`, else the parts. If it is not `ok`, the exit code is 1.

    `done`: what the command changed, for stderr if the reply cannot be written; with True the first part says it.
    """

    def __init__(self, content: Mapping[str, Any], *parts: output.Part, done: str | bool = "", ok: bool = True) -> None:
        self.content, self.parts, self.ok = content, parts, ok
        self.done = done if isinstance(done, str) else str(parts[0]) if done else ""


def command(app: typer.Typer, name: str) -> Callable[[_Work], _Work]:
    """Make a function a command of an app, with the parameters that `commands.toml` describes.

    One that is called `memory`, `settings`, `options` or `ctx` is given the open memory, the settings, the shared
    options or the context. A function that returns a `Reply` has the option `--json`. That of a command with commands
    of its own is what it does if none of them is called.
    """

    def add(work: _Work) -> _Work:
        signature = inspect.signature(work, eval_str=True)
        takes, described = signature.parameters, COMMANDS[name].parameters
        replies = signature.return_annotation is Reply

        @functools.wraps(work)
        def run(ctx: typer.Context, **arguments: Any) -> None:
            if ctx.invoked_subcommand is not None:
                return
            as_json = replies and bool(arguments.pop("as_json"))
            given = {**arguments, **{name: find(ctx) for name, find in _GIVEN.items() if name in takes}}

            async def work_with_memory() -> None:
                async with opened(ctx) as memory:
                    _print(await work(memory=memory, **given), as_json=as_json)

            if "memory" in takes:
                run_async(work_with_memory)
            else:
                _print(run_async(lambda: work(**given)) if is_async else work(**given), as_json=as_json)

        is_async = inspect.iscoroutinefunction(work)
        parameters = [
            inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
            *(
                _described(parameter, **described[parameter.name]) if parameter.name in described else parameter
                for parameter in takes.values()
                if parameter.name not in ("memory", *_GIVEN)
            ),
            *([_AS_JSON] if replies else []),
        ]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        cast("Any", run).__signature__ = inspect.Signature(parameters)
        is_group, own_name = ":" in COMMANDS[name].module, name.rpartition(" ")[2]
        (app.callback(invoke_without_command=True) if is_group else app.command(own_name, cls=Command))(run)
        return work

    return add


def _print(reply: Reply | None, *, as_json: bool) -> None:
    if reply is None:
        return
    if as_json:
        output.print_json(reply.content, reply.done)
    else:
        output.print_text(*reply.parts, done=reply.done)
    if not reply.ok:
        raise typer.Exit(1)


# What a command is given if it has a parameter of such a name.
_GIVEN: Mapping[str, Callable[[typer.Context], Any]] = {
    "ctx": lambda ctx: ctx,
    "options": lambda ctx: ctx.obj,
    "settings": settings_of,
}


def _described(parameter: inspect.Parameter, option: str = "", **information: Any) -> inspect.Parameter:
    """Return a parameter as an argument, or as an option if one is named, with its bounds and its help."""
    kind = functools.partial(typer.Option, option) if option else typer.Argument
    return parameter.replace(annotation=Annotated[parameter.annotation, kind(**information)])


@asynccontextmanager
async def opened(ctx: typer.Context, *, temporary: bool = False) -> AsyncGenerator[Memory]:
    """Open the memory of a call, or if it is `temporary` a new one that is deleted at the end."""
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - see above

    settings, options = settings_of(ctx), cast("Options", ctx.obj)
    with TemporaryDirectory(prefix="palimpsest-") if temporary else nullcontext() as folder:
        if folder is not None:
            settings = settings.model_copy(update={"data_dir": Path(folder), "history_db_path": None})
        async with facade.open_memory(settings, background=False) as memory, memory.briefs.kept_current():
            scope = memory.scope
            unknown = await memory.projects.unknown(scope.project) if options.names_project and not temporary else ""
            for note in (*await memory.projects.news(scope), *([unknown] if unknown else [])):
                output.print_note(note)
            if not temporary and OTHER_SCOPE.isdisjoint(options.overrides):
                try:  # the command goes on after a moment, and whatever happens
                    await memory.capture.take_in(INTAKE_SECONDS)
                except (PalimpsestError, OSError) as error:
                    output.print_note(f"what hooks captured waits in the spool: {error}")
            yield memory


def run_async(work: Callable[[], Awaitable[_T]]) -> _T:
    """Run asynchronous work and return its result."""
    import anyio  # noqa: PLC0415 - see above

    return anyio.run(work)


@contextmanager
def progress_bar(what: str) -> Generator[Progress]:
    """Give a callback that shows the progress of the work. It shows nothing if stderr is not a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn  # noqa: PLC0415 - see above
    from rich.progress import Progress as RichProgress  # noqa: PLC0415 - see above

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with RichProgress(*columns, console=output.err, transient=True, disable=not output.err.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


# The command line itself: the shared options, and the commands that serve.

app = typer.Typer(
    cls=CommandLine, no_args_is_help=True, add_completion=False, help="Long-term memory for chat and coding agents."
)


def _print_version(value: bool) -> None:
    if value:
        sys.stdout.write(f"{__version__}\n")
        raise typer.Exit


@app.callback()
def main(
    ctx: typer.Context,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Settings file, TOML or JSON.")] = None,
    data_dir: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Folder of the memory.")] = None,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="The user whose memory it is.")] = None,
    project: Annotated[
        str | None, typer.Option(metavar="NAME", help="A project, whose memory is used beside the user's global one.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="An agent, which sees its own and what belongs to no agent.")
    ] = None,
    run: Annotated[str | None, typer.Option(metavar="NAME", help="Only what this run stored.")] = None,
    show_version: Annotated[  # noqa: ARG001 - it is printed before this is called
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Add to a memory, search it, and look after it."""
    options = Options()
    values = {"config": config, "data_dir": data_dir, "user": user, "project": project, "agent": agent, "run": run}
    for name, value in values.items():
        options = options.with_value(name, value)
    ctx.obj = options


@command(app, "serve")
def serve(
    options: Options,
    transport: Literal["stdio", "http", "sse", "all"] = "stdio",
    host: str | None = None,
    port: int | None = None,
) -> None:
    """Serve MCP over stdio, or over HTTP: streamable HTTP at /mcp, SSE at /sse, and the page at /."""
    from palimpsest.server.app import run_stdio, settings_loader  # noqa: PLC0415 - it imports the MCP SDK

    if transport == "stdio":
        run_stdio(options.config, **options.overrides)
        return
    from palimpsest.page.page_server import page_beside_mcp  # noqa: PLC0415 - it imports a web server
    from palimpsest.server.http import http_server  # noqa: PLC0415 - as the line above

    http_server.serve(settings_loader(options.config, **options.overrides), transport, host, port, page_beside_mcp)


@command(app, "ui")
def ui(options: Options, port: int = 0, opens: bool = True) -> None:
    """Look into the memory and correct it, in the browser."""
    from palimpsest.page.page_server import serve_page  # noqa: PLC0415 - it imports a web server
    from palimpsest.server.app import settings_loader  # noqa: PLC0415 - it imports the MCP SDK

    serve_page(settings_loader(options.config, **options.overrides), port, output.print_text, opens=opens)
