"""How results are said: the first word for every event, short ids, notes, and the same content as JSON."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from palimpsest.core.models import Event, Hit, Outcome, Provenance, Scope, Version
from palimpsest.learn.apply import WriteResult
from palimpsest.learn.summaries import Summarized
from palimpsest.memory import Page
from palimpsest.recall.pipeline import SearchResult
from palimpsest.recall.similar import SimilarMemory
from palimpsest.server.render import (
    answer_json,
    answer_text,
    change_json,
    change_line,
    changes_json,
    changes_text,
    done_json,
    done_text,
    history_json,
    history_text,
    hit_json,
    hit_line,
    page_json,
    page_text,
    restored_text,
    short,
    summary_json,
    summary_text,
)
from tests.support.scripted_model import NOW, memory

SCOPE = Scope("ana", project="atlas")
SAID = "scope: user ana, project atlas"
ID = "0a1b2c3d-4444-4555-8666-777788889999"
OTHER = "ffeeddcc-4444-4555-8666-777788889999"
TEA = memory("Ana drinks\ngreen  tea.", ID)
LINE = "[0a1b2c3d] Ana drinks green tea."
HIT = Hit(ID, "memory", "Ana drinks tea.", 0.83456, NOW, NOW, NOW + timedelta(days=1), ("D1:3",), tags=("preference",))
ENTRY = Version(
    id="h1",
    memory_id=ID,
    old_memory=None,
    new_memory="Ana drinks tea.",
    event=Event.ADD,
    created_at=NOW,
    updated_at=NOW,
    is_deleted=False,
    actor_id="Ana",
    role="user",
    provenance=Provenance("decide", "scripted", "abcdef123456", "a client"),
    sources=("D1:3",),
)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (Outcome(Event.ADD, TEA), f"added: {LINE}"),
        (
            Outcome(Event.ADD, TEA, previous="Ana drinks coffee.", replaced=(OTHER,)),
            f"replaced: {LINE} (was: [ffeeddcc] Ana drinks coffee.)",
        ),
        (Outcome(Event.UPDATE, TEA, previous="Ana drinks\ntea."), f"updated: {LINE} (was: Ana drinks tea.)"),
        (Outcome(Event.DELETE, TEA), f"deleted: {LINE}"),
        (
            Outcome(Event.DELETE, TEA, duplicate_of=OTHER),
            f"deleted: {LINE} (another memory, ffeeddcc, already says the new text)",
        ),
        (Outcome(Event.NONE, TEA), f"unchanged: {LINE}"),
        (Outcome(Event.NONE, TEA, duplicate_of=OTHER), "unchanged (duplicate of ffeeddcc): Ana drinks green tea."),
    ],
)
def test_a_change_begins_with_the_word_for_it(change: Outcome, line: str) -> None:
    """Guards the first word, by which an agent tells what was done; a text is always one line."""
    assert change_line(change) == line
    assert changes_text(WriteResult((change,)), SCOPE).splitlines()[0] == line
    assert done_text(WriteResult((change,)), (), SCOPE).splitlines()[0] == line


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Outcome(Event.ADD, TEA), {"event": "ADD"}),
        (Outcome(Event.ADD, TEA, previous="old"), {"event": "ADD", "previous": "old"}),
        (Outcome(Event.UPDATE, TEA, previous="old"), {"event": "UPDATE", "previous": "old"}),
        (Outcome(Event.DELETE, TEA, previous="old"), {"event": "DELETE"}),
        (Outcome(Event.NONE, TEA, duplicate_of=OTHER), {"event": "NONE", "duplicate_of": OTHER}),
    ],
)
def test_a_change_as_json_has_mem0s_form(change: Outcome, expected: dict[str, str]) -> None:
    """Guards programs that read Mem0's results; ids are whole here and texts untouched."""
    whole = {"id": ID, "memory": TEA.text, **expected}

    assert change_json(change) == whole
    assert changes_json(WriteResult((change,)), SCOPE)["results"] == [whole]
    assert done_json(WriteResult((change,)), (), SCOPE) == {"results": [whole], "kept_messages": 0, "notes": [SAID]}


