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

_PERSON = re.compile(rf"(?:the\s+)?user(?P<possessive>['\u2019]s)?(?=[\s,])(?!\s+(?:{_COMPOUNDS})\b)", re.IGNORECASE)


def with_name(text: str, user_name: str) -> str:
    """Return a fact with the user's name in place of "User" or "The user" at its beginning.

    Only the beginning is certain to mean the person: "User" inside a sentence may be the user of a program.
    """
    found = _PERSON.match(text)
    if not user_name or found is None:
        return text
    return f"{user_name}{found['possessive'] or ''}{text[found.end() :]}"
