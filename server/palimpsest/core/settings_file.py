"""Read and edit the settings file (TOML or JSON, also mem0's), and report where each setting comes from."""

import difflib
import itertools
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Any, cast, get_args

import platformdirs
from pydantic import BaseModel

from palimpsest.core.errors import SettingsError, raised_as
from palimpsest.core.files import OWNER_ONLY, replace_file
from palimpsest.core.validation import object_of

# The providers that speak OpenAI's protocol, by their names. Their table is `providers.json`.


@dataclass(frozen=True, slots=True)
class NamedProvider:
    """A provider that speaks OpenAI's protocol: its address, and the variable its key is in. "" if there is none."""

    base_url: str
    api_key_variable: str


PROVIDERS: Mapping[str, NamedProvider] = {
    name: NamedProvider(**parts)
    for name, parts in json.loads((files("palimpsest.core") / "providers.json").read_text("utf-8")).items()
}


# Read a configuration that was written for mem0 as settings, with a sentence on each part that means nothing here.

# What happens in place of a provider that only mem0 has, and the settings that make it so.
_INSTEAD: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "vector_store": ("memories stay in Palimpsest's ledger, and their vectors in an index of its own", {}),
    "llm": ("no language model is asked, and texts are stored as they are", {"provider": "none"}),
    "embedder": ("the local embedder is used", {}),
    "graph_store": ("entities and relations are kept in the ledger", {}),
    "reranker": ("results are not judged once more", {}),
}

# A key that resembles a known one so much is an error; any other that is unknown here is mem0's.
_MISSPELT = 0.85

# The model of OpenAI's that mem0 embeds with unless its configuration names another one.
MEM0_EMBEDDER = "text-embedding-3-small"


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
    without = {*unknown, *(key for key in never_none if given.get(key) is None)}
    return {key: value for key, value in given.items() if key not in without}


def _section(name: str, given: Mapping[str, Any], section: type[BaseModel], sentences: list[str]) -> Mapping[str, Any]:
    """Return a section of the settings, from the section of that name in mem0's configuration."""
    provider, config = given.get("provider"), dict(given.get("config") or {})
    instead, values = _INSTEAD[name]
    choices = get_args(section.model_fields["provider"].annotation)
    if provider in PROVIDERS and name in ("llm", "embedder"):
        _name_endpoint(str(provider), config)
    elif provider is not None and provider not in choices:
        named = sorted(PROVIDERS.keys() - {"azure_openai"}) if name in ("llm", "embedder") else ()
        use = f"use {', '.join((*choices[:-1], *named))} or {choices[-1]}"
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


# The settings file in TOML or JSON: which one is read, how it is read, and how its values are changed.


def find_settings_file(chosen: Mapping[str, Any]) -> Path | None:
    """Return the settings file: the one in `config`, else `config.toml` in the data directory if it exists."""
    if chosen.get("config"):
        return Path(chosen["config"]).expanduser()
    data_dir = chosen.get("data_dir")
    folder = Path(data_dir).expanduser() if data_dir else platformdirs.user_data_path("palimpsest", appauthor=False)
    default = folder / "config.toml"
    return default if default.is_file() else None


def read_settings_file(settings: type[BaseModel], path: Path) -> tuple[dict[str, Any], Sequence[str]]:
    """Return the values of a settings file, and sentences on what means nothing here if it is one of mem0's, in JSON.

    Raises SettingsError if it cannot be read.
    """
    is_json = path.suffix == ".json"
    with raised_as(SettingsError, f"the settings file {path} cannot be read", "", OSError, UnicodeDecodeError):
        text = path.read_text("utf-8-sig")  # editors on Windows begin a file with a byte order mark
    invalid = f"the settings file {path} is not valid {'JSON' if is_json else 'TOML'}"
    with raised_as(SettingsError, invalid, "", json.JSONDecodeError, tomllib.TOMLDecodeError):
        values: Any = json.loads(text) if is_json else tomllib.loads(text)
    if not isinstance(values, dict):
        raise SettingsError(f"the settings file {path} holds {type(values).__name__} and should hold an object")
    if "config" in values:
        raise SettingsError(f"unknown setting 'config' (in {path}): a settings file cannot name another one")
    given = cast("dict[str, Any]", values)
    return mem0_settings(given, settings) if is_json else (given, ())


