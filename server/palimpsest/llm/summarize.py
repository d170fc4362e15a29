"""Write summaries, texts about an entity, gists, descriptions of pictures, annotations of memories and hints."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field

from palimpsest.core.models import KIND_TAGS, Annotation, Link, Memory, Message, tags_given
from palimpsest.core.protocols import LanguageModel
from palimpsest.core.validation import object_of, one_line, trimmed
from palimpsest.llm import ask
from palimpsest.llm.prompts import Prompt
from palimpsest.text.display import shorten_to_tokens

# Write summaries, texts about an entity, and gists of pages with a model.

# The summarize stage: one dense paragraph about a scope (the summary S in section 2.1 of the Mem0 paper).
#
# Each kind of summary has a prompt file of its own.

SUMMARY_INPUTS = frozenset({"today", "name", "kind", "previous", "memories", "messages"})

# The prompt file of each kind of summary, with those of `INPUTS` that it has. `summarize` is the one of `overall`.
PROMPTS: Mapping[str, frozenset[str]] = {
    "summarize": SUMMARY_INPUTS - {"name"},
    "recent": SUMMARY_INPUTS - {"name", "kind", "previous"},
    **dict.fromkeys(("day", "mood"), SUMMARY_INPUTS - {"name", "previous"}),
    "session": SUMMARY_INPUTS - {"name", "kind"},
    "profile": SUMMARY_INPUTS - {"kind", "messages"},
    **dict.fromkeys(("project", "procedures"), SUMMARY_INPUTS - {"name", "kind", "messages"}),
}

MAX_SUMMARY_CHARS = 8_000


class SummarizeReply(ask.ReplyModel):
    """The model's reply: `{"summary": "…"}`, or `{"text": "…"}`."""

    text: str = Field(validation_alias=AliasChoices("summary", "text"))


async def summarize(
    model: LanguageModel, prompt: Prompt, *, messages: Sequence[Message], now: datetime, **values: Any
) -> str:
    """Return the new summary of a kind. It is never empty. Raises ModelError.

    The prompt is one of `PROMPTS`. The `values` are its other inputs: the `kind`, such as "overall" or
    "day:2026-11-21", the `previous` text, the `memories`, which are objects with at least `text` and `date`, newest
    first, and the `name` of the person it is about.
    """
    said = [{"who": message.name or message.role, "text": message.content} for message in messages]
    values |= {"today": f"{now:%Y-%m-%d, %A}", "messages": said}
    rendered = prompt.render(**{name: values[name] for name in PROMPTS[prompt.name]})
    return await ask.ask(model, rendered, SummarizeReply, partial(_written, "summary", MAX_SUMMARY_CHARS))


# The about stage: a short text about one entity, from the lines that the ledger has on it.

ABOUT_INPUTS = frozenset({"today", "name", "lines"})

# How long the text may be: four times the words that the prompt asks for.
MAX_CHARS = 4_000


class AboutReply(SummarizeReply):
    """The model's reply: `{"about": "…"}`; `summary` and `text` mean the same."""

    text: str = Field(validation_alias=AliasChoices("about", "summary", "text"))


async def about(model: LanguageModel, prompt: Prompt, *, name: str, lines: Sequence[str], now: datetime) -> str:
    """Return a text about an entity, which is never empty. `lines` are all that it may say. Raises ModelError."""
    rendered = prompt.render(today=f"{now:%Y-%m-%d, %A}", name=name, lines=list(lines))
    return await ask.ask(model, rendered, AboutReply, partial(_written, "text", MAX_CHARS))


# Write the gist of a page of a document, as in ReadAgent (Lee et al. 2024, section 3.1).

GIST_INPUTS = frozenset({"title", "headings", "page"})

# The longest gist: the three sentences that are asked for have a third of it.
MAX_GIST_CHARS = 1_000


class GistReply(SummarizeReply):
    """What the model writes."""

    text: str = Field(validation_alias=AliasChoices("gist", "text", "summary"))


async def write_gist(model: LanguageModel, prompt: Prompt, *, title: str, headings: Sequence[str], page: str) -> str:
    """Return the gist of a page. It is never empty. Raises ModelError."""
    rendered = prompt.render(title=title, headings=list(headings), page=page)
    return await ask.ask(model, rendered, GistReply, partial(_written, "gist", MAX_GIST_CHARS))


# Find where a text pauses, as in ReadAgent (section 3.1): its pages end there.

PAUSE_INPUTS = frozenset({"title", "parts"})


class PausesReply(ask.ReplyModel):
    """The numbers of the parts with which pages begin. Those that were not shown are left out."""

    LIST_KEY = "pages"

    pages: ask.Numbers


