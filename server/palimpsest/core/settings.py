"""The settings: their names, their defaults and where they come from. The only reader of the environment.

Arguments win over the environment (`PALIMPSEST_…`, `__` for nesting), and the environment over the settings file. They
are merged key by key, also inside sections. Keys that Mem0 has are called as in Mem0. OpenAI's own variables complete
an endpoint that these settings name.
"""

from __future__ import annotations

import difflib
import getpass
import ipaddress
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

import platformdirs
import pydantic
import pydantic_settings
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from palimpsest.core.clock import Zones, system_zone, zone_named
from palimpsest.core.errors import SettingsError, raised_as
from palimpsest.core.git_project import Repository, repository_of
from palimpsest.core.models import EmbedderName, RerankerName
from palimpsest.core.settings_file import PROVIDERS, Origin, find_settings_file, origins, read_settings_file
from palimpsest.core.validation import checked, fault_text, object_of, scope_part

logger = logging.getLogger(__name__)

# Which endpoint a language model is asked at, and which addresses are on this machine.


# The variables that every program with a vendor's client reads. They are set for other programs: a key among them does
# not say that texts of the memory may be sent to its vendor.
OPENAI_KEY, OPENAI_URL, ANTHROPIC_KEY = "OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY"


def unused_variables_text(names: tuple[str, ...]) -> str:
    """Return what a person should know of variables that are set and not followed."""
    use = "to use it, run palimpsest setup, or set PALIMPSEST_LLM__PROVIDER=openai"
    return f"by {' and '.join(names)} alone no language model is asked; {use}"


# Shorter keys are placeholders, not secrets, and would match ordinary words in an error text.
MIN_KEY_CHARS = 8


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is asked. `base_url` is None for OpenAI's own address."""

    api_key: str | None
    base_url: str | None

    def client_options(self, timeout: float, local_client: Callable[..., Any], max_retries: int = 1) -> dict[str, Any]:
        """Return the options of the client of a vendor's package. `local_client` makes one for this machine.

        It retries after a connection error or status 408, 409, 429 or 5xx.
        """
        return {
            "api_key": self.api_key or "none",  # local servers need no key, but the client requires one
            "base_url": self.base_url,
            "timeout": timeout,
            "max_retries": max_retries,
            # A proxy of the environment would take what is for this machine to another one.
            "http_client": local_client(trust_env=False) if is_on_this_machine(self.base_url) else None,
        }

    def without_key(self, text: str) -> str:
        """Return a text without the key, because some endpoints repeat it."""
        return text.replace(self.api_key, "…") if self.api_key and len(self.api_key) >= MIN_KEY_CHARS else text


def is_on_this_machine(url: str | None) -> bool:
    """Return whether a URL names this machine by its loopback address or as localhost."""
    with suppress(ValueError):  # not a URL: a bracket that nothing closes
        return is_loopback(urlsplit(url or "").hostname or "")
    return False


def is_loopback(host: str) -> bool:
    """Return whether an address can only be reached from this machine."""
    with suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


# The sections of the settings, as they stand in a settings file. Keys that Mem0 has are called as in Mem0.


def _scope_part(name: str, value: str) -> str:
    """Return a valid part of a scope, without surrounding white space. Raises ValueError."""
    plain = checked(scope_part, name, value)
    if name == "user_id" and not plain:
        raise ValueError("user_id is empty")
    return plain


def _of_field(value: str, info: pydantic.ValidationInfo) -> str:
    return _scope_part(info.field_name or "", value)


ScopePart: TypeAlias = Annotated[str, AfterValidator(_of_field)]
UserId: TypeAlias = Annotated[str, AfterValidator(partial(_scope_part, "user_id"))]


