"""`palimpsest embedder` shows the embedders and changes the one in use."""

from __future__ import annotations

from pathlib import Path

from palimpsest.embed.e5 import E5Embedder
from palimpsest.embed.static import StaticEmbedder
from tests.support.command_line import palimpsest, palimpsest_json
from tests.support.environment import STATIC_EMBEDDER
from tests.support.onnx_model import make_model

# No variable chooses an embedder.
FROM_THE_FILE = {STATIC_EMBEDDER[0]: ""}


def test_it_shows_what_there_is_and_what_is_in_use(tmp_path: Path) -> None:
    palimpsest(tmp_path, "add", "User's dog Rex is old")
    shown = palimpsest_json(tmp_path, "embedder")
    assert (shown["provider"], shown["fingerprint"]) == ("static", StaticEmbedder().fingerprint)
    assert shown["waiting"] == 0
    assert set(shown["embedders"]) == {"local", "e5", "static", "onnx", "openai", "chroma"}
    text = palimpsest(tmp_path, "embedder", settings=FROM_THE_FILE)
    assert f"in use: {E5Embedder().fingerprint} (local)" in text
    assert "until then: 1 text." in text


def test_another_embedder_is_written_into_the_settings_file(tmp_path: Path) -> None:
    """The rest of the file stays, and the person is told what happens next."""
    palimpsest(tmp_path, "add", "User's dog Rex is old")
    file = tmp_path / "data" / "config.toml"
    file.write_text("# mine\n[llm]\nprovider = 'none'\n", "utf-8")
    text = palimpsest(tmp_path, "embedder", "use", "e5", settings=FROM_THE_FILE)
    assert f"{file}: embedder = e5 ({E5Embedder().fingerprint})" in text
    assert "until then: 1 text." in text
    assert file.read_text("utf-8").startswith("# mine\n[llm]\nprovider = 'none'\n")
    assert palimpsest_json(tmp_path, "embedder", settings=FROM_THE_FILE)["provider"] == "e5"
    assert "Rex" in palimpsest(tmp_path, "search", "Rex", settings=FROM_THE_FILE), "found by its words"
    palimpsest(tmp_path, "rebuild", settings=FROM_THE_FILE)
    shown = palimpsest_json(tmp_path, "embedder", settings=FROM_THE_FILE)
    assert (shown["fingerprint"], shown["waiting"]) == (E5Embedder().fingerprint, 0)


def test_a_variable_that_overrides_the_file_is_named(tmp_path: Path) -> None:
    """Else the change would have no effect, and nobody would know why."""
    assert not palimpsest_json(tmp_path, "embedder", "use", "e5")["effective"]
    assert "an environment variable (PALIMPSEST_EMBEDDER__" in palimpsest(tmp_path, "embedder", "use", "e5")


def test_an_embedder_that_cannot_be_used_is_not_chosen(tmp_path: Path) -> None:
    said = palimpsest(tmp_path, "embedder", "use", "onnx", code=1, settings=FROM_THE_FILE)
    assert "embedder.config.model" in said
    assert "Nothing was changed" in said
    (tmp_path / "data").mkdir(exist_ok=True)
    file = tmp_path / "data" / "config.toml"
    file.write_text(f'[embedder.config]\nmodel = "{tmp_path / "nothing"}"\n', "utf-8")
    before = file.read_text("utf-8")
    assert "no model.onnx" in palimpsest(tmp_path, "embedder", "use", "onnx", code=1, settings=FROM_THE_FILE)
    assert file.read_text("utf-8") == before
    make_model(tmp_path / "nothing")
    assert "onnx:nothing:" in palimpsest(tmp_path, "embedder", "use", "onnx", settings=FROM_THE_FILE)


def test_a_server_that_cannot_open_its_embedder_still_shows_the_others(tmp_path: Path) -> None:
    """It is the command by which the person finds another one."""
    settings = {STATIC_EMBEDDER[0]: "onnx", "PALIMPSEST_EMBEDDER__CONFIG__MODEL": str(tmp_path)}
    shown = palimpsest_json(tmp_path, "embedder", settings=settings)
    assert "no model.onnx" in shown["fingerprint"]
    assert len(shown["embedders"]) == 6
