"""The first page of care: what is found about each part, and where the rest is."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from palimpsest.care.doctor import examine
from palimpsest.page.asked import scope_of, visitor_of
from palimpsest.page.rendering import is_part, rendered
from palimpsest.page.views.care.rights import may_import, require_owner, settings_of, work_of
from palimpsest.server.auth.findings import token_findings


async def care(request: Request) -> Response:
    """Show what can be looked after. The findings follow, because they take some seconds."""
    visitor = visitor_of(request)
    values = {"scope": scope_of(request), "may_import": may_import(visitor), "findings": None}
    return rendered(request, "care/care.html", values)


async def findings(request: Request) -> Response:
    """Examine every part, as `palimpsest doctor` does."""
    require_owner(request)
    settings = await settings_of(request)
    async with work_of(request).examining:
        found = [*await examine(settings), *token_findings(settings)]
    values = {"scope": scope_of(request), "may_import": True, "findings": found}
    return rendered(request, "care/findings.html" if is_part(request) else "care/care.html", values)
