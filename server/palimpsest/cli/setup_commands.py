"""Commands that set up: setup, install, uninstall, embedder, reranker, prompts, token."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

import typer

from palimpsest.cli.clients.catalog import CLIENTS, Client, Folders
from palimpsest.cli.console import Commands, Options, Reply, Settings, command, progress_bar, run_async, settings_of
from palimpsest.cli.lazy import (
    access_tokens,
    browsing,
    config_files,
    configuration,
    core_settings,
    facade,
    installation,
    llm_prompts,
    output,
    replies,
    settings_file,
    validation,
)
from palimpsest.core.clock import in_zone, local_iso, now, shown_date
from palimpsest.core.errors import EmbedderError, InputError, ModelError, SettingsError, raised_as
from palimpsest.core.models import EmbedderName, RerankerName, Scope
from palimpsest.text.display import shorten, visible

# `palimpsest embedder` and `reranker`: show what there is, fetch a model from its hub, and choose another one.

app = typer.Typer()
embedder_app = typer.Typer(cls=Commands)
reranker_app = typer.Typer(cls=Commands)


@command(embedder_app, "embedder")
async def embedder(settings: Settings) -> Reply:
    """Show the embedders and which one is in use, or use another one."""
    fingerprint, waiting = await _in_use(settings)
    provider, names = settings.embedder.provider, get_args(EmbedderName)
    models, fetched = _hub_models(settings, "embedder")
    content = {"provider": provider, "fingerprint": fingerprint, "waiting": waiting, "embedders": names}
    listed, in_use = f"embedders: {', '.join(names)}", f"in use: {fingerprint} ({provider})"
    return Reply({**content, "models": fetched}, listed, models, in_use, *output.waiting_text(waiting))


@command(embedder_app, "embedder use")
async def use_embedder(ctx: typer.Context, name: str, yes: bool = False) -> Reply:
    """Use another embedder from now on; fetch it first if it is a model of the hub."""
    provider, folder = _provider(settings_of(ctx), name, "embedder", yes=yes)
    file, fingerprint = configuration.choose_embedder(settings_of(ctx), provider, folder)
    settings = settings_of(ctx)
    in_use, waiting = await _in_use(settings)
    is_effective = in_use == fingerprint
    done = f"{file}: embedder = {name} ({fingerprint})"
    content = {"file": file, "provider": settings.embedder.provider, "fingerprint": fingerprint}
    next_step = "Restart the clients." if is_effective else _OVERRIDDEN.format("EMBEDDER")
    content |= {"effective": is_effective, "waiting": waiting}
    return Reply(content, done, *output.waiting_text(waiting), next_step, done=True)


@command(reranker_app, "reranker")
def reranker(settings: Settings) -> Reply:
    """Show the rerankers and which one is in use, or use another one."""
    models, fetched = _hub_models(settings, "reranker")
    choice = settings.reranker
    place = {"onnx": choice.config.folder, "endpoint": choice.config.base_url}.get(choice.provider)
    in_use = f"in use: {choice.provider}{f' ({place})' if place else ''}"
    return Reply({"provider": choice.provider, "place": place, "models": fetched}, models, in_use)


@command(reranker_app, "reranker use")
def use_reranker(ctx: typer.Context, name: str, yes: bool = False) -> Reply:
    """Use a reranker from now on; fetch it first if it is a model of the hub."""
    provider, folder = _provider(settings_of(ctx), name, "reranker", yes=yes)
    file = configuration.choose_reranker(settings_of(ctx), provider, folder)
    done = f"{file}: reranker.provider = {provider}{f' ({folder})' if folder else ''}"
    is_effective = settings_of(ctx).reranker.provider == provider
    next_step = "Restart the clients." if is_effective else _OVERRIDDEN.format("RERANKER")
    content = {"file": file, "provider": provider, "folder": folder, "effective": is_effective}
    return Reply(content, done, next_step, done=True)


_OVERRIDDEN = "It has no effect yet: an environment variable (PALIMPSEST_{}__…) overrides the file."


def _hub_models(settings: Settings, kind: str) -> tuple[output.Rows, list[dict[str, Any]]]:
    """Return the models of the hub, as a table and as JSON."""
    rows = output.Rows("hub model", "fetched", "languages", "dimensions", "MB", "licence")
    models, names = configuration.hub_models(settings, kind), "name repository revision languages dimensions megabytes"
    for model, is_here in models:
        here, dimensions = "yes" if is_here else "", model.dimensions or ""
        rows.add_row(model.name, here, model.languages, dimensions, model.megabytes, model.licence)
    return rows, [{**replies.picked(model, f"{names} licence terms"), "fetched": here} for model, here in models]


def _provider(settings: Settings, name: str, kind: str, *, yes: bool) -> tuple[Any, Path | None]:
    """Return the provider of a name, and for a model of the hub its folder.

    It is fetched if need be, and first is asked whether its licence is accepted.
    """
    if name in get_args(EmbedderName if kind == "embedder" else RerankerName):
        return name, None
    model, is_here = configuration.hub_model(settings, name, kind)
    if model.terms and not is_here and not yes:
        output.print_note(f"{model.name} may be used under the {model.licence} licence: {model.terms}")
        output.confirm("Do you accept it (--yes accepts it)?")
    with progress_bar(f"{model.name}, MB") as progress:
        return "onnx", configuration.fetch_model(settings, model, progress)


async def _in_use(settings: Settings) -> tuple[str, int]:
    """Return the fingerprint of the embedder in use, or why it cannot be used, and how many texts wait for it."""
    try:
        async with facade.open_memory(settings, background=False) as memory:
            return memory.engine.embedder.fingerprint, await memory.care.waiting()
    except EmbedderError as error:
        return f"none: {error}", 0


# `palimpsest prompts`: list, show, check and compare the prompt files.

prompts_app = typer.Typer(cls=Commands, no_args_is_help=True, help="Show and check the prompts for the language model.")


@command(prompts_app, "prompts list")
def prompts_list(settings: Settings) -> None:
    """List the prompts with version, fingerprint and file."""
    prompts = configuration.prompt_files(settings)
    rows = output.Rows("prompt", "version", "fingerprint", "file")
    for name, prompt in ((name, prompts.get(name)) for name in prompts.needed):
        rows.add_row(name, prompt.version, prompt.fingerprint, prompt.path)
    output.print_text(rows)


@command(prompts_app, "prompts show")
def prompts_show(settings: Settings, name: str) -> None:
    """Print a prompt file as it is used."""
    text = configuration.prompt_files(settings).path(name).read_text("utf-8")
    with output.printing():
        output.print_file([text])


@command(prompts_app, "prompts check")
def prompts_check(settings: Settings) -> None:
    """Check every prompt. If one cannot be used, name the file and the variable and exit with 1."""
    prompts = configuration.prompt_files(settings)
    prompts.check()
    output.print_text(f"{len(prompts.needed)} valid prompts")


@command(prompts_app, "prompts diff")
def prompts_diff(settings: Settings, name: str | None = None) -> None:
    """Show how your prompts differ from the shipped ones."""
    prompts = configuration.prompt_files(settings)
    for prompt_name in [name] if name else prompts.needed:
        used, shipped = prompts.path(prompt_name), llm_prompts.shipped_directory() / f"{prompt_name}.md"
        lines = [path.read_text("utf-8").splitlines(keepends=True) for path in (shipped, used)]
        with output.printing():
            output.print_file(difflib.unified_diff(*lines, fromfile=str(shipped), tofile=str(used)))


# `palimpsest token`: create, list and revoke access tokens for HTTP.

token_app = typer.Typer(cls=Commands, no_args_is_help=True, help="Manage access tokens for HTTP.")


@command(token_app, "token create")
def create(
    settings: Settings,
    user: str | None = None,
    project: str | None = None,
    with_general: bool = False,
    read_only: bool = False,
    days: int | None = None,
    yes: bool = False,
) -> Reply:
    """Create an access token and print it. It is shown only once, because only its hash is stored."""
    scope = validation.scope_from(Scope(settings.user_id), validation.ScopeInput(user_id=user, project=project))
    if project is not None and not scope.project:
        raise InputError("--project is empty. Name the project, or leave it out for a token of all projects")
    if scope.project and not yes and (unknown := browsing.unknown_project(settings, now, scope.user_id, scope.project)):
        output.confirm(f"{unknown} Create the token anyway?")
    grant = access_tokens.Grant(scope.user_id, scope.project, read_only, with_general)
    text, token = access_tokens.create(settings.data_dir, grant, now(), days)
    done = f"token {token.id}, whose text is stored nowhere. Create another one: palimpsest token revoke {token.id}"
    return Reply({"token": text, **_token_json(token)}, text, done=done)


@command(token_app, "token list")
def list_(settings: Settings) -> Reply:
    """List the access tokens, without their text.

    One of a project also opens what belongs to no project if it says "+ general".
    """
    tokens, zone = access_tokens.stored_tokens(settings.data_dir), settings.zones.default
    rows = output.Rows("id", "user", "project", "access", "created", "valid until")
    for token in tokens:
        project = f"{token.project} + general" if token.project and token.with_general else token.project
        access = "read" if token.read_only else "read and write"
        created, until = shown_date(in_zone(token.created_at, zone)), "it is revoked"
        if token.expires_at is not None:
            until = f"{local_iso(in_zone(token.expires_at, zone))}{' (expired)' if token.is_expired(now()) else ''}"
        rows.add_row(token.id, token.user_id, project, access, created, until)
    part = rows if tokens else "there are no access tokens; palimpsest token create prints a new one"
    return Reply({"tokens": [_token_json(token) for token in tokens]}, part)


@command(token_app, "token revoke")
def revoke(settings: Settings, token_id: str) -> Reply:
    """Revoke an access token. A running server refuses it from the next request on."""
    token = access_tokens.revoke(settings.data_dir, token_id)
    return Reply(_token_json(token), f"revoked: {token.id} of {token.user_id}", done=True)


def _token_json(token: access_tokens.StoredToken) -> dict[str, Any]:
    return token.model_dump(mode="json", exclude={"digest"})


# `palimpsest install` and `uninstall`: put the server and the hooks into a client's files, or remove them.

HOOKS_AFTER = "Conversations in {title} are kept from now on. palimpsest uninstall {name} ends that."
TEAMMATES = "The file names no path of this machine. Everybody who uses it needs uv (https://docs.astral.sh/uv)."


def _client(name: str) -> Client:
    if name not in CLIENTS:
        raise typer.BadParameter(visible(f"'{name}' is not a known client. Use one of {', '.join(CLIENTS)}"))
    return CLIENTS[name]


ClientArgument = Annotated[
    Client, typer.Argument(parser=_client, metavar="CLIENT", help=f"One of {', '.join(CLIENTS)}.")
]


@command(app, "install")
def install(
    ctx: typer.Context, client: ClientArgument, hooks: bool = False, project: bool = False, dry_run: bool = False
) -> None:
    """Add the memory to a client. --user, --data-dir, --config, --agent and --run go into its entry."""
    target = installation.Target(client, Folders.of_this_machine(), project)
    options = cast("Options", ctx.obj)
    settings = settings_of(ctx) if hooks else None
    arguments = settings and ["--data-dir", str(settings.data_dir.absolute()), "--user", settings.user_id]
    edits = installation.installation(target, _variables(options, None if project else settings), arguments)
    same = f"'{installation.ENTRY_NAME}' is already up to date"
    _apply(edits, [f"{edit.file}: {same}" for edit in edits if not edit.has_changes], dry_run=dry_run)
    if not dry_run:
        output.print_text(*_next_steps(target, hooks=hooks), *_on_unused_variables(ctx))


@command(app, "uninstall")
def uninstall(client: ClientArgument, project: bool = False, dry_run: bool = False) -> None:
    """Remove the memory and its hooks from a client's files. The stored memories stay."""
    target = installation.Target(client, Folders.of_this_machine(), project)
    edits = installation.removal(target)
    nothing = [f"{target.entry_file}: no entry '{installation.ENTRY_NAME}' starts this program. Nothing was changed"]
    _apply(edits, [] if any(edit.has_changes for edit in edits) else nothing, dry_run=dry_run)


