"""Ask a language model for one JSON value, and read what models really send.

A reply may have thoughts, drafts and sentences around it, and be written loosely. The last whole
value that fits counts. If none does, the model is told what was wrong and asked once more. A second reply that does not
fit is an error, never an empty result.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Annotated, Any, ClassVar, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ValidationError, model_validator

from palimpsest.core.errors import CutOffReplyError, EmptyReplyError, ModelError, ReplyError
from palimpsest.core.protocols import LanguageModel
from palimpsest.core.validation import MAX_HINT_CHARS, NO_VALUES, fault_text, object_of, one_line, well_formed
from palimpsest.llm.prompts import PromptMessages
from palimpsest.text.stopwords import FUNCTION_WORDS
from palimpsest.text.word_lists import LazyPattern, patterns, word_sets

# Recognize what models write where they have nothing to say: "None", "N/A", "No relevant facts found.", "-".

# What stands for a missing value, in lower case.
NOTHING = NO_VALUES | {"", "nothing", "na", "no", "false", "not applicable", "unknown"}

# What is longer says something.
MAX_CHARS = 200

# How many words say nothing without naming what there is none of, as in "Not available".
MAX_BARE_WORDS = 3

_WORDS = word_sets("palimpsest.llm", "says_nothing.txt")
_NO, _USER = _WORDS["no"], _WORDS["user"]
_OF_WHAT, _BESIDE, _TELLING = (tuple(_WORDS[name]) for name in ("of what", "beside", "telling"))
_ORDINARY = _NO.union(_USER, *FUNCTION_WORDS.values())
_UNSPACED = patterns("palimpsest.llm", "says_nothing.txt")["unspaced"]
_AROUND = " \t\r\n.,;:!?-\u2013\u2014_'\"`*()[]<>{}\u3002\uff01\u2026\u00ab\u00bb\u201c\u201d\u201e"
_WORD = LazyPattern(r"[^\W\d_](?:/[^\W\d_])?[^\W\d_]*|\d+")


def says_nothing(text: str) -> bool:
    """Return whether a text only says that there is nothing to say, in the languages of the function words and more."""
    if len(text) > MAX_CHARS:
        return False
    plain = text.casefold().strip(_AROUND)
    if plain in NOTHING or not any(map(str.isalnum, plain)) or _UNSPACED.fullmatch(plain):
        return True
    words = _WORD.findall(plain)
    if not any(word in _NO for word in words):
        return False
    names_what = any(word.startswith(_OF_WHAT) for word in words)
    # Either it is about what the user tells, or it is not about the user.
    is_told = not any(word in _USER for word in words[:2]) or any(word.startswith(_TELLING) for word in words)
    if any(word in _USER for word in words) and not (names_what and is_told):
        return False
    is_of_that = all(word in _ORDINARY or word.startswith(_OF_WHAT + _BESIDE) for word in words)
    return is_of_that and (names_what or len(words) <= MAX_BARE_WORDS)


# Find the JSON values in a model's reply, which may think aloud, draft, comment, and write JSON as JavaScript does.
#
# What stands in tags for thoughts is not the reply. A value that is cut off or garbled takes everything before it
# away: that was a draft. All of it takes time in proportion to the length of the reply, whatever the reply is.

# How many brackets of a reply are tried as the start of a JSON value. It bounds the time for hostile replies.
MAX_BRACKETS = 1_000

# How many brackets of a reply are read leniently, or begin it again after a broken draft.
MAX_FAULTS = 12

# How often JSON is written as a string inside JSON, at most.
MAX_ESCAPES = 3

_NAMES = (
    r"think(?:ing)?|thoughts?|reason(?:ing|s)?|analysis|analy[sz]e|reflect(?:ions?)?|self_?reflection|scratch_?pad|"
    r"plan(?:ning)?|draft|critique|rationale|deliberation|inner_?monologue|monologue|chain_of_thought|cot|brainstorm"
)
_END = rf"</\s*(?:\w{{1,20}}:)?(?:{_NAMES})\s*>|\[/THINK\]|\u25c1/think\u25b7|<\|END_THINKING\|>"
_BEGINNING = (
    rf"<(?:\w{{1,20}}:)?(?:{_NAMES})(?:\s[^<>\n]{{0,100}})?(?<!/)>|\[THINK\]|\u25c1think\u25b7|<\|START_THINKING\|>"
)
_TAG = LazyPattern(rf"(?P<end>{_END})|(?P<beginning>{_BEGINNING})", re.IGNORECASE)
_TAG_OR_BRACKET = LazyPattern(rf"{_TAG.pattern}|[{{\[]", re.IGNORECASE)

# The beginning of JSON that is escaped as in a string.
_ESCAPED = LazyPattern(r'[{\[](?:\s|\\[nrt]|[{\[]){0,40}+\\{1,9}"')

_ESCAPE = LazyPattern(r"\\(?:u|(.))", re.DOTALL)
_ESCAPED_CHARS = {"n": "\n", "r": "\r", "t": "\t"}

# What follows a string. A quotation mark before anything else belongs to the text.
_AFTER_STRING = r"\s*+(?:[,:\]}]|//|/\*|\#|\Z)"

# Where the reply may begin again after a broken draft, and strings, in which it does not.
_STRING_OR_RESTART = LazyPattern(
    rf'"(?=(?P<inner>(?:\\.|[^"\\])*))(?P=inner)"(?={_AFTER_STRING})|\\.'
    rf"|(?P<end>{_END})|(?P<fence>```\w{{0,10}}\s{{0,9}}(?=[{{\[]))",
    re.IGNORECASE | re.DOTALL,
)

# Before Python 3.11.5 a possessive quantifier over alternatives does not match what it should, so a lookahead that is
# repeated takes its place: it does not backtrack either.
_TOKEN = LazyPattern(
    rf"""(?P<nothing>\s++|//[^\n]*+|\#[^\n]*+|/\*(?=(?P<comment>(?:[^*]|\*(?!/))*))(?P=comment)\*/)
    |(?P<string>"(?=(?P<double>(?:\\.|[^"\\]|"(?!{_AFTER_STRING}))*))(?P=double)"
    |'(?=(?P<single>(?:\\.|[^'\\]|'(?!{_AFTER_STRING}))*))(?P=single)'
    |[\u201c\u201d\u201e](?=(?P<curly>(?:\\.|[^\u201c\u201d\\])*))(?P=curly)[\u201c\u201d])
    |(?P<mark>[{{}}\[\]:,])
    |(?P<word>[\w$.+-]++)""",
    re.DOTALL | re.VERBOSE,
)
_IN_STRING = LazyPattern(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\\'|\\|"')
_WRITTEN_IN_STRING = {"\\'": "'", "\\": "\\\\", '"': '\\"'}
_COLON = LazyPattern(r"\s*+:")
_NUMBER = LazyPattern(r"-?(?:0|[1-9]\d{0,30})(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?")
_LITERALS = {
    **{word: word.lower() for word in ("true", "false", "null", "True", "False")},
    **dict.fromkeys(("None", "undefined", "NaN"), "null"),
}

_DECODER = json.JSONDecoder(strict=False)


@dataclass(slots=True)
class ReplyValues:
    """The outermost JSON values of a reply, in order, and the reply without thoughts as one text.

    `is_broken` is whether a value came last that was cut off or garbled. Then there is no other.
    """

    values: list[Any] = field(default_factory=list[Any])
    answer: str = ""
    is_broken: bool = False


class _FaultError(Exception):
    """A text cannot be read as JSON, not even leniently. Up to `position` it could."""

    def __init__(self, position: int, *, has_content: bool) -> None:
        super().__init__()
        self.position = position
        self.has_content = has_content


def reply_values(text: str, depth: int = 0) -> ReplyValues:
    """Return what a reply holds.

    A bracket that fails to parse before its first string is prose. A value that fails later was cut off or garbled:
    values inside it are not the reply, and what came before it was a draft, unless the reply begins again in a fence.
    """
    found = ReplyValues()
    parts: list[str] = []
    position = begin = faults = 0
    for _ in range(MAX_BRACKETS):
        if (mark := _TAG_OR_BRACKET.search(text, position)) is None:
            break
        at = mark.start()
        if mark["beginning"]:
            parts.append(text[begin:at])
            begin = position = _end_of_thought(text, mark)
        elif mark["end"]:  # the beginning is missing: the prompt had it
            found, parts = ReplyValues(), []
            begin = position = mark.end()
        elif depth < MAX_ESCAPES and _ESCAPED.match(text, at):
            inner = reply_values(_unescaped(text[at:]), depth + 1)
            found.values = [] if inner.is_broken else [*found.values, *inner.values]
            found.is_broken = inner.is_broken
            break
        else:
            try:
                value, position = _decode(text, at, is_lenient=faults < MAX_FAULTS)
                found.values.append(value)
            except _FaultError as fault:
                faults += 1
                position = max(at + 1, fault.position)
                if not fault.has_content:
                    continue
                found.values = []
                restart = _restart(text, at) if text[:at].strip() and faults <= MAX_FAULTS else None
                if restart is None:
                    found.is_broken = True
                    break
                position = restart
    else:
        found.values, found.is_broken = [], True
    found.answer = "".join((*parts, text[begin:])).strip()
    return found


def _restart(text: str, broken: int) -> int | None:
    """Return where a reply begins again after a value that is broken: at the end of a thought, or in a fence."""
    found = next((found for found in _STRING_OR_RESTART.finditer(text, broken) if found["end"] or found["fence"]), None)
    return found and (found.start() if found["end"] else found.end())


def _end_of_thought(text: str, beginning: re.Match[str]) -> int:
    """Return where a thought ends: at the first tag of its name, or else at the end of the reply."""
    family = _family(beginning[0])
    ends = (tag for tag in _TAG.finditer(text, beginning.end()) if tag["end"] and _family(tag[0]) == family)
    return next((tag.end() for tag in ends), len(text))


def _family(tag: str) -> str:
    """Return the beginning of the name of a tag: "think" and "thinking" are one."""
    return re.sub("[^a-z]|start|end", "", tag.casefold())[:4]


def _unescaped(text: str) -> str:
    """Return a text with one level of escapes less. A letter by its number is left to the JSON that it is in."""
    return _ESCAPE.sub(lambda found: _ESCAPED_CHARS.get(found[1], found[1]) if found[1] else found[0], text)


def _decode(text: str, at: int, *, is_lenient: bool) -> tuple[Any, int]:
    """Return the value that begins at a bracket, and where it ends. Raises _FaultError."""
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        position = error.pos
    except (RecursionError, ValueError) as error:  # nested too deep, or a number with too many digits
        raise _FaultError(len(text), has_content=True) from error
    has_content = '"' in text[at : position + 1]
    if not is_lenient:
        raise _FaultError(position, has_content=has_content)
    try:
        return _decode_leniently(text, at)
    except _FaultError as fault:
        raise _FaultError(position, has_content=has_content or fault.has_content) from fault


def _decode_leniently(text: str, at: int) -> tuple[Any, int]:
    """Return the value that begins at a bracket, written as JavaScript or Python writes it. Raises _FaultError.

    Comments, single and curly quotation marks, trailing commas, bare keys, and quotation marks inside a text are
    understood.
    """
    written: list[str] = []
    brackets: list[str] = []
    position, has_key = at, False
    while token := _TOKEN.match(text, position):
        position = token.end()
        if token["nothing"]:
            continue
        is_key = token["mark"] is None and _COLON.match(text, position) is not None
        has_key |= is_key
        if not _may_follow(written, token, is_key=is_key):
            break
        if token["mark"] in ("}", "]"):
            if written[-1] == ",":
                written.pop()
            if brackets.pop() != token[0]:
                break
        elif token["mark"] in ("{", "["):
            brackets.append("}" if token[0] == "{" else "]")
        written.append(_as_string(token[0]) if token["string"] or is_key else _LITERALS.get(token[0], token[0]))
        if not brackets:
            try:
                return json.loads("".join(written), strict=False), position
            except (RecursionError, ValueError):
                break
    raise _FaultError(position, has_content=has_key)


def _may_follow(written: list[str], token: re.Match[str], *, is_key: bool) -> bool:
    """Return whether a token may stand after what is written. What is left open here, JSON refuses at the end."""
    if token["mark"] in ("}", "]", ",", ":"):
        return True
    if token["word"] and not is_key and token[0] not in _LITERALS and not _NUMBER.fullmatch(token[0]):
        return False
    return not written or written[-1] in (("{", ",") if is_key else ("[", ",", ":"))


def _as_string(token: str) -> str:
    """Return a string or a bare key as JSON writes it."""
    inner = token[1:-1] if token[0] in "\"'\u201c\u201d\u201e" else token
    return f'"{_IN_STRING.sub(lambda found: _WRITTEN_IN_STRING.get(found[0], found[0]), inner)}"'


# Read the parts of a reply as models write them.

# How long a keyword or tag may be: a few words.
MAX_LABEL_CHARS = 64

MAX_DIGITS = 9


def list_in(value: Any) -> list[Any]:
    """Return a list, and anything else as a list of it alone; an empty one for None."""
    return list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else [] if value is None else [value]


def text_in(value: Any) -> str:
    """Return a text, or a whole number as text, and "" for anything else."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def first_text(item: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Return the first text under one of the keys, else ""."""
    return next((text for key in keys if (text := text_in(item.get(key)))), "")


