"""Ask the user before much is forgotten (MCP elicitation).

If the client cannot ask, its reply says how to confirm it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from mcp import MCPError
from mcp.server.elicitation import render_elicitation_schema
from mcp.server.mcpserver import Context
from mcp.types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel, Field

from palimpsest.core.models import ForgetQuestion, Scope
from palimpsest.learn.facts.forget_notes import FORGOTTEN, question_note, quoted_texts
from palimpsest.server.auth.access import current_user
from palimpsest.server.session.context import can_ask_user, state_of
from palimpsest.server.session.continuations import ClientReply, Continuation
from palimpsest.server.session.sampling import asks_between_requests, result_or_question
from palimpsest.server.tools.results import CALLER

if TYPE_CHECKING:
    from palimpsest.learn.apply import WriteResult
    from palimpsest.memory import Memory


class ForgetForm(BaseModel):
    """The form that the user is shown before much is forgotten."""

    forget: bool = Field(title="Forget it", description="It disappears from search and can be restored")


_Ask: TypeAlias = Callable[[ElicitRequestFormParams], Awaitable[ClientReply]]


async def with_answers(
    ctx: Context[Any, Any], memory: Memory, scope: Scope, result: WriteResult
) -> WriteResult | InputRequiredResult:
    """Return a result after its questions were asked and what the user agreed to was forgotten, or the next question.

    The result is returned as it is if the client cannot ask.
    """
    if not result.questions or not can_ask_user(ctx):
        return result
    if not asks_between_requests(ctx):
        return await _answered(memory, scope, result, lambda form: _ask_during_call(ctx, form))

    async def work(continuation: Continuation) -> WriteResult:
        return await _answered(memory, scope, result, lambda form: continuation.ask(ElicitRequest(params=form)))

    continuations, user = state_of(ctx).continuations, current_user()
    if not continuations.has_room(user):
        return result
    return await result_or_question(ctx, continuations.begin(user, work))


async def _ask_during_call(ctx: Context[Any, Any], form: ElicitRequestFormParams) -> ElicitResult:
    return await ctx.session.elicit_form(form.message, form.requested_schema, related_request_id=ctx.request_id)


async def _answered(memory: Memory, scope: Scope, result: WriteResult, ask: _Ask) -> WriteResult:
    """Ask the questions of a result one after the other, and forget what the user agrees to."""
    for question in result.questions:
        agreed = await _agrees(question, ask)
        if agreed is None:  # the note that says how to confirm it stays
            continue
        notes = tuple(note for note in result.notes if note != question_note(question))
        if not agreed:
            notes = (*notes, f"not forgotten, because the user said no: {question.what}")
            result = replace(result, notes=notes)
            continue
        forgotten = await memory.forget(scope, question.ids, what=question.what, caller=CALLER)
        quoted = "; ".join(f'"{text}"' for text in question.texts)
        notes = (*notes, f"{FORGOTTEN}({question.what}): {quoted}", *forgotten.notes)
        result = replace(result, notes=notes, outcomes=(*result.outcomes, *forgotten.outcomes))
    return replace(result, questions=())


async def _agrees(question: ForgetQuestion, ask: _Ask) -> bool | None:
    """Return whether the user agrees; None if the client did not ask."""
    message = f"Forget this ({question.what})? It is what was asked, as a model understood it: {quoted_texts(question)}"
    form = ElicitRequestFormParams(message=message, requested_schema=render_elicitation_schema(ForgetForm))
    try:
        reply = await ask(form)
    except MCPError:
        return None
    if not isinstance(reply, ElicitResult) or reply.action == "cancel":
        return None
    return reply.action == "accept" and (reply.content or {}).get("forget") is True
