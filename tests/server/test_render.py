"""Replies as text: the first word for every outcome, short ids, one line per hit, notes and scope at the end."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from palimpsest.core.models import Edit, Event, Hit, Outcome, Predecessor, Provenance, Step
from palimpsest.learn.commit import WriteResult
from palimpsest.learn.summaries.summary_kinds import SummaryResult
from palimpsest.memory import Page
from palimpsest.recall.search import SearchResult
from palimpsest.recall.similar import SimilarMemory
from palimpsest.server.replies.advice import short
from palimpsest.server.replies.json_replies import added_json, history_json
from palimpsest.server.replies.plain_text import (
    added_text,
    changed_text,
    edits_text,
    history_text,
    hit_line,
    outcome_line,
    page_text,
    restored_text,
    search_text,
    summary_text,
    whole_text,
)
from tests.server.reply_examples import HIT, ID, OTHER_ID, PAST, SCOPE, SCOPE_NOTE, TEA, VERSION
from tests.support.memory import messages_from
from tests.support.scripted_model import NOW, memory

TEA_LINE = "[0a1b2c3d] Ana drinks green tea."


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (Outcome(Event.ADD, TEA), f"added: {TEA_LINE}"),
        (Outcome(Event.ADD, PAST), f"added as past: {TEA_LINE} (until 2026-05)"),
        (
            Outcome(Event.ADD, TEA, previous="Ana drinks coffee.", replaced=(OTHER_ID,)),
            f"replaced: {TEA_LINE} (was: [ffeeddcc] Ana drinks coffee.)",
        ),
        (Outcome(Event.UPDATE, TEA, previous="Ana drinks\ntea."), f"updated: {TEA_LINE} (was: Ana drinks tea.)"),
        (
            Outcome(Event.UPDATE, TEA, previous=TEA.text),
            f"updated: {TEA_LINE} (same text; metadata, labels or date changed)",
        ),
        (Outcome(Event.DELETE, TEA), f"deleted: {TEA_LINE}"),
        (
            Outcome(Event.DELETE, TEA, duplicate_of=OTHER_ID),
            f"deleted: {TEA_LINE} (another memory, ffeeddcc, already says the new text)",
        ),
        (Outcome(Event.NONE, TEA), f"unchanged: {TEA_LINE}"),
        (Outcome(Event.NONE, TEA, duplicate_of=OTHER_ID), "unchanged (duplicate of ffeeddcc): Ana drinks green tea."),
    ],
)
def test_an_outcome_starts_with_the_word_for_it(outcome: Outcome, line: str) -> None:
    """Guards the first word, from which an agent knows what was done. A text is always one line."""
    assert outcome_line(outcome) == line
    assert changed_text(WriteResult((outcome,)), SCOPE).splitlines()[0] == line
    assert added_text(WriteResult((outcome,)), SCOPE).splitlines()[0] == line


def test_the_short_id_is_the_start_of_the_id() -> None:
    """Guards the promise that a short id is accepted back."""
    assert short(ID) == "0a1b2c3d"
    assert ID.startswith(short(ID))


def test_notes_and_scope_end_every_reply() -> None:
    """Guards that what did not work is named, once, with the scope that was used."""
    notes = ("no language model is configured", "one message had no text")
    text = added_text(WriteResult((Outcome(Event.ADD, TEA),), notes=notes), SCOPE)
    assert text.splitlines()[1:] == [
        "note: no language model is configured",
        "note: one message had no text",
        SCOPE_NOTE,
    ]


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (WriteResult(), "unchanged"),
        (WriteResult(kept_messages=1), "kept 1 message"),
        (WriteResult(kept_messages=4), "kept 4 messages"),
        (WriteResult((Outcome(Event.DELETE, TEA),), kept_messages=4), f"deleted: {TEA_LINE}"),
    ],
    ids=["nothing", "one", "several", "learnt"],
)
def test_an_add_starts_with_what_it_did(result: WriteResult, line: str) -> None:
    """Guards adds without an outcome: stored messages are counted if nothing more important happened."""
    assert added_text(result, SCOPE).splitlines() == [line, SCOPE_NOTE]


def test_similar_memories_are_shown_under_the_new_one() -> None:
    """Guards the agent's part in resolving conflicts: id, date, text, and what to do about them."""
    near = memory("Ana drinks\ncoffee.", OTHER_ID, happened_at=datetime(2024, 2, 11, tzinfo=UTC))
    result = WriteResult((Outcome(Event.ADD, TEA),), {ID: [SimilarMemory(near, 0.71236)]})

    _, second, advice, _ = added_text(result, SCOPE).splitlines()

    assert second == "  resembles [ffeeddcc] on 2024-02-11 Ana drinks coffee."
    assert 'replaces=["its id"]' in advice
    assert "delete_memory" in advice
    assert f"note: {added_json(result, SCOPE)['notes'][0]}" == advice, "the JSON has the same note"


