"""Memories as a folder of Markdown files: items, the manifest, how the folder is read, and how an export writes it.

The same memory makes the same bytes, so the folder can be kept in git. A file that is not ours is never touched, and
one of ours that was edited since only if the caller says so. Blocking.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, fields, replace
from datetime import tzinfo
from itertools import count, groupby, pairwise
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeAlias
from uuid import uuid4

import yaml
from pydantic import AfterValidator, BaseModel, Field, ValidationError
from sqlalchemy import Connection

from palimpsest.admin.export import Id, ScopePart
from palimpsest.core.clock import parse_date, parse_until
from palimpsest.core.errors import InputError, raised_as
from palimpsest.core.files import replace_file
from palimpsest.core.models import EXPIRES_AT, PINNED, Entity, EntityType, KnownRelation, Memory, Scope, name_key
from palimpsest.core.protocols import Progress
from palimpsest.core.validation import fault_text, object_of, one_line
from palimpsest.store import memories as memory_queries
from palimpsest.store.graph import entities
from palimpsest.store.graph import relations as relation_queries
from palimpsest.store.ledger import Ledger
from palimpsest.store.rows import scope_values
from palimpsest.text.display import counted, visible, visible_json

# Memories as items of a Markdown list: how they are written, and how they are read again after an editor had them.
#
# An item is the text, indented as Markdown wants it, and a last line with its labels and its mark:
#
#     - Ana moved to Lyon.
#       2026-05-08 · since 2025-03 · #family ^3a090c21
#
# The mark is a block id as Obsidian has them, the first characters of the memory's id. One word at the end of a line
# survives cutting, pasting and sorting in any editor, and can be linked to. A comment would be hidden while it is
# read, but in the way of everybody who edits. The labels have a line of their own, so no text can be taken for them.

SEPARATOR = " · "

_SIMPLE_TAG = re.compile(r"[\w/-]*[^\W\d_][\w/-]*")
"""A tag as Obsidian knows it. Others are written as JSON strings."""

_LABEL = re.compile(
    r"(?:since[ ]+(?P<since>\S+)"
    r"|until[ ]+(?P<until>\S+)"
    r"|(?P<pinned>pinned(?:[ ]+-?[0-9]+(?:\.[0-9]+)?)?)"
    r'|\#(?P<quoted>"(?:[^"\\]|\\.)*")'
    r'|\#(?P<tag>[^\s\#"·]+)'
    r"|(?P<date>[0-9]{4}(?:-[0-9]{2}(?:-[0-9]{2})?)?))"
    r"(?:[ \t]*·)?(?:[ \t]+|$)"
)
_MARK = re.compile(r"(?:^|[ \t])\^(?P<mark>[0-9a-f]{8}(?:-[0-9a-f-]{0,27})?)$")
_MARKED_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ \t]|$)")


@dataclass(frozen=True, slots=True)
class ItemFields:
    """What an item says of a memory. Every part is text as it stands in the file, and "" if it is not there.

    `date` is the day, month or year that the memory is about, `since` from when it holds, `until` when it expires, and
    `pinned` "pinned", perhaps with a number.
    """

    text: str
    date: str = ""
    since: str = ""
    until: str = ""
    pinned: str = ""
    tags: tuple[str, ...] = ()


PARTS = tuple(part.name for part in fields(ItemFields))
"""What an item can say and an import can change."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an item stands: the file, by its path in the folder, and the line, counted from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        """Return the place in words."""
        return f"{self.file}, line {self.line}"


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a file. `has_labels` tells whether it had a line of labels, and `mark` is "" for a new one."""

    fields: ItemFields
    mark: str
    has_labels: bool
    place: Place

    def fill_in(self, here: ItemFields) -> ItemFields:
        """Return all that the item says: without a line of labels those of `here`, and without a date its date."""
        if not self.has_labels:
            return replace(here, text=self.fields.text)
        return self.fields if self.fields.date else replace(self.fields, date=here.date)


def fields_of(memory: Memory) -> ItemFields:
    """Return what an item says of a memory."""
    return ItemFields(
        canonical(memory.text),
        memory.date,
        memory.since,
        _until(memory.metadata),
        _pinned(memory.metadata),
        tuple(dict.fromkeys(memory.tags)),
    )


def _until(metadata: Mapping[str, Any]) -> str:
    """Return when a memory expires, or "" if its metadata says nothing that an item can show."""
    value = metadata.get(EXPIRES_AT)
    return value if isinstance(value, str) and value.isprintable() and _is_time(value) else ""


def _is_time(value: str) -> bool:
    try:
        parse_until(value, "until")
    except InputError:
        return False
    return " " not in value


