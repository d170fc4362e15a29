"""Validation of what callers send: scopes, messages, texts, metadata, bounds. Every error says what would be valid."""

import difflib
import json
import re
import unicodedata
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Literal, TypeAlias, TypeVar, cast

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import ErrorDetails

from palimpsest.core import models
from palimpsest.core.clock import parse_date, parse_instant, parse_time, parse_until, shown_date, span_of
from palimpsest.core.errors import CutOffReplyError, EmptyReplyError, InputError, Remedy, ReplyError, raised_as
from palimpsest.core.filters import JUNCTIONS, RESERVED
from palimpsest.core.models import EXPIRES_AT, MAX_NAME_CHARS, MAX_SCOPE_CHARS, Message, Relation, Scope

_T = TypeVar("_T")

# Read messages in the forms in which other programs write them.
#
# They are those of OpenAI (chat, responses), Anthropic, Gemini, Bedrock, LangChain, the AI SDK and
# ShareGPT. What was said is text, with a mark where a picture was; calls of tools and their results, reasoning and the
# like are left out and counted.

Role: TypeAlias = Literal["user", "assistant", "system"]

# How much was left out, by a noun for one of it, and what follows that noun.
LeftOut: TypeAlias = Counter[tuple[str, str]]

CALLS = ("tool call", "")
RESULTS = ("tool result", "")
REASONING = ("piece", " of reasoning")
NO_TEXT = ("message", " without text")
OTHER_PARTS = ("part", " without text, such as a file")

ROLES: tuple[Role, ...] = ("user", "assistant", "system")

_ROLES: dict[str, Role] = {
    **dict.fromkeys(("user", "human", "humanmessage", "humanmessagechunk", "prompter"), "user"),
    **dict.fromkeys(("assistant", "ai", "aimessage", "aimessagechunk"), "assistant"),
    **dict.fromkeys(("gpt", "chatgpt", "chatbot", "bot", "model"), "assistant"),
    **dict.fromkeys(("system", "systemmessage", "developer"), "system"),
}
_RESULT = (
    r"(?:tool|function|call|execution).*(?:result|output|response|message)|^(?:tool|function)$|observation|ipython"
)
# How roles and types of parts are recognized that nobody said.
_UNSAID = (
    (RESULTS, re.compile(_RESULT)),
    (CALLS, re.compile(r"tool|function|execut|_call")),
    (REASONING, re.compile(r"think|thought|reason")),
)

_ROLE_KEYS = ("role", "from", "type", "author", "sender")
_TEXT_KEYS = ("content", "parts", "text", "value", "message", "refusal", "audio", "transcript")
_CALL_KEYS = ("tool_calls", "function_call", "toolInvocations")
_REASONING_KEYS = ("reasoning", "reasoning_content", "thinking")
_TIME_KEYS = ("timestamp", "created_at", "createdAt", "create_time", "created", "date", "time")

# The keys under which an object holds a conversation, or several.
_LIST_KEYS = ("messages", "conversations", "conversation", "turns", "history", "chat", "items", "contents")

# How many characters of a role or a key that nobody knows are quoted.
_MAX_QUOTED = 40

# How deep texts are looked for in a message.
_MAX_DEPTH = 5

# LangChain writes a message as a role and a text, too.
_PAIR = 2


