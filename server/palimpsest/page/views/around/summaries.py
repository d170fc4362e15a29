"""Summaries and the profile, each with what it rests on."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from palimpsest.core.errors import InputError
from palimpsest.facade.page.summaries import KINDS, Summaries
from palimpsest.page.asked import CALLER, memory_of, scope_of, writable_scope_of
from palimpsest.page.rendering import in_project, rendered

SOURCES = 100
"""How many of the memories and messages that a summary rests on are shown. Set by hand."""

DAYS = 14
"""How many of the last days have a link to their summary. Set by hand."""

WITHOUT_ARGUMENT = tuple(kind for kind in KINDS if kind not in {"session", "day"})


async def summaries(request: Request) -> Response:
    """Show a summary, by default the overall one, and links to the others."""
    memory, scope = await memory_of(request), scope_of(request)
    kind = request.query_params.get("kind", "overall")
    try:
        kept = await Summaries(memory.engine).kept(scope, kind, SOURCES)
    except InputError as error:
        raise HTTPException(404) from error
    values = {
        "scope": scope,
        "kind": kept.result.kind,
        "kinds": [name for name in WITHOUT_ARGUMENT if name != "project" or scope.project],
        "days": await memory.last_days(scope, DAYS),
        "kept": kept,
        "has_model": memory.engine.own_model is not None,
    }
    return rendered(request, "around/summaries.html", values)


async def refresh(request: Request) -> Response:
    """Let the model write a summary again."""
    memory, scope, form = await memory_of(request), writable_scope_of(request), await request.form()
    kind = str(form.get("kind", ""))
    result = await memory.summary(scope, kind, refresh=True, caller=CALLER)
    return RedirectResponse(in_project(f"/summaries?kind={result.kind}", scope), HTTPStatus.SEE_OTHER)
