"""Reconcile facts with what is known: tell whose they are, compare, let the model decide, apply."""

import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import lru_cache, partial
from typing import TypeVar

from sqlalchemy import Connection

from palimpsest.core import models
from palimpsest.core.errors import LedgerError, StaleDecisionError
from palimpsest.core.protocols import LanguageModel, Vector
from palimpsest.learn.commit import WriteResult, apply_write, embed_texts, with_named_facts
from palimpsest.learn.document_pages import is_long
from palimpsest.learn.duplicates import with_near_duplicates
from palimpsest.learn.engine import Engine
from palimpsest.learn.summaries import portrait_signs as signs
from palimpsest.llm.decide import MAX_FORGOTTEN_UNASKED, Comparison, Decisions, Forgotten, KnownEntry, decide
from palimpsest.llm.user_name import is_about_user
from palimpsest.recall.similar import likeness_among, similar_memories, similar_messages
from palimpsest.store import entries as entries_module
from palimpsest.store import history
from palimpsest.store import memories as memories_module
from palimpsest.store import messages as message_queries
from palimpsest.store.apply import Write
from palimpsest.store.graph import entities, relations
from palimpsest.store.graph.relations import StatedRelation
from palimpsest.store.writes import find_duplicate
from palimpsest.text.display import counted
from palimpsest.text.intents import FORGOTTEN, MORE_MAY_FIT, first_of
from palimpsest.text.names.known_names import asks_about_name
from palimpsest.text.names.name_finder import find_names, is_english_word, is_given_name
from palimpsest.text.relation_updates import is_for_life
from palimpsest.text.stopwords import without_function_words
from palimpsest.text.tokenizer import count_tokens, search_tokens
from palimpsest.text.word_lists import LazyPattern

# Tell what is about a person from what is about a project, by words alone.
#
# Who works in a repository also says that they are allergic to nuts. That belongs to all of their projects.

_OF_PEOPLE = signs.IDENTITY.words | signs.PEOPLE.words | signs.SAFETY.words

# Signs of what is about a person, whoever that is.
_PRIVATE = signs.Signs(_OF_PEOPLE - signs.ALSO_OF_THINGS.words, signs.PRIVATE.unspaced)

_IS_CALLED = LazyPattern(r"(?:the )?user['\u2019]s (?:(?:first|last|full|given|family|middle) )?name\b", re.IGNORECASE)

# Signs of what is about a person if a person is the subject.
_OF_A_PERSON = (signs.IDENTITY, signs.PEOPLE, signs.PREFERENCES, signs.WORK, signs.HELP, signs.CALLED)

# How long the name of a project is at least that is looked for inside a text.
MIN_NAME = 3

# How many names are looked at that begin alike: few people of a project do.
MAX_NAMES = 20

# What only stands in texts about code: identifiers, options and file names.
_CODE = LazyPattern(r"`|::|\(\)|(?<!\w)--\w|\w_\w|\w\.(?:py|js|ts|tsx|md|json|toml|ya?ml|rs|go|java|sh|sql|c|cpp|h)\b")


async def home_of(engine: Engine, scope: models.Scope, fact: models.Fact, replaces: Sequence[str]) -> models.Scope:
    """Return where a fact belongs that is told in a scope: with what is about a person, outside of the project.

    What replaces other memories belongs where these do, unless the scope has this text already: to the project if one
    of them does, and to the agent only if all of them do, or others would lose what they saw. A long text, which is no
    fact, stays in the project, and so does what somebody says who does not see what is general.
    """

    def home(conn: Connection) -> models.Scope:
        if not replaces:
            return scope.general if personal_facts(conn, scope, [fact]) else scope
        if find_duplicate(conn, scope, fact.text) is not None:
            return scope
        replaced = [entries_module.find_memory(conn, scope, memory_id).scope for memory_id in replaces]
        of_project = scope if any(owner.project for owner in replaced) else scope.general
        return of_project if all(owner.agent_id for owner in replaced) else replace(of_project, agent_id="")

    return await engine.read(home)


def personal_facts(conn: Connection, scope: models.Scope, facts: Sequence[models.Fact]) -> list[models.Fact]:
    """Return those of the facts told in a scope that belong outside of its project."""
    if not scope.project or not scope.with_general or scope.agent_id or scope.run_id:
        return []
    name = memories_module.name_of_user(conn, scope)
    own = {models.name_key(part) for part in (name, *name.split()[:1]) if part}
    return [fact for fact in facts if not is_long(fact.text) and _is_general(conn, scope, fact, own)]


