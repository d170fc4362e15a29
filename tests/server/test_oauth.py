"""Access tokens of an OAuth server, with its keys published over HTTP: what is valid, and every way to forge one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm

from palimpsest.core.settings import HttpSettings
from palimpsest.server import access_tokens
from palimpsest.server.access_tokens import GENERAL_CLAIM, AccessTokenVerifier, grant_from
from tests.support.http_server import (
    TIMEOUT,
    HttpServer,
    connect_http,
    new_access_token,
    post,
    run_http_server,
)
from tests.support.mcp_client import text_of

pytestmark = pytest.mark.anyio

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
            self.send_response(200)
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


@pytest.fixture(scope="module")
def issuer() -> Generator[Issuer]:
    with run_issuer() as running:
        yield running


@pytest.fixture(scope="module")
def server(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Generator[HttpServer]:
    """Run a server that accepts the tokens of an issuer."""
    oauth = {"PALIMPSEST_HTTP__ISSUER": issuer.url, "PALIMPSEST_HTTP__AUDIENCE": AUDIENCE}
    with run_http_server(tmp_path_factory.mktemp("oauth"), **oauth) as running:
        yield running


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def signed_with_public_key(issuer: Issuer, secret: bytes) -> str:
    """Return a token whose signature anybody can make who knows the public key."""
    header = {"alg": "HS256", "typ": "JWT", "kid": issuer.keys[0].id}
    claims = issuer.token().split(".")[1]
    signed = f"{encoded(json.dumps(header).encode())}.{claims}"
    return f"{signed}.{encoded(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


def unsigned(issuer: Issuer, algorithm: str) -> str:
    """Return a token without a signature."""
    header = {"alg": algorithm, "typ": "JWT", "kid": issuer.keys[0].id}
    return f"{encoded(json.dumps(header).encode())}.{issuer.token().split('.')[1]}."


def with_header(issuer: Issuer, header: bytes) -> str:
    """Return a token with another header."""
    return ".".join([encoded(header), *issuer.token().split(".")[1:]])


def from_now(minutes: float) -> datetime:
    return datetime.now(UTC) + timedelta(minutes=minutes)


# Claims that no valid token has; times are minutes from now.
CLAIMS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("forged_claims.json").read_text("utf-8"))

FORGED: dict[str, Callable[[Issuer], str]] = {
    "another key": lambda issuer: issuer.token(Key("first")),
    "public key as secret": lambda issuer: signed_with_public_key(issuer, issuer.keys[0].pem),
    "none": lambda issuer: unsigned(issuer, "none"),
    "signed by none": lambda issuer: unsigned(issuer, "RS256"),
    "no key id": lambda issuer: jwt.encode({"sub": "frank"}, issuer.keys[0].private, algorithm="RS256"),
    "deep header": lambda issuer: with_header(issuer, b"[" * 5_000),
    "header with an endless number": lambda issuer: with_header(issuer, b'{"alg": %s}' % (b"9" * 5_000)),
    "key id that is no text": lambda issuer: with_header(issuer, b'{"alg": "RS256", "kid": {"a": 1}}'),
    "header that is no text": lambda issuer: with_header(issuer, b"\xff\xfe"),
    "three dots": lambda _: "a..b",
}


async def test_an_issuers_token_is_valid_for_its_subject_and_no_forged_one_is(
    server: HttpServer, issuer: Issuer
) -> None:
    """Guards every memory from tokens that the issuer did not sign for this server, for now, for one user."""
    async with connect_http(server, "auto", issuer.token(scope="memory:read")) as client:
        assert "add_memory" not in [tool.name for tool in (await client.list_tools()).tools]
        asked = {"query": "violin", "scope": {"user_id": "frank"}}
        assert "scope: user frank" in text_of(await client.call_tool("search_memories", asked))
    assert post(server, issuer.token(scope="other")).status_code == 403
    metadata = httpx2.get(f"{server.base}/.well-known/oauth-protected-resource/mcp").json()
    assert metadata["authorization_servers"] == [f"{issuer.url}/"]
    forged = {case: forge(issuer) for case, forge in FORGED.items()}
    for case, claims in CLAIMS.items():
        times: dict[str, Any] = {name: from_now(claims[name]) for name in ("exp", "nbf") if claims.get(name)}
        forged[case] = issuer.token(**claims | times)
    for case, token in forged.items():
        answer = post(server, token)
        assert answer.status_code == 401, case
        assert "/.well-known/oauth-protected-resource" in answer.headers["www-authenticate"], case
    assert post(server, issuer.token()).status_code == 200


@pytest.fixture
def verifier_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AccessTokenVerifier]:
    """Return a function that makes what verifies the tokens of an issuer, which asks for keys as often as it likes."""
    monkeypatch.setattr(access_tokens, "COOLDOWN_SECONDS", 0.0)

    def make(issuer: Issuer, **settings: Any) -> AccessTokenVerifier:
        http = HttpSettings(issuer=issuer.url, audience=AUDIENCE, **settings)
        return AccessTokenVerifier(http, tmp_path, lambda: datetime.now(UTC))

    return make


async def test_a_new_key_is_accepted_without_a_restart_and_the_old_one_no_longer(verifier_of: Any) -> None:
    """Guards a rotation of the issuer's keys, above all one after a key was stolen."""
    with run_issuer() as issuer:
        verifier, old, new = verifier_of(issuer), issuer.keys[0], Key("second")
        assert await verifier.verify_token(issuer.token(old)) is not None
        issuer.keys = [new]
        assert await verifier.verify_token(issuer.token(new)) is not None
        assert await verifier.verify_token(issuer.token(old)) is None


