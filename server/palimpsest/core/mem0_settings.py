"""Read a configuration that was written for mem0 as settings, with a sentence on each part that means nothing here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel

from palimpsest.core.providers import PROVIDERS
from palimpsest.core.validation import object_of

_INSTEAD: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "vector_store": ("memories stay in Palimpsest's ledger, and their vectors in an index of its own", {}),
    "llm": ("no language model is asked, and texts are stored as they are", {"provider": "none"}),
    "embedder": ("the local embedder is used", {}),
    "graph_store": ("entities and relations are kept in the ledger", {}),
    "reranker": ("results are not judged once more", {}),
}
"""What happens in place of a provider that only mem0 has, and the settings that make it so."""

_MISSPELT = 0.85
"""A key that resembles a known one so much is an error; any other that is unknown here is mem0's."""

MEM0_EMBEDDER = "text-embedding-3-small"
"""The model of OpenAI's that mem0 embeds with unless its configuration names another one."""


def mem0_settings(configuration: Mapping[str, Any], settings: type[BaseModel]) -> tuple[dict[str, Any], list[str]]:
    """Return values of the model `settings`, and a sentence on each part that means nothing here.

    Keys that Palimpsest has and mem0 has not may stand beside mem0's.
    """
    values: dict[str, Any] = {}
    sentences: list[str] = []
    for name, value in _known("", configuration, settings, sentences).items():
        section = object_of(value) if name in _INSTEAD else {}
        values[name] = _section(name, section, _model_of(settings, name), sentences) if section else value
    return values, sentences


def _known(place: str, given: Mapping[str, Any], model: type[BaseModel], sentences: list[str]) -> dict[str, Any]:
    """Return what is given without keys that a section has not, named in a sentence. Misspelt ones stay, for an error.

    None is left out where a setting cannot be None.
    """
    known = model.model_fields
    never_none = {key for key, field in known.items() if type(None) not in get_args(field.annotation)}
    unknown = [
        key for key in sorted(given.keys() - known.keys()) if not difflib.get_close_matches(key, known, 1, _MISSPELT)
    ]
    if unknown:
        sentences.append(
            f"{place or 'this configuration'} has no {', '.join(unknown)} with Palimpsest, and goes without"
        )
    left_out = never_none.union(unknown)
    return {
        key: value for key, value in given.items() if key not in unknown and (value is not None or key not in left_out)
    }


def _section(name: str, given: Mapping[str, Any], section: type[BaseModel], sentences: list[str]) -> Mapping[str, Any]:
    """Return a section of the settings, from the section of that name in mem0's configuration."""
    provider, config = given.get("provider"), dict(given.get("config") or {})
    instead, values = _INSTEAD[name]
    choices = get_args(section.model_fields["provider"].annotation)
    if provider in PROVIDERS and name in ("llm", "embedder"):
        _name_endpoint(str(provider), config)
    elif provider is not None and provider not in choices:
        use = f"use {', '.join(choices[:-1])} or {choices[-1]}"
        sentences.append(f"{name}.provider '{provider}' cannot be used with Palimpsest: {instead} ({use})")
        return values
    if name == "embedder" and provider == "openai":
        config.setdefault("model", MEM0_EMBEDDER)
    if config.pop("enable_vision", False) and name == "llm":
        config.setdefault("vision_model", config.get("model", ""))
    values = _known(name, given, section, sentences)
    values["config"] = _known(f"{name}.config", config, _model_of(section, "config"), sentences)
    return values if provider is None else {**values, "provider": provider}


def _name_endpoint(provider: str, config: dict[str, Any]) -> None:
    """Write the address and the model that mem0 has under other keys under ours."""
    azure = dict(config.pop("azure_kwargs", None) or {})
    url = str(config.pop(f"{provider}_base_url", None) or config.get("openai_base_url") or "").rstrip("/")
    if azure.get("azure_endpoint"):
        url = f"{str(azure['azure_endpoint']).rstrip('/')}/openai/v1"
    elif url and not PROVIDERS[provider].api_key_variable and not url.endswith("/v1"):
        url = f"{url}/v1"
    given = {"openai_base_url": url, "api_key": azure.get("api_key"), "model": azure.get("azure_deployment")}
    config |= {key: value for key, value in given.items() if value}


def _model_of(model: type[BaseModel], name: str) -> type[BaseModel]:
    """Return the type of a section among the fields of settings."""
    section = model.model_fields[name].annotation
    assert isinstance(section, type)  # noqa: S101 - a section is never optional
    assert issubclass(section, BaseModel)  # noqa: S101 - likewise
    return section
