"""Kinds of summaries: what each is made from, when it is due, and its plain form."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, tzinfo
from typing import Any, NamedTuple

from sqlalchemy import Connection

from palimpsest.core.clock import TimeSpan, in_zone, shown_date
from palimpsest.core.models import Kind, Memory, Message, Scope, Summary, has_expired
from palimpsest.core.validation import one_line
from palimpsest.learn.engine import Engine
from palimpsest.learn.summaries import portrait_signs
from palimpsest.learn.summaries.extractive import Passage, most_telling
from palimpsest.recall.features import centred_vectors
from palimpsest.store import memories as memory_queries
from palimpsest.store import summaries
from palimpsest.store.memories import block_head, is_pinned, near_memories, pinned_memories, whose
from palimpsest.store.messages import ConversationSummary
from palimpsest.text.dates.date_finder import clocks_in, date_and_sense, dates_in, days_to_come, is_over
from palimpsest.text.display import counted, shorten, shorten_to_tokens, visible
from palimpsest.text.tokenizer import count_tokens, lines_within

# What a kind of summary is: what it is made from, by which prompt, when it is due, and its form without a model.
#
# The kinds themselves stand in modules of their own, and `summary_writer.py` lists them.

# How many tokens of memories go into one prompt. To fit the context of small models.
MAX_SOURCE_TOKENS = 12_000

# How many memories are read for a summary: 24 tokens each fill `MAX_SOURCE_TOKENS`.
MAX_SOURCE_MEMORIES = 500

# What an item has beside its text: the names of its fields and its date, as JSON.
ITEM_TOKENS = 10

# How much of a message is read for a summary: longer ones are mostly code, output and quotations.
MAX_MESSAGE_CHARS = 600


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """Which summary is wanted, of which scope, and when.

    `argument` is what follows the colon of the kind, such as a date. `embedder` is the fingerprint of the embedder
    whose vectors the ledger has. With `held_at` it is of what held in the world then.
    """

    kind: SummaryKind
    scope: Scope
    argument: str
    now: datetime
    embedder: str
    held_at: TimeSpan | None = None

    @property
    def name(self) -> str:
        """Return the kind under which the ledger keeps the summary, such as day:2026-11-21."""
        return f"{self.kind.name}:{self.argument}" if self.argument else self.kind.name


@dataclass(frozen=True, slots=True)
class Material:
    """What a model writes a summary from.

    `memories` is what the prompt calls memories: objects with at least `text` and `date`, newest first. Those that do
    not fit one prompt are read by several, the oldest first, each with the text of the one before as `previous`, which
    begins as the last summary. `name` is that of the person whose portrait it is. `sources` and `message_ids` are all
    that the text will rest on, as in `Summary`.
    """

    memories: tuple[Mapping[str, Any], ...] = ()
    messages: tuple[Message, ...] = ()
    previous: str = ""
    name: str = ""
    sources: Mapping[str, int] = field(default_factory=dict[str, int])
    message_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlainText:
    """The form of a summary that no model wrote. `of` says what it consists of, such as "memories"; "" if of nothing.

    `sources` are the memories that it shows, by id, with their revision.
    """

    text: str
    of: str
    sources: Mapping[str, int] = field(default_factory=dict[str, int])


def changes_since(conn: Connection, request: SummaryRequest, last: Summary) -> int:
    """Return how many changes of memories in the scope a summary does not include."""
    return summaries.count_changes_since(conn, request.scope, last.seq)


def due_by_changes(conn: Connection, request: SummaryRequest, every: int) -> Sequence[str]:
    """Return the empty argument if so many changes are not in the last summary that the background should write it."""
    if not request.kind.due_after:
        return ()
    last = summaries.latest_summary(conn, request.scope, request.kind.name)
    missed = summaries.count_changes_since(conn, request.scope, last.seq if last else 0)
    return ("",) if missed >= request.kind.due_after * every else ()


@dataclass(frozen=True, slots=True)
class SummaryKind:
    """A kind of summary.

    `prompt` is the name of its prompt file, whose inputs are in `llm/summarize.py`. `argument` says what follows
    the colon, such as "DATE"; nothing if it is empty. The functions read the ledger and block:

    - `material` returns what a model gets, and `plain` the form without a model.
    - `resolved` returns the argument in full, as the summary is stored under it: "2026-11-21" for "today". Raises
      InputError.
    - `missed` returns how much of what was said the last summary does not include.
    - `due` returns the arguments of the summaries that the background should write now; `every` is the setting
      `summary.every`. A kind without an argument returns an empty one, after `due_after` times as many changes as the
      setting says, or never if that is 0.

    With `ages` the text becomes outdated by time alone, so that a refresh always writes it again. With `keeps_plain`
    the plain form stands below the text of a model. With `is_of_user` it is the same in every project. The pinned block
    heads a summary without an argument.
    """

    name: str
    prompt: str
    material: Callable[[Connection, SummaryRequest], Material]
    plain: Callable[[Connection, SummaryRequest], PlainText]
    argument: str = ""
    resolved: Callable[[Connection, SummaryRequest], str] = lambda _, request: request.argument
    missed: Callable[[Connection, SummaryRequest, Summary], int] = changes_since
    due: Callable[[Connection, SummaryRequest, int], Sequence[str]] = due_by_changes
    due_after: int = 0
    ages: bool = False
    keeps_plain: bool = False
    is_of_user: bool = False


@dataclass(frozen=True, slots=True)
class SummaryResult:
    """A summary for the caller. `changes_since` is how many changes of memories were made since it was written.

    `sources` are the ids of the memories that it rests on. `lines` are what a text about an entity rests on. A text
    that `is_plain` was not written by a model. One that `is_cut` leaves out memories or messages for lack of room.
    """

    text: str
    kind: str
    changes_since: int
    notes: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    is_plain: bool = False
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class LiveKind:
    """A kind of which the ledger is read each time, so that it is never outdated and never due.

    `answer` gets what follows the colon, which `argument` describes, and the time that is asked about, if that is not
    now. Raises InputError and LedgerError.
    """

    name: str
    argument: str
    answer: Callable[[Engine, Scope, str, TimeSpan | None], Awaitable[SummaryResult]]


def holding(memories: Iterable[Memory], now: datetime) -> list[Memory]:
    """Return the memories that are not over yet, closed or not, in the zone of `now`."""
    return [memory.in_zone(now.tzinfo) for memory in memories if not is_over(memory, now)]


def unexpired(memories: Iterable[Memory], now: datetime) -> list[Memory]:
    """Return what was said on some days: also what had ended by then, but not what has expired."""
    return [memory.in_zone(now.tzinfo) for memory in memories if not has_expired(memory.metadata, now)]


def newest(conn: Connection, request: SummaryRequest, limit: int) -> list[Memory]:
    """Return the newest of the memories that hold now, or that held at the time asked about. Newest first."""
    if (span := request.held_at) is None:
        return holding((memory for _, memory in memory_queries.list_memories(conn, request.scope, limit)), request.now)
    known = memory_queries.list_memories(conn, request.scope, limit, with_closed=True)
    return [memory.in_zone(request.now.tzinfo) for _, memory in known if memory.may_hold_in(span)]


def memory_item(memory: Memory) -> Mapping[str, Any]:
    """Return a memory as prompts of summaries have it."""
    return {"text": memory.text, "date": memory.date}


Item = Callable[[Memory], Mapping[str, Any]]


def corrections(
    conn: Connection, request: SummaryRequest, last: Summary | None, item: Item = memory_item
) -> dict[str, tuple[Memory, Mapping[str, Any]]]:
    """Return the memories that have changed since a summary was written that rests on them, by id, with their items.

    An item also says what the memory `was` before, and `until` when it held, if it holds no longer.
    """
    zone = request.now.tzinfo
    changed: dict[str, tuple[Memory, Mapping[str, Any]]] = {}
    for stored, was in [] if last is None else summaries.changed_behind(conn, request.scope, last, request.now):
        memory, ended_at = stored.in_zone(zone), stored.deleted_at
        before = {"was": was} if was != memory.text else {}
        has_ended = ended_at is not None or memory.has_ended(request.now)
        until = {"until": memory.until or shown_date(in_zone(ended_at or request.now, zone))} if has_ended else {}
        changed[memory.id] = memory, {**item(memory), **before, **until}
    return changed


def revisions(memories: Iterable[Memory]) -> dict[str, int]:
    """Return memories by id with their revision, as a summary stores what it rests on."""
    return {memory.id: memory.revision for memory in memories}


def fitting(memories: Sequence[Memory], budget: int = MAX_SOURCE_TOKENS) -> Sequence[Memory]:
    """Return the memories, from the first on, that fit a token budget; at least one."""
    return memories[: how_many_fit([memory.text for memory in memories], budget)]


def item_tokens(text: str) -> int:
    """Return how many tokens an item with a text has in a prompt."""
    return count_tokens(text) + ITEM_TOKENS


def how_many_fit(texts: Sequence[str], budget: int) -> int:
    """Return how many of the texts, from the first on, fit a token budget; at least one, if there is one."""
    for number, text in enumerate(texts):
        budget -= item_tokens(text)
        if budget < 0:
            return max(number, 1)
    return len(texts)


def spread(messages: Sequence[Message], budget: int) -> tuple[Message, ...]:
    """Return messages that fit a token budget, spread over all of them, each cut to `MAX_MESSAGE_CHARS`."""
    cut = [replace(message, content=shorten(message.content, MAX_MESSAGE_CHARS)) for message in messages]
    while len(cut) > 1 and sum(count_tokens(message.content) for message in cut) > budget:
        cut = cut[::2]
    return tuple(cut)


def material_of(memories: Sequence[Memory], messages: Sequence[Message], message_tokens: int) -> Material:
    """Return memories, and as many of the messages as fit a token count, as what a summary is written from.

    The text rests on all of the messages, because which of them fit is chance.
    """
    return Material(
        tuple(map(memory_item, memories)),
        spread(messages, message_tokens),
        sources=revisions(memories),
        message_ids=tuple(message.id for message in messages),
    )


# The form of summaries without a model: memories, messages and conversations themselves, a line each. Blocking.

# How long a list of memories in place of a summary may be. It takes space in an agent's context.
MAX_LISTED_TOKENS = 600

# How much of one memory is shown. A fact is a sentence; a long note would take the room of many.
LINE_TOKENS = 60

# How many memories are read for such a list, of which far fewer fit.
MAX_LISTED_MEMORIES = 200

# How many conversations are read for such a list, how long their lines may be together, and how much of a first message
# stands for a title.
MAX_LISTED_CONVERSATIONS = 50
MAX_TOPIC_TOKENS = 300
MAX_TOPIC_CHARS = 80

# How much of a message's own id is shown: enough for `get_history`.
SHORT_ID = 8

# How a line ends that says how many are left out: of a list, and of what is known about somebody.
NOT_SHOWN, MORE = " not shown.)", " more)"

NOTHING = "Nothing is known yet."


def dated(memory: Memory, *, has_date: bool = True) -> str:
    """Return the line of a memory with its id and, if it is to have one, its date."""
    text = shown_text(memory)
    return f"- [{memory.id[:SHORT_ID]}] {f'{date_and_sense(memory, text)} ' if has_date else ''}{text}"


def shown_text(memory: Memory) -> str:
    """Return the text of a memory on one line, cut if it is long."""
    return shorten_to_tokens(one_line(memory.text), LINE_TOKENS)


def named(**parts: Sequence[object]) -> str:
    """Return what a list consists of, such as "memories and conversations"; "" if of nothing."""
    return " and ".join(name for name, some in parts.items() if some)


def topics_of(conversations: Sequence[ConversationSummary], total: int, zone: tzinfo | None) -> list[str]:
    """Return a line on each conversation that fits, with its day in a zone, under a heading; nothing without any."""
    topics = lines_within([_topic(conversation, zone) for conversation in conversations], MAX_TOPIC_TOKENS)
    return ["Conversations:", *topics, *omitted(total - len(topics), "conversation")] if topics else []


def omitted(count: int, noun: str) -> list[str]:
    """Return the line that says how many are not shown; nothing if all are."""
    return [f"({counted(count, f'more {noun}')} {'is' if count == 1 else 'are'}{NOT_SHOWN}"] if count else []


def is_cut(text: str) -> bool:
    """Return whether a list says that it does not show all."""
    return any(line.endswith((NOT_SHOWN, MORE)) for line in text.splitlines())


def lines_of(
    conn: Connection, request: SummaryRequest, memories: Sequence[tuple[str, Memory]], messages: Sequence[Message]
) -> PlainText:
    """Return the lines of memories, then of messages, in the order they are given.

    If not all fit, those are shown that say most together. Without any the text is empty.
    """
    shown, left = _telling(conn, request, "memory", memories)
    said, unsaid = _telling(conn, request, "message", [(_words(message), message.as_memory) for message in messages])
    lines = [*(line for line, _ in shown), *omitted(left, "memory")]
    lines += ["Messages:"] if shown and said else []
    lines += [*(line for line, _ in said), *omitted(unsaid, "message")]
    return PlainText("\n".join(lines), named(memories=shown, messages=said), revisions(memory for _, memory in shown))


def _words(message: Message) -> str:
    """Return the line of a message: the beginning of its id, who said it, and what, cut if it is long."""
    said = shorten_to_tokens(one_line(message.content), LINE_TOKENS)
    return f"- [{message.id[:SHORT_ID]}] {message.name or message.role}: {said}"


def _telling(
    conn: Connection, request: SummaryRequest, kind: Kind, lines: Sequence[tuple[str, Memory]]
) -> tuple[Sequence[tuple[str, Memory]], int]:
    """Return the lines that fit and say most together, in their order, and how many are left out."""
    costs = [count_tokens(f"{line}\n") for line, _ in lines]
    if sum(costs) <= MAX_LISTED_TOKENS or not lines:
        return lines, 0
    vectors = centred_vectors(conn, request.embedder, request.scope, kind, [owner.id for _, owner in lines])
    passages = [
        Passage(line, owner.at, vectors.get(owner.id), tokens=cost)
        for (line, owner), cost in zip(lines, costs, strict=True)
    ]
    positions = sorted(most_telling(passages, MAX_LISTED_TOKENS)) or [0]
    return [lines[position] for position in positions], len(lines) - len(positions)


def _topic(conversation: ConversationSummary, zone: tzinfo | None) -> str:
    """Return a line on a conversation: its title, or the first words of it."""
    first = "" if conversation.first is None else shorten(one_line(conversation.first.content), MAX_TOPIC_CHARS)
    what = conversation.title or (f'"{first}"' if first else "untitled")
    day = shown_date(in_zone(conversation.ended_at, zone))
    return f"- {day} {what} ({counted(conversation.messages, 'message')})"


# The pinned block as text, as it heads summaries.

HEADING = "Pinned:"


def pinned_block(conn: Connection, scope: Scope, now: datetime) -> str:
    """Return what is pinned for a scope, in order and word for word, with what to edit it by; "" if nothing is.

    What belongs to agents or runs that the scope does not name follows, with whose it is.
    """
    held = [memory for memory in pinned_memories(conn, scope) if not memory.has_ended(now)]
    lines = [
        # Further lines of a text are indented, so that they are seen to belong to it.
        f"- {visible(whose(memory, scope))}{block_head(memory)}" + "\n  ".join(memory.text.splitlines())
        for memory in sorted(held, key=lambda memory: whose(memory, scope) != "")
    ]
    return "\n".join((HEADING, *lines)) if lines else ""


# What is due in the next days, in any project if the scope has none.

DUE = "Due:"

# How far ahead it is looked, and up to when it comes before all else but the health of the user and their people.
DUE_WITHIN, URGENT_WITHIN = timedelta(days=7), timedelta(days=1)

# How much of a text is shown, and how much if more of them fit then.
DUE_CHARS = (140, 100, 80, 60)


class Due(NamedTuple):
    """What is due: how its line begins, its text and the id of its memory. The most urgent has the lowest `place`."""

    head: str
    text: str
    id: str
    place: tuple[bool, date]

    def line(self, max_chars: int) -> str:
        """Return its line, with the text cut, but never the hour or what somebody's safety depends on."""
        text = shorten(self.text, max_chars)
        if portrait_signs.SAFETY.count(text) < portrait_signs.SAFETY.count(self.text):
            text = shorten(self.text, 2 * DUE_CHARS[0])
        if text != self.text and (clocks := clocks_in(self.text)) and clocks[0][0] >= len(text):
            text += f" {clocks[0][1]}"
        return f"- {self.head}: {text}"


