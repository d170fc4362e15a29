"""Names that are known already are found in any script and spelling."""

from __future__ import annotations

import pytest

from palimpsest.core.models import NamedEntity
from palimpsest.text.names.known_names import MAX_CANDIDATES, name_candidates
from palimpsest.text.names.name_finder import find_names


@pytest.mark.parametrize(
    ("text", "key", "name"),
    [
        ("yesterday ana called", "ana", "ana"),
        ("Ana's bike is red", "ana", "Ana"),
        ("Annas Fahrrad ist rot", "anna", "Anna"),
        ("王小明喜欢喝茶", "王小明", "王小明"),
        ("昨日、山田太郎さんに会った", "山田太郎", "山田太郎"),
        ("지은이가 서울에 산다", "지은", "지은"),
        ("用Notion记笔记", "notion", "Notion"),
        ("理想L7的保险十月到期", "理想l7", "理想L7"),
        ("理想 L7 的保险", "理想 l7", "理想 L7"),
        ("OPAL에 올린다", "opal", "OPAL"),
        ("我爱K歌之王", "k歌之王", "K歌之王"),
    ],
)
def test_a_known_name_is_found(text: str, key: str, name: str) -> None:
    assert key in name_candidates(text)
    assert NamedEntity(name, "person") in find_names(text, {key: "person"})


def test_the_longest_known_name_is_taken() -> None:
    found = find_names("the old crow inn opens at six", {"old crow": "other", "the old crow inn": "place"})
    assert found == [NamedEntity("the old crow inn", "place")]


def test_a_known_name_that_is_a_common_word_needs_its_capital() -> None:
    assert find_names("she will come", {"will": "person"}) == []
    assert find_names("she asked Will", {"will": "person"}) == [NamedEntity("Will", "person")]


def test_the_candidates_of_a_long_text_are_bounded() -> None:
    assert len(name_candidates("one two three four " * 10_000 + "山" * 10_000)) <= MAX_CANDIDATES
