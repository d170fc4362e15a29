"""The sections of the settings, as they stand in a settings file. Keys that Mem0 has are called as in Mem0."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from palimpsest.core.errors import InputError
from palimpsest.core.validation import scope_part


def valid_scope_part(name: str, value: str) -> str:
    """Return a valid part of a scope, without surrounding white space. Raises ValueError."""
    try:
        plain = scope_part(name, value)
    except InputError as error:
        raise ValueError(str(error)) from error
    if name == "user_id" and not plain:
        raise ValueError("user_id is empty")
    return plain


class Section(BaseModel):
    """A section of the settings. Unknown keys are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")
"""What may stand in a header (RFC 9110). An error of the HTTP library would quote a wrong one, and so a token."""


class VectorStoreConfig(Section):
    """Where Chroma keeps its index: in the folder `path`, or on a Chroma server at `host` and `port`.

    The server has no authentication of its own. A proxy before it may want `headers`, such as `Authorization`, and TLS
    (`ssl`). Without `tenant` and `database` they are Chroma's defaults.
    """

    path: Path | None = None
    host: str | None = Field(default=None, pattern=r"^[^\s/@]+$")
    port: int | None = Field(default=None, ge=1, le=65535)
    ssl: bool = False
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    tenant: str | None = Field(default=None, min_length=1)
    database: str | None = Field(default=None, min_length=1)
    collection_name: str = Field(default="palimpsest", pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_-]{1,100}[a-zA-Z0-9]$")

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, value in headers.items():
            if not _HEADER_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a header")
            if not _HEADER_VALUE.fullmatch(value.get_secret_value()):
                raise ValueError(f"the value of {name} is empty, or has characters that a header cannot have")
        return headers


class VectorStore(Section):
    """The vector index: `chroma`, or `exact`, a NumPy scan of all vectors of a user."""

    provider: Literal["chroma", "exact"] = "chroma"
    config: VectorStoreConfig = VectorStoreConfig()


class LlmConfig(Section):
    """An OpenAI-compatible chat endpoint. `timeout` is in seconds, for one request."""

    model: str = "gpt-4o-mini"
    api_key: SecretStr | None = None
    openai_base_url: str | None = None
    temperature: float | None = Field(default=0.1, ge=0, le=2)
    max_tokens: int = Field(default=4000, ge=64)
    timeout: float = Field(default=30.0, gt=0)


class Llm(Section):
    """The language model: `openai` for an endpoint, `sampling` for the connected client's own model, or `none`.

    `auto` means `openai` if our own settings have a key or a base URL, or if $OPENAI_BASE_URL is on this machine, else
    `sampling`. A client that does not offer sampling leaves the server without a model.
    """

    provider: Literal["auto", "openai", "sampling", "none"] = "auto"
    config: LlmConfig = LlmConfig()


Provider: TypeAlias = Literal["local", "e5", "static", "onnx", "openai", "chroma"]
"""The embedders that can be chosen."""


class EmbedderConfig(Section):
    """The embedder's model: its name at an endpoint, or for `onnx` its folder. `timeout` is in seconds, per request.

    The prefixes, `pooling` and `max_tokens` override what the files of an ONNX model say.
    """

    model: str | None = None
    query_prefix: str | None = None
    passage_prefix: str | None = None
    pooling: Literal["mean", "cls", "last"] | None = None
    max_tokens: int | None = Field(default=None, ge=4, le=32_768)
    api_key: SecretStr | None = None
    openai_base_url: str | None = None
    embedding_dims: int | None = Field(default=None, ge=8, le=8192)
    timeout: float = Field(default=30.0, gt=0)


class EmbedderChoice(Section):
    """The embedder. `local` takes the best that is installed: `e5` if it runs on this machine, else `static`.

    `onnx` needs a folder with a model, `openai` an endpoint, `chroma` a download of 80 MB on first use.
    """

    provider: Provider = "local"
    config: EmbedderConfig = EmbedderConfig()


class SummaryConfig(Section):
    """A scope's summary is rewritten after every `every` edits of the scope."""

    every: int = Field(default=20, ge=1)


class LearnConfig(Section):
    """With `in_background`, messages are learned from after their call was answered. None: over HTTP only.

    Else a call asks a model for `call_seconds` at most, which is less than clients wait; the background goes on then,
    unless the model is the client's own.
    From messages that hooks captured, facts are learned with at most `captured_calls_per_day` model calls a UTC day.
    """

    in_background: bool | None = None
    call_seconds: float = Field(default=45.0, gt=0)
    captured_calls_per_day: int = Field(default=50, ge=0)


