"""What the access token of a request allows: whose memory, which project, and whether it may write."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken

from palimpsest.core.models import Scope

READ = "memory:read"
WRITE = "memory:write"
"""The OAuth scopes of an access token. A token without `WRITE` is read-only."""

PROJECT_CLAIM = "palimpsest_project"
"""The claim that limits an access token to one project. Without it all projects of the user are open."""

GENERAL_CLAIM = "palimpsest_with_general"
"""The claim that says whether a token of one project also opens what belongs to no project. For a token of
an issuer without it, `http.issuer_with_general` says so."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What an access token allows: one user's memory, limited to one project unless `project` is "".

    `with_general`: whether the memories that belong to no project are open too.
    """

    user_id: str
    project: str = ""
    read_only: bool = False
    with_general: bool = True

    def sees(self, project: str) -> bool:
        """Return whether the user's memories of a project are open, or with "" those of none."""
        return not self.project or project == self.project or (project == "" and self.with_general)

    def within(self, scope: Scope) -> Scope:
        """Return a scope of the grant's user that sees no more than the grant does."""
        return replace(scope, with_general=self.with_general or not self.project)


def current_grant() -> Grant | None:
    """Return what the access token of the current request allows, or None if the server needs no tokens."""
    access_token = get_access_token()
    return None if access_token is None else grant_from(access_token)


def current_user() -> str:
    """Return the user that the current request's access token belongs to, or "" if the server needs no tokens."""
    grant = current_grant()
    return grant.user_id if grant is not None else ""


def may_write() -> bool:
    """Return whether the current request may change the memory: it has no read-only access token."""
    grant = current_grant()
    return grant is None or not grant.read_only


def grant_from(access_token: AccessToken) -> Grant:
    """Return what a verified access token allows."""
    claims = access_token.claims or {}
    return Grant(
        access_token.subject or "",
        claims.get(PROJECT_CLAIM, ""),
        read_only=WRITE not in access_token.scopes,
        with_general=claims.get(GENERAL_CLAIM, False),
    )