def set_values(path: Path, values: Mapping[str, str | None], *, private: bool = False) -> None:
    """Set values by their dotted names in a settings file, or remove those that are None; create a file if need be.

    Of a TOML file the comments, the order and the line ends stay. With `private` only its owner can read it afterwards.
    Raises SettingsError, and the file is unchanged then.
    """
    by_hand = f". Change {', '.join(values)} by hand. Nothing was changed."
    is_json, failed = path.suffix == ".json", f"the settings file {path} cannot be changed"
    with raised_as(SettingsError, failed, by_hand, OSError, ValueError, TypeError, AttributeError):
        mode = path.stat().st_mode & 0o777 if path.exists() and not private else OWNER_ONLY
        # Line ends stay as they are, which `read_text` would change.
        before = path.read_bytes().decode("utf-8-sig") if path.exists() else ("{}" if is_json else "")
        if is_json:
            content = json.loads(before)
            _set_values(content, values)
            text = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
        else:
            text = edited_toml(before, lambda document: _set_values(document, values))
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A link to a file elsewhere stays a link.
        with replace_file(path.resolve(), mode) as file:
            file.write(text)


def keep_copy(path: Path, suffix: str = ".old", mode: int = OWNER_ONLY) -> Path | None:
    """Return a copy of a file beside it, or None if there is no file.

    An earlier copy is never overwritten; one with the same text is used again.
    """
    if not path.exists():
        return None
    text = path.read_bytes()
    names = (path.with_name(f"{path.name}{suffix}{number or ''}") for number in itertools.count())
    copy = next(name for name in names if not name.exists() or (name.is_file() and name.read_bytes() == text))
    if not copy.exists():
        with replace_file(copy, mode) as file:
            file.write(text.decode("utf-8"))
    return copy


def is_key(name: str) -> bool:
    """Return whether a setting is a secret, which is never printed."""
    return name.endswith("api_key")


def edited_toml(text: str, change: Callable[[Any], None]) -> str:
    """Return a TOML text after a change of its nested values. Comments, order and everything else stay as they are.

    Raises ValueError if the text is not TOML, or if tomlkit cannot make the change without changing other values.
    """
    import tomlkit  # noqa: PLC0415 - only a change needs it

    wanted, document = tomllib.loads(text), tomlkit.parse(text)
    change(wanted)
    change(document)
    after = tomlkit.dumps(document)
    if "\r\n" in text and "\n" not in text.replace("\r\n", ""):
        after = after.replace("\r\n", "\n").replace("\n", "\r\n")
    if _without_empty(tomllib.loads(after)) != _without_empty(wanted):
        raise ValueError("this change can only be made by hand, or it would change other values")
    return after


def _without_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without empty tables at the top: a header need not stay if nothing is left below it."""
    return {key: value for key, value in values.items() if value != {}}


def _set_values(document: Any, values: Mapping[str, str | None]) -> None:
    """Set values of nested tables by their dotted names, or remove those that are None."""
    for name, value in values.items():
        *sections, key = name.split(".")
        table = document
        for section in sections:
            if value is not None and section not in table:
                table[section] = {}
            table = table.get(section, {})
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value


# Where each setting in effect comes from.


class Origin(StrEnum):
    """Where a setting can come from. A default holds where nothing else says anything."""

    COMMAND_LINE = "command_line"
    ENVIRONMENT = "environment"
    FILE = "file"
    DEFAULT = "default"


def origins(given: Mapping[Origin, Mapping[str, Any]]) -> dict[str, Origin]:
    """Return where settings come from, by their dotted names, without their values, some of which are secrets.

    `given` are the nested values of each source, the source that wins first.
    """
    found: dict[str, Origin] = {}
    for origin, values in given.items():
        for name in _names(values):
            found.setdefault(name, origin)
    return found


def _names(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of nested values. A section may also be an instance of its class."""
    for name, value in values.items():
        yield prefix + name
        if isinstance(value, BaseModel):
            yield from _names({each: getattr(value, each) for each in value.model_fields_set}, f"{prefix}{name}.")
        elif isinstance(value, Mapping):
            yield from _names(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