class Section(BaseModel):
    """A section of the settings. Unknown keys are an error."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class VectorStoreConfig(Section):
    """Where Chroma keeps its index: in the folder `path`, or on a Chroma server at `host` and `port`.

    The server has no authentication of its own, so it belongs into a private network.
    """

    path: Path | None = None
    host: str | None = Field(default=None, pattern=r"^[^\s/@]+$")
    port: int | None = Field(default=None, ge=1, le=65535)
    collection_name: str = Field(default="palimpsest", pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_-]{1,100}[a-zA-Z0-9]$")


class VectorStore(Section):
    """The vector index: `chroma`, or `exact`, a NumPy scan of all vectors of a user."""

    provider: Literal["chroma", "exact"] = "chroma"
    config: VectorStoreConfig = VectorStoreConfig()


def _as_endpoint(value: Any, info: pydantic.ValidationInfo) -> Any:
    """Return a section with the endpoint of a provider that it names. No key of OpenAI's is ever sent there."""
    section = object_of(value)
    if (named := PROVIDERS.get(str(section.get("provider")))) is None:
        return value
    name, provider = info.field_name, section["provider"]
    config = dict(section.get("config") or {})
    config["openai_base_url"] = config.get("openai_base_url") or named.base_url
    config["api_key"] = config.get("api_key") or environment_variable(named.api_key_variable)
    if not named.api_key_variable:
        config["api_key"] = config["api_key"] or provider  # these servers want none, and OpenAI's client wants one
    for key in ("openai_base_url", "api_key", "model"):
        if not config.get(key):
            also = f", or the variable {named.api_key_variable}" if key == "api_key" else ""
            raise ValueError(f"{name}.provider = '{provider}' needs {name}.config.{key}{also}")
    return {**section, "provider": "openai", "config": config}


