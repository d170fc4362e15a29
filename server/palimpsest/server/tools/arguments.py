"""Arguments that several tools share, and the errors for arguments that do not fit."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from typing import Annotated, Any

from pydantic import Field, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails

from palimpsest.core.validation import ScopeInput, SearchScopeInput, fault_text
from palimpsest.text.control_characters import visible

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
