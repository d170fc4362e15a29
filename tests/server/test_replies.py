"""Replies as JSON: keys, their order, what is left out, and the forms that Mem0 has."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from palimpsest.core.clock import iso
from palimpsest.core.models import Edit, Event, Outcome, Provenance, Step
from palimpsest.learn.commit import WriteResult
from palimpsest.learn.summaries.summary_kinds import SummaryResult
from palimpsest.memory import Page
from palimpsest.recall.search import SearchResult
from palimpsest.recall.similar import SimilarMemory
from palimpsest.server.replies.json_replies import (
    added_json,
    changed_json,
    deleted_all_json,
    edits_json,
    history_json,
    hit_json,
    message_history_json,
    outcome_json,
    page_json,
    search_json,
    summary_json,
)
from tests.server.reply_examples import HIT, ID, OTHER_ID, PAST, SCOPE, SCOPE_NOTE, TEA, VERSION
from tests.support.memory import messages_from
from tests.support.scripted_model import NOW, memory

HIT_JSON: dict[str, Any] = {
    "id": ID,
    "kind": "memory",
    "text": "Ana drinks tea.",
    "score": 0.835,
    "relevance": 0.71,
    "at": "2026-05-08T13:56:00Z",
    "sources": ["D1:3"],
    "role": "",
    "name": "",
    "metadata": {},
    "created_at": "2026-05-08T13:56:00Z",
    "updated_at": "2026-05-09T13:56:00Z",
    "tags": ["preference"],
}


def assert_json(reply: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compare a reply as it is written, which includes the order of its keys."""
    assert json.dumps(reply) == json.dumps(expected)


class TestHits:
    def test_a_hit_has_the_documented_keys_in_their_order(self) -> None:
        """Guards programs that read hits; a hit without tags has no such key."""
        assert_json(hit_json(HIT), HIT_JSON)
        without_tags = {key: value for key, value in HIT_JSON.items() if key != "tags"}
        assert_json(hit_json(replace(HIT, tags=())), without_tags)

    @pytest.mark.parametrize(
        ("parts", "explained"),
        [({"meaning": 0.5012, "age": 0.001}, {"meaning": 0.5}), ({"age": 0.001}, {})],
        ids=["some", "all zero"],
    )
    def test_an_explained_hit_names_the_parts_of_its_score(
        self, parts: dict[str, float], explained: dict[str, float]
    ) -> None:
        """Guards `explain`: rounded parts, without those that round to 0."""
        assert_json(hit_json(replace(HIT, score_parts=parts)), {**HIT_JSON, "explained": explained})

    def test_metadata_stays_as_it_was_stored(self) -> None:
        """Guards nested values, numbers and null from conversion."""
        metadata = {"a": [1, 2.5, None, True], "b": {"c": "é"}, "d": 10**25}
        assert_json(hit_json(replace(HIT, metadata=metadata)), {**HIT_JSON, "metadata": metadata})

    def test_a_search_counts_what_it_leaves_out(self) -> None:
        """Guards the token budget: what did not fit is counted, and notes and scope are given."""
        result = SearchResult((HIT,), omitted=7, notes=("found by words only",))
        notes = ["found by words only", SCOPE_NOTE]
        expected = {"results": [HIT_JSON], "confident": True, "omitted": 7, "notes": notes}
        assert_json(search_json(result, SCOPE), expected)
        assert search_json(replace(result, confident=False), SCOPE)["confident"] is False

    def test_a_cut_hit_says_how_long_its_text_is(self) -> None:
        """Guards against a beginning that passes for the whole text, in a search and in a list."""
        cut = replace(HIT, text="Ana…", length=20_000)
        for reply in (search_json(SearchResult((cut,)), SCOPE), page_json(Page((cut,)), SCOPE)):
            (hit,) = reply["results"]
            assert (hit["text"], hit["truncated"], hit["length"]) == ("Ana…", True, 20_000)
            assert "get_history or memory://ID" in reply["notes"][0]
        assert "truncated" not in hit_json(HIT)

    def test_a_page_has_a_cursor_and_no_scores(self) -> None:
        """Guards paging: a list has no score and no relevance, and the last page has no cursor."""
        listed = {key: value for key, value in HIT_JSON.items() if key not in ("score", "relevance")}
        page = page_json(Page((HIT,), "next"), SCOPE)
        assert_json(page, {"results": [listed], "cursor": "next", "notes": [SCOPE_NOTE]})
        assert_json(page_json(Page(()), SCOPE), {"results": [], "cursor": None, "notes": [SCOPE_NOTE]})


