"""The parts of an open memory that adding and editing work with, built from the settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import anyio
from sqlalchemy import Connection

from palimpsest.core.clock import Clock
from palimpsest.core.errors import CallTimeError, EmbedderError, PromptError, raised_as
from palimpsest.core.models import Fact
from palimpsest.core.protocols import Embedder, LanguageModel, ReportProgress, Reranker
from palimpsest.core.settings import Settings
from palimpsest.core.threads import Threads
from palimpsest.embed.workers import QuestionCache
from palimpsest.index.sync import Projection
from palimpsest.llm import decide, extract, summarize
from palimpsest.llm.prompts import PromptFiles
from palimpsest.recall.retrieve import Searchable
from palimpsest.store.ledger import Ledger
from palimpsest.text.tokenizer import search_tokens

if TYPE_CHECKING:
    from palimpsest.index.chroma_server import SharedProjection


# What the settings say is to be learned: instructions, and topics to keep or to leave out.


def instructions(settings: Settings) -> str:
    """Return what is added to the instructions of the extraction; "" if the settings say nothing."""
    parts = [settings.custom_instructions or ""]
    if settings.includes:
        parts.append(f"Extract facts about these topics only: {'; '.join(settings.includes)}.")
    if settings.excludes:
        parts.append(
            f"Never extract anything about these topics: {'; '.join(settings.excludes)}. If a fact touches one of them "
            "all the same, add that topic to its tags, in exactly these words; the fact is then left out."
        )
    return "\n\n".join(part for part in parts if part)


def without_excluded(facts: Sequence[Fact], excludes: Sequence[str]) -> tuple[list[Fact], list[str]]:
    """Return the facts without those whose tags and keywords have the words of an excluded topic, and a note on each.

    The tags and keywords are the model's. It may name the topic without leaving out the fact.
    """
    unwanted = [(topic, words) for topic in excludes if (words := set(search_tokens(topic)))]
    kept: list[Fact] = []
    notes: list[str] = []
    for fact in facts:
        # A keyword that is a question has many words, and names no topic.
        labels = [label for label in (*fact.tags, *fact.keywords) if not label.endswith("?")]
        named = {word for label in labels for word in search_tokens(label)}
        topic = next((topic for topic, words in unwanted if words <= named), None)
        if topic is None:
            kept.append(fact)
        else:
            notes.append(f"a fact was not kept, because the settings exclude '{topic}'")
    return kept, notes


# What adding and editing work with: the ledger, the adapters, the prompts, and a way to run blocking work.

# Every prompt by name, with the inputs that its stage passes. `graph` is added to those of the extraction.
NEEDED_PROMPTS = {
    "extract": extract.INPUTS,
    "extract_agent": extract.INPUTS,
    "graph": frozenset[str](),
    "decide": decide.INPUTS,
    "describe": summarize.DESCRIBE_INPUTS,
    **summarize.PROMPTS,
    "about": summarize.ABOUT_INPUTS,
    "links": summarize.INPUTS,
    "gist": summarize.GIST_INPUTS,
    "pauses": summarize.PAUSE_INPUTS,
    "enrich": summarize.INPUTS,
}

_T = TypeVar("_T")
_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True)
class WrappedModel:
    """A language model around another one, which answers."""

    model: LanguageModel

    @property
    def name(self) -> str:
        """Return the name of the model that answers."""
        return self.model.name

    async def check(self) -> None:
        """Check the model that answers. Raises ModelError."""
        await self.model.check()

    async def aclose(self) -> None:
        """Close the model that answers."""
        await self.model.aclose()


@dataclass(frozen=True, slots=True)
class _TimedModel(WrappedModel):
    """A language model that is asked until a time, on the clock of the event loop, and raises CallTimeError after it.

    `seconds` is the setting, for the error.
    """

    ends_at: float
    seconds: float

    async def complete(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None) -> str:
        if (left := self.ends_at - anyio.current_time()) > 0:
            with anyio.move_on_after(left):
                return await self.model.complete(messages, schema)
        raise CallTimeError(f"the model takes longer than a call may ({self.seconds:g} seconds, learn.call_seconds).")


async def ignore(_: object) -> None:
    """Ignore a report of progress, or what was learned."""


@dataclass(frozen=True, slots=True)
class Engine(Searchable):
    """The parts of one open memory.

    `clock` shows the time in the zone of the user whom it works for. `model` is None if there is no language model.
    With `has_background` there is background work. `report_progress` receives messages about the progress of a call.
    `is_model_borrowed` means that the model is available during this call only, so the background work cannot use it.
    Whatever works on jobs in this process holds `jobs_lock`.
    """

    model: LanguageModel | None
    prompts: PromptFiles
    clock: Clock
    threads: Threads
    settings: Settings
    has_background: bool
    report_progress: ReportProgress = ignore
    is_model_borrowed: bool = False
    jobs_lock: anyio.Lock = field(default_factory=anyio.Lock)

    @property
    def answering(self) -> Engine:
        """Return this engine for one call that a client waits for, which asks a model only so long as the settings say.

        That also holds for the client's own model: a client that never answers would keep its call waiting. Without a
        background, our own model is given all the time it takes, because there is no later.
        """
        if self.model is None or not (self.has_background or self.is_model_borrowed):
            return self
        seconds = self.settings.learn.call_seconds
        return replace(self, model=_TimedModel(self.model, anyio.current_time() + seconds, seconds))

    def of_user(self, user_id: str) -> Engine:
        """Return this engine with a clock that shows the time of a user."""
        return replace(self, clock=self.ledger.zones.clock(self.clock, user_id))

    @property
    def own_model(self) -> LanguageModel | None:
        """Return the model that is always there, which alone is asked in the background, or None."""
        return None if self.is_model_borrowed else self.model

    @property
    def learns_later(self) -> bool:
        """Return whether messages are learned from after their call, which needs a model that is always there."""
        return self.has_background and bool(self.settings.learn.in_background) and self.own_model is not None

    async def run(self, blocking: Callable[[], _T]) -> _T:
        """Run blocking work in one of our own threads. Unless it says otherwise, it finishes even if cancelled."""
        return await self.threads.run(blocking)

    async def read(self, query: Callable[[Connection], _T]) -> _T:
        """Run a query of the ledger in one of our own threads. All that it reads is of one state of the ledger."""
        return await self.run(lambda: self.ledger.read_with(query))

    async def write(self, blocking: Callable[[], _T]) -> _T:
        """Run blocking work that writes the ledger in a thread that only writes. It finishes even if cancelled."""
        return await self.threads.write(blocking)


class OfMemory:
    """Methods of an open memory, which work with its engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def zone(self) -> tzinfo:
        """Return the zone in which the days of the user begin."""
        return self.engine.clock().tzinfo or UTC


