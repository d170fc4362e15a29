"""Validation of what callers send: limits, messages without text, system messages, and scopes that are not valid."""

from __future__ import annotations

import re
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
    UNKNOWN_TIME,
    ScopeInput,
    conversation_from,
    conversations_in,
    metadata_from,
    one_line,
    query_from,
    read_conversation,
    scope_from,
    text_from,
    trimmed,
)
from tests.support.message_forms import FORMS
from tests.support.scripted_model import NOW, SCOPE

SERVER = Scope("ana", "atlas", "otto", "run-1")


def messages_from(*inputs: dict[str, Any]) -> tuple[Message, ...]:
    return conversation_from(inputs, SCOPE, NOW).messages


def test_the_fields_of_a_message_are_kept_or_filled_in() -> None:
    whole = {"role": "assistant", "content": "  Hello\nthere ", "name": " Otto ", "id": " D1:3 "}
    message, first, second = messages_from(
        {**whole, "at": "2026-05-08T15:00:00+02:00"}, *[{"role": "user", "content": "Hi", "at": NOW.isoformat()}] * 2
    )
    assert (message.role, message.name, message.content, message.scope) == ("assistant", "Otto", "Hello\nthere", SCOPE)
    assert (message.said_at, message.created_at) == (datetime(2026, 5, 8, 13, tzinfo=UTC), NOW)
    assert (message.external_id, message.source) == ("D1:3", "D1:3")
    assert (first.name, first.external_id, first.source) == ("", "", first.id)
    assert first.id != second.id
    (alone,) = messages_from({"role": "user", "content": "Hi"})
    assert alone.said_at == NOW


def test_a_conversation_and_a_text_are_bounded() -> None:
    long_name, half = "x" * MAX_SCOPE_CHARS, "x" * (MAX_MESSAGES_CHARS // 2)
    cases: list[tuple[list[dict[str, Any]], list[dict[str, Any]], str]] = [
        ([{}] * MAX_MESSAGES, [{}], f"{MAX_MESSAGES + 1} messages with"),
        ([{"content": half}] * 2, [{"role": "system", "content": "x"}], "200,001 characters"),
        ([{"name": long_name}], [{"name": f"{long_name}x"}], "name of a message"),
        ([{"id": long_name}], [{"id": f"{long_name}x"}], "id of a message"),
    ]
    for largest, more, problem in cases:
        sent = [{"role": "user", "content": "Hi", **message} for message in (*largest, *more)]
        assert len(messages_from(*sent[: len(largest)])) == len(largest)
        with pytest.raises(InputError, match=problem):
            messages_from(*sent)
    for validator, limit in ((text_from, MAX_TEXT_CHARS), (query_from, MAX_QUERY_CHARS)):
        assert validator(f"  {'x' * limit}\n") == "x" * limit
        with pytest.raises(InputError, match=f"{limit + 1:,} characters, more than {limit:,}"):
            validator("x" * (limit + 1))


@pytest.mark.parametrize("case", FORMS, ids=[case["form"] for case in FORMS])
def test_messages_are_read_in_the_forms_of_other_programs(case: dict[str, Any]) -> None:
    read = [read_conversation(messages, SCOPE, NOW) for messages in conversations_in(case["given"])]
    said = [
        [message.role, message.content, message.name, "" if message.said_at == NOW else iso(message.said_at)]
        for conversation in read
        for message in conversation.messages
    ]
    assert said == [[*row, *["", ""][len(row) - 2 :]] for row in case["said"]]
    assert [text for conversation in read for text in conversation.context] == case.get("context", [])
    left_out = {f"{noun}{rest}": count for each in read for (noun, rest), count in each.left_out.items()}
    assert left_out == case["left_out"]


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ({"role": "king", "content": "x"}, "messages.0.role is 'king'; use user, assistant, system"),
        ({"content": "x"}, "messages.0.role is missing; use"),
        ({"rol": "user", "content": "x"}, "messages.0.role is missing (is 'rol' misspelt?)"),
        ({"role": "user", "contents": 1}, "messages.0.content is missing (is 'contents' misspelt?)"),
        ("hello", 'messages.0: must be an object, such as {"role": "user", "content": "…"}'),
        ({"role": "user", "content": [{"type": "file"}]}, "there is no user or assistant message with text"),
        ({"role": "system", "content": "Be kind."}, "there is no user or assistant message with text"),
    ],
)
def test_a_conversation_without_a_message_to_keep_is_refused(message: Any, problem: str) -> None:
    with pytest.raises(InputError, match=re.escape(problem) + ".*nothing was stored"):
        conversation_from([message], SCOPE, NOW)


