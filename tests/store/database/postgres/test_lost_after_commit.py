"""The database stops right after a commit: the call says what was done, and none that asks again does it twice."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pydantic import SecretStr
from sqlalchemy import Engine, event

from loopback import OpenAIServer
from palimpsest.learn.commit import WriteResult
from palimpsest.memory import Memory
from postgresql import Cluster, own_cluster
from tests.support.memory import ALICE, add_text, llm_settings, memory_in, messages_from

pytestmark = [pytest.mark.anyio, pytest.mark.only_on("postgres", "a file cannot be stopped")]

Work: TypeAlias = Callable[[Memory, str], Awaitable[WriteResult]]

SAID = messages_from(("user", "I have moved to Porto."))


@pytest.fixture(scope="module")
def cluster() -> Generator[Cluster]:
    """Run a server that these tests alone use."""
    with own_cluster() as started:
        yield started


@asynccontextmanager
async def own_memory(cluster: Cluster, folder: Path, **settings: Any) -> AsyncGenerator[Memory]:
    """Open an empty memory on that server."""
    cluster.create_database(folder.name)
    async with memory_in(folder, ledger_url=SecretStr(cluster.url(folder.name)), **settings) as memory:
        yield memory


@contextmanager
def stopped_after_commit(cluster: Cluster) -> Generator[None]:
    """Stop the server as soon as it has committed something, and start it again after the block."""

    def stop(_conn: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.endswith("COMMIT"):
            cluster.stop()

    event.listen(Engine, "after_cursor_execute", stop)
    try:
        yield
    finally:
        event.remove(Engine, "after_cursor_execute", stop)
        cluster.start()


async def newest_edit(memory: Memory) -> int:
    return (await memory.log(ALICE, limit=1))[0].number


WRITES: dict[str, Work] = {
    "add_text": lambda memory, _: memory.add_text(ALICE, "User lives in Porto.", infer=False),
    "add_messages": lambda memory, _: memory.add_messages(SAID),
    "update": lambda memory, memory_id: memory.update(ALICE, memory_id, text="User lives in Porto."),
    "set_tags": lambda memory, memory_id: memory.update(ALICE, memory_id, tags=["home"]),
    "delete": lambda memory, memory_id: memory.delete(ALICE, [memory_id]),
    "delete_all": lambda memory, _: memory.delete_all(ALICE),
    "undo": lambda memory, _: memory.undo(ALICE),
}


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("name", WRITES)
async def test_a_write_is_acknowledged_if_the_database_has_it(name: str, cluster: Cluster, tmp_path: Path) -> None:
    """Guards against an error after the work: who repeats an undo because of it would undo one edit more."""
    async with own_memory(cluster, tmp_path) as memory:
        memory_id = await add_text(memory, "User lives in Braga.")
        before = await newest_edit(memory)
        with stopped_after_commit(cluster):
            result = await WRITES[name](memory, memory_id)
        assert result.outcomes or result.kept_messages
        assert await newest_edit(memory) == before + 1


@pytest.mark.nightly
async def test_a_restored_memory_names_the_one_that_replaced_it(cluster: Cluster, tmp_path: Path) -> None:
    """What the note says is read before the memory is restored."""
    async with own_memory(cluster, tmp_path) as memory:
        old = await add_text(memory, "User lives in Braga.")
        new = await add_text(memory, "User lives in Porto.", replaces=[old])
        with stopped_after_commit(cluster):
            result = await memory.restore(ALICE, old)
        assert [outcome.memory.id for outcome in result.outcomes] == [old]
        assert any(new[:8] in note for note in result.notes)


@pytest.mark.nightly
async def test_messages_are_said_to_be_kept(cluster: Cluster, tmp_path: Path) -> None:
    """The model has not been asked then, and the reply says how to go on."""
    with OpenAIServer() as server:
        async with own_memory(cluster, tmp_path, llm=llm_settings(server.base_url)) as memory:
            with stopped_after_commit(cluster):
                result = await memory.add_messages(SAID)
    assert result.kept_messages == 1
    assert any("kept 1 message, but no facts were learned" in note for note in result.notes)


@pytest.mark.nightly
async def test_a_deletion_of_everything_erases_its_recalls_or_does_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """What was asked is about what was deleted."""
    async with own_memory(cluster, tmp_path) as memory:
        memory_id = await add_text(memory, "User lives in Braga.")
        await memory.search(ALICE, "where do I live?")
        await memory.recall_log.write()
        assert await memory.recall_log.recalls(ALICE, memory_id)
        with stopped_after_commit(cluster):
            await memory.delete_all(ALICE)
        assert not await memory.recall_log.recalls(ALICE, memory_id)