class LlmConfig(Section):
    """A chat endpoint. `timeout` is in seconds, for one request. `vision_model` describes the pictures of messages."""

    model: str = "gpt-4o-mini"
    vision_model: str = ""
    api_key: SecretStr | None = None
    openai_base_url: str | None = None
    anthropic_base_url: str | None = None
    temperature: float | None = Field(default=0.1, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int = Field(default=4000, ge=64)
    timeout: float = Field(default=30.0, gt=0)


class Llm(Section):
    """The language model: `openai` or `anthropic` for an endpoint, `sampling` for the client's own, or `none`.

    `auto` means `openai` if our own settings have a key or a base URL, or if $OPENAI_BASE_URL is on this machine, else
    `sampling`. A client that does not offer sampling leaves the server without a model.
    """

    provider: Literal["auto", "openai", "anthropic", "sampling", "none"] = "auto"
    config: LlmConfig = LlmConfig()


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

    provider: EmbedderName = "local"
    config: EmbedderConfig = EmbedderConfig()


class RerankerConfig(Section):
    """The folder of a model, for `onnx`, or an endpoint and its model's name. `timeout` is in seconds, per search."""

    folder: str | None = None
    model: str | None = None
    base_url: str | None = None
    api_key: SecretStr | None = None
    timeout: float = Field(default=3.0, gt=0)


class RerankerChoice(Section):
    """What judges the first results of a search once more: `onnx` needs a folder with a model, `endpoint` a URL."""

    provider: RerankerName = "none"
    config: RerankerConfig = RerankerConfig()


class SummaryConfig(Section):
    """A scope's summary is rewritten after every `every` edits of the scope.

    With `mood` a model keeps a note on the user's mood and needs of each day, from which the profile learns how to
    treat them.
    """

    every: int = Field(default=20, ge=1)
    mood: bool = False


class LearnConfig(Section):
    """With `in_background`, messages are learned from after their call was answered. None: over HTTP only.

    Else a call asks a model for `call_seconds` at most, which is less than clients wait; the background goes on then,
    unless the model is the client's own.
    From messages that hooks captured, facts are learned with at most `captured_calls_per_day` model calls a UTC day.
    A model sees `recent_messages` before the new ones (m in the Mem0 paper), and for each fact up to `similar_memories`
    (s): the nearest three, and those that resemble it as much as `similarity_threshold`.
    """

    recent_messages: int = Field(default=10, ge=0, le=100)
    similar_memories: int = Field(default=10, ge=1, le=50)
    similarity_threshold: float = Field(default=0.25, ge=0, le=1)
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


class GraphStoreConfig(Section):
    """The Bolt server that the graph is copied to: `url`, such as `bolt://127.0.0.1:7687`, and how to log in.

    Without `database` it is the server's default database.
    """

    # "+s" means TLS, and "+ssc" TLS with a certificate that nobody checks. A login in it would be shown in messages.
    url: str | None = Field(default=None, pattern=r"^(bolt|neo4j)(\+s|\+ssc)?://[^@]*$")
    username: str | None = None
    password: SecretStr | None = None
    database: str | None = None


class GraphStore(Section):
    """Where the graph lies: in the ledger, and with `neo4j` or `memgraph` also on a server that follows the ledger.

    `custom_prompt` is a text, or the path of a file, that says what entities and relations to look for.
    """

    provider: Literal["ledger", "neo4j", "memgraph"] = "ledger"
    config: GraphStoreConfig = GraphStoreConfig()
    custom_prompt: str | None = None


class StaticToken(Section):
    """An access token for the memory of a user, or of one project of that user. It may allow only reading.

    One of a project also opens what belongs to no project if it says `with_general`.
    """

    token: SecretStr = Field(min_length=16)
    user_id: Annotated[str, Field(min_length=1), AfterValidator(_of_field)]
    project: str = ""
    read_only: bool = False
    with_general: bool = False

    @field_validator("project")
    @classmethod
    def _names_project(cls, value: str) -> str:
        plain = checked(scope_part, "project", value)
        if value and not plain:
            raise ValueError("project is white space; name the project, or leave it out for a token of all projects")
        return plain


class HttpSettings(Section):
    """Where HTTP is served and who may use it.

    `requests_per_minute` applies to each access token, or to each address if there are no tokens. With `issuer`, the
    server accepts JSON web tokens of that OAuth server whose audience is `audience`, the URL of this server. One of a
    project that does not say so itself also opens what belongs to no project with `issuer_with_general`. Proxies at
    the addresses or in the networks `trusted_proxies` say who their clients are, by `X-Forwarded-For`. For
    `drain_seconds` after SIGTERM the server is not ready, and goes on serving. `log` says how it writes its log. With
    `metrics`, numbers for Prometheus are at `/metrics`, for those who send `metrics_token`.
    """

    host: str = "127.0.0.1"
    port: int = Field(default=8765, ge=0, le=65535)
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[pydantic.IPvAnyNetwork, ...] = ()
    tokens: tuple[StaticToken, ...] = ()
    requests_per_minute: int = Field(default=1200, ge=1)
    issuer: str = ""
    jwks_url: str = ""
    audience: str = ""
    issuer_with_general: bool = False
    drain_seconds: float = Field(default=0.0, ge=0, le=3600)
    log: Literal["text", "json"] = "text"
    metrics: bool = False
    metrics_token: SecretStr | None = Field(default=None, min_length=16)

    @model_validator(mode="after")
    def _issuer_needs_audience(self) -> HttpSettings:
        if self.issuer and not self.audience:
            raise ValueError("http.issuer needs http.audience: the URL of this server, which its tokens are issued for")
        return self


ENV_PREFIX = "PALIMPSEST_"
CONFIG_VARIABLE = "PALIMPSEST_CONFIG"


def _zone(name: str) -> str:
    checked(zone_named, name)
    return name


# The value of `project` that means the project of the folder the process was started in.
AUTO = "auto"


def _system_user() -> str:
    with suppress(OSError, KeyError):  # a process without a user name, as in some containers
        return getpass.getuser()
    return "user"


# What the configuration of a provider must have.
_NEEDED = {
    "embedder": {"openai": "model", "onnx": "model"},
    "reranker": {"onnx": "folder", "endpoint": "base_url"},
    "graph_store": {"neo4j": "url", "memgraph": "url"},
}


class Settings(BaseSettings):
    """All settings; an unknown one is an error. Build it with `load_settings`.

    `config` is the settings file that was read, or None.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        case_sensitive=False,
        env_ignore_empty=True,
    )

    config: Path | None = Field(default=None, exclude=True)
    version: Literal["v1.0", "v1.1"] = "v1.1"
    timezone: Annotated[str, AfterValidator(lambda name: name and _zone(name))] = ""
    user_timezones: dict[UserId, Annotated[str, AfterValidator(_zone)]] = Field(default_factory=dict[str, str])
    data_dir: Path = Field(default_factory=lambda: platformdirs.user_data_path("palimpsest", appauthor=False))
    history_db_path: Path | None = None
    ledger_url: SecretStr | None = Field(default=None, exclude=True)
    user_id: ScopePart = Field(default_factory=_system_user)
    project: ScopePart = ""
    agent_id: ScopePart = ""
    run_id: ScopePart = ""
    vector_store: VectorStore = VectorStore()
    llm: Annotated[Llm, BeforeValidator(_as_endpoint)] = Llm()
    embedder: Annotated[EmbedderChoice, BeforeValidator(_as_endpoint)] = EmbedderChoice()
    reranker: RerankerChoice = RerankerChoice()
    summary: SummaryConfig = SummaryConfig()
    learn: LearnConfig = LearnConfig()
    background: BackgroundConfig = BackgroundConfig()
    graph_store: GraphStore = GraphStore()
    links: Literal["off", "on"] = "off"
    http: HttpSettings = HttpSettings()
    instructions: Literal["memories", "static"] = "memories"
    max_memories: int = Field(default=0, ge=0)
    hooks: Literal["on", "off", "capture", "recall"] = "on"
    hooks_excluded_folders: tuple[str, ...] = ()
    hooks_ask_agent: Literal["never", "when_needed", "always"] = "when_needed"
    hooks_context_tokens: int = Field(default=0, ge=0)
    keep_secrets: bool = False
    explain: bool = False
    min_score: float = Field(default=0.0, ge=0, le=1)
    forgetting: Literal["off", "rank", "archive"] = "off"
    forgetting_days: float = Field(default=30.0, gt=0)
    forgetting_days_by_tag: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    forgetting_bound: float = Field(default=0.05, ge=0, lt=1)
    recall_log_days: int = Field(default=30, ge=0, le=36_500)
    prompts_dir: Path | None = None
    custom_fact_extraction_prompt: str | None = None
    custom_update_memory_prompt: str | None = None
    custom_instructions: str | None = None
    includes: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    _variables: Mapping[str, str] = pydantic.PrivateAttr(
        default_factory=lambda: {name: environment_variable(name) for name in (OPENAI_KEY, OPENAI_URL, ANTHROPIC_KEY)}
    )
    _repository: Repository | None = pydantic.PrivateAttr(default=None)
    _notes: Sequence[str] = pydantic.PrivateAttr(default=())
    _origins: Mapping[str, Origin] = pydantic.PrivateAttr(default_factory=dict[str, Origin])

    @field_validator("config", "data_dir", "history_db_path", "prompts_dir")
    @classmethod
    def _expand(cls, value: Path | None) -> Path | None:
        return value.expanduser().absolute() if value is not None else None

    @model_validator(mode="after")
    def _providers_need_places(self) -> Settings:
        for section, needed_by in _NEEDED.items():
            choice = getattr(self, section)
            if (needed := needed_by.get(choice.provider)) and not getattr(choice.config, needed):
                raise ValueError(f"{section}.provider = '{choice.provider}' needs {section}.config.{needed}")
        return self

    @property
    def origins(self) -> Mapping[str, Origin]:
        """Return where settings come from, by their dotted names. What is not among them has its default."""
        return self._origins

    @property
    def notes(self) -> Sequence[str]:
        """Return a sentence on each part of a settings file of mem0's that means nothing here."""
        return self._notes

    @property
    def repository(self) -> Repository | None:
        """Return the repository that the project comes from, with `project = "auto"`, else None.

        The ledger knows which project that is; until it is open, `project` is the name that a new one would get.
        """
        return self._repository

    def find_origins(self, arguments: Mapping[str, Any]) -> None:
        """Find out where the settings come from: these arguments, the environment, the file."""
        given = {Origin.COMMAND_LINE: arguments, Origin.ENVIRONMENT: pydantic_settings.EnvSettingsSource(Settings)()}
        values, self._notes = read_settings_file(Settings, self.config) if self.config is not None else ({}, ())
        self._origins = origins({**given, Origin.FILE: values})

    def with_project_of(self, folder: Path) -> Settings:
        """Return a copy of the settings with the project of a folder."""
        repository = repository_of(folder)
        copy = self.with_project(repository.project)
        copy._repository = repository  # noqa: SLF001 - an instance of this class
        return copy

    def with_project(self, project: str) -> Settings:
        """Return a copy of the settings with another project. Raises InputError for a name that is not valid."""
        return self.model_copy(update={"project": scope_part("project", project)})

    def learning_in_background(self) -> Settings:
        """Return a copy of the settings that learns in the background, unless they say whether to."""
        if self.learn.in_background is not None:
            return self
        return self.model_copy(update={"learn": self.learn.model_copy(update={"in_background": True})})

    @property
    def zones(self) -> Zones:
        """Return the zones in which days begin: of each user, and without a setting that of the system."""
        of_users = {user: zone_named(name) for user, name in self.user_timezones.items()}
        return Zones(zone_named(self.timezone) if self.timezone else system_zone(environment_variable("TZ")), of_users)

    @property
    def ledger_path(self) -> Path:
        """Return the path of the ledger file."""
        return self.history_db_path or self.data_dir / "ledger.db"

    @property
    def ledger_place(self) -> Path | SecretStr:
        """Return where the ledger is: a file, or the URL of a database."""
        return self.ledger_url or self.ledger_path

    @property
    def index_dir(self) -> Path:
        """Return the folder that contains the index folders, of which each process leases one."""
        path = self.vector_store.config.path
        return path.expanduser().absolute() if path is not None else self.data_dir / "index"

    @property
    def llm_provider(self) -> Literal["openai", "anthropic", "sampling", "none"]:
        """Return the provider, with `auto` resolved.

        `auto` asks an endpoint only if these settings name it, or if it is on this machine.
        """
        if self.llm.provider != "auto":
            return self.llm.provider
        is_named = self.llm.config.api_key or self.llm.config.openai_base_url
        is_here = is_on_this_machine(self._variables[OPENAI_URL])
        return "openai" if is_named or is_here else "sampling"

    @property
    def unused_openai_variables(self) -> tuple[str, ...]:
        """Return the names of OpenAI's variables that are set, and that `auto` alone does not follow."""
        is_ignored = self.llm.provider == "auto" and self.llm_provider != "openai"
        return tuple(name for name in (OPENAI_KEY, OPENAI_URL) if is_ignored and self._variables[name])

    def endpoint_of(self, config: LlmConfig | EmbedderConfig) -> Endpoint:
        """Return where a model is asked. What the settings leave open comes from OpenAI's variables."""
        is_anthropic = isinstance(config, LlmConfig) and self.llm.provider == "anthropic"
        key = config.api_key.get_secret_value() if config.api_key else ""
        key = key or self._variables[ANTHROPIC_KEY if is_anthropic else OPENAI_KEY]
        if isinstance(config, LlmConfig) and is_anthropic:
            return Endpoint(key or None, config.anthropic_base_url)
        return Endpoint(key or None, config.openai_base_url or self._variables[OPENAI_URL] or None)

    @model_validator(mode="wrap")
    @classmethod
    def _raise_settings_error(
        cls, values: dict[str, Any], validate: pydantic.ModelWrapValidatorHandler[Settings]
    ) -> Settings:
        """Raise SettingsError with every wrong key in place of pydantic's ValidationError."""
        try:
            return validate(values)
        except pydantic.ValidationError as error:
            raise SettingsError(_describe(error, values.get("config"))) from error

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic-settings passes it by name
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - likewise
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in order of precedence, the highest first."""
        variables = env_settings()
        path = find_settings_file({**variables, **init_settings()})
        file = {**read_settings_file(settings_cls, path)[0], "config": path} if path else {}
        return (init_settings, *(InitSettingsSource(settings_cls, values) for values in (variables, file)))


def load_settings(config_file: Path | None = None, **overrides: Any) -> Settings:
    """Return the settings from arguments, the environment and the settings file.

    `config_file` defaults to $PALIMPSEST_CONFIG, then to `config.toml` in the data directory if that file exists.
    Raises SettingsError that names the key, the nearest known key and the file.
    """
    _refuse_unknown_variables()
    if config_file is not None:
        overrides["config"] = config_file
    unread = "the environment holds a setting that cannot be read"  # a variable that should hold JSON and does not
    with raised_as(SettingsError, unread, "", pydantic_settings.SettingsError):
        settings = Settings(**overrides)
        settings.find_origins(overrides)
    for note in settings.notes:
        logger.warning("%s: %s", settings.config, note)
    return settings.with_project_of(Path.cwd()) if settings.project == AUTO else settings


def environment_variable(name: str) -> str:
    """Return the value of a variable that a person named, without white space around it; "" if it is not set."""
    return os.environ.get(name, "").strip()


def _refuse_unknown_variables() -> None:
    """Raise SettingsError if a PALIMPSEST_ variable matches no setting.

    This is done by hand because pydantic-settings looks only for the variables it knows and ignores a misspelt one.
    """
    known = {ENV_PREFIX + name.upper().replace(".", "__") for name in _known_names(Settings)}
    for variable in os.environ:
        if variable.upper().startswith(ENV_PREFIX) and variable.upper() not in known:
            raise SettingsError(f"unknown environment variable {variable}{_nearest(variable, known)}")


def _known_names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted name of every setting and section."""
    for name, field in model.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _known_names(field.annotation, f"{prefix}{name}.")


def _describe(error: pydantic.ValidationError, path: str | Path | None) -> str:
    """Return one line that names every wrong key, with the nearest known key where one is unknown."""
    known = set(_known_names(Settings)) - {"config"}
    lines: list[str] = []
    for fault in error.errors(include_url=False, include_input=False):
        name = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            lines.append(f"unknown setting '{name}'{_nearest(name, known)}")
        else:
            lines.append(f"{name}: {fault_text(fault)}".removeprefix(": "))
    place = f" (in {path} or the environment)" if path else ""
    return f"{'; '.join(lines)}{place}"


def _nearest(name: str, known: set[str]) -> str:
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""
