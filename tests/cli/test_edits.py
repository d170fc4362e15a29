"""Commands that read, change, delete and restore one memory, from a person's words, standard input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import palimpsest, palimpsest_json, palimpsest_process


def added(folder: Path, text: str, *options: str) -> str:
    (outcome,) = palimpsest_json(folder, "add", text, *options)["results"]
    return outcome["id"][:8]


def whole(folder: Path, memory_id: str) -> dict[str, Any]:
    return palimpsest_json(folder, "get", memory_id)


def test_a_memory_is_printed_whole(tmp_path: Path) -> None:
    """Guards the text as it is stored, line breaks and all, and everything that is stored with it."""
    text = "Émile repairs clocks:\n" + "北京 and Besançon. " * 60 + "The end."
    memory_id = added(tmp_path, text, "--at", "2026-03-01", "--metadata", "topic=family", "--metadata", "size=3")
    printed = palimpsest(tmp_path, "get", memory_id)
    assert printed.startswith(f"[{memory_id}] current: {text}\n\n")
    for line in (
        'metadata  topic = "family"',
        "          size = 3",
        "date      2026-03-01T00:00:00Z",
        "scope     user alice",
    ):
        assert f"\n{line}\n" in printed
    reply = whole(tmp_path, memory_id)
    assert reply["text"] == text
    assert (reply["kind"], reply["metadata"], reply["deleted"]) == ("memory", {"topic": "family", "size": 3}, False)
    assert (reply["scope"], reply["at"]) == ({"user_id": "alice"}, "2026-03-01T00:00:00Z")


def test_a_message_is_printed_whole_with_its_own_id(tmp_path: Path) -> None:
    """Guards the way to the whole of a message that a table cuts."""
    said = "I went to the market. " * 100
    message = {"role": "user", "name": "Ana", "content": said, "id": "D1:3", "at": "2026-05-01T10:00:00Z"}
    (tmp_path / "chat.json").write_text(json.dumps([message]), "utf-8")
    palimpsest(tmp_path, "learn", "chat.json")
    (hit,) = palimpsest_json(tmp_path, "search", "market")["results"]
    printed = palimpsest(tmp_path, "get", hit["id"])
    assert f"2026-05-01 Ana said: {said.strip()}" in printed
    assert "from      D1:3" in printed
    assert whole(tmp_path, hit["id"])["sources"] == ["D1:3"]
    refused = palimpsest(tmp_path, "edit", hit["id"], "x", code=1)
    assert f"palimpsest delete {hit['id'][:8]} deletes it" in refused
    assert "deleted: [" in palimpsest(tmp_path, "delete", hit["id"])
    assert "restored: [" in palimpsest(tmp_path, "undelete", hit["id"])


def test_text_and_metadata_are_edited_by_words(tmp_path: Path) -> None:
    """Guards the values that metadata takes, the removal of a key, and the old text in the history."""
    memory_id = added(tmp_path, "Rex is old", "--metadata", "topic=dog", "--metadata", 'tags=["pet"]')
    printed = palimpsest(tmp_path, "edit", memory_id, "Rex is 12", "--metadata", "age=12", "--metadata", "topic=")
    assert "updated: [" in printed
    assert "(was: Rex is old)" in printed
    assert whole(tmp_path, memory_id)["metadata"] == {"tags": ["pet"], "age": 12}
    palimpsest(tmp_path, "edit", memory_id, "--metadata", 'age="12"', "--metadata", "sure=true")
    assert whole(tmp_path, memory_id)["metadata"] == {"tags": ["pet"], "age": "12", "sure": True}
    assert whole(tmp_path, memory_id)["text"] == "Rex is 12"
    assert "is not KEY=VALUE" in palimpsest(tmp_path, "edit", memory_id, "--metadata", "age", code=1)
    assert "has no value" in palimpsest(tmp_path, "add", "x", "--metadata", "age=", code=1)
    assert "choose another key" in palimpsest(tmp_path, "add", "x", "--metadata", "kind=recipe", code=1)


@pytest.mark.nightly
def test_a_text_is_read_from_standard_input(tmp_path: Path) -> None:
    """Guards pipes into add and edit, in UTF-8 whatever the locale is."""
    assert "added: [" in palimpsest(tmp_path, "add", "-", answer="李雷住在北京\n")
    (hit,) = palimpsest_json(tmp_path, "list")["results"]
    assert hit["text"] == "李雷住在北京"
    palimpsest(tmp_path, "edit", hit["id"], "-", answer="李雷住在上海\n")
    assert whole(tmp_path, hit["id"])["text"] == "李雷住在上海"
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    palimpsest_process(tmp_path, "edit", hit["id"], "-", answer="Émile", settings=ascii_only)
    assert whole(tmp_path, hit["id"])["text"] == "Émile"
    assert "text is empty" in palimpsest(tmp_path, "add", "-", answer=" \n", code=1)


def test_memories_are_deleted_and_restored(tmp_path: Path) -> None:
    ids = [added(tmp_path, text) for text in ("Rex is old", "Ana lives in Lyon")]
    assert "Nothing was deleted" in palimpsest(tmp_path, "delete", code=1)
    assert "no memory '00000000'" in palimpsest(tmp_path, "delete", ids[0], "00000000", code=1)
    printed = palimpsest(tmp_path, "delete", *ids)
    assert printed.count("deleted: [") == 2
    assert "palimpsest undelete ID restores one of them" in printed
    assert palimpsest_json(tmp_path, "list")["results"] == []
    assert "palimpsest undelete" in palimpsest(tmp_path, "edit", ids[0], "x", code=1)
    assert "restored: [" in palimpsest(tmp_path, "undelete", ids[0])
    assert "unchanged (not deleted)" in palimpsest(tmp_path, "undelete", ids[0])
    assert [hit["text"] for hit in palimpsest_json(tmp_path, "list")["results"]] == ["Rex is old"]


@pytest.mark.nightly
def test_everything_is_deleted_only_after_a_yes(tmp_path: Path) -> None:
    """Guards a whole memory, and that it comes back."""
    for text in ("Rex is old", "Ana lives in Lyon"):
        added(tmp_path, text)
    palimpsest(tmp_path, "add", "The site is blue", "--project", "web")
    asked = palimpsest(tmp_path, "delete", "--all", answer="n\n", code=1)
    assert "Delete 2 memories of user alice (what belongs to projects stays)?" in asked
    assert len(palimpsest_json(tmp_path, "list")["results"]) == 2
    assert "deleted: 2 memories" in palimpsest(tmp_path, "delete", "--all", "--yes")
    assert [hit["text"] for hit in palimpsest_json(tmp_path, "list", "--project", "web")["results"]] == [
        "The site is blue"
    ]
    assert "unchanged: nothing is stored" in palimpsest(tmp_path, "delete", "--all")
    palimpsest(tmp_path, "undo")
    assert len(palimpsest_json(tmp_path, "list")["results"]) == 2
