"""What a handler needs to know about the request it answers: the open memory, the scope, what the client can do."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import anyio.to_thread
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.types import CreateMessageResultWithTools, InputRequiredResult

from palimpsest.core import validation
from palimpsest.core.errors import InputError, LedgerError, PalimpsestError
from palimpsest.core.models import Scope
from palimpsest.core.validation import ScopeInput, SearchScopeInput
from palimpsest.hooks.instructions import NEVER
from palimpsest.llm.sampling import SamplingModel, Send
from palimpsest.server.access_tokens import OPEN, current_grant, may_write
from palimpsest.server.recall_socket import serve_prompts
from palimpsest.server.session import client_requests
from palimpsest.server.session.rate_limits import Calls
from palimpsest.server.session.subscriptions import Subscribers
from palimpsest.text.intents import FORGOTTEN

if TYPE_CHECKING:
    from palimpsest.core.models import ChangedMemory, Outcome
    from palimpsest.core.settings import Settings
    from palimpsest.memory import Memory


# Open the memory after the client's handshake, so that the handshake is answered at once.
#
# Opening the memory imports SQLAlchemy, Chroma and the embedder, which takes seconds. The imports run in a worker
# thread and start with the first request after the handshake.

logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class LazyMemory:
    """A memory that is opened on first use, and then is `opened`. If that fails, every waiting request gets the error.

    The next request after a failure tries to open the memory again. `on_learned` is awaited with what was learned in
    the background, `on_changed` with what other servers have changed.
    """

    load_settings: Callable[[], Settings]
    on_learned: Callable[[Sequence[Outcome]], Awaitable[None]]
    on_changed: Callable[[Sequence[ChangedMemory]], Awaitable[None]]
    opened: Memory | None = None
    _settings: Settings | None = None
    _settings_loaded: anyio.Event = field(default_factory=anyio.Event)
    _error: PalimpsestError | None = None
    _requested: anyio.Event = field(default_factory=anyio.Event)
    _settled: anyio.Event = field(default_factory=anyio.Event)

    def start_opening(self) -> None:
        """Start to open the memory in the background, unless that has started already."""
        self._requested.set()

    async def get(self) -> Memory:
        """Return the open memory. Raises the PalimpsestError that kept it from opening."""
        if self.opened is not None:
            return self.opened
        self.start_opening()
        await self._settled.wait()
        if self.opened is None:
            raise self._error or PalimpsestError("the memory is closed")
        return self.opened

    @property
    def has_failed(self) -> bool:
        """Return whether the memory is closed because the last attempt to open it failed."""
        return self.opened is None and self._error is not None

    def learn_folder(self, folder: str, project: str) -> None:
        """Have what sessions in a folder begin with rendered, if the memory is open."""
        if self.opened is not None:
            self.opened.briefs.learn_folder(folder, project)

    async def settings(self) -> Settings:
        """Return the settings once they are loaded, which is before the memory is open."""
        await self._settings_loaded.wait()
        return cast("Settings", self._settings)

    async def health(self) -> dict[str, str]:
        """Return the state of each part, without any content. `status` is ok, opening, degraded or failed."""
        if self.opened is None:
            return {"status": "failed" if self.has_failed else "opening"}
        return await self.opened.health()

    async def run(self) -> None:
        """Open the memory when it is first requested, and keep it open until cancelled."""
        while True:
            await self._requested.wait()
            try:
                await self._keep_open()
            except PalimpsestError as error:
                fields = {"reason": str(error)}  # nothing was read of what is stored
                logger.error("the memory could not be opened: %s", error, extra={"fields": fields})  # noqa: TRY400 - the text is complete
                self._error = error
            except Exception:  # the server must stay up to report it to its clients
                logger.exception("the memory could not be opened")
                self._error = PalimpsestError("the memory could not be opened; see the server's log for the reason")
            # Every waiting request gets the error, and the next one tries again.
            settled, self._settled, self._requested = self._settled, anyio.Event(), anyio.Event()
            settled.set()

    async def _keep_open(self) -> None:
        module = await anyio.to_thread.run_sync(importlib.import_module, "palimpsest.memory")
        settings = self._settings = self.load_settings()
        self._settings_loaded.set()
        async with module.open_memory(settings, on_learned=self.on_learned) as memory:
            self.opened = memory
            self._settled.set()
            try:
                if settings.ledger_url is not None:
                    from palimpsest.learn.browsing import hear_changes  # noqa: PLC0415 - only with a database for many

                    await hear_changes(memory.engine, self.on_changed)
                await anyio.sleep_forever()
            finally:
                self.opened = None


# The state that all connections of one server share.


@dataclass(frozen=True, slots=True)
class ServerState:
    """The open memory and everything else that outlives a single request.

    `client_project` is set only in the copy that a single request sees: the project of the access token, of the
    client's roots or of the settings, under its present name, or "". `instructions_until` is when the instructions
    that were read at the start no longer hold, in seconds of the epoch.
    """

    memory: LazyMemory
    calls: Calls
    subscribers: Subscribers
    roots: client_requests.Roots
    open_calls: client_requests.OpenCalls = field(default_factory=client_requests.OpenCalls)
    client_project: str = ""
    instructions_until: float = NEVER

    async def run(self) -> None:
        """Keep the memory open, unfinished calls going, and clients and hooks informed until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.memory.run)
            tasks.start_soon(self.open_calls.run)
            tasks.start_soon(serve_prompts, self.memory.settings, lambda: self.memory.opened)


