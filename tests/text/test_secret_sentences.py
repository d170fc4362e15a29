"""Secrets in sentences of seven languages, one, two or three in each: every one is found, and nothing else.

The sentences are in `secret_sentences.txt`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from palimpsest.text.redaction import redact

LINES = (Path(__file__).parent / "secret_sentences.txt").read_text("utf-8").splitlines()
SENTENCES = [line.partition(": ")[2] for line in LINES if line and not line.startswith("#")]
SECRET = re.compile(r"\[\[(.*?)\]\]")
MARKER = re.compile(r"\[secret removed: [a-z ]+\]")


def test_there_are_enough_sentences_of_both_kinds() -> None:
    """Guards the measure itself: recall and false alarms are each counted over sixty sentences or more."""
    counts = [len(SECRET.findall(sentence)) for sentence in SENTENCES]
    assert counts.count(0) >= 60
    assert len(counts) - counts.count(0) >= 60
    assert max(counts) >= 3


@pytest.mark.parametrize("sentence", SENTENCES)
def test_every_secret_of_a_sentence_is_found_and_nothing_else(sentence: str) -> None:
    """Guards the second password of a sentence, which does not name what it is, and the words around all of them."""
    redacted = redact(SECRET.sub(lambda secret: secret[1], sentence))
    assert MARKER.sub("[[]]", redacted.text) == SECRET.sub("[[]]", sentence)
    assert len(redacted.kinds) == len(SECRET.findall(sentence))
    assert redact(redacted.text).text == redacted.text


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    "text",
    [
        "password: hunter2" + " for a b c d" * 5_000,
        "password is hunter2" + " and the other" * 5_000,
        "password is hunter2, " + "x1!yz, " * 5_000,
        "password is hunter2 and" + " " * 50_000 + "x",
    ],
    ids=["labels", "openers", "list", "spaces"],
)
def test_what_follows_a_secret_may_be_long(text: str) -> None:
    """Guards against a search that never ends: the rest of a text is searched within the test's time."""
    assert redact(text).text.startswith(("password: [secret", "password is [secret"))
