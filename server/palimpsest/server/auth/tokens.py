"""Access tokens that this server creates: shown once, and stored as hashes in `tokens.json` of the data directory."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from palimpsest.core.clock import iso, parse_instant
from palimpsest.core.configuration.sections import StaticToken
from palimpsest.core.errors import InputError, SettingsError
from palimpsest.core.files import file_lock, replace_file

FILE = "tokens.json"
PREFIX = "palimpsest_"
"""How an access token starts, so that people and secret scanners recognize it."""

RANDOM_BYTES = 32


@dataclass(frozen=True, slots=True)
class StoredToken:
    """An access token as it is stored: the SHA-256 of its text, and what it allows.

    The text is random, so the hash needs no salt. Times are ISO 8601 in UTC. A token without `expires_at` is valid
    until it is revoked. `with_general` says whether a token of a project also opens what belongs to no project; None
    is of a token from before there was a choice, which does.
    """

    id: str
    digest: str
    user_id: str
    project: str
    read_only: bool
    created_at: str
    expires_at: str | None = None
    with_general: bool | None = None

    @property
    def made_at(self) -> datetime:
        """Return when the token was created."""
        return parse_instant(self.created_at, "created_at")

    @property
    def ends_at(self) -> datetime | None:
        """Return when the token ends, or None if it is valid until it is revoked."""
        return None if self.expires_at is None else parse_instant(self.expires_at, "expires_at")

    @property
    def sees_general(self) -> bool:
        """Return whether the token opens what belongs to no project."""
        return not self.project or self.with_general is not False

    @property
    def is_undecided(self) -> bool:
        """Return whether it was never said if the token of a project also opens what belongs to none."""
        return bool(self.project) and self.with_general is None

    def is_expired(self, now: datetime) -> bool:
        """Return whether the token is no longer valid."""
        return self.ends_at is not None and self.ends_at <= now


def create(
    data_dir: Path,
    user_id: str,
    project: str,
    now: datetime,
    *,
    read_only: bool,
    days: int | None,
    with_general: bool = False,
) -> tuple[str, StoredToken]:
    """Create an access token. Return its text, which is stored nowhere, and what is stored.

    `days`: how long the token is valid, or None for until it is revoked. Raises SettingsError if the file cannot be
    written.
    """
    text = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    expires_at = None if days is None else iso(now + timedelta(days=days))
    token = StoredToken(
        str(uuid.uuid4())[:8],
        digest_of(text),
        user_id,
        project,
        read_only,
        iso(now),
        expires_at,
        with_general or not project,
    )
    with _writing("no token was created"), _locked(data_dir):
        _write(data_dir, [*stored_tokens(data_dir), token])
    return text, token


def revoke(data_dir: Path, token_id: str) -> StoredToken:
    """Delete an access token and return it.

    Raises InputError if there is none with this id, and SettingsError if the file cannot be written.
    """
    with _writing("no token was revoked"), _locked(data_dir):
        tokens = stored_tokens(data_dir)
        revoked = next((token for token in tokens if token.id == token_id), None)
        if revoked is None:
            known = ", ".join(token.id for token in tokens) or "there are none"
            raise InputError(f"there is no token {token_id}; the ids are: {known}")
        _write(data_dir, [token for token in tokens if token.id != token_id])
    return revoked


def stored_tokens(data_dir: Path) -> list[StoredToken]:
    """Return all access tokens, oldest first. Raises SettingsError if the file cannot be read."""
    path = data_dir / FILE
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
        return [_token_of(row) for row in rows]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise SettingsError(
            f"{path} cannot be read: {error}. Every access token is refused. Repair the file, or delete it and create "
            "new tokens."
        ) from error


def _token_of(row: dict[str, Any]) -> StoredToken:
    """Return a stored token. Raises TypeError if its user or project is no text, which never counts as left out."""
    if not all(isinstance(row.get(name), str) for name in ("user_id", "project")):
        raise TypeError("a user or a project is not a text")
    return StoredToken(**row)


def undecided_text(tokens: Sequence[StoredToken], of_settings: Sequence[StaticToken]) -> str:
    """Return a sentence on tokens of a project of which it was never said if they open what is general, "" for none."""
    stored = [f"{token.id} ({token.project})" for token in tokens if token.is_undecided]
    places = [
        f"http.tokens[{number}] ({token.project})"
        for number, token in enumerate(of_settings)
        if token.project and token.with_general is None
    ]
    if not stored and not places:
        return ""
    remedies = [
        "create another one, with or without --with-general, and revoke this one" if stored else "",
        "say with_general in the settings" if places else "",
    ]
    return (
        "these access tokens of a project also open what belongs to no project, and nobody ever said whether they "
        f"should: {', '.join([*stored, *places])}. To decide it, {', or '.join(filter(None, remedies))}"
    )


def find_valid(tokens: Sequence[StoredToken], text: str, now: datetime) -> StoredToken | None:
    """Return the token with this text, or None if there is none or it has expired."""
    digest = digest_of(text)
    match = next((token for token in tokens if hmac.compare_digest(token.digest, digest)), None)
    return None if match is None or match.is_expired(now) else match


def digest_of(text: str) -> str:
    """Return the hash that is stored in place of an access token's text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _locked(data_dir: Path) -> Any:
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    return file_lock(data_dir / f"{FILE}.lock")


def _write(data_dir: Path, tokens: Sequence[StoredToken]) -> None:
    """Replace the file in one step (mode 0600), so that a server never reads half of it."""
    with replace_file(data_dir / FILE) as file:
        json.dump([asdict(token) for token in tokens], file, indent=2)


@contextmanager
def _writing(otherwise: str) -> Generator[None]:
    """Raise SettingsError in place of the OSError of a disk that is full or read-only."""
    try:
        yield
    except OSError as error:
        raise SettingsError(
            f"the access tokens cannot be written: {error}; {otherwise}. Make the data folder writable for this user, "
            "and check the free space."
        ) from error
