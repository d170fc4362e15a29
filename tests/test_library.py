"""The synchronous library: programs that were written for mem0 do what they did, threads, and the end of a program."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from loopback import OpenAIServer
from palimpsest import Memory
from palimpsest.core.errors import PalimpsestError
from tests.support.environment import clean_environment
from tests.support.memory import llm_settings
from tests.support.scripted_model import facts_reply

TRIP = [
    {"role": "user", "content": "I am planning a hike in the Tatra mountains in September."},
    {"role": "assistant", "content": "Lovely. Do you sleep in huts?"},
    {"role": "user", "content": "Yes, and I am afraid of thunderstorms."},
]


@pytest.fixture(scope="module")
def m(tmp_path_factory: pytest.TempPathFactory) -> Generator[Memory]:
    """Open a memory without a language model. Each test has a user of its own."""
    with Memory({"data_dir": tmp_path_factory.mktemp("library"), "llm": {"provider": "none"}}) as memory:
        yield memory


def texts(reply: dict[str, Any]) -> list[str]:
    return [item["memory"] for item in reply["results"]]


# Small programs in the manner of mem0's documentation.


def test_add_a_text_and_search_it(m: Memory) -> None:
    added = m.add("I keep bees on the roof", user_id="s01")
    assert [(item["event"], item["memory"]) for item in added["results"]] == [("ADD", "I keep bees on the roof")]
    found = m.search("Which animals do I keep?", user_id="s01")
    assert found["results"][0]["id"] == added["results"][0]["id"]
    assert 0 < found["results"][0]["score"] <= 1


def test_add_a_conversation(m: Memory) -> None:
    result = m.add(TRIP, user_id="s02", metadata={"category": "travel"})
    assert [item["role"] for item in result["results"]] == ["user", "assistant", "user"]
    memories = m.get_all(user_id="s02")
    assert sorted(texts(memories)) == sorted(turn["content"] for turn in TRIP)
    assert all(item["metadata"] == {"category": "travel"} for item in memories["results"])


def test_add_one_message_as_a_dictionary(m: Memory) -> None:
    m.add({"role": "user", "content": "My piano is tuned in March"}, user_id="s03")
    assert texts(m.get_all(user_id="s03")) == ["My piano is tuned in March"]


def test_search_with_the_user_in_the_filters(m: Memory) -> None:
    m.add("My bicycle is red", user_id="s04")
    assert texts(m.search("What colour is my bicycle?", filters={"user_id": "s04"}, top_k=3)) == ["My bicycle is red"]


def test_limit_the_results(m: Memory) -> None:
    for number in range(5):
        m.add(f"Shelf {number} holds atlases", user_id="s05")
    assert len(m.search("Where are the atlases?", user_id="s05", limit=2)["results"]) == 2
    assert len(m.get_all(user_id="s05", limit=3)["results"]) == 3
    assert len(m.get_all(filters={"user_id": "s05"}, top_k=4)["results"]) == 4


def test_loop_over_results_into_a_prompt(m: Memory) -> None:
    m.add("I never eat coriander", user_id="s06")
    relevant = m.search(query="What should the soup not contain?", user_id="s06", limit=3)
    prompt = "\n".join(f"- {entry['memory']}" for entry in relevant["results"])
    assert prompt == "- I never eat coriander"


def test_get_by_id(m: Memory) -> None:
    memory_id = m.add("The cellar key hangs behind the clock", user_id="s07")["results"][0]["id"]
    item = m.get(memory_id)
    assert item is not None
    assert item.keys() >= {"id", "memory", "hash", "metadata", "created_at", "updated_at", "user_id"}
    assert (item["memory"], item["user_id"]) == ("The cellar key hangs behind the clock", "s07")
    assert m.get("00000000-0000-4000-8000-000000000000") is None


def test_update(m: Memory) -> None:
    memory_id = m.add("I drink black tea", user_id="s08")["results"][0]["id"]
    assert m.update(memory_id=memory_id, data="I drink green tea") == {"message": "Memory updated successfully!"}
    m.update(memory_id, "I drink white tea", metadata={"meal": "breakfast"})
    item = m.get(memory_id)
    assert item is not None
    assert (item["memory"], item["metadata"]) == ("I drink white tea", {"meal": "breakfast"})


def test_history(m: Memory) -> None:
    memory_id = m.add("My desk is by the door", user_id="s09")["results"][0]["id"]
    m.update(memory_id, "My desk is by the window")
    m.delete(memory_id)
    versions = m.history(memory_id)
    assert [version["event"] for version in versions] == ["ADD", "UPDATE", "DELETE"]
    assert (versions[1]["old_memory"], versions[1]["new_memory"]) == (
        "My desk is by the door",
        "My desk is by the window",
    )
    assert versions[2]["is_deleted"]


def test_delete(m: Memory) -> None:
    memory_id = m.add("My locker is number 12", user_id="s10")["results"][0]["id"]
    assert m.delete(memory_id=memory_id) == {"message": "Memory deleted successfully!"}
    assert m.get(memory_id) is None
    assert m.search("Which locker is mine?", user_id="s10")["results"] == []


def test_delete_all(m: Memory) -> None:
    m.add("One of two", user_id="s11", agent_id="writer")
    m.add("Two of two", user_id="s11")
    m.add("Of somebody else", user_id="s11b")
    assert m.delete_all(user_id="s11") == {"message": "Memories deleted successfully!"}
    assert texts(m.get_all(user_id="s11")) == []
    assert texts(m.get_all(user_id="s11b")) == ["Of somebody else"]


def test_agents_and_runs(m: Memory) -> None:
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


def test_threshold(m: Memory) -> None:
    m.add("The ferry leaves at noon", user_id="s14")
    found = m.search("When does the ferry leave?", user_id="s14", threshold=0.3)
    assert texts(found) == ["The ferry leaves at noon"]
    assert m.search("Who invented the zipper?", user_id="s14", threshold=1.0)["results"] == []


def test_without_inference_what_is_said_is_stored(m: Memory) -> None:
    named = [{"role": "user", "name": "Oskar", "content": "I repaired the gate"}]
    (item,) = m.add(named, user_id="s15", infer=False)["results"]
    assert (item["memory"], item["role"], item["actor_id"]) == ("I repaired the gate", "user", "Oskar")
    assert texts(m.get_all(user_id="s15", filters={"actor_id": "Oskar"})) == ["I repaired the gate"]


def test_an_expiry_date(m: Memory) -> None:
    (item,) = m.add("The voucher is worth ten euros", user_id="s16", expiration_date="2999-12-31")["results"]
    kept = m.get(item["id"])
    assert kept is not None
    assert (kept["expiration_date"], kept["metadata"]) == ("2999-12-31", None)


def test_explain(m: Memory) -> None:
    m.add("The observatory opens at dusk", user_id="s17")
    (item,) = m.search("When does the observatory open?", user_id="s17", explain=True)["results"]
    assert item["score_details"]


def test_errors_are_value_errors(m: Memory) -> None:
    with pytest.raises(ValueError, match="user_id, agent_id or run_id"):
        m.add("Whose is this?")
    with pytest.raises(ValueError, match="user_id, agent_id or run_id"):
        m.search("Whose is this?", filters={"room": "hall"})
    with pytest.raises(ValueError, match="no memory with the id"):
        m.delete("00000000-0000-4000-8000-000000000000")
    with pytest.raises(ValueError, match="user_id, agent_id or run_id"):
        m.delete_all()
    with pytest.raises(ValueError, match="metadata may not use 'kind'"):
        m.add("Of which kind?", user_id="s18", metadata={"kind": "question"})
    with pytest.raises(ValueError, match="limit is 0"):
        m.search("How many?", user_id="s18", limit=0)
    with pytest.raises(PalimpsestError, match="query is empty"):
        m.search("  ", user_id="s18")


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


def test_ollama_is_an_endpoint(tmp_path: Path) -> None:
    with OpenAIServer([facts_reply("User likes plums.")]) as server:
        address = server.base_url.removesuffix("/v1")
        config = {
            "llm": {
                "provider": "ollama",
                "config": {"model": "any", "ollama_base_url": address, "top_p": 0.1, "top_k": 3},
            },
            "data_dir": tmp_path,
        }
        with pytest.warns(UserWarning, match=r"llm\.config has no top_k"):
            memory = Memory(config)
        with memory:
            (item,) = memory.add("I like plums", user_id="w3")["results"]
            assert item["memory"].startswith("User likes plums")


def test_a_misspelt_setting(tmp_path: Path) -> None:
    with pytest.raises(PalimpsestError, match="did you mean"):
        Memory.from_config({"data_dir": tmp_path, "custom_instruction": "Be brief."})


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


@pytest.mark.parametrize("end", ["", "del memory", "raise SystemExit(0)", "memory.close()"])
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
