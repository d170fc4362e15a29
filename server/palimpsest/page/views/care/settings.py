"""The settings in effect, and where each comes from."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from palimpsest.care.settings_in_effect import settings_in_effect
from palimpsest.page.asked import scope_of
from palimpsest.page.rendering import rendered
from palimpsest.page.views.care.rights import require_settings_reader, settings_of


async def settings(request: Request) -> Response:
    """List the settings. They can only be read here: some decide who may read the page."""
    require_settings_reader(request)
    effective = await settings_of(request)
    values = {"scope": scope_of(request), "settings": settings_in_effect(effective), "file": effective.config}
    return rendered(request, "care/settings.html", values)
