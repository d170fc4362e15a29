"""A purge erases in the index on a server before it says that it is done."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from palimpsest.index.chroma_server import SharedIndex
from tests.support.chroma_server import ChromaProcess
from tests.support.memory import ALICE, add_text, memory_in

pytestmark = pytest.mark.nightly


def stored_vectors(server: ChromaProcess, ledger_id: str, folder: Path, user: str, entries: list[int]) -> int:
    with closing(SharedIndex(server.settings(folder).vector_store.config, f"palimpsest-{ledger_id[:8]}")) as index:
        state = index.read()
        return 0 if state is None else len(index.open(state.build).fetch(user, entries))


@pytest.mark.anyio
async def test_a_purge_leaves_nothing_on_the_server(chroma: ChromaProcess, tmp_path: Path) -> None:
    """A vector says much of what its text said."""
    async with memory_in(tmp_path, vector_store=chroma.vector_store()) as memory:
        secret = await add_text(memory, "Alice hid the key under the third stone")
        await add_text(memory, "Alice bakes rye bread")
        await memory.engine.run(memory.projection.open)
        ledger_id = memory.engine.ledger.id
        assert stored_vectors(chroma, ledger_id, tmp_path, "alice", [1, 2]) == 2
        done = await memory.care.purge(ALICE, [secret])
        assert (done.clean, done.notes) == (True, ())
        assert stored_vectors(chroma, ledger_id, tmp_path, "alice", [1, 2]) == 0
        assert memory.projection.is_behind(), "the next search has the index built again"
        await memory.engine.run(memory.projection.catch_up)
        assert stored_vectors(chroma, ledger_id, tmp_path, "alice", [1, 2]) == 1


@pytest.mark.anyio
async def test_a_purge_says_what_it_could_not_erase(own_chroma: ChromaProcess, tmp_path: Path) -> None:
    """Whoever reads it knows that it is not done, and the next server finishes it."""
    async with memory_in(tmp_path, vector_store=own_chroma.vector_store()) as memory:
        secret = await add_text(memory, "Alice hid the key under the third stone")
        await memory.engine.run(memory.projection.open)
        ledger_id = memory.engine.ledger.id
        own_chroma.kill()
        done = await memory.care.purge(ALICE, [secret])
        assert not done.clean
        assert "the index on the Chroma server still holds vectors of what was erased" in done.notes[0]
    own_chroma.start()
    async with memory_in(tmp_path, vector_store=own_chroma.vector_store()) as memory:
        assert stored_vectors(own_chroma, ledger_id, tmp_path, "alice", [1]) == 1
        await memory.engine.run(memory.projection.open)
        assert stored_vectors(own_chroma, ledger_id, tmp_path, "alice", [1]) == 0