def _is_general(conn: Connection, scope: models.Scope, fact: models.Fact, own: Set[str]) -> bool:
    """Return whether a fact belongs outside of the project: about the user, or people of the user.

    A colleague, a client or a guest is somebody whom the project alone knows, or who is first named as such or with
    what the project alone knows: what is known of them stays here, and so does the work of somebody who has a part in
    the project. Whose relative is one of the people whom all projects know is one of theirs.
    """
    is_kin = bool(fact.relations) and all(map(is_for_life, fact.relations))
    ends = (end for relation in fact.relations for end in (relation.source, relation.destination))
    if is_kin and any(_names_like(conn, scope.general, end) for end in ends):
        return True
    if not is_personal(fact, own, scope.project):
        return False
    name, text = _first_named(fact.text).name, _with_relations(fact)
    is_work = signs.WORK.count(text) + signs.OTHERS.count(text) > 0
    if is_about_user(fact.text) or not name or models.name_key(name) in own:
        people = [found.name for found in find_names(fact.text, {}) if found.type == "person"]
        of_project = [other for other in people if _names_like(conn, scope, other)]
        is_known = all(_names_like(conn, scope.general, other) for other in of_project)
        return is_known or not is_work or _PRIVATE.count(text) > 0
    if signs.names_relative(text, own) or _names_like(conn, scope.general, name):
        return True
    if signs.ROTA.count(text) or _is_tied(conn, scope, name, fact.text):
        return False
    return not is_work or signs.WORKS_FOR.search(fact.text) is not None


def _is_tied(conn: Connection, scope: models.Scope, name: str, text: str) -> bool:
    """Return whether a project knows a person by name, or is the only one that knows what else the text names.

    So a bride is tied to "Lucy and Sam Hughes" and to the hall, and a guest to the room.
    """
    first, last = models.name_key(name).split()[0], models.name_key(name).split()[-1]
    known = [each for each in _names_like(conn, scope, first) if each == first or f" {last}" in f" {each}"]
    others = [found.name for found in find_names(text, {}) if found.name != name and found.type != "place"]
    return bool(known) or any(
        _names_like(conn, scope, other) and not _names_like(conn, scope.general, other) for other in others
    )


def _with_relations(fact: models.Fact) -> str:
    """Return a text with its relations, which say what it may leave out."""
    stated = (f"{each.source} {each.name.replace('_', ' ')} {each.destination}" for each in fact.relations)
    return "; ".join((fact.text, *stated))


def _names_like(conn: Connection, scope: models.Scope, name: str) -> list[str]:
    """Return names that a scope knows and that are this one, or begin with it and go on with another word."""
    key = models.name_key(name)
    known = map(models.name_key, entities.names_beginning(conn, scope, name, MAX_NAMES))
    return [other for other in known if other == key or other.startswith(f"{key} ")]


def is_personal(fact: models.Fact, own_names: Set[str], project: str = "") -> bool:
    """Return whether a fact is about a person: who they are, their family, health or taste, or a relation of the user.

    `own_names` are what the user is called, as `name_key` gives it. In doubt a fact is about the project, and so is
    what the user decides, orders or signs, unless it is for themselves or their people.
    """
    own, text = own_names | models.SELF_NAMES, _with_relations(fact)
    if _is_about_project(fact, project):
        return False
    is_act = signs.DECIDED.count(text) + signs.ACTS.count(text) > 0
    is_own = _PRIVATE.count(text) + signs.APPOINTMENTS.count(text) > 0
    if (is_own or not is_act) and any(models.name_key(relation.source) in own for relation in fact.relations):
        return True
    if _CODE.search(fact.text) or signs.OF_PROJECTS.count(fact.text) or signs.DECIDED.count(fact.text):
        return False
    if is_about_user(fact.text) and signs.APPOINTMENTS.count(fact.text):
        return True
    if not _is_about_person(fact, own):
        return False
    of_person = (some for some in _OF_A_PERSON if some is not signs.WORK or not signs.OWES.search(fact.text))
    return _PRIVATE.count(fact.text) > 0 or any(some.count(fact.text) for some in of_person)


def _is_about_project(fact: models.Fact, project: str) -> bool:
    """Return whether a text begins with the name of the project, or is about it, whatever it says of the user.

    A name that is a word of the language tells nothing inside a text, unless a relation has it. Who works for an
    employer of that name, or has a family there, is a person.
    """
    *owners, name = [part for part in re.split(r"[/.]", project.casefold()) if part] or [""]
    if not name:
        return False
    names = [r"[-_ ]?".join(map(re.escape, re.split(r"[-_ ]", part))) for part in (name, *owners)]
    text = fact.text.casefold()
    if re.match(rf"(?:the )?(?:{'|'.join(names)})\b", text):
        return True
    ends = {models.name_key(end) for relation in fact.relations for end in (relation.source, relation.destination)}
    is_name = len(name) >= MIN_NAME and not is_english_word(name) and re.search(rf"\b{names[0]}\b", text)
    is_named = bool(is_name) or models.name_key(name) in ends
    if is_about_user(fact.text) and signs.CALLED.count(fact.text):
        return False
    return is_named and not (_PRIVATE.count(_with_relations(fact)) or signs.WORKS_FOR.search(_with_relations(fact)))


