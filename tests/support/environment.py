"""The environment of a program under test: its variables, its working directory, its umask."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import chdir, contextmanager
from pathlib import Path

from tests.support.stores import ledger_variables

# The variable that chooses the static embedder, which is quick and the same on every machine.
STATIC_EMBEDDER = ("PALIMPSEST_EMBEDDER__PROVIDER", "static")


# How the variables begin that would lead a test to the memory, the model or the clients of whoever runs it.
OF_OTHERS = ("PALIMPSEST_", "OPENAI_", "CLAUDE", "CODEX", "XDG_CONFIG")


def clean_environment(folder: Path, **settings: str) -> dict[str, str]:
    """Return this process's environment without its settings of ours, OpenAI's and clients', with a folder as home.

    The embedder is the static one.
    """
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(OF_OTHERS)}
    return {
        **inherited,
        "HOME": str(folder),
        "PALIMPSEST_DATA_DIR": str(folder / "data"),
        "PALIMPSEST_USER_ID": "alice",
        **dict([STATIC_EMBEDDER]),
        **ledger_variables(folder / "data"),
        **settings,
    }


def model_environment(base_url: str) -> dict[str, str]:
    """Return the variables that name a language model behind a loopback server."""
    config = {"OPENAI_BASE_URL": base_url, "API_KEY": "test-key", "MODEL": "scripted"}
    named = {f"PALIMPSEST_LLM__CONFIG__{key}": value for key, value in config.items()}
    return {"PALIMPSEST_LLM__PROVIDER": "openai", **named}


@contextmanager
def inside(folder: Path, environment: Mapping[str, str]) -> Generator[None]:
    """Give this process another working directory and other environment variables until the block ends."""
    before = dict(os.environ)
    with chdir(folder):
        os.environ.clear()
        os.environ.update(environment)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
