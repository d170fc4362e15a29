"""The kinds `about:NAME` and `timeline:NAME`: find an entity, read what is known of it, and write it as text."""

import difflib
import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from palimpsest.core import models
from palimpsest.core.clock import TimeSpan, local_iso, parse_date, span_of
from palimpsest.core.errors import InputError, ModelError, PromptError
from palimpsest.core.models import Entity, Hit, KnownRelation, Memory, Scope, name_key, relation_key
from palimpsest.core.protocols import LanguageModel
from palimpsest.core.validation import one_line
from palimpsest.learn.engine import Engine
from palimpsest.learn.summaries.portrait_signs import is_safety
from palimpsest.learn.summaries.summary_kinds import MORE, SHORT_ID, LiveKind, SummaryResult, is_cut
from palimpsest.llm.summarize import about
from palimpsest.recall.listing import ListRequest, page
from palimpsest.recall.score import in_order
from palimpsest.store.graph import entities
from palimpsest.store.graph import relations as relation_queries
from palimpsest.store.graph.identity import lookalikes
from palimpsest.store.memories import expired_ids, successors
from palimpsest.store.rows import is_seen
from palimpsest.text.dates.date_finder import date_and_sense, is_over
from palimpsest.text.display import counted, shorten_to_tokens
from palimpsest.text.names.known_names import is_short_form
from palimpsest.text.relation_updates import ONE_AT_A_TIME, ONE_HOLDER, finest
from palimpsest.text.tokenizer import count_tokens, lines_within, search_tokens

# Find entities by what people call them, and read what is known about one: its dossier. Blocking.

# How many memories of each kind a dossier reads, of which far fewer fit into its lines.
MAX_MEMORIES = 200

# How many of the oldest it reads if there are more: who somebody is was said first.
MAX_OLDEST = 20

# Among how many it looks for what somebody's safety depends on, however long ago that was said: a tenth of a second.
MAX_LOOKED_AT = 2_000

# How many relations a dossier reads, for the same reason.
MAX_RELATIONS = 200

# How many names an error offers: what a person reads at a glance.
NEAR_NAMES = 5

# With how many names an unknown one is compared, which takes some tenths of a second.
MAX_COMPARED = 5_000

_ID = re.compile(r"[0-9a-f]{8}[0-9a-f-]{0,28}")


@dataclass(frozen=True, slots=True)
class Dossier:
    """What is known about an entity, in a scope, now or at an instant.

    `holds` are the living memories that mention it and `held` those that were replaced or ended, the newest first;
    there are `all_holds` and `all_held` of them. `relations` are its own, those that hold now before those that held.
    `beside` are entities that memories only name together with it, with how many do, and `lookalikes` those that it may
    be, judging by their names alone. `is_of_then`: `holds` is what held at the time that was asked about. `planned` are
    the ids of those that hold only later.
    """

    entity: Entity
    aliases: tuple[str, ...]
    holds: tuple[Memory, ...]
    held: tuple[Memory, ...]
    all_holds: int
    all_held: int
    relations: tuple[KnownRelation, ...]
    beside: tuple[tuple[Entity, int], ...] = ()
    lookalikes: tuple[Entity, ...] = ()
    is_of_then: bool = False
    planned: frozenset[str] = frozenset()


