"""Operating-system file locks, files that are replaced as a whole, and files of their owner alone."""

import os
import stat
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from errno import EACCES, EDQUOT, ENOSPC, EPERM, EROFS
from io import BufferedReader
from pathlib import Path
from typing import TextIO

from filelock import FileLock, Timeout

from palimpsest.core.errors import InputError, LedgerError

OWNER_ONLY = 0o600

# The permissions of everybody but the owner.
OTHERS = 0o077

PROBE = "locks.probe"

# Error numbers that mean the folder cannot be written. flock itself never returns one of these.
UNWRITABLE = (EACCES, EPERM, EROFS, ENOSPC, EDQUOT)


def file_lock(path: Path) -> FileLock:
    """Return a lock on a file (0600). The system releases it when the process ends, also when it is killed.

    One thread may acquire it and another release it. If the file system has no locks, acquiring it raises OSError;
    filelock's fallback, a marker file, would stay behind after a killed process.
    """
    return FileLock(path, mode=OWNER_ONLY, thread_local=False, fallback_to_soft=False)


@contextmanager
def replace_file(
    path: Path, mode: int = OWNER_ONLY, *, durable: bool = True, draft: Path | None = None
) -> Generator[TextIO]:
    """Open a UTF-8 text file that replaces `path` when the block ends; line ends are written as they are.

    Readers see the old file or the new one, never a part. If the block or the replacement raises, `path` keeps its old
    content. The new text is written to `draft` first, by default `path` + ".new", which a killed process leaves behind
    and the next replacement overwrites. With `durable` the text is on the disk before it replaces the old one, so a
    power failure leaves the old or the new file too; that costs an fsync. Without it the file may then be empty.
    Concurrent writers need a lock of their own. Raises OSError.
    """
    draft = draft or path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    try:
        # O_EXCL does not follow a symbolic link that someone put in the draft's place.
        descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        draft.chmod(mode)  # the umask would take bits from a mode passed to os.open
        draft.replace(path)
    finally:
        with suppress(OSError):  # an error that is on its way up says more
            draft.unlink(missing_ok=True)


def open_plain_file(file: Path) -> BufferedReader:
    """Open a file that a person names, to read its bytes. Raises OSError.

    Raises InputError for a folder, a device or a pipe: the end of `/dev/zero` never comes, nor that of a pipe that
    nobody writes to.
    """
    refuse_special(file)
    # The flag keeps a pipe that has taken the file's place from waiting for its writer.
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"{file} is not a plain file. Nothing was read")
    return os.fdopen(descriptor, "rb")


def refuse_special(file: Path) -> None:
    """Raise InputError for a device, a pipe or a socket, and OSError if there is nothing of that name."""
    mode = file.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError(f"{file} is not a plain file, but a device, a pipe or a socket. Nothing was read")


def read_plain_file(file: Path, max_bytes: int) -> bytes:
    """Return the bytes of a file that a person names, which may grow meanwhile. Raises OSError.

    Raises InputError if it is not a plain file, or larger than `max_bytes`.
    """
    with open_plain_file(file) as stream:
        content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise InputError(f"{file} is larger than {max_bytes:,} bytes. Nothing was read")
    return content


def files_below(folder: Path) -> list[Path]:
    """Return every file in a folder and in the folders below it, sorted; none if there is no such folder."""
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []


def delete_older(files: Iterable[Path], seconds: float) -> None:
    """Delete the files that were last written longer ago. What cannot be deleted is left to the next call."""
    for file in files:
        with suppress(OSError):  # another process has just deleted it
            if time.time() - file.stat().st_mtime > seconds:
                file.unlink()


def make_private_folder(folder: Path) -> None:
    """Create a folder with mode 0700. An existing folder is made private only if it is empty. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        make_private(folder)


def make_private(path: Path) -> None:
    """Take the permissions of others from a file or folder. Raises OSError."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & OTHERS:
        path.chmod(mode & ~OTHERS)


def refuse_without_locks(folder: Path) -> None:
    """Raise LedgerError if file locks do not work in a folder: two clients would destroy each other's writes."""
    advice = "Nothing was written. Set data_dir to a folder on a local disk."
    try:
        with file_lock(folder / PROBE).acquire(timeout=0):
            file_lock(folder / PROBE).acquire(timeout=0).lock.release()
    except Timeout:
        return  # the second one is refused, or the first because another process is testing right now
    except OSError as error:
        if error.errno in UNWRITABLE:
            raise LedgerError(f"the folder {folder} cannot be written to: {error.strerror}. {advice}") from error
        raise LedgerError(f"file locks cannot be used in {folder} ({error}). {advice}") from error
    raise LedgerError(f"file locks do not work in {folder}: the same lock was granted twice at once. {advice}")
