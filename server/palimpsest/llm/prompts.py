"""Prompt files: reading, validation, rendering and fingerprints.

A prompt is a Markdown file with front matter (`name`, `version`, `inputs`) and the sections `## system` and `## user`,
in which `$variables` are replaced. Text from a conversation is always passed as JSON strings, so it cannot imitate a
section of the prompt. Between the two may stand `## reply`: what is shown and the form of the reply, which stays when
a text of the settings replaces the instructions. A file without inputs has `## system` only: that is added to others.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from string import Template
from typing import Any, cast

import frontmatter
import yaml
from frontmatter.default_handlers import YAMLHandler

from palimpsest.core.errors import PromptError, raised_as

_YAML = YAMLHandler()
_BODY = re.compile(
    r"\A## system[ \t]*\n(?P<system>.*?)(?:\n## reply[ \t]*\n(?P<reply>.*?))?(?:\n## user[ \t]*\n(?P<user>.*))?\Z",
    re.DOTALL,
)

# Which prompt file is added to which prompts, also to one that a person wrote.
ADDED_PROMPTS: Mapping[str, str] = {"extract": "graph", "extract_agent": "graph"}

# Which fields of a reply such a file asks for. If there is nothing in it, they are not wanted.
ADDED_FIELDS: Mapping[str, frozenset[str]] = {"graph": frozenset({"entities", "relations"})}

# What Mem0's prompts and those written after its paper call the inputs. `mt` is the second of the messages `mt_1`.
_PLACEHOLDERS: Mapping[str, str] = {
    **dict.fromkeys(("mt_1", "parsed_messages", "conversation"), "messages"),
    **dict.fromkeys(("mt", "custom_update_memory_prompt"), ""),
    "recent_messages": "recent",
    **dict.fromkeys(("candidate_fact", "new_retrieved_facts", "new_facts"), "facts"),
    **dict.fromkeys(("retrieved_old_memory", "retrieved_old_memory_dict", "similar_memories"), "memories"),
}

_PLACEHOLDER = re.compile(r"\{\{|\}\}|(?<!\$)\{\s*(\w+)\s*\}")

# JSON as a program has it in its source, where a brace is written twice.
_DOUBLED = re.compile(r"\{\{\s*[\"'\u201c]")

# What a prompt cannot do without. A text that has placeholders for all of it is the whole prompt.
_DATA = frozenset({"messages", "facts", "memories"})


class PromptMessages(list[dict[str, str]]):
    """The chat messages of a prompt, with the fields of the reply that nobody wants."""

    def __init__(self, messages: Iterable[dict[str, str]], unwanted: frozenset[str]) -> None:
        super().__init__(messages)
        self.unwanted = unwanted


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt. `reply` follows `system`. `unwanted` are fields of the reply that the prompt does not ask for.

    `is_custom` is whether a text of the settings replaces the instructions, and `takes_one_fact` whether that is about
    one fact at a time.
    """

    name: str
    version: int
    inputs: frozenset[str]
    system: str
    user: str
    path: Path
    reply: str = ""
    unwanted: frozenset[str] = frozenset()
    is_custom: bool = False
    takes_one_fact: bool = False

    @property
    def fingerprint(self) -> str:
        """Return 12 hexadecimal digits that identify the text of all sections."""
        return hashlib.sha256(f"{self.system}\0{self.reply}\0{self.user}".encode()).hexdigest()[:12]

    def render(self, **values: Any) -> PromptMessages:
        """Return the chat messages `[{"role": …, "content": …}]`, with every input inserted as JSON."""
        filled = {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}
        parts = (self.system, self.reply, self.user)
        system, reply, user = (Template(part).substitute(filled).strip() for part in parts)
        texts = {"system": "\n\n".join(filter(None, (system, reply))), "user": user}
        messages = ({"role": role, "content": text} for role, text in texts.items() if text or role == "user")
        return PromptMessages(messages, self.unwanted)


def shipped_directory() -> Path:
    """Return the folder of the prompts that ship with the package."""
    package = Path(__file__).parents[1]
    installed = package / "prompt_files"
    return installed if installed.is_dir() else package.parents[1] / "prompts"


