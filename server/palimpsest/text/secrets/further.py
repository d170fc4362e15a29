"""Find the further values of a statement of a secret: `… is hunter2, and for the bank it's …`, `… are x1 and y2`.

Whoever states one secret often states the next without its name. Such a value stands in a list with the one before it,
or after words that say what else it is for ("for the bank it's", "celui du wifi est", "另一张卡的是"). It must look
like a secret without any help: a word could be anything.

A bounded stretch of text is read after each secret, so the time is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from palimpsest.text.secrets.values import CHOSEN_KINDS, PIN, Statement, is_secret

_AND = r"(?:and|or|but|plus|while|und|oder|aber|sowie|et|ou|mais|puis|y|e|o|u|pero|и|или|а|но|then|also|dann|also|auch|también|тоже)"
_FOR = (
    r"(?:for|on|at|of|to|in|from|für|fürs|am|auf|im|in|bei|beim|vom|von|zum|zur|an|pour|sur|du|des|de|à|au|aux|para|en"
    r"|del|для|от|на|в|к|у|с)"
)
_ARTICLE = (
    r"(?:the|my|our|his|her|their|das|die|der|den|dem|mein\w{0,2}|unser\w{0,2}|le|la|les|l['\u2019]|el|los|las|mon|ma|mes"
    r"|mi|su)"
)
_OTHER = (
    r"(?:other|others|second|third|new|newer|old|older|last|ander\w{1,2}|zweit\w{1,2}|dritt\w{1,2}|neu\w{1,2}|alt\w{1,2}"
    r"|autre|seconde?|deuxième|nouve(?:au|lle)|ancien(?:ne)?|otr[oa]|segund[oa]|nuev[oa]|antigu[oa]|друг\w{2,3}|втор\w{2,3}"
    r"|нов\w{2,3}|стар\w{2,3})"
)
_THAT = r"(?:the one|that|those|das|der|die|celui|celle|ceux|la|el|los|las|тот|та|то)"
_MINE = r"(?:mine|ours|his|hers|theirs|yours|meins|seins|ihres|le mien|le sien|el mío|el suyo|мой|его|её)"
_WORD = r"[^\s,.;:!?=()<>\"\x00\u2013\u2014\uff0c\u3002\uff1a]{1,30}"

_LABEL = rf"(?:the\s{_WORD}\sone|(?:{_THAT}\s)?{_FOR}(?:\s{_WORD}){{1,4}}?|(?:{_ARTICLE}\s)?{_OTHER}(?:\s{_WORD}){{0,3}}?|{_MINE})"
"""What the further value is for, in a European language."""

_VERB = (
    r"(?:,?\s(?:(?:it|that|this)\s(?:is|was)|is|was|are|ist\ses|ist|war|lautet|c['\u2019]est|est|était|sont|es|era|son|это|был)"
    r"|,?\s(?:it|that)['\u2019]s)"
)
_EUROPEAN = re.compile(
    rf"(?:[\"'`*]{{0,3}}(?P<tail>\s(?:{_FOR}(?:\s{_WORD}){{1,4}}?|(?:as|als|comme|como)\s{_WORD}(?:\s{_WORD})?))?)"
    rf"(?P<stop>[.!?]?)(?P<list>(?:\s?[,;&/+])?(?:\s{_AND}\b){{0,2}}|\s(?=\())"
    rf"(?P<label>\s\(?{_LABEL})?(?P<verb>{_VERB})?(?P<sign>\s?[:=\u2013\u2014-](?=\s))?(?P<gap>\s{{1,2}})"
    r"(?P<value>[\"'`\u201c\u201e\u00ab]?(?=[^\s]{0,40}?\d)[^\s\"'`,;<>()\x00\u201c-\u201f\u00ab\u00bb\u3000-\u9fff]{4,60})",
    re.IGNORECASE,
)
_CJK = r"\u3040-\u30ff\u3400-\u9fff"
_EAST_ASIAN = re.compile(
    rf"(?:です|でした|だ)?\s?(?P<list>[,\uff0c\u3001;\uff1b\u3002]?\s?(?:で|と|や|和|以及|还有|跟|或者?|または|而)?[\u3001\uff0c]?)"
    rf"(?P<label>(?:[{_CJK}]|[A-Za-z-]){{0,12}}?(?:[的の](?:密码|密碼|パスワード)?|另一个|另一個))?"
    r"(?P<verb>是|为|為|は|が)?(?P<sign>\s?[:\uff1a])?\s?"
    r"(?P<value>[\"'`\u300c]?(?=[!-~]{0,40}?\d)[!-+\--:<-~]{4,60})"
)
_FOLLOWED_BY = re.compile(
    rf"[\"'`)\]*\u201d\u00bb\u300d]{{0,3}}(?:\s*\Z|\s*[\n,;)&/\u3001\u3002\uff0c\uff1b]|[.!?](?:\s|\Z)|\s(?:{_AND}|{_FOR})\b"
    rf"|[{_CJK}])",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?:19|20)\d\d")
_TICKET = re.compile(r"[A-Z]{2,6}-\d+")
_ASSIGNMENT = re.compile(r"[A-Za-z_][\w.-]{0,30}=[^=\s]")
"""Another option beside the one with the secret: "password=…,vers=3.0"."""

_LETTERS_THEN_DIGITS = re.compile(r"[A-Za-z]{1,5}\d{1,4}")
"""A room, a server, a model: too common beside a secret to be taken for another one."""

_MAX_CHARS = 200
"""How much of the text after a secret is read for the next. Set by hand: a clause is shorter."""


def further_secrets(text: str, end: int, kind: str, value: str) -> Iterator[tuple[int, int]]:
    """Yield the places of the values that follow a secret, which ends at `end`, and belong to the same statement."""
    while place := _next_value(text, end, kind, value):
        yield place
        end = place[1]


def _next_value(text: str, end: int, kind: str, before: str) -> tuple[int, int] | None:
    for pattern in (_EUROPEAN, _EAST_ASIAN):
        link = pattern.match(text, end, end + _MAX_CHARS)
        if link and _is_linked(link):
            opening = len(link["value"]) - len(link["value"].lstrip("\"'`\u201c\u201e\u00ab\u300c"))
            start = link.start("value") + opening
            stop = start + len(text[start : link.end("value")].rstrip(".:)]}*\u2026"))
            if _FOLLOWED_BY.match(text, stop) and _is_value(kind, text[start:stop], before, in_full=_is_in_full(link)):
                return start, stop
    return None


def _is_in_full(link: re.Match[str]) -> bool:
    """Return whether the text says what the value is for and that it is so: "for the bank it's …"."""
    return bool(link["label"] and (link["verb"] or link["sign"]))


def _is_linked(link: re.Match[str]) -> bool:
    """Return whether a value is said in full, or stands in a list with the secret before it."""
    if _is_in_full(link):
        return True
    if "stop" in link.groupdict() and link["stop"]:  # another sentence
        return False
    return bool(link["list"].strip()) and not link["verb"] and not link["sign"]


def _is_value(kind: str, value: str, before: str, *, in_full: bool) -> bool:
    """Return whether a value can be a further secret of this kind. Numbers follow only numbers."""
    if value.isdigit():
        fits = (kind == "pin" or before.isdigit()) and bool(PIN.fullmatch(value))
        return fits and (in_full or (len(value) == len(before) and not _YEAR.fullmatch(value)))
    if kind == "pin" or _TICKET.fullmatch(value) or _ASSIGNMENT.match(value):
        return False
    if kind in CHOSEN_KINDS and not in_full and _LETTERS_THEN_DIGITS.fullmatch(value):
        return False
    return is_secret(Statement(kind, "verb", value, quoted=False))
