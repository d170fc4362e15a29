"""What a handler needs to know about the request it answers: the memory, the scope, what the client can do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context

from palimpsest.core import validation
from palimpsest.core.errors import InputError
from palimpsest.core.models import Scope
from palimpsest.core.validation import ScopeInput, SearchScopeInput
from palimpsest.server.auth.access import Grant, current_grant
from palimpsest.server.session.state import ServerState

if TYPE_CHECKING:
    from palimpsest.memory import Memory

AnyContext: TypeAlias = Context[Any, Any] | ServerRequestContext[Any, Any]


def state_of(ctx: AnyContext) -> ServerState:
    """Return the server's state, as the request that `ctx` belongs to sees it."""
    request = ctx.request_context if isinstance(ctx, Context) else ctx
    return cast("ServerState", request.lifespan_context)


async def memory_of(ctx: AnyContext) -> Memory:
    """Return the open memory, with the threads and the days of the caller.

    Raises the PalimpsestError that kept it from opening.
    """
    request = ctx.request_context if isinstance(ctx, Context) else ctx
    state = state_of(ctx)
    memory, threads = await state.memory.get(), state.calls.threads(request)
    grant = current_grant()
    return memory.for_call(threads=threads, user_id=None if grant is None else grant.user_id)


def scope_of(ctx: AnyContext, memory: Memory, scope: ScopeInput | None = None) -> Scope:
    """Return the scope that a request works in.

    The access token decides first, then the `scope` argument, then the client's roots and the settings. Raises
    InputError for a scope that the access token does not allow.
    """
    grant, default = current_grant(), memory.scope
    client_project = state_of(ctx).client_project
    if grant is None:
        return validation.scope_from(replace(default, project=client_project or default.project), scope)
    default = replace(default, user_id=grant.user_id, project=client_project or grant.project or default.project)
    default = grant.within(default)
    requested = validation.scope_from(default, scope)
    if grant.project and requested.project == grant.project:
        requested = replace(requested, project=default.project)
    _check_allowed(grant, default.project, requested)
    return requested


def is_home_open(scope: ScopeInput | None) -> bool:
    """Return whether a text may be stored outside of the project: neither the call nor the access token names one."""
    grant = current_grant()
    return (grant is None or not grant.project) and (scope is None or "project" not in scope.model_fields_set)


def named_user(given: ScopeInput | None, resolved: Scope) -> tuple[str, ...]:
    """Return the note on the scope of a call that names its user, and so may be about another than the server's own.

    Replies name every other scope themselves.
    """
    is_named = given is not None and given.user_id is not None and resolved == Scope(resolved.user_id)
    return (f"scope: {resolved}",) if is_named else ()


def goes_through_projects(scope: SearchScopeInput | None) -> bool:
    """Return whether a search is to go through all projects. Raises InputError if the access token names one."""
    grant = current_grant()
    if scope is None or not scope.all_projects:
        return False
    if grant is not None and grant.project:
        raise InputError(f"this access token is only valid for project {grant.project}; leave scope.all_projects out")
    return True


def _check_allowed(grant: Grant, project: str, requested: Scope) -> None:
    """Raise InputError if an access token does not allow a scope. `project` is the present name of its project."""
    if requested.user_id != grant.user_id:
        raise InputError(f"this access token is only valid for user {grant.user_id}; leave scope.user_id out")
    if grant.project and requested.project != project:
        raise InputError(f"this access token is only valid for project {grant.project}; leave scope.project out")


def client_name(ctx: Context[Any, Any]) -> str:
    """Return what the client calls itself, or "mcp" if it has not said so."""
    params = ctx.session.client_params
    return (params.client_info.name if params is not None else "") or "mcp"


def can_ask_user(ctx: Context[Any, Any]) -> bool:
    """Return whether the client can show its user a form (MCP elicitation)."""
    capabilities = ctx.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)
