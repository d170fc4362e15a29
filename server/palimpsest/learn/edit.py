"""Edit memories: update, delete, restore, undo, and corrections of many at once."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from palimpsest.core import errors, models
from palimpsest.core.clock import parse_date, parse_instant, parse_until, span_of
from palimpsest.core.errors import InputError, MemoryNotFoundError
from palimpsest.core.models import EXPIRES_AT, ORIGIN, Decision, Event, Fact, Kind, Memory, Message, Provenance, Scope
from palimpsest.core.validation import held_from, in_order, one_line, text_from
from palimpsest.index.backfill import Backfill
from palimpsest.learn import commit, duplicates
from palimpsest.learn.commit import WriteResult, Writing, apply_decisions, embed_texts, writes
from palimpsest.learn.engine import Engine
from palimpsest.learn.sanitize import Cleaner, sanitize_fact
from palimpsest.store import entries, history
from palimpsest.store import memories as memory_queries
from palimpsest.store import messages as message_queries
from palimpsest.store.apply import Write
from palimpsest.text.dates.date_finder import dates_in
from palimpsest.text.display import counted, shorten
from palimpsest.text.names.known_names import asks_about_name, told_self_name

# Edit memories by hand: update, delete, restore, undo. Each call can safely be repeated.

# How often an edit is made on the newest text. An attempt takes milliseconds, and fails if another edit came first.
MAX_ATTEMPTS = 20

# How much of the present text an error quotes: all of what can be pinned.
QUOTED_CHARS = 2_000

# How much of a memory is quoted that a deleted one had replaced.
MAX_TOLD_CHARS = 200

# How many tags a memory may be given by hand, and how long each may be: more than anybody reads.
MAX_TAGS, MAX_TAG_CHARS = 20, 60


@dataclass(frozen=True, slots=True)
class ScopeContents:
    """The living memories and messages of a scope itself, oldest first."""

    memories: tuple[Memory, ...]
    messages: tuple[Message, ...]

    def __str__(self) -> str:
        """Return how many there are, in the words that confirm their deletion."""
        counts = ((len(self.memories), "memory"), (len(self.messages), "message"))
        return " and ".join(counted(count, noun) for count, noun in counts if count) or "nothing"


_P = ParamSpec("_P")
_T = TypeVar("_T")


def made_again(edit: Callable[_P, Awaitable[_T]]) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """Make an edit start again if what it has read changes before it is applied."""

    @wraps(edit)
    async def make(*args: _P.args, **options: _P.kwargs) -> _T:
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return await edit(*args, **options)
            except errors.StaleDecisionError:
                continue
        return await edit(*args, **options)

    return make


def refuse_changed(memory: Memory, revision: int | None, *, takes_away: bool = False) -> Mapping[str, int]:
    """Return the revision of a memory that a caller has read, by its id; nothing if they do not say which.

    Whoever takes the whole text of a block away and does not say which knows it as it was at first. Raises
    ChangedMeanwhileError if it is not the present one.
    """
    reason = "was changed meanwhile"
    if revision is None and takes_away and memory.deleted_at is None and memory_queries.is_block(memory.metadata):
        revision, reason = 1, "is a block that was edited"
    if revision is None:
        return {}
    if revision != memory.revision:
        address = f"{memory.id[:8]}@{memory.revision}"
        raise errors.ChangedMeanwhileError(
            f"memory '{memory.id[:8]}' {reason}, so nothing was changed now. {_present(memory)}\n"
            f"update_memory changes a part of it (old or line); the id {address} takes the whole of it away"
        )
    return {memory.id: revision}


def _present(memory: Memory) -> str:
    """Return what a memory says now, and the address that an edit of it carries."""
    return f"[{memory.id[:8]}@{memory.revision}] says now: {shorten(memory.text, QUOTED_CHARS)}"


def _edited(
    memory: Memory, text: str, old: str, line: int | None, revision: int | None
) -> tuple[str, Mapping[str, int]]:
    """Return the text that an edit gives a memory, and the revision that it is made on, by the memory's id.

    An edit of a part is made on the present revision.
    """
    is_part = bool(old) or line is not None
    if memory.deleted_at is not None:
        return text, {}
    read = refuse_changed(memory, revision, takes_away=not is_part and text not in ("", memory.text))
    return (_with_part(memory, text, old, line, revision), {memory.id: memory.revision}) if is_part else (text, read)


def _with_part(memory: Memory, text: str, old: str, line: int | None, revision: int | None) -> str:
    """Return the text of a memory with another for the exact part `old`, or with it after a line.

    Raises InputError if that part is not there exactly once, or if a line is counted in a revision that is not named.
    """
    if old and line is not None:
        raise InputError("old replaces and line inserts: give one of them. Nothing was changed")
    if old:
        place = memory.text.find(old)
        if place < 0 or memory.text.find(old, place + 1) >= 0:
            fault = "does not stand in the text as it is" if place < 0 else "stands in the text more than once"
            raise InputError(f"old {fault}, so nothing was changed. {_present(memory)}")
        return text_from(memory.text[:place] + text + memory.text[place + len(old) :])
    lines, new = memory.text.split("\n"), text_from(text).split("\n")
    place = len(lines) if line is None or line == -1 else line
    if not 0 <= place <= len(lines):
        raise InputError(f"line is 0 (first) to {len(lines)}, or -1 (last). Nothing was changed. {_present(memory)}")
    if line not in {0, -1} and revision is None:
        raise InputError(f"name the revision whose lines you count. Nothing was changed. {_present(memory)}")
    is_repeated = line == -1 and lines[-len(new) :] == new
    return memory.text if is_repeated else text_from("\n".join((*lines[:place], *new, *lines[place:])))


async def clean_tags(engine: Engine, tags: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return tags without secrets, each once, and notes on the secrets. Raises InputError for too many or too long."""
    given = tuple(dict.fromkeys(text for tag in tags if (text := one_line(tag))))
    if len(given) > MAX_TAGS or any(len(tag) > MAX_TAG_CHARS for tag in given):
        raise InputError(f"a memory has at most {MAX_TAGS} tags of {MAX_TAG_CHARS} characters; nothing was changed")
    cleaner = Cleaner(engine)
    return await engine.run(lambda: tuple(cleaner.text(tag) for tag in given)), cleaner.notes()


