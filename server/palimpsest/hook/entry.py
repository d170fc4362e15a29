"""The program `palimpsest-hook`: it always exits with 0, prints nothing or one JSON object, and ends after 300 ms.

Clients wait for it before every prompt. So it imports few modules of the standard library, opens no ledger, and takes
every failure for "nothing to say".
"""

from __future__ import annotations

import _thread
import os
import time

LIMIT = 0.3
"""Seconds after which the hook ends itself, whatever it waits for."""
ANSWER_LIMIT = 0.25
"""Seconds after the start until which a server may answer."""
WRITE_LIMIT = 1.0
"""Seconds that an answer which is being written may still take. A pipe takes all of it at once."""
MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
READ_BYTES = 256 * 1024
STDIN, STDOUT = 0, 1


def main() -> None:
    """Take an event from stdin, spool it, and print what the client's model should know."""
    writing = _thread.allocate_lock()
    try:
        started_at = time.monotonic()
        _thread.start_new_thread(_end_after_limit, (writing,))
        answer = _answer(started_at)
        if answer:
            writing.acquire()  # and never released: from here on nothing but the end of this block ends the process
            os.write(STDOUT, answer)
    finally:
        os._exit(0)  # also after an exception: a hook that fails shows an error, or blocks the prompt


def _end_after_limit(writing: _thread.LockType) -> None:
    """End the process when its time is up, but not in the middle of an answer."""
    time.sleep(LIMIT)
    writing.acquire(timeout=WRITE_LIMIT)
    os._exit(0)


def _answer(started_at: float) -> bytes:
    """Return what to print for the event on stdin."""
    from palimpsest.hook.handling import handle  # noqa: PLC0415 - the watchdog must run before it is imported

    return handle(_read_stdin(), started_at + ANSWER_LIMIT)


def _read_stdin() -> bytes | None:
    """Return all of stdin; None if it is too much. It is then read to its end: a client may fail if nobody reads."""
    parts: list[bytes] = []
    size = 0
    while part := os.read(STDIN, READ_BYTES):
        size += len(part)
        if size <= MAX_PAYLOAD_BYTES:
            parts.append(part)
        else:
            parts.clear()
    return b"".join(parts) if size <= MAX_PAYLOAD_BYTES else None
