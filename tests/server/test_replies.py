"""Replies as text and as JSON: the word for every outcome, lines, notes and scope; keys, their order, Mem0's forms."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from palimpsest.core.clock import iso
from palimpsest.core.models import Edit, Event, Hit, Outcome, Predecessor, Provenance, Step
from palimpsest.learn.commit import WriteResult
from palimpsest.learn.summaries.summary_kinds import SummaryResult
from palimpsest.memory import Page
from palimpsest.recall.search import SearchResult
from palimpsest.recall.similar import SimilarMemory
from palimpsest.server.replies import (
    added_json,
    added_text,
    changed_json,
    changed_text,
    deleted_all_json,
    edits_json,
    edits_text,
    history_json,
    history_text,
    hit_json,
    hit_line,
    message_history_json,
    page_json,
    page_text,
    restored_text,
    search_json,
    search_text,
    summary_json,
    summary_text,
    whole_text,
)
from tests.server.reply_examples import HIT, ID, OTHER_ID, PAST, SCOPE, SCOPE_NOTE, TEA, VERSION
from tests.support.memory import messages_from
from tests.support.scripted_model import NOW, memory

TEA_LINE = "[0a1b2c3d] Ana drinks green tea."

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


LISTED_JSON = {key: value for key, value in HIT_JSON.items() if key not in ("score", "relevance")}
METADATA = {"a": [1, 2.5, None, True], "b": {"c": "é"}, "d": 10**25}


@pytest.mark.parametrize(
    ("hit", "expected"),
    [
        (HIT, HIT_JSON),
        (replace(HIT, tags=()), {key: value for key, value in HIT_JSON.items() if key != "tags"}),
        (
            replace(HIT, score_parts={"meaning": 0.5012, "age": 0.001}),
            {**HIT_JSON, "explained": {"meaning": 0.5}},
        ),
        (replace(HIT, score_parts={"age": 0.001}), {**HIT_JSON, "explained": {}}),
        (replace(HIT, metadata=METADATA), {**HIT_JSON, "metadata": METADATA}),
    ],
    ids=["all keys", "no tags", "explained", "explained, all zero", "metadata as stored"],
)
def test_a_hit_has_the_documented_keys_in_their_order(hit: Hit, expected: dict[str, Any]) -> None:
    """Guards programs that read hits."""
    assert_json(hit_json(hit), expected)


CUT_HIT = replace(HIT, text="Ana drinks…", length=20_000)
CUT_LINE = "[0a1b2c3d] 2026-05-08 Ana drinks… (20,000 characters)"
CUT_NOTE = 'a text that ends in "…" is longer; get_history or memory://ID, with its id, gives all of it'


@pytest.mark.parametrize(
    ("result", "lines", "expected"),
    [
        (
            SearchResult((HIT,), omitted=7, notes=("found by words only",)),
            [
                hit_line(HIT),
                "(7 more did not fit; raise max_tokens to see them)",
                "note: found by words only",
            ],
            {"results": [HIT_JSON], "confident": True, "omitted": 7, "notes": ["found by words only", SCOPE_NOTE]},
        ),
        (
            SearchResult((HIT,), confident=False),
            ["Weak matches only; nothing stored clearly answers this:", hit_line(HIT)],
            {"results": [HIT_JSON], "confident": False, "omitted": 0, "notes": [SCOPE_NOTE]},
        ),
        (
            SearchResult((), confident=False),
            ["nothing found"],
            {"results": [], "confident": False, "omitted": 0, "notes": [SCOPE_NOTE]},
        ),
        (
            SearchResult((), omitted=2),
            ["(2 hits did not fit; raise max_tokens to see them)"],
            {"results": [], "confident": True, "omitted": 2, "notes": [SCOPE_NOTE]},
        ),
        (
            Page((HIT,), "next"),
            [hit_line(HIT), "(there are more: call list_memories with cursor='next')"],
            {"results": [LISTED_JSON], "cursor": "next", "notes": [SCOPE_NOTE]},
        ),
        (Page(()), ["no memories"], {"results": [], "cursor": None, "notes": [SCOPE_NOTE]}),
    ],
    ids=["omitted", "weak", "nothing", "no room", "page", "last page"],
)
def test_a_search_and_a_list_say_what_they_leave_out(
    result: SearchResult | Page, lines: list[str], expected: dict[str, Any]
) -> None:
    """Guards the token budget and paging: what did not fit is counted, and a list has no score."""
    if isinstance(result, Page):
        text, content = page_text(result, SCOPE), page_json(result, SCOPE)
    else:
        text, content = search_text(result, SCOPE), search_json(result, SCOPE)
    assert text.splitlines() == [*lines, SCOPE_NOTE]
    assert_json(content, expected)


@pytest.mark.parametrize("as_text", [search_text(SearchResult((CUT_HIT,)), SCOPE), page_text(Page((CUT_HIT,)), SCOPE)])
def test_a_cut_hit_says_how_long_its_text_is_and_where_all_of_it_is(as_text: str) -> None:
    """Guards against a beginning that passes for the whole text, in a search and in a list."""
    assert as_text.splitlines() == [CUT_LINE, f"note: {CUT_NOTE}", SCOPE_NOTE]
    for content in (search_json(SearchResult((CUT_HIT,)), SCOPE), page_json(Page((CUT_HIT,)), SCOPE)):
        (hit,) = content["results"]
        assert (hit["text"], hit["truncated"], hit["length"]) == ("Ana drinks…", True, 20_000)
        assert content["notes"][0] == CUT_NOTE
    assert "truncated" not in hit_json(HIT)


@pytest.mark.parametrize(
    ("hit", "line"),
    [
        (HIT, "2026-05-08 Ana drinks tea."),
        (replace(HIT, text="The vet comes on Friday"), "said 2026-05-08 The vet comes on Friday"),
        (replace(HIT, is_event_date=True), "on 2026-05-08 Ana drinks tea."),
        (replace(HIT, is_event_date=True, at_precision="month"), "in 2026-05 Ana drinks tea."),
        (replace(HIT, kind="message", role="user", text="On Friday"), "2026-05-08 user said: On Friday"),
        (replace(HIT, text="two\n lines"), "2026-05-08 two lines"),
        (replace(HIT, kind="message", role="user", name="Ana", text="Tea!"), "2026-05-08 Ana said: Tea!"),
        (replace(HIT, kind="message", role="assistant", text="Tea?"), "2026-05-08 assistant said: Tea?"),
    ],
    ids=["memory", "said", "on", "in", "message", "lines", "named", "unnamed"],
)
def test_a_hit_is_one_line(hit: Hit, line: str) -> None:
    """Guards the size of results: short id, date, speaker, text."""
    assert search_text(SearchResult((hit,)), SCOPE).splitlines() == [f"[0a1b2c3d] {line}", SCOPE_NOTE]


class TestWrites:
    @pytest.mark.parametrize(
        ("outcome", "line", "other_keys"),
        [
            (Outcome(Event.ADD, TEA), f"added: {TEA_LINE}", {}),
            (Outcome(Event.ADD, PAST), f"added as past: {TEA_LINE} (until 2026-05)", {"valid_until": "2026-05"}),
            (
                Outcome(Event.ADD, TEA, previous="Ana drinks coffee.", replaced=(OTHER_ID,)),
                f"replaced: {TEA_LINE} (was: [ffeeddcc] Ana drinks coffee.)",
                {"previous": "Ana drinks coffee.", "replaced": [OTHER_ID]},
            ),
            (
                Outcome(Event.UPDATE, TEA, previous="Ana drinks\ntea."),
                f"updated: {TEA_LINE} (was: Ana drinks tea.)",
                {"previous": "Ana drinks\ntea."},
            ),
            (
                Outcome(Event.UPDATE, TEA, previous=TEA.text),
                f"updated: {TEA_LINE} (same text; metadata, labels or date changed)",
                {"previous": TEA.text},
            ),
            (Outcome(Event.DELETE, TEA, previous="old"), f"deleted: {TEA_LINE}", {}),
            (
                Outcome(Event.DELETE, TEA, duplicate_of=OTHER_ID),
                f"deleted: {TEA_LINE} (another memory, ffeeddcc, already says the new text)",
                {"duplicate_of": OTHER_ID},
            ),
            (Outcome(Event.NONE, TEA), f"unchanged: {TEA_LINE}", {}),
            (
                Outcome(Event.NONE, TEA, duplicate_of=OTHER_ID),
                "unchanged (duplicate of ffeeddcc): Ana drinks green tea.",
                {"duplicate_of": OTHER_ID},
            ),
        ],
    )
    def test_an_outcome_starts_with_the_word_for_it_and_has_mem0s_form(
        self, outcome: Outcome, line: str, other_keys: dict[str, Any]
    ) -> None:
        """Guards the first word, from which an agent knows what was done, and programs that read Mem0's results.

        As text an outcome is one line with a short id. As JSON ids are full, texts unchanged, empty keys left out.
        """
        result = WriteResult((outcome,))
        assert changed_text(result, SCOPE).splitlines()[0] == line
        assert added_text(result, SCOPE).splitlines()[0] == line
        expected = {"id": ID, "event": outcome.event.value, "memory": TEA.text, **other_keys}
        assert_json(changed_json(result, SCOPE)["results"][0], expected)
        assert added_json(result, SCOPE)["results"] == [expected]
        assert added_json(result, SCOPE)["kept_messages"] == 0

    @pytest.mark.parametrize(
        ("result", "lines"),
        [
            (WriteResult(), ["unchanged"]),
            (WriteResult(kept_messages=1), ["kept 1 message"]),
            (WriteResult(kept_messages=4), ["kept 4 messages"]),
            (WriteResult((Outcome(Event.DELETE, TEA),), kept_messages=4), [f"deleted: {TEA_LINE}"]),
            (
                WriteResult((Outcome(Event.ADD, TEA),), notes=("no language model is configured", "second")),
                [f"added: {TEA_LINE}", "note: no language model is configured", "note: second"],
            ),
        ],
        ids=["nothing", "one", "several", "learnt", "notes"],
    )
    def test_an_add_says_what_it_did_and_ends_with_notes_and_scope(self, result: WriteResult, lines: list[str]) -> None:
        """Guards adds without an outcome: stored messages are counted if nothing more important happened."""
        assert added_text(result, SCOPE).splitlines() == [*lines, SCOPE_NOTE]

    def test_similar_memories_are_shown_with_the_new_one(self) -> None:
        """Guards the agent's part in resolving conflicts: id, date, text, and what to do about them."""
        near = memory("Ana drinks\ncoffee.", OTHER_ID, happened_at=datetime(2024, 2, 11, tzinfo=UTC))
        result = WriteResult((Outcome(Event.ADD, TEA),), {ID: [SimilarMemory(near, 0.71236)]})
        reply = added_json(result, SCOPE)
        assert reply["results"][0]["similar"] == [
            {"id": OTHER_ID, "text": near.text, "at": "2024-02-11T00:00:00Z", "score": 0.712}
        ]
        advice, scope = reply["notes"]
        assert ('replaces=["its id"]' in advice, "delete_memory" in advice, scope) == (True, True, SCOPE_NOTE)
        assert added_text(result, SCOPE).splitlines()[1:] == [
            "  resembles [ffeeddcc] on 2024-02-11 Ana drinks coffee.",
            f"note: {advice}",
            SCOPE_NOTE,
        ]

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
        """Guards against deletions that an agent cannot undo, also through a client that only shows the JSON."""
        deletion = WriteResult((Outcome(Event.DELETE, TEA),))
        restore, scope = changed_json(deletion, SCOPE)["notes"]
        assert 'update_memory(memory_id="0a1b2c3d", restore=true)' in restore
        assert scope == SCOPE_NOTE
        deleted = changed_text(deletion, SCOPE)
        assert (f"note: {restore}" in deleted, "palimpsest purge" in deleted) == (True, True)
        assert "restore" not in changed_text(WriteResult((Outcome(Event.UPDATE, TEA, previous="old"),)), SCOPE)
        assert changed_text(WriteResult(), SCOPE).splitlines() == ["unchanged: there was nothing to do", SCOPE_NOTE]

    @pytest.mark.parametrize(("event", "word"), [(Event.ADD, "restored"), (Event.NONE, "unchanged (not deleted)")])
    def test_a_restoration_names_what_is_back(self, event: Event, word: str) -> None:
        """Guards both cases: a deleted memory, and one that was never deleted."""
        restored = restored_text(WriteResult((Outcome(event, TEA),)), SCOPE)
        assert restored.splitlines() == [f"{word}: {TEA_LINE}", SCOPE_NOTE]

    def test_a_deletion_of_everything_is_counted(self) -> None:
        """Guards the number; memories and messages are counted together."""
        result = WriteResult((Outcome(Event.DELETE, TEA), Outcome(Event.DELETE, TEA, kind="message")), notes=("n",))
        assert_json(deleted_all_json(result), {"deleted": 2, "notes": ["n"]})

    def test_the_log_shows_each_edit_with_its_steps(self) -> None:
        """Guards `palimpsest log`: number, time, author, and what happened to each memory and message."""
        steps = (
            Step("message", OTHER_ID, Event.ADD, None, "I drink\ntea"),
            Step("memory", ID, Event.UPDATE, "Ana drinks coffee.", "Ana drinks tea."),
            Step("memory", ID, Event.DELETE, "Ana drinks tea.", None),
        )
        edit = Edit(7, NOW, Provenance("decide", "scripted", "f00", "cli"), steps)
        assert edits_text([edit]).splitlines() == [
            "#7 2026-05-08T13:56:00Z decide scripted for cli",
            "  kept message [ffeeddcc] I drink tea",
            "  updated [0a1b2c3d] Ana drinks tea. (was: Ana drinks coffee.)",
            "  deleted [0a1b2c3d] Ana drinks tea.",
        ]
        assert edits_text([]) == "nothing has been changed yet"
        (content,) = edits_json([edit]).values()
        made_by = {"stage": "decide", "model": "scripted", "caller": "cli"}
        step = {"kind": "message", "id": OTHER_ID, "event": "ADD", "before": None, "after": "I drink\ntea"}
        first = json.loads(json.dumps(content[0]))
        assert first["steps"][0] == step
        assert first == {"edit": 7, "at": "2026-05-08T13:56:00Z", **made_by, "steps": first["steps"]}