# How much of the hints that an edit leaves is quoted: enough to see whether they fit the new text.
MAX_HINTS_CHARS = 120


def with_labels(memory: Memory, fact: Fact, tags: Sequence[str], hints: Sequence[str]) -> Fact:
    """Return a fact that gives a memory these tags and hints and no others, and leaves when it holds as it is."""
    return replace(
        fact,
        tags=tuple(tags),
        keywords=tuple(hints),
        valid_from=fact.valid_from or memory.valid_from,
        valid_from_precision=fact.valid_from_precision if fact.valid_from else memory.valid_from_precision,
        valid_until=fact.valid_until or memory.valid_until,
        valid_until_precision=fact.valid_until_precision if fact.valid_until else memory.valid_until_precision,
    )


def _notes_on_change(old: Memory, result: WriteResult, now: datetime) -> Iterator[str]:
    """Yield notes if a text no longer names the day on which its memory begins or ends, and if the past is corrected.

    It is if an edit tells another value of what held for a day or longer: then that was never true.
    """
    new = result.outcomes[0].memory
    told, tells = ([f"{span.start:%Y-%m-%d}" for span in dates_in(each.text, old.stated_at)] for each in (old, new))
    for name, day, stays in (("since", old.since, new.since), ("until", old.until, new.until)):
        if day == stays and day in told and day not in tells and tells:
            yield f"{name} stays {day}, which the text no longer names; if it has moved, give {name}"
    before, after = ({each.key for each in memory.relations} for memory in (old, new))
    leads_elsewhere = {key[:2] for key in before - after} & {key[:2] for key in after - before}
    is_other = leads_elsewhere or (new.text != old.text and new.since != old.since)
    if new.id == old.id and is_other and now - old.holds_from >= timedelta(1):  # else a slip is put right
        yield f"this corrects the past; if the old held until now, set it back, add the new with replaces={old.id[:8]}"


def _notes_on_wording(memory: Memory, versions: Sequence[models.Version]) -> Iterator[str]:
    """Yield a note on how to take the last change of a memory's text back, if there was one."""
    if texts := [each.new_memory for each in versions if each.new_memory not in {None, memory.text}]:
        said = shorten(one_line(str(texts[-1])), MAX_TOLD_CHARS)
        yield f"only what was deleted is restored; an update with the earlier text takes a change back: {said}"


