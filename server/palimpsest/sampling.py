"""Lend the memory the client's own model for the length of a call, where the settings want it and the client has it."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from mcp.server.mcpserver import Context
from mcp.shared.message import ServerMessageMetadata
from mcp.types import CreateMessageRequest, CreateMessageResult, InputRequiredResult

from palimpsest.adapters.model_sampling import Put, SamplingModel
from palimpsest.rounds import ASKED_BETWEEN_CALLS_SINCE, Outcome, Talk
from palimpsest.server import shared

if TYPE_CHECKING:
    from palimpsest.memory import Memory
    from palimpsest.ports import Tell

T = TypeVar("T")


async def with_model(
    ctx: Context[Any, Any], memory: Memory, work: Callable[[Memory], Awaitable[T]]
) -> T | InputRequiredResult:
    """Do work with a memory that may ask the client's model; return what it came to, or what the client is to be asked.

    `work` is begun once however many rounds the call takes. Raises what it raises.
    """
    if memory.settings.llm_provider != "sampling" or not _offers(ctx):
        return await work(memory.for_call(_teller(ctx)))
    version = ctx.protocol_version or ""
    if version < ASKED_BETWEEN_CALLS_SINCE:
        return await work(memory.for_call(_teller(ctx), _model(memory, partial(_put, ctx))))

    async def in_rounds(talk: Talk) -> T:
        return await work(memory.for_call(model=_model(memory, talk.put)))

    given = {key: one for key, one in (ctx.input_responses or {}).items() if isinstance(one, CreateMessageResult)}
    talk_id, step = await shared(ctx).rounds.next(ctx.request_state, given, in_rounds)
    if not isinstance(step, Outcome):
        return InputRequiredResult(input_requests={step.key: step.request}, request_state=talk_id)
    if step.error is not None:
        raise step.error
    return step.value


def _offers(ctx: Context[Any, Any]) -> bool:
    """Say whether the client can be asked: it says so, and there is a way to ask it."""
    capabilities = ctx.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        return False
    return (ctx.protocol_version or "") >= ASKED_BETWEEN_CALLS_SINCE or ctx.session.can_send_request


def _model(memory: Memory, put: Put) -> SamplingModel:
    config = memory.settings.llm.config
    return SamplingModel(put, temperature=config.temperature, max_tokens=config.max_tokens, timeout=config.timeout)


async def _put(ctx: Context[Any, Any], question: CreateMessageRequest) -> CreateMessageResult:
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    return await ctx.session.send_request(question, CreateMessageResult, metadata=related)


def _teller(ctx: Context[Any, Any]) -> Tell:
    """Return what tells a client that asked for it how far its call is."""
    steps = itertools.count(1)

    async def tell(what: str) -> None:
        await ctx.report_progress(next(steps), message=what)

    return tell