async def test_an_issuer_that_does_not_answer_delays_no_other_token(tmp_path: Path, verifier_of: Any) -> None:
    """Guards the server's own tokens, and the issuer's known keys, from a fetch that hangs."""
    own = new_access_token(tmp_path, "alice")
    with run_issuer() as issuer:
        verifier = verifier_of(issuer)
        assert await verifier.verify_token(issuer.token()) is not None
        issuer.is_asked.clear()
        issuer.may_answer.clear()
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(verifier.verify_token, issuer.token(kid="unknown"))
            assert await anyio.to_thread.run_sync(issuer.is_asked.wait, TIMEOUT)
            for token in (own, issuer.token()):
                assert await verifier.verify_token(token) is not None
            assert issuer.fetches == 2
            issuer.may_answer.set()


async def test_a_document_that_is_no_set_of_keys_is_refused(verifier_of: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Guards the server from what the issuer's address may answer with."""
    with run_issuer() as issuer:
        for document in (b"[" * 100_000, b"[]", b'{"keys": 1}', b'{"keys": [1, null]}', b"\xff\xfe", b""):
            issuer.document = document
            assert await verifier_of(issuer).verify_token(issuer.token()) is None, document[:20]
    assert caplog.text.count("an access token was refused") == 6


async def test_many_unknown_keys_are_looked_up_seldom(verifier_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the issuer from a flood of tokens that name keys it never had, and from everybody at a start."""
    with run_issuer() as issuer:
        monkeypatch.setattr(access_tokens, "COOLDOWN_SECONDS", 60.0)
        verifier = verifier_of(issuer)
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(verifier.verify_token, issuer.token(kid=f"unknown {number}"))
                tasks.start_soon(verifier.verify_token, issuer.token())
        assert issuer.fetches == 1
        assert await verifier.verify_token(issuer.token()) is not None


async def test_what_a_token_of_a_project_opens_is_said_by_its_claim_or_the_settings(
    issuer: Issuer, verifier_of: Any
) -> None:
    """Guards what is general from tokens of a project that don't say so."""
    for setting, claim, sees_general in (
        (True, None, True),
        (False, None, False),
        (False, True, True),
        (True, False, False),
    ):
        verifier = verifier_of(issuer, issuer_with_general=setting)
        claims: dict[str, Any] = {GENERAL_CLAIM: claim}
        of_project = grant_from(await verifier.verify_token(issuer.token(palimpsest_project="atlas", **claims)))
        assert (of_project.sees(""), of_project.sees("atlas")) == (sees_general, True)
        assert grant_from(await verifier.verify_token(issuer.token(**claims))).sees("")
