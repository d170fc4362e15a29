"""Find Arabic names: of people after words such as sister, of organizations and places by what they begin with."""

from __future__ import annotations

import re
from collections.abc import Iterator

from palimpsest.core.entities import EntityType
from palimpsest.text.names.lexicon.lists import is_also_word, is_given_name, is_place
from palimpsest.text.names.span import Span


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_AR_WORD = re.compile(r"[\u0621-\u064a\u064b-\u0652]+")
_AR_MARKS = re.compile(r"[\u064b-\u0652]")
_AR_ROLES = _set(
    """
    أخته أختها أختي أخوه أخوها أخي أخاه زوجته زوجها زوجتي زوجي ابنه ابنها ابني ابنته ابنتها ابنتي أمه أمها أمي
    والده والدها والدي والدته والدتها والدتي صديقه صديقها صديقي صديقته صديقتها صديقتي زميله زميلها زميلي زميلته
    زميلتها زميلتي مديره مديرها مديري مديرته جاره جارها جاري جارته عمه عمها عمي عمته خاله خالها خالي خالته جده
    جدها جدي جدته الدكتور الدكتورة دكتور الأستاذ الأستاذة السيد السيدة المهندس المهندسة الشيخ اسمه اسمها اسمي
    يدعى تدعى المدير المديرة المعلم المعلمة خطيبته خطيبها
    """
)
_AR_ORGS = _set(
    """
    جامعة شركة مستشفى بنك مؤسسة مدرسة وزارة معهد كلية جمعية
    """
)
_AR_PLACES = _set(
    """
    مدينة قرية حي شارع بلدة محافظة ولاية
    """
)
_AR_STOP = _set(
    """
    في من إلى على عن مع و ثم أو التي الذي الذين هو هي كان كانت أن إن لا ما هذه هذا كبيرة صغيرة خاصة حكومية جديدة
    قديمة
    """
)


_AR_AT = ("في", "إلى", "من", "مدينة", "نحو")

MIN_PLACE = 4
"""Shorter places are also words. Set by hand."""


def arabic_spans(text: str) -> Iterator[Span]:
    """Yield the names in Arabic text."""
    words = list(_AR_WORD.finditer(text))
    plain = [_AR_MARKS.sub("", match[0]) for match in words]
    taken = -1
    for number, match in enumerate(words):
        if number <= taken:
            continue
        is_beside = number + 1 < len(words) and text[match.end() : words[number + 1].start()] == " "
        following = plain[number + 1] if is_beside else ""
        length, kind = _name(plain[number - 1] if number else "", plain[number], following)
        if length:
            taken = number + length - 1
            yield Span(match.start(), words[taken].end(), text[match.start() : words[taken].end()], kind)


def _name(before: str, word: str, following: str) -> tuple[int, EntityType]:
    """Return how many words a name has that begins with a word, 0 if none does, and its type."""
    if before in _AR_ROLES and word not in _AR_STOP and is_given_name(word):
        return (2 if is_given_name(following) else 1), "person"
    if word in _AR_ORGS:
        return (2 if following.startswith("ال") or is_given_name(following) else 0), "organization"
    if word in _AR_PLACES:
        return (2 if following and following not in _AR_STOP else 0), "place"
    if following and is_place(f"{word} {following}"):
        return 2, "place"
    is_known = len(word) >= MIN_PLACE and is_place(word) and not is_also_word(word)
    return (1 if is_known and before in _AR_AT else 0), "place"
