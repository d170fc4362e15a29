"""The extract stage: facts and requests to forget from new messages (section 2.1 of the Mem0 paper).

The summary and the recent messages are context. Facts come from the new messages only.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from palimpsest.core import models
from palimpsest.core.clock import Precision, parse_date, parse_time
from palimpsest.core.errors import InputError
from palimpsest.core.models import SELF_NAMES, Fact, ForgetRequest, Message, NamedEntity, Relation, name_key
from palimpsest.core.protocols import LanguageModel
from palimpsest.core.validation import MAX_HINTS, object_of, one_line
from palimpsest.llm import ask
from palimpsest.llm.prompts import Prompt
from palimpsest.llm.user_name import told_name, with_name
from palimpsest.text.dates.date_finder import dates_in
from palimpsest.text.display import shorten
from palimpsest.text.tokenizer import search_tokens
from palimpsest.text.word_lists import LazyPattern, word_sets

# What a model replies about the names and relations of a fact, and the forms of it that other prompts give.
#
# Nothing here is ever wrong: what cannot be read as an entity or a relation is left out, and the fact stays.

_NAME_KEYS = ("name", "entity", "text")
_TYPE_KEYS = ("type", "entity_type", "label")
_SOURCE_KEYS = ("source", "source_node", "subject")
_RELATION_KEYS = ("relationship", "relation", "name", "predicate")
_DESTINATION_KEYS = ("destination", "destination_node", "target", "object")

# Types as other prompts name them. Every other type that is not ours is "other".
_OTHER_WORDS: Mapping[str, models.EntityType] = {
    **dict.fromkeys(("company", "organisation", "org"), "organization"),
    **dict.fromkeys(("city", "country", "location"), "place"),
    **dict.fromkeys(("human", "people", "user"), "person"),
}

# What stands between the parts of a relation that is written as one text.
_ARROW = LazyPattern(r"\s*(?:-{2,}>?|->|→|\|)\s*")

_PARTS = 3


def entities_in(value: Any) -> list[dict[str, str]]:
    """Return the entities of a reply as `{"name", "type"}`.

    They may be objects, also with the keys of Mem0's prompts, `[name, type]`, bare names, or one object by name.
    """
    if isinstance(value, Mapping):
        item = object_of(value)
        value = [item] if ask.first_text(item, _NAME_KEYS) else list(item.items())
    return [entity for item in ask.list_in(value) if (entity := _entity(item))["name"]]


def _entity(value: Any) -> dict[str, str]:
    if isinstance(value, Mapping):
        name, kind = (ask.first_text(object_of(value), keys) for keys in (_NAME_KEYS, _TYPE_KEYS))
    else:
        name, kind = map(ask.text_in, (*ask.list_in(value), "", "")[:2])
    word = one_line(kind).casefold()
    return {"name": one_line(name), "type": word if word in models.ENTITY_TYPES else _OTHER_WORDS.get(word, "other")}


def relations_in(value: Any) -> list[list[str]]:
    """Return the relations of a reply as `[source, name, destination]`, perhaps with since and until after it.

    They may be lists of three, objects with the keys of Mem0's prompts, or texts such as "Ana -- lives in -- Lyon". A
    relation that lacks one of the three is left out.
    """
    listed = ask.list_in(value)
    is_one = isinstance(value, list) and not any(map(_relation, listed)) and _relation(listed)
    return [relation for item in ([listed] if is_one else listed) if (relation := _relation(item))]


def _relation(value: Any) -> list[str]:
    """Return the three parts of a relation, and its own times after them. Return none if one is missing."""
    if isinstance(value, Mapping):
        item = object_of(value)
        parts = [ask.first_text(item, keys) for keys in (_SOURCE_KEYS, _RELATION_KEYS, _DESTINATION_KEYS)]
    else:
        parts = ask.list_in(_ARROW.split(value) if isinstance(value, str) else value)
    parts = [one_line(ask.text_in(part)) for part in parts]
    times = parts[_PARTS:]
    is_dated = len(times) <= len(("since", "until")) and all(parse_date(time) for time in times if time)
    return parts if len(parts) >= _PARTS and all(parts[:_PARTS]) and is_dated else []


# What a model replies to the extract stage, and the forms of it that smaller models and Mem0's prompts give.

_TEXT_KEYS = ("text", "fact", "memory", "content", "data")
_ITEM_KEYS = ("text", "fact", "memory")
_LIST_KEYS = ("facts", "fact", "memories", "memory")


_Text = Annotated[str | None, BeforeValidator(ask.text_in)]


class FactReply(ask.ReplyItem):
    """One fact of the model's reply. A bare string is accepted too, and what cannot be read has the text ""."""

    text: str
    sources: ask.Numbers
    happened_at: _Text
    valid_from: _Text
    valid_until: _Text
    because: _Text
    asks: ask.Asks
    keywords: ask.Labels
    tags: ask.Labels
    entities: Annotated[list[NamedEntity], BeforeValidator(entities_in)]
    relations: Annotated[list[list[str]], BeforeValidator(relations_in)]

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        item = object_of(value) or {"text": value}
        return cls.filled(item, text=_fact_text(item))


