"""The environment variables a process under test gets."""

from __future__ import annotations

import os
from pathlib import Path


def clean_environment(folder: Path, **settings: str) -> dict[str, str]:
    """Return this process's environment without its Palimpsest and OpenAI settings, with a folder as home."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PALIMPSEST_", "OPENAI_"))}
    return {
        **inherited,
        "HOME": str(folder),
        "PALIMPSEST_DATA_DIR": str(folder / "data"),
        "PALIMPSEST_USER_ID": "alice",
        **settings,
    }
