"""The program `palimpsest-hook`: it always exits with 0, prints nothing or one JSON object, and waits 300 ms at most.

Clients wait for it before every prompt. So it imports few modules of the standard library, opens no ledger, and takes
every failure for "nothing to say".
"""

import _thread
import os
import time

# Seconds after which the hook ends itself, whatever it waits for.
LIMIT = 0.3
# Seconds after the start until which a server may answer.
ANSWER_LIMIT = 0.25
# Seconds that it may take longer to spool what it was given, or to write an answer it has begun to write.
#
# Both take some milliseconds, but on a machine with too much to do even the imports take 300.
GRACE = 0.7
MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
READ_BYTES = 256 * 1024
STDIN, STDOUT = 0, 1


def main() -> None:
    """Take an event from stdin, spool it, and print what the client's model should know."""
    try:
        started_at = time.monotonic()
        unfinished = _thread.allocate_lock()
        _thread.start_new_thread(_end_after_limit, (unfinished,))
        stdin = _read_stdin()
        with unfinished:
            from palimpsest.hooks.events import build_reply, handle_event  # noqa: PLC0415 - the watchdog must run before

            call = handle_event(stdin)
        if answer := build_reply(*call, started_at + ANSWER_LIMIT) if call is not None else b"":
            unfinished.acquire()  # and never released, because the process ends here
            os.write(STDOUT, answer)
    finally:
        os._exit(0)  # also after an exception: a hook that fails shows an error, or blocks the prompt


def _end_after_limit(unfinished: _thread.LockType) -> None:
    """End the process when its time is up, but not in the middle of a record or of an answer."""
    time.sleep(LIMIT)
    unfinished.acquire(timeout=GRACE)
    os._exit(0)


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
