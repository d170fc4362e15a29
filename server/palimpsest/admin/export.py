"""Export a user's memory as JSON lines, without loss. Blocking."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TextIO, TypeAlias

from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, TypeAdapter, ValidationError, model_validator

from palimpsest.core.clock import Precision, parse_date
from palimpsest.core.errors import InputError, raised_as
from palimpsest.core.files import open_plain_file, replace_file
from palimpsest.core.models import MAX_NAME_CHARS, MAX_SCOPE_CHARS, EntityType, name_key
from palimpsest.core.protocols import Progress
from palimpsest.core.validation import checked, fault_text, json_object, object_of, scope_part
from palimpsest.learn.engine import Engine
from palimpsest.store import transfer
from palimpsest.store.writes import MAX_TITLE_CHARS
from palimpsest.text.display import visible_json

# What the lines of an exported memory must have in common: ids that are in it once, and entities that are in it.


@dataclass(slots=True)
class ExportChecks:
    """The ids of the lines that were read, the project of each entity, and whether one is the user."""

    ids: set[str] = field(default_factory=set[str])
    entities: dict[str, str] = field(default_factory=dict[str, str])
    has_user: bool = False

    def add(self, item: dict[str, Any]) -> str:
        """Remember a line, and return what does not fit the lines before it, or ""."""
        own = [item["id"], *(row["id"] for row in item["history"] if "id" in row)] if "id" in item else []
        for item_id in own:
            if item_id in self.ids:
                return f"the id {item_id} is in the file twice"
            self.ids.add(item_id)
        named = [mention["entity_id"] for mention in item.get("mentions", ())]
        if item["type"] == "entity":
            named += [item["merged_into"]] if item["merged_into"] else []
            if item["is_user"] and self.has_user:
                return "the file has two entities of the user"
            self.has_user |= item["is_user"]
            self.entities[item["id"]] = item["project"]
        for entity_id in named:
            if self.entities.get(entity_id) not in ("", item["project"]) or entity_id == item["id"]:
                return f"no entity {entity_id} of this project comes before this line"
        return ""


# The JSON lines of an exported memory: their fields, strict reading, and writing that is the same every time.
#
# The first line names the format and the user. Then come aliases of projects, conversations, entities, messages
# memories and summaries, one JSON object per line. The keys are sorted, so the same memory
# is always exported to the same bytes.

FORMAT = "palimpsest-export"

# The version of the first release.
VERSION = 5


# The longest path of Linux.
MAX_ALIAS_CHARS = 4_096


def _valid_name(value: str) -> str:
    if not name_key(value):
        raise ValueError("the name of an entity has no letter or digit")
    return value


def _valid_time(value: str) -> str:
    if value and parse_date(value) is None:
        raise ValueError("a relation holds from and until a day, a month or a year in ISO 8601, or an unknown time")
    return value


Id: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")]
ScopePart: TypeAlias = Annotated[str, AfterValidator(lambda value: checked(scope_part, "a scope", value))]
Name: TypeAlias = Annotated[str, Field(max_length=MAX_SCOPE_CHARS)]
EntityName: TypeAlias = Annotated[str, Field(max_length=MAX_NAME_CHARS), AfterValidator(_valid_name)]
NamedEntities: TypeAlias = list[tuple[EntityName, EntityType]]
Time: TypeAlias = Annotated[str, AfterValidator(_valid_time)]
Relations: TypeAlias = list[
    tuple[EntityName, Name, EntityName]
    | tuple[EntityName, Name, EntityName, Time]
    | tuple[EntityName, Name, EntityName, Time | None, Time]
]
Links: TypeAlias = list[tuple[Id, str]]
Metadata: TypeAlias = Annotated[dict[str, Any], AfterValidator(json_object)]
Number: TypeAlias = Annotated[int, Field(ge=1, le=2**53)]


class _Line(BaseModel, extra="forbid", strict=True):
    """A line of an export, or a part of one."""


class _InScope(_Line):
    project: ScopePart
    agent_id: ScopePart
    run_id: ScopePart


class _Edit(_Line):
    """What every row of history has. `change` is the number of the edit."""

    updated_at: AwareDatetime
    stage: Name
    caller: Name
    change: Number


class _Edited(_Edit):
    """A row of the history of a memory or message. `recorded_at` is when it was imported."""

    recorded_at: AwareDatetime | None = None


class Header(_Line):
    """The first line."""

    format: Literal["palimpsest-export"]
    version: Literal[5]
    user_id: ScopePart


class _OfProject(_Line):
    project: ScopePart
    agent_id: Literal[""]
    run_id: Literal[""]


class AliasLine(_OfProject):
    """What a project is also known by: the root of a repository, a remote, or an older name."""

    type: Literal["alias"]
    kind: Literal["path", "remote", "name"]
    alias: Annotated[str, Field(min_length=1, max_length=MAX_ALIAS_CHARS)]
    repository_created: Annotated[int, Field(ge=0, le=2**53)]
    created_at: AwareDatetime


class ConversationLine(_InScope):
    """What is known of a conversation besides its messages, which have its session id."""

    type: Literal["conversation"]
    session_id: Id
    client: Annotated[str, Field(max_length=32)]
    external_id: Name
    title: Annotated[str, Field(max_length=MAX_TITLE_CHARS)]
    created_at: AwareDatetime


# What an edit changed of entities: the name, type or target of one, a given name by its key, what a name means.
State: TypeAlias = list[
    tuple[Literal["entity"], Id, Literal["name"], EntityName]
    | tuple[Literal["entity"], Id, Literal["type"], EntityType]
    | tuple[Literal["entity"], Id, Literal["merged_into"], Id | None]
    | tuple[Literal["alias"], Id, EntityName, EntityName | None]
    | tuple[Literal["mention"], Literal["memory", "message"], Id, EntityName, Id]
]


class EntityHistoryRow(_Edit):
    """One edit of an entity. `text` is the line of it in the log."""

    event: Literal["merge", "split", "rename", "undo"]
    before: State
    after: State
    text: str


class EntityLine(_OfProject):
    """Somebody or something that memories mention, with the names that a person gave it and its edits."""

    type: Literal["entity"]
    id: Id
    name: EntityName
    entity_type: EntityType
    is_user: bool
    merged_into: Id | None
    aliases: list[EntityName]
    created_at: AwareDatetime
    history: list[EntityHistoryRow]

    @model_validator(mode="after")
    def _user_is_global(self) -> Self:
        if self.is_user and self.project:
            raise ValueError("the user's own entity belongs to no project")
        return self


class Mention(_Line):
    """Which entity a name means in a memory or message."""

    name: EntityName
    entity_id: Id


def _different_names(mentions: list[Mention]) -> list[Mention]:
    if len({name_key(mention.name) for mention in mentions}) < len(mentions):
        raise ValueError("a name means two entities")
    return mentions


Mentions: TypeAlias = Annotated[list[Mention], AfterValidator(_different_names)]


class MessageHistoryRow(_Edited):
    """One row of a message's history."""

    event: Literal["ADD", "DELETE"]


