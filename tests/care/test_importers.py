"""Files of other tools: what of them becomes memories and turns, what is left out and told, what is refused whole."""

from __future__ import annotations

import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from palimpsest.care.importers import read as files
from palimpsest.care.importers.read import Foreign, ForeignMemory, ForeignTurn, read_foreign
from palimpsest.core.errors import InputError
from palimpsest.core.models import Event
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
ACTED = {"type": "relation", "from": "Ana_Silva", "to": "Atlas", "relationType": "works_on"}
SAID = {"uuid": "m1", "sender": "human", "text": "Hi", "created_at": "2025-02-01T10:00:00.5Z"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where a test puts its file; the name says nothing of what is in it."""
    return tmp_path / "file"


def read(file: Path, content: Any) -> Foreign:
    """Return what is read of a text, of bytes, or of a JSON value."""
    raw = (
        content
        if isinstance(content, bytes)
        else (content if isinstance(content, str) else json.dumps(content)).encode()
    )
    file.write_bytes(raw)
    return read_foreign(file, NOW)


def texts(found: Foreign) -> list[str | None]:
    """Return what each memory says last."""
    return [memory.versions[-1].text for memory in found.memories]


def past(memory: ForeignMemory) -> list[tuple[str, str | None, str]]:
    """Return the versions of a memory, with their dates."""
    return [(each.event.value, each.text, each.at.date().isoformat()) for each in memory.versions]


class TestServerMemory:
    def test_what_is_said_of_an_entity_is_understood_alone(self, file: Path) -> None:
        """Guards the wording: a name in front where it is missing, relations in words, and nothing said twice."""
        found = read(
            file,
            json_lines(
                {**ANA, "observations": ["Prefers green tea", "ana silva lives in Porto", " "]},
                {"type": "entity", "name": "Atlas", "entityType": "project", "observations": []},
                {"type": "entity", "name": "Otto", "entityType": "MCP_server", "observations": []},
                ACTED,
                ACTED,
            ),
        )

        assert found.format == "server-memory"
        assert texts(found) == [
            "Ana_Silva: Prefers green tea",
            "ana silva lives in Porto",
            "Otto is an MCP server",
            "Ana_Silva works on Atlas",
        ]
        assert [memory.tags for memory in found.memories] == [("person",), ("person",), ("mcp_server",), ("person",)]
        assert found.memories[3].metadata == {"imported_from": "server-memory", "entity": "Ana_Silva"}
        assert {version for memory in found.memories for version in past(memory)[0][::2]} == {"ADD", "2026-05-08"}
        assert found.notes == ("left out: observations without a text (1)", "left out: repetitions (1)")

    @pytest.mark.parametrize(
        ("name", "said", "expected"),
        [
            ("Al", "Also likes tea", "Al: Also likes tea"),
            ("Al", "AL's cat is grey", "AL's cat is grey"),
            ("C++", "Knows C++ well", "Knows C++ well"),
            ("Ana\nSilva", "Likes ana  silva", "Likes ana  silva"),
            ("(", "one\u2028two", "(: one\u2028two"),
            ("A\ud83d", "half a pair \ud83d", "A?: half a pair ?"),
        ],
    )
    def test_a_name_counts_as_a_word_only(self, file: Path, name: str, said: str, expected: str) -> None:
        """Guards short names, names with signs, and texts that only look like several lines."""
        entity = json.dumps({**ANA, "name": name, "observations": [said]}).replace("\\u2028", "\u2028")

        assert texts(read(file, entity)) == [expected]

    @pytest.mark.parametrize("kind", ["person", "user", "unicorn", "one-off", "URL", "European city", "ship"])
    def test_a_stands_before_what_sounds_like_a_consonant(self, file: Path, kind: str) -> None:
        """Guards the only sentence that is made up."""
        assert texts(read(file, {**ANA, "name": "It", "entityType": kind, "observations": []})) == [f"It is a {kind}"]

    @pytest.mark.parametrize("kind", ["organization", "hour", "API", "LLM", "animal", "umbrella"])
    def test_an_stands_before_what_sounds_like_a_vowel(self, file: Path, kind: str) -> None:
        """Guards the only sentence that is made up."""
        assert texts(read(file, {**ANA, "name": "It", "entityType": kind, "observations": []})) == [f"It is an {kind}"]

    def test_items_need_not_name_their_type(self, file: Path) -> None:
        """Guards lines of other writers, and the saved reply of the server's read_graph."""
        bare = [{key: value for key, value in item.items() if key != "type"} for item in (ANA, ACTED)]
        expected = ["Ana_Silva: Prefers green tea", "Ana_Silva works on Atlas"]

        assert texts(read(file, "\ufeff" + json_lines(*bare).replace("\n", "\r\n\r\n"))) == expected
        assert texts(read(file, {"entities": [bare[0]], "relations": [bare[1]]})) == expected

    def test_what_is_no_memory_is_counted(self, file: Path) -> None:
        """Guards against refusing a file for one odd line, and against leaving anything out silently."""
        found = read(
            file,
            json_lines(
                {**ANA, "entityType": "A" * 50 + "\n" + "b" * 50, "observations": [LONG, "x", 5]},
                {**ANA, "name": " "},
                {**ANA, "name": "Otto", "entityType": "", "observations": []},
                {**ACTED, "to": None},
                {"type": "note", "text": "?"},
                5,
            ),
        )

        assert texts(found) == ["Ana_Silva: x"]
        assert found.memories[0].tags == ("a" * 50 + " " + "b" * 13,)
        assert sorted(found.notes) == [
            "left out: entities of which nothing is said (1)",
            "left out: entities without a name (1)",
            "left out: lines that are no entity and no relation (2)",
            "left out: memories of more than 20,000 characters (1)",
            "left out: observations without a text (1)",
            "left out: relations with an end missing (1)",
        ]

    @pytest.mark.parametrize("broken", ['{"type":"entity","na', "}", '{"a": ' + "9" * 5000 + "}", "[" * 100_000])
    def test_a_broken_line_is_named_and_nothing_is_read(self, file: Path, broken: str) -> None:
        """Guards against half an import."""
        with pytest.raises(InputError, match=r"file, line 3: .*nothing was read"):
            read(file, f"{json_lines(ANA)}\n\n{broken}\n{json_lines(ACTED)}")


OLD = (
    "id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, new_value TEXT, event TEXT, "
    "created_at DATETIME, updated_at DATETIME, is_deleted INTEGER"
)
OLDEST = (
    "id TEXT PRIMARY KEY, memory_id TEXT, prev_value TEXT, new_value TEXT, event TEXT, timestamp DATETIME, "
    "is_deleted INTEGER"
)


class TestMem0History:
    def test_a_memory_comes_with_its_past(self, file: Path) -> None:
        """Guards order, zones, deletion, and what mem0 knew besides: the id, the speaker."""
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
        found = read_foreign(file, NOW)

        assert found.format == "mem0-history"
        assert [past(memory) for memory in found.memories] == [
            [("ADD", "Likes tea", "2025-03-02"), ("UPDATE", "Likes green tea", "2025-04-01")],
            [
                ("ADD", "Has a cat", "2025-03-02"),
                ("DELETE", None, "2025-05-01"),
                ("ADD", "Has a cat again", "2025-06-01"),
            ],
        ]
        ours = {"imported_from": "mem0", "mem0_id": "m1"}
        assert found.memories[0].metadata == {**ours, "actor_id": "ana", "role": "user"}
        assert found.memories[0].versions[0].at == datetime(2025, 3, 2, 6, tzinfo=UTC)
        assert found.notes == ("left out: messages mem0 had at hand for its next extraction (2)",)

    def test_a_deletion_without_a_time_stays_the_last(self, file: Path) -> None:
        """Guards databases of mem0 before its version 2: sorted by time alone, the deletion would be the first."""
        first, second = "2024-10-01T10:00:00-07:00", "2024-11-01T10:00:00-07:00"
        mem0_database(
            file,
            OLD,
            ("m1", None, "Likes tea", None, "ADD", first, None, 0),
            ("m1", "Likes tea", "Likes coffee", None, "UPDATE", first, second, 0),
            ("m1", "Likes coffee", None, None, "DELETE", None, None, 1),
        )

        assert past(read_foreign(file, NOW).memories[0]) == [
            ("ADD", "Likes tea", "2024-10-01"),
            ("UPDATE", "Likes coffee", "2024-11-01"),
            ("DELETE", None, "2024-11-01"),
        ]

    def test_the_first_form_of_the_table_is_read(self, file: Path) -> None:
        """Guards databases that mem0 has not yet moved to its later columns."""
        mem0_database(
            file,
            OLDEST,
            ("m1", "Likes tea", "Likes coffee", "UPDATE", "2024-02-01", 0),
            ("m1", None, "Likes tea", "ADD", "2024-01-01", 0),
        )

        assert past(read_foreign(file, NOW).memories[0]) == [
            ("ADD", "Likes tea", "2024-01-01"),
            ("UPDATE", "Likes coffee", "2024-02-01"),
        ]

    @pytest.mark.parametrize(
        ("event", "new", "last"),
        [("UPDATE", "new", ("UPDATE", "new", "2025-02-01")), ("DELETE", None, ("DELETE", None, "2025-02-01"))],
    )
    def test_a_missing_beginning_is_made_of_what_was_before(
        self, file: Path, event: str, new: str | None, last: tuple[str, str | None, str]
    ) -> None:
        """Guards a history that was cleared in between: every memory is added before it changes."""
        mem0_database(
            file, MEM0_COLUMNS, ("m1", "old", new, event, "2025-01-01", "2025-02-01", new is None, None, None)
        )

        assert past(read_foreign(file, NOW).memories[0]) == [("ADD", "old", "2025-01-01"), last]

    def test_changes_follow_from_each_other(self, file: Path) -> None:
        """Guards the ledger against changes of what is not there, and tells what was passed over."""
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
        found = read_foreign(mem0_database(file, MEM0_COLUMNS, *rows), NOW)

        assert [past(memory) for memory in found.memories] == [
            [("ADD", "first", "2025-01-01"), ("UPDATE", "second", "2025-01-02"), ("DELETE", None, "2025-01-03")]
        ]
        assert sorted(found.notes) == [
            "left out: changes of a memory without a text (1)",
            "left out: changes of a memory without an id (1)",
            "left out: deletions of what was not there (2)",
            "left out: memories of more than 20,000 characters (1)",
        ]

    def test_absurd_times_become_the_present_and_never_run_backwards(self, file: Path) -> None:
        """Guards what is shown as of a day: no version is later than the one that followed it."""
        rows = [
            ("m1", None, "a", "ADD", "0001-01-01T00:00:00+10:00", None, 0, None, None),
            ("m1", "a", "b", "UPDATE", None, "2025-02-01", 0, None, None),
            ("m1", "b", "c", "UPDATE", None, "2999-01-01", 0, None, None),
            ("m2", None, "d", "ADD", "yesterday", None, 0, None, None),
        ]
        found = read_foreign(mem0_database(file, MEM0_COLUMNS, *rows), NOW)

        assert [[at for _, _, at in past(memory)] for memory in found.memories] == [
            ["2025-02-01", "2025-02-01", "2026-05-08"],
            ["2026-05-08"],
        ]
        assert found.memories[1].versions[0].at == NOW

    def test_the_database_is_only_read(self, tmp_path: Path) -> None:
        """Guards the other tool's file, under a name of which SQLite would take a part for options."""
        made = mem0_database(
            tmp_path / "100% mem?mode=rwc#1", MEM0_COLUMNS, ("m1", None, "a", "ADD", None, None, 0, None, None)
        )
        made.chmod(0o400)
        before = made.read_bytes()

        assert texts(read_foreign(made, NOW)) == ["a"]
        assert [(each, each.read_bytes()) for each in tmp_path.iterdir()] == [(made, before)]

    def test_another_database_is_refused(self, file: Path) -> None:
        """Guards against taking any table for a history: another's, a ledger's of ours, a file cut short."""
        with pytest.raises(InputError, match=r"without a history of mem0's in it; expected"):
            read_foreign(mem0_database(file, "id TEXT, visited TEXT"), NOW)
        ledger = mem0_database(file.with_name("ledger"), f"seq INTEGER, {MEM0_COLUMNS}, state TEXT, stage TEXT")
        with pytest.raises(InputError, match="palimpsest restore"):
            read_foreign(ledger, NOW)
        with pytest.raises(InputError, match=r"cannot be read as a database: .*; expected"):
            read(file, ledger.read_bytes()[:3000])


class TestMem0Export:
    ITEM: dict[str, Any] = {  # noqa: RUF012 (never changed)
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
    def test_a_memory_keeps_what_mem0_knew(self, file: Path, form: str) -> None:
        """Guards every form that get_all() and get() have had."""
        found = read(file, {"list": [self.ITEM], "one": self.ITEM}.get(form, {form: [self.ITEM]}))

        assert found.format == "mem0-export"
        (memory,) = found.memories
        assert past(memory) == [("ADD", "Likes green tea", "2025-04-01")]
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
        assert found.notes == ()

    def test_what_is_left_out_is_told(self, file: Path) -> None:
        """Guards against losing silently: the rest of a long list, the graph, metadata that cannot be kept."""
        found = read(
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

        assert texts(found) == ["a", "b?"]
        assert [dict(memory.metadata) for memory in found.memories] == [
            {"imported_from": "mem0"},
            {"half": "?", "number": None, "imported_from": "mem0"},
        ]
        assert found.memories[0].versions[0].at == NOW
        assert found.notes[0] == "this is one page of an export, with 5 of 250 memories"
        assert sorted(found.notes[1:]) == [
            "left out: memories of more than 20,000 characters (1)",
            "left out: memories without a text (2)",
            "left out: metadata of more than 10,000 bytes, or that is no JSON (1)",
            "left out: relations of mem0's graph (1)",
        ]


TREE: dict[str, dict[str, Any]] = {
    "root": {"parent": None, "message": None},
    "a": chatgpt_node("root", "user", "Tea?", at=1_700_000_001.5),
    "b": chatgpt_node("a", "assistant", "Green.", at=1_700_000_002),
    "c": chatgpt_node("a", "assistant", "Black.", at=1_700_000_003),
    "d": chatgpt_node("b", "user", "Why?", at=1_700_000_004),
}


class TestChatGPT:
    def test_the_branch_last_shown_is_taken(self, file: Path) -> None:
        """Guards against answers that were asked for anew, and tells how many other branches there were."""
        found = read(file, [chatgpt_conversation("c", **TREE)])

        assert (found.format, found.notes) == (
            "chatgpt",
            ("left out: other branches of conversations, edited or answered anew (1)",),
        )
        assert found.turns == (
            ForeignTurn("a", "user", "Tea?", datetime(2023, 11, 14, 22, 13, 21, 500_000, tzinfo=UTC)),
            ForeignTurn("c", "assistant", "Black.", datetime(2023, 11, 14, 22, 13, 23, tzinfo=UTC)),
        )

    @pytest.mark.parametrize("current", [None, "gone"])
    def test_without_a_current_node_the_newest_branch_is_taken(self, file: Path, current: str | None) -> None:
        """Guards conversations that were never finished."""
        assert [turn.id for turn in read(file, chatgpt_conversation(current, **TREE)).turns] == ["a", "b", "d"]

    def test_a_tree_in_a_circle_has_an_end(self, file: Path) -> None:
        """Guards against walking a damaged tree for ever."""
        assert [
            turn.content
            for turn in read(
                file, [chatgpt_conversation("x", x=chatgpt_node("y", "user", "X"), y=chatgpt_node("x", "user", "Y"))]
            ).turns
        ] == [
            "Y",
            "X",
        ]

    def test_only_what_both_sides_saw_is_taken(self, file: Path) -> None:
        """Guards against learning from prompts of the system, tools and thoughts; all of it is counted."""
        found = read(
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

        assert [turn.content for turn in found.turns] == ["Look:", "A cat", "Thanks\n!", "Read? it"]
        assert sorted(found.notes) == [
            "left out: hidden messages (2)",
            "left out: messages of other kinds than text (2)",
            "left out: messages of the system (1)",
            "left out: pictures, recordings, attached files and pastes (2)",
            "left out: reasoning of the model (1)",
            "left out: tool calls and their results (2)",
            "left out: turns without a text (1)",
        ]

    def test_a_turn_without_a_time_was_said_after_the_one_before(self, file: Path) -> None:
        """Guards sessions: a missing time is not the present, but one to come is."""
        found = read(
            file,
            chatgpt_conversation(
                "d",
                a=chatgpt_node(None, "user", "1"),
                b=chatgpt_node("a", "assistant", "2", at=1_700_000_500),
                c=chatgpt_node("b", "user", "3"),
                d=chatgpt_node("c", "assistant", LONG, at=9e9),
            ),
        )

        assert [turn.said_at.timestamp() for turn in found.turns[:3]] == [1_700_000_000, 1_700_000_500, 1_700_000_500]
        assert (found.turns[3].said_at, found.turns[3].content) == (NOW, LONG)

    def test_conversations_come_in_the_order_they_began(self, file: Path) -> None:
        """Guards the order of time: an export begins with the newest; what is none is counted."""
        late, soon = (
            chatgpt_conversation("a", begun, a=chatgpt_node(None, "user", str(begun)))
            for begun in (1_700_000_000, 1_600_000_000)
        )
        found = read(file, {"conversations": [late, {"mapping": None}, soon]})

        assert [turn.content for turn in found.turns] == ["1600000000", "1700000000"]
        assert found.notes == ("left out: conversations of an unknown form (1)",)


class TestClaude:
    def test_the_blocks_of_text_are_taken(self, file: Path) -> None:
        """Guards what was said, as it was said: `text` repeats it with placeholders, the rest is no speech."""
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
            "attachments": [{"extracted_content": "…"}],
        }
        found = read(file, [claude_conversation(SAID, answer, pasted, {"sender": "system", "text": "?"})])

        at = datetime(2025, 2, 1, 10, 0, 0, 500_000, tzinfo=UTC)
        assert found.format == "claude"
        assert found.turns == (
            ForeignTurn("m1", "user", "Hi", at),
            ForeignTurn("m2", "assistant", "Let me look.\nFound?.", at),
        )
        assert sorted(found.notes) == [
            "left out: messages of neither side (1)",
            "left out: pictures, recordings, attached files and pastes (2)",
            "left out: reasoning of the model (1)",
            "left out: tool calls and their results (2)",
            "left out: turns without a text (1)",
        ]

    def test_an_older_export_has_its_text_in_one_piece(self, file: Path) -> None:
        """Guards exports without blocks and without ids, and what stood there for a part that could not be shown."""
        gap = "```\nThis block is not supported on your current device yet.\n```"
        found = read(
            file,
            claude_conversation({"sender": "human", "text": "Draw"}, {"sender": "assistant", "text": f"Here:\n{gap}"}),
        )

        assert [(turn.id, turn.content) for turn in found.turns] == [("", "Draw"), ("", "Here:")]
        assert found.turns[0].said_at == datetime(2025, 2, 1, 9, tzinfo=UTC)

    @pytest.mark.parametrize(
        ("leaf", "expected"), [({}, ["m1", "m4"]), ({"current_leaf_message_uuid": "m3"}, ["m1", "m2", "m3"])]
    )
    def test_the_newest_branch_is_taken(self, file: Path, leaf: dict[str, str], expected: list[str]) -> None:
        """Guards against questions that were asked anew; what answers a message that is gone follows the one above."""
        messages = [
            {**SAID, "parent_message_uuid": ROOT},
            {**SAID, "uuid": "m2", "parent_message_uuid": "m1", "created_at": "2025-02-02"},
            {**SAID, "uuid": "m3", "parent_message_uuid": "gone", "created_at": "2025-02-03"},
            {**SAID, "uuid": "m4", "parent_message_uuid": "m1", "created_at": "2025-02-04"},
            {**SAID, "uuid": "m5", "parent_message_uuid": ROOT, "created_at": "2025-02-01"},
        ]
        found = read(file, [claude_conversation(*messages, **leaf)])

        assert [turn.id for turn in found.turns] == expected
        assert found.notes == ("left out: other branches of conversations, edited or answered anew (2)",)


class TestFiles:
    @pytest.mark.parametrize("name", ["conversations", "my data__conversations", "conversations-000"])
    def test_a_zip_is_read_as_what_is_in_it(self, file: Path, name: str) -> None:
        """Guards the form in which both exports come, and a folder packed whole."""
        found = read_foreign(
            json_zip(
                file,
                users=[],
                **{name: [claude_conversation(SAID)], f"old__{name}": [chatgpt_conversation("d", **TREE)]},
            ),
            NOW,
        )

        assert (found.format, [turn.content for turn in found.turns]) == ("claude", ["Hi"])

    def test_the_numbered_parts_of_a_long_export_are_one(self, file: Path) -> None:
        """Guards against taking the first part of a large export for the whole."""
        parts = {
            f"conversations-{number:03}": [chatgpt_conversation("a", number, a=chatgpt_node(None, "user", str(number)))]
            for number in (2, 0, 1)
        }

        assert [turn.content for turn in read_foreign(json_zip(file, **parts), NOW).turns] == ["0", "1", "2"]

    @pytest.mark.parametrize("content", ["", " \n", "\ufeff"])
    def test_an_empty_file_is_told(self, file: Path, content: str) -> None:
        """Guards against "imported nothing" where something was expected."""
        with pytest.raises(InputError, match=r"file is empty; expected"):
            read(file, content)

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (json.dumps([claude_conversation(SAID)], indent=1)[:-20], r"file, line 1\d: "),
            (json_lines(ANA)[:-9], "file, line 1: "),
            ("# Notes\n", "file, line 1: Expecting value"),
            ("[" * 100_000, "cannot be read as JSON"),
            ("9" * 5000, "cannot be read as JSON"),
            (b"\xff\xfe{\x00}\x00", "is no text in UTF-8"),
            ("[]", "nothing to import"),
            ('{"results": []}', "nothing to import"),
            ({"role": "user", "content": "Hi"}, "JSON of another kind"),
            ('[5, null, "x", [[]]]', "JSON of another kind"),
            (json_lines({"role": "user"}, {"role": "assistant"}), "file, line 2: "),
        ],
    )
    def test_a_damaged_or_unknown_file_is_refused(self, file: Path, content: Any, told: str) -> None:
        """Guards against half an import: the file is named, the line where there is one, and what would do."""
        with pytest.raises(InputError, match=told):
            read(file, content)

    def test_what_cannot_be_opened_is_told(self, file: Path) -> None:
        """Guards the command line against exceptions of the operating system."""
        for path in (file, file.parent):
            with pytest.raises(InputError, match=r"cannot be read: .*; expected"):
                read_foreign(path, NOW)

    def test_a_zip_without_conversations_is_refused(self, file: Path) -> None:
        """Guards against any ZIP, and one that was cut short or has conversations of no known kind in it."""
        with pytest.raises(InputError, match=r"no conversations\.json in it; expected"):
            read_foreign(json_zip(file, my_conversations=[]), NOW)
        whole = json_zip(file, conversations=[claude_conversation(SAID)]).read_bytes()
        with pytest.raises(InputError, match="damaged or encrypted ZIP"):
            read(file, whole[:-30])
        with pytest.raises(InputError, match="damaged or encrypted ZIP"):
            read(file, whole.replace(whole[60:64], b"\xff" * 4))
        with zipfile.ZipFile(file, "w") as made:
            made.writestr("conversations.json", "[{")
        with pytest.raises(InputError, match=r"file, conversations\.json, line 1: "):
            read_foreign(file, NOW)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_BZIP2) as made:
            made.writestr("conversations.json", "[]")
        with pytest.raises(InputError, match="unpack it"):
            read_foreign(file, NOW)

    def test_what_is_too_large_is_refused_before_it_is_read(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Guards the memory of the machine against a bomb, of which each part alone would pass."""
        monkeypatch.setattr(files, "MAX_BYTES", 1000)
        part = [claude_conversation({**SAID, "text": " " * 600})]
        with pytest.raises(InputError, match="would unpack to more than 1,000 bytes"):
            read_foreign(json_zip(file, **{"conversations-1": part, "conversations-2": part}), NOW)
        with pytest.raises(InputError, match="larger than 1,000 bytes"):
            read(file, [part, part])

    def test_a_zip_that_holds_more_than_it_says_is_refused(self, file: Path) -> None:
        """Guards against a bomb that lies about its size."""
        raw = bytearray(json_zip(file, conversations=[claude_conversation({**SAID, "text": "a" * 5000})]).read_bytes())
        entry = raw.rindex(b"PK\x01\x02")
        raw[entry + 24 : entry + 28] = (100).to_bytes(4, "little")
        with pytest.raises(InputError, match="damaged or encrypted ZIP"):
            read(file, bytes(raw))

    def test_events_are_ours(self, file: Path) -> None:
        """Guards the records that the ledger takes."""
        assert read(file, {"memory": "a"}).memories[0].versions[0].event is Event.ADD
