"""Memories with the methods and replies of mem0's `Memory` and `AsyncMemory`, for programs that were written for them.

An event loop in a thread of its own does the work, so any number of threads may call. Each method is one call there.
"""

from __future__ import annotations

import hashlib
import sys
import warnings
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import date
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

import anyio.to_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal
from sqlalchemy import Connection

from palimpsest import memory as facade
from palimpsest.core import validation
from palimpsest.core.errors import InputError, PalimpsestError
from palimpsest.core.filters import JUNCTIONS
from palimpsest.core.models import EXPIRES_AT, Event, Hit, KnownRelation, Message, Outcome, Scope
from palimpsest.core.models import Memory as StoredMemory
from palimpsest.core.settings import Settings, load_settings
from palimpsest.core.settings_file import mem0_settings
from palimpsest.store import entries
from palimpsest.store.memories import memories_by_id
from palimpsest.store.messages import messages_by_id

_T = TypeVar("_T")
_P = ParamSpec("_P")

CALLER = "library"

SCOPE_PARTS = ("user_id", "agent_id", "run_id")

# The arguments of mem0 that cannot be followed.
UNSUPPORTED = (
    *("prompt", "memory_type", "reference_date", "show_expired", "rerank", "version", "output_format", "enable_graph"),
    *("keyword_search", "filter_memories", "async_mode", "immutable", "llm"),
)


class ArgumentError(InputError, ValueError):
    """An argument cannot be used. mem0 raises ValueError then, so this is one too."""