class GistRow(_Line):
    """What a page says in short, and the model and prompt that it comes from."""

    text: Annotated[str, Field(min_length=1)]
    model: Name
    prompt: Name


class MessageLine(_InScope):
    """A message of a conversation, or a page of a document, which may have a gist."""

    type: Literal["message"]
    id: Id
    role: Literal["user", "assistant", "document"]
    name: Name
    content: str = Field(min_length=1)
    external_id: Name
    session_id: Id
    said_at: AwareDatetime
    created_at: AwareDatetime
    learnt: bool
    deleted_at: AwareDatetime | None
    gist: GistRow | None = None
    mentions: Mentions = []
    history: list[MessageHistoryRow] = Field(min_length=1)


class MemoryState(_Line):
    """What a version of a memory has besides its text. Other tools' files lack what has a default."""

    metadata: Metadata
    keywords: list[str]
    tags: list[str]
    happened_at: str | None
    happened_precision: Precision = ""
    stated_at: str = ""
    valid_from: str | None
    valid_from_precision: Precision = ""
    valid_until: str | None = None
    valid_until_precision: Precision = ""
    superseded_by: Id | None = None
    is_forgotten: bool | None = None
    entities: NamedEntities = []
    relations: Relations = []
    context: str = ""
    links: Links = []


class MemoryHistoryRow(_Edited):
    """One version of a memory."""

    id: Id
    old_memory: str | None
    new_memory: str | None
    event: Literal["ADD", "UPDATE", "DELETE"]
    created_at: AwareDatetime
    is_deleted: bool
    actor_id: Name
    role: Name
    state: MemoryState
    model: Name
    prompt: Name