# What was learned in the background, and what is new in this version, as notes on the next reply.

RESTORE = "list_memories(deleted=true) has the ids of what was forgotten; update_memory(restore=true) restores it"


async def news(memory: Memory, scope: Scope) -> tuple[str, ...]:
    """Return what no reply has told yet. An access token that only reads leaves it to those that write.

    If the ledger cannot be read, the next reply tells it: this one has to say what was done.
    """
    try:
        notes = await memory.news(scope) if may_write() else ()
    except LedgerError:
        return ()
    return (*notes, RESTORE) if any(note.startswith(FORGOTTEN) for note in notes) else notes


AnyContext: TypeAlias = Context[Any, Any] | ServerRequestContext[Any, Any]


def state_of(ctx: AnyContext) -> ServerState:
    """Return the server's state, as the request that `ctx` belongs to sees it."""
    request = ctx.request_context if isinstance(ctx, Context) else ctx
    return cast("ServerState", request.lifespan_context)


async def request_of(ctx: AnyContext, scope: ScopeInput | None = None) -> tuple[Memory, Scope]:
    """Return the open memory, with the threads and the days of the caller, and the scope that the request works in.

    The access token decides first, then the `scope` argument, then the client's roots and the settings. Raises the
    PalimpsestError that kept the memory from opening, and InputError for a scope that the access token does not allow.
    """
    state, grant = state_of(ctx), current_grant()
    memory = await state.memory.get()
    threads = state.calls.threads(ctx.request_context if isinstance(ctx, Context) else ctx)
    memory = memory.for_call(threads=threads, user_id=None if grant is OPEN else grant.user_id)
    default = replace(memory.scope, project=state.client_project or grant.project or memory.scope.project)
    if grant is OPEN:
        return memory, validation.scope_from(default, scope)
    default = grant.within(replace(default, user_id=grant.user_id))
    requested = validation.scope_from(default, scope)
    if grant.project and requested.project == grant.project:
        requested = replace(requested, project=default.project)
    if requested.user_id != grant.user_id:
        raise InputError(f"this access token is only valid for user {grant.user_id}; leave scope.user_id out")
    if grant.project and requested.project != default.project:
        raise InputError(f"this access token is only valid for project {grant.project}; leave scope.project out")
    return memory, requested


def is_home_open(scope: ScopeInput | None) -> bool:
    """Return whether a text may be stored outside of the project: neither the call nor the access token names one."""
    return not current_grant().project and (scope is None or "project" not in scope.model_fields_set)


