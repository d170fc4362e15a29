"""Read a configuration that was written for mem0 as settings, with a sentence on each part that means nothing here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from pydantic import BaseModel

from palimpsest.admin.configuration import LOCAL_SERVERS
from palimpsest.core.settings import Settings

_INSTEAD: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "vector_store": ("memories stay in Palimpsest's ledger, and their vectors in an index of its own", {}),
    "llm": ("no language model is asked, and texts are stored as they are", {"provider": "none"}),
    "embedder": ("the local embedder is used", {}),
    "graph_store": ("entities and relations are kept in the ledger", {}),
    "reranker": ("results are not judged once more", {}),
}
"""What happens in place of a provider that only mem0 has, and the settings that make it so."""

_LOCAL: Mapping[str, tuple[str, str]] = {
    "ollama": ("Ollama", "ollama_base_url"),
    "lmstudio": ("LM Studio", "lmstudio_base_url"),
    "vllm": ("vLLM", "vllm_base_url"),
}
"""mem0's names of programs that speak OpenAI's protocol, and the keys of their addresses."""

MEM0_EMBEDDER = "text-embedding-3-small"
"""The model of OpenAI's that mem0 embeds with unless its configuration names another one."""


def mem0_settings(configuration: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return arguments of `load_settings`, and a sentence on each part of the configuration that means nothing here.

    Keys that mem0 has not are passed on, so settings of Palimpsest may stand beside them.
    """
    values: dict[str, Any] = {}
    sentences: list[str] = []
    for name, value in configuration.items():
        if name in _INSTEAD and isinstance(value, Mapping):
            values[name] = _section(name, cast("Mapping[str, Any]", value), sentences)
        elif value is not None:
            values[name] = value
    return values, sentences


def _section(name: str, given: Mapping[str, Any], sentences: list[str]) -> Mapping[str, Any]:
    """Return a section of the settings, from the section of that name in mem0's configuration."""
    provider, config = given.get("provider"), dict(given.get("config") or {})
    if provider is not None and provider in _LOCAL:
        server, key = _LOCAL[provider]
        url = str(config.pop(key, None) or LOCAL_SERVERS[server]).rstrip("/")
        config["openai_base_url"] = url if url.endswith("/v1") else f"{url}/v1"
        config.setdefault("api_key", provider)  # these servers want none, and OpenAI's client wants one
        provider = "openai"
    section = _model_of(Settings, name)
    instead, values = _INSTEAD[name]
    if provider is not None and provider not in get_args(section.model_fields["provider"].annotation):
        sentences.append(f"{name}.provider '{provider}' cannot be used with Palimpsest: {instead}")
        return values
    if name == "embedder" and provider == "openai":
        config.setdefault("model", MEM0_EMBEDDER)
    known = _model_of(section, "config").model_fields
    if unknown := sorted(config.keys() - known.keys()):
        sentences.append(f"{name}.config has no {', '.join(unknown)} with Palimpsest, and goes without")
    values = {key: value for key, value in given.items() if key not in ("provider", "config")}
    values["config"] = {key: value for key, value in config.items() if key in known and value is not None}
    return values if provider is None else {**values, "provider": provider}


def _model_of(model: type[BaseModel], name: str) -> type[BaseModel]:
    """Return the type of a section among the fields of settings."""
    section = model.model_fields[name].annotation
    assert isinstance(section, type)  # noqa: S101 - a section is never optional
    assert issubclass(section, BaseModel)  # noqa: S101 - likewise
    return section
