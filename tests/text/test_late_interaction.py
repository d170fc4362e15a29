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


class TestMeaning:
    def test_a_text_with_a_word_of_similar_meaning_is_nearer(self, embedder: StaticEmbedder) -> None:
        """One word among many is enough, if its meaning is close to a word of the question."""
        near, far = similarities(
            embedder,
            "When were the teeth checked?",
            "On the way home from the office Ana stopped at the dentist and then bought flowers",
            "On the way home from the office Ana stopped at the market and then bought flowers",
        )
        assert near > far

    def test_the_same_words_have_the_highest_similarity(self, embedder: StaticEmbedder) -> None:
        """The similarity is 1 if every word of the question is in the text."""
        similarity = similarities(embedder, "violin lessons", "Violin lessons are on Monday")
        assert similarity[0] == pytest.approx(1, abs=0.01)

    def test_a_word_with_more_weight_counts_more(self, embedder: StaticEmbedder) -> None:
        """Rare words of a question have more weight, because they distinguish texts."""
        texts = ["The violin is old", "The lessons are long"]
        weighted = {**weights("violin lessons"), "violin": 5.0}
        similarity = meaning_similarity(embedder, "violin lessons", texts, weighted)
        assert similarity is not None
        assert similarity[0] > similarity[1]

    def test_a_word_without_weight_does_not_count(self, embedder: StaticEmbedder) -> None:
        """The names of speakers have no weight, because they say who is meant and not what."""
        assert meaning_similarity(embedder, "violin", ["The violin is old"], {}) is None

    def test_a_text_without_words_has_the_lowest_similarity(self, embedder: StaticEmbedder) -> None:
        """A message can consist of punctuation only."""
        empty, other = similarities(embedder, "violin", "!?", "The violin is old")
        assert empty < other

    def test_without_texts_there_is_no_similarity(self, embedder: StaticEmbedder) -> None:
        """A search of an empty memory compares nothing, and raises no error."""
        assert meaning_similarity(embedder, "violin", [], weights("violin")) is None

    def test_an_embedder_without_word_vectors_gives_no_similarity(self) -> None:
        """Embedders that read whole texts have no word vectors."""
        embedder, texts = WholeTextEmbedder(), ["The violin is old"]
        assert meaning_similarity(embedder, "violin", texts, weights("violin")) is None
        assert gist_similarity(embedder, "violin", texts) is None
        assert least_similar_word(embedder, "violin lessons", texts[0]) is None


class TestWordVectors:
    def test_they_are_equal_to_the_vectors_of_the_embedder(self, embedder: StaticEmbedder) -> None:
        """Cached word vectors equal computed ones, within half precision."""
        words = ["violin", "dentist", "violin"]
        for _ in range(2):
            np.testing.assert_allclose(embedder.embed_words(words), embedder.embed_passages(words), atol=1e-3)

    def test_they_are_right_when_the_cache_is_full(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Vectors that were dropped from the cache are computed again."""
        monkeypatch.setattr(static, "MAX_KEPT", 4)
        local = StaticEmbedder()
        for words in (["one", "two", "three"], ["three", "four", "five"], ["one", "six", "seven", "eight", "nine"]):
            np.testing.assert_allclose(local.embed_words(words), local.embed_passages(words), atol=1e-3)


class TestGist:
    """Texts are compared as a whole, by the mean of the vectors of their words."""

    def test_a_text_about_the_same_is_more_similar(self, embedder: StaticEmbedder) -> None:
        """No word is shared, and the second text is about another matter."""
        similarity = gist_similarity(embedder, "music lessons", ["She teaches the piano", "The parcel came late"])
        assert similarity is not None
        assert similarity[0] > similarity[1]

    def test_texts_without_words_are_not_similar(self, embedder: StaticEmbedder) -> None:
        """A question of punctuation, and an empty text, do not divide by zero."""
        similarity = gist_similarity(embedder, "?!", ["", "The violin is old"])
        assert similarity is not None
        assert np.isfinite(similarity).all()


class TestLeastSimilarWord:
    """The word of the question that the text knows least of."""

    def test_a_word_without_a_match_decides(self, embedder: StaticEmbedder) -> None:
        """The text knows the dog, and nothing of a passport."""
        text = "The dog is a beagle"
        known, unknown = (least_similar_word(embedder, asked, text) for asked in ("the dog", "the passport of the dog"))
        assert known == 1
        assert unknown is not None
        assert unknown < 0.8

    def test_a_question_without_words_has_none(self, embedder: StaticEmbedder) -> None:
        """Punctuation is no word."""
        assert least_similar_word(embedder, "?!", "The dog is a beagle") is None


class TestSpelling:
    @pytest.mark.parametrize(
        ("question", "near", "far"),
        [
            ("Eigentümer des Hauses", "Die Häuser am Deich", "Der Hausarzt in Husum ist alt"),
            ("noch nicht geschwommen", "Vera hat nie schwimmen gelernt", "Vera wohnt am See"),
            ("Что пугает пса?", "Пёс боится фейерверков", "Кот боится собаки"),
            ("Где найти Льва?", "Лев уехал на Камчатку", "Дед вернулся домой"),
        ],
        ids=["umlaut", "strong verb", "fleeting vowel", "name with one"],
    )
    def test_another_form_of_a_word_is_nearer(self, question: str, near: str, far: str) -> None:
        """The spelling relates word forms that no stemmer does."""
        similarity = spelling_similarity(weights(question), [far, near])
        assert similarity is not None
        assert similarity[1] > similarity[0]

    def test_the_same_word_has_1_and_another_word_0(self) -> None:
        """The similarity is 1 for the same word, and 0 if no word is similar."""
        similarity = spelling_similarity(weights("Bahnhof"), ["Bahnhof", "Fähre", "?"])
        assert similarity is not None
        np.testing.assert_allclose(similarity, [1, 0, 0], atol=1e-6)

    def test_a_question_without_tokens_gives_no_similarity(self) -> None:
        """A question of function words only has no tokens to compare."""
        assert spelling_similarity({}, ["Fähre"]) is None
