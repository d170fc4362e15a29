"""Verify the JSON web tokens of an OAuth server (RFC 7519, RFC 9068)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import jwt
from mcp.server.auth.provider import AccessToken

from palimpsest.core.configuration.sections import HttpSettings
from palimpsest.core.errors import InputError
from palimpsest.core.validation import scope_part
from palimpsest.server.auth.access import GENERAL_CLAIM, PROJECT_CLAIM
from palimpsest.server.auth.issuer_keys import IssuerKeys

logger = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a private key. A signature by a secret that the verifier shares is never accepted."""


class Issuer:
    """An OAuth server whose access tokens are accepted."""

    def __init__(self, settings: HttpSettings) -> None:
        self._issuer = settings.issuer
        self._audience = settings.audience
        self._with_general = settings.issuer_with_general is not False
        self._keys = IssuerKeys(settings.keys_url)

    async def verify(self, token: str) -> AccessToken | None:
        """Return what a JSON web token allows.

        Return None if its signature, issuer, audience or time is not valid, or its claims cannot be understood.
        """
        try:
            claims = jwt.decode(
                token,
                await self._key_of(token),
                algorithms=list(ALGORITHMS),
                audience=self._audience,
                issuer=self._issuer,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
            return self._access_token(token, claims)
        except (jwt.PyJWTError, InputError, RecursionError) as error:  # RecursionError: JSON that is nested too deep
            logger.warning("an access token was refused: %s", error)
            return None

    async def _key_of(self, token: str) -> jwt.PyJWK:
        """Return the key that a token says it is signed with. Raises PyJWTError if the issuer publishes none."""
        key_id = jwt.get_unverified_header(token).get("kid")
        key = await self._keys.find(key_id) if key_id else None
        if key is None:
            raise jwt.InvalidKeyError("it names no key that the issuer publishes")
        return key

    def _access_token(self, token: str, claims: Mapping[str, Any]) -> AccessToken:
        """Return what verified claims allow. Raises InputError for a claim that cannot be understood."""
        user = _name("sub", claims["sub"])
        project = _name(PROJECT_CLAIM, claims[PROJECT_CLAIM]) if PROJECT_CLAIM in claims else ""
        with_general = claims.get(GENERAL_CLAIM, self._with_general)
        if not isinstance(with_general, bool):
            raise InputError(f"{GENERAL_CLAIM} is neither true nor false")
        return AccessToken(
            token=token,
            client_id=str(claims.get("client_id") or claims.get("azp") or user),
            scopes=_scopes(claims.get("scope", "")),
            expires_at=int(claims["exp"]),
            resource=self._audience,
            subject=user,
            claims={**claims, PROJECT_CLAIM: project, GENERAL_CLAIM: with_general},
        )


def _name(claim: str, value: Any) -> str:
    """Return a claim that names a part of the scope, as it is: `alice ` is not `alice`, and "" is no way to say all.

    Raises InputError for a claim that would have to be changed to name one.
    """
    if not isinstance(value, str):
        raise InputError(f"{claim} is not a text")
    if not value or scope_part(claim, value) != value:
        raise InputError(f"{claim} is empty, or has white space around it")
    return value


def _scopes(scope: Any) -> list[str]:
    if isinstance(scope, str):
        return scope.split()
    if isinstance(scope, list):
        return [str(part) for part in scope]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - any JSON value has a text
    raise InputError("scope is neither a text nor a list")
