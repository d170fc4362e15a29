"""Choose the language model: find those of this machine, try one with a small call, and write it into the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread
from pydantic import BaseModel, ValidationError

from palimpsest.core.configuration.file import keep_copy, set_values
from palimpsest.core.configuration.sections import Llm, LlmConfig
from palimpsest.core.errors import SettingsError
from palimpsest.core.settings import Settings
from palimpsest.learn.factory import open_model

LOCAL_SERVERS: Mapping[str, str] = {
    "Ollama": "http://localhost:11434/v1",
    "LM Studio": "http://localhost:1234/v1",
    "vLLM": "http://localhost:8000/v1",
}
"""Programs that serve models on one's own machine, and where each of them listens unless it is told otherwise."""

SEARCH_SECONDS = 1.0
"""How long is waited for all local servers together. Set by hand: they are on this machine, and a person waits."""

OPENAI_URL = "https://api.openai.com/v1"

QUESTION = [{"role": "user", "content": "Reply with the word: ready"}]


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A program on this machine that serves models, and their names."""

    name: str
    base_url: str
    models: tuple[str, ...]


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


class _Model(BaseModel):
    id: str


class _ModelList(BaseModel):
    """A list of models, as OpenAI's protocol has it."""

    data: list[_Model]


async def local_servers(urls: Mapping[str, str] = LOCAL_SERVERS) -> list[LocalServer]:
    """Return the servers of this machine that answer within a second, with the models they have."""
    import httpx  # noqa: PLC0415 - slow, and every command imports this module

    found: dict[str, tuple[str, ...]] = {}

    async def ask(client: httpx.AsyncClient, name: str, url: str) -> None:
        try:
            reply = await client.get(f"{url}/models")
            found[name] = tuple(model.id for model in _ModelList.model_validate_json(reply.content).data)
        except (httpx.HTTPError, ValidationError):
            return  # nothing listens there, or something else does

    # No proxy: what is asked for is on this machine.
    async with httpx.AsyncClient(trust_env=False, timeout=SEARCH_SECONDS) as client:
        with anyio.move_on_after(SEARCH_SECONDS):
            async with anyio.create_task_group() as tasks:
                for name, url in urls.items():
                    tasks.start_soon(ask, client, name, url)
    return [LocalServer(name, urls[name], found[name]) for name in urls if found.get(name)]


async def try_model(settings: Settings, choice: ModelChoice) -> str:
    """Ask a model at an endpoint for one word and return its reply, in one line. Raises ModelError."""
    config = settings.llm.config.model_dump() | {
        "model": choice.model,
        "openai_base_url": choice.base_url,
        "api_key": choice.api_key or None,
    }
    llm = Llm(provider="openai", config=LlmConfig.model_validate(config))
    model = await anyio.to_thread.run_sync(lambda: open_model(settings.model_copy(update={"llm": llm})))
    if model is None:
        return ""
    try:
        return " ".join((await model.complete(QUESTION, None)).split())
    finally:
        await model.aclose()


def write_settings(settings: Settings, values: Mapping[str, str | None]) -> tuple[Path, Path | None]:
    """Write values into the settings file, for its owner only if one is a key. Return it and the copy of the old one.

    Raises SettingsError, and the file is unchanged then.
    """
    file = settings_file(settings)
    try:
        copy = keep_copy(file)
    except OSError as error:
        raise SettingsError(f"{file} cannot be copied: {error}. Nothing was changed.") from error
    set_values(file, values, private=bool(values.get("llm.config.api_key")))
    return file, copy


def settings_file(settings: Settings) -> Path:
    """Return the settings file that was read, or the one that is read from now on if it exists."""
    return settings.config or settings.data_dir / "config.toml"