def test_the_short_id_is_the_beginning_of_the_id() -> None:
    """Guards the promise that a short id is accepted back."""
    assert short(ID) == "0a1b2c3d"
    assert ID.startswith(short(ID))


def test_notes_and_scope_end_every_reply() -> None:
    """Guards that what is degraded is named, once, with the scope that was used."""
    notes = ["no language model is configured", "one message had no text"]

    text = done_text(WriteResult((Outcome(Event.ADD, TEA),)), notes, SCOPE)

    assert text.splitlines()[1:] == ["note: no language model is configured", "note: one message had no text", SAID]
    assert done_json(WriteResult(), notes, SCOPE)["notes"] == [*notes, SAID]


@pytest.mark.parametrize(
    ("done", "line"),
    [
        (WriteResult(), "unchanged"),
        (WriteResult(kept_messages=1), "kept 1 message"),
        (WriteResult(kept_messages=4), "kept 4 messages"),
        (WriteResult((Outcome(Event.DELETE, TEA),), kept_messages=4), f"deleted: {LINE}"),
    ],
    ids=["nothing", "one", "several", "learnt"],
)
def test_an_add_says_first_what_it_did(done: WriteResult, line: str) -> None:
    """Guards adds without a change: kept messages are told where nothing more important is."""
    assert done_text(done, (), SCOPE).splitlines() == [line, SAID]


def test_resembling_memories_are_shown_under_the_new_one() -> None:
    """Guards the agent's part in reconciling: id, date, text and what to do about it."""
    near = memory("Ana drinks\ncoffee.", OTHER, happened_at=datetime(2024, 2, 11, tzinfo=UTC))
    done = WriteResult((Outcome(Event.ADD, TEA),), {ID: [SimilarMemory(near, 0.71236)]})

    _, second, advice, _ = done_text(done, (), SCOPE).splitlines()

    assert second == "  resembles [ffeeddcc] 2024-02-11 Ana drinks coffee."
    assert 'replaces=["its id"]' in advice
    assert "delete_memory" in advice
    assert f"note: {done_json(done, (), SCOPE)['notes'][0]}" == advice, "who reads the JSON reads it too"
    assert done_json(done, (), SCOPE)["results"][0]["similar"] == [
        {"id": OTHER, "text": near.text, "at": "2024-02-11T00:00:00Z", "score": 0.712}
    ]


def test_a_deletion_tells_the_way_back() -> None:
    """Guards against mass deletion without undo."""
    deleted = changes_text(WriteResult((Outcome(Event.DELETE, TEA),)), SCOPE)

    assert 'update_memory(memory_id="0a1b2c3d", restore=true)' in deleted
    assert "palimpsest purge" in deleted
    assert "restore" not in changes_text(WriteResult((Outcome(Event.UPDATE, TEA, previous="old"),)), SCOPE)
    assert changes_text(WriteResult(), SCOPE).splitlines() == ["unchanged: there was nothing to do", SAID]
    assert restored_text(WriteResult((Outcome(Event.ADD, TEA),)), SCOPE).splitlines() == [
        f"restored: {LINE}",
        SAID,
    ]


@pytest.mark.parametrize(
    ("hit", "line"),
    [
        (HIT, "[0a1b2c3d] 2026-05-08 Ana drinks tea."),
        (replace(HIT, text="two\n lines"), "[0a1b2c3d] 2026-05-08 two lines"),
        (replace(HIT, kind="message", role="user", name="Ana", text="Tea!"), "[0a1b2c3d] 2026-05-08 Ana said: Tea!"),
        (replace(HIT, kind="message", role="assistant", text="Tea?"), "[0a1b2c3d] 2026-05-08 assistant said: Tea?"),
    ],
    ids=["memory", "lines", "named", "unnamed"],
)
def test_a_hit_is_one_line(hit: Hit, line: str) -> None:
    """Guards the size of results: short id, date, who said it, what."""
    assert hit_line(hit) == line
    assert answer_text(SearchResult((hit,)), SCOPE).splitlines() == [line, SAID]


