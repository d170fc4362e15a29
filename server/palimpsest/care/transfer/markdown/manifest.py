"""What an export said: the file `.palimpsest.json` in its folder, the base of the three-way merge of an import.

It is data like the files beside it. Whoever edits it can bring about no more than by editing them.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from palimpsest.care.transfer.export_format import Id, ScopePart
from palimpsest.care.transfer.markdown.items import Shown
from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope
from palimpsest.core.validation import fault_text
from palimpsest.text.control_characters import visible_json

MANIFEST = ".palimpsest.json"

MAX_MANIFEST_BYTES = 128 * 2**20
"""More than a hundred thousand memories. Set by hand."""

_PART = re.compile(r"[^/\\:\x00]+")


def _path_in_folder(value: str) -> str:
    path = PurePosixPath(value)
    is_plain = str(path) == value and path.suffix == ".md"
    if not is_plain or any(_PART.fullmatch(part) is None or part.startswith(".") for part in path.parts):
        raise ValueError("not the path of a Markdown file in the folder")
    return value


FilePath: TypeAlias = Annotated[str, AfterValidator(_path_in_folder)]
Digest: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FileEntry(_Part):
    """A file as it was written: the digests of its bytes and of its front matter."""

    sha256: Digest
    front: Digest


class BaseEntry(_Part):
    """A memory as it was when the export or the last import was done, and the file its item stood in then."""

    file: str
    revision: Annotated[int, Field(ge=1, le=2**53)]
    text: Annotated[str, Field(min_length=1)]
    date: str
    since: str
    until: str
    pinned: str
    tags: tuple[str, ...]

    @property
    def shown(self) -> Shown:
        """Return what its item said."""
        return Shown(self.text, self.date, self.since, self.until, self.pinned, self.tags)


class Manifest(_Part):
    """The whole file."""

    format: Literal["palimpsest-markdown"] = "palimpsest-markdown"
    version: Literal[1] = 1
    user_id: ScopePart
    project: ScopePart
    agent_id: ScopePart
    run_id: ScopePart
    files: dict[FilePath, FileEntry]
    memories: dict[Id, BaseEntry]

    @property
    def scope(self) -> Scope:
        """Return the scope that was exported."""
        return Scope(self.user_id, self.project, self.agent_id, self.run_id)


def base_entry(file: str, revision: int, shown: Shown) -> BaseEntry:
    """Return the entry of a memory whose item says this."""
    return BaseEntry(
        file=file,
        revision=revision,
        text=shown.text,
        date=shown.date,
        since=shown.since,
        until=shown.until,
        pinned=shown.pinned,
        tags=shown.tags,
    )


def digest(data: bytes) -> str:
    """Return the digest of a file."""
    return hashlib.sha256(data).hexdigest()


def manifest_text(manifest: Manifest) -> str:
    """Return a manifest as text. The same manifest always makes the same text, with few changed lines for few edits."""
    return (
        visible_json(json.dumps(manifest.model_dump(mode="json"), ensure_ascii=False, sort_keys=True, indent=1)) + "\n"
    )


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