def test_a_deletion_says_how_to_restore_it() -> None:
    """Guards against deletions that an agent cannot undo."""
    deleted = changed_text(WriteResult((Outcome(Event.DELETE, TEA),)), SCOPE)

    assert 'update_memory(memory_id="0a1b2c3d", restore=true)' in deleted
    assert "palimpsest purge" in deleted
    assert "restore" not in changed_text(WriteResult((Outcome(Event.UPDATE, TEA, previous="old"),)), SCOPE)
    assert changed_text(WriteResult(), SCOPE).splitlines() == ["unchanged: there was nothing to do", SCOPE_NOTE]


def test_a_restoration_names_what_is_back() -> None:
    """Guards both cases: a deleted memory, and one that was never deleted."""
    restored = restored_text(WriteResult((Outcome(Event.ADD, TEA),)), SCOPE)
    assert restored.splitlines() == [f"restored: {TEA_LINE}", SCOPE_NOTE]
    unchanged = restored_text(WriteResult((Outcome(Event.NONE, TEA),)), SCOPE)
    assert unchanged.splitlines() == [f"unchanged (not deleted): {TEA_LINE}", SCOPE_NOTE]


@pytest.mark.parametrize(
    ("hit", "line"),
    [
        (HIT, "[0a1b2c3d] 2026-05-08 Ana drinks tea."),
        (replace(HIT, text="The vet comes on Friday"), "[0a1b2c3d] said 2026-05-08 The vet comes on Friday"),
        (replace(HIT, is_event_date=True), "[0a1b2c3d] on 2026-05-08 Ana drinks tea."),
        (replace(HIT, is_event_date=True, at_precision="month"), "[0a1b2c3d] in 2026-05 Ana drinks tea."),
        (replace(HIT, kind="message", role="user", text="On Friday"), "[0a1b2c3d] 2026-05-08 user said: On Friday"),
        (replace(HIT, text="two\n lines"), "[0a1b2c3d] 2026-05-08 two lines"),
        (replace(HIT, kind="message", role="user", name="Ana", text="Tea!"), "[0a1b2c3d] 2026-05-08 Ana said: Tea!"),
        (replace(HIT, kind="message", role="assistant", text="Tea?"), "[0a1b2c3d] 2026-05-08 assistant said: Tea?"),
    ],
    ids=["memory", "said", "on", "in", "message", "lines", "named", "unnamed"],
)
def test_a_hit_is_one_line(hit: Hit, line: str) -> None:
    """Guards the size of results: short id, date, speaker, text."""
    assert hit_line(hit) == line
    assert search_text(SearchResult((hit,)), SCOPE).splitlines() == [line, SCOPE_NOTE]


def test_a_search_says_what_it_leaves_out() -> None:
    """Guards the token budget: what did not fit is counted, and an empty result says so."""
    result = SearchResult((HIT,), omitted=7, notes=("found by words only",))

    assert search_text(result, SCOPE).splitlines() == [
        hit_line(HIT),
        "(7 more did not fit; raise max_tokens to see them)",
        "note: found by words only",
        SCOPE_NOTE,
    ]
    assert search_text(SearchResult(()), SCOPE).splitlines() == ["nothing found", SCOPE_NOTE]
    without_room = ["(2 hits did not fit; raise max_tokens to see them)", SCOPE_NOTE]
    assert search_text(SearchResult((), omitted=2), SCOPE).splitlines() == without_room


def test_weak_matches_are_announced_as_such() -> None:
    """Guards the hint that nothing stored answers: the first line, exactly so, but not above "nothing found"."""
    weak = search_text(SearchResult((HIT,), confident=False), SCOPE).splitlines()

    assert weak == ["Weak matches only; nothing stored clearly answers this:", hit_line(HIT), SCOPE_NOTE]
    assert search_text(SearchResult((), confident=False), SCOPE).splitlines() == ["nothing found", SCOPE_NOTE]


def test_a_cut_hit_says_how_long_its_text_is_and_where_all_of_it_is() -> None:
    """Guards against a beginning that passes for the whole text."""
    hit = replace(HIT, text="Ana drinks…", length=20_000)
    line = "[0a1b2c3d] 2026-05-08 Ana drinks… (20,000 characters)"
    note = 'note: a text that ends in "…" is longer; get_history or memory://ID, with its id, gives all of it'

    assert search_text(SearchResult((hit,)), SCOPE).splitlines() == [line, note, SCOPE_NOTE]
    assert page_text(Page((hit,)), SCOPE).splitlines() == [line, note, SCOPE_NOTE]


