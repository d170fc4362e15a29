"""Memories as a folder of Markdown files: the items, the manifest, how the folder is read, and how an export writes it.

The same memory makes the same bytes, so the folder can be kept in git. A file that is not ours is never touched, and
one of ours that was edited since only if the caller says so. Blocking.
"""

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from datetime import tzinfo
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from uuid import uuid4

import yaml
from pydantic import BaseModel, Field, ValidationError
from sqlalchemy import Connection

from palimpsest.admin.export import Id, ScopePart
from palimpsest.core.clock import parse_date
from palimpsest.core.errors import InputError, raised_as
from palimpsest.core.files import read_plain_file, replace_file
from palimpsest.core.models import Entity, EntityType, Memory, Scope, name_key
from palimpsest.core.protocols import Progress
from palimpsest.core.validation import fault_text, object_of, one_line
from palimpsest.store import memories as memory_queries
from palimpsest.store.graph import entities
from palimpsest.store.ledger import Ledger
from palimpsest.store.rows import scope_values
from palimpsest.text.display import visible, visible_json

# Memories as items of a Markdown list: how they are written, and how they are read again after an editor had them.
#
# An item is the text, indented as Markdown wants it, and a last line with its labels and its mark:
#
#     - Ana moved to Lyon.
#       2026-05-08 · since 2025-03 · #family ^3a090c21
#
# The mark is a block id as Obsidian has them, the first characters of the memory's id. One word at the end of a line
# survives cutting, pasting and sorting in any editor, and can be linked to. The labels have a line of their own, so no
# text can be taken for them.

# A tag that stands as it is. Others are written as JSON strings.
_SIMPLE_TAG = re.compile(r"[\w/-]+")

_LABEL = re.compile(
    r"(?:since[ ]+(?P<since>\S+)"
    r'|\#(?P<quoted>"(?:[^"\\]|\\.)*")'
    r'|\#(?P<tag>[^\s\#"·]+)'
    r"|(?P<date>[0-9]{4}(?:-[0-9]{2}(?:-[0-9]{2})?)?))"
    r"(?:[ \t]*·)?(?:[ \t]+|$)"
)
_MARK = re.compile(r"(?:^|[ \t])\^(?P<mark>[0-9a-f]{8}(?:-[0-9a-f-]{0,27})?)$")
_DATED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ \t]|$)")


