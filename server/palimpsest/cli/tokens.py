"""`palimpsest token`: create, list and revoke access tokens for HTTP."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from palimpsest.cli.console import AsJson, exit_on_error, out, print_result, settings_of
from palimpsest.core.clock import now
from palimpsest.core.models import Scope
from palimpsest.core.validation import ScopeInput, scope_from
from palimpsest.server.auth import tokens as access_tokens

app = typer.Typer(no_args_is_help=True, help="Manage access tokens for HTTP.")


@app.command()
def create(
    ctx: typer.Context,
    user: Annotated[str | None, typer.Option(help="The user whose memory it opens. Default: yours.")] = None,
    project: Annotated[
        str | None, typer.Option(help="Limit it to this project's memory and the user's global one.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Allow searching and listing, not writing.")] = False,
    days: Annotated[
        int | None, typer.Option(min=1, help="Days until it expires. Default: it is valid until it is revoked.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create an access token and print it. It is shown only once, because only its hash is stored."""

    def new_token() -> tuple[str, access_tokens.StoredToken]:
        settings = settings_of(ctx)
        scope = scope_from(Scope(settings.user_id), ScopeInput(user_id=user, project=project))
        return access_tokens.create(
            settings.data_dir, scope.user_id, scope.project, now(), read_only=read_only, days=days
        )

    text, token = exit_on_error(new_token)
    print_result(
        as_json, {"token": text, **_token_json(token)}, lambda: out.print(text, soft_wrap=True, highlight=False)
    )


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the access tokens, without their text."""
    tokens = exit_on_error(lambda: access_tokens.stored_tokens(settings_of(ctx).data_dir))

    def table() -> None:
        rows = Table("id", "user", "project", "access", "created", "expires", box=None)
        for token in tokens:
            access = "read" if token.read_only else "read and write"
            expires = token.expires_at or "never"
            rows.add_row(token.id, escape(token.user_id), escape(token.project), access, token.created_at, expires)
        out.print(rows)

    print_result(as_json, {"tokens": [_token_json(token) for token in tokens]}, table)


@app.command()
def revoke(ctx: typer.Context, token_id: str, as_json: AsJson = False) -> None:
    """Revoke an access token. A running server refuses it from the next request on."""
    token = exit_on_error(lambda: access_tokens.revoke(settings_of(ctx).data_dir, token_id))
    print_result(as_json, _token_json(token), lambda: out.print(escape(f"revoked: {token.id} of {token.user_id}")))


def _token_json(token: access_tokens.StoredToken) -> dict[str, Any]:
    return {name: value for name, value in asdict(token).items() if name != "digest"}
