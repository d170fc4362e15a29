"""Verify the access token of a request.

It is one that this server created, one from the settings, or one issued by an OAuth server that publishes its keys.
"""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path

import anyio.to_thread
from mcp.server.auth.provider import AccessToken

from palimpsest.core.clock import Clock
from palimpsest.core.configuration.sections import HttpSettings
from palimpsest.core.errors import SettingsError
from palimpsest.server.auth import tokens as access_tokens
from palimpsest.server.auth.access import GENERAL_CLAIM, PROJECT_CLAIM, READ, WRITE
from palimpsest.server.auth.issuer import Issuer
from palimpsest.server.auth.tokens import StoredToken

logger = logging.getLogger(__name__)


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
                with_general=static.with_general,
                created_at="",
            )
            for number, static in enumerate(settings.tokens)
        ]
        self._issuer = Issuer(settings) if settings.issuer else None

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
            return await self._issuer.verify(token)
        return None


def _access_token(stored: StoredToken, text: str) -> AccessToken:
    expires_at = None if stored.expires_at is None else int(datetime.fromisoformat(stored.expires_at).timestamp())
    return AccessToken(
        token=text,
        client_id=stored.id,
        scopes=[READ] if stored.read_only else [READ, WRITE],
        expires_at=expires_at,
        subject=stored.user_id,
        claims={PROJECT_CLAIM: stored.project, GENERAL_CLAIM: stored.sees_general},
    )