def test_a_summary_says_how_far_it_is_out_of_date() -> None:
    """Guards against an outdated summary that looks current."""
    outdated = SummaryResult("Ana drinks tea.", "overall", 3, ("could not be refreshed",))
    assert summary_text(outdated, SCOPE).splitlines() == [
        "Ana drinks tea.",
        "note: could not be refreshed",
        "note: 3 later changes are not included; refresh=true rewrites the summary",
        SCOPE_NOTE,
    ]
    notes = ["could not be refreshed", SCOPE_NOTE]
    expected = {"summary": "Ana drinks tea.", "kind": "overall", "changes_since": 3, "notes": notes}
    assert_json(summary_json(outdated, SCOPE), expected)
    current = SummaryResult("Ana drinks tea.", "overall", 0)
    assert summary_text(current, SCOPE).splitlines() == ["Ana drinks tea.", SCOPE_NOTE]


@pytest.mark.parametrize(
    ("deleted_at", "superseded_by", "state_text"),
    [(None, None, "current"), (NOW, None, "deleted"), (NOW, OTHER_ID, "superseded by [ffeeddcc]")],
)
def test_a_history_has_mem0s_columns_and_what_made_each_change(
    deleted_at: datetime | None, superseded_by: str | None, state_text: str
) -> None:
    """Guards Mem0's history columns, our provenance beside them, and the three states of a memory."""
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
    assert history_text(stored, [], [], []) == f"[0a1b2c3d] {stored.date}, {state_text}: Ana drinks tea."


