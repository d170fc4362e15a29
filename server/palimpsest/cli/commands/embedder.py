"""`palimpsest embedder`: show the embedders, and choose another one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from palimpsest.care.embedders import choose_embedder, embedders
from palimpsest.cli.console import AsJson, run_async, settings_of
from palimpsest.cli.options import SETUP
from palimpsest.cli.output import Part, plain, print_result, table
from palimpsest.core.configuration.sections import Provider
from palimpsest.core.errors import EmbedderError
from palimpsest.core.settings import Settings
from palimpsest.memory import open_memory
from palimpsest.text.counting import counted

app = typer.Typer()


@app.command(rich_help_panel=SETUP)
def embedder(
    ctx: typer.Context,
    name: Annotated[Provider | None, typer.Argument(help="The embedder to use from now on.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the embedders and which one is in use, or choose another one."""
    if name is None:
        _show(ctx, as_json=as_json)
    else:
        _choose(ctx, name, as_json=as_json)


def _show(ctx: typer.Context, *, as_json: bool) -> None:
    async def work() -> None:
        settings = settings_of(ctx)
        fingerprint, waiting = await _in_use(settings)
        chosen = settings.embedder.provider
        infos = embedders(settings)

        rows = table("name", "can be used", "what it is")
        for info in infos:
            rows.add_row(info.name, plain(info.obstacle or "yes"), plain(info.about))
        source = "the best that runs here" if chosen == "local" else "chosen in the settings"
        parts: list[Part] = [rows, f"in use: {fingerprint} ({chosen}: {source})"]
        if waiting:
            parts.append(
                f"Waiting to be embedded, and found by words until then: {counted(waiting, 'text')}. "
                "A server embeds them in the background; palimpsest rebuild does it now."
            )
        content = {
            "provider": chosen,
            "fingerprint": fingerprint,
            "waiting": waiting,
            "embedders": [asdict(info) for info in infos],
        }
        print_result(as_json, content, *parts)

    run_async(work)


async def _in_use(settings: Settings) -> tuple[str, int]:
    """Return the fingerprint of the embedder in use, or why it cannot be used, and how many texts wait for it."""
    try:
        async with open_memory(settings, background=False) as memory:
            return memory.engine.embedder.fingerprint, await memory.care.waiting()
    except EmbedderError as error:
        return f"none: {error}", 0


def _choose(ctx: typer.Context, name: Provider, *, as_json: bool) -> None:
    async def work() -> None:
        file, fingerprint = choose_embedder(settings_of(ctx), name)
        settings = settings_of(ctx)
        is_effective = settings.embedder.provider == name
        _, waiting = await _in_use(settings)

        done = f"{file}: embedder.provider = {name} ({fingerprint})"
        if not is_effective:
            next_step = (
                "It has no effect yet: an environment variable (PALIMPSEST_EMBEDDER__PROVIDER) overrides the file."
            )
        elif waiting:
            next_step = (
                f"To be embedded again, and found by words until then: {counted(waiting, 'text')}. The next server "
                "does it in the background, palimpsest rebuild does it now. Restart the clients."
            )
        else:
            next_step = "Restart the clients."
        content = {
            "file": str(file),
            "provider": name,
            "fingerprint": fingerprint,
            "effective": is_effective,
            "waiting": waiting,
        }
        print_result(as_json, content, done, next_step, done=done)

    run_async(work)