@dataclass(frozen=True, slots=True)
class ItemFields:
    """What an item says of a memory, as it stands in the file, and "" for what is not there.

    `date` is the day, month or year that the memory is about, and `since` from when it holds.
    """

    text: str
    date: str = ""
    since: str = ""
    tags: tuple[str, ...] = ()

    @property
    def labels(self) -> str:
        """Return all but the text, as the labels of an item."""
        quoted = {tag: visible_json(json.dumps(tag, ensure_ascii=False)) for tag in self.tags}
        tags = " ".join(f"#{tag if _SIMPLE_TAG.fullmatch(tag) else quoted[tag]}" for tag in self.tags)
        return " · ".join(filter(None, (self.date, self.since and f"since {self.since}", tags)))


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a file. `has_labels` tells whether it had a line of labels, and `mark` is "" for a new one."""

    fields: ItemFields
    mark: str
    has_labels: bool
    file: str
    line: int

    @property
    def where(self) -> str:
        """Return its place in words."""
        return f"{self.file}, line {self.line}"

    def fill_in(self, here: ItemFields) -> ItemFields:
        """Return all that the item says: without a line of labels those of `here`, and without a date its date."""
        if not self.has_labels:
            return replace(here, text=self.fields.text)
        return self.fields if self.fields.date else replace(self.fields, date=here.date)


def fields_of(memory: Memory) -> ItemFields:
    """Return what an item says of a memory."""
    return ItemFields(_canonical(memory.text), memory.date, memory.since, tuple(dict.fromkeys(memory.tags)))


def _canonical(text: str) -> str:
    """Return a text as it is read again from the item it is written as: control characters visible, no loose ends."""
    return "\n".join(line.rstrip() for line in visible(text).split("\n")).strip()


def format_item(fields: ItemFields, mark: str) -> str:
    """Return an item as the lines of a file."""
    first, *others = fields.text.split("\n")
    lines = [f"- {first}", *(f"  {line}" if line else "" for line in others)]
    return "\n".join((*lines, f"  {fields.labels} ^{mark}\n"))


def _read_item(lines: list[str], file: str, line: int) -> Item | None:
    """Return an item from its lines, without the bullet and the indentation; None for one that is empty.

    The last line of one without a mark may have labels if it begins with a day. Raises InputError that names the item.
    """
    while lines and not lines[-1].strip():
        lines.pop()
    marked = next((number for number in reversed(range(len(lines))) if _MARK.search(lines[number].rstrip())), None)
    if marked is None and not _canonical("\n".join(lines)).strip("*-_ \t"):
        return None  # a bullet that waits for its text, or a line across the page
    last, where = len(lines) - 1, f"{file}, line {line}"
    if marked is not None and marked < last:
        raise _unreadable(where, "there is text below the line with the mark. Put it above that line")
    rest, _, mark = lines.pop().rpartition("^") if marked is not None else (lines.pop(), "", "")
    labels = _labels(rest.strip()) if last and (mark or _DATED.match(rest.strip())) else None
    if mark and last and labels is None:
        example = "2026-05-08 · since 2025-03 · #tag"
        raise _unreadable(where, f"'{one_line(rest)[:60]}' cannot be read as labels, which look like: {example}")
    text = _canonical("\n".join(lines if labels is not None else (*lines, rest)))
    if mark and not text:
        raise _unreadable(where, f"^{mark} has no text. Remove the whole item to delete the memory")
    return Item(replace(labels or ItemFields(""), text=text), mark.rstrip(), labels is not None, file, line)


def _labels(line: str) -> ItemFields | None:
    """Return a line of labels without a text, or None if something in it is no label or says it twice."""
    matches = list(_LABEL.finditer(line))
    labels = [(str(match.lastgroup), match[str(match.lastgroup)]) for match in matches]
    times = {kind: value for kind, value in labels if kind in ("date", "since")}
    of_tags = [(kind, value) for kind, value in labels if kind not in times]
    is_twice = len(times) + len(of_tags) < len(labels)
    if "".join(match[0] for match in matches) != line or is_twice or not all(map(parse_date, times.values())):
        return None
    with suppress(ValueError):
        tags = [str(json.loads(value)) if kind == "quoted" else value for kind, value in of_tags]
        return ItemFields("", tags=tuple(dict.fromkeys(tags)), **times)
    return None


def _unreadable(where: str, fault: str) -> InputError:
    return InputError(f"{where}: {fault}. Nothing was imported")


# The file `.palimpsest.json` in the folder of an export: which memories stand where, and digests of what they said.
#
# It is data like the files beside it. Whoever edits it can bring about no more than by editing them.

MANIFEST = ".palimpsest.json"

# The largest manifest or file of items: more than a hundred thousand memories.
MAX_FILE_BYTES = 128 * 2**20

Digest: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class ManifestEntry(BaseModel, extra="forbid", frozen=True):
    """A memory at the export or the last import: the file of its item, the revision, and a digest of what it said."""

    file: str
    revision: Annotated[int, Field(ge=1, le=2**53)]
    item: Digest


class Manifest(BaseModel, extra="forbid", frozen=True):
    """The whole file. `files` are the digests of the files that the export wrote."""

    format: Literal["palimpsest-markdown"] = "palimpsest-markdown"
    version: Literal[1] = 1
    user_id: ScopePart
    project: ScopePart
    agent_id: ScopePart
    run_id: ScopePart
    files: dict[str, Digest]
    memories: dict[Id, ManifestEntry]

    @property
    def scope(self) -> Scope:
        """Return the scope that was exported."""
        return Scope(self.user_id, self.project, self.agent_id, self.run_id)


def fields_digest(shown: ItemFields) -> str:
    """Return the digest of what an item says."""
    return _digest(json.dumps(astuple(shown)).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def has_manifest(folder: Path) -> bool:
    """Return whether a folder is an export, by its manifest."""
    return folder.is_dir() and (folder / MANIFEST).is_file()


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder. Raises InputError if it cannot be read or says what no export says."""
    file = folder / MANIFEST
    advice = "Nothing was done. Bring that file back, or export to a new folder"
    try:
        return Manifest.model_validate_json(read_plain_file(file, MAX_FILE_BYTES))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error}. {advice}") from error
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in fault["loc"])[:100]
        raise InputError(f"{file} is damaged: {place}: {fault_text(fault)}. {advice}") from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write a manifest, the same for the same memories. Raises OSError."""
    text = json.dumps(manifest.model_dump(mode="json"), ensure_ascii=False, sort_keys=True, indent=1)
    _write_file(folder, MANIFEST, f"{visible_json(text)}\n")


# Read the files of a folder: their front matter, and the items in them with the lines where they stand.

# The key of the front matter by which a file is ours.
KIND = "palimpsest"

# YAML parses slowly, and a name and a project need far less.
MAX_FRONT_CHARS = 64_000

_FRONT = re.compile(rf"---\n(?P<values>{KIND}: (?:.*\n)*?)---\n")
_BULLET = re.compile(r"[-*+](?:[ \t]+(?P<text>.*))?$")

# Blank lines, headings, quotes and lines across the page, which are left alone.
_NO_ITEM = re.compile(r"\s*$|#|>|(?:-{3,}|\*{3,}|_{3,})\s*$")


@dataclass(frozen=True, slots=True)
class ItemFile:
    """A file whose front matter says that it is ours: its path in the folder, its project, and its items."""

    path: str
    project: str
    items: tuple[Item, ...]


def read_folder(folder: Path) -> list[ItemFile]:
    """Return our files in a folder and below it. Raises InputError that names the file and the line at fault.

    Links are not followed, and the person's own files are not looked into.
    """
    with raised_as(InputError, f"{folder} cannot be read", ". Nothing was imported", OSError):
        contents = _markdown_files(folder)
    return [_item_file(path, data) for path, data in contents.items() if _is_ours(data)]


def _markdown_files(folder: Path) -> dict[str, bytes]:
    """Return the Markdown files of a folder by their paths in it, without hidden ones and links. Raises OSError."""
    files = {path.relative_to(folder): path for path in sorted(folder.rglob("*.md"))}
    return {
        name.as_posix(): read_plain_file(path, MAX_FILE_BYTES)
        for name, path in files.items()
        if path.is_file() and not path.is_symlink() and not any(part.startswith(".") for part in name.parts)
    }


def _is_ours(data: bytes) -> bool:
    return data[:100].removeprefix(b"\xef\xbb\xbf").replace(b"\r", b"").startswith(f"---\n{KIND}: ".encode())


def _item_file(path: str, data: bytes) -> ItemFile:
    with raised_as(InputError, path, ". Nothing was imported", UnicodeDecodeError):
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    if (front := _FRONT.match(text)) is None or len(front[0]) > MAX_FRONT_CHARS:
        raise _unreadable(path, f"the front matter has no end, or more than {MAX_FRONT_CHARS:,} characters")
    try:
        project = object_of(yaml.safe_load(front["values"])).get("project", "")
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date that is none, or brackets without end
        raise _unreadable(path, "the front matter is no YAML") from error
    found = _lines_of_items(path, text[front.end() :].split("\n"), front[0].count("\n") + 1)
    items = (_read_item(lines, path, number) for number, lines in found)
    return ItemFile(path, str(project), tuple(filter(None, items)))


def _lines_of_items(path: str, body: Sequence[str], first: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the lines of each item, without bullet and indentation. Raises InputError for others."""
    start, lines = first, list[str]()
    for number, line in enumerate(body, first):
        if (bullet := _BULLET.match(line)) is None and lines and (not line.strip() or line.startswith(("  ", "\t"))):
            lines.append(line[1:] if line.startswith("\t") else line[2:])
            continue
        if lines:
            yield start, lines
        start, lines = number, [bullet["text"] or ""] if bullet is not None else []
        if bullet is None and not _NO_ITEM.match(line):
            advice = "Begin it with '- ' to make it a memory, or with '> ' to keep it as a note"
            raise _unreadable(f"{path}, line {number}", f"'{one_line(line)[:60]}' belongs to no item. {advice}")
    if lines:
        yield start, lines


