"""Who sends a request, for limits: the owner of a verified access token, or else an address."""

from __future__ import annotations

import ipaddress

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.types import Scope

REQUEST_ID = "palimpsest.request_id"
"""The key of a request's id in its ASGI scope, if requests are told of."""

NETWORK_BITS = 64
"""The part of an IPv6 address that names a network. One machine has all the addresses of its network."""


def caller_of(scope: Scope) -> str:
    """Return a name for whoever sends a request.

    A header alone never decides it, because anybody can send any header.
    """
    user = scope.get("user")
    if isinstance(user, AuthenticatedUser):
        return f"token {user.access_token.client_id} of {user.access_token.subject}"
    return f"address {address_of(scope)}"


def has_token(scope: Scope) -> bool:
    """Return whether a request has an access token that was verified."""
    return isinstance(scope.get("user"), AuthenticatedUser)


def address_of(scope: Scope) -> str:
    """Return the address that a request comes from, of IPv6 the network, or "" if it is unknown."""
    client = scope.get("client")
    host = str(client[0]) if client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address) or address.ipv4_mapped is not None:
        return host
    return str(ipaddress.ip_network((int(address), NETWORK_BITS), strict=False))
