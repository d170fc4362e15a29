"""The public keys of an OAuth server, fetched when they are needed, and never more often than is good for it."""

from __future__ import annotations

import json
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import anyio
import httpx
import jwt

logger = logging.getLogger(__name__)

FRESH_SECONDS = 300.0
"""How long keys are used before they are fetched again, so that a key the issuer withdrew is soon refused."""

RETRY_SECONDS = 60.0
"""How long to wait after a fetch failed. Meanwhile the known keys stay valid."""

MAX_AGE_SECONDS = 3600.0
"""How long known keys stay valid while the issuer cannot be reached."""

FETCH_SECONDS = 5.0
"""How long a fetch may take in all. Requests with an unknown key wait for it."""

MAX_FETCHES_PER_MINUTE = 6
"""More than an issuer changes its keys, and too few to be a burden to it, whatever keys are asked for."""

MAX_KEYS_BYTES = 256 * 1024
"""Large issuers publish twenty keys, which is some 50 KB."""


class IssuerKeys:
    """The keys that are published at a URL (RFC 7517). `clock` returns seconds that only grow."""

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = url
        self._clock = clock
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at = -math.inf
        self._fresh_until = -math.inf
        self._fetching = anyio.Lock()
        self._fetch_count = 0
        self._last_fetches: deque[float] = deque(maxlen=MAX_FETCHES_PER_MINUTE)

    async def find(self, key_id: str) -> jwt.PyJWK | None:
        """Return the key with an id, or None if the issuer publishes none, or none that could be fetched."""
        if not self._has_fresh(key_id):
            fetch_count = self._fetch_count
            async with self._fetching:
                # One fetch answers everybody who waited for it.
                if fetch_count == self._fetch_count and self._may_fetch():
                    await self._fetch()
        return self._keys.get(key_id)

    def _has_fresh(self, key_id: str) -> bool:
        return key_id in self._keys and self._clock() < self._fresh_until

    def _may_fetch(self) -> bool:
        is_first = len(self._last_fetches) < MAX_FETCHES_PER_MINUTE
        return is_first or self._clock() - self._last_fetches[0] >= 60  # noqa: PLR2004 - seconds of a minute

    async def _fetch(self) -> None:
        """Replace the keys by those published now. If that fails, keep them until they are too old."""
        self._fetch_count += 1
        self._last_fetches.append(self._clock())
        try:
            with anyio.fail_after(FETCH_SECONDS):
                self._keys = _signing_keys(await self._published())
        except (httpx.HTTPError, TimeoutError, ValueError, RecursionError, jwt.PyJWTError) as error:
            if self._clock() - self._fetched_at > MAX_AGE_SECONDS:
                self._keys = {}
            self._fresh_until = self._clock() + RETRY_SECONDS
            logger.warning(
                "the keys of the OAuth issuer could not be fetched from %s (%s); %s",
                self._url,
                str(error) or type(error).__name__,
                "those known stay valid for now" if self._keys else "its access tokens are refused",
            )
        else:
            self._fetched_at = self._clock()
            self._fresh_until = self._fetched_at + FRESH_SECONDS

    async def _published(self) -> Any:
        """Return the JSON document at the URL. Raises ValueError if it is too long, and what httpx raises."""
        document = bytearray()
        plain = {"accept-encoding": "identity"}  # a compressed document may be far longer than what is read
        async with (
            httpx.AsyncClient(headers=plain, timeout=FETCH_SECONDS) as http,
            http.stream("GET", self._url) as answer,
        ):
            if not answer.is_success:
                raise ValueError(f"status {answer.status_code}")
            async for part in answer.aiter_raw():
                document += part
                if len(document) > MAX_KEYS_BYTES:
                    raise ValueError(f"more than {MAX_KEYS_BYTES} bytes")
        return json.loads(document)


def _signing_keys(document: Any) -> dict[str, jwt.PyJWK]:
    """Return the keys of a JWK set for signatures, by id. Raises ValueError or PyJWTError if it is none."""
    if not isinstance(document, dict):
        raise ValueError("not a JWK set")  # noqa: TRY004 - it is the document that is wrong
    keys = jwt.PyJWKSet.from_dict(cast("dict[str, Any]", document)).keys
    return {key.key_id: key for key in keys if key.key_id and key.public_key_use in (None, "sig")}
