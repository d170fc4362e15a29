"""Let the memory use the client's own language model for the duration of a call (MCP sampling)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from mcp.server.mcpserver import Context
from mcp.shared.message import ServerMessageMetadata
from mcp.types import CreateMessageRequest, CreateMessageResultWithTools, InputRequiredResult
from pydantic import BaseModel

from palimpsest.llm.client_sampling import SamplingModel, Send
from palimpsest.server.auth.access import current_grant, current_user
from palimpsest.server.session.context import state_of
from palimpsest.server.session.continuations import ASKED_BETWEEN_REQUESTS_SINCE, Continuation, WorkResult

if TYPE_CHECKING:
    from palimpsest.memory import Memory

T = TypeVar("T")


async def with_client_model(
    ctx: Context[Any, Any], memory: Memory, work: Callable[[Memory], Awaitable[T]]
) -> T | InputRequiredResult:
    """Run `work` with a memory that may ask the client's model. Return its result, or the question to the client.

    `work` starts once, however many requests the call takes. Raises what `work` raises.
    """
    continuations, user, continuation_id = state_of(ctx).continuations, current_user(), ctx.request_state
    between_requests = asks_between_requests(ctx)
    may_wait = not between_requests or continuations.has_room(user)
    if continuation_id is None and not (_may_ask_model(ctx, memory) and may_wait):
        with state_of(ctx).running.reporting(ctx) as report_progress:
            return await work(memory.for_call(report_progress))
    if not between_requests:
        with state_of(ctx).running.reporting(ctx) as report_progress:
            return await work(memory.for_call(report_progress, _model(memory, partial(_ask_during_call, ctx))))

    async def work_over_requests(continuation: Continuation) -> T:
        return await work(memory.for_call(model=_model(memory, continuation.ask)))

    if continuation_id is None:
        continuation = continuations.begin(user, work_over_requests)
    else:
        continuation = continuations.find(continuation_id)
        for key, reply in (ctx.input_responses or {}).items():
            continuation.reply(key, reply)
    return await result_or_question(ctx, continuation)


async def result_or_question(ctx: Context[Any, Any], continuation: Continuation) -> Any:
    """Return the result of work, or its next question to the client. Raises what the work raises."""
    step = await state_of(ctx).continuations.next_step(continuation)
    if not isinstance(step, WorkResult):
        return InputRequiredResult(input_requests={step.key: step.request}, request_state=continuation.id)
    if step.error is not None:
        raise step.error
    return step.value


def asks_between_requests(ctx: Context[Any, Any]) -> bool:
    """Return whether a client is asked between two requests, and not during a call."""
    return (ctx.protocol_version or "") >= ASKED_BETWEEN_REQUESTS_SINCE


def _may_ask_model(ctx: Context[Any, Any], memory: Memory) -> bool:
    """Return whether to ask the client's model: the settings allow it, and the client can be asked.

    A client with a read-only access token is never asked, because its model's replies would be stored.
    """
    grant, capabilities = current_grant(), ctx.client_capabilities
    if memory.settings.llm_provider != "sampling" or (grant is not None and grant.read_only):
        return False
    if capabilities is None or capabilities.sampling is None:
        return False
    return asks_between_requests(ctx) or ctx.session.can_send_request


def _model(memory: Memory, ask: Send) -> SamplingModel:
    config = memory.settings.llm.config
    return SamplingModel(ask, temperature=config.temperature, max_tokens=config.max_tokens, timeout=config.timeout)


async def _ask_during_call(ctx: Context[Any, Any], request: CreateMessageRequest) -> BaseModel:
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    return await ctx.session.send_request(request, CreateMessageResultWithTools, metadata=related)
