"""Read JSON-RPC messages, and say what is wrong with those that are not to be passed on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)
from pydantic import ValidationError

from palimpsest.server.wire.json_text import MAX_MESSAGE_BYTES, NotJsonError, TooLargeError, parse_json
from palimpsest.server.wire.unparsed import unparsed_id


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a message is not passed on.

    `id` is the id of the request, if it can be read. `expects_answer` is False for a notification or a reply, which
    nobody answers.
    """

    code: int
    reason: str
    id: RequestId | None = None
    expects_answer: bool = True
    too_large: bool = False

    def as_error(self) -> JSONRPCError:
        """Return the answer to the message."""
        return JSONRPCError(
            jsonrpc="2.0", id=self.id, error=ErrorData(code=self.code, message=f"{self.reason}. Nothing was done.")
        )


def read_message(text: bytes | bytearray) -> JSONRPCMessage | Refused:
    """Return the message in a JSON text, or why it is refused. A faulty reply to the server becomes an error reply."""
    try:
        parsed = parse_json(text)
    except NotJsonError as error:
        return Refused(PARSE_ERROR, f"the message is not JSON: {error}")
    except TooLargeError as error:
        return Refused(INVALID_REQUEST, f"the message is too large: {error}", unparsed_id(text), too_large=True)
    value, fault = parsed.value, parsed.fault
    if isinstance(value, list):
        return Refused(INVALID_REQUEST, "a batch is not accepted; send each message by itself")
    if not isinstance(value, dict):
        return Refused(INVALID_REQUEST, "a message is a JSON object")
    members = cast("dict[str, Any]", value)
    if "method" in members:
        return _call(members, fault)
    if "result" in members or "error" in members:
        return _reply(members, fault)
    return Refused(INVALID_REQUEST, "the message has no method", _id_of(members))


def too_long(beginning: bytes, end: bytes) -> Refused:
    """Refuse a message that is too long to be kept."""
    reason = f"the message is longer than {MAX_MESSAGE_BYTES} bytes"
    return Refused(INVALID_REQUEST, reason, unparsed_id(beginning, end), too_large=True)


def _call(members: dict[str, Any], fault: str) -> JSONRPCMessage | Refused:
    """Return a request or a notification. A message with a method and without an id is a notification."""
    is_notification = "id" not in members and isinstance(members["method"], str)
    if reason := _fault_of_call(members, fault):
        return Refused(INVALID_REQUEST, reason, _id_of(members), expects_answer=not is_notification)
    if is_notification:
        return JSONRPCNotification.model_validate(members)
    return JSONRPCRequest.model_validate(members)


def _fault_of_call(members: dict[str, Any], fault: str) -> str:
    if fault:
        return f"the message has {fault}"
    if members.get("jsonrpc") != "2.0":
        return 'jsonrpc is not "2.0"'
    if not isinstance(members["method"], str):
        return "the method is not a text"
    if not isinstance(members.get("params"), dict | None):
        return "params is not an object"
    if "id" in members and _id_of(members) is None:
        return "the id is neither a text nor a whole number"
    return ""


def _reply(members: dict[str, Any], fault: str) -> JSONRPCMessage | Refused:
    """Return the client's reply to a request of the server. If it is faulty, the request must not wait any longer."""
    kind = JSONRPCError if "error" in members else JSONRPCResponse
    try:
        if not fault:
            return kind.model_validate(members)
    except ValidationError:
        fault = "not the form of a reply"
    request_id = _id_of(members)
    if request_id is None:
        return Refused(INVALID_REQUEST, f"a reply has {fault}", expects_answer=False)
    error = ErrorData(code=INVALID_REQUEST, message=f"the client's reply has {fault}")
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


def _id_of(members: dict[str, Any]) -> RequestId | None:
    """Return the id of a message, or None if it has no valid one. JSON-RPC has no answer for half a character."""
    request_id = members.get("id")
    if isinstance(request_id, str):
        return request_id if request_id.isascii() or _is_well_formed(request_id) else None
    return request_id if isinstance(request_id, int) and not isinstance(request_id, bool) else None


def _is_well_formed(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
