"""Read what an open memory holds: projects, conversations, a time line, labels, changes by other servers."""

import difflib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread
from sqlalchemy import Connection

from palimpsest.core.clock import Clock, exact_iso, in_zone, times_in_zone
from palimpsest.core.errors import InputError, LedgerError
from palimpsest.core.git_project import Alias, Move, Project, Repository
from palimpsest.core.models import PAGE, ChangedMemory, Hit, Memory, Message, Scope, has_expired, labels_of
from palimpsest.core.settings import AUTO, Settings
from palimpsest.core.validation import scope_part
from palimpsest.learn.document_pages import plain_gist
from palimpsest.learn.engine import Engine, OfMemory, reads
from palimpsest.learn.summaries.kept_kinds import MAX_SESSION_TOKENS
from palimpsest.recall.hits import memory_hit
from palimpsest.store import entries, history, memories, projects, summaries
from palimpsest.store import messages as message_queries
from palimpsest.store.entries import HIDDEN
from palimpsest.store.ledger import Ledger, open_ledger
from palimpsest.store.memories import Days, Unit
from palimpsest.store.messages import ConversationSummary
from palimpsest.text.tokenizer import count_tokens

# The projects of a memory's user: which one a folder is, and moving what one holds to another.


@dataclass(frozen=True, slots=True)
class MoveResult:
    """What a move took along, and the backup that was made before it."""

    move: Move
    backup: Path


class Projects(OfMemory):
    """The projects of the settings' user, as `memory.projects`. Every method raises PalimpsestError."""

    @reads
    def list(self, conn: Connection) -> Sequence[Project]:
        """Return the projects with their aliases and what they hold, by name."""
        zone = self.engine.ledger.zones.of(self.engine.settings.user_id)
        found = projects.projects(conn, self.engine.settings.user_id)
        return [replace(project, used_at=project.used_at and in_zone(project.used_at, zone)) for project in found]

    async def of_repository(self, repository: Repository) -> str:
        """Return the project of a repository, and record what it is known by."""
        return await self.engine.run(lambda: self.engine.ledger.project_of(self.engine.settings.user_id, repository))

    async def current_name(self, project: str, *, user_id: str = "") -> str:
        """Return the name that a project has now, if it was moved, else the name as it is.

        `user_id` is whose project it is, by default the memory's user.
        """
        owner = user_id or self.engine.settings.user_id
        return project and await self.engine.read(lambda conn: projects.current_name(conn, owner, project))

    async def unknown(self, project: str, *, user_id: str = "") -> str:
        """Return a sentence that says that a user has no such project, or "" if there is one."""
        return await self.engine.read(lambda conn: _unknown(conn, user_id or self.engine.settings.user_id, project))

    async def news(self, scope: Scope) -> tuple[str, ...]:
        """Return notes on what a project is known by from now on, each once."""
        if not scope.project:
            return ()
        user, run_for = scope.user_id, self.engine.ledger.run_for
        aliases = await self.engine.read(lambda conn: projects.unreported(conn, user, scope.project))
        if aliases:
            await self.engine.write(lambda: run_for(user, projects.mark_reported, user, aliases))
        return tuple(map(_note, aliases))

    async def move(self, old: str, new: str, *, caller: str = "") -> MoveResult:
        """Give a project another name, and move everything in it, after a backup.

        Raises InputError if there is a project of the new name.
        """
        old, new = await self._known(old), scope_part("the new name", new)
        if new in ("", AUTO):
            raise InputError(f"'{new}' cannot be the name of a project. Nothing was moved")
        if any(known.name == new for known in await self.list()):
            raise InputError(
                f"there is a project {new} already. Nothing was moved. palimpsest projects merge {old} {new} joins them"
            )
        return await self._move(old, new, caller)

    async def merge(self, old: str, new: str, *, caller: str = "") -> MoveResult:
        """Move everything in a project to another one, after a backup.

        Of two memories that say the same, the one of the new project stays and takes over what the other one knows.
        """
        return await self._move(await self._known(old), await self._known(new), caller)

    async def _move(self, old: str, new: str, caller: str) -> MoveResult:
        if old == new:
            raise InputError(f"both names are {old}. Nothing was moved")
        ledger, user = self.engine.ledger, self.engine.settings.user_id

        def work() -> MoveResult:
            backup = ledger.backups.keep("projects", self.engine.clock()).path
            now, text = ledger.clock(), ledger.full_text
            return MoveResult(ledger.run_for(user, projects.move, text, user, old, new, caller, now), backup)

        return await self.engine.write(work)

    async def _known(self, project: str) -> str:
        """Return the name of a project. Raises InputError if there is none."""
        name = scope_part("the project", project)
        names = [known.name for known in await self.list()]
        if name in names:
            return name
        hint = _did_you_mean(name, names) or "palimpsest projects lists them"
        raise InputError(f"there is no project '{name}'. Nothing was moved. {hint}")


