"""The library: programs that were written for mem0 do what they did, threads, and the end of a program."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from loopback import OpenAIServer
from palimpsest import AsyncMemory, Memory, open_memory
from palimpsest.core.errors import PalimpsestError
from palimpsest.core.models import Scope
from palimpsest.core.settings import load_settings
from tests.support.environment import clean_environment
from tests.support.memory import llm_settings
from tests.support.scripted_model import facts_reply
from tests.support.stores import Store

TRIP = [
    {"role": "user", "content": "I am planning a hike in the Tatra mountains in September."},
    {"role": "assistant", "content": "Lovely. Do you sleep in huts?"},
    {"role": "user", "content": "Yes, and I am afraid of thunderstorms."},
]


@pytest.fixture(scope="module")
def m(
    tmp_path_factory: pytest.TempPathFactory,
    store: Store,  # noqa: ARG001 - where its ledger is
) -> Generator[Memory]:
    """Open a memory without a language model. Each test has a user of its own."""
    with Memory({"data_dir": tmp_path_factory.mktemp("library"), "llm": {"provider": "none"}}) as memory:
        yield memory


def texts(reply: dict[str, Any]) -> list[str]:
    return [item["memory"] for item in reply["results"]]


# Small programs in the manner of mem0's documentation.


def test_texts_and_conversations_are_added_listed_and_searched(m: Memory) -> None:
    added = m.add("I keep bees on the roof", user_id="s01")
    assert [(item["event"], item["memory"]) for item in added["results"]] == [("ADD", "I keep bees on the roof")]
    (found,) = m.search(query="Which animals do I keep?", filters={"user_id": "s01"}, top_k=3)["results"]
    assert found["id"] == added["results"][0]["id"]
    assert 0 < found["score"] <= 1
    result = m.add(TRIP, user_id="s02", metadata={"category": "travel"})
    assert [item["role"] for item in result["results"]] == ["user", "assistant", "user"]
    memories = m.get_all(user_id="s02")
    assert sorted(texts(memories)) == sorted(turn["content"] for turn in TRIP)
    assert all(item["metadata"] == {"category": "travel"} for item in memories["results"])
    m.add({"role": "user", "content": "My piano is tuned in March"}, user_id="s03")
    assert texts(m.get_all(user_id="s03")) == ["My piano is tuned in March"]
    for number in range(5):
        m.add(f"Shelf {number} holds atlases", user_id="s05")
    assert len(m.search("Where are the atlases?", user_id="s05", limit=2)["results"]) == 2
    assert len(m.get_all(user_id="s05", limit=3)["results"]) == 3
    assert len(m.get_all(filters={"user_id": "s05"}, top_k=4)["results"]) == 4


def test_a_memory_is_read_updated_and_deleted_by_its_id(m: Memory) -> None:
    memory_id = m.add("The key hangs behind the clock", user_id="s07")["results"][0]["id"]
    item = m.get(memory_id)
    assert item is not None
    assert item.keys() >= {"id", "memory", "hash", "metadata", "created_at", "updated_at", "user_id"}
    assert (item["memory"], item["user_id"]) == ("The key hangs behind the clock", "s07")
    assert m.get("00000000-0000-4000-8000-000000000000") is None
    assert m.update(memory_id=memory_id, data="The key is lost") == {"message": "Memory updated successfully!"}
    m.update(memory_id, "The key is found", metadata={"room": "hall"})
    item = m.get(memory_id)
    assert item is not None
    assert (item["memory"], item["metadata"]) == ("The key is found", {"room": "hall"})
    assert m.delete(memory_id=memory_id) == {"message": "Memory deleted successfully!"}
    assert m.get(memory_id) is None
    assert m.search("Where is the key?", user_id="s07")["results"] == []
    versions = m.history(memory_id)
    assert [version["event"] for version in versions] == ["ADD", "UPDATE", "UPDATE", "DELETE"]
    assert (versions[2]["old_memory"], versions[2]["new_memory"]) == ("The key is lost", "The key is found")
    assert versions[3]["is_deleted"]
    block = {"pinned": True, "label": "keys"}
    memory_id = m.add("One key", user_id="s07", metadata=block)["results"][0]["id"]
    m.update(memory_id, "Two keys")
    m.delete(memory_id)
    assert m.get(memory_id) is None


def test_users_agents_and_runs_are_apart(m: Memory) -> None:
    m.add("One of two", user_id="s11", agent_id="writer")
    m.add("Two of two", user_id="s11")
    m.add("Of somebody else", user_id="s11b")
    assert m.delete_all(user_id="s11") == {"message": "Memories deleted successfully!"}
    assert texts(m.get_all(user_id="s11")) == []
    assert texts(m.get_all(user_id="s11b")) == ["Of somebody else"]
    m.add("The tone is friendly", agent_id="s12-support", run_id="first")
    m.add("The tone is formal", agent_id="s12-legal", run_id="first")
    assert texts(m.get_all(agent_id="s12-support")) == ["The tone is friendly"]
    assert texts(m.search("What is the tone?", filters={"agent_id": "s12-legal"})) == ["The tone is formal"]
    (item,) = m.get_all(agent_id="s12-legal", run_id="first")["results"]
    assert (item["agent_id"], item["run_id"]) == ("s12-legal", "first")


def test_filter_by_metadata(m: Memory) -> None:
    m.add("Blue walls in the kitchen", user_id="s13", metadata={"room": "kitchen", "year": 2021})
    m.add("Yellow walls in the hall", user_id="s13", metadata={"room": "hall", "year": 2024})
    assert texts(m.search("walls", user_id="s13", filters={"room": "hall"})) == ["Yellow walls in the hall"]
    both = {"AND": [{"user_id": "s13"}, {"year": {"gte": 2022}}]}
    assert texts(m.search("walls", filters=both)) == ["Yellow walls in the hall"]
    either = {"user_id": "s13", "OR": [{"room": "kitchen"}, {"year": {"in": [1999]}}]}
    assert texts(m.get_all(filters=either)) == ["Blue walls in the kitchen"]
    assert len(m.get_all(filters={"user_id": "s13", "room": "*"})["results"]) == 2
    assert texts(m.get_all(filters={"user_id": "s13", "NOT": [{"room": "hall"}, {"door": "*"}]})) == [
        "Blue walls in the kitchen"
    ]
    with pytest.raises(ValueError, match="contains"):
        m.get_all(filters={"user_id": "s13", "room": {"contains": "kit"}})
    with pytest.raises(ValueError, match="user_id"):
        m.get_all(filters={"OR": [{"user_id": "s13"}, {"user_id": "s14"}]}, agent_id="any")


def test_other_arguments_of_an_add_and_a_search(m: Memory) -> None:
    m.add("The ferry leaves at noon", user_id="s14")
    (found,) = m.search("When does the ferry leave?", user_id="s14", threshold=0.3, explain=True)["results"]
    assert found["score_details"]
    assert m.search("Who invented the zipper?", user_id="s14", threshold=1.0)["results"] == []
    named = [{"role": "user", "name": "Oskar", "content": "I repaired the gate"}]
    (item,) = m.add(named, user_id="s15", infer=False)["results"]
    assert (item["memory"], item["role"], item["actor_id"]) == ("I repaired the gate", "user", "Oskar")
    assert texts(m.get_all(user_id="s15", filters={"actor_id": "Oskar"})) == ["I repaired the gate"]
    (item,) = m.add("The voucher is worth ten euros", user_id="s16", expiration_date="2999-12-31")["results"]
    kept = m.get(item["id"])
    assert kept is not None
    assert (kept["expiration_date"], kept["metadata"]) == ("2999-12-31", None)


NOWHERE = "user_id, agent_id or run_id"
WRONG_CALLS: tuple[tuple[Callable[[Memory], object], str], ...] = (
    (lambda m: m.add("Whose is this?"), NOWHERE),
    (lambda m: m.search("Whose is this?", filters={"room": "hall"}), NOWHERE),
    (lambda m: m.delete_all(), NOWHERE),
    (lambda m: m.delete("00000000-0000-4000-8000-000000000000"), "no memory with the id"),
    (lambda m: m.add("Of which kind?", user_id="s18", metadata={"kind": "question"}), "metadata may not use 'kind'"),
    (lambda m: m.search("How many?", user_id="s18", limit=0), "limit is 0"),
    (lambda m: m.search("  ", user_id="s18"), "query is empty"),
)


def test_errors_are_value_errors(m: Memory) -> None:
    for call, error in WRONG_CALLS:
        with pytest.raises(ValueError, match=error):
            call(m)
    assert m.add([], user_id="s18") == {"results": [], "relations": []}


def test_reset(tmp_path: Path) -> None:
    with Memory.from_config({"data_dir": tmp_path, "llm": {"provider": "none"}}) as memory:
        memory.add("Everybody forgets this", user_id="s19")
        memory.add("And this", user_id="s19b", agent_id="clerk")
        memory.reset()
        assert memory.get_all(user_id="s19")["results"] == memory.get_all(user_id="s19b")["results"] == []


def test_a_configuration_with_a_language_model(tmp_path: Path) -> None:
    def chat(request: dict[str, Any]) -> str:
        """Extract one fact, and add it in any case."""
        is_extraction = "New messages: " in request["messages"][1]["content"]
        decided = {"decisions": [{"fact": 0, "event": "ADD", "memory": None, "text": None}]}
        return facts_reply("User is afraid of thunderstorms.") if is_extraction else json.dumps(decided)

    with OpenAIServer(chat) as server:
        config = {
            "llm": {"provider": "openai", "config": llm_settings(server.base_url)["config"] | {"temperature": 0.2}},
            "version": "v1.1",
            "data_dir": tmp_path,
        }
        with Memory.from_config(config) as memory:
            added = memory.add(TRIP, user_id="s20", metadata={"topic": "hiking"})
            assert [item["event"] for item in added["results"]] == ["ADD"]
            assert "thunderstorms" in added["results"][0]["memory"]
            found = memory.search("What frightens me?", user_id="s20", filters={"topic": "hiking"})
            assert found["results"][0]["id"] == added["results"][0]["id"]


# The same for programs that await.


def awaiting(folder: Path, program: Callable[[AsyncMemory], Coroutine[Any, Any, None]]) -> None:
    """Run a program with an `AsyncMemory` that has no language model, in asyncio as mem0's programs do."""

    async def run() -> None:
        async with AsyncMemory({"data_dir": folder, "llm": {"provider": "none"}}) as memory:
            await program(memory)

    asyncio.run(run())


