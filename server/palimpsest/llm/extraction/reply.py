"""What a model replies to the extract stage, and the forms of it that smaller models and Mem0's prompts give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, model_validator

from palimpsest.core.validation import one_line
from palimpsest.llm.extraction.graph_reply import EntityReply, entities_in, relations_in
from palimpsest.llm.nothing import says_nothing
from palimpsest.llm.structured_output import ReplyModel

MAX_LABEL_CHARS = 64
MAX_DIGITS = 9

_TEXT_KEYS = ("text", "fact", "memory", "content", "data")
_ITEM_KEYS = ("text", "fact", "memory")
_LIST_KEYS = ("facts", "fact", "memories", "memory")


class FactReply(BaseModel):
    """One fact of the model's reply. A bare string is accepted too, and what cannot be read has the text ""."""

    model_config = ConfigDict(extra="ignore")

    text: str
    sources: list[int]
    happened_at: str | None
    valid_from: str | None
    keywords: list[str]
    tags: list[str]
    entities: list[EntityReply]
    relations: list[list[str]]

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        item: Mapping[str, Any] = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {"text": value}
        return {
            "text": _fact_text(item),
            "sources": integers(item.get("sources")),
            "happened_at": _scalar(item.get("happened_at")),
            "valid_from": _scalar(item.get("valid_from")),
            "keywords": _strings(item.get("keywords")),
            "tags": _strings(item.get("tags")),
            "entities": entities_in(item.get("entities")),
            "relations": relations_in(item.get("relations")),
        }


class ForgetReply(BaseModel):
    """One request to forget. A bare string is accepted too, and the keys that hold the text of a fact.

    What cannot be read is "".
    """

    model_config = ConfigDict(extra="ignore")

    forget: str
    sources: list[int]

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        sources = cast("Mapping[str, Any]", value).get("sources") if isinstance(value, Mapping) else None
        asked = _asked(value)
        return {"forget": asked if isinstance(asked, str) else "", "sources": integers(sources)}


class ExtractReply(ReplyModel):
    """The model's reply: `{"forget": […], "facts": […]}`, a bare list, or a list under one of Mem0's other keys.

    A request to forget may also stand among the facts, as `{"forget": "what"}`. Requests come first, so that they are
    whole if a long reply is cut off.
    """

    LIST_KEY = "facts"

    user_name: str | None
    forget: list[ForgetReply]
    facts: list[FactReply]

    @classmethod
    def is_item(cls, value: Mapping[str, Any]) -> bool:
        """Return whether a value is a fact without a list around it."""
        has_text = any(isinstance(value.get(key), str) for key in _ITEM_KEYS)
        return has_text and not any(isinstance(value.get(key), list) for key in _LIST_KEYS)

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        if isinstance(value, list):
            items = cast("list[Any]", value)
            if not all(isinstance(item, str) or (isinstance(item, Mapping) and _can_be_item(item)) for item in items):
                raise ValueError("it is a list of something else than facts")
            value = {"facts": items}
        if not isinstance(value, Mapping):
            return value
        reply = cast("Mapping[str, Any]", value)
        key = next((key for key in _LIST_KEYS if key in reply), None)
        if key is None and "forget" not in reply:
            raise ValueError('it has no list "facts"')
        items = _as_list(reply[key]) if key is not None else []
        requests = [item for item in items if _is_request(item)]
        return {
            "user_name": _scalar(reply.get("user_name")),
            "facts": [item for item in items if not _is_request(item)],
            "forget": [item for item in _as_list(reply.get("forget")) + requests if _asked(item) != ""],
        }


def integers(value: Any) -> list[int]:
    """Return a number, or the numbers in a list. Anything else becomes 0, which is not a valid message number."""
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    texts = [(_scalar(item) or "").strip() for item in items if item is not None]
    return [int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else 0 for text in texts]


def _is_request(item: Any) -> bool:
    """Return whether an item of the facts is a request to forget: it says so, or has that key and no text of a fact."""
    if not isinstance(item, Mapping):
        return False
    keys = cast("Mapping[str, Any]", item)
    return keys.get("forget") is True or ("forget" in keys and not any(keys.get(key) for key in _TEXT_KEYS))


def _asked(value: Any) -> Any:
    """Return what is to be forgotten; "" if nothing is, and the value itself if it cannot be read."""
    if isinstance(value, Mapping):
        item = cast("Mapping[str, Any]", value)
        named = [item[key] for key in ("forget", *_TEXT_KEYS) if item.get(key) and item[key] is not True]
        value = named[0] if named else ""
    if not value or value is True:
        return ""
    return "" if isinstance(value, str) and says_nothing(value) else value


def _fact_text(item: Mapping[str, Any]) -> str:
    return next((item[key] for key in _TEXT_KEYS if isinstance(item.get(key), str)), "")


def _can_be_item(value: Any) -> bool:
    item = cast("Mapping[str, Any]", value)
    return bool(_fact_text(item)) or _is_request(item)


def _as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [] if value is None else [value]


def _strings(value: Any) -> list[str]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    labels = [one_line(item)[:MAX_LABEL_CHARS] for item in items if isinstance(item, str)]
    return [label for label in labels if label and not says_nothing(label)]


def _scalar(value: Any) -> str | None:
    """Return a string or an integer as text, else None. str() of other values may exceed the recursion limit."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
