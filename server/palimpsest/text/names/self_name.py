"""Find where a text tells the user's own name: "User's name is Lena Brandt."."""

from __future__ import annotations

import re

_NAME = r"([^\W\d_][\w'\u2019-]*(?: [^\W\d_][\w'\u2019-]*){0,3})"
_UNSPACED_NAME = r"([^\W\d_\u3041-\u3096]{2,12}?)"

_TELLINGS = tuple(
    re.compile(rf"{telling}[.!。]?", re.IGNORECASE)
    for telling in (
        rf"(?:the )?user(?:['\u2019]s (?:full |first |own )?name is| is (?:called|named)) {_NAME}",
        rf"my (?:full |first )?name is {_NAME}",
        rf"(?:(?:der |die )?(?:be)?nutzer(?:in)?|user|ich) hei(?:ß|ss)(?:t|e) {_NAME}",
        rf"(?:l['\u2019]utilisat(?:eur|rice) s|je m)['\u2019]appelle {_NAME}",
        rf"(?:(?:el |la )?usuari[oa] se llama|me llamo) {_NAME}",
        rf"(?:пользователя|меня) зовут {_NAME}",
        rf"(?:用户|用戶|我)(?:叫做?|名叫|的名字[是叫]){_UNSPACED_NAME}",
        rf"(?:ユーザー|私)の名前は{_UNSPACED_NAME}(?:です)?",
    )
)

_INSIDE = frozenset({"de", "da", "do", "dos", "del", "di", "la", "van", "von", "der", "den", "zu", "bin", "al", "el"})
"""Words in lower case that stand inside of names."""


def told_self_name(text: str) -> str:
    """Return the name that a text gives the user, or "" if it does not say one and nothing else.

    "User's name for the dog is Rex", "User is called every Monday" and "User is named after an uncle" give none.
    """
    plain = " ".join(text.split())
    for telling in _TELLINGS:
        if (match := telling.fullmatch(plain)) is not None:
            words = match[1].split()
            has_small = any(word[0].islower() and word not in _INSIDE for word in words)
            return "" if has_small or words[0] in _INSIDE else match[1]
    return ""


def asks_about_name(what: str, name: str) -> bool:
    """Return whether a request to forget something is about the user's name."""
    words = {word.casefold() for word in re.findall(r"[^\W\d_]+", what)}
    return not words.isdisjoint(_NAME_WORDS | {word.casefold() for word in name.split()}) or any(
        sign in what for sign in _NAME_SIGNS
    )


_NAME_WORDS = frozenset(
    (
        "name",
        "names",
        "named",
        "called",
        "namen",
        "heiße",
        "nom",
        "prénom",
        "nombre",
        "nome",
        "naam",
        "namn",
        "imię",
        "imienia",
    )
) | {"nazwisko", "имя", "имени", "зовут", "اسمي"}
_NAME_SIGNS = ("名前", "名字", "姓名", "이름")