class Memory:
    """A long-term memory with mem0's methods. Without a configuration it has the settings of the server.

    A memory belongs to a user: without `user_id` to the one of the settings. Close it, or use it in a `with` block; at
    the end of the program it closes by itself. With `background`, which suits a service, it keeps a vector index, links
    and summarizes as long as it is open. Raises PalimpsestError.
    """

    def __init__(self, config: Mapping[str, Any] | Settings | None = None, *, background: bool = False) -> None:
        settings = config if isinstance(config, Settings) else _settings_from(config or {})
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal(name="palimpsest"))
            opening = facade.open_memory(settings, background=background)
            self._memory = stack.enter_context(portal.wrap_async_context_manager(opening))
            # A portal of their own, so that calls end before the memory is closed.
            self._calls = stack.enter_context(portal.wrap_async_context_manager(portal.call(BlockingPortal)))
            self._close = weakref.finalize(self, stack.pop_all().close)

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> Self:
        """Open a memory with a configuration of mem0's. Settings of Palimpsest may stand in it, too."""
        return cls(_settings_from(config_dict))

    def close(self) -> None:
        """Finish the calls of other threads, and close. Closing again does nothing."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(
        self,
        messages: str | Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        metadata: Mapping[str, Any] | None = None,
        timestamp: Any = None,
        expiration_date: str | date | None = None,
        infer: bool = True,
        **others: Any,
    ) -> dict[str, Any]:
        """Store what was said. With a language model its facts are stored, else (or without `infer`) every message.

        The results are what was added and changed.
        """
        _warn_of("add", others)
        given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        listed = [given] if isinstance(given, Mapping) else _list_of("messages", given)
        if timestamp is not None:
            listed = [{"timestamp": timestamp, **message} for message in listed]

        async def work(memory: facade.Memory) -> list[Outcome]:
            scope = _scope(memory, user_id=user_id, agent_id=agent_id, run_id=run_id)
            labels = validation.metadata_from({**(metadata or {}), **_expiry(expiration_date)})
            if not listed:
                return []
            said = validation.conversation_from(listed, scope, memory.engine.clock())
            if infer and memory.engine.model is not None:
                result = await memory.add_messages(said.messages, context=said.context, caller=CALLER)
                return [await _labelled(memory, outcome, labels) for outcome in result.outcomes]
            return [outcome for message in said.messages for outcome in await _stored(memory, message, labels)]

        outcomes = self._call(work)
        relations = [
            {"source": item.source, "relationship": item.name, "destination": item.destination}
            for outcome in outcomes
            if outcome.event in (Event.ADD, Event.UPDATE)
            for item in outcome.memory.relations
        ]
        return self._reply([_outcome(outcome) for outcome in outcomes], relations)

    def search(  # noqa: PLR0913 - the arguments of mem0
        self,
        query: str,
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        limit: int | None = None,
        top_k: int | None = None,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        explain: bool = False,
        **others: Any,
    ) -> dict[str, Any]:
        """Search memories, best first; messages only if `filters` ask for their `kind`.

        The user, the agent and the run may also be in `filters`. Scores are Palimpsest's: one below 0.5 is a guess.
        """
        _warn_of("search", others)
        ids, conditions = _parted(filters, user_id=user_id, agent_id=agent_id, run_id=run_id)
        number = next((given for given in (limit, top_k) if given is not None), 20)
        least = float(threshold or 0.0)

        async def work(memory: facade.Memory) -> dict[str, Any]:
            found = await memory.search(
                _scope(memory, **ids),
                validation.query_from(query),
                limit=min(validation.bounded("limit", number, 1, sys.maxsize), validation.MAX_LIMIT),
                max_tokens=validation.MAX_TOKENS,
                filters={"kind": "memory", **conditions},
                explain=explain,
                caller=CALLER,
            )
            hits = [hit for hit in found.hits if hit.score >= least]
            results = [
                {**item, "score": hit.score, **({"score_details": dict(hit.score_parts)} if explain else {})}
                for hit, item in await _items(memory, hits)
            ]
            return self._reply(results, _relations(found.relations, "destination"))

        return self._call(work)

    def get_all(
        self,
        *,
        user_id: Any = None,
        agent_id: Any = None,
        run_id: Any = None,
        filters: Mapping[str, Any] | None = None,
        limit: int | None = None,
        top_k: int | None = None,
        **others: Any,
    ) -> dict[str, Any]:
        """List memories, newest first; messages only if `filters` ask for their `kind`."""
        _warn_of("get_all", others)
        ids, conditions = _parted(filters, user_id=user_id, agent_id=agent_id, run_id=run_id)
        number = limit or top_k or validation.MAX_LIMIT

        async def work(memory: facade.Memory) -> dict[str, Any]:
            scope, hits, cursor = _scope(memory, **ids), list[Hit](), None
            while len(hits) < number:
                size = min(number - len(hits), validation.MAX_LIMIT)
                page = await memory.list(scope, limit=size, cursor=cursor, filters=conditions)
                hits += page.hits
                cursor = page.cursor
                if cursor is None:
                    break
            graph = await memory.graph.subgraph(scope, limit=number)
            results = [item for _, item in await _items(memory, hits)]
            return self._reply(results, _relations(graph.relations, "target"))

        return self._call(work)

    def get(self, memory_id: str) -> dict[str, Any] | None:
        """Return a memory or message of any user, or None if there is none of this id."""

        async def work(memory: facade.Memory) -> dict[str, Any] | None:
            owner = (await _owners(memory, [memory_id])).get(memory_id)
            if owner is None or owner.deleted_at is not None:
                return None
            memory.fading.after_naming(owner.scope.user_id, owner.id)
            return _item(owner)

        return self._call(work)

    def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: str | date | None = None,
        data: str | None = None,
    ) -> dict[str, str]:
        """Give a memory another text, or add to its metadata. Its history keeps what it said. `data` is the text."""
        new_text = text if text is not None else data
        labels = {**(metadata or {}), **_expiry(expiration_date)}
        if new_text is None and not labels:
            raise ArgumentError("give text, metadata or expiration_date. Nothing was changed.")

        async def work(memory: facade.Memory) -> None:
            owner = await _owner(memory, memory_id)
            words = None if new_text is None else validation.text_from(new_text)
            metadata = validation.metadata_from(labels)
            revision = None if isinstance(owner, Message) else owner.revision
            await memory.update(owner.scope, owner.id, text=words, metadata=metadata, caller=CALLER, revision=revision)

        self._call(work)
        return {"message": "Memory updated successfully!"}

    def delete(self, memory_id: str) -> dict[str, str]:
        """Delete a memory or message. `palimpsest undo` takes it back; `palimpsest purge` erases it for good."""

        async def work(memory: facade.Memory) -> None:
            owner = await _owner(memory, memory_id)
            revision = f"@{owner.revision}" if isinstance(owner, StoredMemory) else ""
            await memory.delete(owner.scope, [f"{owner.id}{revision}"], caller=CALLER)

        self._call(work)
        return {"message": "Memory deleted successfully!"}

    def delete_all(self, user_id: Any = None, agent_id: Any = None, run_id: Any = None) -> dict[str, str]:
        """Delete all memories and messages of a user, an agent or a run, as one edit that can be undone."""

        async def work(memory: facade.Memory) -> None:
            scope = _scope(memory, user_id=user_id, agent_id=agent_id, run_id=run_id)
            await memory.delete_all(scope, caller=CALLER)

        self._call(work)
        return {"message": "Memories deleted successfully!"}

    def history(self, memory_id: str) -> list[dict[str, Any]]:
        """Return the versions of a memory, living or deleted, oldest first."""

        async def work(memory: facade.Memory) -> list[dict[str, Any]]:
            owner = await _owner(memory, memory_id)
            versions = (await memory.history(owner.scope, owner.id)).versions
            return [
                {
                    **{name: getattr(version, name) for name in ("id", "memory_id", "old_memory", "new_memory")},
                    "event": version.event.value,
                    **{name: getattr(version, name).isoformat() for name in ("created_at", "updated_at")},
                    "is_deleted": version.is_deleted,
                    **{name: getattr(version, name) or None for name in ("actor_id", "role")},
                }
                for version in versions
            ]

        return self._call(work)

    def reset(self) -> None:
        """Delete all memories and messages of all users, an edit for each user and project that can be undone."""

        async def work(memory: facade.Memory) -> None:
            for scope in await memory.engine.read(entries.scopes_with_content):
                await memory.delete_all(scope, caller=CALLER)

        self._call(work)

    def _reply(self, results: list[dict[str, Any]], relations: list[dict[str, str]]) -> Any:
        """Return a reply in the form of the configured version of mem0: v1.0 has only the list of the results."""
        is_list = self._memory.settings.version == "v1.0"
        return results if is_list else {"results": results, "relations": relations}

    def _call(self, work: Callable[[facade.Memory], Awaitable[_T]]) -> _T:
        """Do work in the thread of the memory and return its result."""
        try:
            future = self._calls.start_task_soon(work, self._memory)
        except RuntimeError as error:  # no call begins any more
            raise PalimpsestError("this memory is closed; what it stored is kept. Open another one") from error
        try:
            return future.result()
        except InputError as error:
            raise ArgumentError(str(error), error.remedy, error.owner_id) from error


def _awaited(
    method: Callable[Concatenate[Memory, _P], _T],
) -> Callable[Concatenate[AsyncMemory, _P], Coroutine[Any, Any, _T]]:
    """Return a coroutine function that does what a method of `Memory` does, in a worker thread."""

    @wraps(method)
    async def call(self: AsyncMemory, *args: _P.args, **options: _P.kwargs) -> _T:
        return await anyio.to_thread.run_sync(partial(method, self.memory, *args, **options))

    return call


class AsyncMemory:
    """A long-term memory with the methods of mem0's `AsyncMemory`: those of `Memory`, to be awaited.

    `memory` is the synchronous one. Close it with `await memory.close()` or by an `async with` block.
    """

    def __init__(self, config: Mapping[str, Any] | Settings | None = None, *, background: bool = False) -> None:
        self.memory = Memory(config, background=background)

    @classmethod
    async def from_config(cls, config_dict: Mapping[str, Any]) -> Self:
        """Open a memory with a configuration of mem0's, as `Memory.from_config` does."""
        return await anyio.to_thread.run_sync(cls, _settings_from(config_dict))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    add = _awaited(Memory.add)
    search = _awaited(Memory.search)
    get = _awaited(Memory.get)
    get_all = _awaited(Memory.get_all)
    update = _awaited(Memory.update)
    delete = _awaited(Memory.delete)
    delete_all = _awaited(Memory.delete_all)
    history = _awaited(Memory.history)
    reset = _awaited(Memory.reset)
    close = _awaited(Memory.close)


