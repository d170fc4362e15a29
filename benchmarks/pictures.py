"""Draw the pictures of the README and of docs/graph.md: terminals that show real commands, graphs, and the badges.

    python benchmarks/pictures.py

It writes `docs/pictures/`, and the drawings in `docs/graph.md`. The commands run in new memories that are deleted
afterwards.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import anyio
from mcp.types import LATEST_PROTOCOL_VERSION
from rich.console import Console
from rich.text import Text

from harness import PALIMPSEST
from palimpsest.core.models import Decision, Event, Fact, NamedEntity, Provenance, Relation, Scope
from palimpsest.core.settings import load_settings
from palimpsest.memory import open_memory
from palimpsest.store.apply import Write

REPOSITORY = Path(__file__).parents[1]
PICTURES = REPOSITORY / "docs" / "pictures"
COLUMNS = 88
TITLE = "A terminal with palimpsest"

# Three facts, a question in other words, one in another language, and an undo.
COMMANDS = (
    ("add", "Mira lives in Majorna, a part of Gothenburg"),
    ("add", "Mira's dog Pixel must not eat chicken"),
    ("add", "The tides project tags its releases on Thursdays"),
    ("search", "which day do we release?", "--limit", "1"),
    ("search", "welches Futter verträgt der Hund nicht?", "--limit", "1"),
    ("undo",),
)

GRAPH_PAGE = REPOSITORY / "docs" / "graph.md"

MIRA = Scope("mira")

# Made-up entities with their types, and facts, each with its day and the relation that it states. A later one takes the
# place of an earlier one of the same source and relation, as it does where a model decides that they contradict each
# other.
MADE_UP: dict[str, Any] = json.loads(Path(__file__).with_name("pictures.json").read_text("utf-8"))

# The drawings of docs/graph.md, by their names in the page.
GRAPHS = {"now": ("graph",), "before": ("graph", "--as-of", "2025-06-01")}

DOSSIER = ("entity", "Ana")

HERE = Path(__file__).parent

# Rich's picture of a terminal without its window, its title and the font that it would load from the network.
TERMINAL = (HERE / "terminal_svg.txt").read_text("utf-8")

BADGE = (HERE / "badge_svg.txt").read_text("utf-8")


def main() -> None:
    """Draw all pictures anew."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="palimpsest-") as folder:
        (PICTURES / "terminal.svg").write_text(terminal(Path(folder)), "utf-8")
    with tempfile.TemporaryDirectory(prefix="palimpsest-") as folder:
        fill_graph(Path(folder))
        (PICTURES / "dossier.svg").write_text(terminal(Path(folder), (DOSSIER,), "What is known about Ana"), "utf-8")
        GRAPH_PAGE.write_text(with_graphs(GRAPH_PAGE.read_text("utf-8"), Path(folder)), "utf-8")
    for name, value in badges().items():
        (PICTURES / f"{name.lower()}.svg").write_text(badge(name, value), "utf-8")


def badges() -> Mapping[str, str]:
    """Return what the badges say, by the name on their left: all of it is read, and nothing claimed."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    versions = project["requires-python"].removeprefix(">=") + "+"
    return {"Python": versions, "License": project["license"], "MCP": LATEST_PROTOCOL_VERSION}


def badge(name: str, value: str) -> str:
    """Return a badge as an SVG image."""
    left, right = 7 * len(name) + 12, 7 * len(value) + 12
    middles = {"left_middle": left / 2, "right_middle": left + right / 2}
    return BADGE.format(name=escape(name), value=escape(value), left=left, width=left + right, **middles)


def fill_graph(folder: Path) -> None:
    """Store the made-up facts in a new memory, with what they state, as a model would give it."""
    said_at = [datetime.fromisoformat(day).replace(tzinfo=UTC) for day, *_ in MADE_UP["stated"]]
    settings = load_settings(None, data_dir=folder / "memory", user_id=MIRA.user_id, llm={"provider": "none"})

    async def fill() -> None:
        known: dict[tuple[str, str], str] = {}
        # Each write has its day from the clock, which is asked through the list.
        today = said_at[:1]
        async with open_memory(settings, clock=lambda: today[0], background=False) as memory:
            for day, (_, text, *stated) in zip(said_at, MADE_UP["stated"], strict=True):
                today[0], relation = day, Relation(*stated)
                source = (relation.source, relation.name)
                replaced = (known[source],) if source in known else ()
                decision = Decision(Event.ADD, _fact(text, relation), replaces=replaced)
                applied = memory.engine.ledger.apply(Write(MIRA, Provenance("pictures"), decisions=(decision,)))
                known[source] = applied.outcomes[0].memory.id

    anyio.run(fill)


def _fact(text: str, relation: Relation) -> Fact:
    entities = tuple(NamedEntity(name, MADE_UP["entities"][name]) for name in (relation.source, relation.destination))
    return Fact(text, entities=entities, relations=(relation,))


def with_graphs(page: str, folder: Path) -> str:
    """Return a page with its drawings as the tool draws them now. Each follows a comment with its name."""
    for name, arguments in GRAPHS.items():
        drawing = f"<!-- drawn: {name} -->\n```mermaid\n{output(arguments, folder)}```"
        page = re.sub(rf"<!-- drawn: {name} -->\n```mermaid\n.*?```", lambda _: drawing, page, flags=re.DOTALL)  # noqa: B023
    return page


def terminal(folder: Path, commands: Sequence[tuple[str, ...]] = COMMANDS, title: str = TITLE) -> str:
    """Run commands in a memory, a new one if there is none, and return the terminal as an SVG image."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), legacy_windows=False)
    for arguments in commands:
        shown = " ".join(f'"{part}"' if " " in part else part for part in arguments)
        console.print(Text.assemble(("$ ", "green"), (f"palimpsest {shown}", "bold")), soft_wrap=True)
        console.print(Text(output(arguments, folder).rstrip()))
        console.print()
    return console.export_svg(code_format=TERMINAL.replace(TITLE, escape(title)))


def output(arguments: tuple[str, ...], folder: Path) -> str:
    """Return what a command prints."""
    program = [*PALIMPSEST, "--data-dir", str(folder / "memory"), "--user", "mira"]
    env = {**os.environ, "COLUMNS": str(COLUMNS)}
    done = subprocess.run([*program, *arguments], env=env, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    main()
