"""Cases of the graph as lists of steps: what is stored and edited, and what the graph says then.

A step begins with its verb, the name of a method of `GraphCase`. Memories are numbered as they are added, from 0, and
messages are called m0, m1, and so on. Names are "Tom, Ana:person", with a type if one is known. Options come last:
`scope` ("web", "agent:cook", "run:r1", "user:bob"), and of what is added `relations`, `metadata`, `vector` and others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import pytest

from palimpsest.core.errors import InputError, MemoryNotFoundError
from palimpsest.core.models import (
    AppliedWrite,
    Decision,
    EntityEdit,
    EntityType,
    Event,
    Fact,
    Kind,
    Merge,
    NamedEntity,
    Provenance,
    Relation,
    Rename,
    Scope,
    Split,
)
from palimpsest.learn.summaries.dossier import find_entities, read_dossier
from palimpsest.store import entries, history
from palimpsest.store import memories as memory_queries
from palimpsest.store import messages as message_queries
from palimpsest.store.apply import Write
from palimpsest.store.graph.entities import entities_in_text, entities_named, list_entities, names_beginning
from palimpsest.store.graph.relations import relations_of
from palimpsest.text.tokenizer import search_tokens
from tests.support.graph import Graph
from tests.support.memory import ALICE, messages_from

Step: TypeAlias = list[Any]


def graph_cases(file: Path) -> dict[str, list[Step]]:
    """Return the steps of each case in a file."""
    return json.loads(file.read_text("utf-8"))


def scope_of(name: str) -> Scope:
    """Return the scope of a step: a project, "agent:…", "run:…" or "user:…"."""
    kind, _, value = name.rpartition(":")
    if kind == "user":
        return Scope(value)
    parts = {
        part: value if kind == name else ""
        for part, name in (("project", ""), ("agent_id", "agent"), ("run_id", "run"))
    }
    return Scope("alice", parts["project"], parts["agent_id"], parts["run_id"])


def entities_in(names: str) -> list[tuple[str, EntityType]]:
    """Return names with their types."""
    found = (name.strip().partition(":") for name in names.split(",") if name.strip())
    return [(name, cast("EntityType", kind or "other")) for name, _, kind in found]


def relations_in(stated: list[list[str]]) -> tuple[Relation, ...]:
    return tuple(Relation(*parts) for parts in stated)


def long(word: str, chars: int) -> str:
    """Return a text of so many characters."""
    return f"{word} {'x' * (chars - len(word) - 1)}" if chars > len(word) else word


def kind_of(owner: int | str) -> Kind:
    """Return whether a number is that of a memory or a message."""
    return "memory" if isinstance(owner, int) else "message"


@dataclass
class GraphCase:
    """A graph and the memories, states and notes of a case."""

    graph: Graph
    ids: list[str] = field(default_factory=list[str])
    states: dict[str, tuple[Any, datetime]] = field(default_factory=dict[str, tuple[Any, datetime]])
    told: tuple[str, ...] = ()
    said: list[str] = field(default_factory=list[str])

    def play(self, *steps: Step) -> None:
        """Carry out steps."""
        for verb, *arguments in steps:
            options: dict[str, Any] = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
            getattr(self, verb)(*arguments, **options)

    def add(self, text: str, names: str = "", **options: Any) -> None:
        """Add a memory."""
        options["relations"] = relations_in(options.get("relations", []))
        options["scope"] = scope_of(options.get("scope", ""))
        replaced: list[int] = options.pop("replaces", [])
        if "sources" in options:
            options["sources"] = tuple(self._owner(owner) for owner in options["sources"])
        if "vector" in options:
            options["vector"] = np.array(options["vector"], np.float32)
        replaces = tuple(self.ids[number] for number in replaced)
        self.ids.append(self.graph.add(text, *entities_in(names), replaces=replaces, **options))

    def change(self, number: int, text: str, names: str = "", **options: Any) -> None:
        """Give a memory another text."""
        options["relations"] = relations_in(options.get("relations", []))
        self.graph.change(self.ids[number], text, *(name for name, _ in entities_in(names)), **options)

    def repeat(self, number: int, text: str, relations: list[list[str]], **more: Any) -> None:
        """Decide that a memory says the same as a fact."""
        named = tuple(NamedEntity(end) for stated in relations for end in (stated[0], stated[2]))
        fact = Fact(text, entities=named, relations=relations_in(relations), **more)
        self._decide(Decision(Event.NONE, fact, self.ids[number]))

    def say(self, *texts: str, scope: str = "", **more: str) -> None:
        """Store messages. They are called m0, m1, and so on."""
        said = messages_from(*({"role": "user", "content": text, **more} for text in texts), scope=scope_of(scope))
        at = self.graph.clock()
        dated = tuple(replace(message, said_at=at, created_at=at) for message in said)
        self.said += [message.id for message in self._apply(scope, messages=dated).messages]

    def end(self, number: int) -> None:
        """Close a memory that holds no more."""
        self._decide(Decision(Event.DELETE, memory_id=self.ids[number], ended_at=self.graph.clock()))

    def delete(self, *owners: int | str, scope: str = "web") -> None:
        """Delete memories and messages in one edit."""
        gone = [Decision(Event.DELETE, memory_id=self._owner(it), kind=kind_of(it)) for it in owners]
        self._apply(scope, decisions=tuple(gone))

    def restore(self, *owners: int | str) -> None:
        """Restore memories and messages in one edit."""
        self._decide(*(Decision(Event.ADD, memory_id=self._owner(it), kind=kind_of(it)) for it in owners))

    def update(self, *texts: list[Any]) -> None:
        """Give memories, by number, other texts in one edit."""
        self._decide(*(Decision(Event.UPDATE, Fact(text), self.ids[int(number)]) for number, text in texts))

    def texts(self, *expected: str, scope: str = "") -> None:
        """Compare the texts of the living memories and messages of a scope itself."""
        with self.graph.ledger.read() as conn:
            memories = [memory.text for memory in memory_queries.memories_of(conn, scope_of(scope))]
            messages = [message.content for message in message_queries.messages_of(conn, scope_of(scope))]
        assert sorted(memories + messages) == sorted(expected)

    def found(self, words: str, *owners: int | str, scope: str = "") -> None:
        """Compare the memories and messages that the full text finds."""
        seen, ledger = scope_of(scope), self.graph.ledger
        with ledger.read() as conn:
            scores = ledger.full_text.search(conn, seen, search_tokens(words), 100)
            rows = entries.candidates(conn, seen, "", list(scores), ledger.now(seen.user_id))
        assert {row.candidate.owner_id for row in rows} == {self._owner(owner) for owner in owners}

    def versions(self, number: int, *expected: list[str | None]) -> None:
        """Compare event, old and new text of each version of a memory."""
        with self.graph.ledger.read() as conn:
            known = history.versions_of(conn, self.ids[number])
        assert [[version.event.value, version.old_memory, version.new_memory] for version in known] == list(expected)

    def metadata(self, number: int, **expected: Any) -> None:
        """Compare the metadata of a memory."""
        with self.graph.ledger.read() as conn:
            assert memory_queries.memories_by_id(conn, self.ids)[self.ids[number]].metadata == expected

    def pin(self, word: str, chars: int, *value: Any, **options: Any) -> None:
        """Add a memory of so many characters that is pinned, with a value or true."""
        self.add(long(word, chars), metadata={"pinned": value[0] if value else True}, **options)

    def lengthen(self, number: int, word: str, chars: int, **metadata: Any) -> None:
        """Give a memory a text of so many characters."""
        self.change(number, long(word, chars), metadata=metadata)

    def block(self, *words: str, scope: str = "") -> None:
        """Compare the first words of the pinned block that a scope sees."""
        with self.graph.ledger.read() as conn:
            pinned = memory_queries.pinned_memories(conn, scope_of(scope))
        assert [memory.text.partition(" ")[0] for memory in pinned] == list(words)

    def said_so(self, text: str) -> None:
        """Look for a text among the notes of all writes."""
        assert any(text in note for note in self.graph.notes)

    def named(self, asked: str, *expected: str, scope: str = "") -> None:
        """Compare the entities that a scope sees by names, which "|" parts: "key=Name" for each that some have."""
        with self.graph.ledger.read() as conn:
            found = entities_named(conn, scope_of(scope), asked.split("|"))
        assert sorted(f"{key}={entity.name}" for key, of_key in found.items() for entity in of_key) == list(expected)

    def in_text(self, text: str, *expected: str) -> None:
        """Compare the entities that a text names."""
        with self.graph.ledger.read() as conn:
            assert [entity.name for entity in entities_in_text(conn, ALICE, text)] == list(expected)

    def listed(self, *expected: str) -> None:
        """Compare the listed entities: "Name=memories"."""
        with self.graph.ledger.read() as conn:
            listed = list_entities(conn, ALICE, 10)
        assert sorted(f"{each.entity.name}={each.mentions}" for each in listed) == list(expected)

    def completed(self, beginning: str, *expected: str, scope: str = "") -> None:
        """Compare the first three names that begin so."""
        with self.graph.ledger.read() as conn:
            assert names_beginning(conn, scope_of(scope), beginning, 3) == list(expected)

    def shown(self, *expected: str, scope: str = "") -> None:
        """Compare every name that a scope is shown when it looks for Ana and at what it knows."""
        seen = scope_of(scope)
        with self.graph.ledger.read() as conn:
            (ana,) = find_entities(conn, seen, "Ana")
            dossier = read_dossier(conn, seen, ana, now=self.graph.clock())
            relations = relations_of(conn, seen, [ana.id], limit=10)
            names = {
                *(dossier.entity.name, *dossier.aliases, *names_beginning(conn, seen, "", 10)),
                *(entity.name for entity in entities_in_text(conn, seen, "Where does Ana live?")),
                *(each.entity.name for each in list_entities(conn, seen, 10)),
                *(end for item in (*relations, *dossier.relations) for end in (item.source, item.destination)),
            }
        assert names == set(expected)

    def edits(self, *expected: str, scope: str = "") -> None:
        """Compare the lines of the edits of entities that a scope sees, the newest first."""
        steps = (step for edit in self.graph.log(scope_of(scope)) for step in edit.steps)
        assert [step.after for step in steps if step.kind == "entity"] == list(expected)

    def mentions(self, message: str, *expected: str) -> None:
        """Compare the entities that a message mentions: "key=Name"."""
        spoken = self.graph.spoken(self._owner(message))
        assert sorted(f"{key}={name}" for key, name in spoken.items()) == list(expected)

    def means(self, message: str, key: str, number: int) -> None:
        """Compare the entity that a message means by a name with the first one of a memory."""
        assert self.graph.spoken_ids(self._owner(message))[key] in self.graph.first_entity(self.ids[number])

    def stages(self, *expected: str) -> None:
        """Compare the stages of the edits, the newest first."""
        assert [edit.provenance.stage for edit in self.graph.log()] == list(expected)

    def merge(self, name: str, into: str, **options: str) -> None:
        """Merge two entities."""
        self._edit(Merge(self._id(name), self._id(into)), **options)

    def split(self, name: str, numbers: list[int], new: str, **options: str) -> None:
        """Split what memories mention off an entity."""
        self._edit(Split(self._id(name), tuple(self.ids[number] for number in numbers), new), **options)

    def rename(self, name: str, new: str = "", kind: Any = None, **options: str) -> None:
        """Rename an entity, or give it another type."""
        self._edit(Rename(self._id(name), new, kind), **options)

    def undo(self, number: int | None = None, *, scope: str = "") -> None:
        """Undo an edit, or the newest."""
        self.graph.undo(number, scope=scope_of(scope))

    def undo_since(self, name: str) -> None:
        """Undo everything since a state was noted."""
        self.graph.undo(since=self.states[name][1])

    def refused(self, text: str, *step: Any, **options: Any) -> None:
        """Carry out a step that is refused with a text, and changes nothing."""
        before = self.graph.state(), self.graph.log()
        with pytest.raises((InputError, MemoryNotFoundError), match=text):
            self.play([*step, options])
        assert (self.graph.state(), self.graph.log()) == before

    def note(self, name: str) -> None:
        """Note the state."""
        self.graph.clock.forward(seconds=1)
        self.states[name] = self.graph.state(), self.graph.clock()

    def same(self, name: str) -> None:
        """Compare the state with one that was noted."""
        assert self.graph.state() == self.states[name][0]

    def names(self, *expected: str) -> None:
        """Compare the names of the entities that memories mention."""
        assert self.graph.names() == set(expected)

    def relations(self, *expected: list[str]) -> None:
        """Compare the relations of all memories."""
        assert self.graph.relations() == {tuple(stated) for stated in expected}

    def about(self, name: str, *numbers: int) -> None:
        """Compare the memories that mention an entity."""
        assert self.graph.memories_about(name) == {self.ids[number] for number in numbers}

    def notes(self, *expected: str) -> None:
        """Compare the notes of the last edit of entities."""
        assert self.told == expected

    def log(self, *expected: str) -> None:
        """Compare what the edits did to entities and memories, the newest first."""
        assert [step.after for edit in self.graph.log() for step in edit.steps] == list(expected)

    def groups(self, letters: str) -> None:
        """Compare the first entity of each memory: those with one letter have the same; of "-" nothing is asked."""
        known = [(letter, memory_id) for letter, memory_id in zip(letters, self.ids, strict=True) if letter != "-"]
        for letter, memory_id in known:
            assert self.graph.partners(memory_id) == {other_id for other, other_id in known if other == letter}

    def sound(self) -> None:
        """Compare every row with the rows it depends on."""
        assert self.graph.faults() == []

    def _id(self, name: str) -> str:
        return self.graph.id(name) if name != "unknown" else name

    def _edit(self, edit: EntityEdit, scope: str = "", stage: str = "graph") -> None:
        self.told = self.graph.edit(edit, scope=scope_of(scope), stage=stage).notes

    def _owner(self, owner: int | str) -> str:
        return self.ids[owner] if isinstance(owner, int) else self.said[int(owner[1:])]

    def _decide(self, *decisions: Decision) -> None:
        self._apply("web", decisions=decisions)

    def _apply(self, scope: str, **write: Any) -> AppliedWrite:
        return self.graph.apply(Write(scope_of(scope), Provenance("test"), **write))