def test_a_history_has_each_long_text_whole_once() -> None:
    """Guards both the reader's context and the old texts, which stand nowhere else."""
    old, new = "x" * 5_000, "y" * 5_000
    versions = [replace(VERSION, new_memory=old), replace(VERSION, old_memory=old, new_memory=new)]
    content = history_json(memory(new, ID), versions, [], [])
    texts = [content["memory"], *(row[key] for row in content["history"] for key in ("old_memory", "new_memory"))]
    assert texts == [new, None, old, "x" * 199 + "…", "y" * 199 + "…"]
    first, *lines = history_text(memory(new, ID), versions, [], []).splitlines()
    assert first.endswith(new)
    assert [line.rpartition(": ")[2] for line in lines] == [old, "y" * 199 + "… (5,000 characters)"]


def test_a_message_has_its_whole_text_and_no_versions() -> None:
    """Guards the way to the whole text of a message that a search has cut."""
    (message,) = messages_from(("user", "tea " * 30_000))
    expected = {"id": message.id, "kind": "message", "memory": message.content}
    expected |= {"at": iso(message.said_at), "deleted": False}
    assert_json(message_history_json(message), {**expected, "superseded_by": None, "history": []})


SENTENCE = "Ana's recipe for tea. "
LONG = SENTENCE * 900
CUT = f"{(SENTENCE * 9).rstrip()}… (19,800 characters)"


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(Event.ADD, memory(LONG, ID)),
        Outcome(Event.ADD, memory(LONG, ID), previous=LONG, replaced=(OTHER_ID,)),
        Outcome(Event.UPDATE, memory(LONG, ID), previous=LONG.lower()),
        Outcome(Event.DELETE, memory(LONG, ID), previous=LONG),
        Outcome(Event.NONE, memory(LONG, ID), duplicate_of=OTHER_ID),
    ],
    ids=lambda outcome: outcome.event.name,
)
def test_a_long_text_is_not_repeated_as_text(outcome: Outcome) -> None:
    """Guards the context of an agent that stores a long text: its beginning and its length say which it is."""
    result = WriteResult((outcome,), {ID: [SimilarMemory(memory(LONG, OTHER_ID), 0.7)]})
    for text in (added_text(result, SCOPE), changed_text(result, SCOPE), restored_text(result, SCOPE)):
        first = text.splitlines()[0]
        assert CUT in first
        assert len(text) < 1_500
    step = Step("memory", ID, outcome.event, LONG, LONG.upper())
    assert len(edits_text([Edit(7, NOW, Provenance("edit"), (step,))])) < 700


