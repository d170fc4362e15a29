"""The lines of an exported memory: what each must hold, read strictly, written the same way every time.

The first line names the form and the user; then come turns, memories and summaries, one JSON object a line with its
keys in order, so that the same memory always makes the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias, cast

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from palimpsest.core.errors import InputError
from palimpsest.core.models import MAX_SCOPE_CHARS
from palimpsest.core.validation import scope_part

FORMAT = "palimpsest-export"
VERSION = 1


def _part(value: str) -> str:
    try:
        return scope_part("a scope", value)
    except InputError as error:
        raise ValueError(str(error)) from error


Id: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")]
Part: TypeAlias = Annotated[str, AfterValidator(_part)]
Name: TypeAlias = Annotated[str, Field(max_length=MAX_SCOPE_CHARS)]
Number: TypeAlias = Annotated[int, Field(ge=1, le=2**53)]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Header(_Line):
    """Take the first line."""

    format: Literal["palimpsest-export"]
    version: Literal[1]
    user_id: Part


class TurnPast(_Line):
    """Take one row of the history of a turn."""

    event: Literal["ADD", "DELETE"]
    updated_at: AwareDatetime
    stage: Name
    caller: Name
    change: Number


class TurnLine(_Line):
    """Take a turn of a conversation."""

    type: Literal["turn"]
    id: Id
    project: Part
    agent_id: Part
    run_id: Part
    role: Literal["user", "assistant"]
    name: Name
    content: str = Field(min_length=1)
    external_id: Name
    session_id: Id
    said_at: AwareDatetime
    created_at: AwareDatetime
    learnt: bool
    deleted_at: AwareDatetime | None
    history: list[TurnPast] = Field(min_length=1)


class MemoryState(_Line):
    """Take what a memory was besides its text."""

    metadata: dict[str, Any]
    keywords: list[str]
    tags: list[str]
    happened_at: str | None
    valid_from: str
    superseded_by: Id | None = None


class MemoryPast(_Line):
    """Take one row of the history of a memory."""

    id: Id
    old_memory: str | None
    new_memory: str | None
    event: Literal["ADD", "UPDATE", "DELETE"]
    created_at: AwareDatetime
    updated_at: AwareDatetime
    is_deleted: bool
    actor_id: Name
    role: Name
    state: MemoryState
    stage: Name
    model: Name
    prompt: Name
    caller: Name
    change: Number


class SourceLine(_Line):
    """Take which turn a memory came from, and which row of history brought it."""

    message_id: Id
    history_id: Id


class MemoryLine(_Line):
    """Take a memory, living or deleted, with its whole history."""

    type: Literal["memory"]
    id: Id
    project: Part
    agent_id: Part
    run_id: Part
    text: str = Field(min_length=1)
    keywords: list[str]
    tags: list[str]
    metadata: dict[str, Any]
    actor_id: Name
    role: Name
    happened_at: AwareDatetime | None
    valid_from: AwareDatetime
    valid_until: AwareDatetime | None
    created_at: AwareDatetime
    updated_at: AwareDatetime
    deleted_at: AwareDatetime | None
    superseded_by: Id | None
    revision: Number
    history: list[MemoryPast] = Field(min_length=1)
    sources: list[SourceLine]

    @model_validator(mode="after")
    def _sources_are_of_history(self) -> Self:
        if not {source.history_id for source in self.sources} <= {past.id for past in self.history}:
            raise ValueError("a source belongs to a row of history that is not there")
        return self


class SummaryLine(_Line):
    """Take a summary."""

    type: Literal["summary"]
    project: Part
    agent_id: Part
    run_id: Part
    kind: Name
    text: str
    model: Name
    prompt: Name
    created_at: AwareDatetime


Line: TypeAlias = Annotated[TurnLine | MemoryLine | SummaryLine, Field(discriminator="type")]
_LINE: TypeAdapter[TurnLine | MemoryLine | SummaryLine] = TypeAdapter(Line)


def line_of(value: Any) -> str:
    """Return a JSON value as one line, the same for the same value."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n"


def header_of(user_id: str) -> dict[str, Any]:
    """Return the first line of a user's export."""
    return {"format": FORMAT, "version": VERSION, "user_id": user_id}


def is_export(file: Path) -> bool:
    """Say whether a file begins as an export of ours, of whatever version."""
    try:
        with file.open("rb") as opened:
            found: Any = json.loads(opened.readline(10_000))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and cast("dict[str, Any]", found).get("format") == FORMAT


def read_items(file: Path) -> Iterator[dict[str, Any]]:
    """Yield what the lines of an export hold, times as datetimes. Raises InputError naming the line at fault."""
    number = 0
    ids: set[str] = set()
    try:
        with file.open(encoding="utf-8") as opened:
            for number, line in enumerate(opened, 1):
                if number == 1:
                    Header.model_validate_json(line)
                elif line.strip():
                    item = _LINE.validate_json(line).model_dump()
                    for each in _ids_in(item):
                        if each in ids:
                            raise InputError(f"{file}, line {number}: the id {each} stands there a second time")
                        ids.add(each)
                    yield item
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise InputError(f"{file}, line {number}: {place + ': ' if place else ''}{fault['msg']}") from error


def _ids_in(item: dict[str, Any]) -> list[str]:
    """Return the ids that an item brings: its own and those of its rows of history; a turn's rows have none."""
    return [item["id"], *(past["id"] for past in item["history"] if "id" in past)] if "id" in item else []
