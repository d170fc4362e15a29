"""One name for the user: a fact about "User" is a fact about the person whose name is known."""

from __future__ import annotations

import re
from collections.abc import Sequence

from palimpsest.core.models import Message
from palimpsest.core.validation import one_line
from palimpsest.llm.ask import NOTHING
from palimpsest.text.tokenizer import is_unspaced
from palimpsest.text.word_lists import LazyPattern

MAX_NAME_CHARS = 64
"""A longer name is a sentence."""

_NO_NAMES = NOTHING | {"user", "the user", "me", "i", "myself", "you", "assistant", "agent", "human", "anonymous"}

_COMPOUNDS = (
    r"accounts?|acquisition|activity|adoption|agents?|analytics|authentication|avatar|base|behaviou?r|bio|churn|class|"
    r"community|count|creation|data|database|density|documentation|docs|engagement|entity|error|experience|feedback|"
    r"flow|form|forum|groups?|growth|guide|ids?|identity|inputs?|interaction|interfaces?|interviews?|journey|list|log|"
    r"login|management|manual|metrics|models?|names?|need|numbers|object|onboarding|page|permissions?|personas?|"
    r"population|portal|preferences?|privacy|profiles?|record|registration|research|retention|roles?|satisfaction|"
    r"schema|segments?|services?|sessions?|settings?|sign-?ups?|space|stats|statistics|stories|story|survey|tables?|"
    r"tests?|testing|tickets?|tokens?|traffic|type"
)
"""What is not about the person if it follows "User", as in "User accounts are stored in PostgreSQL". A plural that is
also what a person does, as in "User needs glasses", is not among them."""

_CHINESE_COMPOUNDS = (
    "界面|体验|账|帐|名|数据|数量|数为|数达|数超|组|权限|手册|协议|反馈|故事|端|流量|流失|留存|增长|群|列表|登录|注册|类型|"
    "角色|信息|研究|调研|测试|满意度|活跃|画像|标识|输入|隐私|需求|行为|管理|标签|中心|总数|总量|们"
)

_PERSON = LazyPattern(
    rf"(?:(?:the\s+)?user(?P<possessive>['\u2019]s)?(?=[\s,])(?!\s+(?:{_COMPOUNDS})\b)"
    r"|(?:der\s+)?(?:be)?nutzer(?=[\s,])(?!\s+(?:\w+en|sind)\b)"  # German; with a verb in -en there are several
    r"|(?:die\s+)?(?:be)?nutzerin(?=[\s,])"
    r"|(?:l['\u2019])?utilisat(?:eur|rice)(?=[\s,])"  # French
    r"|(?:el\s+)?usuario(?=[\s,])|(?:la\s+)?usuaria(?=[\s,])"  # Spanish
    r"|(?:o\s+)?usuário(?=[\s,])|(?:a\s+)?usuária(?=[\s,])"  # Portuguese
    r"|(?:l['\u2019])?utente(?=[\s,])"  # Italian
    r"|(?:de\s+)?gebruik(?:er|ster)(?=[\s,])"  # Dutch
    r"|användaren(?=[\s,])|użytkowni(?:k|czka)(?=[\s,])"  # Swedish, Polish
    r"|пользовател(?:ь|ьница)(?=[\s,])"  # Russian
    r"|المستخدم(?:ة)?(?=[\s،])"  # Arabic
    rf"|用户(?!{_CHINESE_COMPOUNDS})"  # Chinese
    r"|ユーザー(?=[はがもをにの、]))",  # Japanese
    re.IGNORECASE,
)
"""The user as the subject of a fact, in the languages in which models write the word instead of "User"."""

_FIRST_PERSON = LazyPattern(
    r"I(?:['\u2019](?:m|ve|d|ll))?(?=\s[a-z])|My\b"
    r"|(?:Ich|Mein(?:e[mnrs]?)?|Mir|Mich)\b"  # German
    r"|(?:Je|Mon|Ma|Mes)\b|J['\u2019]"  # French
    r"|(?:Yo|Mi|Mis|Soy|Vivo|Tengo)\b"  # Spanish
    r"|(?:Eu|Meus?|Minhas?|Sou|Moro|Tenho)\b"  # Portuguese
    r"|(?:Io|Mio|Mia|Miei|Mie|Sono|Abito)\b"  # Italian
    r"|(?:Ik|Mijn)\b|(?:Jag|Min|Mitt|Mina)\b"  # Dutch, Swedish
    r"|(?:Ja|Mój|Moja|Moje|Mam|Jestem|Mieszkam|Pracuję|Nazywam)\b"  # Polish
    r"|(?:Я|Мой|Моя|Моё|Мои|Мне|Меня)\b"  # Russian
    r"|我(?![们們国國])|私(?![立人有達])|[僕俺](?!達)"  # Chinese, Japanese
)
"""The user as the one who speaks at the beginning of a text that was stored as it was said."""

_POSSESSIVE = LazyPattern(r"['\u2019]s?\b|s\b")

_NAME_FOLLOWS = LazyPattern(r"[\s,]*\(?")
"""What may stand between the word and the name, as in "User (Nadia) likes tea."."""


def told_name(name: str, messages: Sequence[Message]) -> str:
    """Return the user's name as a model read it in messages, or "" unless it stands in what a user wrote.

    Models also write "unknown", and names that nobody said.
    """
    name = one_line(name).strip(" .,;:'\"")
    if name.casefold() in _NO_NAMES or len(name) > MAX_NAME_CHARS:
        return ""
    written = [text for message in messages if message.role == "user" for text in (message.name, message.content)]
    return name if any(_stands_in(name.casefold(), one_line(text).casefold()) for text in written) else ""


def with_name(text: str, user_name: str) -> str:
    """Return a fact with the user's name in place of "User" or "The user" at its beginning.

    Only the beginning is certain to mean the person: "User" inside a sentence may be the user of a program. If the name
    follows, as in "User Nadia likes tea.", only the name stays.
    """
    found = _PERSON.match(text)
    if not user_name.strip() or found is None:
        return text
    rest = text[found.end() :]
    if not found["possessive"] and (named := _NAME_FOLLOWS.match(rest)):
        after = rest[named.end() :]
        if _begins_with(user_name.split(maxsplit=1)[0], after):
            return after.replace(")", "", 1) if "(" in named[0] else after
    return f"{user_name}{found['possessive'] or ''}{rest}"


def is_about_user(text: str) -> bool:
    """Return whether a text begins with the user: with "User" in one of the languages above, or with "I" or "my"."""
    return _PERSON.match(text) is not None or _FIRST_PERSON.match(text) is not None


def has_user_as_subject(text: str, user_name: str = "") -> bool:
    """Return whether a text begins with the user, by name or not, and not with what is the user's."""
    if user_name.strip() and _begins_with(user_name, text):
        return not _POSSESSIVE.match(text, len(user_name))
    found = _PERSON.match(text)
    return not found["possessive"] if found else _FIRST_PERSON.match(text) is not None


def _stands_in(name: str, text: str) -> bool:
    """Return whether a name is a word, or several, of a text."""
    return any(
        _begins_with(name, text[found.start() :]) and not _joins(text[found.start() - 1 : found.start()], name[0])
        for found in re.finditer(re.escape(name), text)
    )


def _begins_with(name: str, text: str) -> bool:
    return text.startswith(name) and not _joins(name[-1], text[len(name) : len(name) + 1])


def _joins(char: str, following: str) -> bool:
    """Return whether two characters are of one word. Scripts that put no spaces between words do not tell."""
    return char.isalnum() and following.isalnum() and not (is_unspaced(char) or is_unspaced(following))
