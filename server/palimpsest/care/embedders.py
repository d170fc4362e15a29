"""The embedders that can be chosen: what each is for, whether it can be used here, and how one is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from palimpsest.core.configuration.file import set_value
from palimpsest.core.configuration.sections import EmbedderChoice, Provider
from palimpsest.core.errors import EmbedderError
from palimpsest.core.settings import Settings
from palimpsest.learn.factory import open_embedder, why_not_e5


@dataclass(frozen=True, slots=True)
class EmbedderInfo:
    """An embedder. `obstacle` says why it cannot be used as things are, or is empty."""

    name: Provider
    about: str
    obstacle: str


_ABOUT: dict[Provider, str] = {
    "e5": "100 languages, 384 dimensions, on this machine, about 20 ms for a question",
    "static": "best for English, 256 dimensions, on this machine, less than 1 ms for a question",
    "onnx": "the sentence-transformers model in a folder of yours, on this machine",
    "openai": "a model behind an OpenAI-compatible endpoint",
    "chroma": "English, 384 dimensions, on this machine; downloads 80 MB on first use",
}


def embedders(settings: Settings) -> list[EmbedderInfo]:
    """Return every embedder, the best for most people first. Blocking."""
    needs_model = "" if settings.embedder.config.model else "needs embedder.config.model"
    obstacles: dict[Provider, str] = {"e5": why_not_e5() or "", "onnx": needs_model, "openai": needs_model}
    return [EmbedderInfo(name, about, obstacles.get(name, "")) for name, about in _ABOUT.items()]


def choose_embedder(settings: Settings, name: Provider) -> tuple[Path, str]:
    """Write an embedder into the settings file. Return the file, and the fingerprint that its vectors have.

    The embedder is tried first. Raises EmbedderError if it cannot be used and SettingsError if the file cannot be
    changed safely; nothing is changed then.
    """
    if name in ("onnx", "openai") and settings.embedder.config.model is None:
        raise EmbedderError(
            f"the embedder {name} needs embedder.config.model in the settings file: "
            f"{'the folder of the model' if name == 'onnx' else 'the name of the model'}. Nothing was changed."
        )
    choice = EmbedderChoice(provider=name, config=settings.embedder.config)
    try:
        embedder = open_embedder(settings.model_copy(update={"embedder": choice}))
        embedder.embed_query("a text to try the embedder with")
    except EmbedderError as error:
        raise EmbedderError(f"{error} Nothing was changed.") from error
    file = settings.config or settings.data_dir / "config.toml"
    set_value(file, "embedder", "provider", name)
    return file, embedder.fingerprint