async def pauses(model: LanguageModel, prompt: Prompt, *, title: str, parts: Sequence[tuple[int, str]]) -> list[int]:
    """Return the places of the parts with which a page begins, given the words and the text of each.

    Raises ModelError.
    """
    shown = [
        {"id": number, "words": words, "begins": shorten_to_tokens(text, PART_TOKENS)}
        for number, (words, text) in enumerate(parts)
    ]

    def known(reply: PausesReply) -> tuple[list[int], str]:
        return sorted({number for number in reply.pages if 0 < number < len(parts)}), ""

    return await ask.ask(model, prompt.render(title=title, parts=shown), PausesReply, known)


# How much of a part the model is shown: two sentences, which say whether something new begins.
PART_TOKENS = 40


def _written(what: str, max_chars: int, reply: SummarizeReply) -> tuple[str, str]:
    return _text(reply.text, what, max_chars), ""


def _text(text: str, what: str, max_chars: int) -> str:
    """Return what a model wrote, without white space around it. Raises ValueError if it is empty or too long."""
    written = trimmed(text)
    if not any(map(str.isalnum, written)) or ask.says_nothing(written):
        raise ValueError(f"the {what} is empty.")
    if len(written) > max_chars:
        raise ValueError(f"the {what} is longer than {max_chars} characters.")
    return written


# The describe stage: the picture of a message in words, by a model that sees it.

DESCRIBE_INPUTS = frozenset({"text"})

# How much of a description is kept: three sentences are less.
MAX_DESCRIPTION_CHARS = 1_000


async def describe(model: LanguageModel, prompt: Prompt, text: str, url: str) -> str:
    """Return what the picture at a URL shows, in one line without brackets. Raises ModelError.

    The URL goes to the model's endpoint, which fetches it. `text` is the message that the picture is in.
    """
    *system, asked = prompt.render(text=text)
    reply = await model.complete([*system, {**asked, "image": url}], None)
    return one_line(ask.reply_values(reply).answer)[:MAX_DESCRIPTION_CHARS].translate(str.maketrans("[]", "()"))


# The links stage: what new memories belong to, and which others they belong together with (A-Mem, section 3).
#
# The model sees small integers instead of ids. They are the places in the list that it was shown and nothing else,
# and a number that was not shown is an error. Nothing is ever looked up by the rank of a neighbour.

INPUTS = frozenset({"memories"})

# How long a context may be: twice the words that the prompt asks for.
MAX_CONTEXT_CHARS = 400

# How long a reason may be: a line.
MAX_REASON_CHARS = 200

# How long a tag may be: three words.
MAX_TAG_CHARS = 40

# How many tags and how many hints a memory gets at most, with those that it has: twice what the prompt asks for.
MAX_LABELS = 8


@dataclass(frozen=True, slots=True)
class Shown:
    """The memories that the model is shown, and for each new one the places of those that it is near to.

    The new ones are the keys of `near`. A memory that is not in `may_change` is shown, and stays as it is.
    """

    memories: tuple[Memory, ...]
    near: Mapping[int, Sequence[int]]
    may_change: frozenset[int]


class LinkReply(ask.ReplyItem):
    """A link to memory number `memory`."""

    memory: ask.Number
    reason: ask.Text


class NoteReply(ask.ReplyItem):
    """What the model says of memory number `memory`. What cannot be read is -1, which is no memory, or ""."""

    memory: ask.Number
    context: ask.Text
    tags: ask.Labels
    keywords: ask.Labels
    links: Annotated[list[LinkReply], BeforeValidator(lambda value: [*filter(object_of, ask.list_in(value))])]


class LinksReply(ask.ReplyModel):
    """The model's reply: `{"notes": […]}`, or the bare list."""

    LIST_KEY = "notes"

    notes: list[NoteReply]


async def links(model: LanguageModel, prompt: Prompt, shown: Shown) -> list[Annotation]:
    """Return what changes of the memories that were shown. Raises ModelError.

    New memories keep the tags and hints that they have; those of the others are changed if the model names any. New
    memories of which the model says nothing in either reply stay as they are. What is wrong in the second reply is
    left out, and the rest counts.
    """
    rendered = prompt.render(memories=_shown(shown))
    return await ask.ask(model, rendered, LinksReply, partial(_annotations, shown), when_cut=lambda found: found)


def _shown(shown: Shown) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            **ask.without_empty(text=memory.text, date=memory.date, context=memory.context, tags=list(memory.tags)),
            **ask.without_empty(keywords=[word for word in memory.keywords if not _stays(memory, word)]),
            **({"near": list(shown.near[number])} if number in shown.near else {}),
        }
        for number, memory in enumerate(shown.memories)
    ]