def _settings_from(config: Mapping[str, Any]) -> Settings:
    values, sentences = mem0_settings(config, Settings)
    for sentence in sentences:
        warnings.warn(sentence, stacklevel=3)
    return load_settings(**values)


def _warn_of(method: str, arguments: Mapping[str, Any]) -> None:
    """Warn of arguments that cannot be followed. Raises TypeError for those that mem0 has not either."""
    for name, value in arguments.items():
        if name not in UNSUPPORTED:
            raise TypeError(f"{method}() got an unexpected keyword argument '{name}'")
        if value not in (None, False):
            warnings.warn(f"{method}() ignores '{name}', which Palimpsest does not have", stacklevel=3)


def _expiry(given: str | date | None) -> dict[str, Any]:
    return {} if given is None else {EXPIRES_AT: given if isinstance(given, str) else f"{given:%Y-%m-%d}"}


def _scope(memory: facade.Memory, **ids: Any) -> Scope:
    """Return the scope of a user, an agent and a run, of which one must be given. As in mem0 an agent sees its own."""
    parts = {name: validation.scope_part(name, str(value)) for name, value in ids.items() if value is not None}
    if not any(parts.values()):
        raise InputError("give user_id, agent_id or run_id, or filters with one of them. Nothing was done.")
    user_id = parts.get("user_id") or memory.settings.user_id
    return Scope(user_id, agent_id=parts.get("agent_id", ""), run_id=parts.get("run_id", ""), with_shared=False)