def due_on(memory: Memory, now: datetime) -> list[tuple[date, datetime, str]]:
    """Return the next near day on which a memory is due, when that is over, and "on", "from" or "until" it.

    None if it is not due.
    """
    soon, days = now.date() + DUE_WITHIN, days_to_come(memory, now.tzinfo)
    near = sorted((day, over, word) for word, day, over in days if over > now and now.date() <= day <= soon)
    return near[:1] if memory.superseded_by is None else []


def due_of(memories: Iterable[Memory], scope: Scope, now: datetime) -> list[Due]:
    """Return what is due of some memories, what is nearest first."""
    due = [(*found, memory) for memory in memories for found in due_on(memory, now)]
    due.sort(key=lambda each: (*each[:2], each[2] != "on"))
    return [_due(day, word, memory, scope, now) for day, _, word, memory in due]


def _due(day: date, word: str, memory: Memory, scope: Scope, now: datetime) -> Due:
    """Return what is due. Its text does not repeat the day."""
    text, is_elsewhere = memory.text, memory.scope.project not in ("", scope.project)
    for span in dates_in(text, memory.stated_at):
        if span.unit == "day" and span.start.date() == day and any(map(str.isdigit, span.phrase)):
            pattern = portrait_signs.DAY.replace("PHRASE", re.escape(span.phrase))
            text = re.sub(pattern, "", text, count=1, flags=re.IGNORECASE).lstrip()
    of = f"({shorten_to_tokens(one_line(memory.scope.project.rsplit('/')[-1]), 30)}) " if is_elsewhere else ""
    is_urgent = portrait_signs.is_of_health(memory) or day <= now.date() + URGENT_WITHIN
    return Due(f"{of}{word} {day}", one_line(text), memory.id, (not is_urgent, day if is_urgent else date.max))


def due_block(conn: Connection, scope: Scope, now: datetime) -> str:
    """Return what is due in the next days with the ids of its memories, the nearest first; "" if nothing is."""
    near = near_memories(conn, scope, now - DUE_WITHIN, now + 2 * DUE_WITHIN)
    due = due_of((each for each in holding(near, now) if not is_pinned(each.metadata)), scope, now)
    lines = [each._replace(head=f"[{each.id[:SHORT_ID]}] {each.head}").line(DUE_CHARS[0]) for each in due]
    return "\n".join((DUE, *lines)) if lines else ""