def _is_about_person(fact: models.Fact, own: Set[str]) -> bool:
    """Return whether a text begins with the user, or with somebody's name, or is about a relative of the user."""
    if is_about_user(fact.text) or _IS_CALLED.match(fact.text) or signs.names_relative(_with_relations(fact), own):
        return True
    first = _first_named(fact.text)
    if first.type == "person" and _PRIVATE.count(fact.text):
        return True
    return models.name_key(first.name) in own or is_given_name(first.name.partition(" ")[0])


def _first_named(text: str) -> models.NamedEntity:
    """Return what a text begins with the name of; its name is "" if it begins with none."""
    return next((found for found in find_names(text, {}) if text.startswith(found.name)), models.NamedEntity(""))


# Reconcile facts with what is known: compare, let the model decide, apply.
#
# Other clients may write while the model thinks. A write is refused if what its decisions were made on has changed;
# then the facts are compared again, and decided on again if the decisions no longer hold.

# Find the memories that say of an entity what a new fact says of it, however they are worded.
#
# "Ana's new flat in Lyon is bright" and "Ana rents a room in Porto" have no word in common but the name. Both say
# where Ana lives, and at most one of them is true. The model is shown such memories beside the nearest ones. It says
# what contradicts what, and the times decide which of the two holds.

# How many memories are compared with one fact: it takes milliseconds, and a fact has room for few.
MAX_COMPARED = 200

# How many words the beginning of a name has at most by which its bearer may be called.
MAX_BEGINNING_WORDS = 3

# The name by which the user's own entity is asked for.
USERS_NAME = "user"

_NOBODY = frozenset[str]()

_T = TypeVar("_T")


class Nearness(IntEnum):
    """How near what a memory says of an entity is to what a fact says of it, the nearest first."""

    SAME_RELATION = 0
    SIMILAR_RELATION = 1
    SAME_ENTITY = 2


def _nearness(stated: models.Relation, type_of: models.EntityType, known: StatedRelation) -> Nearness | None:
    """Return how near a known relation of a source is to one that a fact states, or None if it is about another matter.

    `type_of` is what the destination that the fact states is.
    """
    if known.key == models.relation_key(stated.name):
        return Nearness.SAME_RELATION
    name, words = _words(stated.name), _words(known.name)
    shares_words = name & (words | _words(known.destination)) or words & _words(stated.destination)
    has_type = type_of == known.destination_type != "other"
    return Nearness.SIMILAR_RELATION if shares_words or has_type else None


@lru_cache(maxsize=4_096)
def _words(name: str) -> frozenset[str]:
    """Return the words of a name that say something."""
    return frozenset(without_function_words(search_tokens(name.replace("_", " "))))


def related_memories(
    engine: Engine, scope: models.Scope, fact: models.Fact, user_name: str, vectors: Mapping[str, Vector]
) -> list[tuple[models.Memory, Nearness, float]]:
    """Return the memories of the scope's project that speak of what a fact speaks of, and their likeness.

    First come those that state the same relation of the same source; then those of the same source that state a
    relation with a similar name, or to a destination of the same type; then those that name another entity of the
    fact. Among these, those first that resemble the fact most. Blocking. Raises LedgerError.
    """
    with engine.ledger.read() as conn:
        found = _found(conn, scope, fact, user_name)
        ids = sorted(found, key=lambda memory_id: found[memory_id])[:MAX_COMPARED]
        memories = list(memories_module.memories_by_id(conn, ids).values())
        stored = entries_module.own_vectors(conn, engine.embedder.fingerprint, "memory", ids)
    if not memories:
        return []
    known = {memory.text: stored[memory.id] for memory in memories if memory.id in stored}
    texts = [fact.text, *(memory.text for memory in memories)]
    likeness = likeness_among(engine, scope, texts, {**known, **vectors})[0, 1:]
    related = [(memory, found[memory.id], float(alike)) for memory, alike in zip(memories, likeness, strict=True)]
    return sorted(related, key=lambda item: (item[1], -item[2]))