class ForgetReply(ask.ReplyItem):
    """One request to forget. A bare string is accepted too, and the keys that hold the text of a fact.

    What cannot be read is "".
    """

    forget: str
    sources: ask.Numbers

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        asked = _asked(value)
        return cls.filled(object_of(value), forget=asked if isinstance(asked, str) else "")


class ExtractReply(ask.ReplyModel):
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
            items = ask.list_in(value)
            if not all(isinstance(item, str) or _fact_text(object_of(item)) or _is_request(item) for item in items):
                raise ValueError("it is a list of something else than facts")
            value = {"facts": items}
        if not isinstance(value, Mapping):
            return value
        reply = object_of(value)
        key = next((key for key in _LIST_KEYS if key in reply), None)
        if key is None and "forget" not in reply:
            raise ValueError('it has no list "facts"')
        items = ask.list_in(reply.get(key or ""))
        requests = [*ask.list_in(reply.get("forget")), *filter(_is_request, items)]
        return {
            "user_name": ask.text_in(reply.get("user_name")),
            "facts": [item for item in items if item != {} and not _is_request(item)],
            "forget": [item for item in requests if _asked(item) != ""],
        }


def _is_request(item: Any) -> bool:
    """Return whether an item of the facts is a request to forget: it says so, or has that key and no text of a fact."""
    keys = object_of(item)
    return keys.get("forget") is True or ("forget" in keys and not any(keys.get(key) for key in _TEXT_KEYS))


def _asked(value: Any) -> Any:
    """Return what is to be forgotten; "" if nothing is, and the value itself if it cannot be read."""
    if isinstance(value, Mapping):
        item = object_of(value)
        value = next((item[key] for key in ("forget", *_TEXT_KEYS) if item.get(key) and item[key] is not True), "")
    is_nothing = not value or value is True or (isinstance(value, str) and ask.says_nothing(value))
    return "" if is_nothing else value


def _fact_text(item: Mapping[str, Any]) -> str:
    return next((item[key] for key in _TEXT_KEYS if isinstance(item.get(key), str)), "")


# What a fact names and states, read from a model's reply.

# How many entities of a fact are kept: a sentence that names more is a list, and found by its words.
MAX_ENTITIES = 20

# How many relations of a fact are kept: a sentence states one to three.
MAX_RELATIONS = 12

# What small models give as an entity, though only the sentence before says who is meant.
_PRONOUNS = word_sets("palimpsest.llm", "says_nothing.txt")["pronouns"]


def _relations(fact: FactReply, user_name: str, known: Iterable[Relation]) -> tuple[Relation, ...]:
    """Return the known relations of a fact and those of its reply, each once. The user has one name in them.

    What has no name or a long one is left out, and so is a relation of something with itself: it says nothing.
    """
    relations = {_key(relation): relation for relation in known}
    for source, name, destination, *times in fact.relations:
        own = [time or None for time in times]
        relation = Relation(_one_name(source, user_name), name, _one_name(destination, user_name), *own)
        key = _key(relation)
        if all(key) and key[0] != key[2] and _fit(relation.source, relation.name, relation.destination):
            relations.setdefault(key, relation)
    return tuple(relations.values())[:MAX_RELATIONS]


