"""Start palimpsest in a process that lacks something: room in its files, privileges, the network.

    python restricted_process.py '{"room": 1000000}' serve

The first argument is a JSON object, the others go to palimpsest as they are:

- `room`: how many bytes a file may hold. With `told`, a named pipe, another number can be written to that pipe, or
  "lift" for no bound, and the answer comes through it when the bound holds.
- `unprivileged`: obey the modes of files, as root too.
- `fence`: "none" forbids every network socket, native code's too: the kernel kills the process that asks for one.
  "tcp" leaves connections over IPv4.
- `heard`: a file to which every use of a socket is written that Python sees, a line each, and every import of a
  module among `imports`.
- `renamed`: a named pipe to which the name of every file is written that took the place of another.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import runpy
import socket
import struct
import sys
import threading
from pathlib import Path
from typing import Any

SYSCALLS = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""The number of the architecture and that of `socket`, by machine."""

IO_URING_SETUP = 425
"""It opens sockets too, out of sight; the number is the same everywhere."""

CAN_FENCE = sys.platform == "linux" and platform.machine() in SYSCALLS

LOAD, EQUAL, AND, RETURN = 0x20, 0x15, 0x54, 0x06
NUMBER, ARCHITECTURE, FAMILY, KIND = 0, 4, 16, 24
"""Where a filter finds the parts of a system call."""

ALLOW, KILL = 0x7FFF0000, 0x80000000
NO_NEW_PRIVILEGES, SET_SECCOMP, BY_FILTER = 38, 22, 2
VERSION_3 = 0x20080522


def limit_room(size: int, told: str | None) -> None:
    """Bound the size of files; a write beyond fails as on a disk without room (Python ignores SIGXFSZ)."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    def follow(pipe: Path) -> None:
        while True:
            wanted = pipe.read_text()
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard if wanted == "lift" else int(wanted), hard))
            pipe.write_text("done")

    if told is not None:
        threading.Thread(target=follow, args=(Path(told),), daemon=True).start()


def drop_privileges() -> None:
    """Give up every capability of Linux, among them the one to write where the modes forbid it."""
    if sys.platform == "linux":
        header, none = struct.pack("=Ii", VERSION_3, 0), bytes(24)
        _checked(ctypes.CDLL(None, use_errno=True).capset(header, none))


def fence(kind: str) -> None:
    """Have the kernel kill this process when it opens a network socket of another kind than is left to it."""
    socket.has_ipv6 = False  # urllib3 finds out when it is imported, by a socket bound to ::1 and closed again
    architecture, opens = SYSCALLS[platform.machine()]
    left = [socket.AF_UNIX]
    program = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    program += [(EQUAL, 0, 1, IO_URING_SETUP), (RETURN, 0, 0, KILL), (EQUAL, 1, 0, opens), (RETURN, 0, 0, ALLOW)]
    program += [(LOAD, 0, 0, FAMILY)]
    for family in left:
        program += [(EQUAL, 0, 1, family), (RETURN, 0, 0, ALLOW)]
    if kind == "tcp":
        stream = [(LOAD, 0, 0, KIND), (AND, 0, 0, 0xFF), (EQUAL, 0, 1, socket.SOCK_STREAM), (RETURN, 0, 0, ALLOW)]
        program += [(EQUAL, 0, len(stream), socket.AF_INET), *stream]
    program += [(RETURN, 0, 0, KILL)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", op, *rest) for op, *rest in program))
    held = struct.pack("@HP", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _checked(libc.prctl(SET_SECCOMP, BY_FILTER, held, 0, 0))


def _checked(code: int) -> None:
    if code:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def listen(heard: str | None, imports: list[str], renamed: str | None) -> None:
    """Write down what Python says of sockets, of imports, and of files that take the place of others."""
    log = Path(heard).open("a", buffering=1) if heard else None  # noqa: SIM115 - as long as the process
    pipe = os.open(renamed, os.O_WRONLY) if renamed else None

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if log is not None and (event.startswith("socket.") or (event == "import" and arguments[0] in imports)):
            log.write(json.dumps([event, *(str(part) for part in arguments if not isinstance(part, socket.socket))]))
            log.write("\n")
        if pipe is not None and event == "os.rename":
            os.write(pipe, os.fsencode(arguments[1]) + b"\n")

    sys.addaudithook(hook)


def main() -> None:
    """Take away what the first argument says, then run palimpsest with the rest."""
    lacking: dict[str, Any] = json.loads(sys.argv[1])
    del sys.path[0]  # the tests' folder, which palimpsest would not have either
    if "room" in lacking:
        limit_room(lacking["room"], lacking.get("told"))
    if lacking.get("unprivileged"):
        drop_privileges()
    listen(lacking.get("heard"), lacking.get("imports", []), lacking.get("renamed"))
    if "fence" in lacking:
        fence(lacking["fence"])
    sys.argv = ["palimpsest", *sys.argv[2:]]
    runpy.run_module("palimpsest", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
