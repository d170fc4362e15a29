"""Bearer tokens of ours: made once, shown once, stored as hashes in `tokens.json` of the data directory."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from palimpsest.core.clock import iso, parse_instant
from palimpsest.core.errors import InputError, SettingsError
from palimpsest.core.files import file_lock, replace_file

FILE = "tokens.json"
PREFIX = "palimpsest_"
"""How a token begins, so that people and scanners of secrets see what it is."""

BYTES = 32


@dataclass(frozen=True, slots=True)
class Token:
    """Hold what is stored of a token: the SHA-256 of its text, which is random and needs no salt; and what it opens.

    Times are ISO 8601 in UTC; one without `expires_at` holds until it is revoked.
    """

    id: str
    digest: str
    user_id: str
    project: str
    read_only: bool
    created_at: str
    expires_at: str | None = None

    def is_expired(self, now: datetime) -> bool:
        """Say whether it holds no more."""
        return self.expires_at is not None and parse_instant(self.expires_at, "expires_at") <= now


def create(
    folder: Path, user_id: str, project: str, now: datetime, *, read_only: bool, days: int | None
) -> tuple[str, Token]:
    """Store a new token and return its text, which is nowhere else, with what is stored."""
    text = PREFIX + secrets.token_urlsafe(BYTES)
    expires_at = None if days is None else iso(now + timedelta(days=days))
    token = Token(str(uuid.uuid4())[:8], digest_of(text), user_id, project, read_only, iso(now), expires_at)
    with _locked(folder):
        _write(folder, [*stored(folder), token])
    return text, token


def revoke(folder: Path, token_id: str) -> Token:
    """Take a token away and return it. Raises InputError where none has that id."""
    with _locked(folder):
        tokens = stored(folder)
        gone = next((token for token in tokens if token.id == token_id), None)
        if gone is None:
            known = ", ".join(token.id for token in tokens) or "there are none"
            raise InputError(f"there is no token {token_id}; the ids are: {known}")
        _write(folder, [token for token in tokens if token.id != token_id])
    return gone


def stored(folder: Path) -> list[Token]:
    """Return all tokens, oldest first. Raises SettingsError where the file cannot be read."""
    path = folder / FILE
    try:
        found: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
        return [Token(**each) for each in found]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise SettingsError(
            f"{path} cannot be read: {error}. Nobody is let in. Mend it, or delete it and make new tokens."
        ) from error


def holder(tokens: Sequence[Token], text: str, now: datetime) -> Token | None:
    """Return the token whose text this is, unless it is expired."""
    digest = digest_of(text)
    found = next((token for token in tokens if hmac.compare_digest(token.digest, digest)), None)
    return None if found is None or found.is_expired(now) else found


def digest_of(text: str) -> str:
    """Return what is stored in place of a token's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _locked(folder: Path) -> Any:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return file_lock(folder / f"{FILE}.lock")


def _write(folder: Path, tokens: Sequence[Token]) -> None:
    """Put the file in place whole (0600), so that a server never reads half of it."""
    with replace_file(folder / FILE) as file:
        json.dump([asdict(token) for token in tokens], file, indent=2)
