"""The tools' shared arguments, and their JSON schemas, which stay small."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, cast

from pydantic import Field, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails

from palimpsest.core.validation import ScopeInput, SearchScopeInput, fault_text
from palimpsest.text.display import visible

# Arguments that several tools share, and the errors for arguments that do not fit.

SHOWN_ERRORS = 5

CLIENT_KEYS = frozenset({"toolcallid", "tool", "sessionid", "action", "chatinput", "taskprogress", "meta"})
"""Keys that clients add to the arguments of every call, which their models cannot leave out: n8n and Cline do.

They are written without their underscores and in lower case. An unknown key that is none of them is an error, because a
model may have meant something by it.
"""

MemoryId = Annotated[str, Field(description="id, or its first 8 characters or more")]
ScopeArgument = Annotated[
    ScopeInput | None,
    WithJsonSchema({"type": "object", "description": "omit unless told; user_id project agent_id run_id; null: none"}),
]
SearchScopeArgument = Annotated[
    SearchScopeInput | None,
    WithJsonSchema({"type": "object", "description": "omit unless told; project or all_projects: true"}),
]
MessagesArgument = Annotated[
    list[Any] | None,
    WithJsonSchema(
        {
            "type": "array",
            "description": "a conversation, oldest first, in OpenAI's or Anthropic's form, too",
            "items": {
                "type": "object",
                "description": "a message",
                "properties": {
                    "role": {"type": "string", "description": "user, assistant; system is context only"},
                    "content": {"type": "string", "description": "the text"},
                    "name": {"type": "string", "description": "who speaks"},
                    "id": {"type": "string", "description": "your own id; returned in sources"},
                    "at": {"type": "string", "description": "ISO 8601; default now"},
                },
                "required": ["role"],
            },
        }
    ),
]
FiltersArgument = Annotated[
    dict[str, Any] | None,
    Field(
        description='such as {"at": {"gte": "2026-01-01"}}. Keys: at, created_at, role, kind, tags, entity, speaker, '
        "session, words, any of metadata. Operators: gt, gte, lt, lte, ne, in, nin. AND, OR, NOT nest"
    ),
]


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


# Make the JSON schemas of tools small. Every client puts them into its model's context.

_DEFINITIONS = "#/$defs/"


def compact_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON schema without titles, without "or null", and without defaults that say nothing.

    Definitions are put where they are used, without their own description: the field has one.
    """
    return _compact(schema, schema.get("$defs", {}))


def _compact(schema: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_compact(item, definitions) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    keywords = cast("dict[str, Any]", schema)
    options: list[Any] = [option for option in keywords.get("anyOf", []) if option != {"type": "null"}]
    if len(options) == 1:
        keywords = {**{key: value for key, value in keywords.items() if key != "anyOf"}, **options[0]}
    if "$ref" in keywords:
        definition = definitions[keywords["$ref"].removeprefix(_DEFINITIONS)]
        keywords = {**{key: value for key, value in definition.items() if key != "description"}, **keywords}
    return {
        key: _compact_value(key, value, definitions) for key, value in keywords.items() if not _is_noise(key, value)
    }


def _compact_value(keyword: str, value: Any, definitions: Mapping[str, Any]) -> Any:
    if keyword == "properties":  # its keys are names, not keywords
        return {name: _compact(schema, definitions) for name, schema in value.items()}
    return _compact(value, definitions)


def _is_noise(keyword: str, value: Any) -> bool:
    return (
        keyword in ("$defs", "$ref")
        or (keyword == "title" and isinstance(value, str))
        or (keyword == "default" and value in (None, ""))
        or (keyword == "additionalProperties" and value is True)
    )
