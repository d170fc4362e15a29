"""Texts held against a question word by word, by what the words mean and by how they are spelt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from palimpsest.core.protocols import Vector
from palimpsest.embed import static
from palimpsest.embed.static import LocalEmbedder
from palimpsest.text.late_interaction import meaning_similarity, spelling_similarity
from palimpsest.text.tokenizer import query_tokens


@pytest.fixture(scope="module")
def embedder() -> LocalEmbedder:
    return LocalEmbedder()


def weights(question: str) -> dict[str, float]:
    """Return the same weight for every token of a question."""
    return dict.fromkeys(query_tokens(question), 1.0)


def likeness(embedder: LocalEmbedder, question: str, *texts: str) -> list[float]:
    """Return the likeness in wording of texts to a question."""
    found = meaning_similarity(embedder, question, weights(question), texts)
    assert found is not None
    return [float(each) for each in found]


class TestWording:
    def test_a_text_with_a_word_of_like_meaning_is_nearer(self, embedder: LocalEmbedder) -> None:
        """Guards what it is for: one word among many that is near one that is asked for."""
        near, far = likeness(
            embedder,
            "When were the teeth checked?",
            "On the way home from the office Ana stopped at the dentist and then bought flowers",
            "On the way home from the office Ana stopped at the market and then bought flowers",
        )
        assert near > far

    def test_the_very_word_is_as_near_as_can_be(self, embedder: LocalEmbedder) -> None:
        """Guards the scale: 1 where every asked word stands in the text."""
        assert likeness(embedder, "violin lessons", "Violin lessons are on Monday")[0] == pytest.approx(1, abs=0.01)

    def test_a_rare_word_counts_more(self, embedder: LocalEmbedder) -> None:
        """Guards the weights: what is asked for is what tells texts apart."""
        texts = ["The violin is old", "The lessons are long"]
        found = meaning_similarity(embedder, "violin lessons", {**weights("violin lessons"), "violin": 5.0}, texts)
        assert found is not None
        assert found[0] > found[1]

    def test_a_word_without_weight_counts_nothing(self, embedder: LocalEmbedder) -> None:
        """Guards names of speakers, which say who and not what."""
        assert meaning_similarity(embedder, "violin", {}, ["The violin is old"]) is None

    def test_a_text_without_words_is_far(self, embedder: LocalEmbedder) -> None:
        """Guards a turn that is nothing but signs."""
        empty, other = likeness(embedder, "violin", "!?", "The violin is old")
        assert empty < other

    def test_no_texts_are_no_error(self, embedder: LocalEmbedder) -> None:
        """Guards an empty memory."""
        assert meaning_similarity(embedder, "violin", weights("violin"), []) is None

    def test_an_embedder_without_words_tells_nothing(self) -> None:
        """Guards embedders that have to read a whole text."""

        class Whole:
            fingerprint = "whole"

            def embed(self, texts: Sequence[str]) -> Vector:
                """Return one vector for all."""
                return np.ones((len(texts), 2), dtype=np.float32)

            def embed_words(self, words: Sequence[str]) -> None:
                """Return None."""
                del words

        assert meaning_similarity(Whole(), "violin", weights("violin"), ["The violin is old"]) is None


class TestWordVectors:
    def test_they_are_those_of_the_embedder(self, embedder: LocalEmbedder) -> None:
        """Guards what is kept against what is made, to half precision."""
        words = ["violin", "dentist", "violin"]
        for _ in range(2):
            np.testing.assert_allclose(embedder.embed_words(words), embedder.embed(words), atol=1e-3)

    def test_they_are_right_beyond_what_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Guards the bound on memory: what is dropped is made again."""
        monkeypatch.setattr(static, "MAX_KEPT", 4)
        local = LocalEmbedder()
        for words in (["one", "two", "three"], ["three", "four", "five"], ["one", "six", "seven", "eight", "nine"]):
            np.testing.assert_allclose(local.embed_words(words), local.embed(words), atol=1e-3)


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
        """Guards forms that no stemmer brings together."""
        found = spelling_similarity(weights(question), [far, near])
        assert found is not None
        assert found[1] > found[0]

    def test_the_word_itself_is_nearest_and_a_stranger_is_far(self) -> None:
        """Guards the scale: 1 for the same tokens, 0 for none that are alike."""
        found = spelling_similarity(weights("Bahnhof"), ["Bahnhof", "Fähre", "?"])
        assert found is not None
        np.testing.assert_allclose(found, [1, 0, 0], atol=1e-6)

    def test_nothing_asked_tells_nothing(self) -> None:
        """Guards a question of function words alone."""
        assert spelling_similarity({}, ["Fähre"]) is None
