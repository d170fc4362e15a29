"""The command line: the same facade as the MCP tools, with tables for people and `--json` for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from palimpsest import __version__
from palimpsest.cli.clients import commands as client_commands
from palimpsest.cli.commands import care as care_commands
from palimpsest.cli.commands import embedder as embedder_commands
from palimpsest.cli.commands import jobs as job_commands
from palimpsest.cli.commands import learn as learn_commands
from palimpsest.cli.commands import memories as memory_commands
from palimpsest.cli.commands import prompts as prompt_commands
from palimpsest.cli.commands import tokens as token_commands
from palimpsest.cli.commands import transfer as transfer_commands
from palimpsest.cli.console import (
    Options,
    exit_on_error,
)
from palimpsest.cli.output import print_text

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Long-term memory for chat and coding agents.")
app.add_typer(memory_commands.app)
app.add_typer(learn_commands.app)
app.add_typer(client_commands.app)
app.add_typer(care_commands.app)
app.add_typer(transfer_commands.app)
app.add_typer(embedder_commands.app)
app.add_typer(job_commands.app)
app.add_typer(prompt_commands.app, name="prompts")
app.add_typer(token_commands.app, name="token")


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
def version() -> None:
    """Print the version."""
    print_text(__version__)
