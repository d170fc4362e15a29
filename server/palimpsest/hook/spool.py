"""The spool: a file for each thing that was said. Hooks write them; whoever takes one into the ledger removes it."""

from __future__ import annotations

import json
import os
import time

from palimpsest.hook import paths
from palimpsest.hook.private_files import append_line, make_private_folder, write_new_file

VERSION = 1
MAX_FILES = 10_000
"""Weeks of work without any server or command. More would make every hook slow, because it counts them."""
MAX_BYTES = 64 * 1024 * 1024
"""More than anyone says in weeks; a loop of a broken client must not fill the disk."""
FEW_FILES = 50
"""So many of the largest records are below MAX_BYTES, so nothing need be added up: 100,000 characters of 12 bytes."""
MAX_REFUSED_BYTES = 1024 * 1024
"""From then on refusals are no longer written down; what they say has been said by then."""


class SpoolFullError(Exception):
    """The spool has reached its bound. Nothing was written."""


def utc_now() -> str:
    """Return the time in ISO 8601, UTC, with microseconds."""
    now = time.time_ns()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now // 10**9))}.{now // 1000 % 10**6:06d}+00:00"


def new_record(  # noqa: PLR0913 - a record has so many fields, and those after the third are passed by name
    client: str,
    event: str,
    session: str,
    *,
    message_id: str = "",
    role: str = "",
    text: str = "",
    transcript: str = "",
    cwd: str = "",
    user: str = "",
    detail: str = "",
) -> dict[str, str | int]:
    """Return a record of the spool, at the present time.

    `event` is prompt, reply, compact, end or start. `role` (user or assistant) and `text` are only in records of a
    prompt or a reply. `message_id` is "" if the client gives none, `user` is "" for the user of the settings, and
    `detail` is the source, trigger or reason that the client gave.
    """
    said: dict[str, str | int] = {"role": role, "text": text} if role else {}
    return {
        "v": VERSION,
        "client": client,
        "event": event,
        "session": session,
        "message_id": message_id,
        **said,
        "transcript": transcript,
        "cwd": cwd,
        "at": utc_now(),
        "user": user,
        "detail": detail,
    }


def write_record(data_dir: str, record: dict[str, str | int]) -> str:
    """Write a record into the spool and return its path.

    The file appears as a whole: a killed process leaves a `.part`, never half a record. Nothing is synced to the disk,
    because that can take longer than the hook may run; a power failure may lose the last seconds. Raises OSError and
    SpoolFullError.
    """
    folder = paths.spool_dir(data_dir)
    make_private_folder(paths.hooks_dir(data_dir))
    make_private_folder(folder)
    _refuse_if_full(folder)
    name = f"{time.time_ns()}-{os.getpid()}-{os.urandom(8).hex()}"
    draft = os.path.join(folder, f"{name}{paths.UNFINISHED_SUFFIX}")
    path = os.path.join(folder, f"{name}{paths.SPOOL_SUFFIX}")
    try:
        # ASCII, because a client's text may have lone surrogates, which UTF-8 has no bytes for.
        write_new_file(draft, json.dumps(record).encode())
        os.rename(draft, path)
    except OSError:
        _remove(draft)
        raise
    return path


def note_refusal(data_dir: str, reason: str) -> None:
    """Write down that something was not kept, for `palimpsest doctor`. Raises OSError."""
    make_private_folder(paths.hooks_dir(data_dir))
    path = paths.refused_file(data_dir)
    if not os.path.exists(path) or os.path.getsize(path) < MAX_REFUSED_BYTES:
        append_line(path, f"{utc_now()} {reason}")


def _refuse_if_full(folder: str) -> None:
    """Raise SpoolFullError if the spool has reached its bound."""
    with os.scandir(folder) as entries:
        files = list(entries)
    if len(files) >= MAX_FILES:
        raise SpoolFullError
    if len(files) > FEW_FILES and sum(_size(file) for file in files) >= MAX_BYTES:
        raise SpoolFullError


def _size(file: os.DirEntry[str]) -> int:
    try:
        return file.stat(follow_symlinks=False).st_size
    except OSError:  # it was taken in meanwhile
        return 0


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:  # the error that is on its way up says more
        return
