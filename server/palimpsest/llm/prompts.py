"""Load, validate, render and fingerprint prompt files.

A prompt is a Markdown file with front matter (`name`, `version`, `inputs`) and the parts `## system` and
`## user`, in which `$variables` are filled in. Text from a conversation is only ever passed as JSON strings,
so it cannot pose as a section of a prompt.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import Any, cast

import frontmatter
import yaml
from frontmatter.default_handlers import YAMLHandler

from palimpsest.core.errors import PromptError

_YAML = YAMLHandler()
_BODY = re.compile(r"\A## system[ \t]*\n(?P<system>.*?)\n## user[ \t]*\n(?P<user>.*)\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Prompt:
    """Hold one prompt. `system_is_text` says that the system part is taken as it stands, `$` and all."""

    name: str
    version: int
    inputs: frozenset[str]
    system: str
    user: str
    path: Path
    system_is_text: bool = False

    @property
    def fingerprint(self) -> str:
        """Return 12 hexadecimal digits that change with the text."""
        return hashlib.sha256(f"{self.system}\0{self.user}".encode()).hexdigest()[:12]

    def render(self, **values: Any) -> list[dict[str, str]]:
        """Return the chat messages `[{"role", "content"}]` with every value passed as JSON.

        Raises PromptError when `values` are not just the declared inputs.
        """
        if values.keys() != self.inputs:
            raise PromptError(f"{self.path}: wants {sorted(self.inputs)}, was given {sorted(values)}")
        filled = {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}
        system = self.system if self.system_is_text else Template(self.system).substitute(filled)
        return [
            {"role": "system", "content": system.strip()},
            {"role": "user", "content": Template(self.user).substitute(filled).strip()},
        ]


def shipped_directory() -> Path:
    """Return the folder of the prompts that come with the package."""
    package = Path(__file__).parents[1]
    installed = package / "prompt_files"
    return installed if installed.is_dir() else package.parents[1] / "prompts"


def parse(text: str, path: Path) -> Prompt:
    """Return the prompt that a file's text describes. Raises PromptError naming file and fault."""
    try:
        front, body = frontmatter.parse(text, handler=_YAML)
    except (yaml.YAMLError, ValueError) as error:  # a date such as 2026-13-01 raises ValueError
        raise PromptError(f"{path}: the front matter is not valid YAML: {error}") from error
    parts = _BODY.match(body + "\n")
    # A handler that is passed splits at any '---' line; only a file that begins with one has front matter.
    if parts is None or not _YAML.detect(text.lstrip()):
        raise PromptError(f"{path}: expected front matter between '---' lines, then '## system', then '## user'")
    if front.keys() != {"name", "version", "inputs"}:
        raise PromptError(f"{path}: the front matter must hold name, version and inputs, and nothing else")
    name, version, inputs = front["name"], front["version"], front["inputs"]
    if not (isinstance(name, str) and isinstance(version, int) and isinstance(inputs, list)):
        raise PromptError(f"{path}: name must be a word, version a number, and inputs a list of words")
    input_names = frozenset(str(item) for item in cast("list[Any]", inputs))
    prompt = Prompt(name, version, input_names, parts["system"].strip(), parts["user"].strip(), path)
    _check_variables(prompt)
    return prompt


def _check_variables(prompt: Prompt) -> None:
    used: set[str] = set()
    for part, text in (("system", prompt.system), ("user", prompt.user)):
        template = Template(text)
        if not template.is_valid():
            raise PromptError(f"{prompt.path}: a '$' in ## {part} begins no variable; write '$$' for the sign")
        used |= set(template.get_identifiers())
    for name in sorted(used - prompt.inputs):
        raise PromptError(f"{prompt.path}: ${name} is no input; the inputs are {sorted(prompt.inputs)}")
    for name in sorted(prompt.inputs - used):
        raise PromptError(f"{prompt.path}: the input ${name} appears nowhere in the text; put it in")


class PromptFiles:
    """Hand out prompts by name, from the user's folder first, fresh after every edit.

    `needed` maps each prompt's name to the inputs its stage passes; `system_texts` maps names to texts that
    replace the system part.
    """

    def __init__(
        self,
        needed: Mapping[str, frozenset[str]],
        directory: Path | None = None,
        system_texts: Mapping[str, str] | None = None,
    ) -> None:
        self.needed = dict(needed)
        self.directory = directory
        self._system_texts = dict(system_texts or {})
        self._read: dict[Path, tuple[int, Prompt]] = {}

    def path(self, name: str) -> Path:
        """Return the file that `name` is read from. Raises PromptError for an unknown name."""
        if name not in self.needed:
            raise PromptError(f"there is no prompt '{name}'; the prompts are {', '.join(sorted(self.needed))}")
        if self.directory is not None and (own := self.directory / f"{name}.md").is_file():
            return own
        return shipped_directory() / f"{name}.md"

    def get(self, name: str) -> Prompt:
        """Return the prompt, read again if its file changed. Raises PromptError."""
        prompt = self.read(self.path(name), name)
        if name in self._system_texts:
            prompt = replace(prompt, system=self._system_texts[name], system_is_text=True)
        return prompt

    def read(self, path: Path, name: str) -> Prompt:
        """Return the prompt in `path`, held against what the stage `name` passes. Raises PromptError."""
        try:
            stamp = path.stat().st_mtime_ns
            known = self._read.get(path)
            prompt = known[1] if known and known[0] == stamp else parse(path.read_text("utf-8-sig"), path)
        except (OSError, UnicodeDecodeError) as error:
            raise PromptError(f"{path}: cannot be read: {error}") from error
        if prompt.name != name:
            raise PromptError(f"{path}: its name is '{prompt.name}' and should be '{name}'")
        for missing in sorted(self.needed[name] - prompt.inputs):
            raise PromptError(f"{path}: the input ${missing} is missing; add it to inputs and to the text")
        for unknown in sorted(prompt.inputs - self.needed[name]):
            raise PromptError(f"{path}: ${unknown} is unknown here; the inputs are {sorted(self.needed[name])}")
        self._read[path] = (stamp, prompt)
        return prompt

    def check(self) -> None:
        """Read every prompt, and refuse files in the user's folder that name none. Raises PromptError."""
        if self.directory is not None:
            if not self.directory.is_dir():
                raise PromptError(f"prompts_dir {self.directory} is no folder")
            for file in sorted(self.directory.glob("*.md")):
                if file.stem.upper() != "README":
                    self.path(file.stem)
        for name in self.needed:
            self.get(name)
