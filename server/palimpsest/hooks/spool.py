"""Write the spool, and private files beside it. Standard library alone."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import time

# JSON from outside: objects and lists of which nothing is known.

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes a third of the time of all other modules
    from typing import TypeGuard

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

# No file that servers and commands write for the hook comes near it.
MAX_JSON_BYTES = 1024 * 1024


def read_object(path: str) -> dict[str, object]:
    """Return the JSON object in a file. Raises OSError, and ValueError if it has none."""
    with open(path, "rb") as file:
        return parsed_object(file.read(MAX_JSON_BYTES))


def parsed_object(text: bytes) -> dict[str, object]:
    """Return a JSON object, also one behind a byte order mark, as Cursor sends it.

    Raises ValueError, and RecursionError if it is nested too deeply.
    """
    value: object = json.loads(text.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "replace"))
    if not is_object(value):
        raise ValueError("no JSON object")
    return value


def is_object(value: object) -> TypeGuard[dict[str, object]]:
    """Return whether a value is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Return whether a value is a JSON list."""
    return isinstance(value, list)


def texts_in(value: object) -> list[str]:
    """Return the texts of a JSON list; none if it is no list."""
    return [item for item in value if isinstance(item, str)] if is_list(value) else []


# The files that hooks, servers and commands share, all of them in `<data_dir>/hooks`.
#
# Paths are strings, because importing pathlib takes longer than all the work of the hook. Everyone may import this
# module; it opens nothing.

SPOOL_SUFFIX = ".json"

# A file of the spool that is being written. A killed hook leaves it behind; it is not a record.
UNFINISHED_SUFFIX = ".part"
SOCKET_SUFFIX = ".json" if sys.platform == "win32" else ".sock"

# How many bytes the path of a socket may have: 104 with its NUL on macOS, 108 on Linux.
MAX_SOCKET_PATH = 100
# Not $TMPDIR: the hook and the server are started by different programs and must find the same folder.
SHORT_TMP = "/tmp"  # noqa: S108 - in it lies a folder of our own, which its users check


def hashed(*parts: str) -> str:
    """Return the name of a file for some texts: 32 hexadecimal digits."""
    from hashlib import sha256  # noqa: PLC0415 - it loads OpenSSL, and most events need no such name

    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def hooks_dir(data_dir: str) -> str:
    """Return the folder (0700) that holds everything of the hooks."""
    return os.path.join(data_dir, "hooks")


def spool_dir(data_dir: str) -> str:
    """Return the folder of the records that wait to be taken in: `<time_ns>-<pid>-<random>.json`."""
    return os.path.join(hooks_dir(data_dir), "spool")


def briefs_dir(data_dir: str) -> str:
    """Return the folder of the rendered briefs."""
    return os.path.join(hooks_dir(data_dir), "briefs")


def brief_file(data_dir: str, key: str) -> str:
    """Return the file of a brief: `{"v": 1, "text": str, "ids": [str]}`, the ids of the memories that it names."""
    return os.path.join(briefs_dir(data_dir), f"{key}.json")


def folders_file(data_dir: str) -> str:
    """Return the file that says which brief a session begins with: `{"v": 1, "users": {USER: {FOLDER: KEY}}}`.

    FOLDER is absolute; the nearest one at or above a session's folder counts, and "" is for all others. USER "" is the
    user of the settings.
    """
    return os.path.join(briefs_dir(data_dir), "folders.json")


def instructions_file(data_dir: str, key: str) -> str:
    """Return the file of the rendered instructions of a server."""
    return os.path.join(hooks_dir(data_dir), "instructions", f"{key}.txt")


def shown_dir(data_dir: str) -> str:
    """Return the folder of what was shown in sessions."""
    return os.path.join(hooks_dir(data_dir), "shown")


def shown_file(data_dir: str, client: str, session: str) -> str:
    """Return the file of the ids of memories that a session was shown, one a line."""
    return os.path.join(shown_dir(data_dir), hashed(client, session))


def settings_file(data_dir: str) -> str:
    """Return the file of what a hook must know of the settings.

    It is `{"mode": "on" | "off" | "capture" | "recall", "excluded_folders": [str]}`.
    """
    return os.path.join(hooks_dir(data_dir), "hook_settings.json")


def transcripts_file(data_dir: str) -> str:
    """Return the file of how far transcripts were read."""
    return os.path.join(hooks_dir(data_dir), "transcripts.json")


def sockets_dir(data_dir: str) -> str:
    """Return the folder where each running server has a socket, or, on Windows, a file with `port` and `token`.

    It is a folder below /tmp if the path of a socket in the data directory would be too long. Anyone may have made that
    one, so check it with `is_private_folder` or make it with `make_private_folder`.
    """
    folder = os.path.join(hooks_dir(data_dir), "sockets")
    socket = os.path.join(folder, f"{'0' * 32}{SOCKET_SUFFIX}")
    if sys.platform == "win32" or len(os.fsencode(socket)) <= MAX_SOCKET_PATH:
        return folder
    return os.path.join(SHORT_TMP, f"palimpsest-{os.getuid()}", hashed(data_dir))


# Folders and files that only their owner can read, made without following links that someone else put there.

OWNER_ONLY = 0o600
OWNER_ONLY_FOLDER = 0o700
OTHERS = 0o077
NEW_FILE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def is_private_folder(path: str) -> bool:
    """Return whether a path is a folder of this user, not a link to one, that nobody else can enter."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode):
        return False
    # Windows has neither: there, folders of the profile are the user's own.
    return not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & OTHERS)


