"""The kinds of summaries that are kept: portraits (`profile`, `project`, `procedures`), and days and what they make."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection

from palimpsest.core import models
from palimpsest.core.clock import LATEST, first_instant
from palimpsest.core.errors import InputError
from palimpsest.core.models import EXPIRES_AT, Memory, Message, Scope, Summary, name_key
from palimpsest.core.protocols import Vector
from palimpsest.core.validation import one_line
from palimpsest.learn.summaries import portrait_signs
from palimpsest.learn.summaries import summary_kinds as kinds
from palimpsest.learn.summaries.extractive import Passage, ended, most_telling, without_contradicted
from palimpsest.learn.summaries.portrait_signs import MUST, Rank, Signs, is_about, rank_of
from palimpsest.learn.summaries.summary_kinds import Material, PlainText, SummaryKind, SummaryRequest, memory_item
from palimpsest.llm.user_name import begins_with, behind_user, is_about_user
from palimpsest.recall.features import centred_vectors
from palimpsest.store import memories as memory_queries
from palimpsest.store import messages as message_queries
from palimpsest.store import summaries
from palimpsest.store.memories import is_pinned, pinned_memories
from palimpsest.store.projects import project_names
from palimpsest.text.dates.date_finder import dates_in
from palimpsest.text.intents import begins_with_rule
from palimpsest.text.names.name_finder import is_given_name
from palimpsest.text.stopwords import is_denial
from palimpsest.text.tokenizer import count_tokens, is_unspaced, lines_within, query_tokens

# Sort memories into the sections of a portrait without a model, and show the most central and recent of each.

# How many of the newest memories are sorted: some years of a life, in a second at most.
READ = 5_000

# How many memories of a section are compared with each other: some hundredths of a second.
COMPARED = 300

# Within a section, a fact that was said this long ago has half the recency of a new one.
HALF_LIFE = timedelta(days=180)

# A text means another day to whoever reads it this much later, if it counts from its own date.
OTHER_DATE = timedelta(days=500)

# A text that counts from its own date ("on 16 April", "this week") mostly tells what passes. So long after it was said
# it is worth this part of another one, and no less, because birthdays are told like that, too.
PASSING_WEIGHT = 0.4
PASSING_AFTER = timedelta(days=14)

# What the user is called, who they are, what is dangerous for them and what begins with somebody close comes first.
NAME_WEIGHT = 3.0

# Which share of its words a pinned memory has of one that is not shown again below it.
REDUNDANT = 0.8

# The last section, of what belongs to none.
ALSO = "Also"


@dataclass(frozen=True, slots=True)
class Section:
    """A section: its heading, the tags of its memories, and the signs of those without tags."""

    heading: str
    tags: frozenset[str]
    signs: Signs


# Returns the heading under which a memory belongs; "" leaves it out.
Place = Callable[[Memory], str]


def by_tags(sections: Sequence[Section], memory: Memory) -> str:
    """Return the heading of the section that has a tag of a memory; "" if none has."""
    return next((section.heading for section in sections if not section.tags.isdisjoint(memory.all_tags)), "")


def by_tags_and_signs(sections: Sequence[Section], memory: Memory) -> str:
    """Return the heading of the section that a memory belongs to: by its tags, else by most signs, else `ALSO`.

    Of equals the first section wins.
    """
    if tagged := by_tags(sections, memory):
        return tagged
    counts = {section.heading: section.signs.count(memory.text) for section in sections}
    best = max(counts, key=lambda heading: counts[heading])
    return best if counts[best] else ALSO


@dataclass(frozen=True, slots=True)
class Room:
    """How many tokens a group of memories has. What was said a `half_life` ago has half the recency of what is new."""

    tokens: int
    half_life: timedelta = HALF_LIFE


def portrait(
    conn: Connection,
    request: SummaryRequest,
    memories: Sequence[Memory],
    headings: Mapping[str, int],
    place: Place,
    order: Callable[[Sequence[Memory]], Sequence[Memory]] | None = None,
) -> PlainText:
    """Return the most central and recent memories of each section. `headings` are in order, each with its tokens.

    The memories of a section are in an `order`, by default that of how much depends on them.
    """
    sorted_in: dict[str, list[Memory]] = {heading: [] for heading in headings}
    for memory in not_pinned(conn, request, memories):
        if heading := place(memory):
            sorted_in[heading].append(memory.in_zone(request.now.tzinfo))
    chosen = most_telling_of(conn, request, sorted_in, {heading: Room(tokens) for heading, tokens in headings.items()})
    name = memory_queries.name_of_user(conn, request.scope)
    everything = [memory for some in chosen.values() for memory in some]
    ordered = in_order_of_rank(everything, name) if order is None else order(everything)
    hidden = without_contradicted(conn, request.embedder, request.scope, everything, request.now, only_changes=True)
    lines: list[str] = []
    shown: list[Memory] = []
    for heading, some in chosen.items():
        kept = [memory for memory in ordered if memory in some and memory.id not in hidden]
        lines += [f"{heading}:", *map(line_of, kept)] if kept else []
        shown += kept
    lines += kinds.omitted(sum(map(len, sorted_in.values())) - len(shown), "memory")
    text = "\n".join(lines) if shown else kinds.NOTHING
    return PlainText(text, kinds.named(memories=shown), kinds.revisions(shown))


def most_telling_of(
    conn: Connection, request: SummaryRequest, groups: Mapping[str, Sequence[Memory]], rooms: Mapping[str, Room]
) -> dict[str, list[Memory]]:
    """Return the most central and recent memories of each group, within its room, the most telling first.

    What a group does not need of its room is shared by those that need more.
    """
    compared = {name: sorted(groups[name], key=_doubt)[:COMPARED] for name in rooms}
    everything = [memory for some in compared.values() for memory in some]
    vectors = centred_vectors(conn, request.embedder, request.scope, "memory", [memory.id for memory in everything])
    close = _close_memories(own_names(conn, request.scope, everything)[1], everything)

    def choose(name: str, tokens: int) -> list[Memory]:
        passages = [_passage(memory, vectors.get(memory.id), request.now, close) for memory in compared[name]]
        positions = most_telling(passages, tokens, now=request.now, half_life=rooms[name].half_life)
        return [compared[name][position] for position in positions]

    chosen = {name: choose(name, room.tokens) for name, room in rooms.items()}
    left = sum(room.tokens for room in rooms.values()) - sum(_costs(some) for some in chosen.values())
    short = [name for name, room in rooms.items() if _costs(compared[name]) > room.tokens]
    for number, name in enumerate(short):
        before = _costs(chosen[name])
        chosen[name] = choose(name, before + left // (len(short) - number))
        left -= _costs(chosen[name]) - before
    return chosen


def in_order_of_rank(memories: Iterable[Memory], user_name: str) -> list[Memory]:
    """Return memories in their order, but those that say who the user is in front, and the name before all."""

    def place(memory: Memory) -> int:
        rank = rank_of(memory, user_name)
        return -1 if rank is Rank.NAME else min(rank, Rank.HELP)

    return sorted(memories, key=place)


def not_pinned(conn: Connection, request: SummaryRequest, memories: Iterable[Memory]) -> list[Memory]:
    """Return the memories that no pinned one says already."""
    pinned = [_words_of(memory) for memory in pinned_memories(conn, request.scope)]

    def is_said(memory: Memory) -> bool:
        words, denies = _words_of(memory)
        least = REDUNDANT * max(len(words), 1)
        return any(denies == is_denied and len(words & of_pinned) >= least for of_pinned, is_denied in pinned)

    return [memory for memory in memories if not is_said(memory)]


def _words_of(memory: Memory) -> tuple[AbstractSet[str], bool]:
    """Return the words that say something in a memory, and whether it denies something."""
    return frozenset(query_tokens(memory.text)), is_denial(memory.text)


def _doubt(memory: Memory) -> int:
    """Return how doubtful it is that a memory belongs where it was sorted: it has tags, or else it is of the user."""
    return 0 if memory.all_tags else 1 if is_about_user(memory.text) else 2


# Within how many characters of its beginning a text says whose relative it is about: "Ida, the daughter of Jo Lind".
APPOSITION = 60


def _close_memories(own: AbstractSet[str], memories: Sequence[Memory]) -> AbstractSet[str]:
    """Return the ids of the memories that begin with somebody close to the user, by a relation or in words."""
    begin = {memory.id: memory.text[:APPOSITION] for memory in memories}
    told = {key for key, text in begin.items() if portrait_signs.names_relative(text, own)}
    related = ((memory.id, entity.name) for memory in memories if memory.id in told for entity in _others(own, memory))
    close = {name for key, name in related if name in begin[key]}
    for relation in (relation for memory in memories for relation in memory.relations):
        ends = {end for end in (relation.source, relation.destination) if name_key(end) not in own}
        close |= ends if len(ends) == 1 and portrait_signs.PEOPLE.count(relation.name) else set[str]()
    first_names = tuple(name.split()[0] for name in close if not name[:1].islower())
    strangers = tuple(_dealt_with(own, memories) - close)
    theirs = {key for key, text in begin.items() if text.startswith(first_names) and not text.startswith(strangers)}
    return told | theirs


def _dealt_with(own: AbstractSet[str], memories: Sequence[Memory]) -> set[str]:
    """Return the full names of those whom the user only deals with, by a text that tells of the work or of the user.

    A daughter Emma is not Emma Conti, who comes to the user every Wednesday.
    """
    words = {word for key in own for word in key.split()}
    others = [each for each in memories if not portrait_signs.PEOPLE.count(each.text)]
    dealt = (each for each in others if _is_of_work(each.text) or own & {*map(name_key, each.text.split())})
    full = {name for each in dealt for name in _begun_by(each)}
    for each in others:
        full |= _people(each) if portrait_signs.OTHERS.count(each.text) else set[str]()  # "El paciente Javier Martín"
    return {name for name in full if " " in name and words.isdisjoint(name_key(name).split())}


def _is_of_work(text: str) -> bool:
    return portrait_signs.OTHERS.count(text) + portrait_signs.WORK.count(text) > 0


def own_ranks(name: str, own: AbstractSet[str], memories: Sequence[Memory]) -> dict[str, Rank]:
    """Return how much depends on each memory for the user, by its id. What is dangerous for others comes later.

    What is dangerous for a client or a guest is like any fact; others may be close to the user. `name` and `own` are
    what the user is called.
    """
    close, strangers = _close_memories(own, memories), _dealt_with(own, memories)

    def rank(memory: Memory) -> Rank:
        text, found = memory.text, rank_of(memory, name)
        if memory.id in close and portrait_signs.names_danger(text):
            return Rank.SAFETY
        if found is not Rank.SAFETY or is_about(memory, name):
            return found
        is_of_strangers = text.startswith(tuple(strangers)) or set[str]() < _people(memory) <= strangers
        is_theirs = is_of_strangers or _is_of_work(text) or portrait_signs.THEIRS.search(text)
        return Rank.OTHER if is_theirs else Rank.IDENTITY

    ranks = {memory.id: rank(memory) for memory in memories}
    # Agents that know the user's name write who that is without saying that it is the user.
    named = [each for each in memories if " " in name and begins_with(name, each.text) and not each.scope.project]
    if Rank.NAME not in ranks.values() and (open_ones := [each for each in named if ranks[each.id] > Rank.SAFETY]):
        ranks[min(open_ones, key=lambda each: each.stated_at).id] = Rank.NAME
    return ranks


def _passage(memory: Memory, vector: Vector | None, now: datetime, close: AbstractSet[str]) -> Passage:
    weight = NAME_WEIGHT ** ((rank_of(memory, "") <= MUST) + (memory.id in close))
    if now - memory.at > PASSING_AFTER and _counts_from_its_date(memory):
        weight *= PASSING_WEIGHT
    return Passage(memory.text, memory.at, vector, weight, tokens=_cost(memory))


def _cost(memory: Memory) -> int:
    return count_tokens(f"{kinds.dated(memory)}\n")


def _costs(memories: Iterable[Memory]) -> int:
    return sum(map(_cost, memories))


def line_of(memory: Memory) -> str:
    """Return a memory as a line with its id, and its date if the text counts from it."""
    return kinds.dated(memory, has_date=_counts_from_its_date(memory))


def _counts_from_its_date(memory: Memory) -> bool:
    """Return whether a text means another day to whoever reads it later, or holds only for a time."""
    if memory.is_dated:
        return True
    then, later = (dates_in(memory.text, at, guesses=True) for at in (memory.at, memory.at + OTHER_DATE))
    return then != later


def lasting(request: SummaryRequest, memories: Sequence[Memory]) -> list[Memory]:
    """Return the memories that do not expire and are not pinned, which stand above every portrait of now."""
    if request.held_at is not None:
        return list(memories)
    return [memory for memory in memories if EXPIRES_AT not in memory.metadata and not is_pinned(memory.metadata)]


# What a model writes a portrait from: the newest memories, and the last portrait that still holds.


def material(
    conn: Connection, request: SummaryRequest, memories: Sequence[Memory], item: kinds.Item = memory_item
) -> Material:
    """Return the memories that fit one prompt, and the last portrait of the kind of which nothing was deleted.

    What is old but lasting is carried on by the last portrait, so the new one rests on what that one rests on, too.
    What has changed since is shown as it was.
    """
    _, last = summaries.base_summary(conn, request.scope, request.kind.name)
    kept = [memory.in_zone(request.now.tzinfo) for memory in kinds.fitting(memories)]
    changed = kinds.corrections(conn, request, last, item)
    corrected = [memory for memory, _ in changed.values()]
    return Material(
        (*(each for _, each in changed.values()), *(item(memory) for memory in kept if memory.id not in changed)),
        previous="" if last is None else last.text,
        sources={**({} if last is None else last.sources), **kinds.revisions((*corrected, *kept))},
        message_ids=() if last is None else last.message_ids,
    )


# The kind `profile`: who the user is, their people, their work, what they prefer, and how they want to be helped.
#
# The portrait of MemoryBank, drawn from the memories that are not of a project. Memories that expire are left out:
# what a session begins with may be read at any time later.

HELP, IDENTITY, PEOPLE, WORK, PREFERENCES = "How to help", "Identity", "People", "Work", "Preferences"

# The sections, in the order in which a memory that fits several is put into one.
PROFILE_SECTIONS = (
    Section(HELP, frozenset({"instruction", "style", "correction"}), portrait_signs.HELP),
    Section(PEOPLE, frozenset({"family", "relationship"}), portrait_signs.PEOPLE),
    Section(WORK, frozenset({"work", "skill", "project"}), portrait_signs.WORK),
    Section(IDENTITY, frozenset({"identity", "health"}), portrait_signs.IDENTITY),
    Section(PREFERENCES, frozenset({"preference"}), portrait_signs.PREFERENCES),
)


# With which share of the memories a name begins that is taken for the user's: many begin with that of a relative, a pet
# or a thing, but none of these with so many.
MOST = 0.4

# A profile is written anew after twice as many changes as the summary `overall`: it changes more slowly. Set by hand.
SLOWER = 2

# The sections in the order in which they are shown, each with its room in tokens: a page of some 25 facts.
PROFILE_HEADINGS = {IDENTITY: 120, PEOPLE: 140, WORK: 120, PREFERENCES: 100, HELP: 120, ALSO: 80}


# How the notes on the mood of a day are kept, and how many new ones a profile reads: two weeks. What older ones told is
# in the previous profile.
MOODS, MAX_MOODS = "mood:", 14


def _profile_material(conn: Connection, request: SummaryRequest) -> Material:
    memories = lasting(request, kinds.newest(conn, request, kinds.MAX_SOURCE_MEMORIES))
    name, own = own_names(conn, request.scope, memories)

    def item(memory: Memory) -> Mapping[str, Any]:
        other = _subject(own, memory)
        return {**memory_item(memory), **({"about": other} if other else {})}

    found = material(conn, request, memories, item)
    base_id, _ = summaries.base_summary(conn, request.scope, request.kind.name)
    moods = summaries.summaries_beyond(conn, request.scope, MOODS, base_id, MAX_MOODS)
    notes = ({"text": mood.text, "date": mood.kind.removeprefix(MOODS), "of": "mood and needs"} for mood in moods)
    return replace(
        found,
        name=name or "User",
        memories=(*notes, *found.memories),
        sources={key: value for each in (*moods, found) for key, value in each.sources.items()},
        message_ids=tuple(dict.fromkeys(each for of in (found, *moods) for each in of.message_ids)),
    )


def _plain_profile(conn: Connection, request: SummaryRequest) -> PlainText:
    memories = kinds.newest(conn, request, READ)
    return portrait(conn, request, lasting(request, memories), PROFILE_HEADINGS, place_of_user(conn, request, memories))


def place_of_user(conn: Connection, request: SummaryRequest, memories: Sequence[Memory]) -> Place:
    """Return what sorts memories into the sections of a profile, with `ALSO` for what belongs to none of them."""
    own = own_names(conn, request.scope, memories)[1]
    return partial(_place_in_profile, own, _close_memories(own, memories))


def own_names(conn: Connection, scope: Scope, memories: Sequence[Memory]) -> tuple[str, AbstractSet[str]]:
    """Return what the user is called, "" if that is not known, and the keys of all that mean the user.

    The user is one person. If memories tell several names, it is the one told last as the user's name, else the one
    that most tell, and those that share a word with it.
    """
    told = Counter(_names_told(memories))
    name = memory_queries.name_of_user(conn, scope) or next((name for name, _ in told.most_common(1)), "")
    fuller = [each for each in told if name and begins_with(name, each)]
    name = max(fuller, key=len, default=name) or _name_of_most(memories)
    words = set(name_key(name).split())
    names = [name, *(other for other in told if not words.isdisjoint(name_key(other).split()))] if name else []
    return name, {name_key(part) for each in names for part in (each, each.split(maxsplit=1)[0])} | models.SELF_NAMES


def _name_of_most(memories: Sequence[Memory]) -> str:
    """Return the name with which most memories begin, if no memory tells the user's and none begins with "User".

    Agents that know the user's name write "Nora lives in Lund" without ever saying that Nora is the user.
    """
    if any(is_about_user(memory.text) for memory in memories):
        return ""
    begin = Counter(name for memory in memories for name in _begun_by(memory))
    return next((name for name, count in begin.most_common(1) if count > MOST * len(memories)), "")


def _begun_by(memory: Memory) -> list[str]:
    """Return the names of people with which a memory begins."""
    return [name for name in _people(memory) if memory.text.startswith(name)]


def _people(memory: Memory) -> set[str]:
    return {each.name for each in memory.entities if each.type == "person"}


def _names_told(memories: Sequence[Memory]) -> Iterator[str]:
    """Yield the names in texts such as "User is Imogen Hartley, a nurse", which also tell what the user is called."""
    is_introduced = any(behind_user(memory.text) for memory in memories)
    for memory in memories:
        # "Ana Ruiz runs a clinic", with the relation that the user runs it.
        named = {word for each in memory.relations for word in f"{each.source} {each.destination}".split()}
        if not is_introduced and any(name_key(each.source) in models.SELF_NAMES for each in memory.relations):
            yield from (name for name in _begun_by(memory) if name.split()[0] not in named)
    known = (entity for memory in memories for entity in memory.entities)
    # What a Chinese or Japanese name names is seldom recognized.
    people = {each.name for each in known if each.type == "person" or (each.type == "other" and is_unspaced(each.name))}
    for rest in filter(None, (behind_user(memory.text) for memory in memories)):
        yield from (name for name in people if rest.startswith(name))


def _place_in_profile(own: AbstractSet[str], close: AbstractSet[str], memory: Memory) -> str:
    """Return the heading of a memory. What begins with somebody else's name is about people, whatever it tells of them.

    What begins with the name of a thing is not about who the user is: "Kestrel moved from PostgreSQL 15 to 17".
    """
    if models.USER_NAME in memory.metadata or portrait_signs.NAME.match(memory.text):
        return IDENTITY
    if memory.id in close or _subject(own, memory):
        return PEOPLE
    heading, others = by_tags_and_signs(PROFILE_SECTIONS, memory), _others(own, memory)
    is_users = is_of_user(own, memory)
    is_of_person = is_users or any(entity.type == "person" for entity in memory.entities)
    if heading in (WORK, PREFERENCES) and portrait_signs.OF_PERSONS.count(memory.text) and not is_of_person:
        return by_tags(PROFILE_SECTIONS, memory) or ALSO
    is_sure = heading in (HELP, PEOPLE, WORK) or bool(by_tags(PROFILE_SECTIONS, memory))
    # "Raised" and "moved" also tell of prices and appointments.
    is_of_other = heading == IDENTITY and bool(others) and not is_users
    is_other = is_of_other or any(memory.text.startswith(entity.name) for entity in others)
    return ALSO if is_other and not is_sure else heading


def is_of_user(own: AbstractSet[str], memory: Memory) -> bool:
    """Return whether a memory begins with the user, by name or not."""
    begin = f"{name_key(memory.text)} "
    return is_about_user(memory.text) or any(begin.startswith(f"{name} ") for name in own if name)


def _subject(own: AbstractSet[str], memory: Memory) -> str:
    """Return the name of the other person that a memory begins with; "" if it is about the user, or about no person."""
    text = memory.text
    people = [entity.name for entity in _others(own, memory) if entity.type == "person"]
    # A name that was taken for a person's may be a project's, such as Kestrel or Nightjar.
    sure = [name for name in people if " " in name or is_given_name(name) or portrait_signs.PEOPLE.count(text)]
    return next((name for name in sure if text.startswith(name)), "")


def _others(own: AbstractSet[str], memory: Memory) -> list[models.NamedEntity]:
    return [entity for entity in memory.entities if name_key(entity.name) not in own]


PROFILE = SummaryKind("profile", "profile", _profile_material, _plain_profile, due_after=SLOWER, is_of_user=True)


# The kind `project`: what a project is, its stack, decisions, conventions and open points.

OPEN, CONVENTIONS = "Open", "Conventions"
# The sections, in the order in which a memory that fits several is put into one.
PROJECT_SECTIONS = (
    Section(OPEN, frozenset({"plan", "promise"}), portrait_signs.OPEN),
    Section("Decisions", frozenset({"decision"}), portrait_signs.DECIDED),
    Section(CONVENTIONS, frozenset({"instruction", "style", "procedure", "correction"}), portrait_signs.RULES),
    Section("Stack", frozenset(), portrait_signs.STACK),
)

ABOUT = "What it is"

# The sections in the order in which they are shown, each with its room in tokens.
PROJECT_HEADINGS = {ABOUT: 160, "Stack": 120, "Decisions": 140, CONVENTIONS: 120, OPEN: 240, "Also": 80}

NO_PROJECT = 'the scope has no project; pass scope={"project": its name}. Projects with memories: '
NO_MEMORY = "no memory belongs to a project; about:NAME and timeline:NAME tell of what has a name, profile of the user"


def _project_material(conn: Connection, request: SummaryRequest) -> Material:
    return material(conn, request, _project_memories(conn, request, kinds.MAX_SOURCE_MEMORIES))


def _plain_project(conn: Connection, request: SummaryRequest) -> PlainText:
    if memories := _project_memories(conn, request, READ):
        project, first = request.scope.project, in_order_of_project(request.scope.project, memories, request.now)[0]
        place = partial(_place_in_project, project, first if _names(project, first) else None, request.now)
        order = partial(in_order_of_project, project, now=request.now)
        return portrait(conn, request, memories, PROJECT_HEADINGS, place, order)
    name = one_line(request.scope.project).rsplit("/", maxsplit=1)[-1]
    return PlainText(f"Nothing is stored in the project {name}; about:{name} and timeline:{name} tell of the name.", "")


def _project_memories(conn: Connection, request: SummaryRequest, limit: int) -> list[Memory]:
    if not request.scope.project:
        names = ", ".join(filter(None, project_names(conn, request.scope.user_id)))
        raise InputError(f"{NO_PROJECT}{names}" if names else NO_MEMORY)
    return lasting(request, kinds.holding(memory_queries.newest_of_project(conn, request.scope, limit), request.now))


def _place_in_project(project: str, first: Memory | None, now: datetime, memory: Memory) -> str:
    """Return the heading of a memory: what begins or ends on a day to come is open, but for what the project is."""
    heading = by_tags_and_signs(PROJECT_SECTIONS, memory)
    is_due = memory.valid_until or memory.holds_from > now or (heading == CONVENTIONS and portrait_signs.is_due(memory))
    if is_due and memory != first and not by_tags(PROJECT_SECTIONS, memory):
        return OPEN
    return ABOUT if memory == first or (heading == ALSO and _names(project, memory)) else heading


def _names(project: str, memory: Memory) -> bool:
    """Return whether a text begins with a project. Further on, its name may be a word like others: "weddings"."""
    return project.casefold().rsplit("/", maxsplit=1)[-1] in memory.text.casefold()[: portrait_signs.INTRODUCED]


# For how long what has begun as it was planned is news.
NEWS = timedelta(days=30)


def in_order_of_project(project: str, memories: Sequence[Memory], now: datetime) -> list[Memory]:
    """Return the memories of a project: what it is first, then its terms, and what has changed lately as was planned.

    Then come rules and commands, what is to come by its day, and the rest. What it is was said first.
    """
    first = min((each for each in memories if _names(project, each)), key=lambda each: each.stated_at, default=None)

    def place(memory: Memory) -> tuple[bool, bool, int, datetime]:
        days = (memory.happened_at, memory.valid_from, memory.valid_until)
        coming = min((day for day in days if day is not None and day > memory.stated_at), default=LATEST)
        is_new = coming <= now < coming + NEWS
        worth = 0 if is_new else 1 if portrait_signs.says_rule(memory) else 2
        return memory != first, portrait_signs.TERMS.count(memory.text) == 0, worth, coming

    return sorted(memories, key=place)


PROJECT = SummaryKind("project", "project", _project_material, _plain_project)


# The kind `procedures`: instructions for an agent, from what worked, what failed and what it was corrected in.
#
# Procedural memory as LangMem has it. They are drawn from memories that a model tagged so, from those that stem from
# the agent's own messages, and from those whose words are those of a rule, a success or a failure. What is said of
# the user and of other people counts only if it says how to help. Without a model these memories themselves are the
# instructions.

RULES, WORKED, FAILED = "Instructions and corrections", "What worked", "What failed"

# The sections, in the order in which a memory that fits several is put into one.
PROCEDURE_SECTIONS = (
    Section(RULES, frozenset({"instruction", "correction", "style", "promise"}), portrait_signs.ALWAYS),
    Section(WORKED, frozenset({"procedure", "solution", "ability"}), portrait_signs.WORKED),
    Section(FAILED, frozenset({"failure"}), portrait_signs.FAILED),
)

# The sections in the order in which they are shown, each with its room in tokens.
PROCEDURE_HEADINGS = {RULES: 240, WORKED: 180, FAILED: 180}

# Tags of memories about a person's life, whose words say nothing about how an agent should work.
LIFE = frozenset({"identity", "health", "family", "relationship", "possession", "place", "event", "preference"})


def _procedure_material(conn: Connection, request: SummaryRequest) -> Material:
    place = partial(place_in_procedures, memory_queries.name_of_user(conn, request.scope))
    about = [memory for memory in lasting(request, kinds.newest(conn, request, READ)) if place(memory)]

    def item(memory: Memory) -> Mapping[str, Any]:
        return {**memory_item(memory), "about": place(memory)}

    return material(conn, request, about[: kinds.MAX_SOURCE_MEMORIES], item)


def _plain_procedures(conn: Connection, request: SummaryRequest) -> PlainText:
    place = partial(place_in_procedures, memory_queries.name_of_user(conn, request.scope))
    return portrait(conn, request, lasting(request, kinds.newest(conn, request, READ)), PROCEDURE_HEADINGS, place)


def place_in_procedures(user_name: str, memory: Memory) -> str:
    """Return the heading of a memory; "" if it says nothing about how an agent should work."""
    if tagged := by_tags(PROCEDURE_SECTIONS, memory):
        return tagged
    if not LIFE.isdisjoint(memory.all_tags):
        return ""
    if begins_with_rule(memory.text) or portrait_signs.is_wish(memory, user_name):
        return RULES
    if memory.role == "assistant":
        return WORKED if (heading := by_tags_and_signs(PROCEDURE_SECTIONS, memory)) == ALSO else heading
    is_of_people = is_about(memory, user_name) or any(entity.type == "person" for entity in memory.entities)
    # "Fixed" and "broken" are also said of prices and of boilers.
    is_of_work = "`" in memory.text or portrait_signs.OF_PROJECTS.count(memory.text) > 0
    is_other = is_of_people or not is_of_work or portrait_signs.is_due(memory)
    return "" if is_other else by_tags_and_signs(PROCEDURE_SECTIONS, memory).replace(ALSO, "")


PROCEDURES = SummaryKind("procedures", "procedures", _procedure_material, _plain_procedures)


# The form of the summary `overall` without a model: what is lasting, and of the rest what is central and recent.

# The sections of a profile that are lasting, each with its tokens, which nothing that is said later can take. Set by
# hand: three fifths of the whole.
LASTING = {IDENTITY: 90, PEOPLE: 90, WORK: 60, PREFERENCES: 60, HELP: 60}

# The tokens of all else: half of them for the project, if there is one.
REST = kinds.MAX_LISTED_TOKENS - sum(LASTING.values())

# What is not lasting was said lately, or is central: what was said this long ago has half the recency.
PASSING_HALF_LIFE = timedelta(days=30)

ABOUT_USER, ABOUT_PROJECT = "About the user", "About the project"


def overview(conn: Connection, request: SummaryRequest) -> PlainText:
    """Return all memories if they fit; else the lasting ones, and the most telling of the others.

    Who the user is comes first, then the newest. What a pinned memory says is not repeated. What a newer memory seems
    to end is left out, and counted with what does not fit.
    """
    found = kinds.newest(conn, request, READ)
    held = [memory for memory in found if request.held_at is not None or not is_pinned(memory.metadata)]
    # What is due stands above it.
    held = [each for each in not_pinned(conn, request, held) if request.held_at or not kinds.due_on(each, request.now)]
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
    others = (ABOUT_PROJECT, ALSO) if request.scope.project else (ALSO,)
    rooms = {heading: Room(tokens) for heading, tokens in LASTING.items()}
    rooms |= {heading: Room(REST // len(others), PASSING_HALF_LIFE) for heading in others}
    chosen = most_telling_of(conn, request, groups, rooms)
    name = memory_queries.name_of_user(conn, request.scope)
    about_user = in_order_of_rank((memory for heading in LASTING for memory in chosen[heading]), name)
    lines = [f"{ABOUT_USER}:", *map(line_of, about_user)] if about_user else []
    for heading in (ABOUT_PROJECT, ALSO):
        newest = sorted(chosen.get(heading, ()), key=lambda memory: memory.stated_at, reverse=True)
        title = f"{heading} {request.scope.project}" if heading == ABOUT_PROJECT else heading
        lines += [f"{title}:", *map(kinds.dated, newest)] if newest else []
    return lines, [memory for some in chosen.values() for memory in some]


def _grouped(conn: Connection, request: SummaryRequest, held: Sequence[Memory]) -> Mapping[str, Sequence[Memory]]:
    """Return the memories of each section, of the project and of all else."""
    place = place_of_user(conn, request, held)
    groups: dict[str, list[Memory]] = {heading: [] for heading in (*LASTING, ABOUT_PROJECT, ALSO)}
    for memory in held:
        is_sorted = not memory.scope.project and EXPIRES_AT not in memory.metadata
        heading = place(memory) if is_sorted else ABOUT_PROJECT if memory.scope.project else ALSO
        groups[heading].append(memory)
    return groups


# The kind `day`: what was said and learned on one day, as days are where the user is.
#
# Days make the summary of the kind `overall`.

# How many memories of a day are read. 20 tokens each, half of what a small model can take.
MAX_MEMORIES = 300
MAX_MEMORY_TOKENS = 6_000

# How many messages of a day are read, and how many tokens of them, spread over the day.
MAX_DAY_MESSAGES = 500
MAX_DAY_TOKENS = 4_000

# How many past days the background looks at: what is older is read when it is asked for, so that an import of years of
# conversations does not cost a call of the model for each of their days.
DAYS_BACK = 14

A_DAY = timedelta(days=1)


def _day_material(conn: Connection, request: SummaryRequest) -> Material:
    memories, messages = _said_on_day(conn, request)
    return kinds.material_of(kinds.fitting(memories, MAX_MEMORY_TOKENS), messages, MAX_DAY_TOKENS)


def _plain_day(conn: Connection, request: SummaryRequest) -> PlainText:
    memories, messages = _said_on_day(conn, request)
    lines = [(f"- {kinds.shown_text(memory)}", memory) for memory in memories[::-1]]  # in the order of the day
    day, said = request.argument, {memory.id for memory in memories}
    known = (memory for _, memory in memory_queries.list_memories(conn, request.scope, READ, with_closed=True))
    for memory in kinds.unexpired(known, request.now):
        is_other = memory.id in said or memory.was_dropped or (memory.superseded_by and memory.since == memory.until)
        if day in (memory.since, memory.until) and not is_other:
            lines.append((f"- {'began' if memory.since == day else 'ended'}: {kinds.shown_text(memory)}", memory))
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
)


# The kind `mood`: how the user was on a day, and what they needed (the daily personality of MemoryBank, section 2.1).


def _due_moods(conn: Connection, request: SummaryRequest, _every: int) -> Sequence[str]:
    return _due_days(conn, request, 1)


MOOD = replace(DAY, name="mood", prompt="mood", due=_due_moods, is_of_user=True)


# The kind `session`: what was learned from one conversation, with the turns it came from.
#
# LoCoMo calls these observations, and found them to be the best unit of recall in its own study.

# How many messages of a conversation are read, and how many tokens of them, spread over it.
MAX_SESSION_MESSAGES = 500
MAX_SESSION_TOKENS = 6_000

# How many turns stand beside an observation: more would be longer than what was learned.
MAX_TURNS = 3

NO_CONVERSATION = "There is no conversation yet."


def _session_material(conn: Connection, request: SummaryRequest) -> Material:
    previous, sources, read, messages = _since_last(conn, request)
    turns = _observations(conn, request, messages)
    memories = kinds.fitting([memory for memory, _ in turns])[::-1]
    by_id = {memory.id: names for memory, names in turns}
    return Material(
        tuple({**kinds.memory_item(memory), "messages": list(by_id[memory.id])} for memory in memories),
        kinds.spread(messages, MAX_SESSION_TOKENS),
        previous,
        sources={**sources, **kinds.revisions(memories)},
        message_ids=(*read, *(message.id for message in messages)),
    )


def _since_last(
    conn: Connection, request: SummaryRequest
) -> tuple[str, Mapping[str, int], Sequence[str], Sequence[Message]]:
    """Return the last summary of a conversation, what it rests on, and the messages since; without one all of them."""
    last, messages = summaries.current_summary(conn, request.scope, request.name), _messages(conn, request)
    if last is None:
        return "", {}, (), messages
    sources, read = summaries.behind(conn, request.scope, request.name)
    return last.text, sources, read, [message for message in messages if message.id not in set(read)]


def session_so_far(conn: Connection, request: SummaryRequest) -> str:
    """Return the last summary of a conversation, and the lines that say most of what was said since."""
    previous, _, _, messages = _since_last(conn, request)
    return "\n".join(filter(None, (previous, kinds.lines_of(conn, request, (), messages).text)))


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
            if is_seen and memory.deleted_at is None and not models.has_expired(memory.metadata, request.now):
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
)


# The kind `recent`: what was said and what happened in the last days, whenever it was stored.

# How far back it looks.
DAYS = timedelta(days=14)

# How many of the last messages of that time it reads, and how many tokens of them.
MAX_RECENT_MESSAGES = 40
MAX_RECENT_TOKENS = 4_000


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

# How many prompts one summary reads at most. What does not fit them is read by the next one: about a year of days,
# after a correction of something old.
MAX_PROMPTS = 4

# How many memories and days are looked at for that: more than fit.
MAX_UNREAD = 2_000
MAX_DAYS = 400


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
    room = kinds.MAX_SOURCE_TOKENS - sum(kinds.item_tokens(item["text"]) for item in items)
    known = _known(conn, request, shown, room)
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