def _on_unused_variables(ctx: typer.Context) -> list[str]:
    """Return what a person should know of OpenAI's variables that are set and not followed, or why it is unknown."""
    try:
        unused = settings_of(ctx).unused_openai_variables
    except SettingsError as error:
        return [f"The server will not start with these settings: {error}"]
    return [f"{core_settings.unused_variables_text(unused)}."] if unused else []


def _variables(options: Options, settings: Settings | None) -> dict[str, str]:
    """Return the environment variables of the entry: the options of the call, and what its hooks are told too."""
    env = {f"{core_settings.ENV_PREFIX}{name.upper()}": str(value) for name, value in options.overrides.items()}
    if options.config is not None:
        env[core_settings.CONFIG_VARIABLE] = str(options.config)
    if settings is not None:
        env[f"{core_settings.ENV_PREFIX}DATA_DIR"] = str(settings.data_dir.absolute())
        env[f"{core_settings.ENV_PREFIX}USER_ID"] = settings.user_id
    return env


def _next_steps(target: installation.Target, *, hooks: bool) -> list[str]:
    """Return what a person does and knows after an installation."""
    client, steps = target.client, [TEAMMATES] if target.in_project else []
    if hooks:
        steps.append(HOOKS_AFTER.format(title=client.title, name=client.name))
        if target.in_project:
            steps.append(f"note: {target.hooks_file} names paths of this machine; keep it out of version control")
        steps.append(target.hooks.next_step)
    return [*steps, f"{client.next_step} Then tell it something, start a new conversation, and ask for it."]