class _ConversationReader:
    """Reads the messages of a conversation one by one.

    `kept` are those that somebody said, each with its time if it has one. `left_out` counts what there is besides, and
    `problem` is what is wrong with the first message that is none.
    """

    def __init__(self, scope: Scope, now: datetime) -> None:
        self._scope, self._now = scope, now
        self.kept: list[tuple[Message, datetime | None]] = []
        self.context: list[str] = []
        self.left_out: LeftOut = Counter()
        self.problem = ""

    def read(self, place: str, value: Any) -> None:
        """Read a message. Raises InputError if its name or id is too long."""
        if (message := _unwrapped(value)) is None:
            problem = f'{place}: must be an object, such as {{"role": "user", "content": "…"}}'
            return self._refuse("of an unknown form", problem)
        given = _role_of(message)
        if (role := _ROLES.get(given.casefold())) is None:
            if (unsaid := _unsaid([given])) is not None:
                self.left_out[unsaid] += 1
                return None
            what = f"with the role '{given[:_MAX_QUOTED]}'" if given else "without a role"
            has = f"'{given[:_MAX_QUOTED]}'" if given else "missing" + _guess("role", message)
            return self._refuse(what, f"{place}.role is {has}; use {', '.join(ROLES)}")
        text, pictures = self._text(message, place)
        if not (content := trimmed(text)):
            self.left_out[NO_TEXT] += bool(text)
        elif role == "system":
            self.context.append(content)
        else:
            time = self._time_of(message)
            said = self._message(role, content, message)
            self.kept.append((replace(said, pictures=tuple(pictures)), time))
        return None

    def _refuse(self, what: str, problem: str) -> None:
        self.left_out["message", f" {what}"] += 1
        self.problem = self.problem or problem

    def _text(self, message: Mapping[str, Any], place: str) -> tuple[str, list[str]]:
        """Return the text of a message, and its pictures.

        What it has besides is counted; if it has nothing else, that it has no text.
        """
        found: LeftOut = Counter()
        texts: list[str] = []
        pictures: list[str] = []
        for key in _TEXT_KEYS:
            texts = [text for text in _texts(message.get(key), found, pictures) if text.strip()]
            if texts:
                break
        for key in _CALL_KEYS:
            found[CALLS] += len(list_of(message.get(key))) + isinstance(message.get(key), dict)
        found[REASONING] += sum(bool(message.get(key)) for key in _REASONING_KEYS)
        found = +found
        if not texts and not found and (guess := _guess("content", message)):
            self._refuse(f"without content{guess}", f"{place}.content is missing{guess}")
        elif not texts and found.keys() <= {OTHER_PARTS}:
            found = Counter([NO_TEXT])
        self.left_out.update(found)
        return "\n".join(texts), pictures

    def _time_of(self, message: Mapping[str, Any]) -> datetime | None:
        """Return when a message was said, or None if it does not say so. A time that cannot be read is counted.

        What stands under the key of another program counts only if it can be when something was said.
        """
        own = message.get("at")
        given = next((message[key] for key in ("at", *_TIME_KEYS) if message.get(key) is not None), "")
        if given == "":
            return None
        at: datetime | None = None
        with suppress(InputError, ValueError, OverflowError, OSError):
            if isinstance(given, str):
                at = parse_instant(given, "at", self._now.tzinfo or UTC)
            elif isinstance(given, int | float) and not isinstance(given, bool):
                at = datetime.fromtimestamp(given / 1_000 if given > _MILLISECONDS else given, UTC)
        if at is not None and not isinstance(own, str):
            at = at if at.year >= _FIRST_YEAR and at <= self._now + timedelta(days=1) else None
        self.left_out[UNKNOWN_TIME] += at is None
        return at

    def _message(self, role: Role, content: str, given: Mapping[str, Any]) -> Message:
        name, external_id = _word(given.get("name")), _word(given.get("id")) or _word(given.get("uuid"))
        for key, value in (("name", name), ("id", external_id)):
            if len(value) > MAX_SCOPE_CHARS:
                raise InputError(f"the {key} of a message is longer than {MAX_SCOPE_CHARS} characters")
        return Message(
            id=str(uuid.uuid4()),
            scope=self._scope,
            role=role,
            content=content,
            said_at=self._now,
            created_at=self._now,
            name=one_line(name),
            external_id=one_line(external_id),
        )


def conversations_in(value: Any) -> list[list[Any]]:
    """Return the conversations in a JSON value, each a list of messages that may be in any form.

    The value is a list of messages, an object that has one, a list of such objects, or anything else: then it is a
    conversation of one message, which a reader refuses.
    """
    if not isinstance(value, list):
        return _conversations_of(value)
    conversations: list[list[Any]] = []
    alone: list[Any] = []
    for item in list_of(value):
        given = object_of(item)
        if not _role_of(given) and any(isinstance(given.get(key), list) for key in _LIST_KEYS):
            conversations += _conversations_of(item)
        elif isinstance(item, list) and _unwrapped(item) is None:
            conversations.append(list_of(item))
        else:
            alone.append(item)
    return [*([alone] if alone else []), *conversations]


