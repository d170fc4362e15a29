"""`palimpsest embedder` and `palimpsest reranker` show models, fetch them from their hub and choose one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from palimpsest.embed import hub as hub_module
from palimpsest.embed.hub import catalogue
from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.environment import STATIC_EMBEDDER
from tests.support.model_hub import MODEL, ModelHub, model_hub

TEXTS = ("Anna lives in Lyon", "the violin of Anna is old", "Anna has a violin in Lyon")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[ModelHub]:
    folder = tmp_path / "hub"
    folder.mkdir()
    with model_hub(folder) as served:
        monkeypatch.setattr(hub_module, "CATALOGUE", served.catalogue)
        yield served


def variables(hub: ModelHub) -> dict[str, str]:
    return {STATIC_EMBEDDER[0]: "", "HF_ENDPOINT": hub.endpoint}


def folder_of(folder: Path, name: str = "tiny-embedder") -> Path:
    return folder / "data" / "models" / name


def file_of(folder: Path) -> Path:
    return folder / "data" / "config.toml"


def test_the_catalogue_names_four_embedders_and_pins_every_file() -> None:
    """What is not pinned could change between two machines, and their vectors could not be compared."""
    models = catalogue()
    assert [model.name for model in models.values() if model.kind == "embedder"] == [
        "embeddinggemma-300m",
        "arctic-embed-m-v2",
        "bge-m3",
        "qwen3-embedding-0.6b",
    ]
    assert [model.terms != "" for model in models.values()] == [True, *[False] * 5]
    for model in models.values():
        pins = [model.revision, *(file.sha256 for file in model.files.values())]
        assert [len(pin) for pin in pins] == [40, *[64] * len(model.files)]
        assert all(int(pin, 16) for pin in pins)
        assert "tokenizer.json" in model.files
        assert model.dimensions or model.kind == "reranker"


def test_a_model_is_fetched_once_converts_the_memory_and_can_be_left_again(tmp_path: Path, hub: ModelHub) -> None:
    """The whole way of a person: one command there, one back, and the rest of the settings stays."""
    env = variables(hub)
    for text in TEXTS:
        palimpsest(tmp_path, "add", text, settings=env)
    file_of(tmp_path).write_text('# mine\n[embedder.config]\npooling = "mean"  # of another model\n', "utf-8")
    (shown,) = palimpsest_json(tmp_path, "embedder", settings=env)["models"]
    assert (shown["name"], shown["fetched"], shown["licence"]) == ("tiny-embedder", False, "Strict")
    said = palimpsest(tmp_path, "embedder", "use", "tiny-embedder", answer="n\n", code=1, settings=env)
    assert "https://example.org/terms" in said
    assert "--yes accepts it" in said
    assert hub.got() == []
    chosen = palimpsest_json(tmp_path, "embedder", "use", "tiny-embedder", "--yes", settings=env)
    assert (chosen["effective"], chosen["waiting"]) == (True, 3)
    assert chosen["fingerprint"].startswith("onnx:tiny-embedder:")
    assert hub.got() == [("model_quantized.onnx", ""), ("tokenizer.json", "")]
    text = file_of(tmp_path).read_text("utf-8")
    assert text.startswith("# mine\n")
    assert "pooling" not in text
    assert "pooling" in file_of(tmp_path).with_suffix(".toml.old").read_text("utf-8")
    pooling = json.loads((folder_of(tmp_path) / "1_Pooling" / "config.json").read_text("utf-8"))
    assert pooling == {"pooling_mode_cls_token": True}

    assert "Lyon" in palimpsest(tmp_path, "search", "Lyon", settings=env), "found by its words"
    palimpsest(tmp_path, "rebuild", settings=env)
    shown = palimpsest_json(tmp_path, "embedder", settings=env)
    assert (shown["waiting"], shown["models"][0]["fetched"]) == (0, True)
    found = palimpsest_json(tmp_path, "search", "violin old", settings=env)
    assert found["results"][0]["text"] == TEXTS[1]
    back = palimpsest_json(tmp_path, "embedder", "use", "static", settings=env)
    assert back["waiting"] == 3, "an entry has one vector"
    palimpsest(tmp_path, "rebuild", settings=env)

    again = palimpsest_json(tmp_path, "embedder", "use", "tiny-embedder", settings=env)
    assert again["fingerprint"] == chosen["fingerprint"]
    assert hub.got() == [], "it is there, and its licence was accepted"


def test_an_interrupted_download_goes_on_where_it_ended(
    tmp_path: Path, hub: ModelHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards a slow line: nothing is fetched twice, and until all is there the settings stay."""
    env = variables(hub)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 100)  # what is kept is whole chunks
    hub.cuts = "once"
    said = palimpsest(tmp_path, "embedder", "use", "tiny-embedder", "--yes", code=1, settings=env)
    assert "503" in said
    assert "the same command continues it" in said
    assert not file_of(tmp_path).exists()
    size = len(hub.files[hub.path_of("tiny-embedder")])
    hub.cuts = ""
    hub.got()
    palimpsest(tmp_path, "embedder", "use", "tiny-embedder", "--yes", settings=env)
    assert hub.got() == [("model_quantized.onnx", f"bytes={size // 2 // 100 * 100}-"), ("tokenizer.json", "")]
    assert not list(folder_of(tmp_path).rglob("*.partial"))


