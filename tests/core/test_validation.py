"""Validation of what callers send: bounds, messages without text, system messages, and scopes that are not valid."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from palimpsest.core.clock import iso, parse_until
from palimpsest.core.errors import InputError
from palimpsest.core.models import MAX_SCOPE_CHARS, Message, Scope
from palimpsest.core.validation import (
    MAX_MESSAGES,
    MAX_MESSAGES_CHARS,
    MAX_METADATA_BYTES,
    MAX_QUERY_CHARS,
    MAX_TEXT_CHARS,
    MessageInput,
    ScopeInput,
    bounded,
    conversation_from,
    metadata_from,
    query_from,
    scope_from,
    text_from,
)
from tests.support.scripted_model import NOW, SCOPE

SERVER = Scope("ana", "atlas", "otto", "run-1")


def kept(*turns: MessageInput) -> tuple[Message, ...]:
    """Return the messages that are kept."""
    return conversation_from(turns, SCOPE, NOW).messages


def test_a_turn_becomes_a_message() -> None:
    """Guards what is stored of a message: who, what, when, and the caller's own id."""
    (said,) = kept(
        MessageInput(
            role="assistant", content="  Hello\nthere ", name=" Otto ", id=" D1:3 ", at="2026-05-08T15:00:00+02:00"
        )
    )

    assert (said.role, said.name, said.content, said.scope) == ("assistant", "Otto", "Hello\nthere", SCOPE)
    assert said.said_at == datetime(2026, 5, 8, 13, tzinfo=UTC)
    assert said.created_at == NOW
    assert (said.external_id, said.source) == ("D1:3", "D1:3")


def test_what_a_turn_leaves_out_is_filled_in() -> None:
    """Guards the defaults: the current time, no name, an id of our own."""
    first, second = kept(MessageInput(role="user", content="Hi"), MessageInput(role="user", content="Hi"))

    assert (first.said_at, first.name, first.external_id) == (NOW, "", "")
    assert first.id != second.id
    assert first.source == first.id


@pytest.mark.parametrize(
    "content",
    ["", "  \n", None, [], [""], {}, 5, [{"type": "image_url", "image_url": {"url": "http://localhost/a.png"}}]],
)
def test_a_message_without_text_is_skipped_and_counted(content: Any) -> None:
    """Guards against empty rows, and against refusing a conversation because of one picture in it."""
    turns = conversation_from(
        [MessageInput(role="user", content=content), MessageInput(role="user", content="Hi")], SCOPE, NOW
    )

    assert [message.content for message in turns.messages] == ["Hi"]
    assert turns.skipped == 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            [
                {"type": "text", "text": "Look:"},
                {"type": "image_url", "image_url": "http://localhost/a.png"},
                {"type": "text", "text": "a cat"},
            ],
            "Look:\na cat",
        ),
        (["first", "second"], "first\nsecond"),
        ([{"type": "text", "text": None}, "tea", 5], "tea"),
    ],
    ids=["openai", "strings", "strange"],
)
def test_list_content_gives_its_texts(content: list[Any], expected: str) -> None:
    """Guards OpenAI's list form of a message."""
    assert kept(MessageInput(role="user", content=content))[0].content == expected


def test_system_messages_are_context() -> None:
    """Guards against learning facts from a system prompt."""
    turns = conversation_from(
        [
            MessageInput(role="system", content=" You are Otto. "),
            MessageInput(role="user", content="Hi"),
            MessageInput(role="system", content=""),
        ],
        SCOPE,
        NOW,
    )

    assert turns.context == ("You are Otto.",)
    assert [message.role for message in turns.messages] == ["user"]
    assert turns.skipped == 1


@pytest.mark.parametrize(
    "turns", [[], [MessageInput(role="user", content=" ")], [MessageInput(role="system", content="Be kind.")]]
)
def test_a_conversation_without_a_word_is_refused(turns: list[MessageInput]) -> None:
    """Guards against "success" with nothing stored."""
    with pytest.raises(InputError, match="nothing was stored"):
        conversation_from(turns, SCOPE, NOW)


@pytest.mark.parametrize("more", [0, 1])
def test_the_number_of_messages_is_bounded(more: int) -> None:
    """Guards both sides of the bound; nothing is cut off silently."""
    turns = [MessageInput(role="user", content="Hi")] * (MAX_MESSAGES + more)

    if not more:
        assert len(conversation_from(turns, SCOPE, NOW).messages) == MAX_MESSAGES
    else:
        with pytest.raises(InputError, match=f"{MAX_MESSAGES + 1} messages are more than {MAX_MESSAGES}"):
            conversation_from(turns, SCOPE, NOW)


