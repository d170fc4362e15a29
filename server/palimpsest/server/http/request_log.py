"""Log how calls and requests ended."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palimpsest.server.mcp_server import Ended, Observer
from palimpsest.server.session.rate_limits import HEALTH, METRICS, PROBES, READY, REQUEST_ID

# Tell how every request ended, whoever refused or answered it. ASGI middleware.

PATHS = ("/mcp", "/sse", HEALTH, READY, METRICS)
"""The paths that are told apart. The others are told by their first part, or as `OTHER`."""

MESSAGES = "/messages"
OTHER = "other"

METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH")


def observe_requests(app: ASGIApp, observers: Sequence[Observer]) -> ASGIApp:
    """Give each request an id, and tell observers how it ended. It is the outermost middleware.

    Paths and methods are among those that are told apart. A status of 0 means that nothing was answered, because the
    client had gone.
    """

    async def observe(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        request_id = scope[REQUEST_ID] = secrets.token_hex(8)
        began, status = time.monotonic(), 0

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await app(scope, receive, watch)
        finally:
            method = scope["method"] if scope["method"] in METHODS else OTHER
            other = MESSAGES if scope["path"].startswith(MESSAGES) else OTHER
            user = scope.get("user")
            user_id = user.access_token.subject if isinstance(user, AuthenticatedUser) else None
            fields = {"method": method, "path": scope["path"] if scope["path"] in PATHS else other, "status": status}
            ended = Ended("request", fields, time.monotonic() - began, user_id or "", request_id)
            for observer in observers:
                observer(ended)

    return observe


# A log of JSON objects, one a line, that holds nothing of what is stored or asked: `http.log = "json"`.
#
# A message of ours is the text as it stands in the code; of what would be put into it only numbers and the names of
# errors are. A library may put anything into its messages, so that only the place in its code is named.

OURS = ("palimpsest", "uvicorn")
"""The loggers whose messages are constant texts."""

FIELDS = "fields"
"""The attribute of a record with further fields, which its logger vouches for."""

LEFT_OUT = "(left out)"

calls = logging.getLogger("palimpsest.calls")
requests = logging.getLogger("palimpsest.requests")


class JsonFormatter(logging.Formatter):
    """Writes a record as a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **cast("Mapping[str, Any]", getattr(record, FIELDS, {})),
        }
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            line["error"] = type(error).__name__
            line["frames"] = [
                f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)
            ]
        return json.dumps(line)


def log_as_json() -> None:
    """Have every logger of this process write JSON objects to stderr, and nothing else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[handler], force=True, level=logging.WARNING)
    logging.captureWarnings(capture=True)
    for logger in (calls, requests):
        logger.setLevel(logging.INFO)


def event_log(key: Callable[[], str]) -> Observer:
    """Return what logs calls and requests. `key` returns what users' names are hashed with, or "" if that is not known.

    It is the ledger's id: all servers over a ledger give a user the same pseudonym, and without the ledger nobody can
    try out names.
    """
    loggers = {"call": calls, "request": requests}

    def log(ended: Ended) -> None:
        if ended.fields.get("path") in PROBES and ended.fields["status"] == 200:  # noqa: PLR2004 - OK
            return  # a probe that was answered as always
        duration = round(ended.seconds * 1000, 3)
        fields = {**ended.fields, "duration_ms": duration, "request_id": ended.request_id}
        if ended.user_id and (secret := key()):
            fields["user"] = pseudonym(secret, ended.user_id)
        loggers[ended.kind].info(ended.kind, extra={FIELDS: fields})

    return log


def pseudonym(key: str, user_id: str) -> str:
    """Return the name of a user for a log: twelve hexadecimal digits of an HMAC with SHA-256."""
    return hmac.new(key.encode(), user_id.encode(), hashlib.sha256).hexdigest()[:12]


def _message(record: logging.LogRecord) -> str:
    if record.name.partition(".")[0] not in OURS or not isinstance(record.msg, str):
        return f"{LEFT_OUT} {record.module}:{record.lineno}"
    if not isinstance(record.args, tuple) or not record.args:
        return record.msg.strip()
    try:
        return record.msg.strip() % tuple(map(_shown, record.args))
    except (TypeError, ValueError):  # a number is wanted where none is shown
        return record.msg.strip()


def _shown(argument: object) -> object:
    """Return what is shown of an argument of a message."""
    if isinstance(argument, BaseException):
        return type(argument).__name__
    return argument if isinstance(argument, int | float) else LEFT_OUT