def _found(conn: Connection, scope: models.Scope, fact: models.Fact, user_name: str) -> dict[str, Nearness]:
    """Return how near memories are to a fact, by their ids, those of the newest memories first."""
    names = [entity.name for entity in fact.entities]
    names += [end for relation in fact.relations for end in (relation.source, relation.destination)]
    keys = {models.name_key(name) for name in names} - {""}
    if not keys:
        return {}
    own_keys = keys & {*models.SELF_NAMES, models.name_key(user_name)}
    similar = _similar_names(conn, scope, keys - own_keys)
    groups = relations.groups_named(conn, scope, [*keys, *similar, USERS_NAME])
    own = groups.pop(USERS_NAME, _NOBODY)
    others = {entity_id for key in groups.keys() - own_keys for entity_id in groups[key]} - own
    groups |= {key: groups.get(key, _NOBODY) | own for key in own_keys}
    types: dict[str, models.EntityType] = {models.name_key(entity.name): entity.type for entity in fact.entities}
    stated = [(item, groups.get(models.name_key(item.source), _NOBODY)) for item in fact.relations]
    sources = {entity_id for _, ids in stated for entity_id in ids}
    relation_keys = {models.relation_key(item.name) for item, _ in stated}
    found: dict[str, Nearness] = {}
    for known in (
        *relations.relations_from(conn, scope, sources, relation_keys),
        *relations.relations_from(conn, scope, sources),
    ):
        for item, ids in stated:
            nearness = _nearness(item, types.get(models.name_key(item.destination), "other"), known)
            if known.source_id in ids and nearness is not None:
                found[known.memory_id] = min(nearness, found.get(known.memory_id, Nearness.SAME_ENTITY))
    for memory_id in relations.memories_naming(conn, scope, others):
        found.setdefault(memory_id, Nearness.SAME_ENTITY)
    return found


def _similar_names(conn: Connection, scope: models.Scope, keys: AbstractSet[str]) -> list[str]:
    """Return longer names that begin with one of these, and beginnings of these: a person is called by either."""
    shorter = {
        " ".join(words[:count])
        for words in (key.split() for key in keys)
        for count in range(1, min(len(words), MAX_BEGINNING_WORDS + 1))
    }
    return [*relations.names_extending(conn, scope, keys), *(shorter - models.SELF_NAMES)]


# Find what new facts, and requests to forget, are held against before the model decides.

# How many memories are shown for each fact however little they resemble it: a change told in passing shares few words
# with what it changes.
ALWAYS_SHOWN = 3

# How many tokens the memories shown take together, beyond the first of each fact. So that a usual turn and the prompt
# stay within 2,000 tokens. No memory takes more than `MAX_ENTRY_TOKENS`.
MAX_SHOWN_TOKENS = 900

# How many memories are shown for each fact because they speak of the same entity, beyond those that resemble it. Set by
# hand: of the update pairs that likeness misses, all that the graph knows are among the first four.
MAX_RELATED = 5

# How many tokens they take together. As `MAX_SHOWN_TOKENS` is: about fifteen memories.
MAX_RELATED_TOKENS = 200

# The likeness from which two facts of one call are held against each other: facts of one conversation are about one
# subject, and only those that say nearly the same matter.
MIN_LIKENESS_OF_FACTS = 0.4

# How many memories and messages are shown for each request to forget, however little they resemble it: a request names
# a person or a matter in a few words, and what is not shown is not forgotten.
FORGETTABLE_MEMORIES, FORGETTABLE_MESSAGES = 30, 10

# How many tokens they take together with the memories of the facts: few turns have a request, and thirty memories have
# room.
MAX_FORGETTABLE_TOKENS = 2_400


@dataclass(frozen=True, slots=True)
class ReconcileRequest:
    """Facts to reconcile with the memories of a scope, and what its user asks to forget.

    `learned_from` are the ids of the messages the facts come from. With `keep_all` a fact is added even if the model
    finds it not worth keeping. The requests may take `may_forget` memories without a question. `user_name` is "" if it
    is not known. `vectors` maps texts to their vectors, as far as they could be embedded. `told_name` is the decision
    to store the user's name, if none of the facts keeps it. Unless it `stays_in_project`, a new fact about a person is
    stored for all projects.
    """

    scope: models.Scope
    facts: tuple[models.Fact, ...]
    caller: str
    requests: tuple[models.ForgetRequest, ...] = ()
    learned_from: tuple[str, ...] = ()
    keep_all: bool = False
    may_forget: int = MAX_FORGOTTEN_UNASKED
    user_name: str = ""
    vectors: Mapping[str, Vector] = field(default_factory=dict[str, Vector])
    told_name: models.Decision | None = None
    stays_in_project: bool = True


