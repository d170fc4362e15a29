"""What a fact names and states, read from a model's reply. What is left out is counted, so that the caller is told."""

from __future__ import annotations

from collections.abc import Iterable

from palimpsest.core.entities import MAX_NAME_CHARS, SELF_NAMES, NamedEntity, Relation, name_key, relation_key
from palimpsest.llm.extraction.reply import FactReply
from palimpsest.llm.names import with_name
from palimpsest.llm.nothing import NOTHING
from palimpsest.text.counting import counted

MAX_ENTITIES = 20
"""How many entities of a fact are kept. Set by hand: a sentence that names more is a list, and found by its words."""

MAX_RELATIONS = 12
"""How many relations of a fact are kept. Set by hand: a sentence states one to three."""

_PRONOUNS = frozenset(
    {
        *("it", "its", "he", "she", "they", "we", "him", "her", "us", "them", "this", "that", "these", "those"),
        *("someone", "somebody", "something", "everyone", "everybody", "er", "sie", "es", "wir", "jemand", "etwas"),
        *("il", "elle", "ils", "elles", "nous", "él", "ella", "ellos", "ellas", "он", "она", "оно", "они", "мы"),
        *("他", "她", "它", "他们", "她们", "我们", "彼", "彼女", "그", "그녀"),
    }
)
"""What small models give as an entity, though only the sentence before says who is meant."""


class GraphReader:
    """Reads the entities and relations of the facts of one reply.

    What has no name is left out, and so is a relation of something with itself: it says nothing.
    """

    def __init__(self) -> None:
        self._too_long = 0
        self._too_many = 0

    @property
    def left_out(self) -> tuple[str, ...]:
        """Return a note for each bound that entities or relations exceeded."""
        notes: list[str] = []
        if self._too_long:
            names = counted(self._too_long, "name")
            notes.append(f"left out {names} of entities and relations with more than {MAX_NAME_CHARS} characters")
        if self._too_many:
            bounds = f"{MAX_ENTITIES} entities and {MAX_RELATIONS} relations"
            notes.append(f"left out {self._too_many:,} entities and relations: a fact has at most {bounds}")
        return tuple(notes)

    def relations(self, fact: FactReply, user_name: str, known: Iterable[Relation]) -> tuple[Relation, ...]:
        """Return the known relations of a fact and those of its reply, each once. The user has one name in them."""
        relations = {_key(relation): relation for relation in known}
        for source, name, destination in fact.relations:
            relation = Relation(_one_name(source, user_name), name, _one_name(destination, user_name))
            key = _key(relation)
            if all(key) and key[0] != key[2] and self._fit(relation.source, relation.name, relation.destination):
                relations.setdefault(key, relation)
        self._too_many += max(0, len(relations) - MAX_RELATIONS)
        return tuple(relations.values())[:MAX_RELATIONS]

    def entities(self, fact: FactReply, user_name: str, known: Iterable[NamedEntity]) -> tuple[NamedEntity, ...]:
        """Return the known entities of a fact and those of its reply, each once. The user is a person of one name."""
        entities = {name_key(entity.name): entity for entity in known}
        for entity in fact.entities:
            is_user = name_key(entity.name) in SELF_NAMES
            named = NamedEntity(_one_name(entity.name, user_name), "person" if is_user else entity.type)
            if (key := _name(named.name)) and self._fit(named.name):
                same = entities.get(key)
                entities[key] = named if same is None or same.type == "other" else same
        self._too_many += max(0, len(entities) - MAX_ENTITIES)
        return tuple(entities.values())[:MAX_ENTITIES]

    def _fit(self, *names: str) -> bool:
        too_long = sum(len(name) > MAX_NAME_CHARS for name in names)
        self._too_long += too_long
        return not too_long


def with_ends(entities: Iterable[NamedEntity], relations: Iterable[Relation]) -> tuple[NamedEntity, ...]:
    """Return entities, and after them the ends of relations that are not among them."""
    named = {name_key(entity.name): entity for entity in entities}
    for relation in relations:
        for end in (relation.source, relation.destination):
            named.setdefault(name_key(end), NamedEntity(end, "person" if name_key(end) in SELF_NAMES else "other"))
    return tuple(named.values())


def _one_name(name: str, user_name: str) -> str:
    """Return the user's name for what means the user, as in the text of the fact."""
    if not user_name:
        return name
    return user_name if name_key(name) in SELF_NAMES else with_name(name, user_name)


def _key(relation: Relation) -> tuple[str, str, str]:
    return _name(relation.source), relation_key(relation.name), _name(relation.destination)


def _name(name: str) -> str:
    """Return the key of a name; "" if it names nothing."""
    key = name_key(name)
    return "" if key in NOTHING or key in _PRONOUNS or not any(map(str.isalnum, key)) else key
