"""The connection to a Chroma server: its HTTP interface (version 2), time limits, and what went wrong in plain words.

Chroma's own client is not used. It waits for ever while it connects, and takes more than a second to import.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx

from palimpsest.core.configuration.sections import VectorStoreConfig
from palimpsest.core.errors import VectorIndexError
from palimpsest.text.control_characters import visible
from palimpsest.text.shorten import shorten

DEFAULT_PORT = 8000

DEFAULT_TENANT, DEFAULT_DATABASE = "default_tenant", "default_database"

SEARCH_SECONDS = 3.0
"""How long a search waits for one answer. After that it scans the ledger's vectors, as do all searches until the server
answers again. Set by hand: an answer takes milliseconds, and one from another continent half a second."""

REPLY_SECONDS = 30.0
"""How long any other request waits. A batch of vectors takes the server half a second. Set by hand."""

MAX_REASON_CHARS = 200
"""How much of what a server says about a failure is shown. Set by hand: its first sentence."""

REFUSED_LOGIN = (401, 403)
NOT_FOUND = 404


class RefusalError(VectorIndexError):
    """The server answered, and did not do what it was asked."""


class NotThereError(RefusalError):
    """The server does not have the collection."""


class ChromaServer:
    """A Chroma server, as the settings name it. Blocking; safe to use from several threads.

    Every method raises VectorIndexError. No text of an error contains a header, because headers hold tokens.
    """

    def __init__(self, config: VectorStoreConfig) -> None:
        host = f"[{config.host}]" if ":" in (config.host or "") else config.host
        self.address = f"{'https' if config.ssl else 'http'}://{host}:{config.port or DEFAULT_PORT}"
        tenant, database = quote(config.tenant or DEFAULT_TENANT), quote(config.database or DEFAULT_DATABASE)
        self._client = httpx.Client(
            base_url=f"{self.address}/api/v2/tenants/{tenant}/databases/{database}/",
            headers={name: value.get_secret_value() for name, value in config.headers.items()},
        )

    def get(self, path: str, *, is_search: bool = False, **parameters: int) -> Any:
        """Return the content of a resource. Raises NotThereError if there is none."""
        return self._request("GET", path, is_search=is_search, parameters=parameters)

    def post(self, path: str, content: Any, *, is_search: bool = False) -> Any:
        """Return the answer to what is posted. Raises NotThereError if there is no such collection."""
        return self._request("POST", path, content, is_search=is_search)

    def put(self, path: str, content: Any) -> None:
        """Change a resource. Raises NotThereError if there is none."""
        self._request("PUT", path, content)

    def delete(self, path: str) -> None:
        """Delete a resource. Raises NotThereError if there is none."""
        self._request("DELETE", path)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _request(
        self,
        method: str,
        path: str,
        content: Any = None,
        *,
        is_search: bool = False,
        parameters: dict[str, int] | None = None,
    ) -> Any:
        seconds = SEARCH_SECONDS if is_search else REPLY_SECONDS
        try:
            reply = self._client.request(method, path, json=content, params=parameters or None, timeout=seconds)
        except httpx.TimeoutException as error:
            raise VectorIndexError(f"the Chroma server {self.address} did not answer within {seconds:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError) as error:  # RuntimeError: the client was closed
            raise VectorIndexError(
                f"the Chroma server {self.address} could not be reached: {_reason(error)}"
            ) from error
        if reply.status_code in REFUSED_LOGIN:
            raise VectorIndexError(
                f"the Chroma server {self.address} refuses the login (HTTP {reply.status_code}). "
                "vector_store.config.headers holds what it asks for"
            )
        try:
            answer = reply.json()
        except ValueError as error:
            raise VectorIndexError(
                f"what answers at {self.address} is no Chroma server: HTTP {reply.status_code} without JSON"
            ) from error
        if not reply.is_success:
            raise self._refusal(reply.status_code, answer)
        return answer

    def _refusal(self, status: int, answer: Any) -> RefusalError:
        text = f"the Chroma server {self.address} refuses: {_reason(_message(answer) or f'HTTP {status}')}"
        return NotThereError(text) if status == NOT_FOUND else RefusalError(text)


def _message(answer: Any) -> Any:
    return answer.get("message") if isinstance(answer, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - JSON


def _reason(error: object) -> str:
    return shorten(visible(" ".join(str(error).split())), MAX_REASON_CHARS) or type(error).__name__
