"""Files of other tools: what becomes memories and messages, what is left out and counted, and what is refused."""

from __future__ import annotations

import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palimpsest.admin.import_file import read_file
from palimpsest.admin.importers.records import ImportedFile, ImportedMemory, ImportedMessage
from palimpsest.core.errors import InputError
from palimpsest.core.validation import MAX_METADATA_BYTES, MAX_TEXT_CHARS
from tests.support.foreign_files import (
    MEM0_COLUMNS,
    chatgpt_conversation,
    chatgpt_node,
    claude_conversation,
    json_lines,
    json_zip,
    mem0_database,
)
from tests.support.scripted_model import NOW

ROOT = "00000000-0000-4000-8000-000000000000"
LONG = "x" * (MAX_TEXT_CHARS + 1)
ANA = {"type": "entity", "name": "Ana_Silva", "entityType": "Person", "observations": ["Prefers green tea"]}
WORKS_ON = {"type": "relation", "from": "Ana_Silva", "to": "Atlas", "relationType": "works_on"}
HUMAN_MESSAGE = {"uuid": "m1", "sender": "human", "text": "Hi", "created_at": "2025-02-01T10:00:00.5Z"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the path for a test's file. Its name does not show the format."""
    return tmp_path / "file"


def read(file: Path, content: Any) -> ImportedFile:
    """Write a text, bytes or a JSON value to a file and read it."""
    raw = (
        content
        if isinstance(content, bytes)
        else (content if isinstance(content, str) else json.dumps(content)).encode()
    )
    file.write_bytes(raw)
    return read_file(file, NOW)


def texts(imported: ImportedFile) -> list[str | None]:
    """Return the current text of each memory."""
    return [memory.versions[-1].text for memory in imported.memories]


def versions(memory: ImportedMemory) -> list[tuple[str, str | None, str]]:
    """Return event, text and date of each version of a memory."""
    return [(version.event.value, version.text, version.at.date().isoformat()) for version in memory.versions]


class TestServerMemory:
    def test_each_memory_can_be_understood_alone(self, file: Path) -> None:
        """Guards the texts: a missing name is put in front, relations become sentences, and duplicates are dropped."""
        imported = read(
            file,
            json_lines(
                {**ANA, "observations": ["Prefers green tea", "ana silva lives in Porto", " "]},
                {"type": "entity", "name": "Atlas", "entityType": "project", "observations": []},
                {"type": "entity", "name": "Otto", "entityType": "MCP_server", "observations": []},
                WORKS_ON,
                WORKS_ON,
            ),
        )

        assert imported.format == "server-memory"
        assert texts(imported) == [
            "Ana_Silva: Prefers green tea",
            "ana silva lives in Porto",
            "Otto is an MCP server",
            "Ana_Silva works on Atlas",
        ]
        assert [memory.tags for memory in imported.memories] == [("person",), ("person",), ("mcp_server",), ("person",)]
        assert imported.memories[3].metadata == {"imported_from": "server-memory", "entity": "Ana_Silva"}
        assert {part for memory in imported.memories for part in versions(memory)[0][::2]} == {"ADD", "2026-05-08"}
        assert imported.notes == ("left out: observations without text (1)", "left out: duplicates (1)")

    @pytest.mark.parametrize(
        ("name", "observation", "expected"),
        [
            ("Al", "Also likes tea", "Al: Also likes tea"),
            ("Al", "AL's cat is grey", "AL's cat is grey"),
            ("C++", "Knows C++ well", "Knows C++ well"),
            ("Ana\nSilva", "Likes ana  silva", "Likes ana  silva"),
            ("(", "one\u2028two", "(: one\u2028two"),
            ("A\ud83d", "half a pair \ud83d", "A?: half a pair ?"),
        ],
    )
    def test_a_name_is_recognized_only_as_a_whole_word(
        self, file: Path, name: str, observation: str, expected: str
    ) -> None:
        """Guards short names, names with punctuation, and texts with a Unicode line separator."""
        entity = json.dumps({**ANA, "name": name, "observations": [observation]}).replace("\\u2028", "\u2028")

        assert texts(read(file, entity)) == [expected]

    @pytest.mark.parametrize(
        ("article", "kinds"),
        [
            ("a", ("person", "user", "unicorn", "one-off", "URL", "European city", "ship")),
            ("an", ("organization", "hour", "API", "LLM", "animal", "umbrella")),
        ],
    )
    def test_the_article_follows_the_sound(self, file: Path, article: str, kinds: tuple[str, ...]) -> None:
        """Guards the sentence that is generated for an entity without observations."""
        items = [{**ANA, "name": f"It{kind}", "entityType": kind, "observations": []} for kind in kinds]
        assert texts(read(file, json_lines(*items))) == [f"It{kind} is {article} {kind}" for kind in kinds]

    def test_items_without_a_type_are_recognized(self, file: Path) -> None:
        """Guards lines of other writers, and the saved reply of the server's `read_graph`."""
        bare = [{key: value for key, value in item.items() if key != "type"} for item in (ANA, WORKS_ON)]
        expected = ["Ana_Silva: Prefers green tea", "Ana_Silva works on Atlas"]

        assert texts(read(file, "\ufeff" + json_lines(*bare).replace("\n", "\r\n\r\n"))) == expected
        assert texts(read(file, {"entities": [bare[0]], "relations": [bare[1]]})) == expected

    def test_unusable_lines_are_left_out_and_counted(self, file: Path) -> None:
        """Guards against refusing a file because of one odd line, and against leaving anything out silently."""
        imported = read(
            file,
            json_lines(
                {**ANA, "entityType": "A" * 50 + "\n" + "b" * 50, "observations": [LONG, "x", 5]},
                {**ANA, "name": " "},
                {**ANA, "name": "Otto", "entityType": "", "observations": []},
                {**WORKS_ON, "to": None},
                {"type": "note", "text": "?"},
                5,
            ),
        )

        assert texts(imported) == ["Ana_Silva: x"]
        assert imported.memories[0].tags == ("a" * 50 + " " + "b" * 13,)
        assert sorted(imported.notes) == [
            "left out: entities without a name (1)",
            "left out: entities without a type, an observation or a relation (1)",
            "left out: lines that are neither an entity nor a relation (2)",
            "left out: memories longer than 20,000 characters (1)",
            "left out: observations without text (1)",
            "left out: relations without a type or with a missing end (1)",
        ]

    @pytest.mark.parametrize("broken", ['{"type":"entity","na', "}", '{"a": ' + "9" * 5000 + "}", "[" * 100_000])
    def test_a_damaged_line_is_named_and_nothing_is_imported(self, file: Path, broken: str) -> None:
        """Guards against a partial import."""
        with pytest.raises(InputError, match=r"file, line 3: .*Nothing was imported"):
            read(file, f"{json_lines(ANA)}\n\n{broken}\n{json_lines(WORKS_ON)}")


OLD_COLUMNS = (
    "id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, new_value TEXT, event TEXT, "
    "created_at DATETIME, updated_at DATETIME, is_deleted INTEGER"
)
OLDEST_COLUMNS = (
    "id TEXT PRIMARY KEY, memory_id TEXT, prev_value TEXT, new_value TEXT, event TEXT, timestamp DATETIME, "
    "is_deleted INTEGER"
)


FIRST, SECOND = "2024-10-01T10:00:00-07:00", "2024-11-01T10:00:00-07:00"
HISTORIES: dict[str, tuple[str, list[tuple[Any, ...]], list[tuple[str, str | None, str]]]] = {
    "a deletion without a time, as before mem0 2": (
        OLD_COLUMNS,
        [
            ("m1", None, "tea", None, "ADD", FIRST, None, 0),
            ("m1", "tea", "coffee", None, "UPDATE", FIRST, SECOND, 0),
            ("m1", "coffee", None, None, "DELETE", None, None, 1),
        ],
        [("ADD", "tea", "2024-10-01"), ("UPDATE", "coffee", "2024-11-01"), ("DELETE", None, "2024-11-01")],
    ),
    "the oldest columns": (
        OLDEST_COLUMNS,
        [("m1", "tea", "coffee", "UPDATE", "2024-02-01", 0), ("m1", None, "tea", "ADD", "2024-01-01", 0)],
        [("ADD", "tea", "2024-01-01"), ("UPDATE", "coffee", "2024-02-01")],
    ),
    "a missing first version": (
        MEM0_COLUMNS,
        [("m1", "old", "new", "UPDATE", "2025-01-01", "2025-02-01", 0, None, None)],
        [("ADD", "old", "2025-01-01"), ("UPDATE", "new", "2025-02-01")],
    ),
    "a deletion alone": (
        MEM0_COLUMNS,
        [("m1", "old", None, "DELETE", "2025-01-01", "2025-02-01", 1, None, None)],
        [("ADD", "old", "2025-01-01"), ("DELETE", None, "2025-02-01")],
    ),
}


class TestMem0History:
    def test_a_memory_is_read_with_all_its_versions(self, file: Path) -> None:
        """Guards the order, time zones and deletions of versions, and mem0's own id and speaker."""
        mem0_database(
            file,
            MEM0_COLUMNS,
            ("m1", None, " Likes tea ", "ADD", "2025-03-01T23:00:00-07:00", None, 0, None, None),
            ("m2", None, "Has a cat", "ADD", "2025-03-02 10:00:00", "2025-03-02 10:00:00", 0, None, None),
            ("m1", "Likes tea", "Likes green tea", "UPDATE", "2025-03-01", "2025-04-01T00:00:00Z", 0, "ana", "user"),
            ("m2", "Has a cat", None, "DELETE", "2025-03-02T10:00:00", "2025-05-01T10:00:00+00:00", 1, None, None),
            ("m2", None, "Has a cat again", "ADD", "2025-06-01", None, 0, None, None),
            more="CREATE TABLE messages (id TEXT, content TEXT); INSERT INTO messages VALUES ('a', 'hi'), ('b', 'ho')",
        )
        imported = read_file(file, NOW)

        assert imported.format == "mem0-history"
        assert [versions(memory) for memory in imported.memories] == [
            [("ADD", "Likes tea", "2025-03-02"), ("UPDATE", "Likes green tea", "2025-04-01")],
            [
                ("ADD", "Has a cat", "2025-03-02"),
                ("DELETE", None, "2025-05-01"),
                ("ADD", "Has a cat again", "2025-06-01"),
            ],
        ]
        origin = {"imported_from": "mem0", "mem0_id": "m1"}
        assert imported.memories[0].metadata == {**origin, "actor_id": "ana", "role": "user"}
        assert imported.memories[0].versions[0].at == datetime(2025, 3, 2, 6, tzinfo=UTC)
        assert imported.notes == ("left out: messages mem0 had stored for its next extraction (2)",)

    @pytest.mark.parametrize("name", HISTORIES)
    def test_every_history_is_read_in_order(self, file: Path, name: str) -> None:
        """Guards databases of every mem0, also one that was partly cleared: a memory is added before it changes."""
        columns, rows, expected = HISTORIES[name]
        mem0_database(file, columns, *rows)
        assert versions(read_file(file, NOW).memories[0]) == expected

    def test_each_version_follows_from_the_one_before(self, file: Path) -> None:
        """Guards the ledger against changes of memories that do not exist, and counts what was left out."""
        rows = [
            ("m1", None, "first", "UPDATE", "2025-01-01", None, 0, None, None),
            ("m1", None, "second", "ADD", "2025-01-02", None, 0, None, None),
            ("m1", None, None, "NONE", "2025-01-02", None, 0, None, None),
            ("m1", None, " ", "UPDATE", "2025-01-02", None, 0, None, None),
            ("m1", "second", "second", "UPDATE", "2025-01-03", None, 1, None, None),
            ("m1", "second", None, "DELETE", "2025-01-04", None, 1, None, None),
            ("m2", None, None, "DELETE", "2025-01-04", None, 1, None, None),
            ("m3", None, LONG, "ADD", "2025-01-04", None, 0, None, None),
            (None, None, "whose?", "ADD", "2025-01-04", None, 0, None, None),
        ]
        imported = read_file(mem0_database(file, MEM0_COLUMNS, *rows), NOW)

        assert [versions(memory) for memory in imported.memories] == [
            [("ADD", "first", "2025-01-01"), ("UPDATE", "second", "2025-01-02"), ("DELETE", None, "2025-01-03")]
        ]
        assert sorted(imported.notes) == [
            "left out: deletions of memories that did not exist (2)",
            "left out: history rows without a memory id (1)",
            "left out: history rows without text (1)",
            "left out: memories longer than 20,000 characters (1)",
        ]

    def test_impossible_times_become_the_present_and_never_run_backwards(self, file: Path) -> None:
        """Guards searches with a date in the past: no version is later than the one that follows it."""
        rows = [
            ("m1", None, "a", "ADD", "0001-01-01T00:00:00+10:00", None, 0, None, None),
            ("m1", "a", "b", "UPDATE", None, "2025-02-01", 0, None, None),
            ("m1", "b", "c", "UPDATE", None, "2999-01-01", 0, None, None),
            ("m2", None, "d", "ADD", "yesterday", None, 0, None, None),
        ]
        imported = read_file(mem0_database(file, MEM0_COLUMNS, *rows), NOW)

        assert [[at for _, _, at in versions(memory)] for memory in imported.memories] == [
            ["2025-02-01", "2025-02-01", "2026-05-08"],
            ["2026-05-08"],
        ]
        assert imported.memories[1].versions[0].at == NOW

    def test_the_database_is_only_read(self, tmp_path: Path) -> None:
        """Guards the other tool's file, also if SQLite could take part of its name for options."""
        row = ("m1", None, "a", "ADD", None, None, 0, None, None)
        mem0_file = mem0_database(tmp_path / "100% mem?mode=rwc#1", MEM0_COLUMNS, row)
        mem0_file.chmod(0o400)
        before = mem0_file.read_bytes()

        assert texts(read_file(mem0_file, NOW)) == ["a"]
        assert [(path, path.read_bytes()) for path in tmp_path.iterdir()] == [(mem0_file, before)]

    def test_another_database_is_refused(self, file: Path) -> None:
        """Guards against reading the wrong database: another program's, a Palimpsest ledger, or a truncated file."""
        with pytest.raises(InputError, match=r"without a mem0 history\. Expected"):
            read_file(mem0_database(file, "id TEXT, visited TEXT"), NOW)
        ledger = mem0_database(file.with_name("ledger"), f"seq INTEGER, {MEM0_COLUMNS}, state TEXT, stage TEXT")
        with pytest.raises(InputError, match="palimpsest restore"):
            read_file(ledger, NOW)
        with pytest.raises(InputError, match=r"cannot be read as a database: .*\. Expected"):
            read(file, ledger.read_bytes()[:3000])


class TestMem0Export:
    ITEM: dict[str, Any] = {  # noqa: RUF012 - never changed
        "id": "m1",
        "memory": " Likes green tea ",
        "hash": "0a1b",
        "metadata": {"topic": "drinks", "imported_from": "elsewhere"},
        "created_at": "2025-03-01T10:00:00-08:00",
        "updated_at": "2025-04-01T10:00:00-07:00",
        "user_id": "ana",
        "agent_id": None,
        "actor_id": "ana",
        "role": "user",
        "categories": ["Food", "food", ""],
    }

    @pytest.mark.parametrize("form", ["results", "memories", "list", "one"])
    def test_a_memory_keeps_what_mem0_stored(self, file: Path, form: str) -> None:
        """Guards every form of reply that `get_all()` and `get()` have had."""
        imported = read(file, {"list": [self.ITEM], "one": self.ITEM}.get(form, {form: [self.ITEM]}))

        assert imported.format == "mem0-export"
        (memory,) = imported.memories
        assert versions(memory) == [("ADD", "Likes green tea", "2025-04-01")]
        assert memory.tags == ("food",)
        assert memory.metadata == {
            "topic": "drinks",
            "imported_from": "mem0",
            "mem0_id": "m1",
            "mem0_user_id": "ana",
            "mem0_created_at": "2025-03-01T18:00:00+00:00",
            "actor_id": "ana",
            "role": "user",
        }
        assert imported.notes == ()

    def test_what_is_left_out_is_in_the_notes(self, file: Path) -> None:
        """Guards against silent loss: further pages of a list, the graph, and metadata that cannot be kept."""
        imported = read(
            file,
            {
                "count": 250,
                "next": "http://localhost/v1/memories/?page=2",
                "results": [
                    {"memory": "a", "metadata": {"long": "x" * MAX_METADATA_BYTES}, "created_at": 5e9},
                    {"memory": "b\ud83d", "metadata": {"half": "\ud83d", "number": float("inf")}},
                    {"memory": LONG},
                    {"memory": None},
                    "c",
                ],
                "relations": [{"source": "ana", "relationship": "likes", "target": "tea"}],
            },
        )

        assert texts(imported) == ["a", "b?"]
        assert [dict(memory.metadata) for memory in imported.memories] == [
            {"imported_from": "mem0"},
            {"half": "?", "number": None, "imported_from": "mem0"},
        ]
        assert imported.memories[0].versions[0].at == NOW
        assert imported.notes[0] == "this is one page of an export, with 5 of 250 memories"
        assert sorted(imported.notes[1:]) == [
            "left out: memories longer than 20,000 characters (1)",
            "left out: memories without text (2)",
            "left out: metadata larger than 10,000 bytes or not valid JSON (1)",
            "left out: relations in mem0's graph (1)",
        ]


TREE: dict[str, dict[str, Any]] = {
    "root": {"parent": None, "message": None},
    "a": chatgpt_node("root", "user", "Tea?", at=1_700_000_001.5),
    "b": chatgpt_node("a", "assistant", "Green.", at=1_700_000_002),
    "c": chatgpt_node("a", "assistant", "Black.", at=1_700_000_003),
    "d": chatgpt_node("b", "user", "Why?", at=1_700_000_004),
}


class TestChatGPT:
    def test_the_branch_last_shown_is_read(self, file: Path) -> None:
        """Guards against reading regenerated answers, and counts the other branches."""
        imported = read(file, [chatgpt_conversation("c", **TREE)])

        assert (imported.format, imported.notes) == (
            "chatgpt",
            ("left out: other branches of conversations (edited messages, regenerated answers) (1)",),
        )
        assert imported.messages == (
            ImportedMessage("a", "user", "Tea?", datetime(2023, 11, 14, 22, 13, 21, 500_000, tzinfo=UTC)),
            ImportedMessage("c", "assistant", "Black.", datetime(2023, 11, 14, 22, 13, 23, tzinfo=UTC)),
        )

    @pytest.mark.parametrize(
        ("conversation", "expected"),
        [
            (chatgpt_conversation(None, **TREE), ["a", "b", "d"]),
            (chatgpt_conversation("gone", **TREE), ["a", "b", "d"]),
            (chatgpt_conversation("x", x=chatgpt_node("y", "user", "X"), y=chatgpt_node("x", "user", "Y")), ["y", "x"]),
        ],
        ids=["never finished", "a current node that is missing", "a cycle"],
    )
    def test_a_damaged_tree_has_a_branch(self, file: Path, conversation: dict[str, Any], expected: list[str]) -> None:
        """Guards conversations that were never finished, which end with the newest branch, and an endless walk."""
        assert [message.id for message in read(file, conversation).messages] == expected

    def test_only_the_visible_conversation_is_read(self, file: Path) -> None:
        """Guards against learning from system prompts, tool output and reasoning; all of it is counted."""
        imported = read(
            file,
            [
                chatgpt_conversation(
                    "n",
                    a=chatgpt_node(None, "system", "You are ChatGPT."),
                    b=chatgpt_node("a", "user", "About me", meta={"is_visually_hidden_from_conversation": True}),
                    c=chatgpt_node(
                        "b", "user", "Look:", {"content_type": "image_asset_pointer"}, kind="multimodal_text"
                    ),
                    d=chatgpt_node("c", "assistant", kind="thoughts"),
                    e=chatgpt_node("d", "assistant", "search('cat')", recipient="python"),
                    f=chatgpt_node("e", "tool", "a cat"),
                    g=chatgpt_node("f", "assistant", "", kind="text"),
                    h=chatgpt_node("g", "assistant", "x = 1", kind="code", recipient="all"),
                    i=chatgpt_node("h", "assistant", "hidden", weight=0.0),
                    j=chatgpt_node("i", "assistant", "A cat \ue200cite\ue202turn0search0\ue201 ", recipient="all"),
                    k=chatgpt_node(
                        "j",
                        "user",
                        {"content_type": "audio_transcription", "text": "Thanks"},
                        "!",
                        kind="multimodal_text",
                    ),
                    m=chatgpt_node("k", "critic", "?"),
                    n=chatgpt_node("m", "user", "Read\ud83d it", meta={"attachments": [{"name": "a.pdf"}]}),
                )
            ],
        )

        assert [message.content for message in imported.messages] == ["Look:", "A cat", "Thanks\n!", "Read? it"]
        assert sorted(imported.notes) == [
            "left out: hidden messages (2)",
            "left out: images, recordings and files without text (2)",
            "left out: messages that are not text (2)",
            "left out: messages without text (1)",
            "left out: model reasoning (1)",
            "left out: system messages (1)",
            "left out: tool calls and their results (2)",
        ]

    def test_a_message_without_a_time_has_that_of_the_one_before(self, file: Path) -> None:
        """Guards sessions: a time in the future becomes the present, a missing time does not."""
        imported = read(
            file,
            chatgpt_conversation(
                "d",
                a=chatgpt_node(None, "user", "1"),
                b=chatgpt_node("a", "assistant", "2", at=1_700_000_500),
                c=chatgpt_node("b", "user", "3"),
                d=chatgpt_node("c", "assistant", LONG, at=9e9),
            ),
        )

        times = [message.said_at.timestamp() for message in imported.messages[:3]]
        assert times == [1_700_000_000, 1_700_000_500, 1_700_000_500]
        assert (imported.messages[3].said_at, imported.messages[3].content) == (NOW, LONG)

    def test_conversations_come_in_the_order_they_began(self, file: Path) -> None:
        """Guards the order: an export begins with the newest conversation. Unknown items are counted."""
        late, early = (
            chatgpt_conversation("a", begun, a=chatgpt_node(None, "user", str(begun)))
            for begun in (1_700_000_000, 1_600_000_000)
        )
        imported = read(file, {"conversations": [late, {"mapping": None}, early]})

        assert [message.content for message in imported.messages] == ["1600000000", "1700000000"]
        assert imported.notes == ("left out: conversations in an unknown format (1)",)


class TestClaude:
    def test_the_text_blocks_are_read(self, file: Path) -> None:
        """Guards the exact text: `text` repeats the blocks with placeholders, and other blocks are not text."""
        blocks: list[dict[str, Any]] = [
            {"type": "thinking", "thinking": "Hm."},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "name": "search", "input": {}},
            {"type": "tool_result", "content": []},
            {"type": "text", "text": "Found\ud83d. "},
            {"type": "chart"},
        ]
        answer: dict[str, Any] = {
            "uuid": "m2",
            "sender": "assistant",
            "text": "Let me look.\n```\nThis…",
            "content": blocks,
        }
        pasted = {
            "uuid": "m3",
            "sender": "human",
            "text": "",
            "content": [],
            "attachments": [{"file_name": "notes.txt", "extracted_content": "Oats."}],
        }
        imported = read(file, [claude_conversation(HUMAN_MESSAGE, answer, pasted, {"sender": "system", "text": "?"})])

        at = datetime(2025, 2, 1, 10, 0, 0, 500_000, tzinfo=UTC)
        assert imported.format == "claude"
        assert imported.messages == (
            ImportedMessage("m1", "user", "Hi", at),
            ImportedMessage("m2", "assistant", "Let me look.\nFound?.", at),
            ImportedMessage("m3/notes.txt", "user", "notes.txt:\nOats.", at),
        )
        assert sorted(imported.notes) == [
            "left out: images, recordings and files without text (1)",
            "left out: messages from an unknown sender (1)",
            "left out: model reasoning (1)",
            "left out: tool calls and their results (2)",
        ]

    def test_an_older_export_without_blocks_is_read(self, file: Path) -> None:
        """Guards exports without blocks and ids, and removes the placeholder for a block that could not be shown."""
        gap = "```\nThis block is not supported on your current device yet.\n```"
        imported = read(
            file,
            claude_conversation({"sender": "human", "text": "Draw"}, {"sender": "assistant", "text": f"Here:\n{gap}"}),
        )

        assert [(message.id, message.content) for message in imported.messages] == [("", "Draw"), ("", "Here:")]
        assert imported.messages[0].said_at == datetime(2025, 2, 1, 9, tzinfo=UTC)

    @pytest.mark.parametrize(
        ("leaf", "expected"), [({}, ["m1", "m4"]), ({"current_leaf_message_uuid": "m3"}, ["m1", "m2", "m3"])]
    )
    def test_the_newest_branch_is_read(self, file: Path, leaf: dict[str, str], expected: list[str]) -> None:
        """Guards against reading edited questions; a reply to a missing message follows the message before it."""
        messages = [
            {**HUMAN_MESSAGE, "parent_message_uuid": ROOT},
            {**HUMAN_MESSAGE, "uuid": "m2", "parent_message_uuid": "m1", "created_at": "2025-02-02"},
            {**HUMAN_MESSAGE, "uuid": "m3", "parent_message_uuid": "gone", "created_at": "2025-02-03"},
            {**HUMAN_MESSAGE, "uuid": "m4", "parent_message_uuid": "m1", "created_at": "2025-02-04"},
            {**HUMAN_MESSAGE, "uuid": "m5", "parent_message_uuid": ROOT, "created_at": "2025-02-01"},
        ]
        imported = read(file, [claude_conversation(*messages, **leaf)])

        assert [message.id for message in imported.messages] == expected
        assert imported.notes == (
            "left out: other branches of conversations (edited messages, regenerated answers) (2)",
        )