# Which file a memory stands in: that of an entity it names, else of one of its tags, else of its month.
#
# Every memory stands in exactly one file, so that it is edited in one place.

# The folder of each type. A memory that names several entities stands with the one whose type comes first here.
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

# How many memories an entity or a tag needs for a file of its own: one line is no page.
MIN_MEMORIES = 2


@dataclass(frozen=True, slots=True, order=True)
class _Page:
    """What the memories of a file have in common: the project, the folder, and a title; `key` tells equal titles apart.

    `kind` is "entity", "topic" or "month".
    """

    project: str
    folder: str
    title: str
    key: str
    kind: str


def pages_of(
    memories: Sequence[Memory], named: Mapping[str, Sequence[Entity]]
) -> dict[str, tuple[_Page, list[Memory]]]:
    """Return the memories of each file by its path. `named` are the entities of each memory, by its id."""
    subjects = {memory.id: list(_subjects(memory, named.get(memory.id, ()))) for memory in memories}
    counts = Counter(page for of_memory in subjects.values() for page in of_memory)
    pages: dict[_Page, list[Memory]] = {}
    for memory in sorted(memories, key=lambda memory: memory.at):
        month = memory.date[:7]
        of_month = _Page(memory.scope.project, "months", month, month, "month")
        page = next((page for page in subjects[memory.id] if counts[page] >= MIN_MEMORIES), of_month)
        pages.setdefault(page, []).append(memory)
    paths: dict[str, str] = {}
    for page in sorted(pages):
        folder = f"project {safe_name(page.project)}/{page.folder}" if page.project else page.folder
        names = (safe_name(page.title) + (f" ({number})" if number > 1 else "") for number in count(1))
        path = next(path for name in names if name_taken(path := f"{folder}/{name}.md") not in paths)
        paths[name_taken(path)] = path
    return dict(zip(paths.values(), ((page, pages[page]) for page in sorted(pages)), strict=True))


