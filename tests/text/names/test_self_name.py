"""What a text calls the user."""

from __future__ import annotations

import pytest

from palimpsest.text.names.known_names import told_self_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("User's name is Lena Brandt.", "Lena Brandt"),
        ("The user is called Ana", "Ana"),
        ("My name is Jonas von Weber!", "Jonas von Weber"),
        ("Ich heiße Jonas", "Jonas"),
        ("Je m’appelle Zoé.", "Zoé"),  # noqa: RUF001 - a typographic apostrophe
        ("Me llamo Lucía", "Lucía"),
        ("Пользователя зовут Анна", "Анна"),
        ("用户叫林越。", "林越"),
        ("ユーザーの名前は佐藤健太です。", "佐藤健太"),
    ],
)
def test_a_text_that_only_says_what_the_user_is_called_tells_the_name(text: str, name: str) -> None:
    assert told_self_name(text) == name


@pytest.mark.parametrize(
    "text",
    [
        "User's name for the dog is Rex",
        "User is called every Monday",
        "User is named after his grandfather",
        "User is called Ana by her friends",
        "User's sister's name is Mia",
        "我是老师",
        "用户是工程师",
        "",
    ],
)
def test_other_texts_tell_none(text: str) -> None:
    assert told_self_name(text) == ""
