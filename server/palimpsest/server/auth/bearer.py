"""Who a bearer token is of: one of ours, of the settings, or issued by an OAuth server whose keys are published."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio.to_thread
import jwt
from mcp.server.auth.provider import AccessToken

from palimpsest.core.clock import Clock
from palimpsest.core.errors import SettingsError
from palimpsest.core.settings import HttpSettings
from palimpsest.server.auth import tokens as access_tokens
from palimpsest.server.auth.access import PROJECT, READ, WRITE
from palimpsest.server.auth.tokens import Token

logger = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a private key. Never one by a secret that the verifier knows too."""

KEYS_SECONDS = 10.0
"""How long fetching an issuer's keys may take."""


class BearerTokens:
    """Verify tokens for the SDK. The file of ours is read at every request, so that a revoked one is out at once."""

    def __init__(self, settings: HttpSettings, data_dir: Path, clock: Clock) -> None:
        self._folder = data_dir
        self._clock = clock
        self._named = [
            Token(
                f"settings{number}",
                access_tokens.digest_of(each.token.get_secret_value()),
                each.user_id,
                each.project,
                each.read_only,
                "",
            )
            for number, each in enumerate(settings.tokens)
        ]
        self._issuer = _Issuer(settings) if settings.issuer else None

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return what a token opens; None for one that is unknown, expired or revoked."""
        try:
            known = [*self._named, *await anyio.to_thread.run_sync(access_tokens.stored, self._folder)]
        except SettingsError as error:
            logger.error("no token is accepted: %s", error)  # noqa: TRY400 - the text says it all
            return None
        found = access_tokens.holder(known, token, self._clock())
        if found is not None:
            return _access(found, token)
        if self._issuer is not None and token.count(".") == 2:  # noqa: PLR2004 - a JSON web token has three parts
            return await anyio.to_thread.run_sync(self._issuer.verified, token)
        return None


def _access(found: Token, text: str) -> AccessToken:
    scopes = [READ] if found.read_only else [READ, WRITE]
    expires_at = None if found.expires_at is None else int(datetime.fromisoformat(found.expires_at).timestamp())
    return AccessToken(
        token=text,
        client_id=found.id,
        scopes=scopes,
        expires_at=expires_at,
        subject=found.user_id,
        claims={PROJECT: found.project},
    )


class _Issuer:
    """Verify the JSON web tokens of one issuer by the keys it publishes (RFC 7517, RFC 9068)."""

    def __init__(self, settings: HttpSettings) -> None:
        self._issuer = settings.issuer
        self._audience = settings.audience
        self._keys = jwt.PyJWKClient(settings.keys_url, cache_keys=True, timeout=KEYS_SECONDS)

    def verified(self, token: str) -> AccessToken | None:
        """Return what a token opens; None where signature, issuer, audience or time are wrong. Blocking."""
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
            logger.warning("a token was refused: %s", error)
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
    found: Any = claims.get("scope", "")
    return found.split() if isinstance(found, str) else [str(each) for each in found]
