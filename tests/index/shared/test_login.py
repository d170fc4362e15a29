"""A Chroma server behind a proxy that wants a token, over TLS."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Generator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from palimpsest.core.errors import SettingsError, VectorIndexError
from palimpsest.learn.engine import open_shared_projection
from palimpsest.store.ledger import Ledger
from tests.support.chroma_server import ChromaProcess
from tests.support.projections import EMBEDDER, add, facts, nearest

TOKEN = "Bearer a-token-that-nobody-sees"  # noqa: S105 - the proxy below wants it
HEADERS = {"Authorization": TOKEN}


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Return a certificate for 127.0.0.1 that signs itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = tmp_path / "proxy.pem"
    file.write_bytes(secret + signed.public_bytes(serialization.Encoding.PEM))
    return file


@pytest.fixture
def proxy(chroma: ChromaProcess, certificate: Path) -> Generator[int]:
    """Yield the port of a TLS proxy before the Chroma server, which refuses requests without the token."""

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("Authorization") == TOKEN:
                url = f"http://127.0.0.1:{chroma.port}{self.path}"
                headers = {"Content-Type": "application/json"}
                reply = httpx.request(self.command, url, content=body, headers=headers, trust_env=False)
                status, content = reply.status_code, reply.content
            else:
                status, content = 401, b"who are you?"
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = forward  # noqa: N815 - the names that the library calls

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that the library gives it
            """Write nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.nightly
def test_headers_and_tls(
    ledger: Ledger,
    chroma: ChromaProcess,
    proxy: int,
    certificate: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The token goes to the server and nowhere else. A certificate that nobody vouches for is refused."""
    add(ledger, *facts(3))

    def problem(**config: object) -> str:
        projection = open_shared_projection(chroma.settings(tmp_path, port=proxy, **config), ledger, EMBEDDER)
        with closing(projection), pytest.raises(VectorIndexError) as error:
            projection.open()
        return str(error.value)

    untrusted = problem(ssl=True, headers=HEADERS)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    without, wrong = problem(ssl=True), problem(ssl=True, headers={"Authorization": "Bearer another"})
    assert "certificate" in untrusted.lower()
    assert "refuses the login (HTTP 401). vector_store.config.headers" in without
    assert "refuses the login" in wrong
    assert "Bearer" not in untrusted + without + wrong
    settings = chroma.settings(tmp_path, port=proxy, ssl=True, headers=HEADERS)
    assert TOKEN not in repr(settings)
    projection = open_shared_projection(settings, ledger, EMBEDDER)
    projection.open()
    assert (projection.state, projection.count()) == ("ready", 3)
    assert nearest(ledger, projection, "fact 1", 1) == [2]
    assert TOKEN not in projection.condition().text
    projection.close()


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"headers": {"X Token": "a"}}, "no name of a header"),
        ({"headers": {"X-Token": "secret\nmore"}}, "characters that a header cannot have"),
        ({"headers": {"X-Token": ""}}, "is empty"),
        ({"host": "http://somewhere"}, "vector_store.config.host"),
    ],
)
def test_settings_that_no_server_understands_are_refused(
    chroma: ChromaProcess, tmp_path: Path, config: dict[str, object], expected: str
) -> None:
    """The text never quotes the value of a header."""
    with pytest.raises(SettingsError, match=expected) as error:
        chroma.settings(tmp_path, **config)
    assert "secret" not in str(error.value)


def test_a_database_that_is_not_there_is_named(ledger: Ledger, chroma: ChromaProcess, tmp_path: Path) -> None:
    """Chroma creates neither tenants nor databases by itself."""
    projection = open_shared_projection(chroma.settings(tmp_path, database="another"), ledger, EMBEDDER)
    with closing(projection), pytest.raises(VectorIndexError, match=r"\[another\] does not exist"):
        projection.open()