def _conversations_of(value: Any) -> list[list[Any]]:
    """Return the conversations that an object holds. Anthropic has the system's text beside the messages."""
    given = object_of(value)
    inner = next((given[key] for key in _LIST_KEYS if isinstance(given.get(key), list)), None)
    if inner is None:
        return [[value]]
    head = [{"role": "system", "content": given["system"]}] if given.get("system") else []
    return [[*head, *messages] for messages in conversations_in(inner)]


def _unwrapped(value: Any) -> dict[str, Any] | None:
    """Return the message in a value: an object, LangChain's frames around one, or a pair of a role and a text."""
    if isinstance(value, list):
        pair = list_of(value)
        is_pair = len(pair) == _PAIR and all(isinstance(item, str) for item in pair) and pair[0].casefold() in _ROLES
        return {"role": pair[0], "content": pair[1]} if is_pair else None
    if not isinstance(value, dict):
        return None
    message = object_of(value)
    if isinstance(message.get("kwargs"), dict) and "lc" in message:
        return {"type": (list_of(message.get("id")) or [""])[-1], **message["kwargs"]}
    for key in ("data", "message"):
        inner = message.get(key)
        if isinstance(inner, dict) and "role" not in message:
            return {**{name: part for name, part in message.items() if name != key}, **inner}
    return message


def _role_of(message: Mapping[str, Any]) -> str:
    """Return what a message says about who speaks, or else of what kind it is; "" if it says neither."""
    for key in _ROLE_KEYS:
        value: Any = message.get(key)
        if isinstance(value, dict):
            value = object_of(value).get("role")
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


def _texts(value: Any, left_out: LeftOut, pictures: list[str], depth: int = 0) -> Iterator[str]:
    """Yield the texts of a message's content and a mark for each picture, and count the other parts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < _MAX_DEPTH:
        for part in list_of(value):
            yield from _texts(part, left_out, pictures, depth + 1)
    elif isinstance(value, dict) and depth < _MAX_DEPTH:
        part = object_of(value)
        reason = _reason_of(part)
        if reason is None and is_picture(part):
            pictures.append(_picture_url(part))
            yield models.picture_mark(pictures[-1])
            return
        inner = (part[key] for key in _TEXT_KEYS if key in part)
        nested = () if reason else (list(_texts(value, left_out, pictures, depth + 1)) for value in inner)
        texts = next((texts for texts in nested if any(texts)), ())
        if texts:
            yield from texts
        elif part and part.get("type") not in ("text", "step-start"):
            left_out[reason or OTHER_PARTS] += 1


def is_picture(part: Mapping[str, Any]) -> bool:
    """Return whether a part of a message is a picture. Gemini and Bedrock name the kind by a key."""
    kind = part.get("type", part.get("content_type"))
    of_kind = "image" in kind if isinstance(kind, str) else "image" in part
    return of_kind or any(text.startswith("image/") for _, text in _strings(part))


def _picture_url(part: Mapping[str, Any]) -> str:
    """Return the URL of a picture: its own, or one that holds its data; "" for one that only its program can find."""
    given = dict(_strings(part))
    url = next((text for text in given.values() if text.startswith(("https://", "http://", "data:image/"))), "")
    data = given.get("data") or given.get("bytes") or ""
    of_format = f"image/{given.get('format', 'png')}"
    kind = next((text for text in given.values() if text.startswith("image/")), of_format)
    return url or (f"data:{kind};base64,{data}" if data else "")


def _strings(part: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the texts in an object and the objects in it, with their keys."""
    for key, value in part.items():
        if isinstance(value, str):
            yield key, value
        elif depth < _MAX_DEPTH:
            yield from _strings(object_of(value), depth + 1)