def test_a_text_of_two_hundred_characters_is_repeated_whole() -> None:
    """Guards the bound: it is one of the text, and not of the line."""
    for length, whole in ((200, True), (201, False)):
        text = "x" * length
        assert (
            added_text(WriteResult((Outcome(Event.ADD, memory(text, ID)),)), SCOPE).startswith(
                f"added: [0a1b2c3d] {text}\n"
            )
        ) == whole


def test_a_whole_text_is_shown_as_it_is_stored() -> None:
    """Guards white space and line breaks, and names the speaker of a message."""
    assert whole_text(TEA) == "[0a1b2c3d] current: Ana drinks\ngreen  tea."
    (message,) = messages_from({"role": "user", "name": "Ana", "content": "Tea!\nGreen  tea!", "at": "2026-05-08"})
    message = replace(message, id=ID)
    assert whole_text(message) == "[0a1b2c3d] 2026-05-08 Ana said: Tea!\nGreen  tea!"
    unnamed = replace(message, name="", role="assistant", deleted_at=NOW)
    assert whole_text(unnamed) == "[0a1b2c3d] deleted, 2026-05-08 assistant said: Tea!\nGreen  tea!"


def test_a_history_says_since_when_and_until_when_as_exactly_as_it_is_known() -> None:
    """Guards against a year or a month that is shown as its first day."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    new = replace(memory("Ana drinks tea.", ID), valid_from=start, valid_from_precision="year")
    lines = history_text(new, [], [Predecessor(replace(PAST, superseded_by=ID))], []).splitlines()
    assert lines == [
        f"[0a1b2c3d] {new.date}, current, since 2026: Ana drinks tea.",
        "  replaced [0a1b2c3d] 2026-05-08, until 2026-05: Ana drinks green tea.",
    ]
    content = history_json(new, [], [Predecessor(PAST)], [])
    assert (content["valid_from"], content["replaced"][0]["valid_until"]) == ("2026", "2026-05")


def test_a_history_says_what_made_each_version() -> None:
    """Guards provenance: time, event, stage, model and sources, oldest first. A deletion shows the deleted text."""
    deletion = replace(
        VERSION,
        event=Event.DELETE,
        old_memory="Ana drinks tea.",
        new_memory=None,
        sources=(),
        provenance=Provenance("delete"),
    )

    assert history_text(memory("Ana drinks tea.", ID), [VERSION, deletion], [], []).splitlines()[1:] == [
        "2026-05-08T13:56:00Z ADD by decide scripted, from D1:3: Ana drinks tea.",
        "2026-05-08T13:56:00Z DELETE by delete: Ana drinks tea.",
    ]