def named_user(given: ScopeInput | None, resolved: Scope) -> tuple[str, ...]:
    """Return the note on the scope of a call that names its user, and so may be about another than the server's own.

    Replies name every other scope themselves.
    """
    is_named = given is not None and given.user_id is not None and resolved == Scope(resolved.user_id)
    return (f"scope: {resolved}",) if is_named else ()


async def closing_notes(memory: Memory, given: ScopeInput | None, resolved: Scope) -> tuple[str, ...]:
    """Return the notes at the end of a reply: on the user that the call names, and what no reply has told yet."""
    return (*named_user(given, resolved), *await news(memory, resolved))


async def named_project(memory: Memory, given: ScopeInput | None, resolved: Scope) -> tuple[str, ...]:
    """Return the note on a call whose scope names a project that the user does not have: a misspelt name finds nothing.

    Call it before the call stores anything. Raises LedgerError.
    """
    if given is None or not given.project or not resolved.project or current_grant().project:
        return ()
    unknown = await memory.projects.unknown(resolved.project, user_id=resolved.user_id)
    return (unknown,) if unknown else ()


def goes_through_projects(scope: SearchScopeInput | None) -> bool:
    """Return whether a search is to go through all projects. Raises InputError if the access token names one."""
    if scope is None or not scope.all_projects:
        return False
    if project := current_grant().project:
        raise InputError(f"this access token is only valid for project {project}; leave scope.all_projects out")
    return True


def client_name(ctx: Context[Any, Any]) -> str:
    """Return what the client calls itself, or "mcp" if it has not said so."""
    params = ctx.session.client_params
    return (params.client_info.name if params is not None else "") or "mcp"


def can_ask_user(ctx: Context[Any, Any]) -> bool:
    """Return whether the client can show its user a form (MCP elicitation)."""
    capabilities = ctx.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


# Let the memory use the client's own language model for the duration of a call (MCP sampling).

T = TypeVar("T")


async def with_client_model(
    ctx: Context[Any, Any], memory: Memory, work: Callable[[Memory], Awaitable[T]]
) -> T | InputRequiredResult:
    """Run `work` with a memory that may ask the client's model. Return its result, or the question to the client.

    `work` starts once, however many requests the call takes. Raises what `work` raises.
    """
    open_calls, user, may_ask = state_of(ctx).open_calls, current_grant().user_id, _may_ask_model(ctx, memory)
    between_requests = asks_between_requests(ctx)

    def with_model(ask: Send) -> Memory:
        config = memory.settings.llm.config
        model = SamplingModel(ask, temperature=config.temperature, max_tokens=config.max_tokens, timeout=config.timeout)
        return memory.for_call(model=model)

    if between_requests and ctx.request_state is not None:
        return await open_calls.go_on(ctx.request_state, ctx.input_responses or {})
    if between_requests and may_ask and open_calls.has_room(user):
        return await open_calls.begin(user, lambda continuation: work(with_model(continuation.ask)))
    if may_ask and not between_requests:
        memory = with_model(partial(client_requests.ask_during_call, ctx, reply=CreateMessageResultWithTools))
    return await work(memory.for_call(client_requests.reporting(ctx)))


def asks_between_requests(ctx: Context[Any, Any]) -> bool:
    """Return whether a client is asked between two requests, and not during a call."""
    return (ctx.protocol_version or "") >= client_requests.ASKED_BETWEEN_REQUESTS_SINCE


def _may_ask_model(ctx: Context[Any, Any], memory: Memory) -> bool:
    """Return whether to ask the client's model: the settings allow it, and the client can be asked.

    A client with a read-only access token is never asked, because its model's replies would be stored.
    """
    capabilities = ctx.client_capabilities
    can_sample = capabilities is not None and capabilities.sampling is not None
    is_wanted = memory.settings.llm_provider == "sampling" and may_write()
    return is_wanted and can_sample and (asks_between_requests(ctx) or ctx.session.can_send_request)