def find_entities(conn: Connection, scope: Scope, name: str, *, as_of: datetime | None = None) -> list[Entity]:
    """Return the entities that a scope sees and that have a name; or the one whose id, or its beginning, it is.

    Raises InputError if there is none, with the names that come near.
    """
    key = name_key(name)
    if not key or len(name) > models.MAX_NAME_CHARS:
        raise InputError(f"a name has 1 to {models.MAX_NAME_CHARS} characters, such as Ana. Nothing was looked up")
    if found := entities.entities_named(conn, scope, [name], as_of=as_of):
        return found[key]
    if _ID.fullmatch(key):
        by_id = entities.entities_by_id(conn, scope, key)
        seen = entities.seen_roots(conn, scope, [entity.id for entity in by_id], as_of=as_of)
        shown = entities.as_shown(conn, scope, {entity.id: entity for entity in by_id if entity.id in seen})
        if len(shown) == 1:
            return list(shown.values())
    if as_of is not None and entities.entities_named(conn, scope, [name]):
        raise InputError(
            f"nothing was known of '{one_line(name)[:80]}' for {scope} at {local_iso(as_of)}. "
            "Leave the time out to see what is known now"
        )
    known = [listed.entity for listed in entities.list_entities(conn, scope, MAX_COMPARED)]
    people = [entity for entity in known if entity.type in ("person", "other")]
    called_so = [entity for entity in people if is_short_form(key, name_key(entity.name))]
    if as_of is None and " " not in key and len(called_so) == 1:
        return called_so
    where = f" for {seen}" if (seen := str(replace(scope, user_id=""))) else ""  # who the user is, they know
    raise InputError(f"nobody and nothing called '{one_line(name)[:80]}' is known{where}. {_near(known, key)}")


def _near(known: Sequence[Entity], key: str) -> str:
    """Return which known names come near one that is unknown."""
    by_key = {name_key(entity.name): entity.name for entity in reversed(known)}
    words = set(key.split())
    sharing = [other for other in by_key if not words.isdisjoint(other.split())]
    near = list(dict.fromkeys([*sharing, *difflib.get_close_matches(key, by_key, NEAR_NAMES)]))[:NEAR_NAMES]
    if near:
        return f"Did you mean {' or '.join(by_key[other] for other in near)}?"
    newest = ", ".join(entity.name for entity in known[:NEAR_NAMES])
    return f"Known are, for example: {newest}" if newest else "No names are known yet; they come with memories"


def read_dossier(
    conn: Connection,
    scope: Scope,
    entity: Entity,
    *,
    now: datetime,
    as_of: datetime | None = None,
    held_at: TimeSpan | None = None,
) -> Dossier:
    """Return what is known about an entity; with `as_of` what was known then.

    With `held_at` it is what held in the world then, by what is known: `holds` has it, and `held` nothing.
    """
    held, all_held = list[Memory](), 0
    if held_at is not None:
        living, _ = entities.memories_about(conn, scope, entity.id, MAX_LOOKED_AT)
        closed, _ = entities.former_memories_about(conn, scope, entity.id, MAX_LOOKED_AT)
        then = [memory for memory in (*living, *closed) if memory.may_hold_in(held_at)]
        holds, all_holds = _chosen(then), len(then)
        ever = relation_queries.relations_of(conn, scope, [entity.id], ever=True, limit=MAX_LOOKED_AT)
        relations = [item for item in _stretches(ever) if item.may_hold_in(held_at)][:MAX_RELATIONS]
    else:
        if as_of is None:
            known, total = entities.memories_about(conn, scope, entity.id, MAX_LOOKED_AT, oldest=MAX_OLDEST)
            expired = expired_ids(conn, scope, now)
        else:
            known, expired = entities.memories_about_at(conn, scope, entity.id, as_of), set[str]()
            total = len(known)
        living = [memory for memory in known if memory.id not in expired]
        all_holds = total - len(known) + len(living)
        held, all_held = entities.former_memories_about(conn, scope, entity.id, MAX_MEMORIES, as_of=as_of)
        # What has ended may not be closed: somebody said until when it held.
        chosen = _chosen(living)
        ended = [memory for memory in chosen if is_over(memory, as_of or now)]
        holds = [memory for memory in chosen if memory not in ended]
        held, all_holds, all_held = [*ended, *held], all_holds - len(ended), all_held + len(ended)
        if as_of is None:  # what has replaced something of it may name it otherwise
            after = {memory.id: memory for memory in successors(conn, held).values() if is_seen(scope, memory.scope)}
            after = {key: each for key, each in after.items() if each.deleted_at is None and each not in living}
            holds, all_holds = [*after.values(), *holds], all_holds + len(after)
        ever = relation_queries.relations_of(conn, scope, [entity.id], ever=True, limit=MAX_RELATIONS)
        # With `as_of` a relation of a memory that had ended by then is a former one.
        former = [item for item in ever if item.expired_at is not None and (not as_of or item.expired_at <= as_of)]
        current = relation_queries.relations_of(conn, scope, [entity.id], as_of=as_of, limit=MAX_RELATIONS)
        relations = _stretches(item for item in (*current, *former) if item.memory_id not in expired)
    connected = {end for item in relations for end in (item.source_id, item.destination_id)}
    beside = entities.named_beside(conn, scope, entity.id, holds)
    aliases = entities.other_names(conn, scope, entity)
    return Dossier(
        entity,
        tuple(aliases),
        tuple(memory.in_zone(now.tzinfo) for memory in holds),
        tuple(memory.in_zone(now.tzinfo) for memory in held),
        all_holds,
        all_held,
        tuple(relations),
        tuple((other, count) for other, count in beside if other.id not in connected),
        tuple(lookalikes(conn, scope, entity, [entity.name, *aliases])),
        is_of_then=held_at is not None,
        planned=frozenset(memory.id for memory in holds if held_at is None and memory.holds_from > (as_of or now)),
    )


