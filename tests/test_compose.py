"""The composition for a team: its settings are settings, and its parts fit each other and the server."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from palimpsest.core.settings import Settings, load_settings
from palimpsest.server.http.http_server import CALLS_SECONDS, SHUTDOWN_SECONDS
from palimpsest.server.session.rate_limits import METRICS, READY

HOME = Path(__file__).parents[1]
SERVERS = ("palimpsest-1", "palimpsest-2")
VARIABLES = {"POSTGRES_PASSWORD": "secret", "METRICS_TOKEN": "sixteen characters"}

COMPOSED: dict[str, Any] = yaml.safe_load((HOME / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSED["services"]
PROXY: str = COMPOSED["configs"]["caddyfile"]["content"]


def filled_in(text: str) -> str:

    def value(match: re.Match[str]) -> str:
        return VARIABLES[match["name"]] if match["how"] == "?" else match["default"]

    return re.sub(r"\$\{(?P<name>\w+):(?P<how>[?-])(?P<default>[^}]*)\}", value, text)


def seconds(text: str) -> int:
    return int(text[:-1]) * {"s": 1, "m": 60}[text[-1]]


@pytest.fixture(params=SERVERS)
def settings(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    """Return the settings that a server of the composition starts with. An unknown name is an error."""
    monkeypatch.setenv("PALIMPSEST_DATA_DIR", str(tmp_path))
    for name, value in SERVICES[request.param]["environment"].items():
        monkeypatch.setenv(name, filled_in(value))
    return load_settings()


def test_every_setting_exists_and_says_what_it_is_to_say(settings: Settings) -> None:
    """Guards against names and values that the server does not know, which would keep it from starting."""
    assert settings.ledger_url is not None
    assert settings.ledger_url.get_secret_value().endswith("palimpsest:secret@postgres/palimpsest")
    assert settings.vector_store.config.host in SERVICES
    assert {*SERVERS, "localhost"} == set(settings.http.allowed_hosts)
    assert settings.http.metrics_token is not None
    assert settings.http.metrics
    subnet = COMPOSED["networks"]["default"]["ipam"]["config"][0]["subnet"]
    assert [str(network) for network in settings.http.trusted_proxies] == [subnet]


def test_a_server_has_the_time_to_end_in_order(settings: Settings) -> None:
    """Guards calls that are under way: the process is not killed before they are answered and the memory is closed."""
    needed = settings.http.drain_seconds + CALLS_SECONDS + SHUTDOWN_SECONDS
    assert "127.0.0.1:8765" in (HOME / "Containerfile").read_text("utf-8")
    for name in SERVERS:
        assert seconds(SERVICES[name]["stop_grace_period"]) > needed
        assert f"http://127.0.0.1:8765{READY}'" in SERVICES[name]["healthcheck"]["test"][-1]


def test_the_proxy_asks_whether_servers_are_ready_and_hides_their_numbers() -> None:
    """Guards that the proxy knows all servers, stops sending to one that drains, and shows nobody the numbers."""
    assert re.findall(r"(\S+):8765", PROXY) == list(SERVERS)
    assert f"health_uri {READY}\n" in PROXY
    assert f"respond {METRICS} 404\n" in PROXY
    assert PROXY.count("{") == PROXY.count("}")
    published = {name for name, service in SERVICES.items() if "ports" in service}
    assert published == {"proxy"}


def test_what_is_named_exists() -> None:
    """Guards against a misspelt service, volume, configuration or extra."""
    extras = tomllib.loads((HOME / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for service in SERVICES.values():
        assert set(service.get("depends_on", ())) <= SERVICES.keys()
        assert {volume.partition(":")[0] for volume in service.get("volumes", ())} <= COMPOSED["volumes"].keys()
        assert {config["source"] for config in service.get("configs", ())} <= COMPOSED["configs"].keys()
        if "build" in service:
            assert set(service["build"]["args"]["EXTRAS"].strip("[]").split(",")) <= extras.keys()
            assert (HOME / service["build"]["dockerfile"]).exists()