def labels_in(value: Any, max_chars: int = MAX_LABEL_CHARS) -> list[str]:
    """Return the texts of a list, each on one line of so many characters at most, without those that say nothing."""
    items = list_in(value) if isinstance(value, list) else []
    texts = [one_line(item)[:max_chars] for item in items if isinstance(item, str)]
    return [text for text in texts if text and not says_nothing(text)]


def number_in(value: Any) -> int:
    """Return a number, also from a text, and -1, which is never valid, for anything else."""
    digits = text_in(value).strip()
    return int(digits) if digits.isdecimal() and len(digits) <= MAX_DIGITS else -1


Text = Annotated[str, BeforeValidator(text_in)]
Number = Annotated[int, BeforeValidator(number_in)]
Numbers = Annotated[list[Number], BeforeValidator(list_in)]
Labels = Annotated[list[str], BeforeValidator(labels_in)]

# Fields of a reply: whatever a model writes there, as far as it can be read. `Asks` are questions.
Asks = Annotated[list[str], BeforeValidator(partial(labels_in, max_chars=MAX_HINT_CHARS))]


def unknown_memory(number: int, count: int) -> str:
    """Return the fault of a reply that names a memory it was not shown."""
    return f"there is no memory {number}; the ids are those shown, 0 to {count - 1}."