def _entities(fact: FactReply, user_name: str, known: Iterable[NamedEntity]) -> tuple[NamedEntity, ...]:
    """Return the known entities of a fact and those of its reply, each once. The user is a person of one name."""
    entities = {name_key(entity.name): entity for entity in known}
    for entity in fact.entities:
        is_user = name_key(entity.name) in SELF_NAMES
        named = NamedEntity(_one_name(entity.name, user_name), "person" if is_user else entity.type)
        if (key := _name(named.name)) and _fit(named.name):
            same = entities.get(key)
            entities[key] = named if same is None or same.type == "other" else same
    return tuple(entities.values())[:MAX_ENTITIES]


def _fit(*names: str) -> bool:
    return all(len(name) <= models.MAX_NAME_CHARS for name in names)


def with_ends(entities: Iterable[NamedEntity], relations: Iterable[Relation]) -> tuple[NamedEntity, ...]:
    """Return entities, and after them the ends of relations that are not among them."""
    named = {name_key(entity.name): entity for entity in entities}
    for relation in relations:
        for end in (relation.source, relation.destination):
            named.setdefault(name_key(end), NamedEntity(end, "person" if name_key(end) in SELF_NAMES else "other"))
    return tuple(named.values())


def _one_name(name: str, user_name: str) -> str:
    """Return the user's name for what means the user, as in the text of the fact."""
    if not user_name:
        return name
    return user_name if name_key(name) in SELF_NAMES else with_name(name, user_name)


def _key(relation: Relation) -> tuple[str, str, str]:
    return _name(relation.source), models.relation_key(relation.name), _name(relation.destination)


def _name(name: str) -> str:
    """Return the key of a name; "" if it names nothing."""
    key = name_key(name)
    return "" if key in ask.NOTHING or key in _PRONOUNS or not any(map(str.isalnum, key)) else key


INPUTS = frozenset({"today", "summary", "recent", "context", "messages"})

# How much of an earlier message the model sees: ten of them are about as long as a piece.
MAX_RECENT_CHARS = 1_000

# More facts than this are no extraction: a piece of a conversation has some twenty.
MAX_FACTS = 100

# A longer fact is a copied text: a fact is a sentence.
MAX_FACT_CHARS = 4_000

# How many keywords and tags of a fact are kept: twice as many as the prompt asks for.
MAX_LABELS = 12

# What stands in a date for a day or a month that is not known.
_UNKNOWN_PARTS = LazyPattern(r"(-00)+$")

# A line that is an item of a list.
_BULLET = LazyPattern(r"(?:[-*+\u2022\u2023\u2013\u2014\u00b7\u30fb]|\d{1,3}[.)\u3001])\s*(.+)")

# An answer that begins or ends with `<none>`: some models add why, or repeat the question.
_NO_FACTS = LazyPattern(r"^\W*<\s*(?:none|\u65e0)\s*/?>|<\s*(?:none|\u65e0)\s*/?>\W*$", re.IGNORECASE)

# The day that dates in words count from. What does count from a day, as "last year", is left out.
_ANY_DAY = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Conversation:
    """What the stage reads. `messages` are new; everything else is context. `user_name` is "" if it is not known."""

    messages: Sequence[Message]
    recent: Sequence[Message] = ()
    context: Sequence[str] = ()
    summary: str = ""
    user_name: str = ""


@dataclass(frozen=True, slots=True)
class Extraction:
    """What new messages say: facts, and what a person asks to forget.

    `refused` are requests to forget that no message of the user makes. `user_name` is the user's name if the messages
    tell it. `is_cut` is whether the reply ended too early, so that facts may be missing. `left_out` says what of the
    reply could not be used, and what was too much or too long.
    """

    facts: tuple[Fact, ...] = ()
    requests: tuple[ForgetRequest, ...] = ()
    refused: tuple[str, ...] = ()
    user_name: str = ""
    is_cut: bool = False
    left_out: tuple[str, ...] = ()