def test_a_program_that_awaits_adds_searches_and_lists(tmp_path: Path) -> None:
    async def program(memory: AsyncMemory) -> None:
        added = await memory.add("I keep bees on the roof", user_id="a01")
        assert [(item["event"], item["memory"]) for item in added["results"]] == [("ADD", "I keep bees on the roof")]
        await memory.add(TRIP, user_id="a02", metadata={"category": "travel"})
        assert sorted(texts(await memory.get_all(user_id="a02"))) == sorted(turn["content"] for turn in TRIP)
        (found,) = (await memory.search("Which animals do I keep?", user_id="a01", limit=3))["results"]
        assert found["id"] == added["results"][0]["id"]
        assert texts(await memory.search("Where?", filters={"user_id": "a02", "category": "work"})) == []
        assert len((await memory.get_all(user_id="a02", limit=2))["results"]) == 2

    awaiting(tmp_path, program)


def test_a_program_that_awaits_reads_updates_and_deletes_by_id(tmp_path: Path) -> None:
    async def program(memory: AsyncMemory) -> None:
        memory_id = (await memory.add("The key hangs behind the clock", user_id="a03"))["results"][0]["id"]
        updated = await memory.update(memory_id, data="The key is lost")
        assert updated == {"message": "Memory updated successfully!"}
        item = await memory.get(memory_id)
        assert item is not None
        assert (item["memory"], item["user_id"]) == ("The key is lost", "a03")
        assert await memory.delete(memory_id=memory_id) == {"message": "Memory deleted successfully!"}
        assert await memory.get(memory_id) is None
        assert [version["event"] for version in await memory.history(memory_id)] == ["ADD", "UPDATE", "DELETE"]

    awaiting(tmp_path, program)