def without_empty(**fields: Any) -> dict[str, Any]:
    """Return what a model is shown of fields: those that say something."""
    return {name: value for name, value in fields.items() if value}


class ReplyItem(BaseModel):
    """An item of a reply. What is no object has nothing in it, and each field makes something of None."""

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        return cls.filled(object_of(value))

    @classmethod
    def filled(cls, item: Mapping[str, Any], **parts: Any) -> dict[str, Any]:
        """Return an item with None for each field that it lacks, and with these parts in any case."""
        lacking = [name for name, field_of in cls.model_fields.items() if field_of.is_required()]
        return {**dict.fromkeys(lacking), **item, **parts}


class ReplyModel(BaseModel):
    """What a stage's model replies. `LIST_KEY` is the key of its list, if it is one, which may also stand bare."""

    LIST_KEY: ClassVar[str] = ""

    @classmethod
    def is_item(cls, value: Mapping[str, Any]) -> bool:
        """Return whether a value is an item of the list, which stands by itself."""
        del value
        return False

    @model_validator(mode="before")
    @classmethod
    def _tolerate(cls, value: Any) -> Any:
        return {cls.LIST_KEY: list_in(value)} if cls.LIST_KEY and isinstance(value, list) else value


Reply = TypeVar("Reply", bound=ReplyModel)
Result = TypeVar("Result")

