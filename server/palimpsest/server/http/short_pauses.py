"""Keep the pauses of the garbage collector short.

A full collection visits every object of the process, half a million after the imports, and stops all threads for some
200 ms meanwhile. Requests that create many objects, such as open streams, would cause one collection after the other.
"""

from __future__ import annotations

import gc

import anyio

THRESHOLDS = (50_000, 20, 100)
"""After how many new objects the youngest are collected, and after how many of these collections the older ones are.
Python's own (700, 10, 10) suit small programs. Set by hand."""

LOADED_SECONDS = 15.0
"""When the memory is open and the background has loaded the vector index. Set by hand."""


async def keep_pauses_short(loaded_seconds: float = LOADED_SECONDS) -> None:
    """Collect seldom, and exclude from collections what is there once everything is loaded."""
    gc.set_threshold(*THRESHOLDS)
    await anyio.sleep(loaded_seconds)
    gc.freeze()