def test_the_parts_of_a_scope_replace_those_of_the_server() -> None:
    assert scope_from(SERVER, None) == scope_from(SERVER, ScopeInput()) == SERVER
    assert scope_from(SERVER, ScopeInput(project=" borealis ")) == Scope("ana", "borealis", "otto", "run-1")
    assert scope_from(SERVER, ScopeInput(user_id="ben", run_id="")) == Scope("ben", "atlas", "otto", "")
    assert scope_from(SERVER, ScopeInput(user_id="Zoë 北京 @home")).user_id == "Zoë 北京 @home"
    with pytest.raises(InputError, match=r"scope\.user_id is empty"):
        scope_from(SERVER, ScopeInput(user_id="  "))
    with pytest.raises(ValidationError):  # it would silently select the server's own scope
        ScopeInput.model_validate({"user": "ben"})


@pytest.mark.parametrize("part", ["user_id", "project", "agent_id", "run_id"])
def test_a_part_that_is_not_valid_in_a_scope_is_refused(part: str) -> None:
    """Guards other users' memories against wildcards, and against names that look the same as theirs."""
    unseen = dict.fromkeys(("a\x00b", "a\nb", "a\u200bb", "a\u202eb", "a\ud83db"), "control or invisible")
    too_long = {"x" * (MAX_SCOPE_CHARS + 1): f"longer than {MAX_SCOPE_CHARS}"}
    for value, problem in {" * ": "'\\*' is not a scope", **unseen, **too_long}.items():
        with pytest.raises(InputError, match=rf"scope\.{part}.*{problem}"):
            scope_from(SERVER, ScopeInput.model_validate({part: value}))


@pytest.mark.parametrize("blank", ["\x00", "\x1b\x07", " \u2060\n\ufeff", "\u202e", "\ufe0f", "\U000e0041", "\ud800"])
def test_a_text_that_shows_nothing_is_empty(blank: str) -> None:
    """Guards against texts of nothing but control or zero-width characters; within a text they stay."""
    for validator in (text_from, query_from):
        with pytest.raises(InputError, match="empty"):
            validator(blank)
        assert validator("tea\u200b\x1b cup") == "tea\u200b\x1b cup"
    assert (one_line(blank), trimmed(blank)) == ("", "")
    with pytest.raises(InputError, match="nothing was stored"):
        conversation_from([{"role": "user", "content": blank}], SCOPE, NOW)


def test_metadata_is_copied_bounded_and_json() -> None:
    original: dict[str, Any] = {"team": "red"}
    metadata_from(original)["team"] = "blue"
    assert original == {"team": "red"}
    assert metadata_from(None) == {}
    refused = {"is larger than 10,000": "x" * MAX_METADATA_BYTES, "is not valid JSON": object()}
    for problem, value in [*refused.items(), ("is not valid JSON", float("nan"))]:
        with pytest.raises(InputError, match=f"metadata {problem}"):
            metadata_from({"a": value})


def test_a_metadata_key_that_filters_reserve_is_refused_and_can_be_removed() -> None:
    """Guards against metadata that no filter would find. A null value removes a key that came with an import."""
    for key in ("role", "project", "OR", "not"):
        with pytest.raises(InputError, match="choose another key"):
            metadata_from({key: "x"})
        assert metadata_from({key: None}) == {key: None}
    for value in ("2026-05-08+02:00", "2026-05-08-0200", "noon"):  # Python reads a date with a time zone as a time
        with pytest.raises(InputError, match="is not an ISO 8601 date or time"):
            parse_until(value, "as_of")


def test_a_message_without_a_time_was_said_with_the_one_before() -> None:
    """A time that cannot be read is counted, and refuses nothing."""
    given = [
        {"role": "user", "content": "one"},
        {"role": "user", "content": "two", "at": "2026-01-02T10:00:00Z"},
        {"role": "user", "content": "three"},
        {"role": "user", "content": "four", "at": "noon"},
        {"role": "user", "content": "five", "at": "2026-01-03T10:00:00Z"},
    ]
    conversation = conversation_from(given, SCOPE, NOW)
    assert [message.said_at.day for message in conversation.messages] == [2, 2, 2, 2, 3]
    assert conversation.left_out == {UNKNOWN_TIME: 1}
    assert [message.said_at for message in conversation_from(given[:1], SCOPE, NOW).messages] == [NOW]