class BackgroundConfig(Section):
    """How often a model is asked a UTC day for work that nobody asked for, such as summaries and links.

    All processes and users of a ledger count together. What is over a limit waits for the next day. Both defaults are
    set by hand, so that somebody who pays for a model lets it run: 200 calls are the summaries and links of a day of
    much talking, and 300,000 tokens cost about 6 cents with a small model and 90 with a large one (2026).
    """

    calls_per_day: int = Field(default=200, ge=0)
    tokens_per_day: int = Field(default=300_000, ge=0)


BOLT_SCHEMES = ("bolt", "bolt+s", "bolt+ssc", "neo4j", "neo4j+s", "neo4j+ssc")
"""How the address of a Bolt server begins. "+s" means TLS, and "+ssc" TLS with a certificate that nobody checks."""


class GraphStoreConfig(Section):
    """The Bolt server that the graph is copied to: `url`, such as `bolt://127.0.0.1:7687`, and how to log in.

    Without `database` it is the server's default database.
    """

    url: str | None = None
    username: str | None = None
    password: SecretStr | None = None
    database: str | None = None

    @field_validator("url")
    @classmethod
    def _is_bolt(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if value.partition("://")[0] not in BOLT_SCHEMES:
            raise ValueError(f"it begins with none of {', '.join(f'{scheme}://' for scheme in BOLT_SCHEMES)}")
        if "@" in value:
            raise ValueError("it contains a login; username and password are settings of their own")
        return value


class GraphStore(Section):
    """Where the graph lies: in the ledger, and with `neo4j` or `memgraph` also on a server that follows the ledger.

    `custom_prompt` is a text, or the path of a file, that says what entities and relations to look for.
    """

    provider: Literal["ledger", "neo4j", "memgraph"] = "ledger"
    config: GraphStoreConfig = GraphStoreConfig()
    custom_prompt: str | None = None

    @model_validator(mode="after")
    def _server_needs_url(self) -> GraphStore:
        if self.provider != "ledger" and not self.config.url:
            raise ValueError(
                f"graph_store.provider = '{self.provider}' needs graph_store.config.url, such as bolt://127.0.0.1:7687"
            )
        return self


class StaticToken(Section):
    """An access token for the memory of a user, or of one project of that user. It may allow only reading.

    One of a project also opens what belongs to no project, unless `with_general` is false. It should say which.
    """

    token: SecretStr = Field(min_length=16)
    user_id: str = Field(min_length=1)
    project: str = ""
    read_only: bool = False
    with_general: bool | None = None

    @field_validator("user_id", "project")
    @classmethod
    def _is_scope(cls, value: str, info: ValidationInfo) -> str:
        name = info.field_name or ""
        plain = valid_scope_part(name, value)
        if value and not plain:
            raise ValueError(f"{name} is white space; name the project, or leave it out for a token of all projects")
        return plain


class HttpSettings(Section):
    """Where HTTP is served and who may use it.

    `requests_per_minute` applies to each access token, or to each address if there are no tokens. With `issuer`, the
    server accepts JSON web tokens of that OAuth server whose audience is `audience`, the URL of this server. One of a
    project that does not say so itself also opens what belongs to no project, unless `issuer_with_general` is false; it
    should say which. Proxies at the addresses or in the networks `trusted_proxies` say who their clients are, by
    `X-Forwarded-For`. For `drain_seconds` after SIGTERM the server is not ready, and goes on serving. `log` says how it
    writes its log. With `metrics`, numbers for Prometheus are at `/metrics`, for those who send `metrics_token`.
    """

    host: str = "127.0.0.1"
    port: int = Field(default=8765, ge=0, le=65535)
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[IPvAnyNetwork, ...] = ()
    tokens: tuple[StaticToken, ...] = ()
    requests_per_minute: int = Field(default=1200, ge=1)
    issuer: str = ""
    jwks_url: str = ""
    audience: str = ""
    issuer_with_general: bool | None = None
    drain_seconds: float = Field(default=0.0, ge=0, le=3600)
    log: Literal["text", "json"] = "text"
    metrics: bool = False
    metrics_token: SecretStr | None = Field(default=None, min_length=16)

    @property
    def keys_url(self) -> str:
        """Return the URL at which the issuer publishes its keys."""
        return self.jwks_url or f"{self.issuer.rstrip('/')}/.well-known/jwks.json"

    @model_validator(mode="after")
    def _issuer_needs_audience(self) -> HttpSettings:
        if self.issuer and not self.audience:
            raise ValueError("http.issuer needs http.audience: the URL of this server, which its tokens are issued for")
        return self
