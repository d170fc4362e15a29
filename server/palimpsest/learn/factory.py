"""Build the parts of a memory from the settings. An adapter is imported only if it is chosen."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from palimpsest.core.errors import EmbedderError, PromptError
from palimpsest.core.protocols import Embedder, LanguageModel
from palimpsest.core.settings import Settings
from palimpsest.embed.questions import QuestionCache
from palimpsest.index.sync import Projection
from palimpsest.learn.engine import NEEDED_PROMPTS
from palimpsest.learn.facts.topics import instructions
from palimpsest.llm.prompts import PromptFiles
from palimpsest.store.ledger import Ledger

if TYPE_CHECKING:
    from palimpsest.index.shared.projection import SharedProjection

logger = logging.getLogger(__name__)

MAX_PROMPT_PATH_CHARS = 1_024
"""A longer value is a prompt and not a path. Set by hand."""


def open_embedder(settings: Settings) -> Embedder:
    """Return the embedder of the settings. Blocking: loading takes up to half a second. Raises EmbedderError."""
    return QuestionCache(_chosen_embedder(settings))


def why_not_e5() -> str | None:
    """Return why the embedder `e5` cannot be used here, or None if it can."""
    try:
        _open_e5()
    except EmbedderError as error:
        return str(error)
    return None


def _chosen_embedder(settings: Settings) -> Embedder:
    config = settings.embedder.config
    match settings.embedder.provider:
        case "chroma":
            from palimpsest.embed.chroma import ChromaEmbedder  # noqa: PLC0415 - slow, rarely chosen

            return ChromaEmbedder()
        case "openai" if config.model is not None:
            from palimpsest.embed.openai import OpenAIEmbedder  # noqa: PLC0415 - slow, not the default

            endpoint = settings.embedder_endpoint
            return OpenAIEmbedder(
                config.model,
                api_key=endpoint.api_key,
                base_url=endpoint.base_url,
                dims=config.embedding_dims,
                timeout=config.timeout,
            )
        case "onnx" if config.model is not None:
            from palimpsest.embed.onnx import OnnxEmbedder, OnnxSettings  # noqa: PLC0415 - slow, rarely chosen

            own = OnnxSettings(config.query_prefix, config.passage_prefix, config.pooling, config.max_tokens)
            return OnnxEmbedder(Path(config.model).expanduser(), own)
        case "static":
            return _open_static()
        case "e5":
            return _open_e5()
        case _:
            try:
                return _open_e5()
            except EmbedderError as error:
                # Not a warning: where there is no wheel, every command would print it.
                logger.info("the static embedder is used, which knows English best: %s", error)
                return _open_static()


def _open_e5() -> Embedder:
    from palimpsest.embed.e5 import E5Embedder  # noqa: PLC0415 - beside its siblings

    return E5Embedder(_open_static)


def _open_static() -> Embedder:
    from palimpsest.embed.static import StaticEmbedder  # noqa: PLC0415 - takes half a second to load

    return StaticEmbedder()


def open_model(settings: Settings) -> LanguageModel | None:
    """Return the language model of the settings; None if there is none, or if clients provide one for each call."""
    if settings.llm_provider != "openai":
        return None
    from palimpsest.llm.openai import OpenAIModel  # noqa: PLC0415 - slow; most have no model

    config, endpoint = settings.llm.config, settings.llm_endpoint
    return OpenAIModel(
        config.model,
        api_key=endpoint.api_key,
        base_url=endpoint.base_url,
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        timeout=config.timeout,
    )


def open_projection(settings: Settings, ledger: Ledger, embedder: str) -> Projection:
    """Return the projection of the settings, not opened yet."""
    config = settings.vector_store.config
    if settings.vector_store.provider == "exact":
        from palimpsest.index.scan import Scan  # noqa: PLC0415 - beside its siblings

        return Scan(ledger, embedder, settings.index_dir)
    if config.host is not None:
        return open_shared_projection(settings, ledger, embedder)
    from palimpsest.index import chroma  # noqa: PLC0415 - beside its siblings

    index, prefix, root = chroma.ChromaIndex, config.collection_name, settings.index_dir
    layout = f"chroma-{chroma.LAYOUT}-{prefix}"
    return Projection(ledger, embedder, lambda folder: index.open_folder(folder, prefix), root, layout=layout)


def open_shared_projection(settings: Settings, ledger: Ledger, embedder: str) -> SharedProjection:
    """Return the projection onto the Chroma server of the settings, not connected yet."""
    from palimpsest.index.shared import collections, connection, projection  # noqa: PLC0415 - rarely chosen

    config = settings.vector_store.config
    prefix = f"{config.collection_name}-{ledger.id[:8]}"  # each ledger has its own collections on the server
    return projection.SharedProjection(
        ledger,
        embedder,
        lambda: collections.SharedIndex(connection.ChromaServer(config), prefix),
        settings.index_dir,
        layout=collections.LAYOUT,
    )


def open_prompts(settings: Settings) -> PromptFiles:
    """Return the checked prompts of the settings. Raises PromptError."""
    texts: dict[str, str] = {}
    if settings.custom_fact_extraction_prompt:
        text = _text_or_file(settings.custom_fact_extraction_prompt)
        texts |= {"extract": text, "extract_agent": text}
    if settings.custom_update_memory_prompt:
        texts["decide"] = _text_or_file(settings.custom_update_memory_prompt)
    added = instructions(settings)
    additions = {"extract": added, "extract_agent": added} if added else {}
    if settings.graph_store.custom_prompt:
        additions["graph"] = _text_or_file(settings.graph_store.custom_prompt)
    prompts = PromptFiles(NEEDED_PROMPTS, settings.prompts_dir, texts, additions)
    prompts.check()
    return prompts


def _text_or_file(value: str) -> str:
    """Return the text of a file if `value` looks like a path, else `value`. Raises PromptError."""
    looks_like_path = len(value) < MAX_PROMPT_PATH_CHARS and "\n" not in value
    path = Path(value).expanduser()
    if looks_like_path and path.suffix in (".md", ".txt"):
        try:
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PromptError(f"the custom prompt {path} cannot be read: {error}") from error
    return value
