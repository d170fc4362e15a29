"""One name for the user: a fact about "User" is a fact about the person whose name is known."""

from __future__ import annotations

import re

USER = "User"
"""What the prompts call a user whose name is not known."""

_COMPOUNDS = (
    r"accounts?|agents?|authentication|data|database|experience|feedback|groups?|guide|ids?|inputs?|interfaces?|"
    r"interviews?|login|manual|models?|names?|permissions?|profiles?|research|roles?|services?|sessions?|settings?|"
    r"stories|story|tables?|tests?|testing|tokens?"
)
"""What is not about the person if it follows "User", as in "User accounts are stored in PostgreSQL". Set by hand."""

_PERSON = re.compile(
    rf"(?:(?:the\s+)?user(?P<possessive>['\u2019]s)?(?=[\s,])(?!\s+(?:{_COMPOUNDS})\b)"
    r"|(?:(?:der|die)\s+)?(?:be)?nutzer(?:in)?(?=[\s,])"  # German
    r"|l['\u2019]utilisat(?:eur|rice)(?=[\s,])"  # French
    r"|(?:el\s+usuario|la\s+usuaria)(?=[\s,])"  # Spanish
    r"|(?:o\s+usuário|a\s+usuária)(?=[\s,])"  # Portuguese
    r"|l['\u2019]utente(?=[\s,])"  # Italian
    r"|пользовател(?:ь|ьница)(?=[\s,])"  # Russian
    r"|المستخدم(?:ة)?(?=[\s،])"  # Arabic
    r"|用户(?!界面|体验|账|帐|名|数据|组|权限|手册|协议|反馈|故事)"  # Chinese
    r"|ユーザー(?=[はがもをにの、]))",  # Japanese
    re.IGNORECASE,
)
"""The user as the subject of a fact, in the languages in which models write the word instead of "User"."""


def with_name(text: str, user_name: str) -> str:
    """Return a fact with the user's name in place of "User" or "The user" at its beginning.

    Only the beginning is certain to mean the person: "User" inside a sentence may be the user of a program.
    """
    found = _PERSON.match(text)
    if not user_name or found is None:
        return text
    return f"{user_name}{found['possessive'] or ''}{text[found.end() :]}"