def _pinned(metadata: Mapping[str, Any]) -> str:
    value = metadata.get(PINNED)
    if value is True:
        return "pinned"
    words = f"pinned {value}" if isinstance(value, int | float) and value is not False else ""
    return words if _LABEL.fullmatch(words) else ""


def pinned_value(words: str) -> bool | int | float | None:
    """Return the metadata that `ItemFields.pinned` stands for."""
    number = words.removeprefix("pinned").strip()
    if not number:
        return True if words else None
    return float(number) if "." in number else int(number)


def canonical(text: str) -> str:
    """Return a text as it is read again from the item it is written as: control characters visible, no loose ends."""
    return "\n".join(line.rstrip() for line in visible(text).split("\n")).strip()


def format_item(fields: ItemFields, mark: str) -> str:
    """Return an item as the lines of a file."""
    first, *others = fields.text.split("\n")
    lines = [f"- {first}", *(f"  {line}" if line else "" for line in others)]
    times = [f"{word} {time}" for word, time in (("since", fields.since), ("until", fields.until)) if time]
    labels = (fields.date, *times, fields.pinned, " ".join(map(_tag, fields.tags)))
    return "\n".join((*lines, f"  {SEPARATOR.join(filter(None, labels))} ^{mark}\n"))


def _tag(tag: str) -> str:
    return f"#{tag}" if _SIMPLE_TAG.fullmatch(tag) else f"#{visible_json(json.dumps(tag, ensure_ascii=False))}"


def read_item(lines: list[str], place: Place) -> Item | None:
    """Return an item from its lines, without the bullet and the indentation; None for one that is empty.

    The last line of one without a mark may have labels if that begins with a day. Raises InputError that names the line
    that cannot be read.
    """
    while lines and not lines[-1].strip():
        lines.pop()
    last = len(lines) - 1
    at = replace(place, line=place.line + last)
    marked = next((number for number in reversed(range(len(lines))) if _MARK.search(lines[number].rstrip())), None)
    if marked is None and not canonical("\n".join(lines)).strip("*-_ \t"):
        return None  # a bullet that waits for its text, or a line across the page
    if marked is not None and marked < last:
        raise _unreadable(
            replace(place, line=place.line + marked + 1),
            "text after the line with the mark. Put it above that line, or begin a new item with '- '",
        )
    rest, _, mark = lines.pop().rpartition("^") if marked is not None else (lines.pop(), "", "")
    labels = _labels(rest.strip()) if last and (mark or _MARKED_DATE.match(rest.strip())) else None
    if mark and last and labels is None:
        raise _unreadable(
            at,
            f"'{one_line(rest)[:60]}' cannot be read as labels, which look like: 2026-05-08 · since 2025-03 · "
            "until 2026-12-31 · pinned · #tag",
        )
    text = canonical("\n".join(lines if labels is not None else (*lines, rest)))
    said = _checked(replace(labels or ItemFields(""), text=text), at)
    if mark and not said.text:
        raise _unreadable(place, f"^{mark} has no text. Remove the whole item to delete the memory")
    return Item(said, mark.rstrip(), has_labels=labels is not None, place=place)


def _labels(line: str) -> ItemFields | None:
    """Return a line of labels without a text, or None if something in it is no label or says it twice."""
    matches = list(_LABEL.finditer(line))
    labels = [(str(match.lastgroup), match[str(match.lastgroup)]) for match in matches]
    found = {kind: one_line(value) for kind, value in labels if kind not in ("tag", "quoted")}
    of_tags = [(kind, value) for kind, value in labels if kind not in found]
    if "".join(match[0] for match in matches) != line or len(found) + len(of_tags) < len(labels):
        return None
    try:
        tags = [str(json.loads(value)) if kind == "quoted" else value for kind, value in of_tags]
    except ValueError:
        return None
    return ItemFields("", tags=tuple(dict.fromkeys(tags)), **found)


def _checked(shown: ItemFields, place: Place) -> ItemFields:
    """Return what was read, if its dates are dates. Raises InputError."""
    for what, value in (("date", shown.date), ("since", shown.since)):
        if value and parse_date(value) is None:
            raise _unreadable(place, f"the {what} '{value[:40]}' is no day, month or year, such as 2026-05-08")
    if shown.until and not _is_time(shown.until):
        raise _unreadable(place, f"'until {shown.until[:40]}' is no ISO 8601 date or time, such as 2026-12-31")
    return shown


def _unreadable(place: Place, fault: str) -> InputError:
    return InputError(f"{place}: {fault}. Nothing was imported")


# The file `.palimpsest.json` in the folder of an export: which memories stand where, and digests of what they said.
#
# It is data like the files beside it. Whoever edits it can bring about no more than by editing them.

