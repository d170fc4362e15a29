"""Count the files of the package that an add and a search pass through.

    python benchmarks/rooms.py

Each call is made once before it is counted, so that nothing is opened or loaded for the first time. The embedder is the
static one. `--list` names the files.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import anyio

import palimpsest
from harness import parser_of
from palimpsest.core.models import Scope
from palimpsest.core.settings import load_settings
from palimpsest.memory import Memory, open_memory

PACKAGE = str(Path(palimpsest.__file__).parent)
ALICE = Scope("alice")


def _files_of(folder: Path, call: Callable[[Memory], Awaitable[object]]) -> set[str]:
    """Return the files whose functions a call enters, in any thread. The memory is opened for it."""
    seen = set[str]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            seen.add(frame.f_code.co_filename[len(PACKAGE) + 1 :])

    async def run() -> set[str]:
        settings = load_settings(None, data_dir=folder, embedder={"provider": "static"})
        async with open_memory(settings, background=False) as memory:
            await call(memory)
            seen.clear()
            await call(memory)
            return set(seen)

    threading.setprofile(note)  # for the threads that the memory starts
    sys.setprofile(note)
    try:
        return anyio.run(run)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def count(folder: Path) -> dict[str, set[str]]:
    """Return the files of an add and of a search, without the background."""
    texts = iter(("Ana plays the cello in Brno", "Tom is allergic to nuts"))
    return {
        "add": _files_of(folder, lambda memory: memory.add_text(ALICE, next(texts))),
        "search": _files_of(folder, lambda memory: memory.search(ALICE, "what must Tom not eat?")),
    }


def main() -> None:
    """Print how many files each call passes through."""
    parser = parser_of(__doc__)
    parser.add_argument("--list", action="store_true", help="name them")
    listed = parser.parse_args().list
    with tempfile.TemporaryDirectory() as folder:
        counted = count(Path(folder))
    for call, files in counted.items():
        print(f"{call}: {len(files)} files")
        if listed:
            print("\n".join(f"  {file}" for file in sorted(files)))


if __name__ == "__main__":
    main()