def _annotations(shown: Shown, reply: LinksReply) -> tuple[list[Annotation], str]:
    """Return the annotations of the notes that are right, and what is wrong: a note is missing, or cannot be used.

    Raises ValueError if there are notes and none is right.
    """
    found: dict[int, Annotation] = {}
    faults: list[str] = []
    for note in reply.notes:
        try:
            found[note.memory] = _annotation(note, shown)
        except ValueError as error:
            faults.append(str(error))
    if faults and not found:
        raise ValueError(faults[0])
    if missing := sorted(shown.near.keys() - {note.memory for note in reply.notes}):
        faults.insert(0, f"it has no note on memory {', '.join(map(str, missing))}.")
    return [found[number] for number in found if number in shown.may_change], next(iter(faults), "")


def _annotation(note: NoteReply, shown: Shown) -> Annotation:
    memory = _memory(note.memory, shown)
    is_new = note.memory in shown.near
    links_of = tuple(_link(link, note, shown) for link in note.links) if is_new else memory.links
    context = _text(note.context, f"context of memory {note.memory}", MAX_CONTEXT_CHARS)
    unique = tuple({link.memory_id: link for link in links_of}.values())
    tags = _labels(memory.tags, note.tags, lambda tag: is_new or tag in KIND_TAGS)
    keywords = _labels(memory.keywords, note.keywords, lambda word: is_new or _stays(memory, word))
    return Annotation(memory.id, context, tags, unique, keywords)


def _memory(number: int, shown: Shown) -> Memory:
    """Return the memory that was shown under a number. Raises ValueError if none was."""
    if not 0 <= number < len(shown.memories):
        raise ValueError(ask.unknown_memory(number, len(shown.memories)))
    return shown.memories[number]


def _link(link: LinkReply, note: NoteReply, shown: Shown) -> Link:
    other = _memory(link.memory, shown)
    if link.memory == note.memory:
        raise ValueError(f"memory {note.memory} is linked with itself.")
    return Link(other.id, _text(link.reason, "reason of a link", MAX_REASON_CHARS))


def _stays(memory: Memory, keyword: str) -> bool:
    """Return whether a hint is not the model's to change: a question that the memory answers, or a tag of a caller."""
    return keyword.endswith("?") or keyword in tags_given(memory.metadata)


def _labels(old: Sequence[str], replied: Sequence[str], stays: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the tags or hints of a reply after those old ones that stay, as far as there is room; the old for none."""
    new = [label for label in map(trimmed, replied) if 0 < len(label) <= MAX_TAG_CHARS and not label.endswith("?")]
    kept = [label for label in old if stays(label)]
    return tuple(dict.fromkeys((*kept, *new)))[: max(MAX_LABELS, len(kept))] if new else tuple(old)


# The enrich stage: hints for stored memories, which are questions that each answers and other words for it.
#
# The model sees small integers instead of ids, as for links.

# How much of a memory the model is shown: most are shorter, and the others begin with what they are about.
MAX_TEXT_TOKENS = 150

# How many questions and words are kept: as many as the prompt asks for, because one vector stands for all of them.
MAX_ASKS, MAX_WORDS = 2, 6


class HintsReply(ask.ReplyItem):
    """The hints for memory number `memory`, which is -1 if it cannot be read."""

    memory: ask.Number = Field(-1, validation_alias=AliasChoices("memory", "id"))
    asks: ask.Asks
    words: ask.Labels = Field([], validation_alias=AliasChoices("words", "keywords"))


class EnrichReply(ask.ReplyModel):
    """The model's reply: `{"hints": […]}`, or the bare list."""

    LIST_KEY = "hints"

    hints: list[HintsReply]


async def enrich(model: LanguageModel, prompt: Prompt, memories: Sequence[Memory]) -> dict[str, tuple[str, ...]]:
    """Return the hints for memories by the ids of these. Raises ModelError.

    A memory for which the model gives none in either reply is left out, and so is what is wrong in the second reply.
    """
    texts = (shorten_to_tokens(memory.text, MAX_TEXT_TOKENS) for memory in memories)
    messages = prompt.render(memories=[{"id": number, "text": text} for number, text in enumerate(texts)])
    return await ask.ask(model, messages, EnrichReply, partial(_by_id, memories), when_cut=lambda hints: hints)


def _by_id(memories: Sequence[Memory], reply: EnrichReply) -> tuple[dict[str, tuple[str, ...]], str]:
    """Return the hints of a reply, and what is wrong with it. Raises ValueError if there are none."""
    found: dict[str, tuple[str, ...]] = {}
    faults: list[str] = []
    for item in reply.hints:
        if not 0 <= item.memory < len(memories):
            faults.append(ask.unknown_memory(item.memory, len(memories)))
        elif hints := (*item.asks[:MAX_ASKS], *item.words[:MAX_WORDS]):
            found[memories[item.memory].id] = hints
    if missing := [str(number) for number, memory in enumerate(memories) if memory.id not in found]:
        faults.append(f"it has no hints for memory {', '.join(missing)}.")
    if not found:
        raise ValueError(faults[0])
    return found, next(iter(faults), "")