def without_untold_name(memory: Memory, fact: Fact) -> Fact:
    """Return a fact that takes the user's name from a memory whose old text told it and nothing else.

    The name that something else told stays: where somebody lives may change without it.
    """
    told = told_self_name(memory.text) and str(memory.metadata.get(models.USER_NAME, "")) not in fact.text
    return _without(fact, models.USER_NAME) if told else fact


def _without(fact: Fact, key: str) -> Fact:
    """Return a fact whose text takes the place of another one, and that takes its metadata of a key from the memory."""
    if not fact.text or key in fact.metadata:
        return fact
    return replace(fact, metadata={**fact.metadata, key: None})


def _deleted_error(memory: Memory, successor: Memory | None) -> MemoryNotFoundError:
    """Return the error that says how a memory was deleted or superseded, by what at last."""
    fate = "is deleted already"
    if successor is not None:
        fate = f"was superseded by '{successor.id[:8]}'" + (", which is deleted" if successor.deleted_at else "")
    memory_id = memory.id[:8]
    return MemoryNotFoundError(f"memory '{memory_id}' {fate}, so nothing was changed", errors.Remedy.RESTORE, memory_id)


def _deletions(owners: Sequence[Memory | Message], *, forgets: bool = False) -> list[Decision]:
    return [Decision(Event.DELETE, memory_id=owner.id, kind=_kind(owner), forgets=forgets) for owner in owners]


async def _successors(engine: Engine, owners: Sequence[Memory | Message]) -> dict[str, Memory]:
    """Return the last memories of the chains that superseded others, living or deleted, by the ids of these."""
    closed = [owner for owner in owners if isinstance(owner, Memory) and owner.superseded_by]
    return await engine.read(lambda conn: memory_queries.successors(conn, closed)) if closed else {}


async def refuse_deleted(engine: Engine, memory: Memory) -> None:
    """Raise MemoryNotFoundError if a memory is deleted or superseded, which says by what at last."""
    if memory.deleted_at is not None:
        raise _deleted_error(memory, (await _successors(engine, [memory])).get(memory.id))


async def _embed_restored(engine: Engine) -> list[str]:
    """Embed restored texts that have no vector, as far as it fits a call. Return a note about those that wait.

    They are restored by then, so a failure is noted.
    """
    backfill = Backfill(engine.ledger, engine.embedder, only_failed=True, in_background=False)
    end = time.monotonic() + commit.CALL_SECONDS
    try:
        await engine.run(lambda: backfill.run(lambda: time.monotonic() > end))
    except (errors.EmbedderError, errors.LedgerError) as error:
        return [f"found by words only, until it can be embedded: {error}"]
    late = "some texts are found by words only until they are embedded in the background"
    return [] if backfill.is_finished else [late]


async def _owners(
    engine: Engine, scope: Scope, owner_ids: Sequence[str], *, takes_away: bool = False
) -> list[Memory | Message]:
    """Return the memories and messages that ids name, each once. Raises ChangedMeanwhileError as `refuse_changed`."""
    owners = await engine.read(lambda conn: [entries.find(conn, scope, owner_id) for owner_id in owner_ids])
    for owner, owner_id in zip(owners, owner_ids, strict=True):
        if isinstance(owner, Memory):
            refuse_changed(owner, entries.revision_in(owner_id), takes_away=takes_away)
    return list({owner.id: owner for owner in owners}.values())


def _stays_replaced(old: Memory) -> str:
    stays = f"[{old.id[:8]}], which [{str(old.superseded_by)[:8]}] had replaced, stays replaced, and as_of finds it"
    return f"{stays}; restore it if it holds, delete it to forget it: {shorten(one_line(old.text), MAX_TOLD_CHARS)}"


def _kind(owner: Memory | Message) -> Kind:
    return "message" if isinstance(owner, Message) else "memory"


