"""Paths that need no access token: the probes, and the metadata that says where to get a token."""

from __future__ import annotations

from typing import cast

from starlette.types import Scope

HEALTH = "/health"
READY = "/ready"
PROBES = (HEALTH, READY)
METRICS = "/metrics"
"""It has a token of its own."""
WELL_KNOWN = "/.well-known/"


def is_open(scope: Scope) -> bool:
    """Return whether anybody may request a path. Nothing behind it reads the body of a request."""
    path = cast("str", scope["path"])
    return path in PROBES or path.startswith(WELL_KNOWN)