class TestWrites:
    @pytest.mark.parametrize(
        ("outcome", "event", "other_keys"),
        [
            (Outcome(Event.ADD, TEA), "ADD", {}),
            (Outcome(Event.ADD, PAST), "ADD", {"valid_until": "2026-05"}),
            (Outcome(Event.ADD, TEA, previous="old"), "ADD", {"previous": "old"}),
            (Outcome(Event.UPDATE, TEA, previous="old"), "UPDATE", {"previous": "old"}),
            (Outcome(Event.DELETE, TEA, previous="old"), "DELETE", {}),
            (Outcome(Event.NONE, TEA, duplicate_of=OTHER_ID), "NONE", {"duplicate_of": OTHER_ID}),
        ],
    )
    def test_an_outcome_has_mem0s_form(self, outcome: Outcome, event: str, other_keys: dict[str, str]) -> None:
        """Guards programs that read Mem0's results: ids are full, texts are unchanged, empty keys are left out."""
        result = {"id": ID, "event": event, "memory": TEA.text, **other_keys}
        assert_json(outcome_json(outcome), result)
        assert changed_json(WriteResult((outcome,)), SCOPE)["results"] == [result]
        expected = {"results": [result], "kept_messages": 0, "notes": [SCOPE_NOTE]}
        assert_json(added_json(WriteResult((outcome,)), SCOPE), expected)

    def test_similar_memories_are_listed_with_the_new_one(self) -> None:
        """Guards the agent's part in resolving conflicts, for a client that only shows the JSON."""
        near = memory("Ana drinks\ncoffee.", OTHER_ID, happened_at=datetime(2024, 2, 11, tzinfo=UTC))
        result = WriteResult((Outcome(Event.ADD, TEA),), {ID: [SimilarMemory(near, 0.71236)]})
        reply = added_json(result, SCOPE)
        assert reply["results"][0]["similar"] == [
            {"id": OTHER_ID, "text": near.text, "at": "2024-02-11T00:00:00Z", "score": 0.712}
        ]
        assert 'replaces=["its id"]' in reply["notes"][0]
        assert reply["notes"][-1] == SCOPE_NOTE

    @pytest.mark.parametrize(("length", "is_cut"), [(200, False), (201, True), (20_000, True)])
    def test_a_long_text_is_not_repeated_to_who_sent_it(self, length: int, *, is_cut: bool) -> None:
        """Guards the context of an agent whose client shows it the JSON."""
        text = "x" * length
        outcome = Outcome(Event.UPDATE, memory(text, ID), previous=text)
        result = WriteResult((outcome,), {ID: [SimilarMemory(memory(text, OTHER_ID), 0.5)]})
        shown = {"truncated": True, "length": length} if is_cut else {}
        beginning = "x" * 199 + "…" if is_cut else text
        for reply in (added_json(result, SCOPE), changed_json(result, SCOPE)):
            (content,) = reply["results"]
            (similar,) = content.pop("similar")
            assert content == {"id": ID, "event": "UPDATE", "memory": beginning, "previous": beginning, **shown}
            assert {key: similar[key] for key in similar if key not in ("id", "at", "score")} == {
                "text": beginning,
                **shown,
            }

    def test_a_deletion_says_how_to_restore_it(self) -> None:
        """Guards deletion through a client that only shows the JSON."""
        restore, scope = changed_json(WriteResult((Outcome(Event.DELETE, TEA),)), SCOPE)["notes"]
        assert 'update_memory(memory_id="0a1b2c3d", restore=true)' in restore
        assert scope == SCOPE_NOTE

    def test_a_deletion_of_everything_is_counted(self) -> None:
        """Guards the number; memories and messages are counted together."""
        result = WriteResult((Outcome(Event.DELETE, TEA), Outcome(Event.DELETE, TEA, kind="message")), notes=("n",))
        assert_json(deleted_all_json(result), {"deleted": 2, "notes": ["n"]})

    def test_the_log_lists_edits_with_their_steps(self) -> None:
        """Guards programs that read `palimpsest log --json`."""
        edit = Edit(7, NOW, Provenance("add", "scripted", "f00", "cli"), (Step("memory", ID, Event.ADD, None, "tea"),))
        step = {"kind": "memory", "id": ID, "event": "ADD", "before": None, "after": "tea"}
        made_by = {"stage": "add", "model": "scripted", "caller": "cli"}
        expected = {"edits": [{"edit": 7, "at": "2026-05-08T13:56:00Z", **made_by, "steps": [step]}]}
        assert_json(edits_json([edit]), expected)


