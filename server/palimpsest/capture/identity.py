"""By what a captured message and its scope are known."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from palimpsest.core.errors import InputError
from palimpsest.core.git_project import Repository, repository_of
from palimpsest.core.models import Scope
from palimpsest.core.settings import Settings
from palimpsest.hook.paths import hashed
from palimpsest.learn.engine import Engine
from palimpsest.store.mapping import content_hash

NAMESPACE = uuid.UUID("0f0c5a0e-3c55-4b57-9d52-1d3f3c1f2a77")
MAX_PART_CHARS = 100
"""Longer ids of clients are hashed, so that the three parts of an external id fit into its 256 characters."""


def message_id(user_id: str, external_id: str, role: str, text: str) -> str:
    """Return the id of a captured message: always the same one, so that what was purged is recognized."""
    return str(uuid.uuid5(NAMESPACE, "\0".join((user_id, external_id, role, content_hash(text)))))


def external_id(client: str, session: str, message_id: str, role: str, text: str) -> str:
    """Return `<client>:<session>:<message id>`. Without an id of the client, role and text stand for it."""
    name = message_id or hashed(role, text)
    return f"{session_prefix(client, session)}{name if len(name) <= MAX_PART_CHARS else hashed(name)}"


def session_prefix(client: str, session: str) -> str:
    """Return how the external ids of all messages of a session begin."""
    is_plain = len(session) <= MAX_PART_CHARS and ":" not in session
    return f"{client}:{session if is_plain else hashed(session)}:"


def scope_of(engine: Engine, settings: Settings, cwd: str) -> Scope:
    """Return the scope of what was said in a folder. Blocking. Raises LedgerError.

    It is that of the settings; with `project = "auto"`, the project is that of the folder.
    """
    scope = Scope(settings.user_id, settings.project, settings.agent_id, settings.run_id)
    if settings.repository is None:
        return scope
    try:
        repository = repository_of(Path(cwd)) if Path(cwd).is_absolute() else Repository()
        return replace(scope, project=engine.ledger.project_of(scope.user_id, repository))
    except (InputError, OSError, ValueError):  # its name is not valid in a scope; it cannot be read; it is no path
        return replace(scope, project="")


def is_excluded(folder: str, excluded: Sequence[str]) -> bool:
    """Return whether a folder is one of those that hooks leave out, or below one."""
    if not folder or "\0" in folder:  # no folder has such a path
        return False
    path = Path(os.path.realpath(folder))
    return any(path.is_relative_to(os.path.realpath(Path(other).expanduser())) for other in excluded)
