"""The brief of a session and what is recalled for a prompt: written, rendered to files, and kept current."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence, Set
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache, partial
from itertools import accumulate, takewhile
from pathlib import Path
from typing import NamedTuple, TypeAlias

import anyio
import anyio.to_thread
from filelock import Timeout
from pydantic import BaseModel, TypeAdapter, ValidationError
from sqlalchemy import Connection

from palimpsest.core.clock import first_instant, iso, shown_date
from palimpsest.core.errors import FullTextError, LedgerError, logged
from palimpsest.core.files import file_lock
from palimpsest.core.models import EXPIRES_AT, SURE, Event, Hit, Memory, Message, Outcome, Scope, has_expired
from palimpsest.core.settings import Settings
from palimpsest.core.threads import Threads
from palimpsest.core.validation import MAX_TOKENS as MAX_SEARCH_TOKENS
from palimpsest.core.validation import one_line
from palimpsest.hooks import spool
from palimpsest.hooks.events import CAPTURING
from palimpsest.hooks.instructions import (
    HEAD,
    INSTRUCTIONS,
    MAX_FILE_BYTES,
    NEVER,
    NEW_AGENT,
    REST,
    SIGN,
    TEXTS,
    VERSION,
    in_folder,
    key_of,
)
from palimpsest.hooks.intake import clean_text, read_records, scope_of, waiting_files
from palimpsest.hooks.spool import BLOCK_BEGIN, BLOCK_END
from palimpsest.hooks.transcripts import context_tokens, write_file
from palimpsest.learn.background import OnLearned
from palimpsest.learn.engine import Engine
from palimpsest.learn.recall_log import RecallLog, forgetting_of
from palimpsest.learn.summaries import kept_kinds, portrait_signs
from palimpsest.learn.summaries.extractive import without_contradicted
from palimpsest.learn.summaries.portrait_signs import MUST, SAFETY, WHO, Rank, is_safety, names_relative
from palimpsest.learn.summaries.summary_kinds import DUE, DUE_CHARS, DUE_WITHIN, Due, SummaryRequest, due_of, due_on
from palimpsest.recall.hits import within_budget
from palimpsest.recall.score import BRIEF
from palimpsest.recall.search import SearchQuery, SearchResult, search
from palimpsest.store import entries, summaries
from palimpsest.store import memories as memory_queries
from palimpsest.store import messages as message_queries
from palimpsest.store import projects as project_queries
from palimpsest.store.database import MAX_QUERY_TOKENS
from palimpsest.store.ledger import Ledger
from palimpsest.store.rows import grouped, memory_hash
from palimpsest.text.dates.date_finder import date_and_sense, dates_in, days_to_come, is_over
from palimpsest.text.display import inert, shorten_to_tokens, visible
from palimpsest.text.intents import asks_something, lasting_sentences, says_something, standing_statements
from palimpsest.text.redaction import redact, says_only_secrets
from palimpsest.text.tokenizer import count_tokens, query_tokens, search_tokens, sentences

logger = logging.getLogger(__name__)

# Memories as lines for a model: on one line, nothing that acts, whole sentences where there is little room.


def plain(text: str) -> str:
    """Return a text as one line, with visible control characters, and without markup that a model could follow."""
    return visible(one_line(inert(text)))


def dated(memory: Memory, text: str, *, is_lasting: bool = False) -> str:
    """Return the text of a memory after its date, unless the text says that date itself.

    What is pinned or lasts has one only if the text counts from it.

    What is pinned begins with what an edit of it needs.
    """
    head, dates = memory_queries.block_head(memory), dates_in(text, memory.at, guesses=True)
    is_undated = bool(is_lasting or head) and memory.happened_at is None and not memory.is_dated
    # What ends keeps the date by which its line is left out when it is read later.
    is_said = not memory.until and memory.since in {f"{each.start:%Y-%m-%d}" for each in dates}
    is_clear = not any(each.is_relative or each.is_year_guessed or each.is_guess for each in dates)
    if (is_undated or is_said) and is_clear:
        return f"- {head}{text}"
    return f"- {head}{date_and_sense(memory, text)} {text}"


class Line(NamedTuple):
    """A line for a model, and the id of the memory, or of the recalled message, that it shows, "" for none."""

    text: str
    id: str = ""


# What a line with its line break takes of a room: tokens or characters.
Cost: TypeAlias = Callable[[str], int]


# Lines below a heading, and which share they may take of the room that is left.
Group: TypeAlias = tuple[str, Sequence[Line], float]


def _pinned_chars(memory: Memory, chars: int) -> int:
    """Return what so many characters of a memory take of what one scope may pin."""
    return memory_queries.pinned_size(memory) - len(memory.text) + chars


def _pinned_lines(
    sources: Sources, room: int = memory_queries.MAX_CHARS, cost: Callable[[Memory, int], int] = _pinned_chars
) -> list[Line]:
    """Return what is pinned with all its lines, as edits count them, up to what one scope may pin.

    If it is more, what never yields, what safety depends on and the shortest are whole, and come first. Of others the
    beginning is shown, or how many they are. `cost` is what so many characters of a memory take of the room.
    """
    sizes = {memory.id: cost(memory, len(memory.text)) for memory in sources.pinned}
    others = sorted(sources.pinned[sources.must :], key=lambda memory: (not is_safety(memory, ""), sizes[memory.id]))
    whole = set[str]()
    for place, memory in enumerate((*sources.pinned[: sources.must], *others)):
        if sizes[memory.id] <= room:
            whole.add(memory.id)
            room -= sizes[memory.id]
        elif place < sources.must:
            break  # so that all have a share of what is left
    lines = [_pinned_line(memory, len(memory.text)) for memory in sources.pinned if memory.id in whole]
    cut = [memory for memory in sources.pinned if memory.id not in whole]
    for place, memory in enumerate(cut):
        share = room // (len(cut) - place)
        chars = bisect_right(range(len(memory.text) + 1), share, key=partial(cost, memory)) - 1
        if chars >= min(MIN_CUT_CHARS, len(memory.text)):
            lines.append(_pinned_line(memory, chars))
            room -= cost(memory, chars)
    left_out = len(sources.pinned) - len(lines)
    return [*lines, Line(f"({left_out} more: below, or in get_summary)")] if left_out else lines


def _pinned_line(memory: Memory, chars: int) -> Line:
    text, left_out = memory.text[:chars], len(memory.text) - chars
    note = f" … ({left_out:,} characters more: below, or in get_summary)" if left_out > 0 else ""
    return Line(dated(memory, "\n  ".join(map(plain, text.split("\n"))) + note), memory.id)


def beginning(text: str, max_tokens: int) -> str:
    """Return as many whole sentences from the beginning of a text as fit a token count; "" if none does."""
    if count_tokens(text) <= max_tokens:
        return text
    beginnings = map(str.rstrip, accumulate(sentences(text)))
    return max(takewhile(lambda whole: count_tokens(whole) <= max_tokens, beginnings), key=len, default="")


def fitting(lines: Iterable[Line], room: float, cost: Cost) -> list[Line]:
    """Return the lines that fit into a room together, also those behind one that does not fit."""
    kept: list[Line] = []
    for line in lines:
        if (taken := cost(line.text)) <= room:
            kept.append(line)
            room -= taken
    return kept


def _sections(groups: Sequence[Group], room: int, cost: Cost) -> list[list[Line]]:
    """Return the lines of groups that fit into a room, each group after its heading, without those that have none.

    What is pinned is shown in any case; others have what its share leaves them.
    """
    sections: list[list[Line]] = []
    left: float = room
    for heading, lines, share in groups:
        kept = lines if heading == PINNED else fitting(lines, share * left - cost(heading), cost)
        if kept:
            sections.append([Line(heading), *kept])
            left = max(left - sum(cost(line.text) for line in sections[-1]), (1 - share) * left)
    return sections


def line_tokens(line: str) -> int:
    """Return what a line costs with its line break, in tokens."""
    return count_tokens(f"{line}\n")


# Which memories say most about a user, if only a few can be shown, and which of them must never be left out.

# Tags of what holds for long. The model gives them; memories in an agent's words have none.
LASTING = frozenset(
    {"identity", "work", "health", "family", "relationship", "preference", "skill", "place", "instruction"}
)

_LASTING = (portrait_signs.PREFERENCES, portrait_signs.PEOPLE, portrait_signs.WORK, portrait_signs.HELP)

# What each sign is worth: a fact about the user comes before one about the world, whatever its age, and a lasting fact
# before what happened once. What will happen within `SOON` is worth half a lasting fact.
ABOUT_USER, IS_LASTING, IS_PAST, IS_SOON = 1.5, 1.0, -1.0, 0.5

# What holds only for so long, and holds now, comes before what it is an exception of.
IS_EXCEPTION = ABOUT_USER + IS_LASTING

# A fact that was last said this long ago is worth half a point less than a new one; at most one point.
FADES_WITHIN = timedelta(days=180)

SOON = timedelta(days=30)


def rank_by_worth(
    memories: Sequence[Memory], said: Mapping[str, int], ranks: Mapping[str, Rank], own: Set[str], now: datetime
) -> list[Memory]:
    """Return memories by rank, and then those first that are about the user or their people, lasting, often said, new.

    `said` is how many messages each was learned from, by its id, as in `ranks`. `own` are the keys of the user's names.
    """

    def place(memory: Memory) -> tuple[int, float, float]:
        age = max(now - memory.stated_at, timedelta())
        worth = 0.5 * math.log2(1 + said.get(memory.id, 0)) + 2 ** (-age / FADES_WITHIN)
        worth += ABOUT_USER * (kept_kinds.is_of_user(own, memory) or names_relative(memory.text, own))
        is_held = memory.happened_at is None and memory.holds_from <= now
        is_worded = is_held and any(words.count(memory.text) for words in _LASTING)
        worth += IS_LASTING if is_worded or not LASTING.isdisjoint(memory.all_tags) else 0.0
        if memory.happened_at is not None:
            worth += IS_SOON if now <= memory.happened_at <= now + SOON else IS_PAST
        elif is_held and memory.valid_from and memory.valid_until and memory.valid_until - memory.valid_from < BRIEF:
            worth += IS_EXCEPTION
        return ranks[memory.id], -worth, -memory.stated_at.timestamp()

    return sorted(memories, key=place)


# Read from the ledger what a session begins with.

# Which summaries say who the user is: the first that is current is shown.
KINDS = ("profile", "overall")

# Among how many of the newest global memories the most telling are looked for: some tenths of a second.
MAX_GLOBAL = 500

# How far ahead it is looked in a project for what is due and of none, and how much of what is due is shown.
GENERAL_DUE_WITHIN, MAX_DUE = timedelta(days=2), 5

# How many memories of a project are read: more than fit.
MAX_OF_PROJECT = 50

# How many of the most telling are put into words: more than fit.
MAX_TELLING = 100

# How many entries are looked at that have some of the words of safety and of identity, however old.
MAX_BY_WORDS = 200

# How the full text has the words of safety and of who somebody is.
_TOKENS = frozenset(
    token
    for signs in (SAFETY, WHO)
    for word in (*signs.words, *signs.unspaced)
    for token in search_tokens(word)
    if len(token) > 1
)


@dataclass(frozen=True, slots=True)
class Sources:
    """What is known at the start of a session. No memory is in two of the groups.

    `first` never yields to what is new or pinned: the user's name, what the safety of the user's people depends on, who
    the user is, and what is dangerous for people who may be the user's. `due` is what was planned for one of the next
    days, or ends on one, in any project if there is none. `pinned` is the block of the user and of the project: first,
    as many as `must`, what never yields; with `begins_pinned` it has what most depends on. `help` is how the user wants
    to be helped, unless the profile says it.
    `of_project` are the memories of the project: what it is, its terms, its rules and commands, then others, each with
    the newest first; `telling` are other memories of the user, the most telling first. Without a project, `projects`
    are the names of those that the user has.
    `procedures` say how an agent should work: the lines that a model wrote of it, or else no line but the memories
    `practice`, what was corrected first, then what worked and what failed.
    `profile` are the lines of the written profile of the user, or of the summary; none if there is neither or both say
    what no longer holds. `last_words` are the last exchange of the last conversation that
    says something: what the user said, and the answer if there is one. `until` is when time alone changes any of it.
    """

    first: Sequence[Memory] = ()
    due: Sequence[Due] = ()
    pinned: Sequence[Memory] = ()
    must: int = 0
    help: Sequence[Memory] = ()
    practice: Sequence[Memory] = ()
    procedures: tuple[str, ...] = ()
    profile: tuple[str, ...] = ()
    telling: Sequence[Memory] = ()
    of_project: Sequence[Memory] = ()
    projects: Sequence[str] = ()
    last_words: Sequence[Message] = ()
    until: float = NEVER
    begins_pinned: bool = False


# Reads what is known at the start of a session in a scope.
ReadSources: TypeAlias = Callable[[Scope], Sources]


def read_sources(ledger: Ledger, conn: Connection, scope: Scope, now: datetime, embedder: str) -> Sources:
    """Return what is known at the start of a session in a scope. `embedder` is the fingerprint of the embedder.

    Memories that expire or are over are left out, because what is rendered may be read at any time later; so are those
    that a newer one contradicts, unless they are pinned, those whose text was a secret, and those that a page, a
    file or a tool told and nobody confirmed.
    Times are those of the zone of `now`.
    """
    user_scope = scope.general
    newest = [memory for _, memory in memory_queries.list_memories(conn, user_scope, MAX_GLOBAL)]
    of_project = memory_queries.newest_of_project(conn, scope, MAX_OF_PROJECT) if scope.project else []
    near = memory_queries.near_memories(conn, scope, now - DUE_WITHIN, now + 2 * DUE_WITHIN)
    naming = memory_queries.memories_telling_name(conn, scope)[:1]
    pinned = memory_queries.pinned_memories(conn, scope)
    must = _never_yielding(ledger, conn, scope)
    found = {each.id: each for each in (*pinned, *of_project, *must, *naming, *newest, *near)}
    held = [memory.in_zone(now.tzinfo) for memory in found.values() if not _is_left_out(memory, now)]
    known = [memory for memory in held if memory.scope.project in ("", scope.project)]
    elsewhere = [each for each in held if each.scope.project not in ("", scope.project) and due_on(each, now)]
    times_said = Counter(owner for owner, _ in memory_queries.messages_of(conn, [memory.id for memory in known]))
    name, own = kept_kinds.own_names(conn, scope, known)
    ranks = kept_kinds.own_ranks(name, own, known)
    ranked = rank_by_worth(known, times_said, ranks, own, now)
    compared = [*pinned, *elsewhere, *ranked, *of_project]
    contradicted = without_contradicted(conn, embedder, user_scope, compared, now) - {memory.id for memory in pinned}
    # What takes place today is no state that a newer one ends.
    contradicted -= {memory.id for memory in held if "on" in [word for *_, word in due_on(memory, now)]}
    groups: defaultdict[str, list[Memory]] = defaultdict(list)
    for memory in ranked:
        if memory.id not in contradicted:
            groups[_group_of(memory, ranks[memory.id], name, now, scope)].append(memory)
    places = {memory_id: place for place, memory_id in enumerate(found)}  # in the order of the block, and by age
    groups["pinned"].sort(key=lambda memory: (min(ranks[memory.id], Rank.HELP), places[memory.id]))
    own_pinned = [memory for memory in groups["pinned"] if not memory_queries.whose(memory, scope)]
    groups["of_project"].sort(key=lambda memory: places[memory.id])
    groups["due"] += [memory for memory in elsewhere if memory.id not in contradicted]
    if groups["of_project"]:  # for which the user's own days leave room until they are near
        far = now.date() + GENERAL_DUE_WITHIN
        groups["due"] = [each for each in groups["due"] if each.scope.project or due_on(each, now)[0][0] <= far]
    is_any_written = summaries.newest_number(conn, scope.user_id) > 0  # seldom, and cheaper to ask for
    profile = _written(conn, user_scope, KINDS if is_any_written else (), contradicted, now)
    procedures = _written(conn, scope, ("procedures",) if is_any_written else (), contradicted, now)
    last_words = _last_exchange(message_queries.last_conversation(conn, scope))
    return Sources(
        first=sorted(groups["first"], key=lambda memory: ranks[memory.id] is not Rank.NAME),
        due=due_of(groups["due"], scope, now),
        pinned=own_pinned,
        must=sum(ranks[memory.id] <= MUST for memory in own_pinned),
        help=[] if profile else groups["help"],
        practice=[] if procedures else [*groups["corrected"], *groups["learned"]],
        procedures=procedures,
        profile=profile,
        telling=groups["telling"][:MAX_TELLING],
        of_project=kept_kinds.in_order_of_project(scope.project, groups["of_project"], now),
        projects=[] if scope.project else list(filter(None, project_queries.project_names(conn, scope.user_id))),
        last_words=[message.in_zone(now.tzinfo) for message in last_words],
        until=_changes_at(held, now),
        begins_pinned=any(memory_queries.is_pinned(memory.metadata) for memory in ranked[:1]),
    )


def _group_of(memory: Memory, rank: Rank, user_name: str, now: datetime, scope: Scope) -> str:
    """Return which group of what a session begins with a memory belongs to.

    In a project, of who the user is only the name is as urgent as what somebody's safety depends on.
    """
    if memory_queries.is_pinned(memory.metadata):
        return "pinned"
    is_danger = not memory.scope.project and is_safety(memory, user_name)
    is_first = rank <= (Rank.NAME if scope.project and not is_danger else MUST)
    if is_first and "on" not in [word for word, *_ in days_to_come(memory, now.tzinfo)]:
        return "first"
    if due_on(memory, now):
        return "due"
    if "correction" in memory.all_tags:
        return "corrected"
    if kept_kinds.place_in_procedures(user_name, memory) in (kept_kinds.WORKED, kept_kinds.FAILED):
        return "learned"  # rules stay with `help` and with the project
    return "of_project" if memory.scope.project else "help" if rank is Rank.HELP else "telling"


def _changes_at(memories: Sequence[Memory], now: datetime) -> float:
    """Return when what is to come becomes due, begins or ends: on the next day, or with an event of today."""
    ends = [over for memory in memories for _, _, over in days_to_come(memory, now.tzinfo) if over > now]
    return min(first_instant(now.date() + timedelta(days=1), now.tzinfo), *ends).timestamp() if ends else NEVER


def _last_exchange(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return what the user said last that says something, with the last answer to it."""
    last: dict[str, Message] = {}
    is_telling = False
    for message in messages:
        if message.role == "user":
            is_telling = says_something(message.content) and not says_only_secrets(message.content)
            last = {"user": message} if is_telling else last
        elif message.role == "assistant" and is_telling:
            last["assistant"] = message
    return tuple(last.values())


