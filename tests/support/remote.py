"""An object that lives in a process of its own, which does what a test tells it, and which a test can kill."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

PAUSED = "paused"


class Remote:
    """A process with what a function makes there. Errors of its methods are raised here.

    The function gets the pipe to this process first, and then `arguments`. It is one of a module, as its arguments are
    sent to the process.
    """

    def __init__(self, make: Callable[..., object], *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, make, arguments), daemon=True)
        self._process.start()
        there.close()
        self.read()

    def call(self, method: str, *arguments: object) -> Any:
        """Call a method and return its answer, or `PAUSED` if it pauses."""
        self._pipe.send((method, arguments))
        return self.read()

    def go_on(self) -> Any:
        """Let a method that pauses go on to its end, and return its answer."""
        while True:
            self._pipe.send(None)
            if (answer := self.read()) != PAUSED:
                return answer

    def read(self) -> Any:
        """Return the next answer, or raise it."""
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self) -> None:
        """End the process as a crash would (SIGKILL)."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


def pause(pipe: Connection) -> None:
    """Tell the test that this process pauses, and wait until it may go on."""
    pipe.send(PAUSED)
    pipe.recv()


def _serve(pipe: Connection, make: Callable[..., object], arguments: tuple[object, ...]) -> None:
    made = make(pipe, *arguments)
    pipe.send(None)
    while True:
        try:
            method, given = pipe.recv()
        except EOFError:
            os._exit(0)  # nothing is closed
        try:
            pipe.send(getattr(made, method)(*given))
        except Exception as error:  # noqa: BLE001 - it is raised in the test
            pipe.send(error)
