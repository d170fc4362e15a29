"""Run a Bolt server in a process of its own: ArcadeDB, which speaks the protocol and most of the language of Neo4j.

    python bolt_process.py FOLDER PASSWORD BOLT_PORT HTTP_PORT OWNER

It prints "ready", and ends when the process with the id OWNER is gone.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import arcadedb_embedded  # pyright: ignore[reportMissingTypeStubs] - it has none

LOOK_SECONDS = 0.5


def main() -> None:
    """Start the server, and end with its owner."""
    folder, password, bolt_port, http_port, owner = sys.argv[1:]
    config = {
        "host": "127.0.0.1",
        "http_port": int(http_port),
        "bolt_port": int(bolt_port),
        "server_plugins": "Bolt:com.arcadedb.bolt.BoltProtocolPlugin",
    }
    server: Any = arcadedb_embedded.create_server(folder, password, config=config)
    server.start()
    print("ready", flush=True)  # noqa: T201 - the process that started it waits for this
    while is_running(int(owner)):
        time.sleep(LOOK_SECONDS)
    os._exit(0)  # Java crashes when Python ends as usual


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    main()