def test_a_program_that_awaits_many_calls_at_once_has_all_of_them(tmp_path: Path) -> None:
    async def program(memory: AsyncMemory) -> None:
        await asyncio.gather(*(memory.add(f"Drawer {number} holds maps", user_id="a04") for number in range(60)))
        found, listed = await asyncio.gather(
            memory.search("What do the drawers hold?", user_id="a04", top_k=5), memory.get_all(user_id="a04")
        )
        assert (len(found["results"]), len(listed["results"])) == (5, 60)
        await memory.add("Of somebody else", user_id="a05", agent_id="clerk")
        assert await memory.delete_all(user_id="a04") == {"message": "Memories deleted successfully!"}
        assert texts(await memory.get_all(user_id="a04")) == []
        assert texts(await memory.get_all(agent_id="clerk", user_id="a05")) == ["Of somebody else"]
        await memory.reset()
        assert texts(await memory.get_all(agent_id="clerk", user_id="a05")) == []

    awaiting(tmp_path, program)


def test_errors_of_calls_that_are_awaited_are_value_errors(tmp_path: Path) -> None:
    async def program(memory: AsyncMemory) -> None:
        with pytest.raises(ValueError, match=NOWHERE):
            await memory.add("Whose is this?")
        with pytest.raises(TypeError, match="unexpected keyword argument 'usr'"):
            await memory.search("anything", user_id="a06", usr="a06")
        with pytest.warns(UserWarning, match=r"search\(\) ignores 'rerank'"):
            await memory.search("anything", user_id="a06", rerank=True)

    awaiting(tmp_path, program)


