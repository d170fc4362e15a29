"""`palimpsest setup`: choose the language model, whose memory it is, and what hooks do; and write it down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, cast

import typer

from palimpsest.care.model_choice import (
    OPENAI_URL,
    LocalServer,
    ModelChoice,
    local_servers,
    settings_file,
    try_model,
    write_settings,
)
from palimpsest.cli.console import exit_on_error, run_async, settings_of
from palimpsest.cli.options import SETUP, Options
from palimpsest.cli.output import print_text
from palimpsest.core.configuration.endpoints import is_on_this_machine
from palimpsest.core.configuration.file import is_key
from palimpsest.core.errors import InputError, ModelError, SettingsError
from palimpsest.core.settings import AUTO, Settings, environment_variable
from palimpsest.text.control_characters import visible
from palimpsest.text.shorten import shorten

app = typer.Typer()

Provider = Literal["none", "client", "openai"]
Hooks = Literal["on", "off", "capture", "recall"]

READ_FROM_ENVIRONMENT = "OPENAI_API_KEY"
"""The variable that is read whenever an endpoint is used, so that its key need not be in the file."""

NO_PROJECT = "-"
HOOKS = ("on", "off", "capture", "recall")

_SHOWN_REPLY_CHARS = 60
_SHOWN_MODELS = 5


@dataclass(frozen=True, slots=True)
class _Given:
    """What the options say; None is asked for."""

    provider: Provider | None
    model: str | None
    base_url: str | None
    key_variable: str | None
    hooks: Hooks | None
    yes: bool


@app.command(rich_help_panel=SETUP)
def setup(
    ctx: typer.Context,
    provider: Annotated[
        Provider | None,
        typer.Option(help="none, the client's own model, or openai: an endpoint that speaks OpenAI's protocol."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="The model's name, for openai.")] = None,
    base_url: Annotated[str | None, typer.Option(help=f"The endpoint, for openai. Default: {OPENAI_URL}")] = None,
    api_key_from_env: Annotated[
        str | None, typer.Option(metavar="VARIABLE", help="The environment variable that holds the key, for openai.")
    ] = None,
    hooks: Annotated[Hooks | None, typer.Option(help="What hooks of clients do.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing; take the options and what is set already.")] = False,
) -> None:
    """Choose the language model and write it into the settings file. It asks, tries the model, and shows the change.

    --user and --project are written, too.
    """
    given = _Given(provider, model, base_url, api_key_from_env, hooks, yes)
    settings = exit_on_error(lambda: settings_of(ctx))
    choice = exit_on_error(lambda: _model(settings, given))
    _try(settings, choice, given)
    values = {**choice.values, **_rest(settings, cast("Options", ctx.obj), given)}

    file = settings_file(settings)
    lines = [f"  {_shown(name, value)}" for name, value in values.items()]
    print_text(f"{file}:", *lines, soft_wrap=True)
    if not yes:
        typer.confirm("Write this?", default=True, abort=True, err=True)
    _, copy = exit_on_error(lambda: write_settings(settings, values))
    done = f"written: {file}{f'; the old file is in {copy}' if copy is not None else ''}"
    print_text(done, _next_step(ctx, choice), done=done, soft_wrap=True)


def _shown(name: str, value: str | None) -> str:
    if value is None:
        return f"{name}: removed, if it is there"
    return f"{name} = {'(the key)' if is_key(name) else visible(value) or '(none)'}"


def _next_step(ctx: typer.Context, choice: ModelChoice) -> str:
    """Return what comes next; first whether an environment variable keeps the file from having an effect."""
    try:
        settings = settings_of(ctx)
    except SettingsError as error:
        return f"The settings cannot be used now: {error}"
    config = settings.llm.config
    is_effective = settings.llm.provider == choice.provider and (
        choice.provider != "openai" or (config.model, config.openai_base_url) == (choice.model, choice.base_url)
    )
    if not is_effective:
        return "It has no effect yet: an environment variable (PALIMPSEST_LLM__…) overrides the file."
    return "Restart the clients. palimpsest doctor shows what is used."


# --- The language model


def _model(settings: Settings, given: _Given) -> ModelChoice:
    """Return the language model that the options name, or that is chosen from a list. Raises InputError."""
    if given.provider is None and (given.model or given.base_url or given.key_variable):
        return _endpoint(settings, given)
    if given.provider is None:
        if given.yes:
            raise InputError("--yes asks nothing, so it needs --provider. Nothing was changed")
        return _chosen_from_list(settings, given)
    if given.provider == "openai":
        return _endpoint(settings, given)
    if given.model or given.base_url or given.key_variable:
        raise InputError("--model, --base-url and --api-key-from-env are for --provider openai. Nothing was changed")
    return ModelChoice("none" if given.provider == "none" else "sampling")


def _chosen_from_list(settings: Settings, given: _Given) -> ModelChoice:
    servers = run_async(local_servers)
    about_servers = [f"{server.name} on this machine: {_listed(server)}" for server in servers]
    options = [
        "none: agents write their facts themselves, and nothing is sent anywhere",
        "the client's own, where a client lends it",
        *about_servers,
        "another endpoint that speaks OpenAI's protocol",
    ]
    lines = [f"  {number}  {option}" for number, option in enumerate(options, 1)]
    print_text("Which language model finds the facts in conversations?", *lines, soft_wrap=True)
    in_use = {"none": 1, "sampling": 2, "openai": len(options)}[settings.llm_provider]
    numbers = tuple(str(number) for number in range(1, len(options) + 1))
    number = int(_answer("Number", str(in_use), numbers))
    if number == 1:
        return ModelChoice("none")
    if number == 2:  # noqa: PLR2004 - as it is listed above
        return ModelChoice("sampling")
    if number == len(options):
        return _endpoint(settings, given)
    server = servers[number - 3]
    return ModelChoice("openai", given.model or _asked("Model", server.models[0], given), server.base_url)


def _listed(server: LocalServer) -> str:
    more = len(server.models) - _SHOWN_MODELS
    return visible(", ".join(server.models[:_SHOWN_MODELS])) + (f" and {more} more" if more > 0 else "")


def _endpoint(settings: Settings, given: _Given) -> ModelChoice:
    """Return an endpoint; what the options leave open is asked for, or with `yes` as it is. Raises InputError."""
    config = settings.llm.config
    url = given.base_url or _asked("Base URL", settings.llm_endpoint.base_url or OPENAI_URL, given)
    model = given.model or _asked("Model", config.model, given)
    return ModelChoice("openai", model, url.rstrip("/"), _key(url, given))


def _asked(question: str, default: str, given: _Given) -> str:
    return default if given.yes else _answer(question, default)


def _answer(question: str, default: str, allowed: tuple[str, ...] = ()) -> str:
    """Ask a person and return the answer, without white space around it; ask again if it is not an allowed one."""

    def checked(answer: str) -> str:
        if allowed and answer.strip() not in allowed:
            raise typer.BadParameter(f"one of {', '.join(allowed)}")
        return answer.strip()

    return cast("str", typer.prompt(question, default=default, value_proc=checked, err=True))


def _key(url: str, given: _Given) -> str:
    """Return the key for the file, or "" if there is none, or if it stays in OPENAI_API_KEY. Raises InputError."""
    variable = given.key_variable
    if variable is None and not given.yes:
        is_set = bool(environment_variable(READ_FROM_ENVIRONMENT)) and not is_on_this_machine(url)
        question = "Environment variable that holds the key ('-' if there is no key, '+' to type it)"
        default = READ_FROM_ENVIRONMENT if is_set else "-" if is_on_this_machine(url) else "+"
        variable = _answer(question, default)
    if variable == "+":
        return cast("str", typer.prompt("Key (it is not shown)", hide_input=True, err=True)).strip()
    if variable is None or variable == "-":
        return ""
    key = environment_variable(variable)
    if not key:
        raise InputError(f"the environment variable {variable} is not set or empty. Nothing was changed")
    return "" if variable == READ_FROM_ENVIRONMENT else key


def _try(settings: Settings, choice: ModelChoice, given: _Given) -> None:
    """Ask the chosen model for one word. If it fails, ask whether to go on, or with `yes` exit with 1."""
    if choice.provider != "openai":
        return

    async def reply() -> str | ModelError:
        try:
            return await try_model(settings, choice)
        except ModelError as error:
            return error

    answer = run_async(reply)
    if isinstance(answer, str):
        print_text(f"{choice.model} answers: {shorten(answer, _SHOWN_REPLY_CHARS)}", soft_wrap=True)
        return
    if given.yes:
        exit_on_error(lambda: _fail(f"{answer} Nothing was changed."))
    print_text(f"The model does not answer: {answer}", soft_wrap=True)
    typer.confirm("Go on with it?", default=False, abort=True, err=True)


def _fail(text: str) -> None:
    raise InputError(text)


# --- Whose memory it is, and what hooks do


def _rest(settings: Settings, options: Options, given: _Given) -> dict[str, str | None]:
    """Return the user, the project and what hooks do, as far as they are given or were changed by the person."""
    values: dict[str, str | None] = {
        name: str(options.overrides[name]) for name in ("user_id", "project") if name in options.overrides
    }
    if given.hooks is not None:
        values["hooks"] = given.hooks
    if given.yes:
        return values
    project = AUTO if settings.repository is not None else settings.project
    questions = {
        "user_id": ("User", settings.user_id, ()),
        "project": ("Project (auto: one for each repository, -: none)", project or NO_PROJECT, ()),
        "hooks": ("Hooks of clients keep conversations (capture) and show memories (recall)", settings.hooks, HOOKS),
    }
    for name, (question, now, allowed) in questions.items():
        if name not in values:
            answer = _answer(question, now, allowed)
            if answer != now:
                values[name] = "" if answer == NO_PROJECT else answer
    return values