_Self = TypeVar("_Self", bound=OfMemory)


def reads(
    method: Callable[Concatenate[_Self, Connection, _P], _T],
) -> Callable[Concatenate[_Self, _P], Coroutine[Any, Any, _T]]:
    """Make a method that reads the ledger awaitable: it gets a connection for one read, in a worker thread."""

    @wraps(method)
    async def read(self: _Self, *args: _P.args, **options: _P.kwargs) -> _T:
        return await self.engine.read(lambda conn: method(self, conn, *args, **options))

    return read


# Build the parts of a memory from the settings. An adapter is imported only if it is chosen.

logger = logging.getLogger(__name__)

# A longer value is a prompt and not a path.
MAX_PROMPT_PATH_CHARS = 1_024


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
        case "openai":
            from palimpsest.embed.openai import OpenAIEmbedder  # noqa: PLC0415 - slow, not the default

            return OpenAIEmbedder(config, settings.endpoint_of(config))
        case "onnx":
            from palimpsest.embed.onnx import OnnxEmbedder  # noqa: PLC0415 - slow, rarely chosen

            return OnnxEmbedder(config)
        case "static":
            pass
        case provider:
            try:
                return _open_e5()
            except EmbedderError as error:
                if provider == "e5":
                    raise
                # Not a warning: where there is no wheel, every command would print it.
                logger.info("the static embedder is used, which knows English best: %s", error)
    from palimpsest.embed.static import StaticEmbedder  # noqa: PLC0415 - takes half a second to load

    return StaticEmbedder()


def open_reranker(settings: Settings) -> Reranker | None:
    """Return the reranker of the settings, or None for none. It is loaded when it is first asked."""
    config = settings.reranker.config
    match settings.reranker.provider:
        case "onnx" if config.folder:
            from palimpsest.embed.onnx import OnnxReranker  # noqa: PLC0415 - slow, rarely chosen

            return OnnxReranker(config)
        case "endpoint" if config.base_url:
            from palimpsest.embed.rerank_endpoint import RerankEndpoint  # noqa: PLC0415 - likewise

            return RerankEndpoint(config)
        case _:
            return None


def _open_e5() -> Embedder:
    from palimpsest.embed.e5 import E5Embedder  # noqa: PLC0415 - beside its siblings

    return E5Embedder()


def open_model(settings: Settings) -> LanguageModel | None:
    """Return the language model of the settings; None if there is none, or if clients provide one for each call."""
    if settings.llm_provider == "anthropic":
        from palimpsest.llm.anthropic import AnthropicModel  # noqa: PLC0415 - an extra

        return AnthropicModel(settings.llm.config, settings.endpoint_of(settings.llm.config))
    if settings.llm_provider != "openai":
        return None
    from palimpsest.llm.openai import OpenAIModel  # noqa: PLC0415 - slow; most have no model

    return OpenAIModel(settings.llm.config, settings.endpoint_of(settings.llm.config))


def open_projection(settings: Settings, ledger: Ledger, embedder: str) -> Projection:
    """Return the projection of the settings, not opened yet."""
    config = settings.vector_store.config
    if settings.vector_store.provider == "exact":
        from palimpsest.index.sync import Scan  # noqa: PLC0415 - beside its siblings

        return Scan(ledger, embedder, settings.index_dir)
    if config.host is not None:
        return open_shared_projection(settings, ledger, embedder)
    from palimpsest.index import chroma_folder  # noqa: PLC0415 - beside its siblings

    index, prefix, root = chroma_folder.ChromaIndex, config.collection_name, settings.index_dir
    layout = f"chroma-{chroma_folder.LAYOUT}-{prefix}"
    return Projection(ledger, embedder, lambda folder: index.open_folder(folder, prefix), root, layout=layout)


def open_shared_projection(settings: Settings, ledger: Ledger, embedder: str) -> SharedProjection:
    """Return the projection onto the Chroma server of the settings, not connected yet."""
    from palimpsest.index import chroma_server  # noqa: PLC0415 - rarely chosen

    config = settings.vector_store.config
    prefix = f"{config.collection_name}-{ledger.id[:8]}"  # each ledger has its own collections on the server
    return chroma_server.SharedProjection(
        ledger,
        embedder,
        lambda: chroma_server.SharedIndex(config, prefix),
        settings.index_dir,
        layout=chroma_server.LAYOUT,
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
    if len(value) >= MAX_PROMPT_PATH_CHARS or "\n" in value or not value.endswith((".md", ".txt")):
        return value
    with raised_as(PromptError, f"the custom prompt {value} cannot be read", "", OSError, UnicodeDecodeError):
        return Path(value).expanduser().read_text("utf-8")
