"""Verify the access token of a request.

It is one that this server created, one from the settings, or one issued by an OAuth server that publishes its keys.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import jwt
from mcp.server.auth.provider import AccessToken

from palimpsest.core.clock import Clock
from palimpsest.core.errors import SettingsError
from palimpsest.core.settings import HttpSettings
from palimpsest.server.auth import tokens as access_tokens
from palimpsest.server.auth.access import PROJECT_CLAIM, READ, WRITE
from palimpsest.server.auth.tokens import StoredToken

logger = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a private key. A signature by a secret that the verifier shares is never accepted."""

FETCH_KEYS_SECONDS = 10.0
"""How long fetching an issuer's keys may take."""


ISSUER_THREADS = 4
"""How many requests may wait for an issuer's keys at a time, so that the server's own tokens do not wait for it."""


class AccessTokenVerifier:
    """The SDK's TokenVerifier. It reads the token file at every request, so a revoked token is refused at once."""

    def __init__(self, settings: HttpSettings, data_dir: Path, clock: Clock) -> None:
        self._data_dir = data_dir
        self._clock = clock
        self._from_settings = [
            StoredToken(
                id=f"settings{number}",
                digest=access_tokens.digest_of(static.token.get_secret_value()),
                user_id=static.user_id,
                project=static.project,
                read_only=static.read_only,
                created_at="",
            )
            for number, static in enumerate(settings.tokens)
        ]
        self._issuer = _Issuer(settings) if settings.issuer else None
        self._issuer_threads = anyio.CapacityLimiter(ISSUER_THREADS)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what an access token allows, or None if it is unknown, expired or revoked."""
        try:
            stored = await anyio.to_thread.run_sync(access_tokens.stored_tokens, self._data_dir)
        except SettingsError as error:
            logger.error("every access token is refused: %s", error)  # noqa: TRY400 - the text is complete
            return None
        valid = access_tokens.find_valid([*self._from_settings, *stored], token, self._clock())
        if valid is not None:
            return _access_token(valid, token)
        if self._issuer is not None and token.count(".") == 2:  # noqa: PLR2004 - a JSON web token has three parts
            return await anyio.to_thread.run_sync(self._issuer.verify, token, limiter=self._issuer_threads)
        return None


def _access_token(stored: StoredToken, text: str) -> AccessToken:
    expires_at = None if stored.expires_at is None else int(datetime.fromisoformat(stored.expires_at).timestamp())
    return AccessToken(
        token=text,
        client_id=stored.id,
        scopes=[READ] if stored.read_only else [READ, WRITE],
        expires_at=expires_at,
        subject=stored.user_id,
        claims={PROJECT_CLAIM: stored.project},
    )


class _Issuer:
    """An OAuth server, whose JSON web tokens are verified with the keys it publishes (RFC 7517, RFC 9068)."""

    def __init__(self, settings: HttpSettings) -> None:
        self._issuer = settings.issuer
        self._audience = settings.audience
        self._keys = jwt.PyJWKClient(settings.keys_url, cache_keys=True, timeout=FETCH_KEYS_SECONDS)

    def verify(self, token: str) -> AccessToken | None:
        """Return what a JSON web token allows. Blocking.

        Return None if its signature, issuer, audience or expiry time is not valid.
        """
        try:
            key = self._keys.get_signing_key_from_jwt(token)
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(ALGORITHMS),
                audience=self._audience,
                issuer=self._issuer,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            logger.warning("an access token was refused: %s", error)
            return None
        return AccessToken(
            token=token,
            client_id=str(claims.get("client_id") or claims.get("azp") or claims["sub"]),
            scopes=_scopes(claims),
            expires_at=int(claims["exp"]),
            resource=self._audience,
            subject=str(claims["sub"]),
            claims=dict(claims),
        )


def _scopes(claims: Mapping[str, Any]) -> list[str]:
    scope: Any = claims.get("scope", "")
    return scope.split() if isinstance(scope, str) else [str(part) for part in scope]
