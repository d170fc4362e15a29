"""What every answer of the page says to browsers, and which writes are refused."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""No script and no style stands in a page itself, so that a text that got into one could not run."""

SAFE_METHODS = frozenset({"GET", "HEAD"})


class Safety:
    """Set `HEADERS` on every answer, and answer 403 to a write that this page did not send. ASGI middleware.

    Browsers say in `Sec-Fetch-Site` and `Origin` where a request comes from, and no page can set these. A write without
    either is refused, because every browser sends one of them.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if scope["method"] not in SAFE_METHODS and not _is_own(Headers(scope=scope)):
            refusal = PlainTextResponse("this write comes from another page; nothing was done", 403)
            await refusal(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)


def _is_own(headers: Headers) -> bool:
    """Return whether a request comes from a page of this server."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is None and origin is None:
        return False
    is_same_site = site in (None, "same-origin")
    return is_same_site and (origin is None or urlsplit(origin).netloc == headers.get("host", ""))
