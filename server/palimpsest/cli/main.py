"""The command line: the same facade as the MCP tools, with tables for people and `--json` for programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from palimpsest import __version__
from palimpsest.cli.console import CommandLine, Options, command

app = typer.Typer(
    cls=CommandLine, no_args_is_help=True, add_completion=False, help="Long-term memory for chat and coding agents."
)


def _print_version(value: bool) -> None:
    if value:
        version()
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
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Only what this agent stored.")] = None,
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

    load_settings = settings_loader(options.config, **options.overrides)
    http_server.serve(load_settings, transport, host, port, page_beside_mcp)


@command(app, "ui")
def ui(options: Options, port: int = 0, opens: bool = True) -> None:
    """Look into the memory and correct it, in the browser."""
    from palimpsest.cli.output import print_text  # noqa: PLC0415 - it imports rich
    from palimpsest.page.page_server import serve_page  # noqa: PLC0415 - it imports a web server
    from palimpsest.server.app import settings_loader  # noqa: PLC0415 - it imports the MCP SDK

    load_settings = settings_loader(options.config, **options.overrides)
    serve_page(load_settings, port, print_text, opens=opens)


@command(app, "version")
def version() -> None:
    """Print the version."""
    sys.stdout.write(f"{__version__}\n")
