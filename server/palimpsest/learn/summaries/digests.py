"""The kinds `day`, `session`, `recent` and `overall`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import Connection

from palimpsest.core.clock import first_instant
from palimpsest.core.errors import InputError
from palimpsest.core.models import EXPIRES_AT, Memory, Message, Scope, Summary, has_expired
from palimpsest.learn.summaries import portrait
from palimpsest.learn.summaries import summary_kinds as kinds
from palimpsest.learn.summaries.extractive import ended, without_contradicted
from palimpsest.learn.summaries.portrait import READ, Room, in_order_of_rank, line_of, most_telling_of, not_pinned
from palimpsest.learn.summaries.summary_kinds import Material, PlainText, SummaryKind, SummaryRequest
from palimpsest.store import memories as memory_queries
from palimpsest.store import messages as message_queries
from palimpsest.store import summaries
from palimpsest.store.memories import is_pinned
from palimpsest.text.tokenizer import count_tokens, lines_within

# The form of the summary `overall` without a model: what is lasting, and of the rest what is central and recent.

LASTING = {portrait.IDENTITY: 90, portrait.PEOPLE: 90, portrait.WORK: 60, portrait.PREFERENCES: 60, portrait.HELP: 60}
"""The sections of a profile that are lasting, each with its tokens, which nothing that is said later can take. Set by
hand: three fifths of the whole."""

REST = kinds.MAX_LISTED_TOKENS - sum(LASTING.values())
"""The tokens of all else: half of them for the project, if there is one."""

HALF_LIFE = timedelta(days=30)
"""What is not lasting was said lately, or is central: what was said this long ago has half the recency."""

USER, PROJECT, ALSO = "About the user", "About the project", "Also"


def overview(conn: Connection, request: SummaryRequest) -> PlainText:
    """Return all memories if they fit; else the lasting ones, and the most telling of the others.

    Who the user is comes first, then the newest. What a pinned memory says is not repeated. What a newer memory seems
    to end is left out, and counted with what does not fit.
    """
    held = not_pinned(conn, request, kinds.held_memories(conn, request, READ))
    total = len(held) if len(held) < READ else memory_queries.count_memories(conn, request.scope)
    has_ended = ended([(memory.text, memory.stated_at) for memory in held])
    contradicted = without_contradicted(conn, request.embedder, request.scope, held, request.now, only_changes=True)
    held = [
        memory for memory, is_over in zip(held, has_ended, strict=True) if not is_over and memory.id not in contradicted
    ]
    held = in_order_of_rank(held, memory_queries.name_of_user(conn, request.scope))
    lines = [kinds.dated(memory) for memory in held]
    shown: Sequence[Memory] = held
    if sum(count_tokens(f"{line}\n") for line in lines) > kinds.MAX_LISTED_TOKENS:
        lines, shown = _most_telling(conn, request, held)
    lines += kinds.omitted(total - len(shown), "memory")
    conversations = message_queries.list_conversations(conn, request.scope, kinds.MAX_LISTED_CONVERSATIONS)
    total = message_queries.count_conversations(conn, request.scope)[0]
    topics = kinds.topics_of(conversations, total, request.now.tzinfo)
    of = kinds.named(memories=shown, conversations=topics)
    return PlainText("\n".join((*lines, *topics)) or kinds.NOTHING, of, kinds.revisions(shown))


def _most_telling(
    conn: Connection, request: SummaryRequest, held: Sequence[Memory]
) -> tuple[list[str], Sequence[Memory]]:
    """Return the most telling memories under their headings as lines, and these memories."""
    groups = _grouped(conn, request, held)
    others = (PROJECT, ALSO) if request.scope.project else (ALSO,)
    rooms = {heading: Room(tokens) for heading, tokens in LASTING.items()}
    rooms |= {heading: Room(REST // len(others), HALF_LIFE) for heading in others}
    chosen = most_telling_of(conn, request, groups, rooms)
    name = memory_queries.name_of_user(conn, request.scope)
    about_user = in_order_of_rank((memory for heading in LASTING for memory in chosen[heading]), name)
    lines = [f"{USER}:", *map(line_of, about_user)] if about_user else []
    for heading in (PROJECT, ALSO):
        newest = sorted(chosen.get(heading, ()), key=lambda memory: memory.stated_at, reverse=True)
        title = f"{heading} {request.scope.project}" if heading == PROJECT else heading
        lines += [f"{title}:", *map(kinds.dated, newest)] if newest else []
    return lines, [memory for some in chosen.values() for memory in some]


def _grouped(conn: Connection, request: SummaryRequest, held: Sequence[Memory]) -> Mapping[str, Sequence[Memory]]:
    """Return the memories of each section, of the project and of all else."""
    place = portrait.place_of_user(conn, request, held)
    groups: dict[str, list[Memory]] = {heading: [] for heading in (*LASTING, PROJECT, ALSO)}
    for memory in held:
        if memory.scope.project:
            groups[PROJECT].append(memory)
        else:
            heading = ALSO if EXPIRES_AT in memory.metadata else place(memory)
            groups[heading].append(memory)
    return groups


# The kind `day`: what was said and learned on one day, as days are where the user is.
#
# Days make the summary of the kind `overall`.

MAX_MEMORIES = 300
MAX_MEMORY_TOKENS = 6_000
"""How many memories of a day are read. 20 tokens each, half of what a small model can take."""

MAX_DAY_MESSAGES = 500
MAX_DAY_TOKENS = 4_000
"""How many messages of a day are read, and how many tokens of them, spread over the day."""

DAYS_BACK = 14
"""How many past days the background looks at: what is older is read when it is asked for, so that an
import of years of conversations does not cost a call of the model for each of their days."""

A_DAY = timedelta(days=1)


def _day_material(conn: Connection, request: SummaryRequest) -> Material:
    memories, messages = _said_on_day(conn, request)
    return kinds.material_of(kinds.fitting(memories, MAX_MEMORY_TOKENS), messages, MAX_DAY_TOKENS)


def _plain_day(conn: Connection, request: SummaryRequest) -> PlainText:
    memories, messages = _said_on_day(conn, request)
    lines = [(f"- {kinds.shown_text(memory)}", memory) for memory in memories[::-1]]  # in the order of the day
    plain = kinds.lines_of(conn, request, lines, messages)
    return plain if plain.text else PlainText(f"Nothing was said on {request.argument}.", "")


def _said_on_day(conn: Connection, request: SummaryRequest) -> tuple[list[Memory], Sequence[Message]]:
    since, until = _bounds(request.argument, request.now)
    memories = summaries.memories_said(conn, request.scope, since, until, MAX_MEMORIES)
    messages = summaries.messages_said(conn, request.scope, since, until, MAX_DAY_MESSAGES)
    return kinds.unexpired(memories, request.now), messages


def _resolved_day(conn: Connection, request: SummaryRequest) -> str:
    """Return the day in ISO 8601; without one, the last on which something was said."""
    today, text = request.now.date(), request.argument.lower()
    if not text:
        said = days_with_something_said(conn, request.scope, request.now)
        return said[0] if said else f"{today}"
    named = {"today": today, "yesterday": today - A_DAY}
    try:
        return f"{named.get(text) or date.fromisoformat(text)}"
    except ValueError as error:
        last = f"use day:{today}, day:yesterday, or day for the last one"
        raise InputError(f"'{text[:80]}' is no day; {last}") from error


def _missed_of_day(conn: Connection, request: SummaryRequest, last: Summary) -> int:
    return summaries.count_said_since(conn, request.scope, last, *_bounds(request.argument, request.now))


def _due_days(conn: Connection, request: SummaryRequest, every: int) -> Sequence[str]:
    """Return the past days of whose memories and messages no summary has so many, the last first.

    What was said on quieter days is read by the summary of the kind `overall` as it is. Runs have no days: there may be
    many runs a day, and what is lasting in them is in the summary of the whole.
    """
    if request.scope.run_id:
        return ()
    today, zone = request.now.date(), request.now.tzinfo
    since, until = first_instant(today - DAYS_BACK * A_DAY, zone), first_instant(today, zone)
    said = summaries.dates_with_something_said(conn, request.scope, since, until, zone)
    return [day for day in said if _lacking(conn, request, day) >= every]


def days_with_something_said(conn: Connection, scope: Scope, now: datetime) -> list[str]:
    """Return the days until today on which something was said that lives, the last first."""
    end = first_instant(now.date() + A_DAY, now.tzinfo)
    return summaries.dates_with_something_said(conn, scope, datetime.min.replace(tzinfo=UTC), end, now.tzinfo)


def something_said_today(conn: Connection, scope: Scope, now: datetime) -> bool:
    """Return whether a scope has memories or messages of today, of which a summary may be due at the end of the day."""
    return not scope.run_id and summaries.count_said(conn, scope, *_bounds(f"{now.date()}", now)) > 0


def _lacking(conn: Connection, request: SummaryRequest, day: str) -> int:
    """Return how many memories and messages of a day no summary has."""
    last = summaries.current_summary(conn, request.scope, f"{request.kind.name}:{day}")
    if last is None:
        return summaries.count_said(conn, request.scope, *_bounds(day, request.now))
    return _missed_of_day(conn, replace(request, argument=day), last)


def _bounds(day: str, now: datetime) -> tuple[datetime, datetime]:
    """Return when a day begins and ends in the zone of a time."""
    first = date.fromisoformat(day)
    return first_instant(first, now.tzinfo), first_instant(first + A_DAY, now.tzinfo)


DAY = SummaryKind(
    "day",
    "day",
    _day_material,
    _plain_day,
    argument="DATE",
    resolved=_resolved_day,
    missed=_missed_of_day,
    due=_due_days,
    has_pinned=False,
)


# The kind `mood`: how the user was on a day, and what they needed (the daily personality of MemoryBank, section 2.1).


def _no_mood(_conn: Connection, _request: SummaryRequest) -> PlainText:
    return PlainText("A note on the mood of a day needs a language model.", "")


MOOD = replace(DAY, name="mood", prompt="mood", plain=_no_mood, is_of_user=True)


# The kind `session`: what was learned from one conversation, with the turns it came from.
#
# LoCoMo calls these observations, and found them to be the best unit of recall in its own study.

MAX_SESSION_MESSAGES = 500
MAX_SESSION_TOKENS = 6_000
"""How many messages of a conversation are read, and how many tokens of them, spread over it."""

MAX_TURNS = 3
"""How many turns stand beside an observation: more would be longer than what was learned."""

NO_CONVERSATION = "There is no conversation yet."


def _session_material(conn: Connection, request: SummaryRequest) -> Material:
    messages = _messages(conn, request)
    turns = _observations(conn, request, messages)
    memories = kinds.fitting([memory for memory, _ in turns])[::-1]
    by_id = {memory.id: names for memory, names in turns}
    return Material(
        tuple({**kinds.memory_item(memory), "messages": list(by_id[memory.id])} for memory in memories),
        kinds.spread(messages, MAX_SESSION_TOKENS),
        sources=kinds.revisions(memories),
        message_ids=tuple(message.id for message in messages),
    )


def _plain_session(conn: Connection, request: SummaryRequest) -> PlainText:
    messages = _messages(conn, request)
    observations = _observations(conn, request, messages)
    lines = [(f"- {kinds.shown_text(memory)} ({', '.join(turns)})", memory) for memory, turns in observations]
    plain = kinds.lines_of(conn, request, lines, () if lines else messages)
    return plain if plain.text else PlainText(NO_CONVERSATION, "")


def _messages(conn: Connection, request: SummaryRequest) -> list[Message]:
    if not request.argument:
        return []
    return summaries.messages_of_session(conn, request.scope, request.argument, MAX_SESSION_MESSAGES)


def _observations(
    conn: Connection, request: SummaryRequest, messages: Sequence[Message]
) -> list[tuple[Memory, tuple[str, ...]]]:
    """Return what was learned from messages and still holds, in their order, with the turns it came from."""
    learned = memory_queries.memories_from(conn, [message.id for message in messages])
    memories: dict[str, Memory] = {}
    turns: dict[str, list[str]] = {}
    for message in messages:
        for memory in learned.get(message.id, ()):
            is_seen = memory.scope.project in (request.scope.beside, request.scope.project)
            if is_seen and memory.deleted_at is None and not has_expired(memory.metadata, request.now):
                memories[memory.id] = memory.in_zone(request.now.tzinfo)
                turns.setdefault(memory.id, []).append(message.external_id or message.id[: kinds.SHORT_ID])
    return [(memory, tuple(turns[memory.id][:MAX_TURNS])) for memory in memories.values()]


def _resolved_session(conn: Connection, request: SummaryRequest) -> str:
    """Return the id of a conversation; without one, that of the last. "" if there is none."""
    if request.argument:
        return message_queries.find_conversation(conn, request.scope, request.argument, request.now.tzinfo)
    return summaries.last_session(conn, request.scope)


SESSION = SummaryKind(
    "session",
    "session",
    _session_material,
    _plain_session,
    argument="ID",
    resolved=_resolved_session,
    missed=lambda conn, request, last: summaries.count_in_session_since(conn, request.scope, last, request.argument),
    keeps_plain=True,
    has_pinned=False,
)


# The kind `recent`: what was said and what happened in the last days, whenever it was stored.

DAYS = timedelta(days=14)
"""How far back it looks."""

MAX_RECENT_MESSAGES = 40
MAX_RECENT_TOKENS = 4_000
"""How many of the last messages of that time it reads, and how many tokens of them."""


def _recent_material(conn: Connection, request: SummaryRequest) -> Material:
    since, until = request.now - DAYS, request.now + A_DAY
    found = summaries.memories_of_time(conn, request.scope, since, until, kinds.MAX_SOURCE_MEMORIES)
    memories = kinds.fitting(kinds.unexpired(found, request.now))
    messages = summaries.messages_said(conn, request.scope, since, until, MAX_RECENT_MESSAGES)
    return kinds.material_of(memories, messages, MAX_RECENT_TOKENS)


def _plain_recent(conn: Connection, request: SummaryRequest) -> PlainText:
    """Return what was said, happened or was talked about since a time as lines of text, within the token budget."""
    scope, since, until = request.scope, request.now - DAYS, request.now + A_DAY
    found = summaries.memories_of_time(conn, scope, since, until, kinds.MAX_LISTED_MEMORIES)
    memories = [memory for memory in kinds.unexpired(found, request.now) if not is_pinned(memory.metadata)]
    conversations = message_queries.list_conversations(conn, scope, kinds.MAX_LISTED_CONVERSATIONS)
    conversations = [conversation for conversation in conversations if conversation.ended_at >= since]
    by_line = {kinds.dated(memory): memory for memory in memories}
    shown = lines_within(list(by_line), kinds.MAX_LISTED_TOKENS)
    topics = kinds.topics_of(conversations, len(conversations), request.now.tzinfo)
    lines = [*shown, *kinds.omitted(len(by_line) - len(shown), "memory"), *topics]
    of = kinds.named(memories=memories, conversations=topics)
    return PlainText("\n".join(lines) or kinds.NOTHING, of, kinds.revisions(by_line[line] for line in shown))


RECENT = SummaryKind("recent", "recent", _recent_material, _plain_recent, ages=True)


# The kind `overall`: lasting knowledge.
#
# It is written from the last one and what came since: the summaries of days (the two levels of MemoryBank) and
# memories of days that have none. So what was told once and is lasting is carried on (the recursive summary of
# MemGPT). What has changed since is shown as it is and as it was, so that the last one is brought up to date. If
# something that it rests on was deleted, the next begins with an older one which that does not concern, and if there
# is none with what was said first.

MAX_PROMPTS = 4
"""How many prompts one summary reads at most. What does not fit them is read by the next one: about a year
of days, after a correction of something old."""

MAX_UNREAD = 2_000
MAX_DAYS = 400
"""How many memories and days are looked at for that: more than fit."""


def _overall_material(conn: Connection, request: SummaryRequest) -> Material:
    scope = request.scope
    base_id, base = summaries.base_summary(conn, scope, OVERALL.name)
    days = summaries.summaries_beyond(conn, scope, f"{DAY.name}:", base_id, MAX_DAYS)
    in_days = {memory_id for day in days for memory_id in day.sources}
    unread = kinds.holding(summaries.memories_beyond(conn, scope, base_id, MAX_UNREAD), request.now)
    parts: list[tuple[str, Summary | Memory]] = [(day.kind.removeprefix(f"{DAY.name}:"), day) for day in days]
    parts += [(f"{memory.stated_at:%Y-%m-%d}", memory) for memory in unread if memory.id not in in_days]
    parts.sort(key=lambda part: part[0], reverse=True)
    changed = kinds.corrections(conn, request, base)
    parts = parts[: kinds.how_many_fit([part.text for _, part in parts], MAX_PROMPTS * kinds.MAX_SOURCE_TOKENS)]
    items = [item for _, item in changed.values()]
    sources = dict(base.sources) if base is not None else {}
    sources |= kinds.revisions(memory for memory, _ in changed.values())
    message_ids = list(base.message_ids) if base is not None else []
    for date_of, part in parts:
        if isinstance(part, Summary):
            items.append({"text": part.text, "date": date_of, "of": "the whole day"})
            sources |= part.sources
            message_ids += part.message_ids
        else:
            items.append(kinds.memory_item(part))
            sources[part.id] = part.revision
    shown = {part.id for _, part in parts if isinstance(part, Memory)} | changed.keys()
    known = _known(
        conn, request, shown, kinds.MAX_SOURCE_TOKENS - sum(kinds.item_tokens(item["text"]) for item in items)
    )
    return Material(
        (*items, *map(kinds.memory_item, known)),
        previous=base.text if base is not None else "",
        sources=sources | kinds.revisions(known),
        message_ids=tuple(dict.fromkeys(message_ids)),
    )


def _known(conn: Connection, request: SummaryRequest, shown: set[str], room: int) -> Sequence[Memory]:
    """Return the newest memories that are not shown yet and fit: the model can hold the last summary against them.

    If the items need several prompts there is no `room`.
    """
    newest = [memory for _, memory in memory_queries.list_memories(conn, request.scope, kinds.MAX_SOURCE_MEMORIES)]
    others = [memory for memory in kinds.holding(newest, request.now) if memory.id not in shown]
    texts = [memory.text for memory in others]
    return others[: kinds.how_many_fit(texts, room)] if texts and kinds.item_tokens(texts[0]) <= room else ()


OVERALL = SummaryKind("overall", "summarize", _overall_material, overview, due_after=1)