def _chosen(memories: Sequence[Memory]) -> list[Memory]:
    """Return the newest memories and the oldest, and between them those that somebody's safety depends on."""
    safe = [memory for memory in memories[MAX_MEMORIES:-MAX_OLDEST] if is_safety(memory, "")]
    return [*memories[:MAX_MEMORIES], *safe[:MAX_OLDEST], *memories[MAX_MEMORIES:][-MAX_OLDEST:]]


def _stretches(relations: Iterable[KnownRelation]) -> list[KnownRelation]:
    """Return each relation once for each stretch of time. What one memory ends and another goes on with is one."""
    by_key: dict[tuple[str, str, str], list[KnownRelation]] = {}
    for item in relations:
        by_key.setdefault((item.source_id, relation_key(item.relationship), item.destination_id), []).append(item)
    found: list[KnownRelation] = []
    for known in by_key.values():
        last, *others = in_order(known)
        for item in others:
            if not _goes_on(last, item):
                found.append(last)
                last = item
                continue
            later = max(last, item, key=lambda each: (each.is_current, each.told_at, each.created_at))
            if item.valid_from and not last.valid_from and item.holds_from <= last.told_at:
                last = replace(last, valid_from=item.valid_from, memory_id=item.memory_id)
            last = replace(last, valid_until=later.valid_until, expired_at=later.expired_at)
        found.append(last)
    return found


def _goes_on(state: KnownRelation, other: KnownRelation) -> bool:
    """Return whether another memory goes on with a state, or repeats it, as one that replaces its memory does."""
    if state.was_dropped or other.was_dropped:
        return False
    if not state.valid_until or other.valid_from:
        return not state.valid_until or other.valid_from <= state.valid_until
    # A state that is told again on the day of its replacement had not ended.
    told = other.created_at - timedelta(days=1)
    return not state.has_ended(told) if state.expired_at is None else state.expired_at >= told


# A dossier as plain lines of text, within a number of tokens.

# How long a dossier may be: as long as the reply to a search is by default.
MAX_TOKENS = 800

# How much of one memory it shows: facts are shorter, and ten pasted texts still fit.
MAX_LINE_TOKENS = 80

# How many names of entities it lists that are only named together with this one: one line.
MAX_BESIDE = 10

# How many letters the forms of a name have in common.
STEM = 4

# How many other names it lists, for the same reason.
MAX_ALIASES = 8

# The heading of what holds, now or at the time that was asked about, and what stands there if there is nothing.
NOW, THEN = ("Holds now:", "Nothing holds now."), ("Held then:", "Nothing is known of then.")

# How many names tell entities of one name apart.
MAX_APART = 3