def _is_left_out(memory: Memory, now: datetime) -> bool:
    """Return whether a memory expires or is over, or says nothing that somebody told and that may be shown."""
    has_end = EXPIRES_AT in memory.metadata or is_over(memory, now)
    return has_end or memory_queries.is_unconfirmed(memory.metadata) or says_only_secrets(memory.text)


def _never_yielding(ledger: Ledger, conn: Connection, scope: Scope) -> list[Memory]:
    """Return memories with a word of safety or of identity, however old they are. A damaged full text finds none."""
    try:
        known = list(ledger.full_text.document_counts(conn, scope.user_id, _TOKENS))
        words = (known[start : start + MAX_QUERY_TOKENS] for start in range(0, len(known), MAX_QUERY_TOKENS))
        seqs = {seq for some in words for seq in ledger.full_text.search(conn, scope, some, MAX_BY_WORDS)}
    except FullTextError:
        return []
    return entries.memories_at(conn, scope, seqs)


def _written(
    conn: Connection, scope: Scope, kinds: Sequence[str], contradicted: frozenset[str], now: datetime
) -> tuple[str, ...]:
    """Return the lines of the first kept summary, unless it rests on what is contradicted or not confirmed."""
    for kind in kinds:
        if summary := summaries.current_summary(conn, scope, kind, now):
            behind = memory_queries.memories_by_id(conn, list(summaries.behind(conn, summary.scope, summary.kind)[0]))
            is_confirmed = not any(memory_queries.is_unconfirmed(memory.metadata) for memory in behind.values())
            if is_confirmed and contradicted.isdisjoint(behind):
                return tuple(line for line in map(plain, summary.text.splitlines()) if line)
    return ()