MAX_REPLY_CHARS = 200_000

# How much of a wrong reply is sent back to the model. Error texts never quote a reply.
MAX_SHOWN_CHARS = 2_000

# How many objects may be around a reply.
MAX_WRAPPERS = 3

# How deep the items of a reply lie: in a list, or in a list of an object. Lists inside an item are deeper.
LIST_DEPTH = 2

# Keys of an object under which a reply may stand as a bare list, or as a text.
_WRAPPERS = (
    *("reply", "result", "output", "response", "answer", "final", "final_answer"),
    *("data", "json", "content", "arguments", "parameters", "input"),
)

_STRING_OR_BRACKET = LazyPattern(r'"(?=(?P<inner>(?:\\.|[^"\\])*))(?P=inner)"|["{}\[\]]', re.DOTALL)
_START = LazyPattern(r"[{\[]")
_NAME = LazyPattern(r"\w+")
_EMPTY_LIST = LazyPattern(r"`*(?:json)?\s*\[\s*\]\s*`*", re.IGNORECASE)


async def ask(
    model: LanguageModel,
    messages: Sequence[Mapping[str, str]],
    reply_type: type[Reply],
    convert: Callable[[Reply], tuple[Result, str]],
    *,
    when_cut: Callable[[Result], Result] | None = None,
    read_text: Callable[[str], Reply | None] | None = None,
) -> Result:
    """Return the model's reply, validated as `reply_type` and converted by `convert`.

    `convert` returns what of a reply can be used, and what is wrong with it, or "". It raises ValueError if nothing can
    be used. What was wrong goes to the model, which is asked once more. The second reply is used whatever is wrong with
    it; if it cannot be used, the first one is. `when_cut` marks what is whole of a reply that was cut off; without it
    such a reply is an error. `read_text` returns what an answer without JSON says, or None. Raises ReplyError if no
    reply can be used, and passes on every other ModelError.
    """
    schema = schema_for(messages, reply_type)
    expected = [EmptyReplyError] if read_text is not None and read_text("") is not None else []
    text = ""

    async def attempt(asked: Sequence[Mapping[str, str]]) -> tuple[Result, str]:
        nonlocal text
        try:
            text = ""
            with suppress(*expected):
                text = await model.complete(asked, schema)
            return convert(read(text, reply_type, read_text))
        except CutOffReplyError as error:
            if when_cut is None:
                raise
            try:
                return when_cut(convert(read(whole_items(error.reply), reply_type, read_text))[0]), ""
            except ValueError:
                raise error from None

    first: Result | None = None
    try:
        first, fault = await attempt(messages)
        if not fault:
            return first
    except CutOffReplyError:
        raise
    except (ReplyError, ValueError) as error:
        fault = str(error)
    repair = f"That reply cannot be used: {fault} Answer again, with one JSON value in the requested form alone."
    wrong_reply = {"role": "assistant", "content": well_formed(text[:MAX_SHOWN_CHARS]) or "(nothing)"}
    again = [*map(dict, messages), wrong_reply, {"role": "user", "content": repair}]
    try:
        return (await attempt(again))[0]
    except ModelError as error:
        failure = error
    except ValueError as error:
        failure = ReplyError(f"the model {model.name} gave no usable reply in two attempts: {error}")
    if first is None:
        raise failure
    return first


