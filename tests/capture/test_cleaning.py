"""What of a text is kept."""

from __future__ import annotations

import pytest

from palimpsest.capture.cleaning import said


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("plain words", "plain words"),
        ("a <private>b <private>c</private> d</private> e", "a  e"),
        ("a <PRIVATE>hides the rest", "a"),
        ("why does <command-name> appear?", "why does <command-name> appear?"),
        ("<system-reminder>x</system-reminder>\nreal words", "real words"),
        ("<bash-stdout foo='1'>x</bash-stdout><bash-stderr>y</bash-stderr>", ""),
        ("<command-message>review</command-message>\n<command-name>/review</command-name>", ""),
        ("[Request interrupted by user for tool use]", ""),
        ("/compact", ""),
        ("/review the login page", "/review the login page"),
        ("zero width \u200b only", "zero width \u200b only"),
        ("\u200b", ""),
        ("Ärger mit <ide_selection>code</ide_selection>Umlauten — 日本語も", "Ärger mit Umlauten — 日本語も"),
    ],
)
def test_what_a_person_said_is_kept(text: str, kept: str) -> None:
    """Blocks of clients and private parts go, words stay, in every language."""
    assert said("user", text) == kept


def test_the_assistants_words_are_no_commands() -> None:
    """An exclamation mark or a path begins an answer too."""
    assert said("assistant", "/etc") == "/etc"
    assert said("assistant", "!important is a CSS keyword.") == "!important is a CSS keyword."


def test_many_open_tags_take_linear_time() -> None:
    """Guards the server against a text made to keep it busy; this takes minutes if every tag is searched an end for."""
    assert len(said("assistant", "<system-reminder>" * 200_000)) == 200_000 * len("<system-reminder>")