MANIFEST = ".palimpsest.json"

MAX_MANIFEST_BYTES = 128 * 2**20
"""More than a hundred thousand memories."""

_PART = re.compile(r"[^/\\:\x00]+")


def _path_in_folder(value: str) -> str:
    path = PurePosixPath(value)
    is_plain = str(path) == value and path.suffix == ".md"
    if not is_plain or any(_PART.fullmatch(part) is None or part.startswith(".") for part in path.parts):
        raise ValueError("not the path of a Markdown file in the folder")
    return value


FilePath: TypeAlias = Annotated[str, AfterValidator(_path_in_folder)]
Digest: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ManifestEntry(BaseModel, extra="forbid", frozen=True):
    """A memory at the export or the last import: the file of its item, the revision, and digests of text and item."""

    file: str
    revision: Annotated[int, Field(ge=1, le=2**53)]
    text: Digest
    item: Digest

    def is_of(self, item: Item) -> bool:
        """Return whether an item says what it said then. One without a line of labels says only a text."""
        if item.has_labels:
            return self.item == fields_digest(item.fields)
        return self.text == digest(item.fields.text.encode())


class Manifest(BaseModel, extra="forbid", frozen=True):
    """The whole file."""

    format: Literal["palimpsest-markdown"] = "palimpsest-markdown"
    version: Literal[1] = 1
    user_id: ScopePart
    project: ScopePart
    agent_id: ScopePart
    run_id: ScopePart
    files: dict[FilePath, Digest]
    memories: dict[Id, ManifestEntry]

    @property
    def scope(self) -> Scope:
        """Return the scope that was exported."""
        return Scope(self.user_id, self.project, self.agent_id, self.run_id)


def digest(data: bytes) -> str:
    """Return the digest of a file."""
    return hashlib.sha256(data).hexdigest()


def manifest_entry(file: str, revision: int, shown: ItemFields) -> ManifestEntry:
    """Return the entry of a memory whose item says this."""
    return ManifestEntry(file=file, revision=revision, text=digest(shown.text.encode()), item=fields_digest(shown))


def fields_digest(shown: ItemFields) -> str:
    """Return the digest of what an item says."""
    return digest(json.dumps(astuple(shown)).encode())


def manifest_text(manifest: Manifest) -> str:
    """Return a manifest as text. The same manifest always makes the same text, with few changed lines for few edits."""
    text = json.dumps(manifest.model_dump(mode="json"), ensure_ascii=False, sort_keys=True, indent=1)
    return f"{visible_json(text)}\n"


def has_manifest(folder: Path) -> bool:
    """Return whether a folder is an export, by its manifest."""
    return folder.is_dir() and (folder / MANIFEST).is_file()


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder. Raises InputError if it cannot be read or says what no export says."""
    file = folder / MANIFEST
    advice = "Nothing was done. Bring that file back, or export to a new folder"
    try:
        if file.is_symlink():
            raise InputError(f"{file} is a symbolic link. {advice}")
        if file.stat().st_size > MAX_MANIFEST_BYTES:
            raise InputError(f"{file} is larger than {MAX_MANIFEST_BYTES // 2**20} MB. {advice}")
        return Manifest.model_validate_json(file.read_bytes())
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error}. {advice}") from error
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in fault["loc"])[:100]
        raise InputError(f"{file} is damaged: {place}: {fault_text(fault)}. {advice}") from error


# Read the files of a folder: their front matter, and the items in them with the lines where they stand.

KIND = "palimpsest"
"""The key of the front matter by which a file is ours: "entity", "topic", "month" or "index"."""

INDEX = "index"

MAX_FRONT_CHARS = 64_000
"""YAML parses slowly, and an entity's names and relations need far less."""

_FENCE = "---"
_BULLET = re.compile(r"[-*+](?:[ \t]+(?P<text>.*))?$")
_RULE = re.compile(r"(?:-{3,}|\*{3,}|_{3,})\s*$")


@dataclass(frozen=True, slots=True)
class FileText:
    """A file as it was read. `kind` and `project` are those of its front matter.

    `kind` is "" if the file is none of ours. `body` are its lines, without the front matter, and `first` is the number
    of the first of them.
    """

    path: str
    kind: str
    project: str
    body: tuple[str, ...]
    first: int