def whole_items(text: str) -> str:
    """Return a reply that was cut off with the items of its list that are whole, closed as JSON.

    Raises ValueError if none is.
    """
    if not text.lstrip().startswith(("{", "[")):  # it begins with thoughts
        text = reply_values(text).answer
    start = _START.search(text)
    end, closing = 0, ""
    open_brackets: list[str] = []
    for found in _STRING_OR_BRACKET.finditer(text, start.start() if start else len(text)):
        mark = found[0]
        if mark in "{[":
            open_brackets.append(mark)
        elif mark in "}]" and open_brackets:
            open_brackets.pop()
        is_whole = mark != '"' and (mark[0] == '"' or mark in "}]")
        if is_whole and open_brackets[-1:] == ["["] and len(open_brackets) <= LIST_DEPTH:
            end = found.end()
            closing = "".join("}" if bracket == "{" else "]" for bracket in reversed(open_brackets))
    if not end:
        raise ValueError("none of its items is whole.")
    return text[:end] + closing


def read(text: str, reply_type: type[Reply], read_text: Callable[[str], Reply | None] | None = None) -> Reply:
    """Return the last JSON value in a reply that fits `reply_type`; objects come before lists.

    An answer without JSON is for `read_text`. Raises ValueError that says what was wrong.
    """
    if len(text.strip()) > MAX_REPLY_CHARS:
        raise ValueError(f"it is longer than {MAX_REPLY_CHARS} characters.")
    found = reply_values(text)
    values = [value for value in found.values if value != []]
    if not values and not found.is_broken:
        if _EMPTY_LIST.fullmatch(found.answer):
            values = list[Any]([[]])
        elif read_text is not None and (reply := read_text(found.answer)) is not None:
            return reply
    fault = ""
    last_first = _with_items(values, reply_type)[::-1]
    for value in sorted(last_first, key=lambda value: not isinstance(value, dict)):
        for form in _forms(value, reply_type):
            try:
                return reply_type.model_validate(form)
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                place = "".join(f"{part}." for part in first["loc"])
                fault = fault or f"{place[:-1]}: {fault_text(first)}.".removeprefix(": ")
    raise ValueError(fault or "there is no JSON in it.")