@lru_cache(maxsize=64)
def parse(text: str, path: Path, name: str, inputs: frozenset[str]) -> Prompt:
    """Return the prompt in the text of a file, which is called `name` and uses these inputs, no more and no fewer.

    Raises PromptError that names the file and the fault.
    """
    invalid = f"{path}: the front matter is not valid YAML"
    with raised_as(PromptError, invalid, "", yaml.YAMLError, ValueError):  # a date such as 2026-13-01 raises ValueError
        front, body = frontmatter.parse(text, handler=_YAML)
    parts = _BODY.match(body + "\n")
    # A handler that is passed splits at any '---' line; only a file that begins with one has front matter.
    if parts is None or (parts["user"] is None) is bool(inputs) or not _YAML.detect(text.lstrip()):
        sections = "'## system', then '## user'" if inputs else "'## system' alone, because it has no inputs"
        raise PromptError(f"{path}: expected front matter between '---' lines, then {sections}")
    version, named = front.get("version"), front.get("inputs")
    if front.keys() != {"name", "version", "inputs"} or not isinstance(version, int) or not isinstance(named, list):
        raise PromptError(f"{path}: the front matter must hold name, version (a number) and inputs (a list) alone")
    if front["name"] != name:
        raise PromptError(f"{path}: the name is '{front['name']}' and must be '{name}'")
    texts = {part: (parts[part] or "").strip() for part in ("system", "reply", "user")}
    used: set[str] = set()
    for part, template in ((part, Template(text)) for part, text in texts.items()):
        if not template.is_valid():
            raise PromptError(f"{path}: a '$' in ## {part} begins no variable; write '$$' for a dollar sign")
        used |= set(template.get_identifiers())
    for what, found in (("front matter", frozenset(map(str, cast("list[Any]", named)))), ("text", frozenset(used))):
        if found != inputs:
            raise PromptError(f"{path}: the inputs are {sorted(inputs)}, and the {what} names {sorted(found)}")
    return Prompt(name, version, inputs, texts["system"], texts["user"], path, reply=texts["reply"])


def with_text(prompt: Prompt, text: str) -> Prompt:
    """Return a prompt with a person's text in place of its instructions, in which `$` has no meaning.

    A text with placeholders for all data is the whole prompt. Any other is followed by the section on the reply, and by
    the data.
    """
    named: set[str] = set()
    is_of_program = _DOUBLED.search(text) is not None

    def filled(found: re.Match[str]) -> str:
        if found[0] in ("{{", "}}"):
            return found[0][is_of_program:]
        name = _PLACEHOLDERS.get(found[1], found[1])
        if name and name not in prompt.inputs:
            return found[0]
        named.add(name)
        return f"${{{name}}}" if name else ""

    prompt = replace(prompt, is_custom=True, takes_one_fact=re.search(r"\{\s*candidate_fact\s*\}", text) is not None)
    text = _PLACEHOLDER.sub(filled, text.replace("$", "$$"))
    if named >= prompt.inputs & _DATA:
        return replace(prompt, system="", reply="", user=text)
    return replace(prompt, system=text)


def _followed_by(prompt: Prompt, text: str) -> Prompt:
    """Return a prompt with more instructions at their end, in which `$` begins a variable."""
    return replace(prompt, reply="\n\n".join(filter(None, (prompt.reply, text))))


@dataclass(frozen=True, slots=True)
class PromptFiles:
    """The prompts by name. A file in the user's folder comes before the shipped one, and edits apply at once.

    `needed` maps the name of each prompt to the inputs its stage passes. `system_texts` maps names to texts that
    replace the instructions, as `with_text` does. `additions` maps names to texts that follow these.
    """

    needed: Mapping[str, frozenset[str]]
    directory: Path | None = None
    system_texts: Mapping[str, str] = field(default_factory=dict[str, str])
    additions: Mapping[str, str] = field(default_factory=dict[str, str])

    def path(self, name: str) -> Path:
        """Return the file that the prompt `name` is read from. Raises PromptError for an unknown name."""
        if name not in self.needed:
            raise PromptError(f"there is no prompt '{name}'; the prompts are {', '.join(sorted(self.needed))}")
        if self.directory is not None and (own := self.directory / f"{name}.md").is_file():
            return own
        return shipped_directory() / f"{name}.md"

    def get(self, name: str) -> Prompt:
        """Return the prompt `name` as its file says now. Raises PromptError."""
        prompt = self.read(self.path(name), name)
        if name in self.system_texts:
            prompt = with_text(prompt, self.system_texts[name])
        if name in self.additions:
            prompt = _followed_by(prompt, self.additions[name].replace("$", "$$"))
        if (added := ADDED_PROMPTS.get(name, "")) in self.needed:
            extra = self.get(added)
            prompt = _followed_by(_followed_by(prompt, extra.system), extra.reply)
            prompt = replace(prompt, unwanted=frozenset() if extra.system or extra.reply else ADDED_FIELDS[added])
        return prompt

    def read(self, path: Path, name: str) -> Prompt:
        """Return the prompt in a file, as the stage `name` needs it. Raises PromptError."""
        with raised_as(PromptError, f"{path}: cannot be read", "", OSError, UnicodeDecodeError):
            return parse(path.read_text("utf-8-sig"), path, name, self.needed[name])

    def check(self) -> None:
        """Read every prompt. Raises PromptError, also for a file in the user's folder that matches no prompt."""
        if self.directory is not None:
            if not self.directory.is_dir():
                raise PromptError(f"prompts_dir {self.directory} is not a folder")
            for file in sorted(self.directory.glob("*.md")):
                if file.stem.upper() != "README":
                    self.path(file.stem)
        for name in self.needed:
            self.get(name)
