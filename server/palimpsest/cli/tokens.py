"""`palimpsest token`: who may come in over HTTP."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from palimpsest.cli.console import AsJson, guard, out, plain, settings_of, show
from palimpsest.core.clock import now
from palimpsest.core.models import Scope
from palimpsest.core.validation import ScopeInput, scope_from
from palimpsest.server.auth import tokens as access_tokens

app = typer.Typer(no_args_is_help=True, help="Let people and programs in over HTTP.")


@app.command()
def create(
    ctx: typer.Context,
    user: Annotated[str | None, typer.Option(help="Whose memory it opens; yours unless said.")] = None,
    project: Annotated[str | None, typer.Option(help="This project's memory only, with the user's global one.")] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="To search and list, not to write.")] = False,
    days: Annotated[int | None, typer.Option(min=1, help="How many days it holds; until revoked unless said.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a token and print it, once; only its hash is kept."""

    def made() -> tuple[str, access_tokens.StoredToken]:
        settings = settings_of(ctx)
        whose = scope_from(Scope(settings.user_id), ScopeInput(user_id=user, project=project))
        return access_tokens.create(
            settings.data_dir, whose.user_id, whose.project, now(), read_only=read_only, days=days
        )

    text, token = guard(made)
    show(as_json, {"token": text, **_told(token)}, lambda: out.print(text, soft_wrap=True, highlight=False))


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show the tokens there are, not their text."""
    found = guard(lambda: access_tokens.stored_tokens(settings_of(ctx).data_dir))

    def table() -> None:
        shown = Table("id", "user", "project", "may", "made", "until", box=None)
        for token in found:
            may = "read" if token.read_only else "read and write"
            until = token.expires_at or "revoked"
            shown.add_row(token.id, plain(token.user_id), plain(token.project), may, token.created_at, until)
        out.print(shown)

    show(as_json, {"tokens": [_told(token) for token in found]}, table)


@app.command()
def revoke(ctx: typer.Context, token_id: str, as_json: AsJson = False) -> None:
    """Take a token away; a running server refuses it at once."""
    gone = guard(lambda: access_tokens.revoke(settings_of(ctx).data_dir, token_id))
    show(as_json, _told(gone), lambda: out.print(plain(f"revoked: {gone.id} of {gone.user_id}")))


def _told(token: access_tokens.StoredToken) -> dict[str, Any]:
    return {name: value for name, value in asdict(token).items() if name != "digest"}