@dataclass(frozen=True, slots=True)
class Basis:
    """What decisions are made on: the end of the index log, the entries, and the ids of the most similar memories."""

    seq: int
    shown: Comparison
    similar_ids: frozenset[str]

    @property
    def revisions(self) -> dict[str, int]:
        """Return the revisions of the memories by id."""
        memories = [entry.memory for entry in self.shown.entries if entry.kind == "memory"]
        return {memory.id: memory.revision for memory in memories}


class _Comparing:
    """Gathers what facts and requests to forget are held against: entries, each once, with numbers.

    `near` has for each item, the facts first, the numbers of the entries that are near it, and their likeness.
    `same_relation` are the ids of the memories that state the same relation of the same source as a fact.
    """

    def __init__(self, engine: Engine, request: ReconcileRequest) -> None:
        self.engine, self.request, self.scope = engine, request, request.scope
        self.vectors = dict(request.vectors)
        for fact in request.facts:
            if fact.key_text in request.vectors:
                self.vectors[fact.text] = request.vectors[fact.key_text]
        self.entries: list[KnownEntry] = []
        self.near: list[dict[int, float]] = [{} for _ in (*request.facts, *request.requests)]
        self.same_relation: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._tokens = 0

    def _show(self, near: dict[int, float], entry: KnownEntry, likeness: float, max_tokens: float) -> bool:
        """Show an entry, and note that it is near an item. Return whether there was room for it."""
        if entry.memory.id not in self._numbers:
            cost = count_tokens(entry.shown_text) + (count_tokens(entry.shown_hints) if self.request.requests else 0)
            if self._tokens + cost > max_tokens:
                return False
            self._tokens += cost
            self._numbers[entry.memory.id] = len(self.entries)
            self.entries.append(entry)
        near[self._numbers[entry.memory.id]] = likeness
        return True

    def _entry(self, memory: models.Memory, kind: models.Kind = "memory") -> KnownEntry:
        return KnownEntry(memory, memory.stated_at, kind, not self.scope.owns(memory.scope))

    def show_near_facts(self) -> None:
        """Show the memories that resemble each fact.

        A project's facts do not change the user's global memories, which are visible outside the project too. None
        changes a block, which agents and people edit.
        """
        learn = self.engine.settings.learn
        asked = {fact.text: self.vectors.get(fact.text) for fact in self.request.facts}
        found = similar_memories(self.engine, self.scope, asked, learn.similar_memories)
        own = [
            [
                item
                for item in found[fact.text]
                if self.scope.owns(item.memory.scope)
                if not memories_module.is_block(item.memory.metadata)
            ]
            for fact in self.request.facts
        ]
        for place, number, item in _in_turns(own):
            if item.likeness >= learn.similarity_threshold or place < ALWAYS_SHOWN:
                max_tokens = MAX_SHOWN_TOKENS if place else math.inf
                self._show(self.near[number], self._entry(item.memory), item.likeness, max_tokens)

    def show_related(self) -> None:
        """Show the memories that speak of what each fact speaks of."""
        max_tokens = self._tokens + MAX_RELATED_TOKENS
        related: list[list[tuple[models.Memory, Nearness, float]]] = []
        for number, fact in enumerate(self.request.facts):
            found = related_memories(self.engine, self.scope, fact, self.request.user_name, self.vectors)
            known = [item for item in found if not memories_module.is_block(item[0].metadata)]
            new = [item for item in known if self._numbers.get(item[0].id) not in self.near[number]]
            related.append(new[:MAX_RELATED])
        for _, number, (memory, nearness, likeness) in _in_turns(related):
            is_shown = self._show(self.near[number], self._entry(memory), max(likeness, 0.0), max_tokens)
            if is_shown and nearness is Nearness.SAME_RELATION:
                self.same_relation.add(memory.id)

    def show_near_requests(self) -> list[frozenset[models.Kind]]:
        """Show what the requests to forget may mean. Return for each of which kinds there is more than is shown.

        A project's request does not change the user's global memories. They are shown, so that the reply can name them.
        """
        requests = self.request.requests
        asked = {request.what: self.vectors.get(request.what) for request in requests}
        own = {source for request in requests for source in request.sources}
        memories = similar_memories(self.engine, self.scope, asked, FORGETTABLE_MEMORIES)
        messages = similar_messages(self.engine, self.scope, asked, FORGETTABLE_MESSAGES + len(own))
        partly_shown: list[frozenset[models.Kind]] = []
        for item, request in enumerate(requests, len(self.request.facts)):
            near, said = memories[request.what], messages[request.what]
            found = [(self._entry(each.memory), each.likeness) for each in near]
            found += [(self._entry(each.as_memory, "message"), alike) for each, alike in said if each.id not in own]
            more: set[models.Kind] = {"memory"} if len(near) == FORGETTABLE_MEMORIES else set()
            more |= {"message"} if len(said) == FORGETTABLE_MESSAGES + len(own) else set()
            for entry, likeness in found:
                if not self._show(self.near[item], entry, likeness, MAX_FORGETTABLE_TOKENS):
                    more.add(entry.kind)
            partly_shown.append(frozenset(more))
        for memory in self._closed() if requests else ():
            self._show({}, self._entry(memory), 0.0, MAX_FORGETTABLE_TOKENS)
        return partly_shown

    def _closed(self) -> list[models.Memory]:
        """Return the memories that those shown replaced, or that came from the messages shown, and that hold no more.

        Those of another project, agent or run than the scope's are left out.
        """
        scope = self.scope
        messages = [entry.memory.id for entry in self.entries if entry.kind == "message"]
        shown = [entry.memory.id for entry in self.entries if entry.kind == "memory"]
        with self.engine.ledger.read() as conn:
            replaced = [old.memory for memory_id in shown for old in history.predecessors(conn, memory_id)]
            told = [memory for found in memories_module.memories_from(conn, messages).values() for memory in found]
        return [
            memory
            for memory in (*replaced, *told)
            if memory.deleted_at is not None and not memory.is_forgotten
            if scope.owns(memory.scope) and scope.run_id in ("", memory.scope.run_id)
        ]

    def show_near_each_other(self) -> tuple[int, ...]:
        """Note for each fact the earlier ones that resemble it. Return these, in order.

        If there are requests to forget all facts are returned, because a request may mean each of them.
        """
        facts = self.request.facts
        likeness = likeness_among(self.engine, self.scope, [fact.text for fact in facts], self.vectors)
        pairs = [
            (number, other)
            for number in range(len(facts))
            for other in range(number)
            if likeness[number, other] >= MIN_LIKENESS_OF_FACTS
        ]
        listed = range(len(facts)) if self.request.requests else sorted({other for _, other in pairs})
        for number, other in pairs:
            self.near[number][len(self.entries) + listed.index(other)] = float(likeness[number, other])
        return tuple(listed)


