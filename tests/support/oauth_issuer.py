"""An OAuth server that publishes its keys over HTTP and issues JSON web tokens."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm

AUDIENCE = "http://localhost/mcp"


@dataclass(frozen=True)
class Key:
    """A signing key and its id."""

    id: str
    private: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    @property
    def jwk(self) -> dict[str, Any]:
        """Return the public key as it is published."""
        return {**json.loads(RSAAlgorithm.to_jwk(self.private.public_key())), "kid": self.id, "use": "sig"}

    @property
    def pem(self) -> bytes:
        """Return the public key as a file holds it."""
        return self.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@dataclass
class Issuer:
    """What an OAuth server publishes and issues.

    `document` is published in place of the keys if it is set; each fetch sets `is_asked` and waits for `may_answer`.
    """

    url: str
    keys: list[Key]
    document: bytes | None = None
    status: int = 200
    fetches: int = 0
    is_asked: threading.Event = field(default_factory=threading.Event)
    may_answer: threading.Event = field(default_factory=threading.Event)

    def published(self) -> bytes:
        """Return what a fetch is answered with."""
        return self.document if self.document is not None else json.dumps({"keys": [k.jwk for k in self.keys]}).encode()

    def token(self, key: Key | None = None, *, kid: str | None = None, **claims: Any) -> str:
        """Return an access token, signed with the first key if none is given. A claim of None is left out."""
        key = key or self.keys[0]
        plain = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "frank",
            "scope": "memory:read memory:write",
            "exp": datetime.now(UTC) + timedelta(minutes=5),
        }
        whole = {name: value for name, value in (plain | claims).items() if value is not None}
        return jwt.encode(whole, key.private, algorithm="RS256", headers={"kid": kid or key.id})


@contextmanager
def run_issuer() -> Generator[Issuer]:
    """Run an OAuth server with one key."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.fetches += 1
            issuer.is_asked.set()
            issuer.may_answer.wait()
            self.send_response(issuer.status)
            self.end_headers()
            try:
                self.wfile.write(issuer.published())
            except OSError:  # the client has read enough
                return

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the base class
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer = Issuer(f"http://127.0.0.1:{server.server_port}", [Key("first")])
        issuer.may_answer.set()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield issuer
        finally:
            issuer.may_answer.set()
            server.shutdown()