async def extract(model: LanguageModel, prompt: Prompt, conversation: Conversation, now: datetime) -> Extraction:
    """Return what the new messages say. Raises ModelError."""
    known_name = [f"The user's name is {conversation.user_name}."] if conversation.user_name else []
    messages = prompt.render(
        today=f"{now:%Y-%m-%d, %A}",
        summary=conversation.summary,
        recent=[_shown(message, MAX_RECENT_CHARS) for message in conversation.recent],
        context=[*known_name, *conversation.context],
        messages=[{"number": number, **_shown(message)} for number, message in enumerate(conversation.messages, 1)],
    )

    def convert(reply: ExtractReply) -> tuple[Extraction, str]:
        faults, count = _faults(reply), len(conversation.messages)
        items = (*reply.facts, *reply.forget)
        if wrong := [number for item in items for number in item.sources if not 1 <= number <= count]:
            faults.insert(0, f"it cites message {wrong[0]}; the messages are 1 to {count}.")
            for item in items:  # they may count from 0, so that no number is right
                item.sources = []
        reply.facts = [item for item in reply.facts if not _is_copied(item.text, messages, conversation.messages)]
        return _extraction(reply, conversation, prompt, now), next(iter(faults), "")

    has_own_form = prompt.is_custom or ask.schema_for(messages, ExtractReply) is None
    return await ask.ask(
        model,
        messages,
        ExtractReply,
        convert,
        when_cut=partial(replace, is_cut=True),
        read_text=partial(_without_json, has_own_form=has_own_form),
    )


def _without_json(answer: str, *, has_own_form: bool) -> ExtractReply | None:
    """Return what an answer without JSON says: nothing, or a fact a line if the prompt may have a form of its own.

    Beside bullets, other lines are what a model says of its answer.
    """
    is_empty = has_own_form and (not answer.strip() or _NO_FACTS.search(answer) is not None)
    if is_empty or (any(map(str.isalnum, answer)) and ask.says_nothing(answer)):
        return ExtractReply(user_name=None, forget=[], facts=[])
    lines = [line for line in map(str.strip, answer.splitlines()) if line]
    if lines and lines[0].endswith((":", "\uff1a")):  # a heading
        lines = lines[1:]
    bullets = [found[1] for line in lines if (found := _BULLET.match(line))]
    items = bullets or [line for line in lines if any(map(str.isalnum, line))]
    return ExtractReply.model_validate(items) if has_own_form and items else None


def _is_copied(text: str, prompt: Sequence[Mapping[str, str]], messages: Sequence[Message]) -> bool:
    """Return whether a small model copied a fact from an example of the instructions: the messages have other words."""
    quoted = f'"{one_line(text)}"'
    if not any(message["role"] == "system" and quoted in one_line(message["content"]) for message in prompt):
        return False
    words, said = set(search_tokens(text)), search_tokens("\n".join(message.content for message in messages))
    return 2 * len(words.intersection(said)) < len(words)


def _faults(reply: ExtractReply) -> list[str]:
    """Return what is wrong with a reply's facts and requests. Those that are sound are kept if there is no better."""
    faults = [fault for item in reply.facts if (fault := _fault(item))]
    faults += ["a request to forget has no text." for item in reply.forget if not one_line(item.forget)]
    if len(reply.facts) > MAX_FACTS:
        faults.append(f"it holds {len(reply.facts)} facts; give at most {MAX_FACTS}, those that matter most.")
    return faults


def _fault(item: FactReply) -> str:
    if not (text := one_line(item.text)):
        return "a fact has no text."
    if len(text) > MAX_FACT_CHARS:
        return f"one of its facts is longer than {MAX_FACT_CHARS} characters; a fact is a sentence."
    return ""


def _extraction(reply: ExtractReply, conversation: Conversation, prompt: Prompt, now: datetime) -> Extraction:
    messages = conversation.messages
    if prompt.unwanted:
        wanted = [item.model_copy(update=dict.fromkeys(prompt.unwanted, ())) for item in reply.facts]
        reply = reply.model_copy(update={"facts": wanted})
    name = told_name(reply.user_name or "", messages)
    facts = _facts(reply.facts, messages, name or conversation.user_name, now.tzinfo or UTC)
    requests, refused = _requests(reply, messages)
    faults = _faults(reply)
    if faults and not (facts or requests or refused):
        raise ValueError(faults[0])
    unsound = tuple(f"left out of the model's reply, because {fault}" for fault in dict.fromkeys(faults))
    return Extraction(facts, requests, refused, name, left_out=unsound)


