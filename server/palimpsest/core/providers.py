"""The providers that speak OpenAI's protocol, by their names. Their table is `providers.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class NamedProvider:
    """A provider that speaks OpenAI's protocol: its address, and the variable its key is in. "" if there is none."""

    base_url: str
    api_key_variable: str


PROVIDERS: Mapping[str, NamedProvider] = {
    name: NamedProvider(**parts)
    for name, parts in json.loads((files("palimpsest.core") / "providers.json").read_text("utf-8")).items()
}
