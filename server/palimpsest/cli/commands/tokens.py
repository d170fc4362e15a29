"""`palimpsest token`: create, list and revoke access tokens for HTTP."""

from __future__ import annotations

from dataclasses import asdict
from datetime import tzinfo
from typing import Annotated, Any

import typer

from palimpsest.cli.console import AsJson, exit_on_error, settings_of
from palimpsest.cli.output import plain, print_result, table
from palimpsest.core.clock import in_zone, local_iso, now, shown_date
from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope
from palimpsest.core.validation import ScopeInput, scope_from
from palimpsest.facade.projects import unknown_project
from palimpsest.server.auth import tokens as access_tokens
from palimpsest.text.control_characters import visible

app = typer.Typer(no_args_is_help=True, help="Manage access tokens for HTTP.")


@app.command()
def create(
    ctx: typer.Context,
    user: Annotated[str | None, typer.Option(help="The user whose memory it opens. Default: yours.")] = None,
    project: Annotated[
        str | None, typer.Option(help="Limit it to this project. Default: it opens everything of the user.")
    ] = None,
    with_general: Annotated[
        bool, typer.Option("--with-general", help="With --project: also open what belongs to no project.")
    ] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Allow searching and listing, not writing.")] = False,
    days: Annotated[
        int | None, typer.Option(min=1, help="Days until it expires. Default: it is valid until it is revoked.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask about a project that is not known yet.")] = False,
    as_json: AsJson = False,
) -> None:
    """Create an access token and print it. It is shown only once, because only its hash is stored."""

    def new_token() -> tuple[str, access_tokens.StoredToken]:
        settings = settings_of(ctx)
        scope = scope_from(Scope(settings.user_id), ScopeInput(user_id=user, project=project))
        if project is not None and not scope.project:
            raise InputError("--project is empty. Name the project, or leave it out for a token of all projects")
        if scope.project and not yes:
            unknown = unknown_project(settings, now, scope.user_id, scope.project)
            if unknown:
                typer.confirm(visible(f"{unknown} Create the token anyway?"), abort=True, err=True)
        return access_tokens.create(
            settings.data_dir,
            scope.user_id,
            scope.project,
            now(),
            read_only=read_only,
            days=days,
            with_general=with_general,
        )

    text, token = exit_on_error(new_token)
    done = (
        f"token {token.id} was created. Its text is lost, because it is stored nowhere: run palimpsest token revoke "
        f"{token.id}, and create another one"
    )
    print_result(as_json, {"token": text, **_token_json(token)}, text, done=done, soft_wrap=True)


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the access tokens, without their text.

    One of a project also opens what belongs to no project if it says "+ general".
    """
    settings = exit_on_error(lambda: settings_of(ctx))
    tokens, zone = exit_on_error(lambda: access_tokens.stored_tokens(settings.data_dir)), settings.zones.default
    rows = table("id", "user", "project", "access", "created", "valid until")
    for token in tokens:
        access = "read" if token.read_only else "read and write"
        created = shown_date(in_zone(token.made_at, zone))
        cells = (token.id, token.user_id, _project(token), access, created, _until(token, zone))
        rows.add_row(*map(plain, cells))
    part = rows if tokens else "there are no access tokens; palimpsest token create prints a new one"
    print_result(as_json, {"tokens": [_token_json(token) for token in tokens]}, part)


@app.command()
def revoke(ctx: typer.Context, token_id: str, as_json: AsJson = False) -> None:
    """Revoke an access token. A running server refuses it from the next request on."""
    token = exit_on_error(lambda: access_tokens.revoke(settings_of(ctx).data_dir, token_id))
    text = f"revoked: {token.id} of {token.user_id}"
    print_result(as_json, _token_json(token), text, done=text)


def _project(token: access_tokens.StoredToken) -> str:
    if not token.project or not token.sees_general:
        return token.project
    return f"{token.project} + general{' (never decided)' if token.is_undecided else ''}"


def _until(token: access_tokens.StoredToken, zone: tzinfo) -> str:
    if token.ends_at is None:
        return "it is revoked"
    return f"{local_iso(in_zone(token.ends_at, zone))}{' (expired)' if token.is_expired(now()) else ''}"


def _token_json(token: access_tokens.StoredToken) -> dict[str, Any]:
    return {name: value for name, value in asdict(token).items() if name != "digest"}