def test_a_configuration_is_awaited_and_a_closed_memory_says_so(tmp_path: Path) -> None:
    async def program() -> None:
        with OpenAIServer([facts_reply("User likes plums.")]) as server:
            config = {"llm": {"provider": "openai", "config": llm_settings(server.base_url)["config"]}}
            memory = await AsyncMemory.from_config({**config, "version": "v1.0", "data_dir": tmp_path})
            added: Any = await memory.add("I like plums", user_id="a07")
            assert [item["memory"] for item in added] == ["User likes plums."]
            await memory.close()
        with pytest.raises(PalimpsestError, match="is closed"):
            await memory.get_all(user_id="a07")

    asyncio.run(program())


# What mem0 has and Palimpsest has not.


def test_an_argument(m: Memory) -> None:
    with pytest.warns(UserWarning, match=r"search\(\) ignores 'rerank'"):
        m.search("anything", user_id="w1", rerank=True)
    with pytest.warns(UserWarning, match=r"add\(\) ignores 'memory_type'"):
        m.add("First open the valve", user_id="w1", memory_type="procedural_memory")
    with pytest.raises(TypeError, match="unexpected keyword argument 'usr'"):
        m.search("anything", user_id="w1", usr="w1")


def test_a_provider(tmp_path: Path) -> None:
    config = {
        "vector_store": {"provider": "qdrant", "config": {"path": "/elsewhere"}},
        "llm": {"provider": "aws_bedrock", "config": {"model": "a model"}},
        "data_dir": tmp_path,
    }
    with pytest.warns(UserWarning, match="cannot be used with Palimpsest") as told:
        memory = Memory.from_config(config)
    with memory:
        memory.add("It works all the same", user_id="w2")
        assert texts(memory.get_all(user_id="w2")) == ["It works all the same"]
    assert [str(warning.message).partition(" cannot")[0] for warning in told] == [
        "vector_store.provider 'qdrant'",
        "llm.provider 'aws_bedrock'",
    ]


def test_the_history_of_mem0_is_not_written_over(tmp_path: Path) -> None:
    """Guards the files of the program that is replaced, and that a memory that cannot be opened leaves no thread."""
    file = tmp_path / "history.db"
    with closing(sqlite3.connect(file)) as history:
        history.execute("CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, new_memory TEXT)")
    content, before = file.read_bytes(), {*threading.enumerate()}
    with pytest.raises(PalimpsestError, match="is a database of another program"):
        Memory.from_config({"history_db_path": str(file), "data_dir": tmp_path})
    assert file.read_bytes() == content
    assert [thread for thread in {*threading.enumerate()} - before if thread.name == "palimpsest"] == []


