"""Search tokens, token counts, windows of long texts and the first words of questions."""

from __future__ import annotations

import json
import string
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from palimpsest.text.tokenizer import (
    MAX_TOKEN_CHARS,
    QUESTION_WORDS,
    count_tokens,
    first_words,
    most_words_near,
    search_tokens,
    sentences,
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

CASES: dict[str, list[Any]] = json.loads(Path(__file__).with_name("tokens.json").read_text("utf-8"))


def test_a_query_shares_the_tokens_of_a_text() -> None:
    for text, query in CASES["another form of a word shares its token"]:
        assert len(set(search_tokens(text)).intersection(search_tokens(query))) >= len(query.split()), text
    for text, query in CASES["the same tokens"]:
        assert search_tokens(text) == search_tokens(query), text
    for text, query in CASES["found inside text without spaces"]:
        assert set(search_tokens(query)) <= set(search_tokens(text)), text


def test_texts_have_these_tokens() -> None:
    for text, expected in CASES["tokens"]:
        assert search_tokens(text) == expected, text
    assert search_tokens("\ud83d") == [], "a lone surrogate is no error"


def test_no_token_contains_what_the_full_text_index_cannot_store() -> None:
    """Of any character, also in the midst of a word. Hashes and base64 do not fill the index."""
    chars = (chr(code) for code in range(0, 0x110000, 11))
    for text in (*SCRIPTS.values(), *(f"{char}a{char}{char}Я{char}ب北{char}" for char in chars)):
        tokens = search_tokens(text)
        assert " ".join(tokens).split() == tokens, text
        assert not set("".join(tokens)) & set(string.punctuation), text
    assert [len(token) for token in search_tokens("x" * 10_000)] == [MAX_TOKEN_CHARS]


def test_the_token_count_is_estimated() -> None:
    for text, expected in CASES["counts"]:
        assert count_tokens(text) == expected, text
    for sentence in SCRIPTS.values():
        assert len(sentence) / 4 <= count_tokens(sentence) <= len(sentence)


def test_many_threads_get_the_tokens_of_one() -> None:
    """Calls and the background tokenize at the same time; a wrong stem would stay in the full text."""
    texts = [" ".join(f"word{thread}x{number}ings" for number in range(1_000)) for thread in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(len(texts)) as pool:
            together = list(pool.map(search_tokens, texts))
    finally:
        sys.setswitchinterval(interval)
    assert together == [[word.removesuffix("ings") for word in text.split()] for text in texts]


def test_windows_end_at_white_space_and_fit() -> None:
    """A word that is cut in two means something else. An embedder may count its own tokens."""
    text = "one two three four five six seven eight nine ten"
    assert {word for part in windows(text, 12) for word in part.split()} == set(text.split())
    assert windows("abcd", 4, lambda part: len(part) <= 1) == list("abcd")


@pytest.mark.parametrize(
    ("word", "most"),
    [("word ", 5 * QUESTION_WORDS), ("x", 800), ("漢", 200), ("a\n", 200)],
    ids=["English", "no spaces", "Chinese", "lines"],
)
def test_a_long_question_is_cut_in_any_script(word: str, most: int) -> None:
    for question in ("", "Where does Anna live?", "安娜去年搬到了哪里?", " two  spaces "):
        assert first_words(question) == question
    text = word * 2_000
    cut = first_words(text)
    assert text.startswith(cut)
    assert QUESTION_WORDS < len(cut) <= most


def test_a_text_of_nothing_but_the_words_sought_takes_linear_time() -> None:
    """Guards every search from one message; this takes minutes if each window is read anew."""
    assert most_words_near(["tea", "milk"] * 200_000, frozenset({"tea", "milk", "cup"}), 60) == {"tea", "milk"}


# What a full stop ends, and what has one that ends nothing.
ONE_SENTENCE = (
    "Lotte hat am 10. Dezember 2026 um 15:30 Uhr einen Termin beim Kieferorthopäden Dr. Santos in der Königsstraße.",
    "Der Chor St. Martin singt am 20. Dezember um 17 Uhr; Generalprobe ist vom 18. bis 19. Dezember um 14 Uhr.",
    "Frau Dr. med. J. Schmidt, geb. Müller, wohnt in der Goethestr. 12 im 3. Stock, z. B. ab 1. Jan. 2027.",
    "Dr. A. B. Smith vs. Prof. Jones, e. g. at approx. 5 p.m. on Jan. 5, No. 7 St. James St. today.",
    "La Sra. Ruiz vive en la Avda. de la Paz, p. ej. en el núm. 5.",
    "Mme. Dupont et M. Martin, p. ex. à env. 5 km.",
    "Il Sig. Rossi e la Prof.ssa Bianchi, ad es. alle 5.",
    "Spotkanie z dr. Nowakiem 3. maja przy ul. Długiej 5 o godz. 15.",
    "Он живет на ул. Ленина, д. 5, кв. 3, т. е. рядом.",  # noqa: RUF001 - Russian is meant
)
TWO_SENTENCES = (
    "I am 34. She lives in Wels.",
    "He was born in 1990. He lives in Wels.",
    "She said no. Then she left.",
    "Er arbeitet von 8 bis 10. Danach geht er.",
    "Ele vai às 10. Depois volta.",
    "use pnpm. never npm.",
    "Anna weiß es. Sie hat es gesagt.",
    "Il a mal à une dent. Il va chez le dentiste.",
    "She left two years ago. 5 people came.",
    'He said "stop." Then he left.',
    "她住在北京。他也是。",
    "one line\nanother",
)


def test_a_full_stop_behind_a_number_or_a_short_form_ends_no_sentence() -> None:
    assert {text: sentences(text) for text in ONE_SENTENCE} == {text: [text] for text in ONE_SENTENCE}
    assert {text: len(sentences(text)) for text in TWO_SENTENCES} == dict.fromkeys(TWO_SENTENCES, 2)
    assert "".join(sentences(" ".join(TWO_SENTENCES))) == " ".join(TWO_SENTENCES)


@pytest.mark.parametrize("part", ["am 1. ", "a.", '!"', "str", "。", " 1", "."])
def test_sentences_take_linear_time(part: str) -> None:
    assert "".join(sentences(part * 50_000)) == part * 50_000
