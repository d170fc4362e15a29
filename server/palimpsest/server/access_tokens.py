"""Create, store and verify access tokens, those of an OAuth server too."""

import hashlib
import hmac
import logging
import secrets
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio.to_thread
import jwt
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from pydantic import AwareDatetime, BaseModel, TypeAdapter, ValidationError

from palimpsest.core.clock import Clock
from palimpsest.core.errors import InputError, SettingsError, raised_as
from palimpsest.core.files import file_lock, replace_file
from palimpsest.core.models import Finding, Scope
from palimpsest.core.settings import HttpSettings, Settings
from palimpsest.core.validation import fault_text, scope_part

# What the access token of a request allows: whose memory, which project, and whether it may write.

READ = "memory:read"

# The OAuth scopes of an access token. A token without `WRITE` is read-only.
WRITE = "memory:write"

# The claim that limits an access token to one project. Without it all projects of the user are open.
PROJECT_CLAIM = "palimpsest_project"

# The claim that says whether a token of one project also opens what belongs to no project. For a token of an issuer
# without it, `http.issuer_with_general` says so.
GENERAL_CLAIM = "palimpsest_with_general"


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


# What a request may do if the server needs no access tokens: everything.
OPEN = Grant("")


def current_grant() -> Grant:
    """Return what the access token of the current request allows, or `OPEN`."""
    access_token = get_access_token()
    return OPEN if access_token is None else grant_from(access_token)


def may_write() -> bool:
    """Return whether the current request may change the memory: it has no read-only access token."""
    return not current_grant().read_only


def grant_from(access_token: AccessToken) -> Grant:
    """Return what a verified access token allows."""
    claims = access_token.claims or {}
    return Grant(
        access_token.subject or "",
        claims.get(PROJECT_CLAIM, ""),
        read_only=WRITE not in access_token.scopes,
        with_general=claims.get(GENERAL_CLAIM, False),
    )


# Access tokens that this server creates: shown once, and stored as hashes in `tokens.json` of the data directory.

FILE = "tokens.json"

# How an access token starts, so that people and secret scanners recognize it.
PREFIX = "palimpsest_"

RANDOM_BYTES = 32


class StoredToken(BaseModel, extra="forbid", frozen=True):
    """An access token as it is stored: the SHA-256 of its text, and what it allows.

    The text is random, so the hash needs no salt. A token without `expires_at` is valid until it is revoked.
    `with_general` says whether a token of a project also opens what belongs to no project.
    """

    id: str
    digest: str
    user_id: str
    project: str
    read_only: bool
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    with_general: bool = True

    def is_expired(self, now: datetime) -> bool:
        """Return whether the token is no longer valid."""
        return self.expires_at is not None and self.expires_at <= now


_TOKENS = TypeAdapter(list[StoredToken])


def create(data_dir: Path, grant: Grant, now: datetime, days: int | None = None) -> tuple[str, StoredToken]:
    """Create an access token that allows what `grant` says. Return its text, which is not stored, and what is stored.

    `days`: how long the token is valid, or None for until it is revoked. Raises SettingsError if the file cannot be
    written.
    """
    text = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    now = now.replace(microsecond=0)
    token = StoredToken(
        **asdict(replace(grant, with_general=grant.with_general or not grant.project)),
        id=str(uuid.uuid4())[:8],
        digest=digest_of(text),
        created_at=now,
        expires_at=None if days is None else now + timedelta(days=days),
    )
    with _changing(data_dir, "no token was created") as tokens:
        tokens.append(token)
    return text, token


def revoke(data_dir: Path, token_id: str) -> StoredToken:
    """Delete an access token and return it.

    Raises InputError if there is none with this id, and SettingsError if the file cannot be written.
    """
    with _changing(data_dir, "no token was revoked") as tokens:
        revoked = next((token for token in tokens if token.id == token_id), None)
        if revoked is None:
            known = ", ".join(token.id for token in tokens) or "there are none"
            raise InputError(f"there is no token {token_id}; the ids are: {known}")
        tokens.remove(revoked)
    return revoked


def stored_tokens(data_dir: Path) -> list[StoredToken]:
    """Return all access tokens, oldest first. Raises SettingsError if the file cannot be read."""
    path = data_dir / FILE
    try:
        return _TOKENS.validate_json(path.read_bytes()) if path.exists() else []
    except (OSError, ValidationError) as error:
        fault = error if isinstance(error, OSError) else fault_text(error.errors()[0])
        advice = "Every access token is refused. Repair the file, or delete it and create new tokens."
        raise SettingsError(f"{path} cannot be read: {fault}. {advice}") from error


def digest_of(text: str) -> str:
    """Return the hash that is stored in place of an access token's text."""
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def _changing(data_dir: Path, otherwise: str) -> Generator[list[StoredToken]]:
    """Yield the tokens, write what they have become in one step (mode 0600), and keep others from writing meanwhile.

    Raises SettingsError in place of the OSError of a disk that is full or read-only.
    """
    advice = f"; {otherwise}. Make the data folder writable for this user, and check the free space."
    with raised_as(SettingsError, "the access tokens cannot be written", advice, OSError):
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with file_lock(data_dir / f"{FILE}.lock"):
            tokens = stored_tokens(data_dir)
            yield tokens
            with replace_file(data_dir / FILE) as file:
                file.write(_TOKENS.dump_json(tokens, indent=2).decode())


