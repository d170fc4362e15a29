"""The user's name in facts."""

from __future__ import annotations

from palimpsest.llm.user_name import told_name, with_name
from tests.support.scripted_model import message

OF_THE_USER = (
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
    ("Nutzer wohnt in Köln.", "Ana wohnt in Köln."),
    ("Usuario vive en Sevilla.", "Ana vive en Sevilla."),
    ("Utilisateur habite à Nice.", "Ana habite à Nice."),
    ("User needs glasses.", "Ana needs glasses."),
    ("用户数学很好。", "Ana数学很好。"),
)
"""Models write the word in the language of the conversation, whatever the prompt says."""

OF_OTHERS = (
    "User accounts are stored in PostgreSQL.",
    "Users like the new page.",
    "Ana tests the user interface.",
    "Nutzerdaten liegen in Frankfurt.",
    "用户界面是蓝色的。",
    "ユーザー名は短い。",
    "User churn fell to 2 % in May.",
    "User retention is the goal of the quarter.",
    "User base doubled.",
    "Nutzer können sich abmelden.",
    "Nutzer koennen sich abmelden.",
    "Die Nutzer beschweren sich.",
    "用户端口是 8080。",
    "用户数量增加了。",
)
"""The users of a program are not the person."""

NAMED_ALREADY = (
    ("User Nadia likes tea.", "Nadia", "Nadia likes tea."),
    ("User (Nadia) likes tea.", "Nadia", "Nadia likes tea."),
    ("The user, Nadia Haddad, likes tea.", "Nadia", "Nadia Haddad, likes tea."),
    ("User Nadia likes tea.", "Nadia Haddad", "Nadia likes tea."),
    ("用户小明住在北京。", "小明", "小明住在北京。"),
    ("User will move in May.", "Will", "Will will move in May."),
    ("User Nadiana is a cat.", "Nadia", "Nadia Nadiana is a cat."),
)
"""Models write both, whatever the prompt says."""

TOLD = (
    ("Nadia", "Hi, nadia here.", "Nadia"),
    (" Nadia. ", "I'm Nadia.", "Nadia"),
    ("小明", "我叫小明。", "小明"),
    ("Nadia", "我叫Nadia。", "Nadia"),
    ("John Smith", "I like tea.", ""),
    ("Nad", "I'm Nadia.", ""),
    ("Unknown", "The cause is unknown.", ""),
    ("null", "It returns null.", ""),
    ("the user", "The user is root.", ""),
    ("User", "User nobody runs it.", ""),
    ("", "I like tea.", ""),
)
"""A name, what the user wrote, and which name that tells: models invent names, and write "unknown" in place of null."""


def test_a_fact_about_the_user_names_the_person() -> None:
    """Of what is there already nothing is repeated, and without a name a fact is about "User"."""
    for text, named in OF_THE_USER:
        assert with_name(text, "Ana") == named
    for text in OF_OTHERS:
        assert with_name(text, "Ana") == text
    for text, user_name, named in NAMED_ALREADY:
        assert with_name(text, user_name) == named
    assert with_name("User lives in Rome.", "") == "User lives in Rome."


def test_a_name_must_stand_in_what_the_user_wrote() -> None:
    """The name of a message counts, because the caller may know who speaks; what the assistant writes does not."""
    for name, said, told in TOLD:
        assert told_name(name, [message(said)]) == told, name
    assert told_name("Ana", [message("Tea!", name="Ana Silva")]) == "Ana"
    assert told_name("Ana", [message("Hello Ana!", role="assistant")]) == ""
