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
from anyio.abc import SocketAttribute
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm

from palimpsest.core.settings import HttpSettings
from palimpsest.server import access_tokens
from palimpsest.server.access_tokens import (
    FRESH_SECONDS,
    GENERAL_CLAIM,
    MAX_AGE_SECONDS,
    MAX_FETCHES_PER_MINUTE,
    AccessTokenVerifier,
    IssuerKeys,
    grant_from,
)
from tests.support.http_server import (
    ACCEPT,
    INITIALIZE,
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


@contextmanager
def run_protected(folder: Path, issuer: Issuer) -> Generator[HttpServer]:
    oauth = {"PALIMPSEST_HTTP__ISSUER": issuer.url, "PALIMPSEST_HTTP__AUDIENCE": AUDIENCE}
    with run_http_server(folder, **oauth) as server:
        yield server


@pytest.fixture(scope="module")
def issuer() -> Generator[Issuer]:
    with run_issuer() as running:
        yield running


@pytest.fixture(scope="module")
def server(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Generator[HttpServer]:
    with run_protected(tmp_path_factory.mktemp("oauth"), issuer) as running:
        yield running


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def signed_with_public_key(issuer: Issuer, secret: bytes) -> str:
    header = {"alg": "HS256", "typ": "JWT", "kid": issuer.keys[0].id}
    claims = issuer.token().split(".")[1]
    signed = f"{encoded(json.dumps(header).encode())}.{claims}"
    return f"{signed}.{encoded(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


def unsigned(issuer: Issuer, algorithm: str) -> str:
    header = {"alg": algorithm, "typ": "JWT", "kid": issuer.keys[0].id}
    return f"{encoded(json.dumps(header).encode())}.{issuer.token().split('.')[1]}."


def with_header(issuer: Issuer, header: bytes) -> str:
    return ".".join([encoded(header), *issuer.token().split(".")[1:]])


def from_now(minutes: float) -> datetime:
    return datetime.now(UTC) + timedelta(minutes=minutes)


FORGED: dict[str, Callable[[Issuer], str]] = {
    "another key": lambda issuer: issuer.token(Key("first")),
    "another issuer": lambda issuer: issuer.token(iss="http://elsewhere"),
    "no issuer": lambda issuer: issuer.token(iss=None),
    "another audience": lambda issuer: issuer.token(aud="http://elsewhere/mcp"),
    "longer audience": lambda issuer: issuer.token(aud=f"{AUDIENCE}/more"),
    "no audience": lambda issuer: issuer.token(aud=None),
    "expired": lambda issuer: issuer.token(exp=from_now(-1)),
    "no expiry": lambda issuer: issuer.token(exp=None),
    "not yet valid": lambda issuer: issuer.token(nbf=from_now(3)),
    "no user": lambda issuer: issuer.token(sub=None),
    "empty user": lambda issuer: issuer.token(sub=""),
    "white user": lambda issuer: issuer.token(sub=" "),
    "user with a space before it": lambda issuer: issuer.token(sub=" frank"),
    "user with a line break after it": lambda issuer: issuer.token(sub="frank\n"),
    "user with a wide space after it": lambda issuer: issuer.token(sub="frank\u3000"),
    "user with a letter that is not seen": lambda issuer: issuer.token(sub="fr\u200bank"),
    "any user": lambda issuer: issuer.token(sub="*"),
    "project that is no text": lambda issuer: issuer.token(palimpsest_project=["atlas"]),
    "project that is false": lambda issuer: issuer.token(palimpsest_project=False),
    "empty project": lambda issuer: issuer.token(palimpsest_project=""),
    "white project": lambda issuer: issuer.token(palimpsest_project=" \t"),
    "project with a hard space after it": lambda issuer: issuer.token(palimpsest_project="atlas\u00a0"),
    "any project": lambda issuer: issuer.token(palimpsest_project="*"),
    "scope that is no text": lambda issuer: issuer.token(scope=1),
    "public key as secret": lambda issuer: signed_with_public_key(issuer, issuer.keys[0].pem),
    "published key as secret": lambda issuer: signed_with_public_key(issuer, json.dumps(issuer.keys[0].jwk).encode()),
    "none": lambda issuer: unsigned(issuer, "none"),
    "None": lambda issuer: unsigned(issuer, "None"),
    "signed by none": lambda issuer: unsigned(issuer, "RS256"),
    "no key id": lambda issuer: jwt.encode({"sub": "frank"}, issuer.keys[0].private, algorithm="RS256"),
    "deep header": lambda issuer: with_header(issuer, b"[" * 5_000),
    "header with an endless number": lambda issuer: with_header(issuer, b'{"alg": %s}' % (b"9" * 5_000)),
    "key id that is no text": lambda issuer: with_header(issuer, b'{"alg": "RS256", "kid": {"a": 1}}'),
    "header that is no text": lambda issuer: with_header(issuer, b"\xff\xfe"),
    "three dots": lambda _: "a..b",
}


class TestTokens:
    async def test_an_issuers_token_is_valid_for_its_subject(self, server: HttpServer, issuer: Issuer) -> None:
        """Guards OAuth: the user is the subject, and the OAuth scopes say what it may do."""
        async with connect_http(server, "auto", issuer.token(scope="memory:read")) as client:
            assert "add_memory" not in [tool.name for tool in (await client.list_tools()).tools]
            asked = {"query": "violin", "scope": {"user_id": "frank"}}
            assert "scope: user frank" in text_of(await client.call_tool("search_memories", asked))
        assert post(server, issuer.token(scope="other")).status_code == 403
        metadata = httpx2.get(f"{server.base}/.well-known/oauth-protected-resource/mcp").json()
        assert metadata["authorization_servers"] == [f"{issuer.url}/"]

    def test_a_token_that_is_not_valid_is_refused(self, server: HttpServer, issuer: Issuer) -> None:
        """Guards every memory from tokens that the issuer did not sign for this server, for now, for one user."""
        assert post(server, issuer.token()).status_code == 200
        for case, forge in FORGED.items():
            answer = post(server, forge(issuer))
            assert answer.status_code == 401, case
            assert "/.well-known/oauth-protected-resource" in answer.headers["www-authenticate"], case
        assert post(server, issuer.token()).status_code == 200


class TestRotation:
    async def test_a_withdrawn_key_is_refused_once_the_keys_are_fetched_again(self) -> None:
        """Guards a rotation that nobody uses the new key of: the old one does not stay valid."""
        seconds = [0.0]
        with run_issuer() as issuer:
            keys = IssuerKeys(issuer.url, lambda: seconds[0])
            assert await keys.find("first") is not None
            issuer.keys = [Key("second")]
            seconds[0] = FRESH_SECONDS - 1
            assert await keys.find("first") is not None
            assert issuer.fetches == 1
            seconds[0] = FRESH_SECONDS
            assert await keys.find("first") is None
            assert await keys.find("second") is not None

    async def test_known_keys_outlive_a_short_outage_of_the_issuer(self) -> None:
        """Guards users from an issuer that restarts, and memories from one that is gone for long."""
        seconds = [0.0]
        with run_issuer() as issuer:
            keys = IssuerKeys(issuer.url, lambda: seconds[0])
            assert await keys.find("first") is not None
            issuer.status = 503
            seconds[0] = FRESH_SECONDS
            assert [await keys.find("first") is not None for _ in range(5)] == [True] * 5
            assert issuer.fetches == 2  # one attempt, not one for each token
            seconds[0] = MAX_AGE_SECONDS + 1
            assert await keys.find("first") is None
            issuer.status = 200
            assert await keys.find("first") is not None


class TestBadIssuers:
    @pytest.mark.nightly
    async def test_an_issuer_that_does_not_answer_delays_no_other_token(self, tmp_path: Path) -> None:
        """Guards the server's own tokens, and the issuer's known keys, from a fetch that hangs."""
        own = new_access_token(tmp_path / "data", "alice")
        with run_issuer() as issuer, run_protected(tmp_path, issuer) as server:
            assert post(server, issuer.token()).status_code == 200
            issuer.is_asked.clear()
            issuer.may_answer.clear()
            async with httpx2.AsyncClient(timeout=TIMEOUT) as http, anyio.create_task_group() as tasks:
                unknown = {**ACCEPT, "authorization": f"Bearer {issuer.token(kid='unknown')}"}
                for _ in range(20):
                    tasks.start_soon(lambda: http.post(f"{server.base}/mcp", json=INITIALIZE, headers=unknown))
                assert await anyio.to_thread.run_sync(issuer.is_asked.wait, TIMEOUT)
                for bearer in (own, issuer.token()):
                    known = {**ACCEPT, "authorization": f"Bearer {bearer}"}
                    answer = await http.post(f"{server.base}/mcp", json=INITIALIZE, headers=known)
                    assert answer.status_code == 200
                assert issuer.fetches == 2
                issuer.may_answer.set()

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize(
        "document",
        [
            b'{"keys": [' + b" " * 50_000_000 + b"]}",
            b"[" * 100_000,
            b"[]",
            b'{"keys": 1}',
            b'{"keys": [1, null]}',
            b"\xff\xfe",
            b"",
        ],
        ids=["50 MB", "deep", "a list", "keys that are none", "values that are no keys", "not UTF-8", "empty"],
    )
    async def test_a_document_that_is_no_set_of_keys_is_refused(
        self, document: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Guards memory and the server from what the issuer's address may answer with."""
        with run_issuer() as issuer:
            issuer.document = document
            assert await IssuerKeys(issuer.url).find("first") is None
        assert "could not be fetched" in caplog.text

    async def test_a_body_that_drips_ends_with_the_time_for_a_fetch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Guards those who wait: the time is that of the whole fetch, not that between two bytes."""
        monkeypatch.setattr(access_tokens, "FETCH_SECONDS", 0.2)
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")

        async def drip(connection: Any) -> None:
            async with connection:
                await connection.receive()
                await connection.send(b"HTTP/1.1 200 OK\r\n\r\n")
                try:
                    while True:
                        await connection.send(b" ")
                        await anyio.sleep(0.01)
                except anyio.BrokenResourceError:
                    return

        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, drip)
            port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - no Django
            with anyio.fail_after(TIMEOUT):
                assert await IssuerKeys(f"http://127.0.0.1:{port}").find("first") is None
            tasks.cancel_scope.cancel()

    async def test_many_unknown_keys_are_looked_up_a_few_times_a_minute(self) -> None:
        """Guards the issuer from a flood of tokens that name keys it never had."""
        seconds = [0.0]
        with run_issuer() as issuer:
            keys = IssuerKeys(issuer.url, lambda: seconds[0])
            for number in range(500):
                assert await keys.find(f"unknown {number}") is None
            assert issuer.fetches == MAX_FETCHES_PER_MINUTE
            assert await keys.find("first") is not None
            issuer.keys = [Key("second")]
            seconds[0] = 60.0
            assert await keys.find("second") is not None
            assert issuer.fetches == MAX_FETCHES_PER_MINUTE + 1

    async def test_those_who_wait_for_a_fetch_share_it(self) -> None:
        """Guards the issuer at a start, when everybody's token is the first."""
        with run_issuer() as issuer:
            keys = IssuerKeys(issuer.url)
            found: list[jwt.PyJWK | None] = []

            async def find() -> None:
                found.append(await keys.find("first"))

            async with anyio.create_task_group() as tasks:
                for _ in range(50):
                    tasks.start_soon(find)
            assert all(found)
            assert issuer.fetches == 1


@pytest.mark.parametrize(
    ("setting", "claims", "sees_general"),
    [
        (None, {}, True),
        (True, {}, True),
        (False, {}, False),
        (False, {GENERAL_CLAIM: True}, True),
        (None, {GENERAL_CLAIM: False}, False),
    ],
)
async def test_what_a_token_of_a_project_opens_is_said_by_its_claim_or_the_settings(
    issuer: Issuer, tmp_path: Path, claims: dict[str, Any], *, setting: bool | None, sees_general: bool
) -> None:
    """Guards what is general from tokens of a project that never said so, once somebody decided it."""
    settings = HttpSettings(issuer=issuer.url, audience=AUDIENCE, issuer_with_general=setting)
    verifier = AccessTokenVerifier(settings, tmp_path, lambda: datetime.now(UTC))
    of_project = await verifier.verify_token(issuer.token(palimpsest_project="atlas", **claims))
    assert of_project is not None
    assert grant_from(of_project).sees("") is sees_general
    assert grant_from(of_project).sees("atlas")
    of_all = await verifier.verify_token(issuer.token(**claims))
    assert of_all is not None
    assert grant_from(of_all).sees("")