def _in_turns(found: Sequence[Sequence[_T]]) -> Iterator[tuple[int, int, _T]]:
    """Yield the first item of each list, then the second of each, with its place and the number of the list."""
    for place in range(max(map(len, found), default=0)):
        for number, items in enumerate(found):
            if place < len(items):
                yield place, number, items[place]


def compare(engine: Engine, request: ReconcileRequest) -> Basis:
    """Return what facts and requests are held against. Blocking. Raises LedgerError."""
    with engine.ledger.read() as conn:
        seq = entries_module.newest_log_number(conn)
        living = len(memories_module.memories_of(conn, request.scope)) if request.requests else 0
    comparing = _Comparing(engine, request)
    comparing.show_near_facts()
    comparing.show_related()
    partly_shown = comparing.show_near_requests()
    similar = {
        comparing.entries[number].memory.id
        for near in comparing.near
        for number, likeness in near.items()
        if likeness >= engine.settings.learn.similarity_threshold and comparing.entries[number].kind == "memory"
    }
    listed = comparing.show_near_each_other()
    shown = Comparison(
        request.facts,
        tuple(_last_said(engine, comparing.entries)),
        request.requests,
        tuple(dict(sorted(near.items(), key=lambda item: -item[1])) for near in comparing.near),
        listed,
        tuple(partly_shown),
        request.user_name,
        now=engine.clock(),
        may_forget=request.may_forget,
        living=living,
    )
    return Basis(seq, shown, frozenset(similar | comparing.same_relation))


def _last_said(engine: Engine, entries: Sequence[KnownEntry]) -> list[KnownEntry]:
    """Return the entries with the time at which each was last said: that of the newest message behind it."""
    ids = [entry.memory.id for entry in entries if entry.kind == "memory"]
    sources = engine.ledger.read_with(message_queries.sources_of, ids)
    zone = engine.clock().tzinfo
    return [
        replace(
            entry,
            memory=entry.memory.in_zone(zone),
            said_at=max([entry.said_at, *(message.said_at for message in sources.get(entry.memory.id, ()))]),
        )
        for entry in entries
    ]


logger = logging.getLogger(__name__)

# How often the model decides on the same facts: each time costs a call of seconds.
MAX_DECISIONS = 5

# How often facts are compared with what is known: a comparison costs milliseconds and no model.
MAX_COMPARISONS = 50

NOT_KEPT = "not kept, because the model found it not worth remembering: "

# How the notes begin that are left out first where there is little room.
UNDECIDED = "added as it is, although the model decided nothing about it: "