def lines_of(dossiers: Sequence[Dossier], max_tokens: int = MAX_TOKENS) -> list[list[str]]:
    """Return the dossiers of the entities of one name as lines, all of them together within a number of tokens.

    If there are several, the first line of each has its id and says what only this one is connected with.
    """
    if len(dossiers) == 1:
        return [dossier_lines(dossiers[0], max_tokens)]
    share = max_tokens // max(len(dossiers), 1)
    counts = Counter(name for dossier in dossiers for name in _neighbours(dossier))
    return [
        dossier_lines(dossier, share, apart=[name for name in _neighbours(dossier) if counts[name] == 1][:MAX_APART])
        for dossier in dossiers
    ]


def dossier_lines(dossier: Dossier, max_tokens: int = MAX_TOKENS, *, apart: Sequence[str] | None = None) -> list[str]:
    """Return a dossier as lines: who or what it is, what holds, what held before, and what it is connected with.

    What it is connected with and what held before may take a quarter of the room each; what holds takes the rest.
    """
    quarter = max_tokens // 4
    related = finest([item for item in dossier.relations if not item.was_dropped])
    relations = [f"- {item.line}" for item in sorted(related, key=lambda item: item.memory_id in dossier.planned)]
    planned = [each for each in dossier.holds if each.id in dossier.planned]
    holding = [each for each in dossier.holds if each.id not in dossier.planned]
    last = _section("Planned:", list(map(_memory_line, planned)), quarter, len(planned))
    last += _memories("Held before:", dossier.held, quarter, dossier.all_held)
    last += _section("Connected with:", relations, quarter, len(relations))
    own = _stems(" ".join((dossier.entity.name, *dossier.aliases)))
    # What one memory names beside it says little, unless it is another person. What each is would be a guess.
    others = {each for each, _ in dossier.beside if each.type == "person" and own.isdisjoint(_stems(each.name))}
    near = [item for item in dossier.beside if (item[1] > 1 and not _stems(item[0].name) <= own) or item[0] in others]
    if beside := [f"{one_line(other.name)} in {counted(count, 'memory')}" for other, count in near]:
        more = f" and {len(beside) - MAX_BESIDE:,} more" if len(beside) > MAX_BESIDE else ""
        last.append(f"Named together with: {', '.join(beside[:MAX_BESIDE])}{more}")
    if dossier.lookalikes:
        alike = " or ".join(f"{described(other)} [{other.id[:SHORT_ID]}]" for other in dossier.lookalikes)
        last.append(f"May be the same as {alike}; nobody has said so.")
    first = _heading(dossier, apart)
    left = max_tokens - sum(map(count_tokens, (first, *last)))
    title, nothing = THEN if dossier.is_of_then else NOW
    holds = _memories(title, holding, left, dossier.all_holds - len(planned))
    return [first, *(holds or [nothing]), *last]


def _stems(name: str) -> set[str]:
    """Return how the words of a name begin, which "Ryszarda Hinca" and Ryszard Hinc have in common."""
    return {word[:STEM] for word in name_key(name).split()}


def described(entity: Entity) -> str:
    """Return the name of an entity on one line, with what it is if that is known."""
    kind = "the user" if entity.is_user else "" if entity.type == "other" else entity.type
    return f"{one_line(entity.name)} ({kind})" if kind else one_line(entity.name)


def _heading(dossier: Dossier, apart: Sequence[str] | None) -> str:
    text = described(dossier.entity)
    if apart is not None:
        text += f" [{dossier.entity.id[:SHORT_ID]}]"
    if dossier.aliases:
        text += f", also called {', '.join(map(one_line, dossier.aliases[:MAX_ALIASES]))}"
    return f"{text}. Only this one is connected with {', '.join(apart)}" if apart else text


def _neighbours(dossier: Dossier) -> list[str]:
    own = dossier.entity.id
    related = [item.destination if item.source_id == own else item.source for item in dossier.relations]
    return list(dict.fromkeys(map(one_line, (*related, *(other.name for other, _ in dossier.beside)))))


def _section(title: str, lines: Sequence[str], budget: int, total: int) -> list[str]:
    """Return a title and the lines that fit, and how many more there are; nothing without lines."""
    if not lines:
        return []
    kept = lines_within(lines, budget)
    return [title, *kept, *([f"({total - len(kept):,}{MORE}"] if total > len(kept) else [])]


