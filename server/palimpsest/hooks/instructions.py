"""The server's instructions without memories, and which file has those with. Loads no settings: the handshake waits."""

import getpass
import json
import os
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from palimpsest.hooks import spool

# `head` says when to search and when to add. It is short, so that facts fit beside it: some clients show only 512
# characters.
TEXTS = tomllib.loads(Path(__file__).with_name("texts.toml").read_text("utf-8"))
HEAD, REST = str(TEXTS["head"]), str(TEXTS["rest"])

INSTRUCTIONS = f"{HEAD}\n\n{REST}\n"


# Which rendered file a start begins with, found without loading the settings.
#
# The instructions belong to the handshake, which is answered before the settings are loaded. So each file is named by
# what decides what it may say: the ledger, the user, the project, the agent and the run.

PREFIX = "PALIMPSEST_"
VERSION = 1

# How a file of instructions begins. Their scope and the state of the ledger follow as JSON on the same line.
SIGN = f"palimpsest-instructions {VERSION} "

# How much of a file of instructions is read: far more than the longest.
MAX_FILE_BYTES = 64 * 1024


# The end of instructions that do not change as time passes, in seconds of the epoch.
NEVER = 1e11

# The agent of instructions for agents that no server has worked for yet. No agent has this name.
NEW_AGENT = "*"


@dataclass(frozen=True, slots=True)
class Launch:
    """One way to start a server: the folder of its data, and the keys of files that it may begin with, best first.

    These are of its own scope, of its scope without the project, and of an agent that has nothing of its own.
    """

    data_dir: Path
    keys: tuple[str, ...]


def key_of(ledger: str, user: str, project: str, agent: str, run: str) -> str:
    """Return the key of the instructions of a scope, with the place of the ledger if it is not in the data folder.

    The project is `in_folder` if the folder decides it.
    """
    return spool.hashed(spool.hashed(INSTRUCTIONS), ledger, user, project, agent, run)


def in_folder(folder: Path) -> str:
    """Return what stands for the project that a folder decides."""
    return f"auto {folder}"


def launch_of(config: Path | None, overrides: Mapping[str, Any]) -> Launch | None:
    """Return how this process is started with these arguments, or None without a folder of data or with static text."""
    variables = {name.upper(): value for name, value in os.environ.items() if name.upper().startswith(PREFIX)}
    try:
        content = _content(_settings_file(config, overrides, variables))

        def chosen(name: str) -> str:
            values = (overrides.get(name), variables.get(f"{PREFIX}{name.upper()}"), content.get(name))
            return next((str(value) for value in values if value is not None), "")

        data_dir = Path(chosen("data_dir") or _default_dir()).expanduser().absolute()
        file, project = chosen("history_db_path"), chosen("project")
        project = in_folder(Path.cwd()) if project == "auto" else project
        ledger = chosen("ledger_url") or (str(Path(file).expanduser().absolute()) if file else "")
    except (OSError, ValueError, TypeError):  # the settings will say what is wrong with it
        return None
    user, agent, run = chosen("user_id") or _system_user(), chosen("agent_id"), chosen("run_id")
    scopes = [(project, agent), ("", agent), *([] if run else [("", NEW_AGENT)])]
    keys = tuple(key_of(ledger, user, *scope, run) for scope in scopes)
    return None if chosen("instructions") == "static" else Launch(data_dir, keys)


def _settings_file(config: Path | None, overrides: Mapping[str, Any], variables: Mapping[str, str]) -> Path | None:
    if chosen := config or variables.get(f"{PREFIX}CONFIG"):
        return Path(chosen).expanduser().absolute()
    data_dir = overrides.get("data_dir") or variables.get(f"{PREFIX}DATA_DIR") or _default_dir()
    default = Path(str(data_dir)).expanduser().absolute() / "config.toml"
    return default if default.is_file() else None


def _content(file: Path | None) -> Mapping[str, Any]:
    text = "" if file is None else file.read_text("utf-8-sig")
    return json.loads(text) if file is not None and file.suffix == ".json" else tomllib.loads(text)


def _default_dir() -> str:
    return str(platformdirs.user_data_path("palimpsest", appauthor=False))


def _system_user() -> str:
    with suppress(OSError, KeyError):
        return getpass.getuser()
    return "user"  # as in the settings


def rendered_instructions(launch: Launch | None) -> tuple[str, float]:
    """Return the first instructions that were rendered for a way to start a server, or the static text, and until when.

    They change when a plan begins or an event is over. Those that were emptied have ended, and so have those without
    the project, which may have facts of its own.
    """
    files = [spool.instructions_file(str(launch.data_dir), key) for key in launch.keys] if launch is not None else []
    until = NEVER
    for file in files:
        with suppress(OSError, ValueError, LookupError), Path(file).open(encoding="utf-8") as content:
            sign, _, text = content.read(MAX_FILE_BYTES).partition("\n")
            if sign.startswith(SIGN):
                until = min(until, json.loads(sign.removeprefix(SIGN))[1]["until"] if text else 0)
                if text:
                    return spool.without_past(text), until if file == files[0] or files[0] == files[1] else 0
    return INSTRUCTIONS, until
