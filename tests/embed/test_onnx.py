"""An embedder from a folder with an ONNX model, as sentence-transformers exports it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palimpsest.core.errors import EmbedderError, SettingsError
from palimpsest.core.protocols import Vector
from palimpsest.core.settings import EmbedderConfig, load_settings
from palimpsest.embed.onnx import OnnxEmbedder
from tests.support.memory import ALICE, memory_in
from tests.support.onnx_model import DIMS, make_model, word_vectors

TEXT = "Anna lives in Lyon"


def opened(folder: Path, **config: Any) -> OnnxEmbedder:
    return OnnxEmbedder(EmbedderConfig(model=str(folder), **config))


PROMPTS = {"config_sentence_transformers.json": {"prompts": {"query": "query: ", "document": "passage: "}}}


def unit(vector: Vector) -> Vector:
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def pooling(name: str) -> dict[str, Any]:
    keys = ("pooling_mode_cls_token", "pooling_mode_mean_tokens", "pooling_mode_lasttoken", "pooling_mode_max_tokens")
    return {"1_Pooling/config.json": {"word_embedding_dimension": DIMS, **{key: key == name for key in keys}}}


def test_the_folder_says_how_tokens_are_pooled(tmp_path: Path) -> None:
    words = word_vectors(TEXT)
    folders = (
        (make_model(tmp_path / "a", model="onnx/model.onnx"), words.mean(axis=0)),
        (make_model(tmp_path / "b", pooling("pooling_mode_cls_token")), words[0]),
        (make_model(tmp_path / "c", pooling("pooling_mode_lasttoken")), words[-1]),
    )
    for folder, expected in folders:
        (vector,) = opened(folder).embed_passages([TEXT])
        np.testing.assert_allclose(vector, unit(expected), atol=1e-5, err_msg=str(folder))
    # A wrong one would give vectors that find nothing.
    folder = make_model(tmp_path / "d", pooling("pooling_mode_max_tokens"))
    with pytest.raises(EmbedderError, match=r"pooling_mode_max_tokens.*embedder\.config\.pooling"):
        opened(folder)
    assert opened(folder, pooling="cls").embed_passages([TEXT]).shape == (1, DIMS)


def test_the_folder_says_what_precedes_questions_and_passages(tmp_path: Path) -> None:
    folder = make_model(tmp_path, PROMPTS)
    embedder = opened(folder)
    question, passage = embedder.embed_queries([TEXT])[0], embedder.embed_passages([TEXT])[0]
    np.testing.assert_allclose(question, unit(word_vectors(f"query: {TEXT}").mean(axis=0)), atol=1e-5)
    np.testing.assert_allclose(passage, unit(word_vectors(f"passage: {TEXT}").mean(axis=0)), atol=1e-5)
    plain = opened(folder, query_prefix="", passage_prefix="")
    np.testing.assert_array_equal(plain.embed_queries([TEXT])[0], plain.embed_passages([TEXT])[0])


def test_a_missing_or_damaged_file_is_named(tmp_path: Path) -> None:
    for name in ("model.onnx", "tokenizer.json"):
        (make_model(tmp_path / "missing") / name).unlink()
        with pytest.raises(EmbedderError, match=name):
            opened(tmp_path / "missing")
    for name in ("model.onnx", "tokenizer.json", "sentence_bert_config.json"):
        folder = make_model(tmp_path / f"damaged {name}")
        (folder / name).write_text("not what it should be")
        with pytest.raises(EmbedderError, match=str(folder)):
            opened(folder)
    with pytest.raises(SettingsError, match=r"embedder\.config\.model"):
        load_settings(data_dir=tmp_path, embedder={"provider": "onnx"})


@pytest.mark.anyio
async def test_a_memory_works_with_it(tmp_path: Path) -> None:
    config = {"model": str(make_model(tmp_path / "model", PROMPTS)), "max_tokens": 64}
    async with memory_in(tmp_path / "data", embedder={"provider": "onnx", "config": config}) as memory:
        await memory.add_text(ALICE, "Anna lives in Lyon")
        await memory.add_text(ALICE, "the violin is old")
        assert (await memory.search(ALICE, "lyon")).hits[0].text == "Anna lives in Lyon"
        assert (await memory.health())["vectors"] == "complete"


def test_a_decoder_begins_with_an_empty_cache(tmp_path: Path) -> None:
    """Decoders as embedders, such as Qwen3-Embedding, are exported with the inputs of a model that writes."""
    plain, decoder = make_model(tmp_path / "a"), make_model(tmp_path / "b", model="onnx/model_q4.onnx", has_cache=True)
    first, second = (opened(folder).embed_passages([TEXT]) for folder in (plain, decoder))
    np.testing.assert_array_equal(first, second)