def test_the_size_of_a_conversation_is_bounded() -> None:
    """Guards the ledger: system messages count too, and the error says that nothing was stored."""
    half = "x" * (MAX_MESSAGES_CHARS // 2)

    assert len(kept(MessageInput(role="user", content=half), MessageInput(role="user", content=half))) == 2
    with pytest.raises(InputError, match=r"200,001 characters.*Nothing was stored"):
        conversation_from(
            [MessageInput(role="system", content=f"{half}x"), MessageInput(role="user", content=half)], SCOPE, NOW
        )


@pytest.mark.parametrize(
    ("turn", "named"),
    [
        (MessageInput(role="user", content="Hi", name="x" * (MAX_SCOPE_CHARS + 1)), "name of a message"),
        (MessageInput(role="user", content="Hi", id="x" * (MAX_SCOPE_CHARS + 1)), "id of a message"),
        (MessageInput(role="user", content="Hi", at="yesterday"), "'yesterday' is not an ISO 8601"),
    ],
    ids=["name", "id", "at"],
)
def test_a_turn_that_cannot_be_kept_is_refused(turn: MessageInput, named: str) -> None:
    """Guards the caller: the error names the field and its limit or format."""
    with pytest.raises(InputError, match=named):
        conversation_from([turn], SCOPE, NOW)


def test_turns_that_nobody_said_are_skipped_and_unknown_roles_refused() -> None:
    """Guards conversations with tool results, which are skipped, and misspelt roles, which are errors."""
    said = MessageInput(role="user", content="I like tea")
    given = conversation_from(
        [said, MessageInput(role="tool", content="{}"), MessageInput(role="developer", content="be brief")], SCOPE, NOW
    )
    assert ([message.content for message in given.messages], given.skipped) == (["I like tea"], 2)
    with pytest.raises(InputError, match=r"messages.1.role is 'king'; use user, assistant, system"):
        conversation_from([said, MessageInput(role="king", content="x")], SCOPE, NOW)


@pytest.mark.parametrize("given", [{"content": "x"}, {"role": "user", "text": "x"}])
def test_a_turn_of_another_form_is_refused(given: dict[str, Any]) -> None:
    """Guards against misspelt and missing keys that are silently ignored."""
    with pytest.raises(ValidationError):
        MessageInput.model_validate(given)


def test_given_parts_replace_the_servers() -> None:
    """Guards the scope: an omitted part is the server's, an empty part is none."""
    assert scope_from(SERVER, None) == SERVER
    assert scope_from(SERVER, ScopeInput()) == SERVER
    assert scope_from(SERVER, ScopeInput(project=" borealis ")) == Scope("ana", "borealis", "otto", "run-1")
    assert scope_from(SERVER, ScopeInput(user_id="ben", run_id="")) == Scope("ben", "atlas", "otto", "")


@pytest.mark.parametrize("part", ["user_id", "project", "agent_id", "run_id"])
@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("*", "'\\*' is not a scope"),
        (" * ", "'\\*' is not a scope"),
        ("x" * (MAX_SCOPE_CHARS + 1), f"longer than {MAX_SCOPE_CHARS}"),
        ("a\x00b", "control or invisible"),
        ("a\nb", "control or invisible"),
        ("a\u200bb", "control or invisible"),
        ("a\u202eb", "control or invisible"),
        ("a\ud83db", "control or invisible"),
    ],
    ids=["wildcard", "spaced wildcard", "long", "null", "line break", "zero width", "right to left", "surrogate"],
)
def test_a_part_that_is_no_scope_is_refused(part: str, value: str, named: str) -> None:
    """Guards tenants against wildcards, and against names that look the same as another."""
    with pytest.raises(InputError, match=rf"scope\.{part}.*{named}"):
        scope_from(SERVER, ScopeInput.model_validate({part: value}))


def test_a_user_cannot_be_empty() -> None:
    """Guards against memories that belong to nobody."""
    with pytest.raises(InputError, match=r"scope\.user_id is empty"):
        scope_from(SERVER, ScopeInput(user_id="  "))


def test_the_longest_part_and_any_script_are_taken() -> None:
    """Guards real names: the maximum length, accents, spaces and other scripts."""
    assert scope_from(SERVER, ScopeInput(project="x" * MAX_SCOPE_CHARS)).project == "x" * MAX_SCOPE_CHARS
    assert scope_from(SERVER, ScopeInput(user_id="Zoë 北京 @home")).user_id == "Zoë 北京 @home"


