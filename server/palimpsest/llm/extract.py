"""The extract stage: facts and requests to forget from new messages (section 2.1 of the Mem0 paper).

The summary and the recent messages are context. Facts come from the new messages only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from functools import partial

from palimpsest.core.clock import Precision, parse_date
from palimpsest.core.models import Fact, ForgetRequest, Message
from palimpsest.core.protocols import LanguageModel
from palimpsest.core.validation import one_line
from palimpsest.llm.extraction.graph_statements import GraphReader, with_ends
from palimpsest.llm.extraction.reply import ExtractReply, FactReply
from palimpsest.llm.names import told_name, with_name
from palimpsest.llm.nothing import says_nothing
from palimpsest.llm.prompts import Prompt
from palimpsest.llm.structured_output import ask, schema_for
from palimpsest.text.dates.finder import dates_in
from palimpsest.text.shorten import shorten
from palimpsest.text.tokenizer import search_tokens

INPUTS = frozenset({"today", "summary", "recent", "context", "messages"})

RECENT_MESSAGES = 10
"""How many earlier messages the model sees as context; m in the paper."""

MAX_RECENT_CHARS = 1_000
"""How much of an earlier message the model sees. Set by hand: ten of them are about as long as a piece."""

MAX_FACTS = 100
"""More facts than this are no extraction. Set by hand: a piece of a conversation has some twenty."""

MAX_FACT_CHARS = 4_000
"""A longer fact is a copied text. Set by hand: a fact is a sentence."""

MAX_LABELS = 12
"""How many keywords and tags of a fact are kept. Set by hand: twice as many as the prompt asks for."""

_UNKNOWN_PARTS = re.compile(r"(-00)+$")
"""What stands in a date for a day or a month that is not known."""

_BULLET = re.compile(r"(?:[-*+\u2022\u2023\u2013\u2014\u00b7]|\d{1,3}[.)\u3001])\s*(.+)")
"""A line that is an item of a list."""

_ANY_DAY = datetime(2000, 1, 1, tzinfo=UTC)
"""The day that dates in words count from. What does count from a day, as "last year", is left out."""


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
        messages=[
            {"number": number, **_shown(message)} for number, message in enumerate(conversation.messages, start=1)
        ],
    )

    def convert(reply: ExtractReply) -> Extraction:
        if wrong := _wrong_sources(reply, len(conversation.messages)):
            raise ValueError(f"it cites message {wrong[0]}; the messages are 1 to {len(conversation.messages)}.")
        if faults := _faults(reply):
            raise ValueError(faults[0])
        return _extraction(reply, conversation, prompt.unwanted, now)

    def convert_leniently(reply: ExtractReply) -> Extraction:
        if _wrong_sources(reply, len(conversation.messages)):  # numbers from 0, perhaps, so that none of them is right
            reply = _without_sources(reply)
        return _extraction(reply, conversation, prompt.unwanted, now)

    return await ask(
        model,
        messages,
        ExtractReply,
        convert,
        convert_leniently=convert_leniently,
        convert_cut=lambda reply: replace(convert_leniently(reply), is_cut=True),
        read_text=partial(_without_json, has_own_form=schema_for(messages, ExtractReply) is None),
    )


def _without_json(answer: str, *, has_own_form: bool) -> ExtractReply | None:
    """Return what an answer without JSON says: nothing, or a fact a line if the prompt has a form of its own."""
    if any(map(str.isalnum, answer)) and says_nothing(answer):
        return ExtractReply(user_name=None, forget=[], facts=[])
    lines = [line for line in map(str.strip, answer.splitlines()) if line]
    if lines and lines[0].endswith((":", "\uff1a")):  # a heading
        lines = lines[1:]
    items = [found[1] for line in lines if (found := _BULLET.match(line))]
    return ExtractReply.model_validate(items) if has_own_form and items and len(items) == len(lines) else None


def _faults(reply: ExtractReply) -> list[str]:
    """Return what is wrong with a reply's facts and requests. Those that are sound are kept if there is no better."""
    faults = [fault for item in reply.facts if (fault := _fault(item))]
    faults += ["a request to forget has no text." for item in reply.forget if not one_line(item.forget)]
    if len(reply.facts) > MAX_FACTS:
        faults.append(f"it holds {len(reply.facts)} facts; give at most {MAX_FACTS}, those that matter most.")
    return faults


def _fault(item: FactReply) -> str:
    text = one_line(item.text)
    if not text:
        return "a fact has no text."
    if len(text) > MAX_FACT_CHARS:
        return f"one of its facts is longer than {MAX_FACT_CHARS} characters; a fact is a sentence."
    return ""


def _wrong_sources(reply: ExtractReply, count: int) -> list[int]:
    """Return the numbers that are none of the messages."""
    return [number for item in (*reply.facts, *reply.forget) for number in item.sources if not 1 <= number <= count]


def _without_sources(reply: ExtractReply) -> ExtractReply:
    return reply.model_copy(
        update={
            "facts": [item.model_copy(update={"sources": []}) for item in reply.facts],
            "forget": [item.model_copy(update={"sources": []}) for item in reply.forget],
        }
    )