def test_what_a_program_reads_of_its_hits_counts_as_used(tmp_path: Path) -> None:
    config: dict[str, Any] = {"data_dir": tmp_path, "llm": {"provider": "none"}, "forgetting": "rank"}
    texts = ("The piano is tuned in March", "The piano is black", "The cellar is cold")
    with Memory(config) as memory:
        ids = [memory.add(text, user_id="w4")["results"][0]["id"] for text in texts]
        found = memory.search("When is the piano tuned?", user_id="w4", top_k=2)["results"]
        assert [item["id"] for item in found] == ids[:2]
        for memory_id in (ids[1], ids[1], ids[2]):
            assert memory.get(memory_id)

    async def strengths() -> dict[str, int]:
        async with open_memory(load_settings(**config), background=False) as memory:
            report = await memory.fading.report(Scope("w4"))
            return {item.memory.id: item.fading.strength for item in report.fading}

    assert anyio.run(strengths) == dict(zip(ids, (2, 2, 1), strict=True))


# Threads, and the end of a program.


def test_many_threads_share_a_memory(m: Memory) -> None:
    def use(number: int) -> list[str]:
        m.add(f"Drawer {number} holds maps", user_id=f"t{number}")
        return texts(m.search("What do the drawers hold?", user_id=f"t{number}"))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(use, range(24))) == [[f"Drawer {number} holds maps"] for number in range(24)]


def test_closing_waits_for_the_calls_of_other_threads(tmp_path: Path) -> None:
    before = {*threading.enumerate()}
    memory = Memory({"data_dir": tmp_path, "llm": {"provider": "none"}})
    stored: list[str] = []
    done = threading.Event()

    def add() -> None:
        while not done.is_set():
            try:
                memory.add(f"Line {len(stored)} of the log", user_id="alice")
            except PalimpsestError:
                return
            stored.append("")
            if len(stored) == 3:
                done.set()

    writer = threading.Thread(target=add)
    writer.start()
    done.wait(30)
    memory.close()
    memory.close()
    writer.join(30)
    with pytest.raises(PalimpsestError, match="is closed"):
        memory.get_all(user_id="alice")
    with Memory({"data_dir": tmp_path, "llm": {"provider": "none"}}, background=True) as again:
        assert len(again.get_all(user_id="alice")["results"]) == len(stored)
    assert [thread.name for thread in {*threading.enumerate()} - before if thread.name == "palimpsest"] == []


PROGRAM = """
from palimpsest import Memory

memory = Memory()
memory.add("The kettle whistles", user_id="alice")
print(memory.search("What whistles?", user_id="alice")["results"][0]["memory"])
{end}
"""


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("end", ["", "raise SystemExit(0)"])
def test_a_program_ends_though_nobody_closes_the_memory(tmp_path: Path, end: str) -> None:
    """Guards programs written for mem0, which close nothing: the thread of the loop must not keep them alive."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM.format(end=end)],
        env=clean_environment(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("The kettle whistles\n", "")


def test_importing_the_package_imports_nothing_else() -> None:
    """Guards the start of hooks and commands: `Memory` is imported when it is asked for."""
    code = "import sys; before = {*sys.modules}; import palimpsest; print(*sorted({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["palimpsest"]


# Replies of older versions, and a memory without settings.


def test_version_1_0_replies_with_the_list_of_the_results(tmp_path: Path) -> None:
    config = {"version": "v1.0", "data_dir": tmp_path, "llm": {"provider": "none"}}
    with Memory.from_config(config) as memory:
        replies: list[Any] = [
            memory.add("The canary sings at six", user_id="v1"),
            memory.search("When does the canary sing?", user_id="v1"),
            memory.get_all(user_id="v1"),
        ]
        assert [[item["memory"] for item in reply] for reply in replies] == [["The canary sings at six"]] * 3
        empty: Any = memory.add([], user_id="v1")
        assert empty == []
