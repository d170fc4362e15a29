"""Configure an installation: models, embedders, prompts, and the settings in effect."""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio.to_thread
from pydantic import BaseModel, SecretStr
from pydantic_core import to_jsonable_python

from palimpsest.core.errors import EmbedderError, InputError, PromptError, RerankerError, SettingsError, raised_as
from palimpsest.core.files import replace_file
from palimpsest.core.models import EmbedderName, RerankerName
from palimpsest.core.protocols import Progress
from palimpsest.core.settings import EmbedderConfig, LlmConfig, Settings, environment_variable
from palimpsest.core.settings_file import Origin, keep_copy, set_values
from palimpsest.embed.hub import HubModel, catalogue, fetch, is_fetched, model_of
from palimpsest.learn.engine import NEEDED_PROMPTS, open_embedder, open_model, open_reranker
from palimpsest.llm.prompts import PromptFiles, parse, shipped_directory

# How an embedder or a reranker is chosen.


def choose_embedder(settings: Settings, name: EmbedderName, folder: Path | None = None) -> tuple[Path, str]:
    """Write an embedder into the settings file. Return the file, and the fingerprint that its vectors have.

    `folder` is that of a fetched model, for `onnx`. What the settings say of another model is removed then, and stays
    in a copy of the file. The embedder is tried first. Raises EmbedderError if it cannot be used and SettingsError if
    the file cannot be changed safely; nothing is changed then.
    """
    config = settings.embedder.config if folder is None else EmbedderConfig(model=str(folder))
    if name in ("onnx", "openai") and config.model is None:
        raise EmbedderError(f"the embedder {name} needs embedder.config.model in the settings. Nothing was changed.")
    choice = settings.embedder.model_copy(update={"provider": name, "config": config})
    embedder = open_embedder(settings.model_copy(update={"embedder": choice}))
    embedder.embed_queries(["a text to try the embedder with"])
    values: dict[str, str | None] = {"embedder.provider": name}
    if folder is not None:
        values |= {"embedder.config.model": str(folder), **{f"embedder.config.{key}": None for key in OF_ONE_MODEL}}
    return write_settings(settings, values)[0], embedder.fingerprint


# Settings that say how a model in a folder is used, and hold for that one alone.
OF_ONE_MODEL = ("query_prefix", "passage_prefix", "pooling", "max_tokens")


def choose_reranker(settings: Settings, name: RerankerName, folder: Path | None = None) -> Path:
    """Write a reranker into the settings file and return it. Raises RerankerError and SettingsError as the embedder."""
    of_folder = {} if folder is None else {"folder": str(folder)}
    config = settings.reranker.config.model_copy(update=of_folder)
    if name == "endpoint" and not config.base_url:
        raise RerankerError("the reranker endpoint needs reranker.config.base_url. Nothing was changed.")
    choice = settings.reranker.model_copy(update={"provider": name, "config": config})
    if (reranker := open_reranker(settings.model_copy(update={"reranker": choice}))) is not None:
        reranker.scores("a question to try it with", ["a text", "another text"])
    values = {"reranker.provider": name, **({} if folder is None else {"reranker.config.folder": str(folder)})}
    return write_settings(settings, values)[0]


# The models of the hub that embedders and rerankers run.


def hub_models(settings: Settings, kind: str) -> list[tuple[HubModel, bool]]:
    """Return the models of a kind that can be fetched, each with whether it is on this machine."""
    models = [model for model in catalogue().values() if model.kind == kind]
    return [(model, is_fetched(model, model_folder(settings, model))) for model in models]


def hub_model(settings: Settings, name: str, kind: str) -> tuple[HubModel, bool]:
    """Return a model by its name, and whether it is on this machine. Raises InputError if there is none."""
    model = model_of(name, kind)
    return model, is_fetched(model, model_folder(settings, model))


def fetch_model(settings: Settings, model: HubModel, progress: Progress) -> Path:
    """Fetch a model, or check it if it is there. Return its folder. Blocking. Raises ModelFetchError."""
    folder = model_folder(settings, model)
    fetch(model, folder, progress, endpoint=environment_variable("HF_ENDPOINT"))
    return folder


def model_folder(settings: Settings, model: HubModel) -> Path:
    """Return where a model of the hub is kept."""
    return settings.data_dir / "models" / model.name


# Choose the language model: try one with a small call, and write it into the settings.

OPENAI_URL = "https://api.openai.com/v1"