def _extraction(
    reply: ExtractReply, conversation: Conversation, unwanted: AbstractSet[str], now: datetime
) -> Extraction:
    messages = conversation.messages
    if unwanted:
        wanted = [item.model_copy(update=dict.fromkeys(unwanted, ())) for item in reply.facts]
        reply = reply.model_copy(update={"facts": wanted})
    name = told_name(reply.user_name or "", messages)
    graph = GraphReader()
    facts = _facts(reply.facts, messages, name or conversation.user_name, graph, now.tzinfo or UTC)
    requests, refused = _requests(reply, messages)
    faults = _faults(reply)
    if faults and not (facts or requests or refused):
        raise ValueError(faults[0])
    unsound = (f"left out of the model's reply, because {fault}" for fault in dict.fromkeys(faults))
    return Extraction(facts, requests, refused, name, left_out=(*graph.left_out, *unsound))


def _facts(
    replies: Sequence[FactReply], messages: Sequence[Message], user_name: str, graph: GraphReader, zone: tzinfo
) -> tuple[Fact, ...]:
    facts: dict[str, Fact] = {}
    likely = _LikelySource(messages)
    for item in replies[:MAX_FACTS]:
        text = one_line(item.text)
        if _fault(item) or says_nothing(text):
            continue
        cited = [messages[number - 1] for number in item.sources] or likely.of(text)
        name = next((message.name for message in cited if message.role == "user"), "") or user_name
        text = with_name(text, name)
        known = facts.get(text, Fact(text))
        relations = graph.relations(item, name, known.relations)
        happened_at, precision = _date(item.happened_at, zone)
        valid_from, valid_from_precision = _date(item.valid_from, zone)
        facts[text] = Fact(
            text=text,
            sources=tuple(dict.fromkeys((*known.sources, *(message.id for message in cited)))),
            happened_at=happened_at,
            happened_precision=precision,
            valid_from=valid_from,
            valid_from_precision=valid_from_precision,
            said_at=max((message.said_at for message in cited or messages), default=None),
            keywords=tuple(item.keywords[:MAX_LABELS]),
            tags=tuple(item.tags[:MAX_LABELS]),
            actor_id=cited[0].name if cited else "",
            role=cited[0].role if cited else "",
            entities=with_ends(graph.entities(item, name, known.entities), relations),
            relations=relations,
        )
    return tuple(facts.values())


def _requests(reply: ExtractReply, messages: Sequence[Message]) -> tuple[tuple[ForgetRequest, ...], tuple[str, ...]]:
    """Return what the user asks to forget, and what others ask to forget, which is not done."""
    requests: list[ForgetRequest] = []
    refused: list[str] = []
    likely = _LikelySource(messages)
    for item in reply.forget:
        what = one_line(item.forget)[:MAX_FACT_CHARS]
        cited = [messages[number - 1] for number in item.sources] or likely.of(what)
        sources = tuple(dict.fromkeys(message.id for message in cited if message.role == "user"))
        if what and sources:
            requests.append(ForgetRequest(what, sources))
        elif what:
            refused.append(what)
    return tuple(requests), tuple(refused)


class _LikelySource:
    """Finds the source of a fact if the model named none: the message that shares most words with it."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._words: list[set[str]] = []

    def of(self, text: str) -> list[Message]:
        """Return a list of that message, empty if no word is shared. A single message is always the source."""
        if len(self._messages) == 1:
            return list(self._messages)
        self._words = self._words or [set(search_tokens(message.content)) for message in self._messages]
        fact_words = set(search_tokens(text))
        shared = [len(fact_words & words) for words in self._words]
        best = max(shared, default=0)
        return [self._messages[shared.index(best)]] if best else []


def _shown(message: Message, max_chars: int | None = None) -> dict[str, str]:
    return {
        "role": message.role,
        **({"name": message.name} if message.name else {}),
        "said_at": f"{message.said_at:%Y-%m-%d %H:%M, %A}",
        "text": message.content if max_chars is None else shorten(message.content, max_chars),
    }


def _date(value: str | None, zone: tzinfo) -> tuple[datetime | None, Precision]:
    """Return the start of the day, month or year that the model names and which it is, or an exact time; else None.

    An exact time without a zone is one in `zone`, in which the model was shown the times of messages.
    """
    if not value:
        return None, ""
    named = parse_date(_UNKNOWN_PARTS.sub("", value.strip()))
    if named is not None:
        return named
    try:
        instant = datetime.fromisoformat(value.strip())
        return (instant.replace(tzinfo=zone) if instant.tzinfo is None else instant).astimezone(UTC), ""
    except (ValueError, OverflowError):
        return _date_in_words(value)


def _date_in_words(value: str) -> tuple[datetime | None, Precision]:
    """Return the one day, month or year that words such as "since 2015" or "April 2023" name, with its year."""
    found = dates_in(value, _ANY_DAY)
    if len(found) == 1 and not (found[0].is_relative or found[0].is_year_guessed or found[0].relation == "before"):
        match found[0].unit:
            case "day" | "month" | "year" as unit:
                return found[0].start, unit
            case _:
                pass
    return None, ""