class TestFiles:
    @pytest.mark.parametrize("name", ["conversations", "my data__conversations", "conversations-000"])
    def test_the_conversations_in_a_zip_are_read(self, file: Path, name: str) -> None:
        """Guards the ZIP files that ChatGPT and Claude deliver, and a folder that a person packed."""
        imported = read_file(
            json_zip(
                file,
                users=[],
                **{name: [claude_conversation(HUMAN_MESSAGE)], f"old__{name}": [chatgpt_conversation("d", **TREE)]},
            ),
            NOW,
        )

        assert (imported.format, [message.content for message in imported.messages]) == ("claude", ["Hi"])

    def test_the_numbered_parts_of_a_long_export_are_joined(self, file: Path) -> None:
        """Guards against reading only the first part of a large export."""
        parts = {
            f"conversations-{number:03}": [chatgpt_conversation("a", number, a=chatgpt_node(None, "user", str(number)))]
            for number in (2, 0, 1)
        }

        assert [message.content for message in read_file(json_zip(file, **parts), NOW).messages] == ["0", "1", "2"]

    @pytest.mark.parametrize(
        ("content", "error_text"),
        [
            *((empty, r"file is empty\. Expected") for empty in ("", " \n", "\ufeff")),
            (json.dumps([claude_conversation(HUMAN_MESSAGE)], indent=1)[:-20], r"file, line 1\d: "),
            (json_lines(ANA)[:-9], "file, line 1: "),
            ("# Notes\n", "file, line 1: Expecting value"),
            ("[" * 100_000, "cannot be read as JSON"),
            ("9" * 5000, "cannot be read as JSON"),
            (b"\xff\xfe{\x00}\x00", "is not text in UTF-8"),
            ("[]", "nothing to import"),
            ('{"results": []}', "nothing to import"),
            ({"role": "user", "content": "Hi"}, "JSON in an unknown format"),
            ('[5, null, "x", [[]]]', "JSON in an unknown format"),
            (json_lines({"role": "user"}, {"role": "assistant"}), "file, line 2: "),
        ],
    )
    def test_a_damaged_or_unknown_file_is_refused(self, file: Path, content: Any, error_text: str) -> None:
        """Guards against a partial import: the error names the file, the line if there is one, and the formats."""
        with pytest.raises(InputError, match=error_text):
            read(file, content)

    def test_a_file_that_cannot_be_opened_is_refused(self, file: Path) -> None:
        """Guards against unhandled exceptions of the operating system."""
        with pytest.raises(InputError, match=r"there is no file .*Nothing was imported"):
            read_file(file, NOW)
        with pytest.raises(InputError, match=r"no conversations\.json in it\. Expected"):
            read_file(file.parent, NOW)

    def test_a_zip_without_conversations_is_refused(self, file: Path) -> None:
        """Guards against other, truncated and damaged ZIP files, and against an unknown compression."""
        with pytest.raises(InputError, match=r"no conversations\.json in it\. Expected"):
            read_file(json_zip(file, my_conversations=[]), NOW)
        whole = json_zip(file, conversations=[claude_conversation(HUMAN_MESSAGE)]).read_bytes()
        with pytest.raises(InputError, match="damaged or encrypted ZIP"):
            read(file, whole[:-30])
        with pytest.raises(InputError, match="damaged or encrypted ZIP"):
            read(file, whole.replace(whole[60:64], b"\xff" * 4))
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("conversations.json", "[{")
        with pytest.raises(InputError, match=r"file, conversations\.json, line 1: "):
            read_file(file, NOW)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_BZIP2) as archive:
            archive.writestr("conversations.json", "[]")
        with pytest.raises(InputError, match="Unpack it"):
            read_file(file, NOW)

    def test_too_large_a_file_is_refused_before_it_is_read(self, file: Path) -> None:
        """Guards against running out of memory on a ZIP bomb, also one whose parts are small enough one by one."""
        part = [claude_conversation({**HUMAN_MESSAGE, "text": " " * 600})]
        with pytest.raises(InputError, match="would unpack to more than 1,000 bytes"):
            read_file(json_zip(file, **{"conversations-1": part, "conversations-2": part}), NOW, 1000)
        file.write_text(json.dumps([part, part]), "utf-8")
        with pytest.raises(InputError, match="larger than 1,000 bytes"):
            read_file(file, NOW, 1000)

    def test_a_zip_member_larger_than_its_stated_size_is_refused(self, file: Path) -> None:
        """Guards against a ZIP bomb with a false size."""
        raw = bytearray(
            json_zip(file, conversations=[claude_conversation({**HUMAN_MESSAGE, "text": "a" * 5000})]).read_bytes()
        )
        entry = raw.rindex(b"PK\x01\x02")
        raw[entry + 24 : entry + 28] = (100).to_bytes(4, "little")
        with pytest.raises(InputError, match="damaged or encrypted ZIP"):
            read(file, bytes(raw))