def test_a_page_says_how_to_get_the_next_one() -> None:
    """Guards paging: the call to make, and nothing on the last page."""
    assert page_text(Page((HIT,), "next"), SCOPE).splitlines() == [
        hit_line(HIT),
        "(there are more: call list_memories with cursor='next')",
        SCOPE_NOTE,
    ]
    assert page_text(Page(()), SCOPE).splitlines() == ["no memories", SCOPE_NOTE]


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
def test_a_long_text_is_not_repeated_to_who_sent_it(outcome: Outcome) -> None:
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
        assert (outcome_line(Outcome(Event.ADD, memory(text, ID))) == f"added: [0a1b2c3d] {text}") == whole


def test_a_history_has_each_long_text_whole_once() -> None:
    """Guards both the reader's context and the old texts, which stand nowhere else."""
    other = LONG.upper()
    added, updated, same = (
        replace(VERSION, new_memory=new, old_memory=old) for new, old in ((other, None), (LONG, other), (LONG, LONG))
    )
    first, *versions = history_text(memory(LONG, ID), [added, updated, same], [], []).splitlines()
    assert first.endswith(" ".join(LONG.split()))
    assert versions[0].endswith(" ".join(other.split()))
    assert versions[1].endswith(CUT)
    assert versions[2].endswith(CUT)


def test_a_whole_text_is_shown_as_it_is_stored() -> None:
    """Guards white space and line breaks, and names the speaker of a message."""
    assert whole_text(TEA) == "[0a1b2c3d] current: Ana drinks\ngreen  tea."
    (message,) = messages_from({"role": "user", "name": "Ana", "content": "Tea!\nGreen  tea!", "at": "2026-05-08"})
    message = replace(message, id=ID)
    assert whole_text(message) == "[0a1b2c3d] 2026-05-08 Ana said: Tea!\nGreen  tea!"
    unnamed = replace(message, name="", role="assistant", deleted_at=NOW)
    assert whole_text(unnamed) == "[0a1b2c3d] deleted, 2026-05-08 assistant said: Tea!\nGreen  tea!"


def test_a_summary_says_how_far_it_is_out_of_date() -> None:
    """Guards against an outdated summary that looks current."""
    outdated = SummaryResult("Ana drinks tea.", "overall", 3, ("could not be refreshed",))

    assert summary_text(outdated, SCOPE).splitlines() == [
        "Ana drinks tea.",
        "note: could not be refreshed",
        "note: 3 later changes are not included; refresh=true rewrites the summary",
        SCOPE_NOTE,
    ]
    current = SummaryResult("Ana drinks tea.", "overall", 0)
    assert summary_text(current, SCOPE).splitlines() == ["Ana drinks tea.", SCOPE_NOTE]


@pytest.mark.parametrize(
    ("deleted_at", "superseded_by", "state"),
    [(None, None, "current"), (NOW, None, "deleted"), (NOW, OTHER_ID, "superseded by [ffeeddcc]")],
)
def test_a_history_starts_with_the_state(deleted_at: datetime | None, superseded_by: str | None, state: str) -> None:
    """Guards the three states a memory can be in."""
    stored = memory("Ana drinks tea.", ID, deleted_at=deleted_at, superseded_by=superseded_by)
    assert history_text(stored, [], [], []).splitlines() == [f"[0a1b2c3d] {stored.date}, {state}: Ana drinks tea."]


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


def test_the_log_shows_each_edit_with_its_steps() -> None:
    """Guards `palimpsest log`: number, time, author, and what happened to each memory and message."""
    steps = (
        Step("message", OTHER_ID, Event.ADD, None, "I drink\ntea"),
        Step("memory", ID, Event.UPDATE, "Ana drinks coffee.", "Ana drinks tea."),
        Step("memory", ID, Event.DELETE, "Ana drinks tea.", None),
    )
    edit = Edit(7, NOW, Provenance("decide", "scripted", caller="cli"), steps)

    assert edits_text([edit]).splitlines() == [
        "#7 2026-05-08T13:56:00Z decide scripted for cli",
        "  kept message [ffeeddcc] I drink tea",
        "  updated [0a1b2c3d] Ana drinks tea. (was: Ana drinks coffee.)",
        "  deleted [0a1b2c3d] Ana drinks tea.",
    ]
    assert edits_text([]) == "nothing has been changed yet"
