"""Search tokens, token counts, windows of long texts and the first words of questions."""

from __future__ import annotations

import string
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.text.tokenizer import (
    MAX_TOKEN_CHARS,
    QUESTION_WORDS,
    count_tokens,
    first_words,
    most_words_near,
    search_tokens,
    windows,
)

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


def sample_texts() -> Iterator[str]:
    """Yield the sentences cut and joined in many ways, and words with characters from all over Unicode."""
    sentences = list(SCRIPTS.values())
    for number, left in enumerate(sentences):
        for right in sentences[number:]:
            for cut in range(0, len(left), 3):
                yield f"{left[:cut]}{right}"
                yield f"{right[cut:]}_{left[cut::-1]}"
    for code in range(0, 0x110000, 11):
        char = chr(code)
        yield f"{char}a{char}{char}Я{char}ب北{char}"
    for start in range(0, 0x3000, 97):
        yield "".join(chr(start + step * 13) for step in range(40))


def invalid_tokens(tokens: list[str]) -> list[str]:
    """Return the tokens that the full-text index cannot store as they are."""
    return [token for token in tokens if not token or not FORBIDDEN.isdisjoint(token) or token.split() != [token]]


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
def test_another_form_of_a_word_has_the_same_token(text: str, query: str) -> None:
    """A query finds a text in which its words are inflected differently."""
    shared = set(search_tokens(text)).intersection(search_tokens(query))
    assert len(shared) >= len(query.split())


@pytest.mark.parametrize(
    ("text", "query"),
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
def test_marks_that_people_leave_out_do_not_matter(text: str, query: str) -> None:
    """A query without vowel marks, accents or umlauts finds a text that has them."""
    assert search_tokens(text) == search_tokens(query)


def test_marks_that_make_another_letter_are_kept() -> None:
    """The vowel signs of Hindi are part of the word. They neither split it nor are removed."""
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
    """A coding agent finds an identifier by its full name and by each word in it."""
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
    """Chinese, Japanese and Korean sentences are not one long word, as white space alone would make them."""
    assert search_tokens(text) == expected


@pytest.mark.parametrize(
    ("text", "query"),
    [("ฉันชอบกาแฟ", "กาแฟ"), ("他昨天去了北京大学", "北京"), ("서울에 살아요", "서울")],
    ids=["thai", "chinese", "korean"],
)
def test_a_word_is_found_inside_text_without_spaces(text: str, query: str) -> None:
    """In scripts without spaces, the text contains all pairs of characters of the query."""
    assert set(search_tokens(query)) <= set(search_tokens(text))


@pytest.mark.parametrize(
    ("variant", "plain"),
    [
        ("\uff21\uff22\uff23\uff11\uff12", "abc12"),
        ("ﬁle", "file"),
        ("cafe\u0301", "café"),
        ("ﾀﾜｰ", "タワー"),
        ("①", "1"),
    ],
    ids=["full-width", "ligature", "combining", "half-width", "circled"],
)
def test_compatible_forms_of_a_character_are_one(variant: str, plain: str) -> None:
    """The same text from another keyboard or a PDF file has the same tokens (NFKC normalization)."""
    assert search_tokens(variant) == search_tokens(plain)


@pytest.mark.parametrize(
    "text", ["", " \t\n", "👋🏽 ❤️ …", "?!.,;:'\"()[]{}", "\x00\x07\x1b", "\u200b\u2028\ufeff", "\ud83d"]
)
def test_text_without_words_has_no_tokens(text: str) -> None:
    """Emoji, punctuation, control characters and lone surrogates have no tokens and raise no error."""
    assert search_tokens(text) == []


@pytest.mark.parametrize("separator", ["\x00", "\x1f", "\u200b", "\u2028", "👋", "—", "_"])
def test_a_character_that_is_not_a_letter_separates_words(separator: str) -> None:
    """Invisible characters, emoji, dashes and underscores separate words as white space does."""
    assert search_tokens(f"tea{separator}house") == ["tea", "hous"]


def test_a_very_long_word_is_cut() -> None:
    """Hashes and base64 do not fill the index: a word of any length gives one token of bounded length."""
    assert [len(token) for token in search_tokens("x" * 10_000)] == [MAX_TOKEN_CHARS]
    assert search_tokens(f"{'y' * 500} tea")[-1] == "tea"


def test_tokens_keep_order_and_repetitions() -> None:
    """A word that occurs twice counts twice in the term frequencies."""
    assert search_tokens("tea, tea and Tea") == ["tea", "tea", "and", "tea"]


@pytest.mark.parametrize("sentence", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_joined_tokens_can_be_split_again(sentence: str) -> None:
    """Splitting tokens that were joined by spaces gives the same tokens."""
    tokens = search_tokens(sentence)
    assert " ".join(tokens).split() == tokens


def test_no_token_contains_punctuation_or_white_space() -> None:
    """The full-text index splits at ASCII punctuation and white space. Checked over all of Unicode."""
    assert [(text, invalid) for text in sample_texts() if (invalid := invalid_tokens(search_tokens(text)))] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 1), ("four", 1), ("fives", 2), ("x" * 4_000, 1_000), ("北京", 2), ("tea 北京", 3), ("👋", 1)],
)
def test_the_token_count_is_estimated(text: str, expected: int) -> None:
    """Four ASCII characters, or one other character, count as one token."""
    assert count_tokens(text) == expected