class Edits(Writing):
    """Edits of memories by hand, as methods of an open memory. Each call can safely be repeated.

    Every method raises PalimpsestError.
    """

    @writes
    @made_again
    async def update(  # noqa: PLR0913 - what can be changed, passed by name
        self,
        scope: Scope,
        memory_id: str,
        *,
        text: str | None = None,
        old: str = "",
        line: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        hints: Iterable[str] | None = None,
        tags: Sequence[str] | None = None,
        since: str = "",
        until: str = "",
        relations: Sequence[models.Relation] | None = None,
        caller: str = "",
        revision: int | None = None,
    ) -> WriteResult:
        """Give a memory another text, other metadata (None removes a key), or hints, tags or relations of its own.

        `old` is the exact part of its text that `text` replaces, which must be there once; `line` is the line after
        which `text` is inserted (0: first, -1: last). Hints, tags and relations take the place of those that it has.
        Tags in the metadata are among the hints.
        `since` and `until` are as in `add_text`, or "none" for what is not known. The history keeps the old ones.
        If `revision` is given, or named in the id (27e8f74a@3), and is no longer the present one, raises
        ChangedMeanwhileError.
        """
        engine, zone = self.engine, self.zone or UTC
        revision = entries.revision_in(memory_id) if revision is None else revision
        held = held_from(since, until, zone)
        memory = await engine.read(lambda conn: entries.find_memory(conn, scope, memory_id))
        text, read = _edited(memory, text or "", old, line, revision)
        changed_metadata = {**memory.metadata, **(metadata or {})}
        if hints is not None or changed_metadata.get("tags") != memory.metadata.get("tags"):
            other = [word for word in memory.keywords if word not in models.tags_given(memory.metadata)]
            hints = dict.fromkeys((*(other if hints is None else hints), *models.tags_given(changed_metadata)))
        given = Fact(text, metadata=metadata or {}, keywords=tuple(hints or ()), relations=tuple(relations or ()))
        fact, notes = await engine.run(lambda: sanitize_fact(engine, given))
        if memory.deleted_at is not None:
            successor = (await _successors(engine, [memory])).get(memory.id)
            if successor is None or not commit.has_text(successor, fact.text):
                raise _deleted_error(memory, successor)
            return WriteResult((models.Outcome(Event.NONE, successor, duplicate_of=successor.id),), notes=tuple(notes))
        fact = await engine.read(lambda conn: commit.with_names(conn, scope, fact))
        kept, tag_notes = (memory.tags, []) if tags is None else await clean_tags(engine, tags)
        sets_labels, sets_relations = tags is not None or hints is not None or bool(held), relations is not None
        notes += tag_notes
        if sets_labels:
            fact = with_labels(memory, fact, kept, fact.keywords if hints is not None else memory.keywords)
            fact = in_order(replace(fact, **held), zone)
            if "valid_until" in held and EXPIRES_AT in memory.metadata:  # one end is enough
                fact = replace(fact, metadata={EXPIRES_AT: None, **fact.metadata})
        text, keywords = fact.text or memory.text, fact.keywords if sets_labels else memory.keywords
        new_key = models.key_text(text, keywords, memory.context if text == memory.text else "", kept)
        vectors, embedding_notes = await embed_texts(engine, [new_key] if new_key != memory.key_text else [])
        changed = without_untold_name(memory, fact)
        if ORIGIN in memory.metadata:  # whoever edits the text stands by it
            changed = _without(changed, ORIGIN)
        decision = Decision(Event.UPDATE, changed, memory.id, sets_labels=sets_labels, sets_relations=sets_relations)
        notes = [*notes, *embedding_notes, *commit.past_end_notes(engine, fact)]
        if hints is None and memory.keywords and text != memory.text:
            kept_hints = shorten(", ".join(memory.keywords), MAX_HINTS_CHARS)
            notes.append(f"its hints stay: {kept_hints}; replace them if they don't fit")
        write = Write(scope, Provenance("update", caller=caller), decisions=(decision,), vectors=vectors, read=read)
        result = await apply_decisions(engine, write, notes)
        # Setting a text back to what it was corrects nothing.
        versions = await engine.read(lambda conn: history.versions_of(conn, memory.id))
        if sum(version.new_memory == result.outcomes[0].memory.text for version in versions) <= 1:
            result = replace(result, notes=(*result.notes, *_notes_on_change(memory, result, engine.clock())))
        return await duplicates.with_near_duplicates(engine, scope, result, vectors)

    @writes
    async def restore_all(self, scope: Scope, owner_ids: Sequence[str], *, caller: str = "") -> WriteResult:
        """Restore memories, deleted or superseded, and deleted messages, all or none.

        Notes name memories that had replaced them, and ends that have passed.
        """
        owners = await _owners(self.engine, scope, owner_ids)
        successors = await _successors(self.engine, owners)
        restored = {owner.id for owner in owners}
        decisions = tuple(Decision(Event.ADD, memory_id=owner.id, kind=_kind(owner)) for owner in owners)
        write = Write(scope, Provenance("restore", caller=caller), decisions=decisions)
        result = await apply_decisions(self.engine, write)
        notes = list(result.notes)
        for owner in owners:
            if not isinstance(owner, Memory):
                continue
            if owner.deleted_at is None and owner.superseded_by is None:
                versions = await self.engine.read(lambda conn, id_=owner.id: history.versions_of(conn, id_))
                notes += _notes_on_wording(owner, versions)
            successor = successors.get(owner.id)
            if successor is not None and (successor.deleted_at is None or successor.id in restored):
                notes.append(
                    f"[{successor.id[:8]}], which had replaced it, is current too; delete one if they disagree"
                )
            if owner.deleted_at is not None and models.has_expired(owner.metadata, self.engine.clock()):
                end = owner.metadata[EXPIRES_AT]
                notes.append(
                    f"{EXPIRES_AT} was {end}, which has passed; it was removed, so that this holds until you say so"
                )
        return replace(result, notes=(*notes, *await _embed_restored(self.engine)))

    async def restore(self, scope: Scope, owner_id: str, *, caller: str = "") -> WriteResult:
        """Restore a deleted or superseded memory, or a deleted message."""
        return await self.restore_all(scope, [owner_id], caller=caller)

    @made_again
    async def delete(self, scope: Scope, owner_ids: Sequence[str], *, caller: str = "") -> WriteResult:
        """Delete memories and messages, all or none. One that is deleted already stays deleted."""
        owners = await _owners(self.engine, scope, owner_ids, takes_away=True)
        read = {owner.id: owner.revision for owner in owners if isinstance(owner, Memory)}
        result = await self._apply(scope, _deletions(owners), models.DELETE, caller, read=read)
        last = [owner.id for owner in owners if isinstance(owner, Memory) and not owner.superseded_by]
        replaced = await self.engine.read(lambda conn: [old for id_ in last for old in history.predecessors(conn, id_)])
        notes = [_stays_replaced(old.memory) for old in replaced]
        return replace(result, notes=(*result.notes, *notes))

    async def forget(self, scope: Scope, owner_ids: Sequence[str], *, what: str = "", caller: str = "") -> WriteResult:
        """Delete memories with those that they replaced, and messages, all or none: a person who asked confirmed it.

        `what` was asked for, in the person's words.
        """
        decisions = _deletions(await _owners(self.engine, scope, owner_ids), forgets=True)
        name = await self.engine.read(lambda conn: memory_queries.name_of_user(conn, scope))
        return await self._apply(scope, decisions, models.DELETE, caller, forgets_name=asks_about_name(what, name))

    async def scope_contents(self, scope: Scope) -> ScopeContents:
        """Return what `delete_all` would delete."""
        return await self.engine.read(
            lambda conn: ScopeContents(
                tuple(memory_queries.memories_of(conn, scope)), tuple(message_queries.messages_of(conn, scope))
            )
        )

    async def delete_all(self, scope: Scope, *, caller: str = "") -> WriteResult:
        """Delete every memory and message of a scope itself. If the scope is a project, the global ones stay.

        The recall log of the scope is erased, which no undo brings back.
        """
        contents = await self.scope_contents(scope)
        decisions = _deletions((*contents.memories, *contents.messages))
        return await self._apply(scope, decisions, models.DELETE, caller, erases_recalls=True)

    @writes
    async def undo(self, scope: Scope, undo: models.Undo | None = None, *, caller: str = "") -> WriteResult:
        """Undo one edit, all edits since an instant, or, by default, the newest edit still in effect.

        Raises InputError if that is not possible.
        """
        write = Write(scope, Provenance("undo", caller=caller), undo=undo or models.Undo())
        applied = await commit.apply_write(self.engine, write)
        notes = (*applied.notes, *await _embed_restored(self.engine))
        return WriteResult(applied.outcomes, notes=notes, entity_edits=applied.entity_edits, edit=applied.edit)