def _subjects(memory: Memory, named: Sequence[Entity]) -> Iterator[_Page]:
    project = memory.scope.project
    for entity in sorted(named, key=lambda entity: list(FOLDERS).index(entity.type)):
        yield _Page(project, FOLDERS[entity.type], visible(one_line(entity.name)), entity.id, "entity")
    for tag in filter(name_key, memory.tags):
        yield _Page(project, "topics", name_key(tag), name_key(tag), "topic")


# Names of files that every system accepts: Windows, macOS, Linux, and the links of Obsidian.

# A name may have 255 bytes, and 143 in an encrypted folder. What makes it unique and its ending need some of them.
MAX_NAME_BYTES = 120

# What Windows forbids, and what ends a link of Obsidian.
_FORBIDDEN = re.compile(r'[<>:"/\\|?*#^\[\]%`]+')

_UNWRITTEN = ("Cc", "Cf", "Cs", "Co", "Cn")

# Names of devices on Windows, which it also finds before a full stop.
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?", re.IGNORECASE)


def safe_name(name: str) -> str:
    """Return a name without an ending that is a file name on every system. Different names may become the same."""
    plain = unicodedata.normalize("NFC", name)
    written = (char for char in plain if char.isspace() or unicodedata.category(char) not in _UNWRITTEN)
    plain = "".join(" " if char.isspace() else char for char in written)
    plain = " ".join(_FORBIDDEN.sub(" ", plain).split())
    plain = plain.encode()[:MAX_NAME_BYTES].decode(errors="ignore").strip(" .")
    plain = unicodedata.normalize("NFC", plain) or "unnamed"
    return f"{plain}_" if _RESERVED.fullmatch(plain) else plain