def _facts(replies: Sequence[FactReply], messages: Sequence[Message], user_name: str, zone: tzinfo) -> tuple[Fact, ...]:
    facts: dict[str, Fact] = {}
    for item in replies[:MAX_FACTS]:
        text = one_line(item.text)
        if _fault(item) or ask.says_nothing(text):
            continue
        cited = _cited(item.sources, text, messages)
        name = next((message.name for message in cited if message.role == "user"), "") or user_name
        text = with_name(text, name)
        known = facts.get(text, Fact(text))
        relations = _relations(item, name, known.relations)
        times: dict[str, Any] = {}
        for time in ("happened_at", "valid_from", "valid_until"):
            times |= zip((time, f"{time.removesuffix('_at')}_precision"), _date(getattr(item, time), zone), strict=True)
        if times["valid_from"] and times["valid_until"] and times["valid_until"] < times["valid_from"]:
            times |= {"valid_until": None, "valid_until_precision": ""}  # the model erred
        facts[text] = Fact(
            text=text,
            sources=tuple(dict.fromkeys((*known.sources, *(message.id for message in cited)))),
            **times,
            said_at=max((message.said_at for message in cited or messages), default=None),
            keywords=(*item.asks[: MAX_HINTS["asks"]], *item.keywords[:MAX_LABELS]),
            tags=tuple(item.tags[:MAX_LABELS]),
            actor_id=cited[0].name if cited else "",
            role=cited[0].role if cited else "",
            metadata=known.metadata or _cause(item.because or "", replies, text),
            entities=with_ends(_entities(item, name, known.entities), relations),
            relations=relations,
        )
    return tuple(facts.values())


def _cause(said: str, replies: Sequence[FactReply], text: str) -> dict[str, str]:
    """Return as metadata what a fact came of: what is said, or the text of the fact with that number."""
    if (number := said.strip()).isdecimal():
        said = next((item.text for place, item in enumerate(replies, 1) if str(place) == number), "")
    cause = one_line(said)[:MAX_FACT_CHARS]
    return {} if ask.says_nothing(cause) or cause == text else {models.BECAUSE: cause}


def _requests(reply: ExtractReply, messages: Sequence[Message]) -> tuple[tuple[ForgetRequest, ...], tuple[str, ...]]:
    """Return what the user asks to forget, and what others ask to forget, which is not done."""
    requests: list[ForgetRequest] = []
    refused: list[str] = []
    for item in reply.forget:
        what = one_line(item.forget)[:MAX_FACT_CHARS]
        cited = _cited(item.sources, what, messages)
        sources = tuple(dict.fromkeys(message.id for message in cited if message.role == "user"))
        if what and sources:
            requests.append(ForgetRequest(what, sources))
        elif what:
            refused.append(what)
    return tuple(dict.fromkeys(requests)), tuple(dict.fromkeys(refused))  # small models repeat themselves


def _cited(sources: Sequence[int], text: str, messages: Sequence[Message]) -> list[Message]:
    """Return the messages that a reply names, or else the one that shares most words with a text, if any does.

    A single message is always the source.
    """
    if sources or len(messages) == 1:
        return [messages[number - 1] for number in sources or (1,)]
    words = set(search_tokens(text))
    shared = [len(words.intersection(search_tokens(message.content))) for message in messages]
    best = max(shared, default=0)
    return [messages[shared.index(best)]] if best else []


def _shown(message: Message, max_chars: int | None = None) -> dict[str, Any]:
    text = message.content if max_chars is None else shorten(message.content, max_chars)
    said_at = f"{message.said_at:%Y-%m-%d %H:%M, %A}"
    return ask.without_empty(role=message.role, name=message.name, said_at=said_at, text=text)


def _date(value: str | None, zone: tzinfo) -> tuple[datetime | None, Precision]:
    """Return the start of the day, month or year that the model names and which it is, or an exact time; else None.

    An exact time without a zone is one in `zone`, in which the model was shown the times of messages.
    """
    text = _UNKNOWN_PARTS.sub("", (value or "").strip())
    try:
        at, precision = parse_time(text, "the date", zone)
        return at.astimezone(UTC), precision
    except InputError:
        return _date_in_words(text)


def _date_in_words(value: str) -> tuple[datetime | None, Precision]:
    """Return the one day, month or year that words such as "since 2015" or "April 2023" name, with its year."""
    found = dates_in(value, _ANY_DAY)
    if len(found) == 1 and not (found[0].is_relative or found[0].is_year_guessed or found[0].relation == "before"):
        unit = found[0].unit
        if unit in ("day", "month", "year"):
            return found[0].start, unit
    return None, ""
