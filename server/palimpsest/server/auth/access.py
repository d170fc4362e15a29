"""What the bearer token of a connection opens: whose memory, which project, whether it may write."""

from __future__ import annotations

from dataclasses import dataclass

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken

READ = "memory:read"
WRITE = "memory:write"
"""The scopes of a token, in the sense of OAuth. One without `WRITE` only reads."""

PROJECT = "palimpsest_project"
"""The claim of an issued token that names a project; without it all of the user's projects are open."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Hold what a token opens: one user's memory, one project of it or, with "", all of them."""

    user_id: str
    project: str = ""
    read_only: bool = False


def granted() -> Grant | None:
    """Return what the token of the call under way opens; None where the connection needs none."""
    token = get_access_token()
    return None if token is None else grant_of(token)


def calling_user() -> str:
    """Return the user of the token of the call under way; "" where the connection needs none, and all are one."""
    grant = granted()
    return grant.user_id if grant is not None else ""


def grant_of(token: AccessToken) -> Grant:
    """Return what a token that was found good opens."""
    project = (token.claims or {}).get(PROJECT, "")
    return Grant(token.subject or "", project if isinstance(project, str) else "", WRITE not in token.scopes)
