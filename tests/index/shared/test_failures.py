"""A Chroma server that ends, hangs or loses its data, and a purge, which is done when it has erased there."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from palimpsest.core.errors import SettingsError, VectorIndexError
from palimpsest.core.models import Scope
from palimpsest.index import chroma_server
from palimpsest.index.chroma_server import SharedIndex, SharedProjection
from palimpsest.index.sync import finish_purge
from palimpsest.store.ledger import Ledger
from tests.support.chroma_server import ChromaProcess
from tests.support.memory import ALICE, add_text, memory_in
from tests.support.projections import add, facts, has_all, nearest

pytestmark = pytest.mark.nightly


@contextmanager
def frozen(server: ChromaProcess) -> Generator[None]:
    """Let a server not answer, and give requests up sooner than outside of tests, but only meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chroma_server, "SEARCH_SECONDS", 0.2)
        patch.setattr(chroma_server, "REPLY_SECONDS", 0.4)
        server.freeze()
        yield
    server.thaw()


def build_on(server: ChromaProcess, ledger: Ledger, folder: Path) -> str:
    """Return the name of the build on a server. An index that is built anew has another one."""
    config = server.settings(folder).vector_store.config
    with closing(SharedIndex(config, f"palimpsest-{ledger.id[:8]}")) as index:
        state = index.read()
        assert state is not None
        return state.build


def test_a_server_that_comes_back_with_its_data_goes_on(
    ledger: Ledger, own_chroma: ChromaProcess, own: SharedProjection, tmp_path: Path
) -> None:
    """No process has to be started again, and nothing is built anew."""
    add(ledger, *facts(3))
    own.open()
    build = build_on(own_chroma, ledger, tmp_path)
    own_chroma.kill()
    assert nearest(ledger, own, "fact 1") is None
    assert own.state == "broken"
    assert f"127.0.0.1:{own_chroma.port} could not be reached" in own.fault
    assert own.is_behind()
    with pytest.raises(VectorIndexError, match="could not be reached"):
        own.open()
    add(ledger, "four")
    own_chroma.start()
    own.open()
    assert (own.state, own.fault) == ("ready", "")
    assert has_all(ledger, own)
    assert build_on(own_chroma, ledger, tmp_path) == build


def test_a_server_that_lost_its_data_is_noticed_and_filled_again(
    ledger: Ledger, own_chroma: ChromaProcess, own: SharedProjection
) -> None:
    """The checkpoint was lost with the vectors, so nobody takes the empty server for an index."""
    add(ledger, *facts(3))
    own.open()
    own_chroma.forget()
    assert nearest(ledger, own, "fact 1") is None
    assert own.is_behind(), "the background looks what is the matter"
    own.open()
    assert own.count() == 3
    assert has_all(ledger, own)


class TestHanging:
    """A process that was stopped accepts connections, and never answers."""

    def test_no_operation_waits_for_ever(
        self, ledger: Ledger, own_chroma: ChromaProcess, own: SharedProjection
    ) -> None:
        """Each fails within the time that its requests have, and the index is used again afterwards."""
        with pytest.raises(SettingsError, match=r"vector_store\.config\.host"):
            own_chroma.settings(own_chroma.folder, host="http://somewhere")
        add(ledger, *facts(3))
        own.open()
        with frozen(own_chroma):
            assert nearest(ledger, own, "fact 1") is None
            assert own.state == "broken"
            assert "did not answer within 0.2 s" in own.fault
            for operation in (own.open, own.rebuild, own.erase, own.condition):
                with pytest.raises(VectorIndexError, match="did not answer"):
                    operation()
        own.open()
        assert nearest(ledger, own, "fact 1", 1) == [2]

    @pytest.mark.anyio
    async def test_a_search_finds_everything_meanwhile(self, own_chroma: ChromaProcess, tmp_path: Path) -> None:
        """The ledger's vectors are scanned, and the next search does not wait again."""
        async with memory_in(tmp_path, vector_store=own_chroma.vector_store()) as memory:
            await add_text(memory, "Alice bakes rye bread on Sundays")
            await memory.engine.run(memory.projection.open)
            with frozen(own_chroma):
                await add_text(memory, "Alice plays the harp")
                for query, text in (("loaf", "Alice bakes rye bread on Sundays"), ("harp", "Alice plays the harp")):
                    assert text in [hit.text for hit in (await memory.search(ALICE, query)).hits]
            own_chroma.kill()
            assert (await memory.search(ALICE, "harp")).hits[0].text == "Alice plays the harp"


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


@pytest.mark.parametrize("verb", ["open", "catch_up"])
def test_a_purge_while_another_server_fills_the_index(
    ledger: Ledger,
    chroma: ChromaProcess,
    share: Callable[[ChromaProcess], SharedProjection],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
) -> None:
    """It must not carry the vectors of before into the state of the ledger after the purge."""
    other, projection = share(chroma), share(chroma)
    other.batch = 20
    doomed = [add(ledger, "to be erased")[0].memory.id]
    if verb == "catch_up":
        other.open()
    add(ledger, *facts(2 * other.batch))

    def purge(_done: int, _total: int) -> None:
        while doomed:
            assert stored_vectors(chroma, ledger.id, tmp_path, "ana", [1]) == 1
            ledger.purge(Scope("ana"), [doomed.pop()])

    if verb == "open":
        other.open(purge)
    else:
        monkeypatch.setattr("palimpsest.index.chroma_server.unseen", purge)  # its progress is shown to nobody
        other.catch_up()
    assert doomed == []
    assert finish_purge(ledger, projection) == []
    assert stored_vectors(chroma, ledger.id, tmp_path, "ana", [1]) == 0
    projection.open()
    assert has_all(ledger, projection)
