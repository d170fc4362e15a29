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
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""No script and no style stands in a page itself, so that a text that got into one could not run.

No other site learns the address of a page. With the policy `no-referrer` browsers would send forms with the origin
`null`, which is refused.
"""

OF_PAGES = {
    "cache-control": "no-store",
    "vary": "HX-Request, HX-History-Restore-Request, HX-Current-URL, Accept-Language, Cookie",
}
"""What is said of everything that somebody's memory is in."""

OF_STATIC_FILES = {"cache-control": "no-cache"}
"""A browser keeps them, and asks whether they are still the same, which is answered without sending them again."""

STATIC = "/static/"

SAFE_METHODS = frozenset({"GET", "HEAD"})

MAX_BODY_BYTES = 256 * 1024
"""The largest form. Set by hand: the longest text of a memory, or the ids of all that one action may change."""

MAX_UPLOAD_BYTES = 512 * 1024 * 1024
"""The largest form with a file to import. Set by hand: more than the texts of years, and what a disk has room for."""

UPLOAD_PATH = "/care/import"


class Safety:
    """Set `HEADERS` on every answer. Refuse writes that this page did not send, or that are too long. ASGI middleware.

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

        of_kind = OF_STATIC_FILES if scope["path"].startswith(STATIC) else OF_PAGES

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in (HEADERS | of_kind).items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = None if scope["method"] in SAFE_METHODS else _refusal(scope)
        await (refusal or self._app)(scope, receive, send_with_headers)


def _refusal(scope: Scope) -> PlainTextResponse | None:
    """Return the answer to a write that is refused. Browsers say how long a form is before they send it."""
    headers = Headers(scope=scope)
    max_bytes = MAX_UPLOAD_BYTES if scope["path"] == UPLOAD_PATH else MAX_BODY_BYTES
    if not _is_own(headers):
        return PlainTextResponse("this write comes from another page; nothing was done", 403)
    length = headers.get("content-length", "")
    if "transfer-encoding" in headers or not length.isdecimal():
        return PlainTextResponse("the length of the form is missing; nothing was done", 411)
    if int(length) > max_bytes:
        return PlainTextResponse(f"a form has at most {max_bytes:,} bytes; nothing was done", 413)
    return None


def _is_own(headers: Headers) -> bool:
    """Return whether a request comes from a page of this server."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is None and origin is None:
        return False
    is_same_site = site in (None, "same-origin")
    return is_same_site and (origin is None or urlsplit(origin).netloc == headers.get("host", ""))