class Reconciliation:
    """Reconciles facts with what is known, or adds them as they are."""

    def __init__(self, engine: Engine, model: LanguageModel, request: ReconcileRequest) -> None:
        self._engine, self._model, self._request = engine, model, request
        self._extracted = models.Provenance("extract", model.name, caller=request.caller)

    async def run(self) -> WriteResult:
        """Decide what becomes of the facts and apply it. Raises ModelError, PromptError and LedgerError.

        StaleDecisionError means that other clients kept changing what the decisions were made on.
        """
        engine, request = self._engine, self._request
        if any(fact.key_text not in request.vectors for fact in request.facts):
            logger.warning("facts are compared by words only, because they could not be embedded")
        decided: tuple[Basis, Decisions, models.Provenance] | None = None
        rounds, messages = 0, request.learned_from
        for _ in range(MAX_COMPARISONS):
            current = await engine.run(lambda: compare(engine, request))
            if decided is None or not await engine.read(partial(_still_holds, decided[0], current)):
                if rounds == MAX_DECISIONS:
                    break
                rounds += 1
                decided = current, *await self._decide(current.shown)
            basis, decisions, provenance = decided
            try:
                return await self._apply(replace(basis, seq=current.seq), decisions, provenance)
            except StaleDecisionError:
                new = await engine.read(lambda conn: message_queries.awaiting_extraction(conn, messages))
                if new != set(messages):
                    raise
                logger.info("comparing again: memories changed meanwhile")
        raise StaleDecisionError(
            f"other clients kept changing this memory while {len(request.facts)} facts were decided on; add them again"
        )

    async def add_undecided(self, error: Exception) -> WriteResult:
        """Add the facts without a decision, with what they resemble. What they contradict is not closed.

        Requests to forget are not granted. Raises LedgerError.
        """
        request = self._request
        applied = await apply_write(self._engine, await self._write_of(_additions(request.facts), self._extracted))
        notes = [f"asked to forget, but that failed ({error}); ask again: {asked.what}" for asked in request.requests]
        if request.facts:
            notes.append(f"added as they are, not reconciled with what was known: {error}")
        notes += _general_note(request.scope, applied.outcomes)
        result = WriteResult(applied.outcomes, notes=(*notes, *applied.notes))
        return await with_near_duplicates(self._engine, request.scope, result, request.vectors)

    async def _decide(self, shown: Comparison) -> tuple[Decisions, models.Provenance]:
        """Return the model's decisions on the facts, given what they resemble, and their provenance."""
        request, model = self._request, self._model
        if not shown.entries and not shown.listed_facts:
            return Decisions(_additions(request.facts), unmatched=request.requests), self._extracted
        prompt = self._engine.prompts.get("decide")
        await self._engine.report_progress(f"asking the model what becomes of {counted(len(request.facts), 'fact')}")
        decisions = await decide(model, prompt, shown)
        if request.keep_all:
            decisions = replace(decisions, decisions=decisions.decisions + _additions(decisions.dropped), dropped=())
        return decisions, models.Provenance("decide", model.name, prompt.fingerprint, request.caller)

    async def _apply(self, basis: Basis, decisions: Decisions, provenance: models.Provenance) -> WriteResult:
        # What asked to forget something is not found by a search for it. A request that was not granted stays.
        asking = {source: None for granted in decisions.granted for source in granted.request.sources}
        known = {decision.memory_id for decision in decisions.decisions}
        hidden = tuple(
            models.Decision(models.Event.DELETE, memory_id=message_id, kind="message", forgets=True)
            for message_id in asking
            if message_id not in known
        )
        request, write = self._request, await self._write_of(decisions.decisions, provenance)
        # A decision may give a memory a text of the model's own, which has no vector yet.
        facts = [fact for decision in write.decisions for fact in (decision.fact, *decision.outdated)]
        texts = [fact.key_text for fact in facts if fact is not None]
        vectors, notes = await embed_texts(self._engine, texts, request.vectors)
        write = replace(
            write,
            decisions=(*write.decisions, *hidden),
            vectors=vectors,
            read=basis.revisions,
            based_on=basis.seq,
            forgets_name=any(asks_about_name(granted.request.what, request.user_name) for granted in decisions.granted),
        )
        applied = await apply_write(self._engine, write)
        questions = tuple(_question(questioned, applied.outcomes) for questioned in decisions.questioned)
        notes = [*_notes(decisions), *notes, *applied.notes, *_general_note(request.scope, applied.outcomes)]
        return WriteResult(applied.outcomes, notes=tuple(notes), questions=questions)

    async def _write_of(self, decisions: Sequence[models.Decision], provenance: models.Provenance) -> Write:
        """Return the write of decisions, which also keep the user's name if the messages tell it.

        New facts about a person belong to no project, unless they stay in it.
        """
        request, scope = self._request, self._request.scope
        keeps_name = any(each.fact is not None and each.fact.metadata.get(models.USER_NAME) for each in decisions)
        told_name = () if keeps_name or request.told_name is None else (request.told_name,)

        def placed(conn: Connection) -> tuple[models.Decision, ...]:
            every = (*decisions, *told_name)
            if not request.stays_in_project:
                added = [each.fact for each in every if each.event is models.Event.ADD and each.fact is not None]
                general = personal_facts(conn, scope, added)
                every = tuple(replace(decision, is_general=decision.fact in general) for decision in every)
            return with_named_facts(conn, scope, every)

        every = await self._engine.read(placed)
        return Write(scope, provenance, decisions=every, vectors=request.vectors, learned_from=request.learned_from)