def _memories(title: str, memories: Sequence[Memory], budget: int, total: int) -> list[str]:
    """Return the same for memories, the newest first. If not all fit, those in the middle are left out.

    Who or what it is was mostly said first, and what holds of it last. What somebody's safety depends on is then shown
    before the rest.
    """
    lines = [_memory_line(memory) for memory in memories]
    if total <= len(lines) and sum(map(count_tokens, lines)) <= budget:
        return _section(title, lines, budget, total)
    safe = lines_within([_memory_line(memory) for memory in memories if is_safety(memory, "")], budget // 2)
    lines = [line for line in lines if line not in safe]
    total, budget = total - len(safe), budget - sum(map(count_tokens, safe))
    oldest = lines_within(lines[::-1], budget // 3)[::-1] if lines else []
    newest = lines_within(lines[: len(lines) - len(oldest)], budget - sum(map(count_tokens, oldest)))
    left_out = f"(between these {total - len(newest) - len(oldest):,}{MORE}"
    return [title, *safe, *newest, left_out, *oldest]


def _memory_line(memory: Memory) -> str:
    text = shorten_to_tokens(one_line(memory.text), MAX_LINE_TOKENS)
    return f"- [{memory.id[:SHORT_ID]}] {date_and_sense(memory, text)} {text}"


def _hit_line(hit: Hit) -> str:
    said = f"{hit.date} {one_line(hit.name) or hit.role} said:"
    date = date_and_sense(hit, hit.text) if hit.kind == "memory" else said
    return f"- [{hit.id[:SHORT_ID]}] {date} {shorten_to_tokens(one_line(hit.text), MAX_LINE_TOKENS)}"


# What `get_summary(kind="about:NAME")` returns: a model's text about an entity, or the lines of its dossier.

# How many entities of one name are told about. Each has its share of the tokens.
MAX_NAMESAKES = 4


async def _text_about(engine: Engine, scope: Scope, name: str, held_at: TimeSpan | None) -> SummaryResult:
    """Return what is known about the entities of a name, or what held of them. Raises InputError if there is none."""
    now = engine.clock()

    def read(conn: Connection) -> tuple[list[Dossier], int]:
        found = find_entities(conn, scope, name)
        dossiers = [read_dossier(conn, scope, each, now=now, held_at=held_at) for each in found[:MAX_NAMESAKES]]
        return dossiers, len(found) - len(dossiers)

    try:
        dossiers, more = await engine.read(read)
    except InputError as error:
        reason = str(error)
        said = None if held_at is not None else await engine.run(lambda: _said(engine, scope, name, reason))
        if said is None:
            raise
        return said
    lines = lines_of(dossiers)
    spoken = "" if held_at is not None else await engine.run(lambda: _messages_of(engine, scope, name))
    text = "\n".join(filter(None, (*(line for each in lines for line in each), spoken)))
    shown = dict.fromkeys(memory.id for dossier in dossiers for memory in (*dossier.holds, *dossier.held))
    # Who is called by a name may be somebody else: "Bella (cat)".
    if held_at is None and not name.endswith(")") and all(each.entity.type != "person" for each in dossiers):
        text = "\n".join((text, *await engine.run(lambda: _by_words(engine, scope, name, shown))))
    notes = (f"{more} more have this name",) if more else ()
    result = SummaryResult(text, f"{ABOUT.name}:{name}", 0, notes, (), tuple(shown), is_plain=True, is_cut=is_cut(text))
    if held_at is not None:
        return result
    reason = "there is no language model to ask"
    try:
        if engine.model is not None:
            pairs = zip(dossiers, lines, strict=True)
            texts = [await _written(engine, engine.model, each.entity, own) for each, own in pairs]
            read_lines = tuple(line for own in lines for line in own)
            return replace(result, text="\n\n".join(texts), lines=read_lines, is_plain=False)
    except (ModelError, PromptError) as error:
        reason = f"the text could not be written ({error})"
    return replace(result, notes=(f"{reason}: these are the memories themselves", *notes))


async def _written(engine: Engine, model: LanguageModel, entity: Entity, lines: Sequence[str]) -> str:
    """Let a model write the text about an entity. Raises ModelError and PromptError."""
    name, prompt = one_line(entity.name), engine.prompts.get("about")
    await engine.report_progress(f"asking the model about {name}")
    return await about(model, prompt, name=name, lines=lines, now=engine.clock())


# How many memories, and how many messages, are shown that have the words of a name.
MAX_SAID = 20


def _messages_of(engine: Engine, scope: Scope, name: str) -> str:
    """Return a line on what a speaker of a name said, "" if that is nothing."""
    said = {"kind": "message", "speaker": name}
    hits = page(engine.ledger, ListRequest(scope, MAX_SAID, MAX_SAID * MAX_TOKENS, filters=said)).hits
    count = f"{counted(len(hits), 'message')}{' or more' if len(hits) == MAX_SAID else ''}"
    shown = f"list_memories with filters={json.dumps(said, ensure_ascii=False)} shows them"
    return f"Said {count} ({hits[0].date} the last): {shown}." if hits else ""


def _by_words(engine: Engine, scope: Scope, name: str, shown: Container[str]) -> list[str]:
    """Return the memories that name a thing in their words, and something of it in their relations: its rent."""
    telling = " ".join(word for word in name.split() if not word.islower()) or name
    lines = [_hit_line(hit) for hit in _found(engine, scope, {"words": telling}) if hit.id not in shown]
    return _section("Found by its words:", lines, MAX_TOKENS // 4, len(lines))


def _found(engine: Engine, scope: Scope, filters: Mapping[str, Any]) -> Sequence[Hit]:
    return page(engine.ledger, ListRequest(scope, MAX_SAID, MAX_TOKENS // 2, filters=filters)).hits


def _said(engine: Engine, scope: Scope, name: str, reason: str) -> SummaryResult | None:
    """Return the memories and messages that have the words of an unknown name, and what a speaker of that name said.

    The text begins with the `reason`, which says that the name is unknown. None if there is nothing.
    """
    if not search_tokens(name):
        return None
    by_words = {"words": name}
    of_messages = {"kind": "message", "NOT": {"role": models.PAGE}, "OR": [by_words, {"speaker": name}]}
    found = [_found(engine, scope, filters) for filters in (by_words, of_messages)]
    lines = [_hit_line(hit) for hits in found for hit in hits]
    if not lines:
        return None
    text = "\n".join([reason, "Found by its words:", *lines])
    sources = tuple(hit.id for hit in found[0])
    return SummaryResult(text, f"{ABOUT.name}:{name}", 0, sources=sources, is_plain=True, is_cut=is_cut(text))


ABOUT = LiveKind("about", "NAME", _text_about)


# What `get_summary(kind="timeline:NAME")` returns: what held of an entity when, in order.

# How long nothing is known before a line says so: times are often known to the month.
GAP = timedelta(days=62)


async def _timeline(engine: Engine, scope: Scope, name: str, held_at: TimeSpan | None) -> SummaryResult:
    """Return what held of the entities of a name, and when. Raises InputError if there is none."""
    if held_at is not None:
        raise InputError(f"a timeline has all times; for one of them use about:{name} with held_at")
    now = engine.clock()

    def read(conn: Connection) -> list[Dossier]:
        return [read_dossier(conn, scope, each, now=now) for each in find_entities(conn, scope, name)[:MAX_NAMESAKES]]

    dossiers = await engine.read(read)
    lines = [line for dossier in dossiers for line in timeline_lines(dossier, now)]
    shown = dict.fromkeys(memory.id for dossier in dossiers for memory in (*dossier.holds, *dossier.held))
    kept = lines_within(lines, MAX_TOKENS)
    notes = (f"{counted(len(lines) - len(kept), 'line')} did not fit",) if len(kept) < len(lines) else ()
    return SummaryResult("\n".join(kept), f"{TIMELINE.name}:{name}", 0, notes, sources=tuple(shown), is_plain=True)


def timeline_lines(dossier: Dossier, now: datetime) -> list[str]:
    """Return the states of an entity by relation, each chain in order with its gaps, and then all else by its time."""
    own = dossier.entity.id
    chains: dict[tuple[bool, str], list[KnownRelation]] = {}
    for item in dossier.relations:
        chains.setdefault((item.source_id == own, relation_key(item.relationship)), []).append(item)
    lines = [_heading(dossier, None)]
    for (is_source, key), stated in chains.items():
        # Of anything else several may hold at a time, and one that begins ends no other.
        states, is_single = in_order(stated), key in (ONE_AT_A_TIME if is_source else ONE_HOLDER)
        relation = one_line(states[-1].relationship.replace("_", " "))
        lines.append(f"{relation}:" if is_source else f"{relation} {one_line(dossier.entity.name)}:")
        for place, state in enumerate(states):
            following = next((each for each in states[place + 1 :] if not each.was_dropped), None)
            # What one memory states holds together.
            is_next = following is not None and following.memory_id != state.memory_id and is_single
            line, *gap = _state_lines(state, following if is_next else None, is_source=is_source, now=now)
            lines += [line + _because(dossier, state.memory_id), *gap]
    stated = {item.memory_id for item in dossier.relations}
    others = [memory for memory in (*dossier.holds, *dossier.held) if memory.id not in stated]
    others.sort(key=lambda memory: memory.holds_from)
    return [
        *lines,
        *(["Also:"] if others else []),
        *(_memory_line(memory) + _because(dossier, memory.id) for memory in others),
    ]


def _because(dossier: Dossier, memory_id: str) -> str:
    """Return what a memory came of, as whoever stored it said: in words, or by the id of a memory of the dossier.

    Events with their causes are the event graph of LoCoMo (section 3.2).
    """
    known = {memory.id: memory for memory in (*dossier.holds, *dossier.held)}
    said = one_line(str(known[memory_id].metadata.get(models.BECAUSE) or "")) if memory_id in known else ""
    begin = said.strip("[]")
    cause = next((memory for memory in known.values() if len(begin) >= SHORT_ID and memory.id.startswith(begin)), None)
    text = shorten_to_tokens(one_line(cause.text) if cause else said, MAX_LINE_TOKENS)
    return f" because: {text}" if text else ""


def _state_lines(
    state: KnownRelation, following: KnownRelation | None, *, is_source: bool, now: datetime
) -> Iterator[str]:
    """Yield the line of a state, and one for the time before the next of which nothing is known."""
    value = one_line(state.destination if is_source else state.source)
    begins = state.valid_from or f"by {state.holds_from:%Y-%m-%d}"
    ended = parse_date(state.valid_until) if state.valid_until else None
    since = f"since {begins}" if state.valid_from else f"known since {state.holds_from:%Y-%m-%d}"
    until = f"{begins} to {state.valid_until}" if state.valid_from else f"until {state.valid_until}"
    line = f"- {until if ended else since}"
    if ended is None and following is not None and following.holds_from <= now:
        next_begins = following.valid_from or f"{following.holds_from:%Y-%m-%d}"
        # What was told after the next had begun has no beginning to show.
        is_told_late = not state.valid_from and following.holds_from <= state.holds_from
        line = f"- {'until' if is_told_late else f'{begins} to'} {next_begins}, when the next began"
    if state.was_dropped:
        line = f"- was planned for {begins}, dropped on {state.expired_at:%Y-%m-%d}"
    elif state.holds_from > now:
        line = f"- planned for {begins}"
    yield f"{line}: {value} [{state.memory_id[:SHORT_ID]}]"
    if ended is None or following is None or state.was_dropped:
        return
    if following.holds_from < ended[0]:
        yield "  (the next began before it ended)"
    elif following.holds_from - span_of(*ended).last > GAP:
        yield f"- {state.valid_until} to {following.valid_from or f'{following.holds_from:%Y-%m-%d}'}: nothing is known"


TIMELINE = LiveKind("timeline", "NAME", _timeline)
