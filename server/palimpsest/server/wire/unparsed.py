"""Read the id of a request that is too large to be parsed, so that its sender need not wait for an answer in vain."""

from __future__ import annotations

import json
import re

from mcp.types import RequestId

EDGE_BYTES = 1_000
"""How much of the beginning and the end of a message is looked at. Clients write the id first or last."""

MAX_ID_CHARS = 200
"""Digits or characters of an id that is read."""

_MEMBER = rf'"(?:jsonrpc|id|method)"\s*:\s*(?:"[^"\\]{{0,{MAX_ID_CHARS}}}"|-?\d{{1,{MAX_ID_CHARS}}})'.encode()
_FIRST = re.compile(rb"\s*\{\s*((?:" + _MEMBER + rb"\s*,\s*)*+)")
_LAST = re.compile(rb"[}\]]((?:\s*,\s*" + _MEMBER + rb")*+)\s*\}\s*\Z")


def unparsed_id(text: bytes | bytearray, end: bytes | None = None) -> RequestId | None:
    """Return the id of a request, or None if it is not to be seen at its edges or if it is no request.

    `end` is the end of the message, if `text` is only its beginning.
    """
    first = _FIRST.match(bytes(text[:EDGE_BYTES]))
    last = _LAST.search(bytes(text[-EDGE_BYTES:] if end is None else end[-EDGE_BYTES:]))
    members = [found[1].strip(b", \t\r\n") for found in (first, last) if found and found[1]]
    try:
        outer = json.loads((b"{" + b",".join(members) + b"}").decode())  # of bytes, json accepts half characters
    except ValueError:
        return None
    request_id = outer.get("id")
    return request_id if "method" in outer and isinstance(request_id, int | str) else None
