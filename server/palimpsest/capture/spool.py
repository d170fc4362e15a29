"""Read the spool: the records that hooks left, in the order in which they were written. Blocking."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, StringConstraints, ValidationError

from palimpsest.core.validation import well_formed
from palimpsest.hook import paths
from palimpsest.hook.private_files import make_private_folder
from palimpsest.hook.spool import VERSION
from palimpsest.text.secrets.redaction import redact

logger = logging.getLogger(__name__)

DAMAGED = "damaged"
"""The folder in the spool of records that cannot be read."""

LEFTOVER_SECONDS = 3600.0
"""A hook ends itself within a second, so an older draft is that of a killed one. Set by hand."""

Event: TypeAlias = Literal["prompt", "reply", "compact", "end", "start"]


def _in_utc(at: datetime) -> datetime:
    try:
        return at.astimezone(UTC)
    except OverflowError as error:  # the first and the last day that there is, in another zone
        raise ValueError("the time cannot be told in UTC") from error


def _without_secrets(client_id: str) -> str:
    return redact(client_id).text


class Record(BaseModel):
    """One record of the spool. `role` and `text` are those of a prompt or a reply; `cwd` is a folder or ""."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    client: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
    event: Event
    session: Annotated[str, StringConstraints(min_length=1, max_length=1_000), AfterValidator(_without_secrets)]
    at: Annotated[AwareDatetime, AfterValidator(_in_utc)]
    message_id: Annotated[str, StringConstraints(max_length=1_000), AfterValidator(_without_secrets)] = ""
    role: Literal["user", "assistant", ""] = ""
    text: str = ""
    transcript: str = ""
    cwd: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class Spooled:
    """A record and its file."""

    file: Path
    record: Record


def waiting_files(data_dir: Path) -> list[Path]:
    """Return the files of the records that wait, the oldest first. Their names begin with the time."""
    return sorted(_files(data_dir, paths.SPOOL_SUFFIX))


def damaged_files(data_dir: Path) -> list[Path]:
    """Return the files that were set aside because they cannot be read."""
    folder = Path(paths.spool_dir(str(data_dir))) / DAMAGED
    return sorted(folder.iterdir()) if folder.is_dir() else []


def read_records(files: Sequence[Path], user_id: str) -> list[Spooled]:
    """Return the records of a user, and those that name no user. What cannot be read is set aside.

    Records of a newer version stay where they are, for a server of that version.
    """
    records: list[Spooled] = []
    for file in files:
        try:
            value = json.loads(file.read_bytes())
            if _is_newer(value):
                continue
            record = Record.model_validate(_well_formed(value))
        except FileNotFoundError:  # a purge of another process removed it
            continue
        except OSError as error:
            logger.warning("%s cannot be read and stays where it is: %s", file, error)
            continue
        except (ValueError, RecursionError, ValidationError):
            _set_aside(file)
            continue
        if record.user in ("", user_id):
            records.append(Spooled(file, record))
    return records


def remove_records(files: Sequence[Path]) -> None:
    """Remove the files of records that are in the ledger."""
    for file in files:
        file.unlink(missing_ok=True)


def remove_leftovers(data_dir: Path) -> None:
    """Remove the drafts of hooks that were killed."""
    oldest = time.time() - LEFTOVER_SECONDS
    for file in _files(data_dir, paths.UNFINISHED_SUFFIX):
        with suppress(OSError):  # the next look meets it again
            if file.stat().st_mtime < oldest:
                file.unlink()


def _files(data_dir: Path, suffix: str) -> list[Path]:
    try:
        with os.scandir(paths.spool_dir(str(data_dir))) as entries:
            return [
                Path(entry.path)
                for entry in entries
                if entry.name.endswith(suffix) and entry.is_file(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return []


def _is_newer(value: Any) -> bool:
    version = cast("dict[str, Any]", value).get("v") if isinstance(value, dict) else None
    if not isinstance(version, int) or version < VERSION:
        raise ValueError("the record has no version")
    return version > VERSION


def _well_formed(value: dict[str, Any]) -> dict[str, Any]:
    """Return a record without lone surrogates, which clients may send and no file accepts."""
    return {key: well_formed(text) if isinstance(text, str) else text for key, text in value.items()}


def _set_aside(file: Path) -> None:
    """Move a file that cannot be read out of the way. If that fails, it is met again at the next look."""
    folder = file.parent / DAMAGED
    try:
        make_private_folder(str(folder))
        file.rename(folder / file.name)
    except OSError as error:
        logger.warning("%s is no record and cannot be set aside: %s", file, error)
