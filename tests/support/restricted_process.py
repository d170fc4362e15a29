"""Start palimpsest in a process that lacks the network.

    python restricted_process.py '{"fence": true}' serve

The first argument is a JSON object. The others are passed on to palimpsest.

- `fence`: forbid every network socket, also in native code: the kernel kills a process that opens one.
- `log`: a file to which one line is written for every use of a socket that Python sees.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import runpy
import socket
import struct
import sys
from pathlib import Path
from typing import Any

# By machine: the number of the architecture, and that of the system call `socket`.
SYSCALLS = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}

# It opens sockets too, unseen by a filter of system calls. Its number is the same on all architectures.
IO_URING_SETUP = 425

CAN_FENCE = sys.platform == "linux" and platform.machine() in SYSCALLS

LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
# The offsets of the parts of a system call in what a filter sees.
NUMBER, ARCHITECTURE, FAMILY = 0, 4, 16

ALLOW, KILL = 0x7FFF0000, 0x80000000
NO_NEW_PRIVILEGES, SET_SECCOMP, BY_FILTER = 38, 22, 2


def fence() -> None:
    """Have the kernel kill this process if it opens a network socket."""
    socket.has_ipv6 = False  # urllib3 would bind a socket to ::1 to find out when it is imported
    architecture, opens = SYSCALLS[platform.machine()]
    program = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    program += [(EQUAL, 0, 1, IO_URING_SETUP), (RETURN, 0, 0, KILL), (EQUAL, 1, 0, opens), (RETURN, 0, 0, ALLOW)]
    program += [(LOAD, 0, 0, FAMILY), (EQUAL, 0, 1, socket.AF_UNIX), (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, KILL)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", op, *rest) for op, *rest in program))
    held = struct.pack("@HP", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _checked(libc.prctl(SET_SECCOMP, BY_FILTER, held, 0, 0))


def _checked(code: int) -> None:
    if code:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def log_sockets(path: str) -> None:
    """Log uses of sockets, as Python's audit hooks report them."""
    log = Path(path).open("a", buffering=1)  # noqa: SIM115 - open as long as the process runs

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith("socket."):
            log.write(json.dumps([event, *(str(part) for part in arguments if not isinstance(part, socket.socket))]))
            log.write("\n")

    sys.addaudithook(hook)


def main() -> None:
    """Apply the restrictions of the first argument, then run palimpsest with the other arguments."""
    restrictions: dict[str, Any] = json.loads(sys.argv[1])
    del sys.path[0]  # the folder of the tests, which palimpsest does not have in its path
    if "log" in restrictions:
        log_sockets(restrictions["log"])
    if "fence" in restrictions:
        fence()
    sys.argv = ["palimpsest", *sys.argv[2:]]
    runpy.run_module("palimpsest", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