def _with_items(values: Sequence[Any], reply_type: type[ReplyModel]) -> list[Any]:
    """Return the values of a reply. Items at its end that stand by themselves, one a line, are one list."""
    end = len(values)
    while end and isinstance(values[end - 1], dict) and reply_type.is_item(values[end - 1]):
        end -= 1
    return [*values[:end], *([{reply_type.LIST_KEY: list(values[end:])}] if end < len(values) else [])]


def _forms(value: Any, reply_type: type[ReplyModel], depth: int = 0) -> Iterator[Any]:
    """Yield a value and what stands in it, under another key, in a list of one, or as a text; the last first."""
    yield value
    if depth == MAX_WRAPPERS:
        return
    if isinstance(value, list) and len(cast("list[Any]", value)) == 1:
        value = {"": cast("list[Any]", value)[0]}
    if not isinstance(value, dict):
        return
    for key, inner in reversed(cast("dict[str, Any]", value).items()):
        if isinstance(inner, dict):
            yield from _forms(inner, reply_type, depth + 1)
        elif key.casefold() in _WRAPPERS and isinstance(inner, list):
            yield inner
        elif key.casefold() in _WRAPPERS and isinstance(inner, str) and _START.search(inner):
            for held in reversed(_with_items(reply_values(inner).values, reply_type)):
                yield from _forms(held, reply_type, depth + 1)


def schema_for(messages: Sequence[Mapping[str, str]], reply_type: type[ReplyModel]) -> Mapping[str, Any] | None:
    """Return the schema that is sent with messages; None if they are of a prompt that asks for another form.

    A prompt that a person wrote asks for what it names. With a schema that it does not describe, a model would have to
    guess what belongs into the fields.
    """
    if not isinstance(messages, PromptMessages):
        return strict_schema(reply_type)
    schema = strict_schema(reply_type, messages.unwanted)
    words = {word for message in messages if message["role"] == "system" for word in _NAME.findall(message["content"])}
    return schema if _properties(schema) <= words else None


def _properties(schema: Any) -> set[str]:
    """Return the names of all properties in a schema."""
    if isinstance(schema, list):
        return set[str]().union(*map(_properties, cast("list[Any]", schema)))
    if not isinstance(schema, Mapping):
        return set()
    parts = cast("Mapping[str, Any]", schema)
    return set(parts.get("properties", ())).union(*map(_properties, parts.values()))


@cache
def strict_schema(reply_type: type[ReplyModel], unwanted: AbstractSet[str] = frozenset()) -> dict[str, Any]:
    """Return the JSON schema of a reply for OpenAI's strict mode: no additional properties, all keys required.

    Properties with an unwanted name are left out.
    """
    return cast("dict[str, Any]", _closed(reply_type.model_json_schema(), unwanted))


def _closed(schema: Any, unwanted: AbstractSet[str]) -> Any:
    if isinstance(schema, list):
        return [_closed(item, unwanted) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    parts = cast("dict[str, Any]", schema).items()
    closed = {key: _closed(value, unwanted) for key, value in parts if key != "title" or not isinstance(value, str)}
    closed.pop("default", None)
    if "properties" in closed:
        properties = {name: value for name, value in closed["properties"].items() if name not in unwanted}
        closed |= {"properties": properties, "required": list(properties), "additionalProperties": False}
    return closed