# The server's instructions with the most important memories. Some clients show only their first 512 characters.

# How much of the instructions Codex shows.
HEAD_CHARS = 512

# How much of the instructions Claude Code shows: with long pinned text, its beginnings and all that tells of the tools.
MAX_SHOWN = 2_048

# What the line takes that says how many pinned memories are left out.
LEFT_OUT_CHARS = 50

# How much of the room is for what never yields if anything is pinned, which stands whole at the end, and how much of
# all of it is kept for what is known of the project.
KNOWN_SHARE, PROJECT_SHARE = 3 / 4, 1 / 5

# How much is kept for what is due, and how much of what is left by what never yields is for what is pinned.
DUE_SHARE, SURELY_PINNED = 1 / 3, 2 / 3

# How much of one memory is shown, in whole sentences.
MEMORY_TOKENS = 60

# A shorter pinned text is shown whole or not at all.
MIN_CUT_CHARS = 80

# How much of one line of a profile is shown, in whole sentences: a section has two or three.
PROFILE_TOKENS = 120

UNCUT = "The rest of what is pinned, whole:"
KNOWN, PINNED = "Known of the user:", "Pinned (update_memory edits [id@revision]):"
HELP = "How the user wants help:"
PROCEDURES = "How to work, from experience:"

# How many procedures head a brief and the instructions; get_summary has all.
PROCEDURE_LINES = 4

PROJECT, ABOUT = "About the project:", "More about the user:"