def _apply(edits: list[config_files.FileEdit], unchanged: list[str], *, dry_run: bool) -> None:
    """Write the edits and print what was done, or, with `dry_run`, print the difference."""
    output.print_text(*unchanged)
    for edit in edits:
        if edit.has_changes and dry_run:
            before, after = (edit.before or "").splitlines(), edit.after.splitlines()
            output.print_text(*difflib.unified_diff(before, after, str(edit.file), str(edit.file), lineterm=""))
        elif edit.has_changes:
            copy = config_files.write(edit)
            done = f"changed: {edit.file}{f'; the old file is in {copy}' if copy is not None else ''}"
            output.print_text(done, done=done)


# `palimpsest setup`: choose the language model, and write it down.

ModelProvider = Literal["none", "client", "openai"]

_SHOWN_REPLY_CHARS = 60


@command(app, "setup")
def setup(
    ctx: typer.Context,
    provider: ModelProvider | None = None,
    model: str | None = None,
    base_url: str | None = None,
    api_key_from_env: str | None = None,
    yes: bool = False,
) -> None:
    """Choose the language model and write it into the settings file. It asks, tries the model, and shows the change.

    --user and --project are written, too.
    """
    settings = settings_of(ctx)
    if provider is None and yes:
        raise InputError("--yes asks nothing, so it needs --provider. Nothing was changed")
    question = "Language model: none (agents write the facts), the client's own, or openai (an endpoint)"
    provider = provider or cast("ModelProvider", _answer(question, "none", get_args(ModelProvider)))
    if provider == "openai":
        choice = _endpoint(settings, model, base_url, api_key_from_env, yes=yes)
        with raised_as(InputError, "the model does not answer", " Nothing was changed", ModelError):
            answer = run_async(lambda: configuration.try_model(settings, choice))
        output.print_text(f"{choice.model} answers: {shorten(answer, _SHOWN_REPLY_CHARS)}")
    elif model or base_url or api_key_from_env:
        raise InputError("--model, --base-url and --api-key-from-env are for --provider openai. Nothing was changed")
    else:
        choice = configuration.ModelChoice("none" if provider == "none" else "sampling")
    of_call = cast("Options", ctx.obj).overrides
    values = {**choice.values, **{name: str(of_call[name]) for name in ("user_id", "project") if name in of_call}}
    file = configuration.settings_file(settings)
    shown = {name: "(a key)" if settings_file.is_key(name) and value else value for name, value in values.items()}
    output.print_text(f"{file}:", *(f"  {name} = {value}" for name, value in shown.items()))
    if not yes:
        typer.confirm("Write this?", default=True, abort=True, err=True)
    _, copy = configuration.write_settings(settings, values)
    done = f"written: {file}{f'; the old file is in {copy}' if copy is not None else ''}"
    is_effective = settings_of(ctx).llm.provider == choice.provider
    next_step = "Restart the clients. palimpsest doctor shows what is used."
    output.print_text(done, next_step if is_effective else _OVERRIDDEN.format("LLM"), done=done)