def name_taken(name: str) -> str:
    """Return what is equal for two names that are one file where case or composition do not count."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


# The export: the texts of the files, and how the folder comes from those of the last export to these.


@dataclass(frozen=True, slots=True)
class FolderExport:
    """What an export did: how many memories the folder holds, and which files were written and removed."""

    memories: int
    written: tuple[str, ...]
    removed: tuple[str, ...]


def export_folder(
    ledger: Ledger, scope: Scope, folder: Path, progress: Progress, *, overwrites: bool = False
) -> FolderExport:
    """Write the current memories that a scope sees to a folder, which may hold an earlier export and other files.

    With `overwrites` also over files of ours that were edited since. Raises InputError if a file is in the way, or if
    an edited one is; then nothing was written.
    """
    before = read_manifest(folder) if has_manifest(folder) else None
    if before is not None and before.scope != scope:
        raise InputError(f"{folder} holds the export of {before.scope}, and not of {scope}. Nothing was written")
    texts, manifest = ledger.read_with(_contents, scope, ledger.zones.of(scope.user_id))
    with raised_as(InputError, f"{folder} cannot be written", ". Export again", OSError):
        present = _markdown_files(folder)
        ours = {} if before is None else before.files
        written = [path for path, text in texts.items() if present.get(path) != text.encode()]
        removed = [path for path in present if path in ours and path not in texts]
        _refuse_in_the_way(folder, [*texts, MANIFEST], [path for path in written if path not in ours])
        edited = [path for path in (*written, *removed) if path in present and _digest(present[path]) != ours[path]]
        if edited and not overwrites:
            names, advice = ", ".join(map(visible, edited[:5])), "Import them first, or export with --yes"
            raise InputError(f"these files were edited since: {names}. Nothing was written. {advice}")
        for number, path in enumerate(written, 1):
            _write_file(folder, path, texts[path])
            progress(number, len(written))
        for path in removed:
            (folder / path).unlink()
            with suppress(OSError):  # something else is in it
                for parent in list(Path(path).parents)[:-1]:
                    (folder / parent).rmdir()
        if manifest != before:
            write_manifest(folder, manifest)
    return FolderExport(len(manifest.memories), tuple(written), tuple(removed))


def _contents(conn: Connection, scope: Scope, zone: tzinfo) -> tuple[dict[str, str], Manifest]:
    """Return the texts of all files by path, and the manifest that belongs to them."""
    memories = [memory.in_zone(zone) for memory in current_memories(conn, scope)]
    length = next(length for length in count(8) if len({memory.id[:length] for memory in memories}) == len(memories))
    texts: dict[str, str] = {}
    entries: dict[str, ManifestEntry] = {}
    for path, (page, of_page) in pages_of(memories, entities.entities_named_by(conn, scope, memories)).items():
        values = {KIND: page.kind, "name": page.title} | ({"project": page.project} if page.project else {})
        front = yaml.safe_dump(values, allow_unicode=True, sort_keys=False, width=1_000_000)
        items = "".join(format_item(fields_of(memory), memory.id[:length]) for memory in of_page)
        texts[path] = f"---\n{front}---\n\n# {page.title}\n\n{items}"
        for memory in of_page:
            digest = fields_digest(fields_of(memory))
            entries[memory.id] = ManifestEntry(file=path, revision=memory.revision, item=digest)
    digests = {path: _digest(text.encode()) for path, text in texts.items()}
    values: dict[str, Any] = {**scope_values(scope), "files": digests, "memories": entries}
    return texts, Manifest.model_validate(values)


def current_memories(conn: Connection, scope: Scope) -> list[Memory]:
    """Return the living memories that a scope sees: the global ones, and those of its project."""
    projects = dict.fromkeys(("", scope.project))
    return [memory for name in projects for memory in memory_queries.memories_of(conn, replace(scope, project=name))]


def _refuse_in_the_way(folder: Path, paths: Sequence[str], new: Sequence[str]) -> None:
    """Raise InputError for links on the way to a file, and for files that no export wrote in place of a new one."""
    for path in paths:
        if (folder / path).resolve() != folder.resolve() / path:
            raise InputError(f"{folder / path} is behind a symbolic link, which is not followed. Nothing was written")
    if found := [path for path in new if (folder / path).exists()]:
        names = ", ".join(map(visible, found[:5]))
        raise InputError(f"no export wrote what is in its way: {names}. Nothing was written. Rename them")


def _write_file(folder: Path, path: str, text: str) -> None:
    """Write a file of the export (0600) as a whole, with its folder (0700). Raises OSError."""
    target = folder / path
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Its own name, so that no file of the person's is in the way, and none that somebody can guess.
    with replace_file(target, draft=target.with_name(f".palimpsest-{uuid4().hex}")) as file:
        file.write(text)