def make_private_folder(path: str) -> None:
    """Make a folder (0700) and those above it, unless it exists.

    An own folder that others can enter is closed to them. Raises OSError, also if the path is a link, a file or
    someone else's folder.
    """
    os.makedirs(os.path.dirname(path), OWNER_ONLY_FOLDER, exist_ok=True)
    try:
        os.mkdir(path, OWNER_ONLY_FOLDER)
    except FileExistsError:
        if is_private_folder(path):
            return
        if os.path.islink(path):
            raise
        os.chmod(path, OWNER_ONLY_FOLDER)  # fails if it is someone else's
        if not is_private_folder(path):
            raise


def write_new_file(path: str, content: bytes) -> None:
    """Write a file (0600) that did not exist. Raises OSError, FileExistsError also for a link."""
    descriptor = os.open(path, NEW_FILE, OWNER_ONLY)
    try:
        while content:
            content = content[os.write(descriptor, content) :]
    finally:
        os.close(descriptor)


def append_line(path: str, line: str) -> None:
    """Append a line to a file (0600) in one write, so that lines of several processes are not mixed. Raises OSError."""
    descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), OWNER_ONLY)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


# Which part of what was said is kept, and what the memory is asked about.

# Far more than people write. A pasted log or file is no conversation.
MAX_CHARS = 100_000
# A server answers with at most 300 tokens, so anything longer is a mistake.
MAX_INJECTED_CHARS = 8_000
# A search reads the first words of a question only.
MAX_QUESTION_CHARS = 4_000
# Shorter prompts ("yes", "go on", "fix the tests") ask for nothing that a memory knows.
MIN_QUESTION_CHARS = 20
BLOCK_BEGIN, BLOCK_END = "<palimpsest-memory>", "</palimpsest-memory>"
# What Claude Code puts in place of a prompt when no person wrote one.
NOTIFICATIONS = (
    "<task-notification",
    "<teammate-message",
    "<system-reminder",
    "<local-command-",
    "<command-",
    "<bash-",
    "[Request interrupted",
)

BARE_COMMAND = r"/[A-Za-z][\w:.-]*"


def kept_part(text: str) -> str:
    """Return what may be kept of a text: without private parts and our own blocks, and cut if it is very long.

    It is "" for commands without words of their own and for notifications.
    """
    kept = without_private(text).strip()
    if kept.startswith(("!", *NOTIFICATIONS)) or (kept.startswith("/") and re.fullmatch(BARE_COMMAND, kept)):
        return ""
    return kept if len(kept) <= MAX_CHARS else f"{kept[:MAX_CHARS]}… ({len(kept)} characters)"


