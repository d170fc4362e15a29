"""Text to search tokens: what two texts must share, whatever the language, and what no token may hold."""

from __future__ import annotations

import string
from collections.abc import Iterator

import pytest

from palimpsest.text.tokenizer import MAX_TOKEN_CHARS, count_tokens, search_tokens

SCRIPTS = {
    "english": "The runner's cats were running happily",
    "german": "Die Häuser an der Straße sind größer",
    "russian": "Ёлка стоит возле старой книжной полки",
    "arabic": "اشترى الطالب كِتَابًا جَدِيدًا",
    "hindi": "लड़के ने किताबें पढ़ीं",
    "greek": "γάτες κοιμούνται ήσυχα",
    "hebrew": "שָׁלוֹם לכולם",
    "thai": "ฉันชอบกาแฟเย็น",
    "chinese": "我住在北京",
    "japanese": "東京タワーへ行った",
    "korean": "서울에 살아요",
    "code": "getUserName(snake_case_name) -> HTTPServer::v1.2",
    "emoji": "nice 👋🏽 👩‍👩‍👧 ❤️ #1",
}

FORBIDDEN = frozenset(string.punctuation + string.whitespace)


def generated() -> Iterator[str]:
    """Yield every sentence cut and joined in many ways, and characters from all over Unicode inside words."""
    sentences = list(SCRIPTS.values())
    for number, left in enumerate(sentences):
        for right in sentences[number:]:
            for cut in range(0, len(left), 3):
                yield f"{left[:cut]}{right}"
                yield f"{right[cut:]}_{left[cut::-1]}"
    for code in range(0, 0x110000, 11):
        strange = chr(code)
        yield f"{strange}a{strange}{strange}Я{strange}ب北{strange}"
    for start in range(0, 0x3000, 97):
        yield "".join(chr(start + step * 13) for step in range(40))


def breaches(found: list[str]) -> list[str]:
    """Return the tokens the full-text index could not hold as they are."""
    return [token for token in found if not token or not FORBIDDEN.isdisjoint(token) or token.split() != [token]]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("She was running to the shops", "run shop"),
        ("Two cats and a connection", "cat connected"),
        ("Мы купили книги", "книга"),
        ("в старой квартире", "старая квартира"),
        ("اشترى الطالب الكتاب", "كتاب طالب"),
        ("بالمفاتيح الجديدة", "مفتاح"),
        ("защита диплома", "диплом"),
        ("लड़कों ने किताबें", "लड़का किताब"),
        ("δύο γάτες", "γάτα"),
    ],
    ids=[
        "english",
        "english-nouns",
        "russian",
        "russian-adjective",
        "arabic",
        "arabic-plural",
        "russian-twice",
        "hindi",
        "greek",
    ],
)
def test_a_query_finds_a_text_across_inflection(text: str, query: str) -> None:
    """Guards recall by words: the same word in another form must give the same token."""
    shared = set(search_tokens(text)).intersection(search_tokens(query))

    assert len(shared) >= len(query.split())


@pytest.mark.parametrize(
    ("written", "typed"),
    [
        ("كِتَابٌ", "كتاب"),
        ("שָׁלוֹם", "שלום"),
        ("café", "cafe"),
        ("Ελλάδα", "ελλαδα"),
        ("Häuser", "hauser"),
        ("größer", "grösser"),
        ("Straße", "STRASSE"),
        ("İstanbul", "istanbul"),
        ("ёлка", "елка"),
    ],
)
def test_marks_that_readers_leave_out_do_not_matter(written: str, typed: str) -> None:
    """Guards queries typed without vowel marks, accents or umlauts."""
    assert search_tokens(written) == search_tokens(typed)


def test_marks_that_make_another_letter_are_kept() -> None:
    """Guards Hindi: its vowel signs are part of the word and must neither split it nor fall away."""
    assert len(search_tokens("किताब")) == 1
    assert search_tokens("किताब") != search_tokens("कताब")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getUserName", ["getusernam", "get", "user", "name"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("snake_case", ["snake", "case"]),
        ("_private", ["privat"]),
        ("v1.2.3", ["v1", "2", "3"]),
    ],
)
def test_names_from_code_are_found_by_their_parts(text: str, expected: list[str]) -> None:
    """Guards coding agents: an identifier is found whole and by each word in it."""
    assert search_tokens(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我住在北京", ["我住", "住在", "在北", "北京", "我", "住", "在", "北", "京"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー", "東", "京"]),
        ("茶", ["茶"]),
        ("我用Python写", ["我用", "我", "用", "python", "写"]),
        ("서울에", ["서울", "울에"]),
    ],
    ids=["chinese", "japanese", "single", "mixed", "korean"],
)
def test_text_without_spaces_becomes_pairs(text: str, expected: list[str]) -> None:
    """Guards Chinese, Japanese and Korean, which a tokenizer by white space would take as one word."""
    assert search_tokens(text) == expected