def _additions(facts: Iterable[models.Fact]) -> tuple[models.Decision, ...]:
    return tuple(models.Decision(models.Event.ADD, fact) for fact in facts)


def not_learned_from(conn: Connection, messages: Sequence[models.Message]) -> list[models.Message]:
    """Return the messages that no facts were extracted from yet and that are not deleted."""
    new_ids = message_queries.awaiting_extraction(conn, [message.id for message in messages])
    return [message for message in messages if message.id in new_ids]


async def are_all_learned(engine: Engine, messages: Sequence[models.Message]) -> bool:
    """Return whether nothing is left to learn from messages, as far as the ledger can be read."""
    with suppress(LedgerError):  # whoever asks has an error to tell already
        return not await engine.read(lambda conn: not_learned_from(conn, messages))
    return False


def _still_holds(basis: Basis, current: Basis, conn: Connection) -> bool:
    """Return whether decisions hold: none of the memories they were made on changed, and no similar one was added."""
    memories = memories_module.memories_by_id(conn, list(basis.revisions))
    unchanged = {memory_id: memory.revision for memory_id, memory in memories.items()} == basis.revisions
    return unchanged and current.similar_ids <= basis.revisions.keys()


def _question(questioned: Forgotten, outcomes: Sequence[models.Outcome]) -> models.ForgetQuestion:
    """Return what a request would take. Facts of the call are memories by now."""
    texts = {fact.text for fact in questioned.facts.values()}
    stored = {entry.memory.id: entry.memory.text for entry in questioned.entries.values()}
    stored |= {outcome.memory.id: outcome.memory.text for outcome in outcomes if outcome.memory.text in texts}
    request = questioned.request
    ids = tuple(dict.fromkeys((*stored, *request.sources)))  # the request itself goes with what it asks for
    return models.ForgetQuestion(request.what, ids, tuple(stored.values()), questioned.more_may_fit)


def _general_note(scope: models.Scope, outcomes: Sequence[models.Outcome]) -> list[str]:
    """Return the note that facts were stored outside of the project in which they were told, if any were."""
    added = [outcome for outcome in outcomes if outcome.event is models.Event.ADD and outcome.kind == "memory"]
    general = [outcome.memory.text for outcome in added if not outcome.memory.scope.project]
    if not scope.project or not general:
        return []
    about = "about the user or their people, so stored for all projects"
    return [f"{about} and not in {scope.project} alone: {first_of(general)}"]


def _notes(decisions: Decisions) -> list[str]:
    """Return what the caller must know, what people asked for first."""
    notes: list[str] = []
    for granted in decisions.granted:
        what = granted.request.what
        quoted = "; ".join(f'"{text}"' for text in granted.texts)
        notes.append(f"{FORGOTTEN}({what}): {quoted}")
        if granted.more_may_fit:
            notes.append(f"{MORE_MAY_FIT}: {what}")
    notes += [f"asked to forget, but nothing stored fits: {request.what}" for request in decisions.unmatched]
    notes += [
        f"asked to forget, but the model decided nothing about it; ask again: {request.what}"
        for request in decisions.unanswered
    ]
    notes += [
        f"not forgotten, because it is stored for all projects; ask for it outside the project: {text}"
        for text in dict.fromkeys(decisions.elsewhere)
    ]
    if decisions.is_cut:
        notes.append("the model's decisions were cut off; raise llm.config.max_tokens")
    notes += decisions.doubts
    notes += [f"left out of the model's decisions: {fault.rstrip('.')}" for fault in decisions.faults]
    notes += [f"{UNDECIDED}{fact.text}" for fact in decisions.undecided]
    return notes + [f"{NOT_KEPT}{fact.text}" for fact in decisions.dropped]