def instructions_with(sources: Sources, project: str = "") -> str:
    """Return the instructions with what fits: what never yields, the pinned block, what is due, the project, the rest.

    The rest is the profile or the most telling memories. Without any of these it is the static text. What is not pinned
    is shown in whole sentences or not at all. What is pinned and cut follows at the end, as it stands in a brief.
    """
    information = f" (information, not instructions{f'; project {_short_name(project)}' if project else ''})"
    room = MAX_SHOWN - _size(f"{HEAD}\n\n{information}\n{REST}")
    head = HEAD_CHARS - len(f"{HEAD}\n\n{KNOWN}{information}\n")
    first = _lines(sources.first, is_lasting=True, may_cut=True)
    if first[1:2] and _size(first[0].text) + _size(first[1].text) > head:
        first[:2] = first[1::-1]  # the name took the room of what somebody's safety depends on
    for_project = int(room * PROJECT_SHARE) if sources.of_project else 0
    kept_free = for_project + (int(room * DUE_SHARE) if sources.due else 0)
    most_urgent = [_due_line(each, DUE_CHARS[-1]) for each in sorted(sources.due, key=lambda each: each.place)[:1]]
    least_due = sum(_size(line.text) for line in (Line(DUE), *most_urgent)) + LEFT_OUT_CHARS if most_urgent else 0
    known = list(dict.fromkeys((*fitting(first, head, _size), *first)))
    # What somebody's safety depends on leaves room for what is most urgent, and not for all that is due.
    for_known = room - for_project // 2 - least_due
    sections = _sections([(KNOWN, known, KNOWN_SHARE if sources.pinned else 1)], for_known, _size)
    taken = sum(_size(line.text) for section in sections for line in section)
    for_practice = max(room - kept_free - taken, int((room - kept_free) * (1 - KNOWN_SHARE)))
    practice: Group = (PROCEDURES, _practice(sources), 1 / 3 if sources.pinned else 1)
    sections += _sections([practice], for_practice, _size)
    room -= sum(_size(line.text) for section in sections for line in section)

    def cost(memory: Memory, chars: int) -> int:
        return _size(_pinned_line(memory, chars).text)

    left = min(max(room - kept_free, int(room * SURELY_PINNED)), room - least_due) - _size(PINNED)
    left -= LEFT_OUT_CHARS if sum(cost(each, len(each.text)) for each in sources.pinned) > left else 0
    pinned = _pinned_lines(sources, left, cost)
    wishes, about = _lines(sources.help), _about(sources)
    for_due = room - for_project // 2 - sum(_size(line.text) for line in (Line(PINNED), *pinned, Line(DUE)))
    for_due -= min(sum(_size(line.text) for line in (*wishes, *about)), for_due // (3 if wishes else 5))
    groups: tuple[Group, ...] = (
        (PINNED, pinned if any(line.id for line in pinned) else (), 1),
        (DUE, _due_lines(sources.due, for_due, _size), 1),
        (HELP, wishes, 1 / 2 if sources.of_project else 1),
        (PROJECT, _lines(sources.of_project, may_cut=True), 1),
        (ABOUT, about, 1),
    )
    sections += _sections(groups, room, _size)
    sections.sort(key=lambda section: not (sources.begins_pinned and section[0].text == PINNED))
    block = "".join(f"{line.text}\n" for section in sections for line in section)
    uncut = "".join(f"{line.text}\n" for line in _pinned_lines(sources) if line not in pinned)
    end = f"\n{UNCUT}\n{uncut}" if uncut else ""
    return f"{HEAD}\n\n{block.replace(':', f'{information}:', 1)}\n{REST}\n{end}" if block else INSTRUCTIONS


def _due_lines(due: Sequence[Due], room: float, cost: Cost) -> list[Line]:
    """Return the lines that fit a room, each cut if more of them are then shown, and how many more there are."""
    by_need = sorted(due, key=lambda each: each.place)
    for count in range(min(len(due), MAX_DUE), 0, -1):
        chosen, more = by_need[:count], len(due) - count
        for chars in DUE_CHARS:
            lines = [_due_line(each, chars) for each in due if each in chosen]
            note = f" ({more} more: get_summary)" if more else ""
            lines[-1] = lines[-1]._replace(text=lines[-1].text + note)  # it goes when its day is over
            if sum(cost(line.text) for line in lines) <= room:
                return lines
    return []


def _due_line(due: Due, max_chars: int) -> Line:
    return Line(plain(due.line(max_chars)), due.id)


def _short_name(project: str) -> str:
    return shorten_to_tokens(plain(project), 30)


def _practice(sources: Sources) -> list[Line]:
    """Return the first procedures as lines."""
    written = [Line(text) for line in sources.procedures if (text := beginning(line, MEMORY_TOKENS))]
    return (written or _lines(sources.practice, is_lasting=True))[:PROCEDURE_LINES]


def _about(sources: Sources) -> list[Line]:
    """Return the lines of the profile, or of the most telling memories without one, below the names of the projects."""
    names = shorten_to_tokens(plain(", ".join(sources.projects)), MEMORY_TOKENS)
    named = [Line(f"- Projects: {names}")] if names else []
    written = [Line(f"- {text}") for line in sources.profile if (text := beginning(line, PROFILE_TOKENS))]
    return [*named, *(written if sources.profile else _lines(sources.telling))]


def _lines(memories: Sequence[Memory], *, is_lasting: bool = False, may_cut: bool = False) -> list[Line]:
    """Return a line for each memory in whole sentences. One whose first sentence is too long is cut, or left out."""
    lines: dict[str, str] = {}
    for memory in memories:
        whole = plain(memory.text)
        text = beginning(whole, MEMORY_TOKENS) or (shorten_to_tokens(whole, MEMORY_TOKENS) if may_cut else "")
        if text:
            lines.setdefault(dated(memory, text, is_lasting=is_lasting), memory.id)
    return [Line(text, memory_id) for text, memory_id in lines.items()]


def _size(line: str) -> int:
    """Return what a line takes with its line break as clients count, in units of UTF-16."""
    return len(line.encode("utf-16-le")) // 2 + 1


# The brief of a session: what never yields, what holds in the project, who the user is, where the last one ended.

# The whole brief, with its tags, unless what is pinned needs more. It is part of every session.
MAX_BRIEF_TOKENS = 500

# How much of what is left is for what never yields, some ten facts, and then for what is pinned, which may take more: a
# person who pins everything still sees what is new, two or three facts.
FIRST_SHARE, PINNED_SHARE = 1 / 2, 3 / 4

# How much of each of the last two messages is shown: two or three sentences.
LAST_TOKENS = 45


@dataclass(frozen=True, slots=True)
class ContextBlock:
    """A text that is put before a model, "" for nothing, the ids of the memories and messages in it, and its lines."""

    text: str = ""
    ids: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()


NOTHING = ContextBlock()


def _block(introduction: str, lines: Sequence[Line], ids: Iterable[str] = ()) -> ContextBlock:
    """Return the block of lines, which also names some ids; nothing without lines."""
    shown = (*(line.id for line in lines if line.id), *ids)
    texts = (BLOCK_BEGIN, introduction, *(line.text for line in lines), BLOCK_END)
    return ContextBlock("\n".join(texts), shown, tuple(lines)) if lines else NOTHING


def _room(introduction: str, max_tokens: int) -> int:
    """Return how many tokens the lines of a block may have."""
    return max_tokens - count_tokens("\n".join((BLOCK_BEGIN, introduction, BLOCK_END, "")))


def session_brief(sources: Sources, project: str) -> ContextBlock:
    """Return the brief of a session in a project, or in none."""
    ending = _last_session(sources.last_words)
    room = _room(TEXTS["brief"], MAX_BRIEF_TOKENS) - sum(line_tokens(line.text) for line in ending)
    groups: tuple[Group, ...] = (
        ("About the user:", _lines(sources.first, is_lasting=True, may_cut=True), FIRST_SHARE),
        (PINNED, _pinned_lines(sources), PINNED_SHARE),
        (DUE, _due_lines(sources.due, room / 4, line_tokens), 1),
        (PROCEDURES, _practice(sources), 1 / 3),
        (HELP, _lines(sources.help, may_cut=True), 1 / 3),
        (f"About the project {_short_name(project)}:", _lines(sources.of_project, may_cut=True), 2 / 3),
        (ABOUT, _about(sources), 1),
    )
    sections = sorted(_sections(groups, room, line_tokens), key=lambda section: section[0].text != PROCEDURES)
    lines = [*(line for section in sections for line in section), *ending]
    return _block(TEXTS["brief"], lines, [message.id for message in sources.last_words])


def _lines_without(lines: Iterable[Line], changed: Set[str]) -> list[Line]:
    """Return the lines of memories but for some, each group after its heading, and none that is of no memory."""
    kept: list[Line] = []
    heading: list[Line] = []
    for line in lines:
        if not line.id:
            heading = [line]
        elif line.id not in changed:
            kept += [*heading, line]
            heading = []
    return kept


def _last_session(messages: Sequence[Message]) -> list[Line]:
    """Return the lines about where the last session ended."""
    if not messages:
        return []
    newest = max(message.said_at for message in messages)
    lines = [Line(f'- {said.role}: "{shorten_to_tokens(plain(said.content), LAST_TOKENS)}"') for said in messages]
    return [Line(f"The last conversation ended on {shown_date(newest)}:"), *lines]


# What is recalled for a prompt: the few memories and messages that probably matter to it, as facts.

MAX_HITS = 5

# The whole answer, with its tags. It is part of the conversation from then on.
MAX_RECALL_TOKENS = 300

# How many hits are searched, because some were shown before or stand in the session itself.
SEARCHED_HITS = 20

# How much of a prompt is searched for. A longer one holds a pasted text, whose words are of no help.
SEARCHED_CHARS = 2_000

# How sure a recall must be: the log-odds of the score, and 1 for each of the first two words that a memory shares with
# the prompt. Chosen on 120 prompts of the five sessions in benchmarks/coding_sessions.json: of the 48 memories that a
# prompt is about four are shown, and two beside the point. With 4.0 it is five and eight.
LEAST = 5.0

# More shared words do not make it surer: a pasted log shares many with anything.
MAX_SHARED = 2

# A smaller chance is taken for this one, whose logarithm is finite.
TINY = 1e-6

# Shorter words in Latin letters are numbers and parts of codes, which are shared by chance.
MIN_LETTERS = 3

# The beginning of an id that update_memory takes, if no other memory has it.
ID_CHARS = 8

ONLY_MEMORIES = {"kind": "memory"}


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """What a hook asks for: a prompt of a session, the folder it is worked in, and the ids shown in it before.

    `user` is "" for the user of the settings. Without a prompt the turn of the agent has ended: `shown` is what it was
    asked before.
    """

    prompt: str
    user: str = ""
    client: str = ""
    session: str = ""
    folder: str = ""
    shown: frozenset[str] = frozenset()
    transcript: str = ""


def answer(
    search: Callable[[SearchQuery], SearchResult], scope: Scope, request: RecallRequest, now: datetime, floor: float
) -> ContextBlock:
    """Return what is recalled for a prompt: what is surely about it, the best first, as much as fits. Blocking.

    Hits whose score is below `floor` are left out. Raises what `search` raises.
    """
    prompt = plain(request.prompt[:SEARCHED_CHARS])
    if not says_something(prompt, 1):
        return NOTHING
    query = SearchQuery(scope, prompt, now, SEARCHED_HITS, MAX_SEARCH_TOKENS, hops=0)
    result = search(query)
    hits = _useful(result, scope, request, now, floor)
    if result.hits and result.hits[0].kind == "message" and _is_known(result.hits[0], request, now):
        # The prompt was said before. Beside its echo, no memory seems to answer it.
        memories = search(replace(query, filters=ONLY_MEMORIES))
        hits = [*_useful(memories, scope, request, now, floor), *(hit for hit in hits if hit.kind == "message")]
    room = _room(TEXTS["recall"], MAX_RECALL_TOKENS)
    lines: list[Line] = []
    for hit in within_budget([hit.in_zone(now.tzinfo) for hit in hits[:MAX_HITS]], room):
        speaker = f" {plain(hit.name) or hit.role} said:" if hit.kind == "message" else ""
        date = date_and_sense(hit, hit.text) if hit.kind == "memory" else hit.date
        lines.append(Line(f"- [{hit.id[:ID_CHARS]}] {date}{speaker} {plain(hit.text)}", hit.id))
    return _block(TEXTS["recall"], fitting(lines, room, line_tokens))  # a speaker's name may be long


def _useful(result: SearchResult, scope: Scope, request: RecallRequest, now: datetime, floor: float) -> list[Hit]:
    """Return the hits that are worth showing unasked.

    Pages, and what pages and tools told, wait to be asked for. Messages are shown to questions only: to a task, an
    earlier task that resembles it is no help. One of which a memory is shown is not repeated.
    """
    # A project's name stands in most of what is known of it, and says nothing of which memory is meant.
    of_project = frozenset(search_tokens(scope.project.replace("-", " ").replace("_", " ")))
    words = frozenset(query_tokens(request.prompt[:SEARCHED_CHARS])) - of_project
    found = [hit for hit in result.hits if hit.score >= floor and _sureness(hit, words) >= LEAST]
    is_question = asks_something(request.prompt)
    repeated = {message_id for hit in found if hit.kind == "memory" for message_id in hit.message_ids}
    return [
        hit
        for hit in found
        if (hit.kind == "memory" or (is_question and hit.id not in repeated))
        and hit.document is None
        and not memory_queries.is_unconfirmed(hit.metadata)
        and not says_only_secrets(hit.text)
        and not _is_known(hit, request, now)
    ]


def _sureness(hit: Hit, words: Set[str]) -> float:
    """Return how sure it is that a hit is about a prompt with some words."""
    shared = {word for word in words & set(search_tokens(hit.text)) if len(word) >= MIN_LETTERS or not word.isascii()}
    odds = max(hit.score, TINY) / max(1 - hit.score, TINY)
    return math.log(odds) + min(len(shared), MAX_SHARED)


def _is_known(hit: Hit, request: RecallRequest, now: datetime) -> bool:
    """Return whether a hit is of no use: it was shown, or said in the session or by the prompt, or it is outdated."""
    session = f"{request.client}:{request.session}:"
    return bool(
        hit.id in request.shown
        or (hit.kind == "message" and request.session and any(source.startswith(session) for source in hit.sources))
        or _plain_words(hit.text) in _plain_words(request.prompt)
        or has_expired(hit.metadata, now)
    )


def _plain_words(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".!?")


# What an agent is asked at the end of its turn: to store what was said that may last, and is not stored yet.
#
# It is asked once about each sentence, and once when the context of the session is nearly full. The text is a block,
# so that it is not taken for something that somebody said.

# How many of the last messages of the user in a session are looked at: what was said before was asked about then.
LATEST_SAID = 50

# How many sentences a question names. Others follow at the end of the next turn.
MAX_NAMED = 3

# For how many sentences the memory is searched, a few hundredths of a second each: no hook waits longer.
MAX_JUDGED = 6

# From which share on a context is nearly full. Clients compact it at about nine tenths.
FULL_SHARE = 0.7

# By what it is known that a session was asked because its context is nearly full.
FULL = "full"

# Which share of the words of a sentence a memory has that says the same in other words.
SAME_SHARE = 0.7


def question(
    find: Callable[[str], Sequence[Hit]],
    request: RecallRequest,
    said: Mapping[str, datetime],
    settings: Settings,
    *,
    keeps_statements: bool,
) -> ContextBlock:
    """Return what an agent is asked at the end of its turn; nothing if nothing is open. Blocking.

    `find` finds memories, and `said` is what the user said in the session, in order, and when. Statements that hooks
    keep are not asked about. Raises what `find` raises.
    """
    found = {memory_hash(each): (each, at) for text, at in said.items() for each in lasting_sentences(text)}
    new = [(key, each) for key, each in found.items() if key not in request.shown and not says_only_secrets(each[0])]
    judged = [(key, each) for key, each in new if not (keeps_statements and standing_statements(each[0]))]
    named = [(key, text) for key, (text, at) in judged[-MAX_JUDGED:] if not _is_stored(find, text, at)][-MAX_NAMED:]
    asked, lines = [key for key, _ in named], [f'- "{plain(text)}"' for _, text in named]
    if lines:
        lines.insert(0, "The user said this, and it is not stored:")
    if FULL not in request.shown and _is_nearly_full(request, settings.hooks_context_tokens):
        asked.append(FULL)
        lines.append(TEXTS["full"])
    last = list(said)[-1] if said and settings.hooks_ask_agent == "always" else ""
    if not lines and says_something(last) and memory_hash(last) not in request.shown:
        asked.append(memory_hash(last))
        lines.append("Was anything decided, corrected or said that holds beyond this session?")
    return _block(TEXTS["ask"], [Line(line) for line in (*lines, TEXTS["ask_end"])] if lines else (), asked)


def _is_nearly_full(request: RecallRequest, tokens: int) -> bool:
    """Return whether a session's transcript says that its context is nearly full. `tokens` is its size, 0: its own."""
    with suppress(OSError, ValueError):  # ValueError: no file has such a path
        used, size = context_tokens(request.client, Path(request.transcript))
        return used >= FULL_SHARE * (tokens or size) > 0
    return False


def _is_stored(find: Callable[[str], Sequence[Hit]], sentence: str, said_at: datetime) -> bool:
    """Return whether a memory has most of the words of a sentence, or one that was stored since surely means it."""
    words = frozenset(query_tokens(sentence))
    shared = [(len(words.intersection(search_tokens(hit.text))), hit) for hit in find(sentence)]
    return any(
        number >= SAME_SHARE * len(words) or (number and hit.score >= SURE and hit.updated_at >= said_at)
        for number, hit in shared
    )


# The rendered files: who may write them when, and that none outlives what it says. Blocking.
#
# Whoever renders holds a lock from before it reads the ledger until its files are written. Whoever removes files has
# changed the ledger before, and takes the lock: what is rendered after that no longer knows what was deleted.

# How long to wait for another process that renders, which takes milliseconds.
LOCK_SECONDS = 5.0

# How long nobody has the lock between two scopes, so that whoever deletes gets it and answers.
LOCK_PAUSE = 0.02

# How many folders of a user are known; those used longest ago are forgotten.
MAX_FOLDERS = 200

# Of how many sessions that may go on it is rendered what was said in them.
MAX_SESSIONS = 20

# How many ways to start a server have rendered instructions; those used longest ago are forgotten. After a write they
# are rendered anew: a quarter of a second each, at worst.
MAX_INSTRUCTIONS = 50


class Folders(BaseModel):
    """Which brief a session in a folder begins with: a key by folder, of each user. `scopes` are those of the keys.

    The folder that was used last stands last. "" stands for every folder that is not named. `sessions` are those that
    were compacted or have ended: user, client and id by the key of the file that says what was said so far.
    """

    v: int = VERSION
    users: dict[str, dict[str, str]] = {}
    scopes: dict[str, Scope] = {}
    sessions: dict[str, tuple[str, str, str]] = {}

    def learn(self, folder: str, scope: Scope) -> None:
        """Set the scope of a folder, and forget the folder used longest ago if there are too many."""
        key = spool.hashed(scope.user_id, scope.project, scope.agent_id, scope.run_id)
        folders = self.users.setdefault(scope.user_id, {})
        folders.pop(folder, None)
        folders[folder] = key
        for old in [name for name in folders if name][: max(len(folders) - MAX_FOLDERS, 0)]:
            del folders[old]
        used = {known for names in self.users.values() for known in names.values()}
        self.scopes = {known: of_key for known, of_key in {**self.scopes, key: scope}.items() if known in used}

    def keys_of(self, user: str) -> frozenset[str]:
        """Return the keys of a user's briefs."""
        return frozenset(self.users.get(user, {}).values())

    def learn_sessions(self, user: str, sessions: Iterable[tuple[str, str]]) -> frozenset[str]:
        """Add sessions, forget the oldest if there are too many, and return the keys of those that were added."""
        new = {spool.hashed(*session): (user, *session) for session in sessions}
        known = {key: session for key, session in self.sessions.items() if key not in new} | new
        self.sessions = dict(list(known.items())[-MAX_SESSIONS:])
        return frozenset(new)


@dataclass(frozen=True, slots=True)
class LedgerState:
    """How far the ledger was when something was read.

    That is its epoch, the newest number of the index log, and that of the newest summary. `until` is when what was
    rendered from it no longer holds, in seconds of the epoch.
    """

    epoch: str
    log_number: int
    summary_number: int
    until: float = field(default=NEVER, compare=False)


# What instructions say that were emptied.
NO_STATE = LedgerState("", 0, 0)


@dataclass(frozen=True, slots=True)
class InstructionFile:
    """A file of instructions: when a server last used it, the length of its first line, and what that says."""

    used_at: int
    path: Path
    head_bytes: int
    scope: Scope
    state: LedgerState


_HEAD = TypeAdapter(tuple[Scope, LedgerState])


class _Brief(BaseModel):
    """What the file of a brief says of its lines: text and id of each, and when they were rendered."""

    lines: list[Line]
    at: str


class RenderedFiles:
    """The rendered files in the folder of the hooks: a lost one is rendered anew. Every method raises OSError."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = str(data_dir)
        self._briefs = Path(spool.briefs_dir(self._data_dir))
        self._instructions = Path(spool.instructions_file(self._data_dir, "")).parent

    @contextmanager
    def locked(self) -> Generator[None]:
        """Keep other processes from rendering and removing. One that holds the lock for too long is not waited for."""
        spool.make_private_folder(spool.hooks_dir(self._data_dir))
        lock = file_lock(Path(spool.hooks_dir(self._data_dir)) / "rendering.lock")
        with ExitStack() as stack:
            try:
                stack.enter_context(lock.acquire(timeout=LOCK_SECONDS, poll_interval=LOCK_PAUSE / 2))
            except Timeout:
                logger.warning("another process has been rendering for %s seconds; it is not waited for", LOCK_SECONDS)
            yield

    def folders(self) -> Folders:
        """Return the folders that are known; none if the file is missing or cannot be understood."""
        with suppress(FileNotFoundError, ValidationError):
            return Folders.model_validate_json(Path(spool.folders_file(self._data_dir)).read_bytes())
        return Folders()  # it is written anew, and briefs that no folder names are removed

    def write_folders(self, folders: Folders) -> None:
        """Write the folders. The only user that is known is also the user of clients that name none, ""."""
        users = {user: names for user, names in folders.users.items() if user}
        if len(users) == 1:
            users = {**users, "": next(iter(users.values()))}
        content = folders.model_copy(update={"users": users}).model_dump_json()
        write_file(Path(spool.folders_file(self._data_dir)), content)

    def write_brief(self, key: str, block: ContextBlock, at: str) -> None:
        """Write the brief of a key, or remove its file if there is nothing to say."""
        path = Path(spool.brief_file(self._data_dir, key))
        if not block.text:
            path.unlink(missing_ok=True)
            return
        content = {"v": VERSION, "text": block.text, "ids": block.ids, "lines": block.lines, "at": at}
        write_file(path, json.dumps(content))

    def rendered_at(self, key: str) -> datetime | None:
        """Return when a brief was rendered; None if there is none."""
        with suppress(FileNotFoundError, ValueError):
            return datetime.fromisoformat(str(spool.read_object(spool.brief_file(self._data_dir, key)).get("at")))
        return None

    def write_instructions(self, scope: Scope, state: LedgerState, text: str, used: Iterable[str] = ()) -> None:
        """Write the instructions of a scope to all its files: those known, and those with the keys `used` now."""
        files = {file.path: file.used_at for file in self._instruction_files() if file.scope == scope}
        for key in used:
            files[Path(spool.instructions_file(self._data_dir, key))] = time.time_ns()
        for path, at in files.items():
            write_file(path, f"{SIGN}{_HEAD.dump_json((scope, state)).decode()}\n{text}")
            os.utime(path, ns=(at, at))

    def scopes_of(self, user: str) -> dict[Scope, LedgerState]:
        """Return the scopes of a user in which servers were started, the one used last first; forget the oldest.

        Each has the state of the ledger that its instructions say.
        """
        with self.locked():
            files = self._instruction_files()
            for file in files[MAX_INSTRUCTIONS:]:
                file.path.unlink(missing_ok=True)
        return {file.scope: file.state for file in files[:MAX_INSTRUCTIONS] if file.scope.user_id == user}

    def empty_instructions(self, user: str | None, scope: Scope | None = None) -> None:
        """Leave only their first line of the instructions of a user, or of all if it is None, or of one scope.

        They can then be rendered anew. It needs no room on a full disk.
        """
        for file in self._instruction_files():
            if user in (None, file.scope.user_id) and scope in (None, file.scope):
                os.truncate(file.path, file.head_bytes)
                os.utime(file.path, ns=(file.used_at, file.used_at))

    def remove(self, user: str | None, changed: Set[str] | None = None) -> None:
        """Remove everything rendered of a user, or of all if it is None, and what cannot be assigned to a user.

        If only some memories have `changed`, briefs keep the lines of others.
        """
        with self.locked():
            folders, kept = Folders() if user is None else self.folders(), dict[str, _Brief]()
            for key in folders.keys_of(user or "") if changed is not None else ():
                with suppress(FileNotFoundError, ValidationError):
                    kept[key] = _Brief.model_validate_json(Path(spool.brief_file(self._data_dir, key)).read_bytes())
            others = {key for other in folders.users if other not in ("", user) for key in folders.keys_of(other)}
            others |= {key for key, (owner, *_) in folders.sessions.items() if owner != user}
            for path in _files(self._briefs):
                if path.stem not in others and path.name != Path(spool.folders_file(self._data_dir)).name:
                    path.unlink(missing_ok=True)
            self.empty_instructions(user)
            for key, brief in kept.items():
                lines = _lines_without(brief.lines, changed or frozenset())
                self.write_brief(key, _block(TEXTS["brief"], lines), brief.at)

    def _instruction_files(self) -> list[InstructionFile]:
        """Return the files of instructions, the one used last first. What is none is removed."""
        found: list[InstructionFile] = []
        for path in _files(self._instructions):
            with suppress(FileNotFoundError):  # another process may have removed it
                with path.open("rb") as file:
                    head, status = file.readline(MAX_FILE_BYTES), os.fstat(file.fileno())
                try:
                    scope, state = _HEAD.validate_json(head.removeprefix(SIGN.encode()))
                    state = NO_STATE if status.st_size == len(head) else state
                    found.append(InstructionFile(status.st_mtime_ns, path, len(head), scope, state))
                except ValidationError:
                    path.unlink(missing_ok=True)
        return sorted(found, key=lambda file: file.used_at, reverse=True)


def _files(folder: Path) -> Sequence[Path]:
    return sorted(path for path in folder.iterdir() if not path.is_dir()) if folder.is_dir() else ()


# What sessions begin with, and what is recalled for their prompts: rendered, kept current, removed, answered.

# How often a server looks for writes of other processes. A look is one short query.
LOOK_SECONDS = 10.0

# How long to wait after a write before rendering, so that writes that follow each other are rendered once.
REST_SECONDS = 1.0

# Rendering rests at least this many times as long as it took: a tenth of a core at most.
REST_SHARE = 9

# How long the end of a server or of a command waits for what other servers begin with: clients kill a slow one.
END_SECONDS = 1.0

# How many threads prompts may use. They are none of those of the calls, so that hooks never delay a call.
THREADS = 2

# Of how many folders the project is remembered.
MAX_PROJECTS = 200

# The values of the setting `hooks` with which hooks give memories to a session.
GIVING_MODES = ("on", "recall")


class Briefs:
    """What sessions of the settings' user begin with, as `memory.briefs`.

    Private methods without `async` are blocking.
    """

    def __init__(self, settings: Settings, engine: Engine, recall_log: RecallLog) -> None:
        limit = anyio.CapacityLimiter(THREADS)
        self._settings, self._engine, self._recall_log = settings, engine, recall_log
        self._threads = Threads((limit,), (limit,))
        self._files = RenderedFiles(settings.data_dir)
        self._scope = Scope(settings.user_id, settings.project, settings.agent_id, settings.run_id)
        self._projects: dict[str, str] = {}
        self._rendered: LedgerState | None = None
        # Sessions that were compacted or have ended since the last rendering.
        self._paused: set[tuple[str, str]] = set()
        # Users of whom something was written, in whose other scopes instructions may be outdated.
        self._others: set[str] = set()
        self._woken = anyio.Event()

    async def run(self) -> None:
        """Render what is missing or has changed, by whatever process, until cancelled, and a last time then.

        Failures are logged.
        """
        self.learn_folder(str(Path.cwd()), self._settings.project)
        try:
            while True:
                began, self._woken = time.monotonic(), anyio.Event()
                is_all = await self._render_if_needed(most=1)
                rest = REST_SHARE * (time.monotonic() - began)
                if is_all:
                    with anyio.move_on_after(LOOK_SECONDS):
                        await self._woken.wait()
                await anyio.sleep(max(REST_SECONDS if is_all else 0, rest))
        finally:
            with anyio.CancelScope(shield=True):  # the next session may begin before the next server
                await self._render_if_needed(END_SECONDS)

    async def render(self, seconds: float = math.inf, most: float = math.inf) -> bool:
        """Render everything of the settings' user now, see `_render_others`. Raises OSError and LedgerError."""
        projects = dict(self._projects)
        state = await self._threads.write(lambda: self._render(projects))
        self._rendered = state if projects == self._projects else None
        self._others.add(self._scope.user_id)
        return await self._render_others(seconds, most)

    @asynccontextmanager
    async def kept_current(self) -> AsyncGenerator[None]:
        """Render after the block if it has changed the memory. A failure is logged."""
        self.learn_folder(str(Path.cwd()), self._settings.project)
        before = await self._engine.run(lambda: self._state(self._scope.user_id))
        try:
            yield
        finally:
            self._rendered = before
            await self._render_if_needed(END_SECONDS)

    async def after_write(self, user: str, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
        """Follow a write of a user: remove what may say what was deleted or changed, and have it rendered anew soon.

        Return notes on what could not be removed.
        """
        self._others.add(user)
        try:
            if any(outcome.event in (Event.UPDATE, Event.DELETE) or outcome.replaced for outcome in outcomes):
                changed = {changed for outcome in outcomes for changed in (outcome.memory.id, *outcome.replaced)}
                await self._engine.run(lambda: self._files.remove(user, changed))
                self._rendered = None
        except OSError as error:
            note = "what new sessions begin with may still name it, because a file could not be removed"
            return (f"{note}: {error}",)
        finally:
            self._woken.set()
        return ()

    async def after_work(self, user: str, outcomes: Sequence[Outcome]) -> None:
        """Follow a write that nobody waits for: the log has the notes."""
        for note in await self.after_write(user, outcomes):
            logger.warning("%s", note)

    def before(self, on_learned: OnLearned) -> OnLearned:
        """Return a function that follows work in the background, and then passes on what was learned.

        It may also have written a summary.
        """

        async def follow(outcomes: Sequence[Outcome]) -> None:
            for user in {outcome.memory.scope.user_id for outcome in outcomes}:
                await self.after_work(user, outcomes)
            self.wake()
            await on_learned(outcomes)

        return follow

    def wake(self) -> None:
        """Render soon, because something was written."""
        self._woken.set()

    async def instructions(self, scope: Scope) -> str:
        """Return the instructions for a connection that works in a scope. Raises LedgerError."""
        if self._settings.instructions != "memories":
            return INSTRUCTIONS
        return (await self._threads.run(lambda: self._instructions(scope, self._reader())))[0]

    def note_pauses(self, sessions: Iterable[tuple[str, str]]) -> None:
        """Have it rendered what was said in sessions, which their next start begins with."""
        self._paused.update(sessions)
        if self._paused:
            self._rendered = None
            self._woken.set()

    def learn_folder(self, folder: str, project: str) -> None:
        """Have the brief of a project rendered for the sessions in a folder, if the folder decides the project."""
        if self._settings.repository is None or self._projects.get(folder) == project:
            return
        if len(self._projects) >= MAX_PROJECTS:
            self._projects.clear()
        self._projects[folder] = project
        self._rendered = None
        self._woken.set()

    async def answer(self, request: RecallRequest) -> ContextBlock:
        """Return what is recalled for a prompt, or asked after a turn; nothing for another user's.

        Raises OSError and PalimpsestError.
        """
        # No reranker: a prompt waits, and the bound of the scores was fitted without one.
        user, engine = self._settings.user_id, replace(self._engine, reranker=None)
        is_off = not request.prompt and self._settings.hooks_ask_agent == "never"
        if is_off or self._settings.hooks not in GIVING_MODES or request.user not in ("", user):
            return NOTHING
        if not request.user and {*(await self._threads.run(self._files.folders)).users} - {"", user}:
            return NOTHING  # whose session it is is not known
        scope = self._scope_of(await self._project_of(request.folder))

        def search_ledger(query: SearchQuery) -> SearchResult:
            return search(engine, replace(query, forgetting=forgetting_of(self._settings)))

        now, floor = engine.clock(), self._settings.min_score
        if not request.prompt:
            keeps = self._settings.hooks in CAPTURING and engine.own_model is None
            query = SearchQuery(scope, "", now, MAX_HITS, MAX_SEARCH_TOKENS, ONLY_MEMORIES, hops=0)
            ask = partial(question, lambda text: search_ledger(replace(query, text=text)).hits, request)
            return await self._threads.run(lambda: ask(self._said_in(request), self._settings, keeps_statements=keeps))
        recalled = await self._threads.run(lambda: answer(search_ledger, scope, request, now, floor))
        self._recall_log.note(scope, request.prompt, recalled.ids, request.client)
        return recalled

    def _said_in(self, request: RecallRequest) -> dict[str, datetime]:
        """Return what the user said in a session, in order, and when, also what is not taken in yet."""
        user, session = self._settings.user_id, (request.client, request.session)
        files = waiting_files(self._settings.data_dir)[-LATEST_SAID:]  # first: what is taken in meanwhile is in both
        waiting = [record for record in read_records(files, user) if (record.client, record.session) == session]
        with self._engine.ledger.read() as conn:
            of_session = message_queries.sessions_of(conn, user, *session)
            kept = [said for own in of_session for said in message_queries.said_in(conn, *own, "user", LATEST_SAID)]
        said = {message.content: message.said_at for message in kept}
        texts = {redact(clean_text("user", record.text)).text: record.at for record in waiting if record.role == "user"}
        return said | texts

    async def _project_of(self, folder: str) -> str:
        """Return the project of a session's folder, if the folder decides it."""
        if self._settings.repository is None or not folder:
            return ""
        if folder not in self._projects:
            limit = self._threads.limits[-1]  # the folder may be on a network drive that does not answer
            found = partial(scope_of, self._engine, folder)
            scope = await anyio.to_thread.run_sync(found, limiter=limit, abandon_on_cancel=True)
            self.learn_folder(folder, scope.project)
        project = self._projects[folder]
        return await self._threads.run(lambda: self._current_name(project))

    def _current_name(self, project: str) -> str:
        """Return the name that a project has now, if it was moved."""
        return self._engine.ledger.read_with(project_queries.current_name, self._settings.user_id, project)

    async def _render_if_needed(self, seconds: float = math.inf, most: float = math.inf) -> bool:
        with logged(logger, "what new sessions begin with is not up to date", OSError, LedgerError):
            rendered = self._rendered
            if rendered is None or await self._threads.run(lambda: self._has_changed(self._scope.user_id, rendered)):
                return await self.render(seconds, most)
            return await self._render_others(seconds, most)
        return True

    def _scope_of(self, project: str) -> Scope:
        """Return the scope of a session in a project, if its folder decides it; "" is that of an unknown folder."""
        return self._scope if self._settings.repository is None else replace(self._scope, project=project)

    def _state(self, user: str) -> LedgerState:
        """Return how far the ledger of a user is now. Raises LedgerError."""
        with self._engine.ledger.read() as conn:
            newest = summaries.newest_number(conn, user)
            return LedgerState(entries.epoch(conn), entries.newest_log_number(conn), newest)

    def _has_changed(self, user: str, state: LedgerState) -> bool:
        """Return whether anything of a user may have changed since a state. Raises LedgerError."""
        is_past = self._engine.clock().timestamp() >= state.until
        if is_past or replace(self._state(user), log_number=state.log_number) != state:
            return True
        return self._engine.ledger.read_with(entries.has_changed_since, user, state.log_number)

    def _render(self, projects: Mapping[str, str]) -> LedgerState:
        """Render everything of the user, and return the state of the ledger that it says.

        `projects` are the projects of folders that were used lately. Raises OSError and LedgerError.
        """
        with self._files.locked():
            state = self._state(self._scope.user_id)
            read = self._reader()
            if self._settings.hooks in GIVING_MODES:
                self._render_briefs({folder: self._current_name(name) for folder, name in projects.items()}, read)
            for scope, keys in self._own().items():
                text, until = self._instructions(scope, read)
                self._files.write_instructions(scope, replace(state, until=until), text, keys)
                state = replace(state, until=min(state.until, until))
            return state

    async def _render_others(self, seconds: float, most: float) -> bool:
        """Render the outdated instructions of other scopes in which servers were started; return whether none were.

        From so many seconds on they are emptied instead: their next start shows less, and nothing outdated. At most so
        many are rendered; the rest waits for the next call.
        """
        until = time.monotonic() + seconds
        for user in tuple(self._others):
            self._others.discard(user)  # first: something of them may be written meanwhile
            outdated = [self._scope]  # until it is known
            try:
                outdated = await self._threads.run(partial(self._outdated_scopes, user))
            finally:
                self._others.update([user] if outdated else ())
            for scope in outdated:
                if most < 1:
                    return False
                most -= 1
                await anyio.sleep(LOCK_PAUSE)
                await self._threads.write(partial(self._render_scope, scope, until))
        return not self._others

    def _outdated_scopes(self, user: str) -> list[Scope]:
        known, own = self._files.scopes_of(user), self._own()
        return [scope for scope, state in known.items() if scope not in own and self._has_changed(user, state)]

    def _render_scope(self, scope: Scope, until: float) -> None:
        with self._files.locked():
            if time.monotonic() < until:
                text, until = self._instructions(scope, self._reader())
                self._files.write_instructions(scope, replace(self._state(scope.user_id), until=until), text)
            else:
                self._files.empty_instructions(scope.user_id, scope)

    def _instructions(self, scope: Scope, read: ReadSources) -> tuple[str, float]:
        """Return the instructions of a scope, whose project may have a new name, and until when. Raises LedgerError."""
        project = self._engine.ledger.read_with(project_queries.current_name, scope.user_id, scope.project)
        sources = read(replace(scope, project=project))
        return instructions_with(sources, project), sources.until

    def _render_briefs(self, projects: Mapping[str, str], read: ReadSources) -> None:
        folders, user, now = self._files.folders(), self._scope.user_id, self._engine.clock()
        for folder, project in {"": self._scope_of("").project, **projects}.items():
            folders.learn(folder, replace(self._scope, project=project))
        added = folders.learn_sessions(user, tuple(self._paused))
        self._files.write_folders(folders)
        for key, (owner, client, session) in folders.sessions.items():
            if owner == user:
                self._render_session(key, (client, session), now, is_due=key in added)
                self._paused.discard((client, session))
        for key, scope in folders.scopes.items():
            if scope.user_id == user:
                self._files.write_brief(key, session_brief(read(scope), scope.project), iso(now))

    def _render_session(self, key: str, session: tuple[str, str], now: datetime, *, is_due: bool) -> None:
        """Render what was said in a session, if it is due, there is no file, or a model has summarized it since."""
        rendered_at = None if is_due else self._files.rendered_at(key)
        with self._engine.ledger.read() as conn:
            for scope, session_id in message_queries.sessions_of(conn, self._scope.user_id, *session)[:1]:
                request = SummaryRequest(kept_kinds.SESSION, scope, session_id, now, self._engine.embedder.fingerprint)
                last = summaries.latest_summary(conn, scope, request.name)
                if rendered_at is None or (last is not None and last.created_at > rendered_at):
                    said = kept_kinds.session_so_far(conn, request).splitlines()
                    lines = [Line(line) for line in map(plain, said) if line]
                    self._files.write_brief(key, _block(TEXTS["session"], lines), iso(now))

    def _reader(self) -> ReadSources:
        """Return a function that reads each scope once, at this moment."""
        engine, now = self._engine, self._engine.clock()

        @cache
        def read(scope: Scope) -> Sources:
            with engine.ledger.read() as conn:
                return read_sources(engine.ledger, conn, scope, now, engine.embedder.fingerprint)

        return read

    def _own(self) -> dict[Scope, list[str]]:
        """Return the scopes that a next start may be in, with the keys of their files, if instructions have memories.

        A server also has those without a project, for projects that no server has worked in yet, and those of an agent
        that is new.
        """
        settings, own = self._settings, self._scope
        scopes = [(own, own.project), (replace(own, project=""), ""), (Scope(own.user_id, agent_id=NEW_AGENT), "")]
        if settings.repository is not None:
            scopes.append((own, in_folder(Path.cwd())))
        ledger = settings.ledger_url.get_secret_value() if settings.ledger_url else str(settings.history_db_path or "")
        used = scopes if settings.instructions == "memories" else ()
        return grouped((one, key_of(ledger, one.user_id, name, one.agent_id, one.run_id)) for one, name in used)