# What is found about access tokens, for `doctor`.


def token_findings(settings: Settings) -> list[Finding]:
    """Return a finding if the file of tokens cannot be read."""
    try:
        stored_tokens(settings.data_dir)
    except SettingsError as error:
        return [Finding("tokens", str(error), ok=False)]
    return []


# Verify the access token of a request.
#
# It is one that this server created, one from the settings, or one issued by an OAuth server that publishes its
# keys.

logger = logging.getLogger(__name__)

# How long a request waits for the keys of the issuer.
FETCH_SECONDS = 5.0

# How long after a fetch an unknown key is not looked for again. Issuers publish a key before they sign with it.
COOLDOWN_SECONDS = 10.0

# How many requests wait at a time, so that an issuer that does not answer keeps no threads from others.
MAX_FETCHING = 4

# Signatures by a private key. A signature by a secret that the verifier shares is never accepted.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


class AccessTokenVerifier:
    """The SDK's TokenVerifier. It reads the token file at every request, so a revoked token is refused at once."""

    def __init__(self, settings: HttpSettings, data_dir: Path, clock: Clock) -> None:
        self._data_dir = data_dir
        self._clock = clock
        self._from_settings = [
            StoredToken(
                **static.model_dump(exclude={"token"}),
                id=f"settings{number}",
                digest=digest_of(static.token.get_secret_value()),
                created_at=clock(),
            )
            for number, static in enumerate(settings.tokens)
        ]
        self._http = settings
        self._keys: jwt.PyJWKClient | None = None
        if settings.issuer:
            with raised_as(SettingsError, "http.jwks_url cannot be used", "", jwt.PyJWKClientError):
                url = settings.jwks_url or f"{settings.issuer.rstrip('/')}/.well-known/jwks.json"
                self._keys = jwt.PyJWKClient(url, timeout=FETCH_SECONDS, cooldown_duration=COOLDOWN_SECONDS)
        self._fetching = anyio.CapacityLimiter(MAX_FETCHING)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what an access token allows, or None if it is unknown, expired or revoked."""
        try:
            stored = await anyio.to_thread.run_sync(stored_tokens, self._data_dir)
        except SettingsError as error:
            logger.error("every access token is refused: %s", error)  # noqa: TRY400 - the text is complete
            return None
        digest, known = digest_of(token), [*self._from_settings, *stored]
        valid = next((each for each in known if hmac.compare_digest(each.digest, digest)), None)
        if valid is not None and not valid.is_expired(self._clock()):
            return AccessToken(
                token=token,
                client_id=valid.id,
                scopes=[READ] if valid.read_only else [READ, WRITE],
                expires_at=None if valid.expires_at is None else int(valid.expires_at.timestamp()),
                subject=valid.user_id,
                claims={PROJECT_CLAIM: valid.project, GENERAL_CLAIM: valid.with_general},
            )
        if self._keys is not None and token.count(".") == 2:  # noqa: PLR2004 - a JSON web token has three parts
            return await self._verify_issued(token, self._keys)
        return None

    async def _verify_issued(self, token: str, keys: jwt.PyJWKClient) -> AccessToken | None:
        """Return what a JSON web token of the OAuth server allows (RFC 7519, RFC 9068).

        Return None if its signature, issuer, audience or time is not valid, or its claims cannot be understood.
        """
        try:
            key_id = jwt.get_unverified_header(token).get("kid", "")
            cached = keys.jwk_set_cache.get() if keys.jwk_set_cache is not None else None
            # Known keys never wait for a fetch that looks for others.
            if (key := keys.match_kid(cached.keys if cached is not None else [], key_id)) is None:
                with anyio.fail_after(FETCH_SECONDS):
                    key = await anyio.to_thread.run_sync(
                        keys.get_signing_key, key_id, abandon_on_cancel=True, limiter=self._fetching
                    )
            claims = jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                audience=self._http.audience,
                issuer=self._http.issuer,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
            return self._issued(token, claims)
        except (jwt.PyJWTError, InputError, OSError, ValueError, RecursionError) as error:  # the last: JSON too deep
            logger.warning("an access token was refused: %s", error or type(error).__name__)
            return None

    def _issued(self, token: str, claims: Mapping[str, Any]) -> AccessToken:
        """Return what verified claims allow. Raises InputError for a claim that cannot be understood."""
        user = _name("sub", claims["sub"])
        project = _name(PROJECT_CLAIM, claims[PROJECT_CLAIM]) if PROJECT_CLAIM in claims else ""
        with_general = claims.get(GENERAL_CLAIM, self._http.issuer_with_general)
        if not isinstance(with_general, bool):
            raise InputError(f"{GENERAL_CLAIM} is neither true nor false")
        return AccessToken(
            token=token,
            client_id=str(claims.get("client_id") or claims.get("azp") or user),
            scopes=str(claims.get("scope", "")).split(),
            expires_at=int(claims["exp"]),
            resource=self._http.audience,
            subject=user,
            claims={**claims, PROJECT_CLAIM: project, GENERAL_CLAIM: with_general},
        )


def _name(claim: str, value: Any) -> str:
    """Return a claim that names a part of the scope, as it is: `alice ` is not `alice`, and "" is no way to say all.

    Raises InputError for a claim that would have to be changed to name one.
    """
    if not isinstance(value, str) or not value or scope_part(claim, value) != value:
        raise InputError(f"{claim} is empty, no text, or has white space around it")
    return value
