"""The user's name in facts."""

from __future__ import annotations

import pytest

from palimpsest.llm.names import with_name


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("User lives in Rome.", "Ana lives in Rome."),
        ("The user's cat is Miso.", "Ana's cat is Miso."),
        ("Die Nutzerin wohnt in Köln.", "Ana wohnt in Köln."),
        ("Der Benutzer wohnt in Köln.", "Ana wohnt in Köln."),
        ("L'utilisatrice habite à Nice.", "Ana habite à Nice."),
        ("La usuaria vive en Sevilla.", "Ana vive en Sevilla."),
        ("O usuário mora no Porto.", "Ana mora no Porto."),
        ("L\u2019utente vive a Roma.", "Ana vive a Roma."),
        ("Пользователь живёт в Риге.", "Ana живёт в Риге."),
        ("المستخدم يعيش في القاهرة.", "Ana يعيش في القاهرة."),
        ("用户住在北京。", "Ana住在北京。"),
        ("ユーザーは京都に住んでいる。", "Anaは京都に住んでいる。"),
    ],
)
def test_a_fact_about_the_user_names_the_person(text: str, named: str) -> None:
    """Models write the word in the language of the conversation, whatever the prompt says."""
    assert with_name(text, "Ana") == named


@pytest.mark.parametrize(
    "text",
    [
        "User accounts are stored in PostgreSQL.",
        "Users like the new page.",
        "Ana tests the user interface.",
        "Nutzerdaten liegen in Frankfurt.",
        "用户界面是蓝色的。",
        "ユーザー名は短い。",
    ],
)
def test_what_is_not_about_the_person_stays(text: str) -> None:
    """The users of a program are not the person."""
    assert with_name(text, "Ana") == text


def test_an_unknown_name_changes_nothing() -> None:
    """Without a name a fact is about "User"."""
    assert with_name("User lives in Rome.", "") == "User lives in Rome."
