"""Which endpoint a language model is asked at, and which addresses are on this machine."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class OpenAIVariables(BaseSettings):
    """The variables that every program with OpenAI's client reads. They have no prefix.

    They are set for other programs: a key among them does not say that texts of the memory may be sent to its vendor.
    """

    model_config = SettingsConfigDict(env_ignore_empty=True, frozen=True)

    openai_api_key: SecretStr | None = None
    openai_base_url: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the variables that are set."""
        return tuple(name.upper() for name in type(self).model_fields if getattr(self, name))


def unused_variables_text(names: tuple[str, ...]) -> str:
    """Return what a person should know of variables that are set and not followed."""
    verb = "is" if len(names) == 1 else "are"
    return (
        f"{' and '.join(names)} {verb} set in the environment, and by that alone no language model is asked. To use it,"
        " run palimpsest setup, or set PALIMPSEST_LLM__PROVIDER=openai"
    )


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is asked. `base_url` is None for OpenAI's own address."""

    api_key: str | None
    base_url: str | None


def is_on_this_machine(url: str | None) -> bool:
    """Return whether a URL names this machine by its loopback address or as localhost."""
    try:
        return is_loopback(urlsplit(url or "").hostname or "")
    except ValueError:  # not a URL: a bracket that nothing closes
        return False


def is_loopback(host: str) -> bool:
    """Return whether an address can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