# Corrections that people make of an open memory: of many memories at once, of duplicates, of what contradicts.
#
# Every method that writes makes one edit, which can be undone, or changes nothing.

# What a merge does not take over: it is true of the one text that says it.
OWN_METADATA = frozenset({models.USER_NAME, EXPIRES_AT})


class Corrections(Edits):
    """Corrections of a memory, as `memory.corrections`. Every method raises PalimpsestError."""

    async def duplicates(self, scope: Scope, before: int | None = None) -> duplicates.AlikePage:
        """Return groups of memories that say nearly the same, from below row `before`, the surest group first."""
        return await self.engine.run(lambda: duplicates.alike(self.engine, scope, before, duplicates.is_repeated))

    async def contradictions(self, scope: Scope, before: int | None = None) -> duplicates.AlikePage:
        """Return groups of memories of which the newer one probably replaces the others, as `duplicates` does."""
        return await self.engine.run(lambda: duplicates.alike(self.engine, scope, before, duplicates.is_contradicted))

    async def conflicts(self, scope: Scope, memory_id: str = "") -> Sequence[duplicates.Conflict]:
        """Return relations that can have one value and that living memories give several, the newest first.

        With `memory_id` only those that this memory states.
        """
        return await self.engine.read(lambda conn: duplicates.conflicts(conn, scope, self.engine.clock(), memory_id))

    async def merge(self, scope: Scope, kept_id: str, other_ids: Sequence[str], *, caller: str = "") -> WriteResult:
        """Close memories in favour of one that says the same, which takes over their messages, tags and metadata."""
        kept, others = await self._kept_and_others(scope, kept_id, other_ids)
        ids = [other.id for other in others]
        behind = await self.engine.read(lambda conn: message_queries.sources_of(conn, ids))
        sources = tuple(dict.fromkeys(message.id for found in behind.values() for message in found))
        taken = _lacking(kept, others, sources)
        decisions = [Decision(Event.UPDATE, taken, kept.id), *_closing(kept, others)]
        return await self._write(scope, decisions, "merge", caller)

    async def settle(
        self, scope: Scope, kept_id: str, other_ids: Sequence[str], *, were_true: bool = True, caller: str = ""
    ) -> WriteResult:
        """Close memories in favour of the one that is true now, or delete them if they never `were_true`."""
        kept, others = await self._kept_and_others(scope, kept_id, other_ids)
        ended = _closing(kept, others) if were_true else _deletions(others)
        return await self._write(scope, ended, "settle", caller)

    async def set_validity(
        self, scope: Scope, memory_id: str, *, since: str, until: str, caller: str = "", revision: int | None = None
    ) -> WriteResult:
        """Say since when a memory holds and with what it ends, as ISO 8601; "" for what is not known.

        `revision` is as in `Memory.update`.
        """
        memories, _ = await self._chosen(scope, [memory_id])
        if not memories:
            raise InputError("a message has no dates to correct; nothing was changed")
        zone = self.zone
        since, until = since.strip(), until.strip()
        begins = (parse_date(since) or (parse_instant(since, "valid_from", zone), "")) if since else None
        end = parse_until(until, EXPIRES_AT, zone) if until else None
        if begins is not None and end is not None and end <= span_of(*begins, zone).first:
            raise InputError(f"{until} is before {since}; nothing was changed")
        (memory,) = memories
        read = refuse_changed(memory, revision)
        valid_from, precision = begins or (None, "")
        fact = replace(
            with_labels(memory, Fact(""), memory.tags, memory.keywords),
            valid_from=valid_from,
            valid_from_precision=precision,
            valid_until=None,  # one end is enough
            valid_until_precision="",
            metadata={EXPIRES_AT: until or None},
        )
        decision = Decision(Event.UPDATE, fact, memory.id, sets_labels=True)
        notes = commit.past_end_notes(self.engine, fact)
        return await self._apply(scope, [decision], "update", caller, notes, read=read)

    async def add_tag(self, scope: Scope, owner_ids: Sequence[str], tag: str, *, caller: str = "") -> WriteResult:
        """Give memories one more tag."""
        memories, notes = await self._chosen(scope, owner_ids)
        tags, on_tag = await self._tag(tag)
        full = [memory for memory in memories if len({*memory.tags, *tags}) > MAX_TAGS]
        if full:
            raise InputError(f"[{full[0].id[:8]}] has {MAX_TAGS} tags, which is the most; nothing was changed")
        decisions = [Decision(Event.UPDATE, Fact("", tags=tags), memory.id) for memory in memories]
        return await self._write(scope, decisions, "update", caller, (*notes, *on_tag))

    async def remove_tag(self, scope: Scope, owner_ids: Sequence[str], tag: str, *, caller: str = "") -> WriteResult:
        """Take a tag from the memories that have it."""
        memories, notes = await self._chosen(scope, owner_ids)
        (removed,), _ = await self._tag(tag)
        left = [(memory, [kept for kept in memory.tags if kept != removed]) for memory in memories]
        decisions = [
            Decision(Event.UPDATE, with_labels(memory, Fact(""), tags, memory.keywords), memory.id, sets_labels=True)
            for memory, tags in left
            if len(tags) < len(memory.tags)
        ]
        return await self._write(scope, decisions, "update", caller, notes)

    async def pin(self, scope: Scope, owner_ids: Sequence[str], *, pinned: bool, caller: str = "") -> WriteResult:
        """Pin memories, or take them from the pinned ones."""
        return await self._set(scope, owner_ids, {models.PINNED: pinned or None}, caller)

    async def captured(self, scope: Scope, limit: int) -> Sequence[Memory]:
        """Return what was recognized in conversations without a model and nobody has confirmed, the newest first."""
        return await self.engine.read(lambda conn: memory_queries.captured_memories(conn, scope, limit))

    async def confirm(self, scope: Scope, owner_ids: Sequence[str], *, caller: str = "") -> WriteResult:
        """Confirm memories, which then have no origin any more."""
        return await self._set(scope, owner_ids, {ORIGIN: None}, caller)

    async def _set(
        self, scope: Scope, owner_ids: Sequence[str], metadata: Mapping[str, Any], caller: str
    ) -> WriteResult:
        memories, notes = await self._chosen(scope, owner_ids)
        decisions = [Decision(Event.UPDATE, Fact("", metadata=metadata), memory.id) for memory in memories]
        return await self._write(scope, decisions, "update", caller, notes)

    async def _write(
        self, scope: Scope, decisions: list[Decision], stage: str, caller: str, notes: Sequence[str] = ()
    ) -> WriteResult:
        if not decisions:
            return WriteResult(notes=tuple(notes))
        return await self._apply(scope, decisions, stage, caller, notes)

    async def _tag(self, tag: str) -> tuple[tuple[str, ...], Sequence[str]]:
        tags, notes = await clean_tags(self.engine, [tag])
        if not tags:
            raise InputError("name the tag; nothing was changed")
        return tags, notes

    async def _chosen(self, scope: Scope, owner_ids: Sequence[str]) -> tuple[list[Memory], tuple[str, ...]]:
        """Return the memories that ids name, each once, and a note on messages, which have neither tags nor pins.

        Raises MemoryNotFoundError if one of them is not living.
        """
        owners = await _owners(self.engine, scope, owner_ids)
        memories = [owner for owner in owners if isinstance(owner, Memory)]
        for memory in memories:
            await refuse_deleted(self.engine, memory)
        left_out = len(owners) - len(memories)
        return memories, (f"{counted(left_out, 'message')} stayed as they are",) if left_out else ()

    async def _kept_and_others(
        self, scope: Scope, kept_id: str, other_ids: Sequence[str]
    ) -> tuple[Memory, Sequence[Memory]]:
        """Return a memory and those to close in its favour. Raises InputError if they are not of the same scope."""
        memories, _ = await self._chosen(scope, [kept_id, *other_ids])
        kept, *others = memories
        if not others:
            raise InputError("choose at least two memories; nothing was changed")
        if any(other.scope != kept.scope for other in others):
            raise InputError("these memories belong to different projects, agents or runs; nothing was changed")
        return kept, others


def _closing(kept: Memory, others: Iterable[Memory]) -> list[Decision]:
    return [Decision(Event.DELETE, memory_id=other.id, successor=kept.id) for other in others]


def _lacking(kept: Memory, others: Sequence[Memory], sources: tuple[str, ...]) -> Fact:
    """Return what others know and a memory does not. What is pinned stays pinned."""
    metadata = {key: value for other in reversed(others) for key, value in other.metadata.items()}
    known = {*kept.metadata, *OWN_METADATA}
    dated = next((other for other in others if other.happened_at is not None), kept)
    begun = next((other for other in others if other.valid_from is not None), kept)
    is_dated, is_begun = kept.happened_at is not None, kept.valid_from is not None
    return Fact(
        "",
        sources,
        keywords=tuple(word for other in others for word in other.keywords),
        tags=tuple(tag for other in others for tag in other.tags),
        metadata={key: value for key, value in metadata.items() if key not in known},
        happened_at=None if is_dated else dated.happened_at,
        happened_precision="" if is_dated else dated.happened_precision,
        valid_from=None if is_begun else begun.valid_from,
        valid_from_precision="" if is_begun else begun.valid_from_precision,
    )