class Source(_Line):
    """A message that a memory came from, and the version that was learned from it."""

    message_id: Id
    history_id: Id


class MemoryLine(_InScope):
    """A memory, deleted or not, with its whole history."""

    type: Literal["memory"]
    id: Id
    text: str = Field(min_length=1)
    keywords: list[str]
    tags: list[str]
    metadata: Metadata
    actor_id: Name
    role: Name
    happened_at: AwareDatetime | None
    happened_precision: Precision
    stated_at: AwareDatetime
    valid_from: AwareDatetime | None
    valid_from_precision: Precision
    valid_until: AwareDatetime | None
    valid_until_precision: Precision
    created_at: AwareDatetime
    updated_at: AwareDatetime
    deleted_at: AwareDatetime | None
    superseded_by: Id | None
    is_forgotten: bool
    revision: Number
    entities: NamedEntities | None = None
    relations: Relations | None = None
    context: str = ""
    links: Links = []
    strength: Number | None = None
    used_at: AwareDatetime | None = None
    mentions: Mentions = []
    history: list[MemoryHistoryRow] = Field(min_length=1)
    sources: list[Source]

    @model_validator(mode="after")
    def _sources_have_versions(self) -> Self:
        if not {source.history_id for source in self.sources} <= {row.id for row in self.history}:
            raise ValueError("a source names a version that is missing from the memory's history")
        return self


class SummaryLine(_InScope):
    """A summary of a scope. If it is known what it rests on: memories by id with their revision, and messages."""

    type: Literal["summary"]
    kind: Name
    text: str
    model: Name
    prompt: Name
    created_at: AwareDatetime
    sources: dict[Id, Number] = {}
    message_ids: list[Id] = []


AnyLine: TypeAlias = AliasLine | ConversationLine | EntityLine | MessageLine | MemoryLine | SummaryLine
_LINE: TypeAdapter[AnyLine] = TypeAdapter(Annotated[AnyLine, Field(discriminator="type")])


def line_of(value: Any) -> str:
    """Return a JSON value as one line, with control characters escaped. The same value always makes the same line."""
    line = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return visible_json(line) + "\n"


def is_export(file: Path) -> bool:
    """Return whether a file begins like an export of Palimpsest. Raises InputError for a device."""
    if file.is_dir():
        return False
    with suppress(OSError, ValueError, RecursionError), open_plain_file(file) as stream:
        return object_of(json.loads(stream.readline(10_000))).get("format") == FORMAT
    return False


def read_items(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the items of an export, with times as datetimes. Raises InputError that names the damaged line."""
    number = 0
    checks = ExportChecks()
    try:
        with file.open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, 1):
                if number == 1:
                    Header.model_validate_json(line)
                elif line.strip():
                    item = _LINE.validate_json(line).model_dump(exclude_unset=True)
                    if fault := checks.add(item):
                        raise InputError(f"{file}, line {number}: {fault}. Nothing was imported")
                    yield item
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}. Nothing was imported") from error
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        at_fault = ": ".join(filter(None, (".".join(map(str, fault["loc"])), fault_text(fault))))
        raise InputError(f"{file}, line {number}: {at_fault}. Nothing was imported") from error


def export(engine: Engine, user_id: str, out: Path | TextIO, progress: Progress) -> int:
    """Write everything of a user to a new file (mode 0600) or to a stream, and return the number of items. Blocking.

    Raises InputError if the file exists or cannot be written; then no file is left.
    """
    if not isinstance(out, Path):
        return _write_lines(engine, user_id, out, progress)
    if out.exists():
        raise InputError(f"{out} already exists. Nothing was written. Name a new file, or use - for standard output")
    fault = f"{out} cannot be written"
    with raised_as(InputError, fault, ". Nothing was exported", OSError), replace_file(out) as file:
        return _write_lines(engine, user_id, file, progress)


def _write_lines(engine: Engine, user_id: str, out: TextIO, progress: Progress) -> int:
    with engine.ledger.read() as conn:
        total = transfer.count(conn, user_id)
        out.write(line_of({"format": FORMAT, "version": VERSION, "user_id": user_id}))
        for number, item in enumerate(transfer.export_items(conn, user_id), 1):
            out.write(line_of(item))
            progress(number, total)
    return total
