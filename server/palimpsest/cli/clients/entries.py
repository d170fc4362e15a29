"""Our entry in a client's list of servers: what it holds, which one is ours, and the file with or without it.

An entry belongs to us only if it starts our server. What a person added to our entry stays when it is updated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from palimpsest.cli.clients import jsonc, toml_text
from palimpsest.cli.clients.catalog import Client
from palimpsest.cli.clients.programs import invocation_of, server_command
from palimpsest.core.errors import InputError

ENTRY_NAME = "palimpsest"
"""The name of our entry in the client."""

_OFF = (("disabled", True), ("enabled", False))
"""How clients write that an entry is turned off."""

OLD_NAME = "memory"
"""The name it had once. The official memory server has it too, so what is found under it is often not ours."""


def entry_for(client: Client, env: Mapping[str, str], *, shared: bool) -> dict[str, Any]:
    """Return the entry that starts the server, with these environment variables. A `shared` one names no path."""
    command, *arguments = server_command(shared=shared)
    return {
        **({"type": "stdio"} if client.names_transport else {}),
        "command": command,
        **({"args": arguments} if arguments else {}),
        **({"env": dict(env)} if env else {}),
    }


def servers_in(client: Client, file: Path, text: str) -> Mapping[str, Any]:
    """Return the servers that a file lists. Raises ValueError if the file cannot be parsed."""
    if file.suffix == ".toml":
        servers: object = toml_text.parse(text).get(client.section)
    else:
        servers = jsonc.value_at(text, (client.section,))
    return cast("Mapping[str, Any]", servers) if isinstance(servers, Mapping) else {}


def with_entry(client: Client, file: Path, text: str, entry: Mapping[str, Any]) -> str:
    """Return the text of a file with our entry. One of ours under the old name moves to the new one.

    Raises InputError if the name is taken by another server, ValueError if the file cannot be parsed.
    """
    servers = servers_in(client, file, text)
    present = servers.get(ENTRY_NAME)
    if present is not None and invocation_of(present) is None:
        raise InputError(
            f"{file} has an entry '{ENTRY_NAME}' that does not start this program: {_command_of(present)}. Nothing was "
            "changed. Rename that entry or remove it, and try again"
        )
    old = servers.get(OLD_NAME)
    moved = invocation_of(old) is not None
    ours = cast("Mapping[str, Any]", present if present is not None else old)
    if invocation_of(ours) is None:
        ours = dict[str, Any]()
    if not isinstance(ours.get("env") or {}, Mapping):
        raise InputError(
            f"{file}: the env of the entry '{ENTRY_NAME if present is not None else OLD_NAME}' is not a table of "
            "variables. Nothing was changed. Correct it and try again"
        )
    merged = _merged(ours, entry)
    if moved:
        text = _without(client, file, text, OLD_NAME)
    if file.suffix == ".toml":
        return toml_text.with_table(text, (client.section, ENTRY_NAME), merged)
    return jsonc.with_entry(text, (client.section, ENTRY_NAME), merged)


def without_entry(client: Client, file: Path, text: str) -> str:
    """Return the text of a file without the entries that are ours. Raises ValueError if the file cannot be parsed."""
    for name, entry in servers_in(client, file, text).items():
        if name in (ENTRY_NAME, OLD_NAME) and invocation_of(entry) is not None:
            text = _without(client, file, text, name)
    return text


def is_off(entry: Any) -> str:
    """Return what in an entry of ours keeps the client from starting it, such as "disabled = true", or ""."""
    if invocation_of(entry) is None:
        return ""
    return next((f"{key} = {json.dumps(value)}" for key, value in _OFF if entry.get(key) is value), "")


def foreign_entries(client: Client, file: Path, text: str) -> list[str]:
    """Return the names that could be ours and belong to another server. Raises ValueError as `servers_in` does."""
    servers = servers_in(client, file, text)
    return [name for name in (ENTRY_NAME, OLD_NAME) if name in servers and invocation_of(servers[name]) is None]


def _without(client: Client, file: Path, text: str, name: str) -> str:
    if file.suffix == ".toml":
        return toml_text.without_table(text, (client.section, name))
    return jsonc.without_entry(text, (client.section, name))


def _merged(present: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the new entry with what a person added to the present one: variables, arguments, other keys."""
    invocation = invocation_of(present)
    arguments = [*entry.get("args", []), *(invocation.arguments if invocation is not None else ())]
    given: Mapping[str, Any] = present.get("env") or {}
    env = {**given, **entry.get("env", {})}
    changed = {"args": arguments, "env": env}
    kept = {key: value for key, value in present.items() if key not in {"args", "env"}}
    merged = {**kept, **{key: value for key, value in entry.items() if key not in changed}}
    return {**merged, **{key: value for key, value in changed.items() if value}}


def _command_of(entry: object) -> str:
    """Return what an entry starts or connects to, in a few words; never its variables, which may be secret."""
    if not isinstance(entry, Mapping):
        return "it is no object"
    values = cast("Mapping[str, object]", entry)
    return f"{values.get('command') or values.get('url') or 'it has no command'}"