def _parted(filters: Mapping[str, Any] | None, **ids: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parts of the scope, which may be in a filter, and the rest of the filter in our form."""
    if filters is not None and not isinstance(cast("object", filters), Mapping):
        raise ArgumentError(f"filters is {type(filters).__name__} and must be a dictionary, such as {EXAMPLE}")
    return ids, _conditions(filters or {}, ids)


EXAMPLE = '{"topic": "tea"}'


def _list_of(name: str, value: Any) -> list[dict[str, Any]]:
    """Return a list of dictionaries. Raises ArgumentError for anything else."""
    if not isinstance(value, list | tuple) or not all(isinstance(each, Mapping) for each in cast("list[Any]", value)):
        raise ArgumentError(f"{name} must be a text, a dictionary, or a list of dictionaries with role and content")
    return [dict(each) for each in cast("list[Mapping[str, Any]]", value)]


def _conditions(filters: Mapping[str, Any], ids: dict[str, Any] | None) -> dict[str, Any]:
    """Return a filter of mem0's in our form. If `ids` are given, parts of the scope go there."""
    kept: dict[str, Any] = {}
    for key, value in filters.items():
        if ids is not None and key in SCOPE_PARTS and isinstance(value, str | int):
            ids[key] = value if ids.get(key) is None else ids[key]
        elif key in JUNCTIONS and isinstance(value, list):
            parts = cast("list[Any]", value)
            if not all(isinstance(part, Mapping) for part in parts):
                raise ArgumentError(f"{key} in filters needs a list of dictionaries, such as [{EXAMPLE}]")
            inner = (_conditions(each, ids if key == "AND" else None) for each in parts)
            kept[key] = [part for part in inner if part]
        else:
            kept["speaker" if key == "actor_id" else key] = {"ne": None} if value == "*" else value
    return {key: value for key, value in kept.items() if value != []}


async def _stored(memory: facade.Memory, message: Message, labels: Mapping[str, Any]) -> Sequence[Outcome]:
    """Store a message as a memory, word for word."""
    result = await memory.add_text(
        message.scope,
        message.content,
        at=message.said_at,
        metadata=labels,
        role=message.role,
        name=message.name,
        infer=False,
        caller=CALLER,
    )
    return result.outcomes


async def _labelled(memory: facade.Memory, outcome: Outcome, labels: Mapping[str, Any]) -> Outcome:
    """Give a memory that was learned the metadata of its call."""
    if labels and outcome.kind == "memory" and outcome.event in (Event.ADD, Event.UPDATE):
        await memory.update(outcome.memory.scope, outcome.memory.id, metadata=labels, caller=CALLER)
    return outcome


async def _owners(memory: facade.Memory, ids: Sequence[str]) -> dict[str, StoredMemory | Message]:
    """Return memories and messages of any user by their ids."""

    def read(conn: Connection) -> dict[str, StoredMemory | Message]:
        return {**memories_by_id(conn, ids), **messages_by_id(conn, ids)}

    return await memory.engine.read(read)


async def _owner(memory: facade.Memory, memory_id: str) -> StoredMemory | Message:
    owner = (await _owners(memory, [memory_id])).get(memory_id)
    if owner is None:
        raise InputError(f"there is no memory with the id '{memory_id[:80]}', so nothing was done")
    return owner


async def _items(memory: facade.Memory, hits: Sequence[Hit]) -> list[tuple[Hit, dict[str, Any]]]:
    """Return each hit with what mem0 shows of it, but for what was purged meanwhile."""
    owners = await _owners(memory, [hit.id for hit in hits])
    return [(hit, _item(owners[hit.id])) for hit in hits if hit.id in owners]


def _item(owner: StoredMemory | Message) -> dict[str, Any]:
    """Return a memory or message as mem0 shows it."""
    stored = owner.as_memory if isinstance(owner, Message) else owner
    metadata = dict(stored.metadata)
    expiry = metadata.pop(EXPIRES_AT, None)
    optional = {
        "user_id": stored.scope.user_id,
        "agent_id": stored.scope.agent_id,
        "run_id": stored.scope.run_id,
        "actor_id": stored.actor_id,
        "role": stored.role,
        "expiration_date": expiry,
    }
    return {
        "id": stored.id,
        "memory": stored.text,
        "hash": hashlib.md5(stored.text.encode(), usedforsecurity=False).hexdigest(),
        "metadata": metadata or None,
        "created_at": stored.created_at.isoformat(),
        "updated_at": stored.updated_at.isoformat(),
        **{name: value for name, value in optional.items() if value},
    }


def _relations(found: Iterable[KnownRelation], end: str) -> list[dict[str, str]]:
    """Return relations as mem0 shows them, which calls their `end` otherwise in a list than in a search."""
    return [{"source": each.source, "relationship": each.relationship, end: each.destination} for each in found]


def _outcome(outcome: Outcome) -> dict[str, Any]:
    """Return what became of a memory as mem0 shows it."""
    item: dict[str, Any] = {"id": outcome.memory.id, "memory": outcome.memory.text, "event": outcome.event.value}
    if outcome.previous is not None and outcome.event is Event.UPDATE:
        item["previous_memory"] = outcome.previous
    optional = {"actor_id": outcome.memory.actor_id, "role": outcome.memory.role}
    return item | {name: value for name, value in optional.items() if value}
