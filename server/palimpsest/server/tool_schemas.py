"""What clients are shown of tools, resources and prompts, and what they are told of arguments that do not fit."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from palimpsest.core.validation import ScopeInput, fault_text
from palimpsest.text.display import visible

SHOWN_ERRORS = 5

CLIENT_KEYS = frozenset({"toolcallid", "tool", "sessionid", "action", "chatinput", "taskprogress", "meta"})
"""Keys that clients add to the arguments of every call, which their models cannot leave out: n8n and Cline do.

They are written without their underscores and in lower case. An unknown key that is none of them is an error, because a
model may have meant something by it.
"""


@cache
def catalog() -> Mapping[str, Any]:
    """Return what `catalog.toml` says of tools, resources and prompts."""
    return tomllib.loads(files("palimpsest.server").joinpath("catalog.toml").read_text("utf-8"))


def input_schema(tool: str) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments. It is small, because every client shows it to its model."""
    form, shared = catalog()["tools"][tool], catalog()["shared"]
    properties = {name: shared[part] if isinstance(part, str) else part for name, part in form["properties"].items()}
    required = {"required": form["required"]} if "required" in form else {}
    return {"type": "object", "properties": properties, **required}


def invalid_arguments(error: ValidationError) -> str:
    """Return what is wrong with a tool's arguments, in the words of this server."""
    details = error.errors(include_url=False, include_input=False)[:SHOWN_ERRORS]
    faults = (f"{'.'.join(str(part) for part in detail['loc'])}: {_describe(detail)}" for detail in details)
    return visible("; ".join(faults))


def _describe(detail: ErrorDetails) -> str:
    """Return what is wrong with one value. Pydantic's own text is used if it says enough."""
    match detail["type"]:
        case "extra_forbidden":
            return f"there is no such key; the keys are {', '.join(ScopeInput.model_fields)}"
        case "missing":
            return "is missing"
        case "model_type" | "dict_type" | "model_attributes_type":
            return 'must be an object, such as {"key": "value"}'
        case "list_type":
            example = '{"role": "user", "content": "…"}' if detail["loc"][0] == "messages" else '"…"'
            return f"must be a list, such as [{example}]"
        case "bool_parsing" | "bool_type":
            return "must be true or false"
        case _:
            return fault_text(detail)


def is_of_client(argument: str) -> bool:
    """Return whether a client adds an argument to calls, so that it is to be ignored."""
    return argument.replace("_", "").lower() in CLIENT_KEYS


def unknown_arguments(tool: str, unknown: Sequence[str], known: Sequence[str], used: Collection[str]) -> str:
    """Return the error for the arguments that a tool does not have, with a guess at each and what the tool takes."""
    unused = [name for name in known if name not in used]
    of_scope = [name for name in unknown if name in ScopeInput.model_fields and "scope" in known]
    others = [name for name in unknown if name not in of_scope]
    named = [f"'{name}'{did_you_mean(name, unused)}" for name in others] + [f"'{name}'" for name in of_scope]
    hints = [f"it takes {', '.join(known)}"] if others else []
    if of_scope:
        keys = ", ".join(f'"{name}": …' for name in of_scope)
        hints.append(f"put {'it' if len(of_scope) == 1 else 'them'} into scope: {{{keys}}}")
    return visible(f"{tool} has no argument {' and no '.join(named)}; {'; '.join(hints)}. Nothing was done.")


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return a guess at what a misspelt name should have been, or "".

    The names must be similar. Sharing a word is not enough.
    """
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return f" (did you mean '{close[0]}'?)" if close else ""
