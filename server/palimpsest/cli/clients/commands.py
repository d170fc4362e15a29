"""`palimpsest install` and `uninstall`: put the server and the hooks into a client's files, or remove them."""

from __future__ import annotations

import difflib
from typing import Annotated, cast

import typer

from palimpsest.cli.clients import installation
from palimpsest.cli.clients.catalog import CLIENTS, Client, Folders, client_named
from palimpsest.cli.clients.client_settings import switched_off
from palimpsest.cli.clients.entries import ENTRY_NAME
from palimpsest.cli.clients.file_edits import FileEdit, write
from palimpsest.cli.clients.installation import Target
from palimpsest.cli.clients.overview import overview
from palimpsest.cli.clients.programs import in_temporary_environment
from palimpsest.cli.console import exit_on_error, settings_of
from palimpsest.cli.options import SETUP, Options
from palimpsest.cli.output import plain, print_text, table
from palimpsest.core.configuration.endpoints import unused_variables_text
from palimpsest.core.errors import InputError, SettingsError
from palimpsest.core.settings import CONFIG_VARIABLE, ENV_PREFIX, Settings
from palimpsest.text.control_characters import visible

app = typer.Typer()

HOOKS_AFTER = (
    "From now on, conversations in {title} are kept in your memory, and what it knows comes up without being asked "
    "for. palimpsest uninstall {name} ends that, and PALIMPSEST_HOOKS=off pauses it."
)
TEAMMATES = (
    "The file may be shared: it names no path of this machine. Everybody who uses it needs uv "
    "(https://docs.astral.sh/uv), whose command uvx downloads the server at its first start."
)


def _client(name: str) -> Client:
    try:
        return client_named(name)
    except InputError as error:
        raise typer.BadParameter(visible(str(error))) from error


ClientArgument = Annotated[
    Client, typer.Argument(parser=_client, metavar="CLIENT", help=f"One of {', '.join(CLIENTS)}.")
]
ClientOrNone = Annotated[
    Client | None,
    typer.Argument(parser=_client, metavar="CLIENT", help=f"One of {', '.join(CLIENTS)}. Without it, they are listed."),
]
InProject = Annotated[bool, typer.Option("--project", help="Use the files of the current folder.")]
WithHooks = Annotated[
    bool, typer.Option("--hooks", help="Also keep conversations and recall memories without being asked, by hooks.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the change and write nothing.")]


@app.command(rich_help_panel=SETUP)
def install(
    ctx: typer.Context,
    client: ClientOrNone = None,
    hooks: WithHooks = False,
    project: InProject = False,
    dry_run: DryRun = False,
) -> None:
    """Add the memory to a client. --user, --data-dir, --config, --agent and --run go into its entry."""
    if client is None:
        if hooks or project or dry_run:
            raise typer.BadParameter("name a client; palimpsest install alone lists them", param_hint="CLIENT")
        _print_overview()
        return
    target = Target(client, Folders.of_this_machine(), project)
    options = cast("Options", ctx.obj)
    settings = exit_on_error(lambda: settings_of(ctx)) if hooks else None
    env, arguments = _variables(options, None if project else settings), _hook_arguments(settings)
    edits = exit_on_error(lambda: installation.installation(target, env, arguments))
    unchanged = [f"{edit.file}: '{ENTRY_NAME}' is already up to date" for edit in edits if not edit.has_changes]
    _apply(edits, unchanged, dry_run=dry_run)
    print_text(*installation.off_notes(target, edits), soft_wrap=True)
    if not dry_run:
        off = exit_on_error(lambda: switched_off(client, target.folders)) if hooks else []
        print_text(*_next_steps(target, options, off, hooks=hooks), *_on_unused_variables(ctx))


@app.command(rich_help_panel=SETUP)
def uninstall(client: ClientArgument, project: InProject = False, dry_run: DryRun = False) -> None:
    """Remove the memory and its hooks from a client's files. The stored memories stay."""
    target = Target(client, Folders.of_this_machine(), project)
    edits = exit_on_error(lambda: installation.removal(target))
    nothing = [f"{target.entry_file}: the entry '{ENTRY_NAME}' does not exist"]
    _apply(edits, [] if any(edit.has_changes for edit in edits) else nothing, dry_run=dry_run)
    print_text(*(line for edit in edits for line in installation.foreign_notes(target, edit)), soft_wrap=True)


def _on_unused_variables(ctx: typer.Context) -> list[str]:
    """Return what a person should know of OpenAI's variables that are set and not followed, or why it is unknown."""
    try:
        unused = settings_of(ctx).unused_openai_variables
    except SettingsError as error:
        return [f"The server will not start with these settings: {error}"]
    return [f"{unused_variables_text(unused)}."] if unused else []


def _variables(options: Options, settings: Settings | None) -> dict[str, str]:
    """Return the environment variables of the entry: the options of the call, and what its hooks are told too."""
    env = {f"{ENV_PREFIX}{name.upper()}": str(value) for name, value in options.overrides.items()}
    if options.config is not None:
        env[CONFIG_VARIABLE] = str(options.config)
    if settings is not None:
        env[f"{ENV_PREFIX}DATA_DIR"] = str(settings.data_dir.absolute())
        env[f"{ENV_PREFIX}USER_ID"] = settings.user_id
    return env


def _hook_arguments(settings: Settings | None) -> list[str] | None:
    return None if settings is None else ["--data-dir", str(settings.data_dir.absolute()), "--user", settings.user_id]


def _next_steps(target: Target, options: Options, off: list[str], *, hooks: bool) -> list[str]:
    """Return what a person does and knows after an installation."""
    client, steps = target.client, list[str]()
    if target.in_project:
        steps.append(TEAMMATES)
        if options.overrides or options.config is not None:
            steps.append("note: the options of this call are in the file, for everybody who uses it")
    elif in_temporary_environment():
        steps.append(
            "note: uvx or pipx starts the server, because this installation is a temporary one. They download the "
            "package palimpsest-mcp; if it cannot be found, install from the clone with uv tool install . instead"
        )
    if hooks:
        steps.append(HOOKS_AFTER.format(title=client.title, name=client.name))
        if target.in_project:
            steps.append(f"note: {target.hooks_file} names paths of this machine; keep it out of version control")
        steps += [f"note: {line}; nothing was turned on, so the hooks do not run until you do" for line in off]
        steps.append(target.hooks.next_step)
    return [*steps, f"{client.next_step} Then tell it something, start a new conversation, and ask for it."]


def _apply(edits: list[FileEdit], unchanged: list[str], *, dry_run: bool) -> None:
    """Write the edits and print what was done, or, with `dry_run`, print the difference."""
    print_text(*unchanged, soft_wrap=True)
    for edit in edits:
        if edit.has_changes and dry_run:
            before, after = (edit.before or "").splitlines(), edit.after.splitlines()
            names = (str(edit.file), str(edit.file))
            print_text(*difflib.unified_diff(before, after, *names, lineterm=""), soft_wrap=True)
        elif edit.has_changes:
            copy = exit_on_error(lambda edit=edit: write(edit))
            done = f"changed: {edit.file}{f'; the old file is in {copy}' if copy is not None else ''}"
            print_text(done, done=done, soft_wrap=True)


def _print_overview() -> None:
    rows = table("client", "on this machine", "memory", "hooks")
    for state in overview(Folders.of_this_machine()):
        found = "found" if state.found else ""
        rows.add_row(plain(state.client.name), plain(found), plain(state.entry), plain(state.hooks))
    print_text(rows, "palimpsest install CLIENT adds the memory to a client, and its hooks with --hooks.")