def unknown_project(settings: Settings, clock: Clock, user_id: str, project: str) -> str:
    """Return what `Projects.unknown` does, of a memory that is not open. Raises PalimpsestError. Blocking."""
    with closing(open_ledger(settings.ledger_place, clock, data_dir=settings.data_dir)) as ledger:
        return ledger.read_with(_unknown, user_id, project)


def _unknown(conn: Connection, user_id: str, project: str) -> str:
    if projects.exists_project(conn, user_id, project):
        return ""
    names = [known.name for known in projects.projects(conn, user_id)]
    return f"{user_id} has no project '{project}' yet. {_did_you_mean(project, names)}".strip()


def _did_you_mean(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f"Did you mean {close[0]}?" if close else ""


def in_its_project(settings: Settings, ledger: Ledger) -> Settings:
    """Return settings with the project that the ledger knows: that of the repository, or the name that it has now."""
    if (repository := settings.repository) is not None:
        return settings.with_project(ledger.project_of(settings.user_id, repository))
    return settings.with_project(ledger.read_with(projects.current_name, settings.user_id, settings.project))


def _note(alias: Alias) -> str:
    """Return the note on an alias."""
    if alias.kind == "remote":
        return f"the git remote of this folder is {alias.alias} now; it stays project {alias.project}"
    return (
        f"the folder {alias.alias} is project {alias.project}. It may have been project {alias.other_project} before, "
        "which has memories too. If they are one project, run: palimpsest projects merge "
        f'"{alias.other_project}" "{alias.project}"'
    )


# Read what an open memory holds: conversations, a time line, labels, and changes by other servers.

# Conversations of an open memory: list them, and read one.


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """One page of the list of conversations. `cursor` requests the next page, and is None on the last page."""

    conversations: Sequence[ConversationSummary]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """One page of the messages of a conversation, oldest first. `cursor` is as in `ConversationPage`.

    A message with a forgotten fact stands there without its text. `about` is what is known of the whole conversation,
    and None for a document.
    """

    id: str
    messages: Sequence[Message]
    cursor: str | None = None
    about: ConversationSummary | None = None


# How many of the newest messages of a conversation are divided into pages: a second of work.
MAX_PAGED = 5_000

# A conversation is long if a summary of it does not read all of it: then gists say what the summary may leave out.
LONG_TOKENS = MAX_SESSION_TOKENS

# How long a page of a conversation is, as one of a document, and how many pages it has at most, which are then longer:
# so many gists are about as long as a page of a list.
PAGE_TOKENS, MAX_TALK_PAGES = 800, 40


@dataclass(frozen=True, slots=True)
class TalkPage:
    """A page of a conversation, by its number, with its gist."""

    number: int
    messages: Sequence[Message]
    gist: str


class Conversations(OfMemory):
    """The conversations in a memory, as `memory.conversations`. Every method raises PalimpsestError."""

    @reads
    def list(self, conn: Connection, scope: Scope, *, limit: int = 20, cursor: str | None = None) -> ConversationPage:
        """Return a page of conversations, the one with the newest message first."""
        after = None if cursor is None else _position(cursor)
        found = message_queries.list_conversations(conn, scope, limit + 1, after)
        last = found[limit - 1] if len(found) > limit else None
        shown = [times_in_zone(each, self.zone, "began_at", "ended_at") for each in found[:limit]]
        return ConversationPage(shown, last and f"{exact_iso(last.ended_at)}/{last.id}")

    async def ids(self, scope: Scope, beginning: str, limit: int) -> Sequence[str]:
        """Return up to `limit` ids of conversations that begin with a string, the newest conversation first."""
        return await self.engine.read(lambda conn: message_queries.ids_beginning(conn, scope, beginning, limit))

    @reads
    def read(
        self,
        conn: Connection,
        scope: Scope,
        conversation_id: str,
        *,
        limit: int = 20,
        cursor: str | None = None,
        max_tokens: int | None = None,
    ) -> MessagePage:
        """Return a page of the messages of a conversation.

        It is named by its id, by that of one of its messages, or by the beginning of one. The page ends before the
        message that is one too many for `limit` or `max_tokens`; no message is cut.
        """
        if cursor is not None and not cursor.isdecimal():
            raise _not_a_cursor(cursor)
        session_id = message_queries.find_conversation(conn, scope, conversation_id, self.zone)
        found = message_queries.messages_in(conn, scope, session_id, limit + 1, int(cursor or 0))
        shown = found[:limit]
        if max_tokens is not None:
            totals = accumulate(count_tokens(message.content) for _, message in shown)
            shown = shown[: max(1, sum(total <= max_tokens for total in totals))]
        kept = {message.id for message in message_queries.without_forgotten(conn, [each for _, each in shown])}
        found_about = message_queries.list_conversations(conn, scope, 1, only=session_id)
        about = next((times_in_zone(each, self.zone, "began_at", "ended_at") for each in found_about), None)
        texts = [message if message.id in kept else replace(message, content=HIDDEN) for _, message in shown]
        texts = [message.in_zone(self.zone) for message in texts]
        next_cursor = str(shown[-1][0]) if len(found) > len(shown) else None
        return MessagePage(session_id, texts, next_cursor, about)

    @reads
    def pages(self, conn: Connection, scope: Scope, conversation_id: str) -> tuple[str, Sequence[TalkPage]]:
        """Return the id of a conversation, without one of the last, and its pages with their gists, in order.

        It has one page if it is not long.
        """
        session_id = summaries.last_session(conn, scope)
        if conversation_id:
            session_id = message_queries.find_conversation(conn, scope, conversation_id, self.zone)
        said = summaries.messages_of_session(conn, scope, session_id, MAX_PAGED)
        said = [message.in_zone(self.zone) for message in said]
        total = sum(count_tokens(message.content) for message in said)
        room = max(total / MAX_TALK_PAGES, PAGE_TOKENS) if total > LONG_TOKENS else total
        return session_id, [
            TalkPage(number, page, plain_gist("\n\n".join(each.content for each in page), ()).text)
            for number, page in enumerate(_pages(said, room), 1)
        ]

    async def around(self, scope: Scope, message: Message) -> Sequence[Message]:
        """Return a message with those just before and after it, in order, each with its text as `get` has it.

        Nothing is around a page of a document, a deleted message, or one that is alone.
        """
        if message.role == PAGE or message.deleted_at is not None:
            return ()
        cursor = await cursor_before(self.engine, scope, message.id, AROUND)
        page = await self.read(scope, message.id, limit=2 * AROUND + 1, cursor=cursor)
        place = next((place for place, each in enumerate(page.messages) if each.id == message.id), 0)
        return page.messages[: place + AROUND + 1] if len(page.messages) > 1 else ()


# How many messages before and after one are the talk around it: what was asked, and what was answered.
AROUND = 3


def _pages(said: Sequence[Message], room: float) -> list[list[Message]]:
    """Return messages in groups, each of as many as fit a room of so many tokens."""
    pages: list[list[Message]] = []
    total = 0.0
    for message in said:
        tokens = count_tokens(message.content)
        if not pages or total + tokens > room:
            pages.append([])
            total = 0.0
        pages[-1].append(message)
        total += tokens
    return pages


def _position(cursor: str) -> tuple[datetime, str]:
    at, _, session_id = cursor.partition("/")
    with suppress(ValueError):
        instant = datetime.fromisoformat(at)
        if instant.tzinfo is not None and session_id:
            return instant, session_id
    raise _not_a_cursor(cursor)


def _not_a_cursor(cursor: str) -> InputError:
    return InputError(f"'{cursor}' is not a cursor. Use the one that the previous page ended with.")


# Where a message stands in its conversation.


async def cursor_before(engine: Engine, scope: Scope, message_id: str, context: int) -> str | None:
    """Return the cursor of the page of a conversation that begins `context` messages before one of its messages.

    It is None if there are not so many, and if there is no such message. Raises LedgerError.
    """
    row = await engine.read(lambda conn: message_queries.row_before(conn, scope, message_id, context))
    return None if row is None else str(row)


# What edits changed of memories beside their texts: tags, metadata and since when they hold.


@dataclass(frozen=True, slots=True)
class LabelChange:
    """What an edit took from a memory and gave to it, each as a name and a value, such as "tags: testing"."""

    removed: tuple[str, ...]
    added: tuple[str, ...]


async def label_changes(engine: Engine, scope: Scope, numbers: Sequence[int]) -> Mapping[tuple[int, str], LabelChange]:
    """Return what edits changed of memories whose text stayed, by the number of the edit and the id of the memory.

    Raises LedgerError.
    """
    changes: dict[tuple[int, str], LabelChange] = {}
    for row in await engine.read(lambda conn: history.states_around(conn, scope, numbers)):
        before, after = labels_of(row.before or {}), labels_of(row.after)
        changes[row.number, row.memory_id] = LabelChange(tuple(sorted(before - after)), tuple(sorted(after - before)))
    return changes


# What a memory holds of each day, month and year, how it grew, and what it believed at an instant.


@dataclass(frozen=True, slots=True)
class Counts:
    """How many memories and messages there are by day, month or year. A key is "2026-11-21", "2026-11" or "2026"."""

    memories: Mapping[str, int]
    messages: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Span:
    """What a span of time holds: its memories and conversations in the order of their times, and the counts."""

    memories: Sequence[Memory]
    conversations: Sequence[ConversationSummary]
    counts: Counts


class TimeLine(OfMemory):
    """The time line of an open memory. Every method raises LedgerError."""

    async def bounds(self, scope: Scope) -> tuple[date, date] | None:
        """Return the first and the last day that living memories are about; None if there are none."""
        times = await self.engine.read(lambda conn: memories.bounds(conn, scope))
        if times is None:
            return None
        # What is known to the day is stored as that day's beginning in UTC, and is that day in every zone.
        first, last = (at if at.time() == time() else in_zone(at, self.zone) for at in times)
        return first.date(), last.date()

    async def first_stored_on(self, scope: Scope) -> date | None:
        """Return on which day the first memory was stored; None if there is none."""
        at = await self.engine.read(lambda conn: memories.first_stored_at(conn, scope))
        return at and in_zone(at, self.zone).date()

    @reads
    def span(self, conn: Connection, scope: Scope, unit: Unit, first: date, end: date, limit: int) -> Span:
        """Return what is of the days from `first` until before `end`, counted by `unit`, up to `limit` of each kind."""
        now, days = self.engine.clock(), Days(first, end, self.zone)
        about = memories.memories_about(conn, scope, days, limit)
        ids = memories.conversations_within(conn, scope, days, limit)
        held = [message_queries.list_conversations(conn, scope, 1, only=one) for one in ids]
        counts = Counts(
            memories.count_memories_by_time(conn, scope, unit, days), memories.count_messages(conn, scope, unit, days)
        )
        living = [memory.in_zone(days.zone) for memory in about if not has_expired(memory.metadata, now)]
        return Span(living, [conversation for found in held for conversation in found], counts)

    @reads
    def growth(self, conn: Connection, scope: Scope, unit: Unit, first: date, end: date) -> Counts:
        """Return how many of the living memories were stored, and how many messages were said, by `unit`."""
        days = Days(first, end, self.zone)
        stored = memories.count_stored_memories(conn, scope, unit, days)
        return Counts(stored, memories.count_messages(conn, scope, unit, days))

    @reads
    def believed(
        self, conn: Connection, scope: Scope, instant: datetime, limit: int, before: int | None = None
    ) -> tuple[Sequence[Hit], int | None]:
        """Return a page of the memories that were living at an instant, as they were then, newest first.

        With it comes the `before` that requests the next page, and None on the last one.
        """
        near = memories.living_at(conn, scope, instant, limit, before)
        place = {memory_id: number for number, memory_id in near}
        then = history.memories_at(conn, scope, instant, list(place))
        then.sort(key=lambda memory: place[memory.id], reverse=True)
        hits = [memory_hit(memory).in_zone(self.zone) for memory in then]
        return hits, near[-1][0] if len(near) == limit else None


# Whether something of a user has changed, in this process or another one.


@dataclass(frozen=True, slots=True)
class Look:
    """A look at the index log: its newest number and epoch, and whether something of the user is new since the last."""

    number: int
    epoch: str
    is_new: bool = False


class Changes(OfMemory):
    """What changes in a memory. Every method raises LedgerError."""

    @reads
    def look(self, conn: Connection, user_id: str, last: Look | None = None) -> Look:
        """Look at what the index log says of a user. A ledger that was restored or purged in between is all new."""
        number, epoch = entries.newest_log_number(conn), entries.epoch(conn)
        is_new = last is not None and (
            epoch != last.epoch
            or number < last.number
            or (number > last.number and entries.has_changed_since(conn, user_id, last.number))
        )
        return Look(number, epoch, is_new)


# Hear which memories have changed, whichever server changed them, if the database of the ledger tells.

# How often the index log is looked at if nothing is heard, because the connection may be lost.
LOOK_SECONDS = 5.0

# How many memories are told of at once: more changed in one moment are an import.
MAX_CHANGED = 500

OnChanged: TypeAlias = Callable[[Sequence[ChangedMemory]], Awaitable[None]]

logger = logging.getLogger(__name__)


async def hear_changes(engine: Engine, on_changed: OnChanged) -> None:
    """Await `on_changed` with the memories that change, until cancelled. Return at once if the database does not tell.

    Without an answer of the database, changes are told of when it answers again.
    """
    listener = await engine.run(engine.ledger.database.listener)
    if listener is None:
        return
    limit = anyio.CapacityLimiter(1)  # a thread of its own, because it waits most of the time
    try:
        number: int | None = None
        while True:
            try:
                await anyio.to_thread.run_sync(listener.wait, LOOK_SECONDS, limiter=limit, abandon_on_cancel=True)
                number, changed = await engine.read(partial(_changed_after, number))
                if changed:
                    await on_changed(changed)
            except LedgerError as error:
                logger.warning("changes by other servers are not heard for a while: %s", error)
                await anyio.sleep(LOOK_SECONDS)
    finally:
        listener.close()


def _changed_after(number: int | None, conn: Connection) -> tuple[int, Sequence[ChangedMemory]]:
    """Return the newest number of the index log, and what changed after a number. With None nothing has changed."""
    newest = entries.newest_log_number(conn)
    if number is None or newest == number:
        return newest, ()
    changed = entries.changed_memories(conn, number, MAX_CHANGED)
    return (changed[-1].log_number if len(changed) == MAX_CHANGED else newest), changed
