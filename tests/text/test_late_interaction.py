"""Texts compared with a question word by word, by the meaning of the words and by their spelling."""

from __future__ import annotations

import numpy as np
import pytest

from palimpsest.embed import static
from palimpsest.embed.static import StaticEmbedder
from palimpsest.text.tokenizer import query_tokens
from palimpsest.text.word_similarity import gist_similarity, least_similar_word, meaning_similarity, spelling_similarity
from tests.support.watched_embedder import WholeTextEmbedder


@pytest.fixture(scope="module")
def embedder() -> StaticEmbedder:
    return StaticEmbedder()


def weights(question: str) -> dict[str, float]:
    """Return the same weight for every search token of a question."""
    return dict.fromkeys(query_tokens(question), 1.0)


def similarities(embedder: StaticEmbedder, question: str, *texts: str) -> list[float]:
    """Return how similar texts are to a question in the meaning of their words."""
    similarity = meaning_similarity(embedder, question, texts, weights(question))
    assert similarity is not None
    return [float(number) for number in similarity]


def test_a_text_with_a_word_of_similar_meaning_is_nearer(embedder: StaticEmbedder) -> None:
    """One word among many is enough; the same words have 1, and a text of punctuation only is the farthest."""
    near, far = similarities(
        embedder,
        "When were the teeth checked?",
        "On the way home from the office Ana stopped at the dentist and then bought flowers",
        "On the way home from the office Ana stopped at the market and then bought flowers",
    )
    assert near > far
    (same,) = similarities(embedder, "violin lessons", "Violin lessons are on Monday")
    assert same == pytest.approx(1, abs=0.01)
    empty, other = similarities(embedder, "violin", "!?", "The violin is old")
    assert empty < other


def test_a_word_with_more_weight_counts_more(embedder: StaticEmbedder) -> None:
    """Rare words of a question have more weight, because they distinguish texts."""
    texts = ["The violin is old", "The lessons are long"]
    similarity = meaning_similarity(embedder, "violin lessons", texts, {**weights("violin lessons"), "violin": 5.0})
    assert similarity is not None
    assert similarity[0] > similarity[1]


def test_what_cannot_be_compared_has_no_similarity(embedder: StaticEmbedder) -> None:
    """Words without weight, no texts, embedders that read whole texts, questions of punctuation or function words."""
    texts = ["The violin is old"]
    assert meaning_similarity(embedder, "violin", texts, {}) is None
    assert meaning_similarity(embedder, "violin", [], weights("violin")) is None
    whole = WholeTextEmbedder()
    assert meaning_similarity(whole, "violin", texts, weights("violin")) is None
    assert gist_similarity(whole, "violin", texts) is None
    assert least_similar_word(whole, "violin lessons", texts[0]) is None
    assert least_similar_word(embedder, "?!", "The dog is a beagle") is None
    assert spelling_similarity({}, ["Fähre"]) is None


def test_cached_word_vectors_equal_those_of_the_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within half precision; those that were dropped from the cache are computed again."""
    monkeypatch.setattr(static, "MAX_KEPT", 4)
    local = StaticEmbedder()
    asked = (["violin", "dentist", "violin"],) * 2
    more = (["one", "two", "three"], ["three", "four", "five"], ["one", "six", "seven", "eight", "nine"])
    for words in (*asked, *more):
        np.testing.assert_allclose(local.embed_words(words), local.embed_passages(words), atol=1e-3)


def test_a_text_about_the_same_has_a_similar_gist(embedder: StaticEmbedder) -> None:
    """No word is shared, and the second text is about another matter. Texts without words do not divide by zero."""
    similarity = gist_similarity(embedder, "music lessons", ["She teaches the piano", "The parcel came late"])
    assert similarity is not None
    assert similarity[0] > similarity[1]
    similarity = gist_similarity(embedder, "?!", ["", "The violin is old"])
    assert similarity is not None
    assert np.isfinite(similarity).all()


def test_a_word_without_a_match_decides(embedder: StaticEmbedder) -> None:
    """The text knows the dog, and nothing of a passport."""
    text = "The dog is a beagle"
    known, unknown = (least_similar_word(embedder, asked, text) for asked in ("the dog", "the passport of the dog"))
    assert known == 1
    assert unknown is not None
    assert unknown < 0.8


SPELLED = {
    "Eigentümer des Hauses": ("Die Häuser am Deich", "Der Hausarzt in Husum ist alt"),
    "noch nicht geschwommen": ("Vera hat nie schwimmen gelernt", "Vera wohnt am See"),
    "Что пугает пса?": ("Пёс боится фейерверков", "Кот боится собаки"),
    "Где найти Льва?": ("Лев уехал на Камчатку", "Дед вернулся домой"),
}


def test_another_form_of_a_word_is_nearer() -> None:
    """The spelling relates word forms that no stemmer does: 1 for the same word, and 0 if no word is similar."""
    for question, (near, far) in SPELLED.items():
        similarity = spelling_similarity(weights(question), [far, near])
        assert similarity is not None
        assert similarity[1] > similarity[0], question
    similarity = spelling_similarity(weights("Bahnhof"), ["Bahnhof", "Fähre", "?"])
    assert similarity is not None
    np.testing.assert_allclose(similarity, [1, 0, 0], atol=1e-6)