def split_file(path: str, data: bytes) -> FileText:
    """Return the parts of a file. Raises InputError if it is no text or its front matter cannot be read."""
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8 ({error.reason}). Nothing was imported") from error
    if "\0" in text:
        raise InputError(f"{path} is no text: it has NUL characters. Nothing was imported")
    lines = text.split("\n")
    fences = [number for number, line in enumerate(lines) if line.rstrip() == _FENCE][:2]
    end = fences[1] if fences[:1] == [0] and len(fences) > 1 else 0
    values = _front_values(path, "\n".join(lines[1:end]))
    kind, project = (values.get(key, "") for key in (KIND, "project"))
    for key, value in ((KIND, kind), ("project", project)):
        if not isinstance(value, str):
            raise InputError(f"{path}: '{key}' in the front matter is no text. Nothing was imported")
    start = end + 1 if end else 0
    return FileText(path, kind, project, tuple(lines[start:]), start + 1)


def is_like_ours(data: bytes) -> bool:
    """Return whether a file says in its front matter that it is of an export, whether that can be read or not."""
    return f"\n{KIND}: ".encode() in data[:MAX_FRONT_CHARS]


def _front_values(path: str, front: str) -> Mapping[str, Any]:
    if len(front) > MAX_FRONT_CHARS:
        raise InputError(f"the front matter of {path} is longer than {MAX_FRONT_CHARS:,} characters")
    try:
        values: Any = yaml.safe_load(front) if front else {}
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 2 if error.problem_mark is not None else 1
        problem = one_line(str(error.problem))
        raise InputError(
            f"{path}, line {line}: the front matter is no YAML: {problem}. Nothing was imported"
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that is none, or brackets without end
        raise InputError(f"{path}: the front matter cannot be read as YAML. Nothing was imported") from error
    return object_of(values)


def items_of(file: FileText, *, is_ours: Callable[[str], bool]) -> list[Item]:
    """Return the items of a file that an export wrote, or that says it is one. Raises InputError that names the line.

    Of any other file these are the marked items for whose mark `is_ours`: somebody has moved them there. Headings,
    quotes and lines across the page are no items.
    """
    items: list[Item] = []
    for place, lines in _lines_of_items(file):
        try:
            item = read_item(lines, place)
        except InputError:
            if file.kind:
                raise
            continue  # nothing can be at fault in a file that is none of ours
        if item is not None and (file.kind or (item.mark and is_ours(item.mark))):
            items.append(item)
    return items


def _lines_of_items(file: FileText) -> Iterator[tuple[Place, list[str]]]:
    """Yield the place and the lines of each item, without bullet and indentation. Raises InputError for a stray one."""
    place, lines = Place(file.path, file.first), list[str]()
    for number, line in enumerate(file.body, file.first):
        bullet = _BULLET.match(line)
        if bullet is None and lines and (not line.strip() or line.startswith(("  ", "\t"))):
            lines.append(line[1:] if line.startswith("\t") else line[2:])
            continue
        if lines:
            yield place, lines
        place, lines = Place(file.path, number), [bullet["text"] or ""] if bullet is not None else []
        if bullet is None:
            _refuse_stray(file, line, place)
    if lines:
        yield place, lines


def _refuse_stray(file: FileText, line: str, place: Place) -> None:
    """Raise InputError for a line of one of our files that is neither an item nor anything that is left alone."""
    if not file.kind or not line.strip() or line.startswith(("#", ">")) or _RULE.match(line):
        return
    raise InputError(
        f"{place}: '{one_line(line)[:60]}' belongs to no item. Begin it with '- ' to make it a "
        "memory, indent it by two spaces to add it to the item above, or begin it with '> ' to keep it as a note. "
        "Nothing was imported"
    )


# The folder of an export on the disk: which files are read, and how ours are written. No link leads out of it.

MAX_FILES = 50_000
MAX_FILE_BYTES = 32 * 2**20
MAX_FOLDER_BYTES = 512 * 2**20
"""Bounds of what is read, far above what a person keeps in a folder of notes."""

MAX_NAMED = 5
"""How many files an error or a note names."""

MEGABYTE = 2**20


def read_folder(folder: Path) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the Markdown files of a folder and the folders in it, without hidden ones and other exports.

    They have their paths in it, and so do those that were not read, with the reason. Raises InputError for a folder
    beyond the bounds, or that cannot be read.
    """
    files: dict[str, bytes] = {}
    unread: dict[str, str] = {}
    size = 0
    with raised_as(InputError, f"{folder} cannot be read", ". Nothing was done", OSError):
        for number, path in enumerate(_markdown_files(folder)):
            if number >= MAX_FILES:
                raise InputError(f"{folder} has more than {MAX_FILES:,} Markdown files. Nothing was done")
            name = path.relative_to(folder).as_posix()
            status = path.lstat()
            if reason := _reason_against(status):
                unread[name] = reason
                continue
            size += status.st_size
            if size > MAX_FOLDER_BYTES:
                megabytes = MAX_FOLDER_BYTES // MEGABYTE
                raise InputError(f"{folder} has more than {megabytes} MB of Markdown. Nothing was done")
            files[name] = _read(path)
    return files, unread


def listed(paths: Sequence[str]) -> str:
    """Return the first of some paths in one line, and how many more there are."""
    more = f" and {len(paths) - MAX_NAMED:,} more" if len(paths) > MAX_NAMED else ""
    return ", ".join(map(visible, paths[:MAX_NAMED])) + more


def _markdown_files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder, onerror=_raise):
        here = Path(parent)
        if here != folder and MANIFEST in names:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith(".") and not (here / name).is_symlink())
        yield from (here / name for name in sorted(names) if name.endswith(".md") and not name.startswith("."))


def _raise(error: OSError) -> None:
    raise error


def _reason_against(status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return "a symbolic link"
    if not stat.S_ISREG(status.st_mode):
        return "no plain file"
    return f"larger than {MAX_FILE_BYTES // MEGABYTE} MB" if status.st_size > MAX_FILE_BYTES else ""


def _read(path: Path) -> bytes:
    """Return the bytes of a file that is no link, also if somebody has exchanged it since it was looked at."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        return file.read(MAX_FILE_BYTES + 1)


def refuse_links(folder: Path, paths: list[str]) -> None:
    """Raise InputError if one of the paths, or a folder on the way to it, is a symbolic link or leads out."""
    for path in paths:
        step = folder
        for part in Path(path).parts:
            step /= part
            if step.is_symlink():
                raise InputError(f"{step} is a symbolic link, which is not followed. Nothing was written")


def write_file(folder: Path, path: str, text: str) -> None:
    """Write a file of the export (0600) as a whole, with its folder (0700). Raises OSError."""
    target = folder / path
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Its own name, so that no file of the person's is in the way, and none that somebody can guess.
    with replace_file(target, draft=target.with_name(f".palimpsest-{uuid4().hex}")) as file:
        file.write(text)


def remove_file(folder: Path, path: str) -> None:
    """Remove a file of the export, and the folder it was in if that is empty now. Raises OSError."""
    target = folder / path
    target.unlink(missing_ok=True)
    with suppress(OSError):  # something else is in it
        for parent in list(target.relative_to(folder).parents)[:-1]:
            (folder / parent).rmdir()


# Names of files that every system accepts: Windows, macOS, Linux, and the links of Obsidian.

MAX_NAME_BYTES = 120
"""A name may have 255 bytes, and 143 in an encrypted folder. What makes it unique and its ending need some of them."""

UNNAMED = "unnamed"

_FORBIDDEN = re.compile(r'[<>:"/\\|?*#^\[\]%`]+')
"""What Windows forbids, and what ends a link of Obsidian."""

_UNWRITTEN = ("Cc", "Cf", "Cs", "Co", "Cn")

_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)
"""Names of devices on Windows, which it also finds before a full stop."""


