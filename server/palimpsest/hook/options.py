"""What the hook is told: by its arguments, by the environment, and by the file that servers and commands write."""

from __future__ import annotations

import os
import sys
from itertools import pairwise

from palimpsest.hook import paths
from palimpsest.hook.json_values import read_object, texts_in
from palimpsest.hook.session import is_within

CAPTURING = ("on", "capture")
RECALLING = ("on", "recall")
MODES = ("on", "off", "capture", "recall")
PROJECT_VARIABLES = ("CLAUDE_PROJECT_DIR", "CURSOR_PROJECT_DIR", "GEMINI_PROJECT_DIR")
"""The folder that a session began in. It stays excluded when the session goes on in another folder."""
ENTRYPOINT_VARIABLE = "CLAUDE_CODE_ENTRYPOINT"
PROGRAM_ENTRYPOINT = "sdk-"
"""`claude -p` and the Agent SDK: a program talks, often from a hook, and nobody wants to remember that."""


class Options:
    """The arguments and the environment of the hook. `client` and `user` are "" if nothing says them."""

    __slots__ = ("client", "data_dir", "mode", "project_folders", "started_by_program", "user")

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        given = dict(pairwise(arguments))
        self.client = given.get("--client", "")
        data_dir = given.get("--data-dir") or environment.get("PALIMPSEST_DATA_DIR") or default_data_dir(environment)
        self.data_dir = os.path.abspath(os.path.expanduser(data_dir))
        self.user = given.get("--user") or environment.get("PALIMPSEST_USER_ID", "")
        self.mode = environment.get("PALIMPSEST_HOOKS", "").strip().lower()
        self.project_folders = [environment[name] for name in PROJECT_VARIABLES if environment.get(name)]
        self.started_by_program = environment.get(ENTRYPOINT_VARIABLE, "").startswith(PROGRAM_ENTRYPOINT)


def process_options() -> Options:
    """Return the options of this process."""
    return Options(sys.argv[1:], dict(os.environ))


def mode_in(options: Options, folder: str) -> str:
    """Return on, off, capture or recall for a session in a folder.

    A mode that is not known, or a settings file that cannot be read, means off: it may have been an opt-out.
    """
    try:
        settings = read_object(paths.settings_file(options.data_dir))
    except FileNotFoundError:
        settings = {}
    except (OSError, ValueError):
        return "off"
    mode = options.mode or settings.get("mode", "on")
    if not isinstance(mode, str) or mode not in MODES:
        return "off"
    places = [place for place in (folder, *options.project_folders) if place]
    excluded = [os.path.expanduser(name) for name in texts_in(settings.get("excluded_folders"))]
    return "off" if any(is_within(place, name) for place in places for name in excluded) else mode


def default_data_dir(environment: dict[str, str]) -> str:
    """Return the data directory of the settings' default, which platformdirs finds for them."""
    if sys.platform == "win32":
        return os.path.join(environment.get("LOCALAPPDATA") or os.path.expanduser("~\\AppData\\Local"), "palimpsest")
    given = environment.get("XDG_DATA_HOME", "").strip()
    if os.path.isabs(given):
        return os.path.join(given, "palimpsest")
    home = "~/Library/Application Support" if sys.platform == "darwin" else "~/.local/share"
    return os.path.join(os.path.expanduser(home), "palimpsest")
