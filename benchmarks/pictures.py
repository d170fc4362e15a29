"""Draw the README's pictures: a terminal that shows real commands and their real output, and the badges.

    python benchmarks/pictures.py

It writes `docs/pictures/`. The commands run in a new memory that is deleted afterwards.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from html import escape
from pathlib import Path

from mcp.types import LATEST_PROTOCOL_VERSION
from rich.console import Console
from rich.text import Text

REPOSITORY = Path(__file__).parents[1]
PICTURES = REPOSITORY / "docs" / "pictures"
COLUMNS = 88

COMMANDS = (
    ("add", "Mira lives in Majorna, a part of Gothenburg"),
    ("add", "Mira's dog Pixel must not eat chicken"),
    ("add", "The tides project tags its releases on Thursdays"),
    ("search", "which day do we release?", "--limit", "1"),
    ("search", "welches Futter verträgt der Hund nicht?", "--limit", "1"),
    ("undo",),
)
"""Three facts, a question in other words, one in another language, and an undo."""

TERMINAL = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>A terminal with palimpsest</title>
<style>
text {{
  font: {char_height}px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  white-space: pre;
}}
{styles}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#1b1f24"/>
{lines}
<g transform="translate(14, 12)">
{backgrounds}
{matrix}
</g>
</svg>
"""
"""Rich's picture of a terminal without its window, its title and the font that it would load from the network."""

BADGE = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img">
<title>{name}: {value}</title>
<rect width="{width}" height="20" rx="3" fill="#3b6ea5"/>
<rect width="{left}" height="20" rx="3" fill="#444"/>
<g fill="#fff" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11" text-anchor="middle">
<text x="{left_middle}" y="14">{name}</text><text x="{right_middle}" y="14">{value}</text></g>
</svg>
"""


def main() -> None:
    """Draw all pictures anew."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="palimpsest-") as folder:
        (PICTURES / "terminal.svg").write_text(terminal(Path(folder)), "utf-8")
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


def terminal(folder: Path) -> str:
    """Run the commands in a new memory, and return the terminal as an SVG image."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), legacy_windows=False)
    for arguments in COMMANDS:
        shown = " ".join(f'"{part}"' if " " in part else part for part in arguments)
        console.print(Text.assemble(("$ ", "green"), (f"palimpsest {shown}", "bold")), soft_wrap=True)
        console.print(Text(output(arguments, folder).rstrip()))
        console.print()
    return console.export_svg(code_format=TERMINAL)


def output(arguments: tuple[str, ...], folder: Path) -> str:
    """Return what a command prints."""
    program = [sys.executable, "-m", "palimpsest", "--data-dir", str(folder / "memory"), "--user", "mira"]
    env = {**os.environ, "COLUMNS": str(COLUMNS)}
    done = subprocess.run([*program, *arguments], env=env, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    main()