def test_a_summary_counts_the_changes_it_does_not_include() -> None:
    """Guards against an outdated summary that looks current."""
    summary = SummaryResult("Ana drinks tea.", "overall", 3, ("could not be refreshed",))
    assert_json(
        summary_json(summary, SCOPE),
        {
            "summary": "Ana drinks tea.",
            "kind": "overall",
            "changes_since": 3,
            "notes": ["could not be refreshed", SCOPE_NOTE],
        },
    )


@pytest.mark.parametrize(("deleted_at", "superseded_by"), [(None, None), (NOW, None), (NOW, OTHER_ID)])
def test_a_history_has_mem0s_columns_and_what_made_each_change(
    deleted_at: datetime | None, superseded_by: str | None
) -> None:
    """Guards Mem0's history columns, our provenance beside them, and the state of the memory."""
    stored = memory("Ana drinks tea.", ID, deleted_at=deleted_at, superseded_by=superseded_by)
    version = {
        "id": "h1",
        "memory_id": ID,
        "old_memory": None,
        "new_memory": "Ana drinks tea.",
        "event": "ADD",
        "created_at": "2026-05-08T13:56:00Z",
        "updated_at": "2026-05-08T13:56:00Z",
        "is_deleted": False,
        "actor_id": "Ana",
        "role": "user",
        "stage": "decide",
        "model": "scripted",
        "prompt": "abcdef123456",
        "caller": "a client",
        "edit": 0,
        "sources": ["D1:3"],
    }
    state = {"at": iso(stored.at), "deleted": deleted_at is not None, "superseded_by": superseded_by}
    expected = {"id": ID, "memory": "Ana drinks tea.", **state, "history": [version]}
    assert_json(history_json(stored, [VERSION], [], []), expected)


def test_a_history_has_each_long_text_whole_once() -> None:
    """Guards both the reader's context and the old texts, which stand nowhere else."""
    old, new = "x" * 5_000, "y" * 5_000
    versions = [replace(VERSION, new_memory=old), replace(VERSION, old_memory=old, new_memory=new)]
    content = history_json(memory(new, ID), versions, [], [])
    texts = [content["memory"], *(row[key] for row in content["history"] for key in ("old_memory", "new_memory"))]
    assert texts == [new, None, old, "x" * 199 + "…", "y" * 199 + "…"]


def test_a_message_has_its_whole_text_and_no_versions() -> None:
    """Guards the way to the whole text of a message that a search has cut."""
    (message,) = messages_from(("user", "tea " * 30_000))
    expected = {"id": message.id, "kind": "message", "memory": message.content}
    expected |= {"at": iso(message.said_at), "deleted": False}
    assert_json(message_history_json(message), {**expected, "superseded_by": None, "history": []})
