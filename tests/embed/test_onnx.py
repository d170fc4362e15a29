"""An embedder from a folder with an ONNX model, as sentence-transformers exports it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palimpsest.core.errors import EmbedderError, SettingsError
from palimpsest.core.protocols import Vector
from palimpsest.core.settings import load_settings
from palimpsest.embed.onnx import OnnxEmbedder, OnnxSettings
from tests.support.memory import ALICE, memory_in
from tests.support.onnx_model import DIMS, make_model, word_vectors

TEXT = "Anna lives in Lyon"
PROMPTS = {"config_sentence_transformers.json": {"prompts": {"query": "query: ", "document": "passage: "}}}


def unit(vector: Vector) -> Vector:
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def mean(tokens: Vector) -> Vector:
    return tokens.mean(axis=0)


def first(tokens: Vector) -> Vector:
    return tokens[0]


def last(tokens: Vector) -> Vector:
    return tokens[-1]


def opened(folder: Path, **settings: Any) -> OnnxEmbedder:
    return OnnxEmbedder(folder, OnnxSettings(**settings))


def pooling(name: str) -> dict[str, Any]:
    keys = ("pooling_mode_cls_token", "pooling_mode_mean_tokens", "pooling_mode_lasttoken", "pooling_mode_max_tokens")
    return {"1_Pooling/config.json": {"word_embedding_dimension": DIMS, **{key: key == name for key in keys}}}


class TestFolder:
    @pytest.mark.parametrize("model", ["model.onnx", "onnx/model.onnx"])
    def test_the_mean_of_the_tokens_is_the_vector(self, tmp_path: Path, model: str) -> None:
        """A folder without further files is used with the most common settings."""
        (vector,) = opened(make_model(tmp_path, model=model)).embed_passages([TEXT])
        np.testing.assert_allclose(vector, unit(word_vectors(TEXT).mean(axis=0)), atol=1e-5)

    @pytest.mark.parametrize(
        ("key", "pooled"),
        [
            ("pooling_mode_mean_tokens", mean),
            ("pooling_mode_cls_token", first),
            ("pooling_mode_lasttoken", last),
        ],
    )
    def test_the_folder_says_how_tokens_are_pooled(
        self, tmp_path: Path, key: str, pooled: Callable[[Vector], Vector]
    ) -> None:
        """Models are trained with one of them."""
        (vector,) = opened(make_model(tmp_path, pooling(key))).embed_passages([TEXT])
        np.testing.assert_allclose(vector, unit(pooled(word_vectors(TEXT))), atol=1e-5)

    def test_an_unknown_pooling_is_refused_unless_the_settings_name_another(self, tmp_path: Path) -> None:
        """A wrong one would give vectors that find nothing."""
        folder = make_model(tmp_path, pooling("pooling_mode_max_tokens"))
        with pytest.raises(EmbedderError, match=r"pooling_mode_max_tokens.*embedder\.config\.pooling"):
            opened(folder)
        assert opened(folder, pooling="cls").embed_passages([TEXT]).shape == (1, DIMS)

    def test_the_folder_says_what_precedes_questions_and_passages(self, tmp_path: Path) -> None:
        """The prefixes of the settings win."""
        folder = make_model(tmp_path, PROMPTS)
        embedder = opened(folder)
        question, passage = embedder.embed_query(TEXT), embedder.embed_passages([TEXT])[0]
        np.testing.assert_allclose(question, unit(word_vectors(f"query: {TEXT}").mean(axis=0)), atol=1e-5)
        np.testing.assert_allclose(passage, unit(word_vectors(f"passage: {TEXT}").mean(axis=0)), atol=1e-5)
        plain = opened(folder, query_prefix="", passage_prefix="")
        np.testing.assert_array_equal(plain.embed_query(TEXT), plain.embed_passages([TEXT])[0])

    @pytest.mark.parametrize(
        ("configs", "settings", "limit"),
        [
            ({"sentence_bert_config.json": {"max_seq_length": 8}}, {}, 8),
            ({"tokenizer_config.json": {"model_max_length": 9}}, {}, 9),
            ({"tokenizer_config.json": {"model_max_length": 1e30}}, {}, 512),
            ({"sentence_bert_config.json": {"max_seq_length": 8}}, {"max_tokens": 6}, 6),
        ],
        ids=["sentence_bert_config.json", "tokenizer_config.json", "no limit", "the settings"],
    )
    def test_the_folder_says_how_long_a_window_is(
        self, tmp_path: Path, configs: dict[str, Any], settings: dict[str, Any], limit: int
    ) -> None:
        """Of a longer text the first window is read, and the windows are the text."""
        embedder = opened(make_model(tmp_path, configs), **settings)
        text = "violin " * 2_000
        windows = embedder.windows(text)
        assert "".join(windows) == text
        assert max(len(window.split()) for window in windows) <= limit - 2, "without [CLS] and [SEP]"
        assert embedder.windows("violin " * (limit - 2)) == ["violin " * (limit - 2)]
        whole, cut = embedder.embed_passages([text, "violin " * (limit - 2)])
        np.testing.assert_allclose(whole, cut, atol=1e-5)

    def test_another_model_or_another_use_of_it_has_another_fingerprint(self, tmp_path: Path) -> None:
        """Vectors of both must not be compared."""
        folder = make_model(tmp_path / "model")
        first = opened(folder)
        assert first.fingerprint == opened(make_model(tmp_path / "copy" / "model")).fingerprint
        assert first.fingerprint.startswith("onnx:model:")
        assert len({first.fingerprint, *(opened(folder, pooling=way).fingerprint for way in ("cls", "last"))}) == 3
        with (folder / "model.onnx").open("ab") as file:
            file.write(b"\x12\x01x")  # the name of a producer
        assert opened(folder).fingerprint != first.fingerprint


class TestTexts:
    @pytest.mark.parametrize("text", ["", "\0", "\ud800", "x" * 1_000_000, "日本語", "\n" * 1_000])
    def test_every_text_has_a_vector_of_length_one(self, tmp_path: Path, text: str) -> None:
        """A text that a model cannot read must not stop the others."""
        embedder = opened(make_model(tmp_path))
        vectors = embedder.embed_passages([text, TEXT], background=True)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
        np.testing.assert_allclose(embedder.embed_query(text), vectors[0], atol=1e-5)

    def test_no_texts_have_no_vectors(self, tmp_path: Path) -> None:
        """A stack of nothing would be an error."""
        assert opened(make_model(tmp_path)).embed_passages([]).shape == (0, DIMS)


class TestErrors:
    @pytest.mark.parametrize("missing", ["model.onnx", "tokenizer.json"])
    def test_a_missing_file_is_named(self, tmp_path: Path, missing: str) -> None:
        """The folder may be another one than was meant."""
        (make_model(tmp_path) / missing).unlink()
        with pytest.raises(EmbedderError, match=missing):
            opened(tmp_path)

    @pytest.mark.parametrize("damaged", ["model.onnx", "tokenizer.json", "sentence_bert_config.json"])
    def test_a_damaged_file_is_an_error_of_ours(self, tmp_path: Path, damaged: str) -> None:
        """A download may be cut off."""
        (make_model(tmp_path) / damaged).write_text("not what it should be")
        with pytest.raises(EmbedderError, match=str(tmp_path)):
            opened(tmp_path)

    def test_the_settings_need_a_folder(self, tmp_path: Path) -> None:
        """The error names the setting."""
        with pytest.raises(SettingsError, match=r"embedder\.config\.model"):
            load_settings(data_dir=tmp_path, embedder={"provider": "onnx"})


@pytest.mark.anyio
async def test_a_memory_works_with_it(tmp_path: Path) -> None:
    """The settings choose it, and its vectors are searched."""
    config = {"model": str(make_model(tmp_path / "model", PROMPTS)), "max_tokens": 64}
    async with memory_in(tmp_path / "data", embedder={"provider": "onnx", "config": config}) as memory:
        await memory.add_text(ALICE, "Anna lives in Lyon")
        await memory.add_text(ALICE, "the violin is old")
        assert (await memory.search(ALICE, "lyon")).hits[0].text == "Anna lives in Lyon"
        assert (await memory.health())["vectors"] == "complete"