def test_another_file_than_the_pinned_one_is_refused(tmp_path: Path, hub: ModelHub) -> None:
    """Guards against a mirror or a proxy that serves something else, and a file that changed later."""
    env, use = variables(hub), ("embedder", "use", "tiny-embedder", "--yes")
    path = hub.path_of("tiny-embedder")
    pinned = hub.files[path]
    hub.files[path] = pinned[:-1] + b"!"
    assert "It is not used" in palimpsest(tmp_path, *use, code=1, settings=env)
    assert not list(folder_of(tmp_path).rglob("*.onnx*"))
    assert not file_of(tmp_path).exists()
    hub.files[path] = pinned
    palimpsest(tmp_path, *use, settings=env)
    hub.got()
    with (folder_of(tmp_path) / MODEL).open("ab") as file:
        file.write(b"\x12\x01x")  # the name of a producer
    said = palimpsest(tmp_path, "search", "Lyon", code=1, settings=env)
    assert "palimpsest embedder use tiny-embedder fetches it again" in said
    palimpsest(tmp_path, *use, settings=env)
    assert hub.got() == [("model_quantized.onnx", "")]
    palimpsest(tmp_path, "search", "Lyon", settings=env)


def test_without_a_network_or_room_a_sentence_says_what_to_do(
    tmp_path: Path, hub: ModelHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is changed, and no traceback is printed."""
    env = {**variables(hub), "HF_ENDPOINT": "http://127.0.0.1:9"}
    said = palimpsest(tmp_path, "reranker", "use", "tiny-reranker", code=1, settings=env)
    assert f"copy {folder_of(tmp_path, 'tiny-reranker')} from another one" in said

    def one_megabyte(_: object) -> SimpleNamespace:
        return SimpleNamespace(free=1_000_000)

    monkeypatch.setattr(shutil, "disk_usage", one_megabyte)
    said = palimpsest(tmp_path, "reranker", "use", "tiny-reranker", code=1, settings=variables(hub))
    assert "1 MB free" in said
    assert "there is no reranker 'tiny-embedder'" in palimpsest(tmp_path, "reranker", "use", "tiny-embedder", code=1)
    assert not file_of(tmp_path).exists()


@pytest.mark.nightly
def test_a_reranker_of_the_hub_orders_the_first_hits(tmp_path: Path, hub: ModelHub) -> None:
    """It is fetched as an embedder is, changes the order, explains itself, and can be left again."""
    env = variables(hub)
    for text in ("Anna has an old violin", "Anna has a red violin", "Anna has a new violin"):
        palimpsest(tmp_path, "add", text, settings=env)

    def found() -> list[dict[str, Any]]:
        return palimpsest_json(tmp_path, "search", "which violin does Anna have", "--explain", settings=env)["results"]

    before = [hit["text"] for hit in found()]
    assert before[0] != "Anna has an old violin"
    chosen = palimpsest_json(tmp_path, "reranker", "use", "tiny-reranker", settings=env)
    assert (chosen["effective"], chosen["folder"]) == (True, str(folder_of(tmp_path, "tiny-reranker")))
    assert "onnx works" in palimpsest(tmp_path, "doctor", settings=env)
    after = found()
    assert after[0]["text"] == "Anna has an old violin"
    assert after[0]["explained"]["reranker"] > 0
    assert {hit["text"] for hit in after} == set(before)
    palimpsest(tmp_path, "reranker", "use", "none", settings=env)
    assert [hit["text"] for hit in found()] == before
