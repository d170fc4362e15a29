"""Lend the memory the client's own model for the length of a call, where the settings want it and the client has it."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from mcp.server.mcpserver import Context
from mcp.shared.message import ServerMessageMetadata
from mcp.types import CreateMessageRequest, CreateMessageResultWithTools, InputRequiredResult
from pydantic import BaseModel

from palimpsest.llm.client_sampling import Put, SamplingModel
from palimpsest.server.app import shared
from palimpsest.server.auth.access import calling_user, granted
from palimpsest.server.session.continuations import ASKED_BETWEEN_CALLS_SINCE, Continuation, WorkResult

if TYPE_CHECKING:
    from palimpsest.core.protocols import ReportProgress
    from palimpsest.memory import Memory

T = TypeVar("T")


async def with_model(
    ctx: Context[Any, Any], memory: Memory, work: Callable[[Memory], Awaitable[T]]
) -> T | InputRequiredResult:
    """Do work with a memory that may ask the client's model; return what it came to, or what the client is to be asked.

    `work` is begun once however many rounds the call takes. Raises what it raises.
    """
    continuations, user, continuation_id = shared(ctx).continuations, calling_user(), ctx.request_state
    between = (ctx.protocol_version or "") >= ASKED_BETWEEN_CALLS_SINCE
    if continuation_id is None and not (_may_lend(ctx, memory) and (not between or continuations.has_room(user))):
        return await work(memory.for_call(_teller(ctx)))
    if not between:
        return await work(memory.for_call(_teller(ctx), _model(memory, partial(_put, ctx))))

    async def in_rounds(continuation: Continuation) -> T:
        return await work(memory.for_call(model=_model(memory, continuation.put)))

    continuation = (
        continuations.begin(user, in_rounds) if continuation_id is None else continuations.find(continuation_id)
    )
    for key, answer in (ctx.input_responses or {}).items():
        continuation.answer(key, answer)
    step = await continuations.step(continuation)
    if not isinstance(step, WorkResult):
        return InputRequiredResult(input_requests={step.key: step.request}, request_state=continuation.id)
    if step.error is not None:
        raise step.error
    return step.value


def _may_lend(ctx: Context[Any, Any], memory: Memory) -> bool:
    """Say whether to ask the client: the settings want it, it says it can be, and there is a way to.

    Not a client whose token only reads: what its model says would be written.
    """
    grant, capabilities = granted(), ctx.client_capabilities
    if memory.settings.llm_provider != "sampling" or (grant is not None and grant.read_only):
        return False
    if capabilities is None or capabilities.sampling is None:
        return False
    return (ctx.protocol_version or "") >= ASKED_BETWEEN_CALLS_SINCE or ctx.session.can_send_request


def _model(memory: Memory, put: Put) -> SamplingModel:
    config = memory.settings.llm.config
    return SamplingModel(put, temperature=config.temperature, max_tokens=config.max_tokens, timeout=config.timeout)


async def _put(ctx: Context[Any, Any], question: CreateMessageRequest) -> BaseModel:
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    return await ctx.session.send_request(question, CreateMessageResultWithTools, metadata=related)


def _teller(ctx: Context[Any, Any]) -> ReportProgress:
    """Return what tells a client that asked for it how far its call is."""
    steps = itertools.count(1)

    async def report_progress(what: str) -> None:
        await ctx.report_progress(next(steps), message=what)

    return report_progress