def safe_name(name: str) -> str:
    """Return a name without an ending that is a file name on every system. Different names may become the same."""
    plain = unicodedata.normalize("NFC", name)
    written = (char for char in plain if char.isspace() or unicodedata.category(char) not in _UNWRITTEN)
    plain = "".join(" " if char.isspace() else char for char in written)
    plain = " ".join(_FORBIDDEN.sub(" ", plain).split())
    plain = plain.encode()[:MAX_NAME_BYTES].decode(errors="ignore").strip(" .")
    plain = unicodedata.normalize("NFC", plain) or UNNAMED
    return f"{plain}_" if _RESERVED.fullmatch(plain) else plain


def name_taken(name: str) -> str:
    """Return what is equal for two names that are one file where case or composition do not count."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


# Which file a memory stands in: that of an entity it names, else of one of its tags, else of its month.
#
# Every memory stands in exactly one file, so that it is edited in one place. Other files link to that one.

FOLDERS: dict[EntityType, str] = {
    "person": "people",
    "organization": "organizations",
    "project": "projects",
    "product": "products",
    "event": "events",
    "document": "documents",
    "place": "places",
    "other": "things",
}
"""The folder of each type. A memory that names several entities stands with the one whose type comes first here."""

MIN_MEMORIES = 2
"""How many memories an entity or a tag needs for a file of its own: one line is no page."""

_LINK_SYNTAX = re.compile(r"[\[\]|#^]+")


@dataclass(frozen=True, slots=True)
class Page:
    """A file to be written. `kind` is "entity", "topic" or "month", and `entity` the one it is about, if it is.

    `key` is what its memories have in common, for the order of files. `path` is "" until the file has a name.
    """

    kind: str
    title: str
    project: str
    folder: str
    key: str
    entity: Entity | None = None
    memories: list[Memory] = field(default_factory=list[Memory])
    path: str = ""

    def link(self, name: str) -> str:
        """Return a link to the file that shows a name. It finds the file by the last part of its path, as no other."""
        file_name = self.path.rpartition("/")[2].removesuffix(".md")
        shown = " ".join(_LINK_SYNTAX.sub(" ", visible(one_line(name))).split())
        return f"[[{file_name}]]" if shown in (file_name, "") else f"[[{file_name}|{shown}]]"


def pages_of(memories: Sequence[Memory], named: Mapping[str, Sequence[Entity]]) -> list[Page]:
    """Return the files that memories stand in, by path. `named` are the entities of each memory, by its id.

    Of memories of the same time, the one that comes first here stands first.
    """
    oldest_first = sorted(memories, key=lambda memory: memory.at)
    counts = Counter(entity.id for memory in oldest_first for entity in named.get(memory.id, ()))
    entity_of: dict[str, Entity] = {}
    tags: Counter[str] = Counter()
    for memory in oldest_first:
        known = [entity for entity in named.get(memory.id, ()) if counts[entity.id] >= MIN_MEMORIES]
        if known:
            entity_of[memory.id] = min(known, key=lambda entity: list(FOLDERS).index(entity.type))
        else:
            tags.update({name_key(tag) for tag in memory.tags})
    pages: dict[tuple[str, ...], Page] = {}
    for memory in oldest_first:
        page = _page_of(memory, entity_of.get(memory.id), tags)
        pages.setdefault((page.project, page.folder, page.key), page).memories.append(memory)
    return _named_pages(pages.values())


def _page_of(memory: Memory, entity: Entity | None, tags: Mapping[str, int]) -> Page:
    """Return the page of a memory, without memories. `tags` says how many memories without an entity have each tag."""
    project, month = memory.scope.project, memory.date[:7]
    if entity is not None:
        return Page("entity", visible(one_line(entity.name)), project, FOLDERS[entity.type], entity.id, entity)
    tag = next((tag for tag in memory.tags if name_key(tag) and tags[name_key(tag)] >= MIN_MEMORIES), None)
    if tag is None:
        return Page("month", month, project, "months", month)
    return Page("topic", visible(one_line(tag)), project, "topics", name_key(tag))


def _named_pages(pages: Iterable[Page]) -> list[Page]:
    """Give each file a name that no other file has in any folder, so that links by name find one file."""
    taken = {name_taken(INDEX)}
    named: list[Page] = []
    for page in sorted(pages, key=lambda page: (page.project, page.folder, name_key(page.title), page.key)):
        name = next(name for name in _names(page) if name_taken(name) not in taken)
        taken.add(name_taken(name))
        folders = (f"project {safe_name(page.project)}", page.folder) if page.project else (page.folder,)
        named.append(replace(page, path="/".join((*folders, f"{name}.md"))))
    return sorted(named, key=lambda page: page.path)


def _names(page: Page) -> Iterable[str]:
    name = safe_name(page.title)
    yield name
    if page.project:
        yield f"{name} ({safe_name(page.project)[:40].strip()})"
    if page.entity is not None:
        yield f"{name} ({page.entity.type})"
        yield f"{name} ({page.entity.id[:8]})"
    for number in count(2):
        yield f"{name} ({number})"


# The texts of an export's files: front matter, what an entity is connected with, items, and an index.

SHORTEST_MARK = 8
"""As many characters of an id as everywhere else."""

MAX_RELATIONS = 200
"""How many relations the file of an entity lists, the newest: more are no page that anybody reads."""


class _PageTexts:
    """Writes the texts of files, with links to those of entities. `named` are the entities of each memory by its id."""

    def __init__(
        self, conn: Connection, scope: Scope, pages: Sequence[Page], named: Mapping[str, Sequence[Entity]]
    ) -> None:
        self._conn, self._scope, self._named = conn, scope, named
        self._marks = marks_of([memory.id for page in pages for memory in page.memories])
        self._pages: dict[tuple[str, str], Page] = {}
        for page in pages:
            if page.entity is not None:
                self._pages[page.entity.id, page.project] = page
                self._pages.setdefault((page.entity.id, ""), page)

    def of(self, page: Page) -> str:
        """Return the text of a file. What is made from the memories, and is not read again, stands as a quote."""
        entity, aliases, relations = page.entity, list[str](), list[KnownRelation]()
        others = {other.id: other for memory in page.memories for other in self._named.get(memory.id, ())}
        if entity is not None:
            others.pop(entity.id, None)
            aliases = entities.other_names(self._conn, self._scope, entity)
            relations = relation_queries.relations_of(self._conn, self._scope, [entity.id], limit=MAX_RELATIONS)
        linked = [other for other in others.values() if (other.id, "") in self._pages]
        linked.sort(key=lambda other: (other.name.casefold(), other.name, other.id))
        values: dict[str, Any] = {
            "type": entity.type if entity is not None else "",
            "project": page.project,
            "aliases": [visible(one_line(alias)) for alias in aliases],
            "related": [self._linked(other.id, other.name, page.project) for other in linked],
        }
        front = _yaml({KIND: page.kind, "name": page.title, **{key: value for key, value in values.items() if value}})
        quoted = "".join(f"> {self._relation_line(relation, page.project)}\n" for relation in relations)
        items = (format_item(fields_of(memory), self._marks[memory.id]) for memory in page.memories)
        parts = (f"---\n{front}\n---\n\n# {page.title}\n", quoted, "".join(items))
        return "\n".join(part for part in parts if part)

    def _linked(self, entity_id: str, name: str, project: str) -> str:
        """Return a name as a link, if its entity has a file in that project or another one."""
        page = self._pages.get((entity_id, project)) or self._pages.get((entity_id, ""))
        return visible(one_line(name)) if page is None else page.link(name)

    def _relation_line(self, relation: KnownRelation, project: str) -> str:
        source = self._linked(relation.source_id, relation.source, project)
        destination = self._linked(relation.destination_id, relation.destination, project)
        name = visible(one_line(relation.relationship.replace("_", " ")))
        times = (("since", relation.valid_from), ("until", relation.valid_until))
        held = " ".join(f"{word} {time}" for word, time in times if time)
        return f"{source} — {name} → {destination}" + (f" ({held})" if held else "") + "  "


def marks_of(ids: Sequence[str]) -> dict[str, str]:
    """Return the mark of each memory: the beginning of its id, as long as it takes to tell it from the others."""
    ordered = sorted(ids)
    pairs = (zip(one, other, strict=False) for one, other in pairwise(("", *ordered, "")))
    shared = [next((at for at, (a, b) in enumerate(pair) if a != b), 0) for pair in pairs]
    longest = (max(SHORTEST_MARK - 1, before, after) for before, after in pairwise(shared))
    return {memory_id: memory_id[: length + 1] for memory_id, length in zip(ordered, longest, strict=True)}


def index_text(scope: Scope, pages: Sequence[Page], not_here: str) -> str:
    """Return the text of the index: all files, how to edit them, and what is not in them."""
    total = sum(len(page.memories) for page in pages)
    values = {KIND: INDEX, "user": scope.user_id, **({"project": scope.project} if scope.project else {})}
    whose = visible(scope.user_id) + (f", project {visible(scope.project)}" if scope.project else "")
    parts = [f"---\n{_yaml(values)}\n---\n\n# Memory of {whose}\n\n{counted(total, 'memory')} in {len(pages)} files.\n"]
    for folder, of_folder in groupby(pages, key=lambda page: page.path.rpartition("/")[0]):
        parts.append(f"\n## {folder.capitalize() if '/' not in folder else folder}\n\n")
        parts += [f"- {page.link(page.title)} ({len(page.memories):,})\n" for page in of_folder]
    return "".join((*parts, _HOW_TO_EDIT, not_here))


_HOW_TO_EDIT = """
## How to edit