@pytest.mark.parametrize(
    ("text", "query"),
    [("ฉันชอบกาแฟ", "กาแฟ"), ("他昨天去了北京大学", "北京"), ("서울에 살아요", "서울")],
    ids=["thai", "chinese", "korean"],
)
def test_a_word_is_found_inside_text_without_spaces(text: str, query: str) -> None:
    """Guards search in scripts that write no spaces: all pairs of the query stand in the text."""
    assert set(search_tokens(query)) <= set(search_tokens(text))


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        ("\uff21\uff22\uff23\uff11\uff12", "abc12"),
        ("ﬁle", "file"),
        ("cafe\u0301", "café"),
        ("ﾀﾜｰ", "タワー"),
        ("①", "1"),
    ],
    ids=["full-width", "ligature", "combining", "half-width", "circled"],
)
def test_compatible_forms_of_a_character_are_one(typed: str, plain: str) -> None:
    """Guards NFKC: the same text from another keyboard or a PDF gives the same tokens."""
    assert search_tokens(typed) == search_tokens(plain)


@pytest.mark.parametrize(
    "text", ["", " \t\n", "👋🏽 ❤️ …", "?!.,;:'\"()[]{}", "\x00\x07\x1b", "\u200b\u2028\ufeff", "\ud83d"]
)
def test_text_without_words_has_no_tokens(text: str) -> None:
    """Guards emoji, punctuation, control characters and lone surrogates: they are no search words, and no fault."""
    assert search_tokens(text) == []


@pytest.mark.parametrize("between", ["\x00", "\x1f", "\u200b", "\u2028", "👋", "—", "_"])
def test_what_is_no_letter_parts_words(between: str) -> None:
    """Guards words that hang together by something invisible or drawn."""
    assert search_tokens(f"tea{between}house") == ["tea", "hous"]


def test_a_very_long_run_is_cut() -> None:
    """Guards the index against hashes and base64: one token of bounded length, however long the run."""
    assert [len(token) for token in search_tokens("x" * 10_000)] == [MAX_TOKEN_CHARS]
    assert search_tokens(f"{'y' * 500} tea")[-1] == "tea"


def test_tokens_keep_order_and_repetitions() -> None:
    """Guards term frequencies: a word said twice counts twice."""
    assert search_tokens("tea, tea and Tea") == ["tea", "tea", "and", "tea"]


@pytest.mark.parametrize("sentence", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_joined_tokens_come_apart_again(sentence: str) -> None:
    """Guards the joining by spaces: splitting the joined tokens gives back the very tokens."""
    found = search_tokens(sentence)

    assert " ".join(found).split() == found


def test_no_token_holds_punctuation_or_white_space() -> None:
    """Guards the full-text index, which cuts at ASCII punctuation and white space, over all of Unicode."""
    assert [(text, wrong) for text in generated() if (wrong := breaches(search_tokens(text)))] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 1), ("four", 1), ("fives", 2), ("x" * 4_000, 1_000), ("北京", 2), ("tea 北京", 3), ("👋", 1)],
)
def test_model_tokens_are_estimated(text: str, expected: int) -> None:
    """Guards the token budget of replies: four ASCII characters or one other make a token."""
    assert count_tokens(text) == expected


@pytest.mark.parametrize("sentence", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_the_estimate_stays_within_its_bounds(sentence: str) -> None:
    """Guards sums over hits: never more than a token a character, never fewer than one for four, and subadditive."""
    count = count_tokens(sentence)

    assert len(sentence) / 4 <= count <= len(sentence)
    for cut in range(len(sentence)):
        assert count <= count_tokens(sentence[:cut]) + count_tokens(sentence[cut:])
        assert count_tokens(sentence[:cut]) <= count


def test_the_end_of_a_long_sentence_without_spaces_has_tokens() -> None:
    """Guards Chinese without punctuation: only words are cut, not sentences."""
    assert "上海" in search_tokens("我" * 100 + "上海")