def _endpoint(
    settings: Settings, model: str | None, base_url: str | None, key_variable: str | None, *, yes: bool
) -> configuration.ModelChoice:
    """Return an endpoint; what the options leave open is asked for, or with `yes` as it is. Raises InputError."""
    config, key = settings.llm.config, ""
    here = settings.endpoint_of(config).base_url or configuration.OPENAI_URL
    url = base_url or (here if yes else _answer("Base URL", here))
    model = model or (config.model if yes else _answer("Model", config.model))
    key_variable = key_variable or ("-" if yes else _answer("Environment variable with the key (-: none)", "-"))
    if key_variable != "-" and not (key := core_settings.environment_variable(key_variable)):
        raise InputError(f"the environment variable {key_variable} is not set or empty. Nothing was changed")
    # This variable is read whenever an endpoint is used, so its key need not be in the file.
    return configuration.ModelChoice("openai", model, url.rstrip("/"), "" if key_variable == "OPENAI_API_KEY" else key)


def _answer(question: str, default: str, allowed: tuple[str, ...] = ()) -> str:
    """Ask a person and return the answer, without white space around it; ask again if it is not an allowed one."""

    def checked(answer: str) -> str:
        if allowed and answer.strip() not in allowed:
            raise typer.BadParameter(f"one of {', '.join(allowed)}")
        return answer.strip()

    return cast("str", typer.prompt(question, default=default, value_proc=checked, err=True))