- `palimpsest import FOLDER --dry-run` shows what your edits would change, and without `--dry-run` changes it.
- Each item of a list is one memory. Keep its mark, such as ^3a090c21, at the end of its last line.
- Text, date, since, until, pinned and tags can be changed. A new item needs no mark and no line of labels.
- An item that you remove is deleted only with `--yes`. Items can be sorted, and moved to other files.
- This file, front matter, headings and quotes (>) are written anew by each export and are not imported.
"""


def _not_here(conn: Connection, scope: Scope) -> str:
    """Return the end of the index: what the ledger holds and the files do not."""
    counts = memory_queries.counts(conn, scope)
    lines = [
        f"- {counted(counts['deleted'], 'deleted or replaced memory')}, and earlier texts of the others",
        f"- {counted(counts['messages'], 'message')} of conversations, and summaries",
    ]
    others = [name for name in memory_queries.projects_of(conn, scope.user_id) if name not in ("", scope.project)]
    if others:
        lines.append(f"- the memories of other projects: {', '.join(map(visible, others))}")
    if scope.agent_id or scope.run_id:
        lines.append("- the memories of other agents and runs")
    items = "\n".join(lines)
    return f"\n## What is not here\n\n{items}\n\n`palimpsest export FILE` writes all of it, without loss.\n"


def _yaml(values: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(values), allow_unicode=True, sort_keys=False, width=1_000_000).rstrip("\n")


@dataclass(frozen=True, slots=True)
class FolderExport:
    """What an export did: how many memories the folder holds, and which files were written, removed or the same.

    `left` are copies of files of an earlier export, which are left as they are.
    """

    memories: int
    written: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: int
    left: tuple[str, ...] = ()


def export_folder(
    ledger: Ledger, scope: Scope, folder: Path, progress: Progress, *, overwrites: bool = False
) -> FolderExport:
    """Write the current memories that a scope sees to a folder, which may hold an earlier export and other files.

    With `overwrites` also over files of ours that were edited or removed since. Raises InputError if a file is in the
    way, or if an edited one is; then nothing was written.
    """
    before = read_manifest(folder) if has_manifest(folder) else None
    if before is not None and before.scope != scope:
        raise InputError(
            f"{folder} holds the export of {before.scope}, and not of {scope}. Nothing was written. Name another folder"
        )
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. A Markdown export is a folder: name a new one. Nothing was written")
    with ledger.read() as conn:
        files, manifest = _contents(conn, scope, ledger.zones.of(scope.user_id), progress)
    unfinished = ". What was written so far is whole; export again"
    with raised_as(InputError, f"{folder} cannot be written", unfinished, OSError):
        return _write_files(folder, files, manifest, {} if before is None else before.files, overwrites=overwrites)


def _contents(conn: Connection, scope: Scope, zone: tzinfo, progress: Progress) -> tuple[dict[str, str], Manifest]:
    """Return the texts of all files by path, and the manifest that belongs to them."""
    memories = [memory.in_zone(zone) for memory in current_memories(conn, scope)]
    named = entities.entities_named_by(conn, scope, memories)
    pages = pages_of(memories, named)
    texts, files = _PageTexts(conn, scope, pages, named), dict[str, str]()
    for number, page in enumerate(pages, 1):
        files[page.path] = texts.of(page)
        progress(number, len(pages))
    files[f"{INDEX}.md"] = index_text(scope, pages, _not_here(conn, scope))
    entries = {
        memory.id: manifest_entry(page.path, memory.revision, fields_of(memory))
        for page in pages
        for memory in page.memories
    }
    digests = {path: digest(text.encode()) for path, text in files.items()}
    manifest = Manifest.model_validate({**scope_values(scope), "files": digests, "memories": entries})
    return files, manifest


def current_memories(conn: Connection, scope: Scope) -> list[Memory]:
    """Return the living memories that a scope sees: the global ones, and those of its project."""
    projects = dict.fromkeys(("", scope.project))
    return [memory for name in projects for memory in memory_queries.memories_of(conn, replace(scope, project=name))]


def _write_files(
    folder: Path, files: Mapping[str, str], manifest: Manifest, before: Mapping[str, str], *, overwrites: bool
) -> FolderExport:
    """Bring a folder from the files of the last export, by their digests, to these."""
    stale = [path for path in before if path not in files]
    refuse_links(folder, [*files, *stale, MANIFEST])
    present = {path: _bytes(folder / path) for path in (*files, *stale)}
    changing = [path for path, text in files.items() if present[path] != text.encode()]
    in_the_way = [path for path in changing if path not in before and present[path] is not None]
    if in_the_way:
        raise InputError(
            f"these files in {folder} are not from an export and in its way: {listed(in_the_way)}. Nothing was "
            "written. Rename them, or export to another folder"
        )
    leaving = [path for path in stale if present[path] is not None]
    edited = [path for path in (*changing, *leaving) if path in before and digest(present[path] or b"") != before[path]]
    if edited and not overwrites:
        raise InputError(
            f"these files were edited or removed since they were exported: {listed(sorted(edited))}. "
            f"Nothing was written. palimpsest import {folder} takes the edits in; export with --yes writes them anew"
        )
    found = read_folder(folder)[0] if folder.is_dir() else {}
    left = [path for path, data in found.items() if path not in present and is_like_ours(data)]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in changing:
        write_file(folder, path, files[path])
    for path in leaving:
        remove_file(folder, path)
    text = manifest_text(manifest)
    if _bytes(folder / MANIFEST) != text.encode():
        write_file(folder, MANIFEST, text)
    unchanged = len(files) - len(changing)
    return FolderExport(len(manifest.memories), tuple(changing), tuple(leaving), unchanged, tuple(left))


def _bytes(file: Path) -> bytes | None:
    """Return what is in a file, or None if there is none."""
    try:
        return file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
