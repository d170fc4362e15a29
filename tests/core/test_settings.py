"""The settings: their sources, which source wins, and errors that name the key and the nearest known one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.errors import SettingsError
from palimpsest.core.settings import load_settings
from palimpsest.learn.engine import open_model


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove every environment variable that is a setting, and hide the user's own settings file."""
    for variable in list(os.environ):
        if variable.upper().startswith(("PALIMPSEST_", "OPENAI_")):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data-home"))


def settings_file(folder: Path, text: str, name: str = "settings.toml") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def set_variables(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(f"PALIMPSEST_{name}", value)


def refusal(config_file: Path | None = None, **overrides: Any) -> str:
    with pytest.raises(SettingsError) as error:
        load_settings(config_file, **overrides)
    return str(error.value)


def test_the_file_of_a_mem0_user_is_read(tmp_path: Path) -> None:
    values = json.loads((Path(__file__).parent / "mem0_settings.json").read_text("utf-8"))
    values |= {"history_db_path": str(tmp_path / "history.db")}
    values["vector_store"]["config"]["path"] = str(tmp_path / "chroma")
    settings = load_settings(settings_file(tmp_path, json.dumps(values), "mem0.json"), data_dir=tmp_path)
    assert settings.version == "v1.0"
    assert (settings.ledger_path, settings.index_dir) == (tmp_path / "history.db", tmp_path / "chroma")
    for section in ("vector_store", "llm", "embedder", "graph_store"):
        read = getattr(settings, section)
        assert read.provider == values[section]["provider"]
        for key, value in values[section]["config"].items():
            found = getattr(read.config, key)
            shown = found.get_secret_value() if key == "password" else found
            assert str(shown) == str(value), key
    assert settings.graph_store.custom_prompt == "Only people."
    assert (settings.custom_fact_extraction_prompt, settings.custom_update_memory_prompt) == ("Take facts.", "Decide.")


def test_what_means_nothing_here_in_a_file_of_mem0_is_left_out_with_a_note(tmp_path: Path) -> None:
    """Guards a user of mem0's first start: no unknown key refuses the file, and what cannot work says what to use."""
    values = {
        "vector_store": {"provider": "qdrant", "config": {"path": "/elsewhere"}},
        "llm": {"provider": "openai", "config": {"model": "m", "top_p": 0.2, "top_k": 3, "temperature": None}},
        "graph_store": {"threshold": 0.7},
        "telemetry": False,
    }
    settings = load_settings(settings_file(tmp_path, json.dumps(values), "mem0.json"), data_dir=tmp_path)
    assert settings.notes == [
        "this configuration has no telemetry with Palimpsest, and goes without",
        "vector_store.provider 'qdrant' cannot be used with Palimpsest: memories stay in Palimpsest's ledger, and "
        "their vectors in an index of its own (use chroma or exact)",
        "llm.config has no top_k with Palimpsest, and goes without",
        "graph_store has no threshold with Palimpsest, and goes without",
    ]
    assert (settings.llm.config.top_p, settings.llm.config.temperature) == (0.2, None)
    assert "did you mean" in refusal(settings_file(tmp_path, '{"usr_id": "ana"}', "own.json"), data_dir=tmp_path)


PROVIDERS = {
    "ollama": "http://localhost:11434/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
    "mistral": "https://api.mistral.ai/v1",
}


def test_a_provider_by_name_is_an_endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Guards OpenAI's key: it goes to no other vendor. The provider's own variable is read, and no other."""
    monkeypatch.setenv("OPENAI_API_KEY", "of-openai")
    monkeypatch.setenv("OPENAI_BASE_URL", ELSEWHERE)
    for name, url in PROVIDERS.items():
        given: dict[str, Any] = {"llm": {"provider": name, "config": {"model": "m"}}, "data_dir": tmp_path}
        if not url.startswith("http:"):
            assert f"needs llm.config.api_key, or the variable {name.upper()}_API_KEY" in refusal(**given)
            monkeypatch.setenv(f"{name.upper()}_API_KEY", f"of-{name}")
        settings = load_settings(**given)
        endpoint = settings.endpoint_of(settings.llm.config)
        assert (settings.llm_provider, endpoint.base_url) == ("openai", url)
        assert endpoint.api_key == (name if url.startswith("http:") else f"of-{name}")
    assert "needs llm.config.model" in refusal(data_dir=tmp_path, llm={"provider": "ollama"})
    settings = load_settings(data_dir=tmp_path, embedder={"provider": "mistral", "config": {"model": "m"}})
    endpoint = settings.endpoint_of(settings.embedder.config)
    assert (settings.embedder.provider, endpoint.base_url) == ("openai", PROVIDERS["mistral"])
    assert "llm.config.openai_base_url" in refusal(data_dir=tmp_path, llm={"provider": "azure"})
    assert "graph_store.config.url" in refusal(data_dir=tmp_path, graph_store={"provider": "memgraph"})


def test_azure_as_mem0_writes_it(tmp_path: Path) -> None:
    azure = {"azure_endpoint": "https://mine.example/", "azure_deployment": "d", "api_key": "k", "api_version": "v"}
    values = {"llm": {"provider": "azure_openai", "config": {"model": "m", "azure_kwargs": azure}}}
    settings = load_settings(settings_file(tmp_path, json.dumps(values), "mem0.json"), data_dir=tmp_path)
    endpoint = settings.endpoint_of(settings.llm.config)
    assert (endpoint.base_url, endpoint.api_key) == ("https://mine.example/openai/v1", "k")
    assert (settings.llm.config.model, settings.notes) == ("d", [])


def test_a_file_is_read(tmp_path: Path) -> None:
    """Guards the settings file, also as editors on Windows save it: the settings name it, but do not export it."""
    for name, text in (("settings.toml", 'user_id = "ana"'), ("settings.json", '{"user_id": "ana"}')):
        path = settings_file(tmp_path, f"\ufeff{text}", name)
        settings = load_settings(path, data_dir=tmp_path)
        assert (settings.user_id, settings.config) == ("ana", path)
        assert "config" not in settings.model_dump()


def test_arguments_win_over_variables_and_variables_over_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = settings_file(
        tmp_path,
        'user_id = "file"\nproject = "file"\nagent_id = "file"\n'
        '[llm.config]\nmodel = "file"\ntemperature = 0.5\nmax_tokens = 100\n',
    )
    set_variables(monkeypatch, PROJECT="environment", AGENT_ID="environment", LLM__CONFIG__MODEL="environment")
    set_variables(monkeypatch, LLM__CONFIG__TEMPERATURE="0.6")
    settings = load_settings(path, data_dir=tmp_path, agent_id="argument", llm={"config": {"temperature": 0.7}})
    assert (settings.user_id, settings.project, settings.agent_id) == ("file", "environment", "argument")
    assert (settings.llm.config.max_tokens, settings.llm.config.model) == (100, "environment")
    assert settings.llm.config.temperature == pytest.approx(0.7)


def test_the_file_is_found_by_variable_and_in_the_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    default = settings_file(tmp_path, 'user_id = "default"', "config.toml")
    other_file = settings_file(tmp_path, 'user_id = "named"')
    settings = load_settings(data_dir=tmp_path)
    assert (settings.user_id, settings.config) == ("default", default)
    assert load_settings(data_dir=tmp_path / "elsewhere").config is None
    monkeypatch.setenv("PALIMPSEST_DATA_DIR", str(tmp_path))
    assert load_settings().user_id == "default"
    monkeypatch.setenv("PALIMPSEST_CONFIG", str(other_file))
    assert load_settings().user_id == "named"


ELSEWHERE = "https://models.example/v1"


@pytest.mark.parametrize("also", ["OPENAI_BASE_URL", "PALIMPSEST_EMBEDDER__CONFIG__OPENAI_BASE_URL"])
def test_what_lies_in_the_environment_for_other_programs_sends_nothing_anywhere(
    also: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Guards a person's memories: a key that was set for another program is no consent to send them to its vendor."""
    variables = {"OPENAI_API_KEY": "k", also: ELSEWHERE}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = load_settings(data_dir=tmp_path)
    assert settings.llm_provider == "sampling"
    assert open_model(settings) is None
    assert settings.unused_openai_variables == tuple(name for name in variables if name.startswith("OPENAI_"))
    for chosen in ({"api_key": "k"}, {"openai_base_url": ELSEWHERE}):
        assert load_settings(data_dir=tmp_path, llm={"config": chosen}).llm_provider == "openai", chosen


def test_a_base_url_of_the_environment_is_followed_only_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = ("127.8.9.10/v1", "[::1]:8000/v1", "LOCALHOST:1234")
    elsewhere = ("localhost.example/v1", "127.0.0.1@models.example/v1", "192.168.1.7:11434/v1", "[")
    urls = dict.fromkeys([f"http://{url}" for url in here], "openai")
    urls |= dict.fromkeys([*(f"http://{url}" for url in elsewhere), "localhost:11434", ""], "sampling")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    for url, provider in urls.items():
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        assert load_settings(data_dir=tmp_path).llm_provider == provider, url


def test_a_key_is_never_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-environment")
    settings = load_settings(data_dir=tmp_path, llm={"config": {"api_key": "of-the-settings"}})
    output = f"{settings!r} {settings} {settings.model_dump_json()}"
    assert "of-the-" not in output
    assert "of-the-" not in refusal(data_dir=tmp_path, llm={"config": {"api_key": ["of-the-settings"]}})


def test_a_wildcard_is_not_a_scope(tmp_path: Path) -> None:
    """Guards other users' memories: in Mem0, `user_id="*"` reads everybody's."""
    for part in ("user_id", "project", "agent_id", "run_id"):
        text = refusal(None, data_dir=tmp_path, **{part: " * "})
        assert text.startswith(f"{part}: {part} '*' is not a scope"), "in our words alone"


@pytest.mark.parametrize(
    ("text", "error_parts"),
    [
        ('usr_id = "ana"', ["'usr_id'", "did you mean 'user_id'"]),
        ('[llm.config]\nmodle = "x"', ["'llm.config.modle'", "did you mean 'llm.config.model'"]),
        ('[llm]\nprovider = "anthropics"', ["llm.provider", "'openai'"]),
        ('user_id = ""', ["user_id", "is empty"]),
        ('[embedder]\nprovider = "openai"', ["embedder.config.model"]),
        ('usr_id = "ana"\n[summary]\nevery = 0', ["'usr_id'", "summary.every", "greater than or equal to 1"]),
        ("user_id = \n", ["is not valid TOML", "line 1"]),
        ('{"user_id": "ana",}', ["is not valid JSON", "line 1"]),
        ("[]", ["holds list and should hold an object"]),
    ],
)
def test_the_error_about_a_wrong_key_or_value_names_it_and_the_file(
    tmp_path: Path, text: str, error_parts: list[str]
) -> None:
    path = settings_file(tmp_path, text, "settings.json" if text[0] in "{" or text == "[]" else "settings.toml")
    error_text = refusal(path, data_dir=tmp_path)
    assert [part for part in [str(path), *error_parts] if part not in error_text] == []


@pytest.mark.parametrize(
    ("variable", "value", "error_parts"),
    [
        ("USERID", "x", ["unknown environment variable PALIMPSEST_USERID; did you mean 'PALIMPSEST_USER_ID'?"]),
        ("LLM__CONFIG__MODLE", "x", ["did you mean 'PALIMPSEST_LLM__CONFIG__MODEL'?"]),
        ("VECTOR_STORE_PROVIDER", "x", ["did you mean 'PALIMPSEST_VECTOR_STORE__PROVIDER'?"]),
        ("LLM", "{openai", ["environment", '"llm"']),
    ],
)
def test_the_error_about_a_variable_names_it_and_the_nearest_known_one(
    variable: str, value: str, error_parts: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Guards against variables that are silently ignored: pydantic-settings skips unknown ones."""
    set_variables(monkeypatch, **{variable: value})
    error_text = refusal(data_dir=tmp_path)
    assert [part for part in error_parts if part not in error_text] == []


def test_a_file_that_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    misencoded = tmp_path / "misencoded.toml"
    misencoded.write_bytes(b"user_id = '\xff'")
    for path in (tmp_path / "absent.toml", tmp_path, misencoded):
        assert f"{path} cannot be read" in refusal(path, data_dir=tmp_path)
    monkeypatch.setenv("PALIMPSEST_CONFIG", str(tmp_path / "absent.toml"))
    assert "absent.toml cannot be read" in refusal(data_dir=tmp_path)


def test_the_note_on_an_unknown_provider_names_those_that_can_be_used(tmp_path: Path) -> None:
    """Guards who had a provider that is not here: the next best one may be ollama or groq."""
    values = {"llm": {"provider": "aws_bedrock", "config": {"model": "m"}}}
    (note,) = load_settings(settings_file(tmp_path, json.dumps(values), "mem0.json"), data_dir=tmp_path).notes
    named = "ollama lmstudio vllm openrouter groq deepseek together gemini mistral azure"
    assert [name for name in named.split() if name not in note] == []