def test_a_hit_as_json_has_the_promised_keys() -> None:
    """Guards the documented shape of a hit."""
    assert hit_json(HIT) == {
        "id": ID,
        "kind": "memory",
        "text": "Ana drinks tea.",
        "score": 0.835,
        "at": "2026-05-08T13:56:00Z",
        "sources": ["D1:3"],
        "role": "",
        "name": "",
        "metadata": {},
        "created_at": "2026-05-08T13:56:00Z",
        "updated_at": "2026-05-09T13:56:00Z",
        "tags": ["preference"],
    }
    assert "tags" not in hit_json(replace(HIT, tags=()))


def test_an_answer_says_what_it_leaves_out() -> None:
    """Guards the budget: what did not fit is counted, what is degraded is noted, and nothing found is said."""
    answer = SearchResult((HIT,), omitted=7, notes=("found by words only",))

    assert answer_text(answer, SCOPE).splitlines() == [
        hit_line(HIT),
        "(7 more did not fit; raise max_tokens to see them)",
        "note: found by words only",
        SAID,
    ]
    assert answer_json(answer, SCOPE) == {
        "results": [hit_json(HIT)],
        "omitted": 7,
        "notes": ["found by words only", SAID],
    }
    assert answer_text(SearchResult(()), SCOPE).splitlines() == ["nothing found", SAID]


def test_a_page_gives_its_cursor_and_no_scores() -> None:
    """Guards paging: a list has no score, and its end has no cursor."""
    page = Page((HIT,), "next")

    assert page_text(page, SCOPE).splitlines() == [hit_line(HIT), "(more: the same call with cursor='next')", SAID]
    assert page_json(page, SCOPE)["cursor"] == "next"
    assert "score" not in page_json(page, SCOPE)["results"][0]
    assert page_text(Page(()), SCOPE).splitlines() == ["no memories", SAID]
    assert page_json(Page(()), SCOPE) == {"results": [], "cursor": None, "notes": [SAID]}


def test_a_summary_says_how_far_behind_it_is() -> None:
    """Guards against a stale summary taken for a current one."""
    behind = Summarized("Ana drinks tea.", "overall", 3, ("could not be refreshed",))

    assert summary_text(behind, SCOPE).splitlines() == [
        "Ana drinks tea.",
        "note: could not be refreshed",
        "note: 3 later changes are not in it; refresh=true writes it anew",
        SAID,
    ]
    assert summary_text(Summarized("Ana drinks tea.", "overall", 0), SCOPE).splitlines() == ["Ana drinks tea.", SAID]
    assert summary_json(behind, SCOPE) == {
        "summary": "Ana drinks tea.",
        "kind": "overall",
        "changes_since": 3,
        "notes": ["could not be refreshed", SAID],
    }


@pytest.mark.parametrize(
    ("deleted_at", "superseded_by", "state"),
    [(None, None, "current"), (NOW, None, "deleted"), (NOW, OTHER, "superseded by [ffeeddcc]")],
)
def test_a_history_begins_with_the_state(deleted_at: datetime | None, superseded_by: str | None, state: str) -> None:
    """Guards the three states a memory can be in."""
    old = memory("Ana drinks tea.", ID, deleted_at=deleted_at, superseded_by=superseded_by)

    assert history_text(old, []).splitlines() == [f"[0a1b2c3d] {state}: Ana drinks tea."]
    assert history_json(old, [])["deleted"] is (deleted_at is not None)
    assert history_json(old, [])["superseded_by"] == superseded_by


def test_a_history_says_what_made_each_change() -> None:
    """Guards provenance: time, event, stage, model and sources, oldest first; a deletion shows what went."""
    gone = replace(
        ENTRY,
        event=Event.DELETE,
        old_memory="Ana drinks tea.",
        new_memory=None,
        sources=(),
        provenance=Provenance("delete"),
    )

    assert history_text(memory("Ana drinks tea.", ID), [ENTRY, gone]).splitlines()[1:] == [
        "2026-05-08T13:56:00Z ADD by decide scripted, from D1:3: Ana drinks tea.",
        "2026-05-08T13:56:00Z DELETE by delete: Ana drinks tea.",
    ]


def test_a_history_as_json_has_mem0s_columns() -> None:
    """Guards Mem0's history columns, and our provenance beside them."""
    (entry,) = history_json(memory("Ana drinks tea.", ID), [ENTRY])["history"]

    assert entry == {
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
        "change": 0,
        "sources": ["D1:3"],
    }