def _reason_of(part: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what a part of a message is if nobody said it. Gemini and Bedrock name the kind by a key."""
    if part.get("thought") is True:
        return REASONING
    kind = part.get("type")
    kinds = [kind] if isinstance(kind, str) else [] if any(key in part for key in _TEXT_KEYS) else list(part)
    return _unsaid(kinds)


def _unsaid(kinds: Iterable[str]) -> tuple[str, str] | None:
    names = [kind.casefold() for kind in kinds]
    return next((reason for reason, pattern in _UNSAID if any(map(pattern.search, names))), None)


def _guess(name: str, message: Mapping[str, Any]) -> str:
    """Return which key of a message is probably a misspelt `name`, in words, or ""."""
    close = difflib.get_close_matches(name, message, n=1, cutoff=0.75)
    return f" (is '{close[0][:_MAX_QUOTED]}' misspelt?)" if close and close[0] != name else ""


def _word(value: Any) -> str:
    """Return a name or an id, which some programs write as a number."""
    return value if isinstance(value, str) else str(value) if isinstance(value, int) and value is not True else ""


MAX_TEXT_CHARS = 20_000
MAX_MESSAGES = 500
MAX_MESSAGES_CHARS = 200_000
MAX_QUERY_CHARS = 4_000
MAX_METADATA_BYTES = 10_000
MAX_IDS = 100
MAX_RELATIONS = 20

# How many other wordings of a query a search takes: as many as its tool asks for. Each is embedded.
MAX_ALSO = 3
# How many hints of each sort a memory may be given: twice as many as a tool asks for. Their vector is one for all.
MAX_HINTS = {"asks": 5, "words": 12}
MAX_HINT_CHARS = 200
_RELATION_PARTS = 3
MAX_LIMIT = 100
MAX_TOKENS = 20_000

# Letters, marks and unassigned characters that show nothing on screen.
#
# The variation selectors U+FE0E and U+FE0F are not among them, because many emoji end in one.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0d\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)

_UNSEEN_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
_EMOJI_SELECTORS = "\ufe0e\ufe0f"

UNKNOWN_TIME = ("message", " counted as said with the one before, because the time given cannot be read")

# Times before it are no times of messages: a program wrote 0, or counts from elsewhere.
_FIRST_YEAR = 1990

# Larger numbers count milliseconds since 1970: as seconds they would be after the year 5000.
_MILLISECONDS = 1e11

# Format characters that show a sign, such as the Arabic end of ayah.
_SHOWN_FORMATS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")


class ScopeInput(BaseModel):
    """Parts of a scope that differ from the server's."""

    model_config = ConfigDict(extra="forbid")

    user_id: str | None = None
    project: str | None = None
    agent_id: str | None = None
    run_id: str | None = None


class SearchScopeInput(ScopeInput):
    """The same for a search, which may go through all projects of the user."""

    all_projects: bool = False


class HintsInput(BaseModel):
    """What a caller says of how a text may be asked for: questions that it answers, and other words for it."""

    model_config = ConfigDict(extra="forbid")

    asks: list[str] = []
    words: list[str] = []

    @model_validator(mode="before")
    @classmethod
    def of_texts(cls, given: Any) -> Any:
        """Take a text for a list of one, and a list alone for words."""
        if not isinstance(given, str | list | dict):
            return given
        texts = cast("dict[str, Any]", given if isinstance(given, dict) else {"words": given})
        return {name: [value] if isinstance(value, str) else value or [] for name, value in texts.items()}


@dataclass(frozen=True, slots=True)
class ConversationInput:
    """A validated conversation: messages to store, the texts of system messages (context only), what was left out.

    `problem` is what is wrong with the first message that is none.
    """

    messages: tuple[Message, ...]
    context: tuple[str, ...]
    left_out: LeftOut
    problem: str = ""


def checked(check: Callable[..., _T], *values: str) -> _T:
    """Return what a check returns, for a validator of pydantic's. What the check refuses is a ValueError."""
    try:
        return check(*values)
    except InputError as error:
        raise ValueError(str(error)) from error


def fault_text(fault: ErrorDetails) -> str:
    """Return what is wrong with a value, without the words that pydantic puts before the text of an error of ours."""
    return fault["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")


def object_of(value: Any) -> dict[str, Any]:
    """Return a JSON object. Return an empty one for any other value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """Return a JSON list. Return an empty one for any other value."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def well_formed(text: str) -> str:
    """Return a text with lone surrogates replaced by "?", which no file accepts, and without NUL, as in PostgreSQL."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", "")


def is_blank(text: str) -> bool:
    """Return whether a text shows nothing: it has only white space, control and zero-width characters."""
    return all(char.isspace() or char in _EMOJI_SELECTORS or _is_unseen(char) for char in text)


# Words that programs and models write where a value is missing, in lower case.
NO_VALUES = frozenset({"none", "null", "nil", "n/a", "undefined"})


def is_no_text(text: str) -> bool:
    """Return whether there is nothing to store in a text: it is blank, or a word for a missing value."""
    return is_blank(text) or trimmed(text).casefold() in NO_VALUES


def trimmed(text: str) -> str:
    """Return a well-formed text without surrounding white space, and "" if it shows nothing."""
    return "" if is_blank(text) else well_formed(text).strip()


def one_line(text: str) -> str:
    """Return a well-formed text as one line, with single spaces, and "" if it shows nothing."""
    return "" if is_blank(text) else " ".join(well_formed(text).split())


def _is_unseen(char: str) -> bool:
    is_format = unicodedata.category(char) in _UNSEEN_CATEGORIES and char not in _SHOWN_FORMATS
    return is_format or _INVISIBLE.match(char) is not None


def scope_from(resolved: Scope, requested: ScopeInput | None) -> Scope:
    """Return the server's scope with the caller's parts in place of its own; null means none. Raises InputError.

    Without a user there is no scope, so null means the server's own there.
    """
    if requested is None:
        return resolved
    given = {name: getattr(requested, name) for name in requested.model_fields_set if name in Scope.__slots__}
    if given.get("user_id") is None:
        given.pop("user_id", None)
    parts = {name: scope_part(f"scope.{name}", value or "") for name, value in given.items()}
    if parts.get("user_id") == "":
        raise InputError("scope.user_id is empty; omit it to use the server's own user")
    return replace(resolved, **parts)


def scope_part(name: str, value: str) -> str:
    """Return a valid user, project, agent or run, without surrounding white space. Raises InputError naming `name`."""
    plain = value.strip()
    if plain == "*":
        raise InputError(f"{name} '*' is not a scope; use a name, or omit it")
    if len(plain) > MAX_SCOPE_CHARS:
        raise InputError(f"{name} is longer than {MAX_SCOPE_CHARS} characters")
    if any(unicodedata.category(char) in _UNSEEN_CATEGORIES for char in plain) or _INVISIBLE.search(plain):
        raise InputError(f"{name} contains control or invisible characters")
    return plain


def conversation_from(messages: Sequence[Any], scope: Scope, now: datetime) -> ConversationInput:
    """Return a validated conversation. Raises InputError if it has no message to store, or too much text."""
    conversation = read_conversation(messages, scope, now)
    size = sum(len(message.content) for message in conversation.messages) + sum(map(len, conversation.context))
    if len(messages) > MAX_MESSAGES or size > MAX_MESSAGES_CHARS:
        raise InputError(
            f"{len(messages)} messages with {size:,} characters are more than {MAX_MESSAGES} messages or "
            f"{MAX_MESSAGES_CHARS:,} characters. Nothing was stored. Add them in several calls."
        )
    if not conversation.messages:
        problem = conversation.problem or "there is no user or assistant message with text"
        raise InputError(f"{problem}, so nothing was stored")
    return conversation


def read_conversation(messages: Sequence[Any], scope: Scope, now: datetime) -> ConversationInput:
    """Return a conversation of any length, in any of the forms above.

    A message without a time was said when the one before it was. Those before the first time were said then, or `now`
    if that is earlier, and so were all of them if none has a time. Raises InputError for a message whose `name` or `id`
    is too long.
    """
    reader = _ConversationReader(scope, now)
    for number, value in enumerate(messages):
        reader.read(f"messages.{number}", value)
    at = min(next((time for _, time in reader.kept if time is not None), now), now)
    said: list[Message] = []
    for message, time in reader.kept:
        at = time or at
        said.append(replace(message, said_at=at))
    return ConversationInput(tuple(said), tuple(reader.context), +reader.left_out, reader.problem)


def text_from(text: str) -> str:
    """Return a text as `trimmed` does. Raises InputError if it says nothing, is too long or not valid Unicode."""
    if not (plain := trimmed(text)):
        raise InputError("text is empty. Nothing was done.")
    if is_no_text(plain):
        raise InputError(f"text is '{plain}', a word for no value. Nothing was done. Leave it out, or say something")
    if well_formed(text) != text:
        raise InputError("text has a NUL, half a character or bytes that are not UTF-8. Nothing was done.")
    if len(plain) > MAX_TEXT_CHARS:
        raise InputError(
            f"text has {len(plain):,} characters, more than {MAX_TEXT_CHARS:,}. Nothing was stored. "
            "A memory is one fact: store only what matters",
            Remedy.ADD_MESSAGES,
        )
    return plain


def query_from(query: str) -> str:
    """Return a search query as `trimmed` does. Raises InputError if it is empty or too long."""
    if not (plain := trimmed(query)):
        raise InputError("query is empty; write what to search for, or page through the list of memories")
    if len(plain) > MAX_QUERY_CHARS:
        raise InputError(f"query has {len(plain):,} characters, more than {MAX_QUERY_CHARS:,}; use a shorter one")
    return plain


def also_from(also: Sequence[str] | None) -> tuple[str, ...]:
    """Return the other wordings of a query, each once. Raises InputError for too many, or for one that is too long."""
    wordings = tuple(dict.fromkeys(trimmed(text) for text in also or () if not is_no_text(text)))
    if len(wordings) > MAX_ALSO:
        raise InputError(f"also has {len(wordings)} wordings and may have {MAX_ALSO}; leave out the least different")
    return tuple(map(query_from, wordings))


def hints_from(hints: HintsInput | None) -> tuple[str, ...]:
    """Return the questions and the words of hints, each once. Raises InputError for too many, or for one too long."""
    if hints is None:
        return ()
    found = dict.fromkeys(one_line(text) for text in (*hints.asks, *hints.words))
    are_many = any(len(getattr(hints, name)) > most for name, most in MAX_HINTS.items())
    if are_many or any(len(text) > MAX_HINT_CHARS for text in found):
        most = " and ".join(f"{number} {name}" for name, number in MAX_HINTS.items())
        raise InputError(f"hints are at most {most}, each of at most {MAX_HINT_CHARS} characters. Nothing was stored.")
    return tuple(text for text in found if text)


def held_from(since: str, until: str, zone: tzinfo) -> dict[str, Any]:
    """Return the fields of a fact that say between which times it holds, given as ISO 8601.

    What is "" has no fields, and those of "none" are empty.
    """
    held: dict[str, Any] = {}
    for column, name, value in (("valid_from", "since", since.strip()), ("valid_until", "until", until.strip())):
        if value:
            parsed = (None, "") if value.lower() == "none" else parse_time(value, name, zone)
            held[column], held[f"{column}_precision"] = parsed
    return held


def in_order(fact: models.Fact, zone: tzinfo) -> models.Fact:
    """Return a fact as it is. Raises InputError if it ends before it begins."""
    if fact.valid_from is None or fact.valid_until is None:
        return fact
    begins = span_of(fact.valid_from, fact.valid_from_precision, zone)
    if span_of(fact.valid_until, fact.valid_until_precision, zone).last < begins.first:
        since = shown_date(fact.valid_from, fact.valid_from_precision)
        until = shown_date(fact.valid_until, fact.valid_until_precision)
        raise InputError(f"until {until} is before since {since}: it would end before it began")
    return fact


def has_nul(dumped: str) -> bool:
    """Return whether a text in JSON has a NUL character, which PostgreSQL cannot store."""
    return r"\u0000" in dumped.replace(r"\\", "")


def json_object(value: dict[str, Any]) -> dict[str, Any]:
    """Return an object as it is. Raises ValueError if it has what cannot be stored as JSON, such as NUL or NaN."""
    if has_nul(json.dumps(value, allow_nan=False)):
        raise ValueError("it has a NUL character")
    return value


def metadata_from(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of the caller's metadata. A null value means that the key is to be removed; any key may be null.

    Raises InputError if the metadata is not JSON, is too large, or has a key that means something else in filters.
    """
    copy = dict(metadata or {})
    with raised_as(InputError, "metadata is not valid JSON", "", TypeError, ValueError):
        size = len(json.dumps(json_object(copy), ensure_ascii=False).encode())
    if size > MAX_METADATA_BYTES:
        raise InputError(f"metadata is larger than {MAX_METADATA_BYTES:,} bytes as JSON")
    if reserved := [
        key for key, value in copy.items() if value is not None and (key in RESERVED or key.upper() in JUNCTIONS)
    ]:
        raise InputError(f"metadata may not use '{reserved[0]}', which filters use otherwise; choose another key")
    if (end := copy.get(EXPIRES_AT)) is not None:
        with raised_as(InputError, "metadata", ". Nothing was stored. Give a date, such as that of Friday", InputError):
            parse_until(end if isinstance(end, str) else json.dumps(end) + " (no text)", EXPIRES_AT)
    return copy


def relations_from(relations: Sequence[Sequence[str]]) -> tuple[Relation, ...]:
    """Return the relations that a caller gives with a text, each `[source, name, destination]`, each once.

    Since and until when it holds may follow, "" for what is as in the text. Raises InputError for too many, for one
    that is not three names and such times, and for one of something with itself.
    """
    if len(relations) > MAX_RELATIONS:
        raise InputError(f"{len(relations)} relations are more than {MAX_RELATIONS}. Nothing was stored.")
    return tuple(dict.fromkeys(_relation(number, parts) for number, parts in enumerate(relations)))


def _relation(number: int, parts: Sequence[str]) -> Relation:
    names = [one_line(part) for part in parts[:_RELATION_PARTS]]
    given = dict(zip(("since", "until"), parts[_RELATION_PARTS:], strict=False))
    unknown = dict.fromkeys((name for name, value in given.items() if value.strip() == "none"), "")
    dates = {name: parse_date(value) for name, value in given.items() if value.strip() and name not in unknown}
    spans = [span_of(*date) for date in dates.values() if date]
    is_in_order = len(spans) == len(dates) and (not spans or spans[0].first <= spans[-1].last)
    if len(names) == _RELATION_PARTS and len(parts) <= _RELATION_PARTS + len(("since", "until")) and is_in_order:
        relation = Relation(*names, **unknown, **{name: shown_date(*date) for name, date in dates.items() if date})
        if all(relation.key) and relation.key[0] != relation.key[2] and max(map(len, names)) <= MAX_NAME_CHARS:
            return relation
    raise InputError(
        f"relations.{number} is not [source, name, destination], such as ['Ana', 'lives in', 'Lyon'], of two "
        f"different ends, each of at most {MAX_NAME_CHARS} characters. Since and until may follow, each a year, a "
        "month or a day, such as 2024-03, '' as the text has it, or 'none'. Nothing was stored."
    )


def bounded(name: str, value: int, lowest: int, highest: int) -> int:
    """Return a number that lies within its bounds. Raises InputError."""
    if not lowest <= value <= highest:
        raise InputError(f"{name} is {value} and must be between {lowest} and {highest}")
    return value


# The replies of language models.


def system_apart(messages: Sequence[Mapping[str, str]]) -> tuple[str, list[Mapping[str, str]]]:
    """Return what the system says in messages to a model, and the other ones."""
    system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
    return system, [message for message in messages if message["role"] != "system"]


def whole_reply(model: str, text: str, reason: Any, *, is_cut: bool) -> str:
    """Return the text of a model's reply. `reason` is why it ended, and `is_cut` whether that was its limit.

    Raises EmptyReplyError, and for a reply that was cut ReplyError, or CutOffReplyError with the text if it has any.
    """
    advice = " Raise llm.config.max_tokens." if is_cut else ""
    if not text.strip():
        kind = ReplyError if is_cut else EmptyReplyError
        raise kind(f"{model} sent an empty reply (reason: {reason or 'not given'}).{advice}")
    if is_cut:
        raise CutOffReplyError(f"the reply of {model} was cut off.{advice}", text)
    return text
