"""What a person types for a filter, for metadata and for a text: in words, on standard input, or in an editor."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from typer.core import TyperCommand

from palimpsest.core.entities import Relation
from palimpsest.core.errors import InputError
from palimpsest.core.search.filters import FADED, FIELDS
from palimpsest.core.validation import relations_from

STANDARD_INPUT = "-"

_RELATION, _RELATION_PARTS = "--relation", 3

_CONDITION = re.compile(r"(?P<key>[^=<>!]+?)\s*(?P<sign>==|=|!=|>=|<=|>|<)\s*(?P<value>.+)", re.DOTALL)

_SIGNS = {"=": "eq", "==": "eq", "!=": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}

FILTER_HELP = (
    "Only what matches, such as kind=message, 'at>=2026-01-01' or a filter as JSON. May be repeated: all must match."
)

_EXAMPLES = '--filter topic=garden, --filter \'at>=2026-01-01\' or --filter \'{"topic": {"in": ["garden", "cats"]}}\''


def filters_from(conditions: Sequence[str]) -> dict[str, Any] | None:
    """Return the filter that all conditions make together, each JSON or KEY=VALUE; None without any.

    Raises InputError. What a filter as JSON means is checked where it is used.
    """
    filters = [_filter_from(condition.strip()) for condition in conditions]
    if len(filters) > 1:
        return {"AND": filters}
    return filters[0] if filters else None


def _filter_from(condition: str) -> dict[str, Any]:
    if condition.startswith("{"):
        try:
            return cast("dict[str, Any]", json.loads(condition))
        except json.JSONDecodeError as error:
            raise InputError(f"--filter is not JSON: {error}. A filter is such as {_EXAMPLES}") from error
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise InputError(f"--filter '{condition[:80]}' has no KEY, sign and VALUE; use {_EXAMPLES}")
    key, operator = match["key"].strip(), _SIGNS[match["sign"]]
    readings = _readings(match["value"])
    values = readings[:1] if key == FADED else [match["value"]] if key in FIELDS else readings
    if len(values) == 1:
        return {key: {operator: values[0]}}
    if operator in ("eq", "ne"):
        return {key: {"in" if operator == "eq" else "nin": values}}
    return {"OR": [{key: {operator: value}} for value in values if value is not None]}


def _readings(text: str) -> list[Any]:
    """Return what a value in the metadata may be that a person writes so: `3` is a number or a text, `"3"` a text."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except ValueError:
        return [text]
    if isinstance(value, str):
        return [value]
    return [text] if isinstance(value, list | dict) else [value, text]


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


class WithRelations(TyperCommand):
    """A command whose option `--relation` takes three values. In Typer such an option cannot be repeated."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the three values after each `--relation` as one."""
        return super().parse_args(ctx, _with_joined_relations(args))


def _with_joined_relations(args: Sequence[str]) -> list[str]:
    """Return arguments with the three values after each `--relation` as a list in JSON."""
    joined: list[str] = []
    rest = list(args)
    while rest:
        argument = rest.pop(0)
        joined.append(argument)
        values = rest[:_RELATION_PARTS]
        if argument == _RELATION and len(values) == _RELATION_PARTS:
            joined.append(json.dumps(values))
            del rest[:_RELATION_PARTS]
    return joined


def relations_from_words(words: Sequence[str]) -> tuple[Relation, ...]:
    """Return the relations that `--relation` gives, each a list of three names in JSON. Raises InputError."""
    try:
        relations = [[str(name) for name in json.loads(word)] for word in words]
    except (json.JSONDecodeError, TypeError) as error:
        raise InputError(f"{_RELATION} needs three names, such as {_RELATION} Ana 'lives in' Lyon") from error
    return relations_from(relations)


def metadata_from_words(pairs: Sequence[str], *, may_remove: bool) -> dict[str, Any]:
    """Return the metadata of KEY=VALUE pairs. A value that is JSON is stored as such, any other as a text.

    With `may_remove`, `KEY=` removes a key. Raises InputError.
    """
    metadata: dict[str, Any] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key.strip():
            raise InputError(f"--metadata '{pair[:80]}' is not KEY=VALUE. Nothing was done")
        if not value and not may_remove:
            raise InputError(f"--metadata '{pair[:80]}' has no value. Nothing was stored")
        metadata[key.strip()] = _stored(value) if value else None
    return metadata


def _stored(value: str) -> Any:
    """Return a value as metadata keeps it. `null` is a text here, because the removal of a key is written `KEY=`."""
    try:
        read = json.loads(value, parse_constant=_refuse)
    except ValueError:
        return value
    return value if read is None else read


def text_given(text: str) -> str:
    """Return a text, or what standard input has if it is "-". Raises InputError if that is not UTF-8."""
    if text != STANDARD_INPUT:
        return text
    if sys.stdin is None:
        raise InputError("standard input is closed, so there is no text to read. Nothing was done")
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"standard input is not UTF-8: {error}. Nothing was done") from error


def edited(text: str, editor: str) -> tuple[str, Path]:
    """Let the person edit a text. Return what they saved, and the file that has it, for the caller to delete.

    `editor` is its command; "" is that of the system, if a person sits at the terminal. Raises InputError.
    """
    command = editor or _editor_of_the_system()
    descriptor, name = tempfile.mkstemp(prefix="palimpsest-", suffix=".txt")  # readable for its owner only
    file = Path(name)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
        stream.write(f"{text}\n")
    try:
        subprocess.run([*shlex.split(command), name], check=True)  # noqa: S603 - the person's own editor
        return file.read_text("utf-8"), file
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        file.unlink(missing_ok=True)
        raise InputError(f"the editor '{command}' failed: {error}. Nothing was changed") from error


def _editor_of_the_system() -> str:
    if sys.stdin is None or not sys.stdin.isatty():
        raise InputError(
            "there is no new text. Nothing was changed. Give it as the second argument, or - for standard input, or "
            "set EDITOR to the editor to use"
        )
    return "notepad" if sys.platform == "win32" else "vi"