QUESTION = [{"role": "user", "content": "Reply with the word: ready"}]


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A language model as a person chose it. `api_key` is "" if the key stays in the environment, or there is none."""

    provider: Literal["none", "sampling", "openai"]
    model: str = ""
    base_url: str = ""
    api_key: str = ""

    @property
    def values(self) -> dict[str, str | None]:
        """Return the settings that the choice sets, by their names; None removes one.

        An endpoint replaces an earlier one whole: a key must never be sent to another vendor.
        """
        values: dict[str, str | None] = {"llm.provider": self.provider}
        if self.provider == "openai":
            values["llm.config.model"] = self.model
            values["llm.config.openai_base_url"] = self.base_url
            values["llm.config.api_key"] = self.api_key or None
        return values


async def try_model(settings: Settings, choice: ModelChoice) -> str:
    """Ask a model at an endpoint for one word and return its reply, in one line. Raises ModelError."""
    config = settings.llm.config.model_dump() | {
        "model": choice.model,
        "openai_base_url": choice.base_url,
        "api_key": choice.api_key or None,
    }
    llm = settings.llm.model_copy(update={"provider": "openai", "config": LlmConfig.model_validate(config)})
    if (model := await anyio.to_thread.run_sync(lambda: open_model(settings.model_copy(update={"llm": llm})))) is None:
        return ""
    async with aclosing(model):
        return " ".join((await model.complete(QUESTION, None)).split())


def write_settings(settings: Settings, values: Mapping[str, str | None]) -> tuple[Path, Path | None]:
    """Write values into the settings file, for its owner only if one is a key. Return it and the copy of the old one.

    Raises SettingsError, and the file is unchanged then.
    """
    file = settings_file(settings)
    with raised_as(SettingsError, f"{file} cannot be copied", ". Nothing was changed.", OSError):
        copy = keep_copy(file)
    set_values(file, values, private=bool(values.get("llm.config.api_key")))
    return file, copy


def settings_file(settings: Settings) -> Path:
    """Return the settings file that was read, or the one that is read from now on if it exists."""
    return settings.config or settings.data_dir / "config.toml"


# The prompt files beside the shipped ones: compare them, and write one's own. Blocking.
#
# No text of a person is lost: a file that is written over is first copied beside itself.


@dataclass(frozen=True, slots=True)
class PromptInUse:
    """A prompt file that is used: its text, and how it differs from the shipped one, as lines of a unified diff.

    `fault` says why it cannot be used, or is "".
    """

    name: str
    path: Path
    text: str
    is_own: bool
    difference: Sequence[str]
    fault: str = ""


def prompts_in_use(settings: Settings) -> list[PromptInUse]:
    """Return all prompts, in the order in which a model is asked."""
    return [prompt_in_use(settings, name) for name in NEEDED_PROMPTS]


def prompt_files(settings: Settings) -> PromptFiles:
    """Return the files of all prompts, which are not checked."""
    return PromptFiles(NEEDED_PROMPTS, settings.prompts_dir)


def prompt_in_use(settings: Settings, name: str) -> PromptInUse:
    """Return one prompt. Raises PromptError if there is none of this name."""
    files = prompt_files(settings)
    path = files.path(name)
    shipped = shipped_directory() / f"{name}.md"
    text = fault = ""
    try:
        text = _text(path)
        files.read(path, name)
    except PromptError as error:
        fault = str(error)
    lines = difflib.unified_diff(_text(shipped).splitlines(), text.splitlines(), lineterm="")
    return PromptInUse(name, path, text, path != shipped, [*lines][2:], fault)


def save_prompt(settings: Settings, name: str, text: str) -> Path | None:
    """Write one's own prompt; return the copy of the file that it replaced, or None if there was none.

    Raises PromptError if the text cannot be used, and InputError if the settings name no folder. Nothing is changed
    then.
    """
    if settings.prompts_dir is None:
        raise InputError("the settings name no folder for your own prompts (prompts_dir). Nothing was changed")
    path = settings.prompts_dir / f"{name}.md"
    text = text.replace("\r\n", "\n").rstrip("\n") + "\n"  # browsers send forms with line ends of their own
    parse(text, path, name, NEEDED_PROMPTS[name])
    with raised_as(PromptError, f"{path} cannot be written", ". Nothing was changed", OSError, UnicodeError):
        copy = keep_copy(path)
        with replace_file(path) as file:
            file.write(text)
    return copy


def _text(file: Path) -> str:
    with raised_as(PromptError, f"{file}: cannot be read", "", OSError, UnicodeDecodeError):
        return file.read_text("utf-8-sig")


# The settings in effect: the value of each, where it comes from, and no secret.

MASK = "********"

# The login in a URL, which may hold a password.
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")


def settings_in_effect(settings: Settings) -> list[tuple[str, str, Origin]]:
    """Return every setting in the order of the sections: its dotted name, its value as text, and where it comes from.

    The text is "" for none.
    """
    values = ((name, value) for name, value in _values(settings) if name != "config")
    return [(name, _as_text(value), settings.origins.get(name, Origin.DEFAULT)) for name, value in values]


def _values(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of every setting, but of no section."""
    for name in type(section).model_fields:
        if isinstance(value := getattr(section, name), BaseModel):
            yield from _values(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _as_text(value: Any) -> str:
    if value is None or value in ((), {}):
        return ""
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, bool | tuple | dict):
        # Pydantic writes asterisks in place of a secret.
        value = json.dumps(to_jsonable_python(value, fallback=str), ensure_ascii=False)
    return _LOGIN.sub(f"{MASK}@", str(value))
