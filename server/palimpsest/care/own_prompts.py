"""The prompt files beside the shipped ones: compare them, write one's own, and return to the shipped one. Blocking.

No text of a person is lost: a file that is written over or taken away is first copied beside itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from palimpsest.core.configuration.file import keep_copy
from palimpsest.core.errors import InputError, PromptError
from palimpsest.core.files import replace_file
from palimpsest.core.settings import Settings
from palimpsest.learn.engine import NEEDED_PROMPTS
from palimpsest.llm.prompts import PromptFiles, parse, shipped_directory


@dataclass(frozen=True, slots=True)
class PromptInUse:
    """A prompt file that is used: its text, and how it differs from the shipped one, as lines of a unified diff.

    `fault` says why it cannot be used, or is "". `setting` is the name of a setting whose text replaces a part of it
    or is added to it.
    """

    name: str
    path: Path
    text: str
    is_own: bool
    difference: Sequence[str]
    fault: str = ""
    setting: str = ""


def prompts_in_use(settings: Settings) -> list[PromptInUse]:
    """Return all prompts, in the order in which a model is asked."""
    return [prompt_in_use(settings, name) for name in NEEDED_PROMPTS]


def prompt_in_use(settings: Settings, name: str) -> PromptInUse:
    """Return one prompt. Raises PromptError if there is none of this name."""
    files = PromptFiles(NEEDED_PROMPTS, settings.prompts_dir)
    path = files.path(name)
    shipped = shipped_directory() / f"{name}.md"
    text = fault = ""
    try:
        text = _text(path)
        files.read(path, name)
    except PromptError as error:
        fault = str(error)
    lines = difflib.unified_diff(_text(shipped).splitlines(), text.splitlines(), lineterm="")
    return PromptInUse(name, path, text, path != shipped, [*lines][2:], fault, _setting(settings, name))


def save_prompt(settings: Settings, name: str, text: str) -> Path | None:
    """Write one's own prompt; return the copy of the file that it replaced, or None if there was none.

    Raises PromptError if the text cannot be used, and InputError if the settings name no folder. Nothing is changed
    then.
    """
    path = _own_path(settings, name)
    text = text.replace("\r\n", "\n").rstrip("\n") + "\n"  # browsers send forms with line ends of their own
    PromptFiles(NEEDED_PROMPTS).refuse_unfit(parse(text, path), name)
    try:
        copy = keep_copy(path)
        with replace_file(path) as file:
            file.write(text)
    except (OSError, UnicodeError) as error:
        raise PromptError(f"{path} cannot be written: {error}. Nothing was changed") from error
    return copy


def return_to_shipped(settings: Settings, name: str) -> Path:
    """Take one's own prompt away, so that the shipped one is used again. Return the copy of the file.

    Raises InputError if there is no file of one's own.
    """
    path = _own_path(settings, name)
    try:
        copy = keep_copy(path)
        path.unlink()
    except (OSError, UnicodeError) as error:
        raise InputError(f"{path} cannot be taken away: {error}. Nothing was changed") from error
    return copy or path


def _setting(settings: Settings, name: str) -> str:
    """Return the name of the setting that changes what a model is sent for a prompt, or ""."""
    is_extraction = name in ("extract", "extract_agent")
    changing = {
        "custom_fact_extraction_prompt": is_extraction and settings.custom_fact_extraction_prompt,
        "custom_instructions": is_extraction and settings.custom_instructions,
        "custom_update_memory_prompt": name == "decide" and settings.custom_update_memory_prompt,
        "graph_store.custom_prompt": name == "graph" and settings.graph_store.custom_prompt,
    }
    return next((setting for setting, value in changing.items() if value), "")


def _own_path(settings: Settings, name: str) -> Path:
    if name not in NEEDED_PROMPTS:
        raise PromptError(f"there is no prompt '{name}'")
    if settings.prompts_dir is None:
        raise InputError("the settings name no folder for your own prompts (prompts_dir). Nothing was changed")
    return settings.prompts_dir / f"{name}.md"


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"{file}: cannot be read: {error}") from error