@pytest.mark.parametrize("sentence", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_the_estimate_stays_within_its_bounds(sentence: str) -> None:
    """Each character is at most one token and at least a quarter. The parts of a text have no fewer tokens than it."""
    count = count_tokens(sentence)
    assert len(sentence) / 4 <= count <= len(sentence)
    for cut in range(len(sentence)):
        assert count <= count_tokens(sentence[:cut]) + count_tokens(sentence[cut:])
        assert count_tokens(sentence[:cut]) <= count


def test_the_end_of_a_long_sentence_without_spaces_has_tokens() -> None:
    """Chinese without punctuation is not cut: the length limit applies to words, not to sentences."""
    assert "上海" in search_tokens("我" * 100 + "上海")


def test_many_threads_get_the_tokens_of_one() -> None:
    """Calls and the background tokenize at the same time; a wrong stem would stay in the full text."""
    texts = [" ".join(f"word{thread}x{number}ings" for number in range(3_000)) for thread in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(len(texts)) as pool:
            together = list(pool.map(search_tokens, texts))
    finally:
        sys.setswitchinterval(interval)
    assert together == [[word.removesuffix("ings") for word in text.split()] for text in texts]


@given(text=st.text(max_size=500), size=st.integers(1, 50))
def test_the_windows_are_the_text(text: str, size: int) -> None:
    """No character may be left out or occur twice."""
    parts = windows(text, size)
    assert "".join(parts) == text
    assert all(len(part) <= size for part in parts)


def test_windows_end_at_white_space() -> None:
    """A word that is cut in two means something else."""
    text = "one two three four five six seven eight nine ten"
    assert {word for part in windows(text, 12) for word in part.split()} == set(text.split())


def test_a_window_that_does_not_fit_is_split_further() -> None:
    """An embedder may count its own tokens."""
    assert windows("abcd", 4, lambda part: len(part) <= 1) == list("abcd")


@pytest.mark.parametrize("question", ["", "Where does Anna live?", "安娜去年搬到了哪里?", " two  spaces "])
def test_a_question_of_usual_length_is_not_cut(question: str) -> None:
    """Only pasted texts are."""
    assert first_words(question) == question


@pytest.mark.parametrize(
    ("word", "most"),
    [("word ", 5 * QUESTION_WORDS), ("x", 800), ("漢", 200), ("длинное слово ", 1_000), ("\u0e01", 200), ("a\n", 200)],
    ids=["English", "no spaces", "Chinese", "Russian", "Thai", "lines"],
)
def test_a_long_question_is_cut_in_any_script(word: str, most: int) -> None:
    """The work for one question is bounded in every language."""
    text = word * 2_000
    cut = first_words(text)
    assert text.startswith(cut)
    assert QUESTION_WORDS < len(cut) <= most


@given(tokens=st.lists(st.sampled_from("abcde"), max_size=40), size=st.integers(1, 10))
def test_the_words_that_stand_together_are_the_most_of_any_window(tokens: list[str], size: int) -> None:
    """Guards the window that moves: it finds as many as looking at every window does."""
    sought = frozenset("abc")
    most = max((len(sought & set(tokens[start : start + size])) for start in range(len(tokens))), default=0)
    assert len(most_words_near(tokens, sought, size)) == most


def test_a_text_of_nothing_but_the_words_sought_takes_linear_time() -> None:
    """Guards every search from one message; this takes minutes if each window is read anew."""
    assert most_words_near(["tea", "milk"] * 200_000, frozenset({"tea", "milk", "cup"}), 60) == {"tea", "milk"}
