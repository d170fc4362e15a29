"""Find Korean names, without the particles that are written to them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from palimpsest.text.names.lexicon.lists import is_also_word, is_given_name, is_place, is_surname
from palimpsest.text.names.span import Span


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_PARTICLES_KO = re.compile(
    r"(?:입니다|이에요|예요|이었습니다|에서는|에서|에게|으로|까지|부터|처럼|보다|이라는|라는|이다|은|는|이|가|을|를|에|의|와|과|도|로|랑|씨는|씨가|씨)$"
)
_ROLES_KO = _set(
    """
    동생 친구 아내 남편 딸 아들 동료 누나 형 오빠 언니 여동생 남동생 어머니 아버지 엄마 아빠 상사 팀장 선생님 이웃 사촌 조카 삼촌 이모 고모 여자친구 남자친구 룸메이트 고양이 강아지 개 담임
    의사
    """
)
_AFTER_NAME_KO = re.compile(r"\s?(?:씨|님|선생님|교수|대리|과장|부장|팀장|차장|사장|박사)")
_ORG_KO = re.compile(r".{2,}(?:대학교|대학|병원|전자|은행|그룹|초등학교|중학교|고등학교|연구소|출판사|자동차)")
_PLACE_KO = re.compile(r".{2,}(?:시|군|구|동|역|도|섬)")
_HANGUL_WORD = re.compile(r"[\uac00-\ud7af]{2,}")


FULL_NAME = 3
"""How many characters most full names have: a family name of one and a given name of two."""


def korean_spans(text: str) -> Iterator[Span]:
    """Yield the names in Korean text."""
    words = list(_HANGUL_WORD.finditer(text))
    for number, match in enumerate(words):
        word = _PARTICLES_KO.sub("", match[0])
        before = _PARTICLES_KO.sub("", words[number - 1][0]) if number else ""
        end = match.start() + len(word)
        if _is_person(word, before, text[end : end + 5]):
            yield Span(match.start(), end, word, "person")
        elif _ORG_KO.fullmatch(word):
            yield Span(match.start(), end, word, "organization")
        elif _is_place(word) or (_PLACE_KO.fullmatch(word) and _is_place(word[:-1])):
            yield Span(match.start(), end, word, "place")


def _is_person(word: str, before: str, after: str) -> bool:
    has_surname = FULL_NAME - 1 <= len(word) <= FULL_NAME + 1 and (is_surname(word[:1]) or is_surname(word[:2]))
    if before in _ROLES_KO:
        return word not in _ROLES_KO and (is_given_name(word) or has_surname)
    if not has_surname or len(word) != FULL_NAME:
        return False
    return bool(_AFTER_NAME_KO.match(after)) or (is_given_name(word[1:]) and not is_also_word(word[1:]))


def _is_place(word: str) -> bool:
    return len(word) > 1 and is_place(word) and not is_also_word(word)
