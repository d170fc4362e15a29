"""The settings: their names, their defaults and where they come from. The only reader of the environment.

Arguments win over the environment (`PALIMPSEST_…`, `__` for nesting), and the environment over the settings file. They
are merged key by key, also inside sections. Keys that Mem0 has are called as in Mem0. OpenAI's own variables complete
an endpoint that these settings name.
"""

from __future__ import annotations

import difflib
import getpass
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
import pydantic_settings
from pydantic import (
    BaseModel,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from palimpsest.core.clock import Zones, system_zone, zone_named
from palimpsest.core.configuration.endpoints import Endpoint, OpenAIVariables, is_on_this_machine
from palimpsest.core.configuration.file import file_source, find_settings_file
from palimpsest.core.configuration.origins import Origin, origins
from palimpsest.core.configuration.sections import (
    BackgroundConfig,
    EmbedderChoice,
    EmbedderConfig,
    GraphStore,
    HttpSettings,
    LearnConfig,
    Llm,
    LlmConfig,
    SummaryConfig,
    VectorStore,
    valid_scope_part,
)
from palimpsest.core.errors import InputError, SettingsError
from palimpsest.core.git_project import Repository, repository_of
from palimpsest.core.validation import fault_text, scope_part

ENV_PREFIX = "PALIMPSEST_"
CONFIG_VARIABLE = "PALIMPSEST_CONFIG"
AUTO = "auto"
"""The value of `project` that means the project of the folder the process was started in."""


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a process without a user name, as in some containers
        return "user"


def _valid_zone(name: str) -> str:
    try:
        zone_named(name)
    except InputError as error:
        raise ValueError(str(error)) from error
    return name


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
    timezone: str = ""
    user_timezones: dict[str, str] = Field(default_factory=dict[str, str])
    data_dir: Path = Field(default_factory=lambda: platformdirs.user_data_path("palimpsest", appauthor=False))
    history_db_path: Path | None = None
    ledger_url: SecretStr | None = Field(default=None, exclude=True)
    user_id: str = Field(default_factory=_system_user)
    project: str = ""
    agent_id: str = ""
    run_id: str = ""
    vector_store: VectorStore = VectorStore()
    llm: Llm = Llm()
    embedder: EmbedderChoice = EmbedderChoice()
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
    keep_secrets: bool = False
    explain: bool = False
    min_relevance: float = Field(default=0.0, ge=0, le=1)
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
    openai_api_key: SecretStr | None = Field(default=None, exclude=True)
    openai_base_url: str | None = Field(default=None, exclude=True)
    _openai_variables: OpenAIVariables = PrivateAttr(default_factory=OpenAIVariables)
    _repository: Repository | None = PrivateAttr(default=None)
    _origins: Mapping[str, Origin] = PrivateAttr(default_factory=dict[str, Origin])

    @field_validator("config", "data_dir", "history_db_path", "prompts_dir")
    @classmethod
    def _expand(cls, value: Path | None) -> Path | None:
        return value.expanduser().absolute() if value is not None else None

    @field_validator("user_id", "project", "agent_id", "run_id")
    @classmethod
    def _is_scope(cls, value: str, info: ValidationInfo) -> str:
        return valid_scope_part(info.field_name or "", value)

    @field_validator("timezone")
    @classmethod
    def _is_zone(cls, value: str) -> str:
        return _valid_zone(value) if value else ""

    @field_validator("user_timezones")
    @classmethod
    def _are_zones(cls, value: dict[str, str]) -> dict[str, str]:
        return {valid_scope_part("user_id", user): _valid_zone(name) for user, name in value.items()}

    @model_validator(mode="after")
    def _embedder_needs_model(self) -> Settings:
        provider = self.embedder.provider
        if provider in ("openai", "onnx") and self.embedder.config.model is None:
            raise ValueError(f"embedder.provider = '{provider}' needs embedder.config.model")
        return self

    @property
    def origins(self) -> Mapping[str, Origin]:
        """Return where settings come from, by their dotted names. What is not among them has its default."""
        return self._origins

    @property
    def openai_variables(self) -> OpenAIVariables:
        """Return the variables that complete an endpoint which these settings name."""
        return self._openai_variables

    @property
    def repository(self) -> Repository | None:
        """Return the repository that the project comes from, with `project = "auto"`, else None.

        The ledger knows which project that is; until it is open, `project` is the name that a new one would get.
        """
        return self._repository

    def with_origins_of(self, arguments: Mapping[str, Any]) -> Settings:
        """Return a copy of the settings that knows where they come from: these arguments, the environment, the file."""
        copy = self.model_copy()
        given = {Origin.COMMAND_LINE: arguments, Origin.ENVIRONMENT: EnvSettingsSource(Settings)()}
        file = file_source(Settings, self.config)() if self.config is not None else {}
        copy._origins = origins({**given, Origin.FILE: file})  # noqa: SLF001 - an instance of this class
        return copy

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
    def llm_provider(self) -> Literal["openai", "sampling", "none"]:
        """Return the provider, with `auto` resolved.

        `auto` asks an endpoint only if these settings name it, or if it is on this machine.
        """
        if self.llm.provider != "auto":
            return self.llm.provider
        config = self.llm.config
        named = (config.api_key, config.openai_base_url, self.openai_api_key, self.openai_base_url)
        here = is_on_this_machine(self._openai_variables.openai_base_url)
        return "openai" if here or any(named) else "sampling"

    @property
    def unused_openai_variables(self) -> tuple[str, ...]:
        """Return the names of OpenAI's variables that are set, and that `auto` alone does not follow."""
        return self._openai_variables.names if self.llm.provider == "auto" and self.llm_provider != "openai" else ()

    @property
    def llm_endpoint(self) -> Endpoint:
        """Return where the language model is asked. What the settings leave open comes from OpenAI's variables."""
        return self._endpoint(self.llm.config)

    @property
    def embedder_endpoint(self) -> Endpoint:
        """Return where the embedder `openai` is asked. What the settings leave open comes from OpenAI's variables."""
        return self._endpoint(self.embedder.config)

    def _endpoint(self, config: LlmConfig | EmbedderConfig) -> Endpoint:
        variables = self._openai_variables
        key = config.api_key or self.openai_api_key or variables.openai_api_key
        url = config.openai_base_url or self.openai_base_url or variables.openai_base_url
        return Endpoint(key.get_secret_value() if key else None, url)

    @model_validator(mode="wrap")
    @classmethod
    def _raise_settings_error(cls, values: dict[str, Any], validate: ModelWrapValidatorHandler[Settings]) -> Settings:
        """Raise SettingsError with every wrong key in place of pydantic's ValidationError."""
        try:
            return validate(values)
        except ValidationError as error:
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
        path = find_settings_file({**env_settings(), **init_settings()})
        file = (file_source(settings_cls, path), InitSettingsSource(settings_cls, {"config": path})) if path else ()
        return (init_settings, env_settings, *file)


def load_settings(config_file: Path | None = None, **overrides: Any) -> Settings:
    """Return the settings from arguments, the environment and the settings file.

    `config_file` defaults to $PALIMPSEST_CONFIG, then to `config.toml` in the data directory if that file exists.
    Raises SettingsError that names the key, the nearest known key and the file.
    """
    _refuse_unknown_variables()
    if config_file is not None:
        overrides["config"] = config_file
    try:
        return _with_project(Settings(**overrides).with_origins_of(overrides))
    except pydantic_settings.SettingsError as error:  # a variable that should hold JSON and does not
        raise SettingsError(f"the environment holds a setting that cannot be read: {error}") from error


def environment_variable(name: str) -> str:
    """Return the value of a variable that a person named, without white space around it; "" if it is not set."""
    return os.environ.get(name, "").strip()


def _with_project(settings: Settings) -> Settings:
    """Return the settings with `project = "auto"` resolved to the project of the working directory."""
    return settings.with_project_of(Path.cwd()) if settings.project == AUTO else settings


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


def _describe(error: ValidationError, path: str | Path | None) -> str:
    """Return one line that names every wrong key, with the nearest known key where one is unknown."""
    known = set(_known_names(Settings)) - {"config"}
    lines: list[str] = []
    for fault in error.errors(include_url=False, include_input=False):
        name = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            lines.append(f"unknown setting '{name}'{_nearest(name, known)}")
        else:
            text = fault_text(fault)
            lines.append(f"{name}: {text}" if name else text)
    place = f" (in {path} or the environment)" if path else ""
    return f"{'; '.join(lines)}{place}"


def _nearest(name: str, known: set[str]) -> str:
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""
