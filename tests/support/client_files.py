"""The files of clients in a test's own home folder, and the commands that change them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.command_line import palimpsest


def run(home: Path, *arguments: str, code: int = 0, settings: Mapping[str, str] | None = None) -> str:
    return palimpsest(
        home, *arguments, code=code, settings={"XDG_CONFIG_HOME": str(home / ".config"), **(settings or {})}
    )


def write_json(file: Path, content: object) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=2, ensure_ascii=False)
    file.write_text(text, "utf-8")
    return text


def content_of(file: Path) -> Any:
    text = file.read_text("utf-8")
    return tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