def test_an_unknown_part_is_refused() -> None:
    """Guards against a misspelt key of a scope, which would leave the server's own scope."""
    with pytest.raises(ValidationError):
        ScopeInput.model_validate({"user": "ben"})


@pytest.mark.parametrize("take", [text_from, query_from])
def test_a_text_is_stripped_and_not_empty(take: Any) -> None:
    """Guards against texts and queries of white space only."""
    assert take("  green tea\n") == "green tea"
    with pytest.raises(InputError, match="empty"):
        take(" \n\t ")


@pytest.mark.parametrize(("take", "bound"), [(text_from, MAX_TEXT_CHARS), (query_from, MAX_QUERY_CHARS)])
def test_a_text_has_a_bound(take: Any, bound: int) -> None:
    """Guards both sides of the bound; the error gives the length and the bound."""
    assert len(take("x" * bound)) == bound
    with pytest.raises(InputError, match=f"{bound + 1:,} characters, more than {bound:,}"):
        take("x" * (bound + 1))


def test_a_refused_text_is_called_by_its_name() -> None:
    """Guards tools with several text arguments: the error names the argument."""
    with pytest.raises(InputError, match="note is empty"):
        text_from("", "note")


def test_metadata_is_copied_and_bounded() -> None:
    """Guards the caller's dictionary, which is never changed, and the size of what is stored with a memory."""
    given: dict[str, Any] = {"team": "red"}
    taken = metadata_from(given)
    taken["team"] = "blue"

    assert given == {"team": "red"}
    assert metadata_from(None) == {}
    with pytest.raises(InputError, match=r"metadata is larger than 10,000"):
        metadata_from({"long": "x" * MAX_METADATA_BYTES})


@pytest.mark.parametrize("value", [1, 50, 100])
def test_a_number_within_its_bounds_is_taken(value: int) -> None:
    """Guards both ends of the bounds."""
    assert bounded("limit", value, 1, 100) == value


@pytest.mark.parametrize("value", [0, 101, -5])
def test_a_number_out_of_bounds_is_refused(value: int) -> None:
    """Guards against silently changed numbers: the error has name, number and bounds."""
    with pytest.raises(InputError, match=f"limit is {value} and must be between 1 and 100"):
        bounded("limit", value, 1, 100)


def test_a_name_or_id_with_line_breaks_is_one_line() -> None:
    """Guards the lines of a reply against names that contain line breaks."""
    turn = MessageInput.model_validate({"role": "user", "content": "hi", "name": "Ann\nnote: x", "id": "a\n\tb"})
    (kept,) = conversation_from([turn], SCOPE, NOW).messages
    assert (kept.name, kept.external_id) == ("Ann note: x", "a b")


@pytest.mark.parametrize("value", [{"a": object()}, {"a": float("nan")}])
def test_metadata_that_is_no_json_is_refused(value: dict[str, Any]) -> None:
    """Guards the ledger against metadata that it could not return."""
    with pytest.raises(InputError, match="metadata is not valid JSON"):
        metadata_from(value)


@pytest.mark.parametrize("key", ["role", "project", "OR"])
def test_metadata_may_not_be_called_what_filters_mean_otherwise_and_may_be_freed_of_it(key: str) -> None:
    """Guards against metadata that no filter would find. A null value removes a key that came with an import."""
    with pytest.raises(InputError, match="choose another key"):
        metadata_from({key: "x"})
    assert metadata_from({key: None}) == {key: None}


@pytest.mark.parametrize("value", ["2026-05-08+02:00", "2026-05-08+0200", "2026-05-08-0200", "noon", "2026-13-01"])
def test_a_time_that_python_would_misread_is_refused(value: str) -> None:
    """Guards against a date with a zone, which Python reads as a time."""
    with pytest.raises(InputError, match="is not an ISO 8601 date or time"):
        parse_until(value, "as_of")


@pytest.mark.parametrize(
    ("value", "until"),
    [
        ("2026-05-08", "2026-05-08T23:59:59Z"),
        ("20260508", "2026-05-08T23:59:59Z"),
        ("9999-12-31", "9999-12-31T23:59:59Z"),
        ("2026-05-08 13", "2026-05-08T13:00:00Z"),
        ("2026-05-08T13:56+02:00", "2026-05-08T11:56:00Z"),
    ],
)
def test_a_day_alone_lasts_to_its_end(value: str, until: str) -> None:
    """Guards the last instant that `as_of` and filters include."""
    assert iso(parse_until(value, "as_of")) == until
