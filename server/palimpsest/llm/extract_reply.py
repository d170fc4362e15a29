"""What a model replies to the extract stage, and the forms of it that smaller models and Mem0's prompts give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, model_validator

from palimpsest.core.validation import one_line

MAX_LABEL_CHARS = 64
MAX_DIGITS = 9

_TEXT_KEYS = ("text", "fact", "memory", "content", "data")
_LIST_KEYS = ("facts", "fact", "memories", "memory")


class FactReply(BaseModel):
    """One fact of the model's reply. A bare string is accepted too."""

    model_config = ConfigDict(extra="ignore")

    text: str
    sources: list[int]
    happened_at: str | None
    valid_from: str | None
    keywords: list[str]
    tags: list[str]

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"text": value}
        if not isinstance(value, Mapping):
            return value
        item = cast("Mapping[str, Any]", value)
        text = next((item[key] for key in _TEXT_KEYS if isinstance(item.get(key), str)), None)
        if text is None:
            raise ValueError("a fact has no text")
        return {
            "text": text,
            "sources": integers(item.get("sources")),
            "happened_at": _scalar(item.get("happened_at")),
            "valid_from": _scalar(item.get("valid_from")),
            "keywords": _strings(item.get("keywords")),
            "tags": _strings(item.get("tags")),
        }


class ForgetReply(BaseModel):
    """One request to forget. A bare string is accepted too."""

    model_config = ConfigDict(extra="ignore")

    forget: str
    sources: list[int]

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"forget": value}
        if not isinstance(value, Mapping):
            return value
        item = cast("Mapping[str, Any]", value)
        return {"forget": item.get("forget"), "sources": integers(item.get("sources"))}


class ExtractReply(BaseModel):
    """The model's reply: `{"facts": […], "forget": […]}`, a bare list, or a list under one of Mem0's other keys.

    A request to forget may also stand among the facts, as `{"forget": "what"}`.
    """

    model_config = ConfigDict(extra="ignore")

    facts: list[FactReply]
    forget: list[ForgetReply]
    user_name: str | None

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        if isinstance(value, list):
            value = {"facts": cast("list[Any]", value)}
        if not isinstance(value, Mapping):
            return value
        reply = cast("Mapping[str, Any]", value)
        key = next((key for key in _LIST_KEYS if key in reply), None)
        if key is None and "forget" not in reply:
            return reply
        items = _as_list(reply[key]) if key is not None else []
        requests = [item for item in items if _is_request(item)]
        return {
            "user_name": _scalar(reply.get("user_name")),
            "facts": [item for item in items if not _is_request(item)],
            "forget": _as_list(reply.get("forget") or []) + requests,
        }


def integers(value: Any) -> list[int]:
    """Return a number, or the numbers in a list. Anything else becomes 0, which is not a valid message number."""
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    texts = [(_scalar(item) or "").strip() for item in items if item is not None]
    return [int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else 0 for text in texts]


def _is_request(item: Any) -> bool:
    return isinstance(item, Mapping) and "forget" in item and not any(key in item for key in _TEXT_KEYS)


def _as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _strings(value: Any) -> list[str]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    labels = [one_line(item)[:MAX_LABEL_CHARS] for item in items if isinstance(item, str)]
    return [label for label in labels if label]


def _scalar(value: Any) -> str | None:
    """Return a string or an integer as text, else None. str() of other values may exceed the recursion limit."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
