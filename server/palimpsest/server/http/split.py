"""Send the requests for a page to the page, and leave the rest to MCP."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send


class PageSplit:
    """Pass requests for paths of the page on to it. ASGI middleware.

    It comes right after the check of hosts: visitors have a cookie and no access token, and send forms and no JSON.
    """

    def __init__(self, app: ASGIApp, page: ASGIApp, is_page: Callable[[str], bool]) -> None:
        self._app = app
        self._page = page
        self._is_page = is_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or pass it on."""
        is_page = scope["type"] == "http" and self._is_page(scope["path"])
        await (self._page if is_page else self._app)(scope, receive, send)