def without_private(text: str) -> str:
    """Return a text without `<private>…</private>` and `<palimpsest-memory>…</palimpsest-memory>`, also nested ones.

    A `<private>` that is never closed hides the rest. Our own blocks are always closed, so a lone tag of ours is part
    of what was said.
    """
    if "<" not in text:
        return text
    return _without(_without(text, "palimpsest-memory", hides_rest=False), "private", hides_rest=True)


def question(text: str) -> str:
    """Return what to ask the memory about a prompt, or "" if there is nothing to ask."""
    return "" if len(text) < MIN_QUESTION_CHARS or text.startswith(("/", "!")) else text[:MAX_QUESTION_CHARS]


def is_block(text: str) -> bool:
    """Return whether a text is a block of ours, of a length that a model can be given."""
    return text.startswith(BLOCK_BEGIN) and text.endswith(BLOCK_END) and len(text) <= MAX_INJECTED_CHARS


def _without(text: str, tag: str, *, hides_rest: bool) -> str:
    """Return a text without what stands between tags. It is read once, because it can be long and full of tags."""
    kept: list[str] = []
    depth = begin = end = 0
    for match in re.finditer(rf"<(/?){tag}\s*>", text, re.IGNORECASE):
        if match[1]:
            end = match.end() if depth == 1 else end
            depth = max(0, depth - 1)
            continue
        if depth == 0:
            begin = match.start()
            kept.append(text[end:begin])
        depth += 1
    return "".join(kept) + (text[end:] if depth == 0 else "" if hides_rest else text[begin:])


# The spool: a file for each thing that was said. Hooks write them; whoever takes one into the ledger removes it.

VERSION = 1

# Weeks of work without any server or command. More would make every hook slow, because it counts them.
MAX_FILES = 10_000


# A rendered line of what is due on a day, or of what holds until one.
_DUE = re.compile(
    r"(?m)^- (?:(?:\(.+?\) )?(?:on|from|until) |(?:said|on|in) [\d-]+ \((?:until|[\d-]+ to) )"
    r"(\d{4}(?:-\d\d){0,2})[:)] .*\n"
)

# Its heading, if nothing is left below.
_NOTHING_DUE = re.compile(r"^Due\b.*:\n(?!- (?:\(.+?\) )?(?:on|from|until) \d)", re.MULTILINE)


def without_past(text: str) -> str:
    """Return a rendered text without what was due or ended before today: it may be read some days later."""
    today = time.strftime("%Y-%m-%d")
    return _NOTHING_DUE.sub("", _DUE.sub(lambda found: found[0] if found[1] >= today[: len(found[1])] else "", text))


def utc_now() -> str:
    """Return the time in ISO 8601, UTC, with microseconds."""
    now = time.time_ns()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now // 10**9))}.{now // 1000 % 10**6:06d}+00:00"


def new_record(client: str, event: str, session: str, **fields: str) -> dict[str, str | int]:
    """Return a record of the spool, at the present time.

    `event` is prompt, reply, compact, end or start. The other fields are `role` (user or assistant) and `text`, for a
    prompt or a reply; `message_id`, if the client gives one; `transcript` and `cwd`; and `user`, "" for the user of the
    settings.
    """
    return {"v": VERSION, "client": client, "event": event, "session": session, "at": utc_now(), **fields}


def write_record(data_dir: str, record: dict[str, str | int]) -> str:
    """Write a record into the spool and return its path; "" if the spool is full.

    The file appears as a whole: a killed process leaves a `.part`, never half a record. Nothing is synced to the disk,
    because that can take longer than the hook may run; a power failure may lose the last seconds. Raises OSError.
    """
    folder = spool_dir(data_dir)
    make_private_folder(hooks_dir(data_dir))
    make_private_folder(folder)
    if len(os.listdir(folder)) >= MAX_FILES:
        return ""
    name = f"{time.time_ns()}-{os.getpid()}-{os.urandom(8).hex()}"
    draft = os.path.join(folder, f"{name}{UNFINISHED_SUFFIX}")
    path = os.path.join(folder, f"{name}{SPOOL_SUFFIX}")
    try:
        # ASCII, because a client's text may have lone surrogates, which UTF-8 has no bytes for.
        write_new_file(draft, json.dumps(record).encode())
        os.rename(draft, path)
    except OSError:
        _remove(draft)
        raise
    return path


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:  # the error that is on its way up says more
        return
