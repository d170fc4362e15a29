"""Read and erase links between memories."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from sqlalchemy import Connection, Row, Text, and_, cast, delete, func, insert, or_, select, union, update

from palimpsest.core.models import LINK, LinkedMemory, Memory, Scope
from palimpsest.store.memories import NEWEST, memories_by_id, read_memories
from palimpsest.store.rows import among, is_living, listed
from palimpsest.store.schema import history, memories, memory_links, purged, vectors
from palimpsest.text.stopwords import without_function_words
from palimpsest.text.tokenizer import search_tokens

# Links between memories, to be read from both ends. `memories.links` says the same of each memory.


def put(conn: Connection, memory: Memory) -> None:
    """Bring the links of a memory into the state of its present version. A deleted memory has none."""
    conn.execute(delete(memory_links).where(memory_links.c.memory_id == memory.id))
    others = {link.memory_id for link in memory.links} if memory.deleted_at is None else set[str]()
    if others:
        conn.execute(insert(memory_links), [{"memory_id": memory.id, "other_id": other} for other in sorted(others)])


def entries_linked_with(conn: Connection, memory_ids: Sequence[str]) -> list[tuple[str, str, int]]:
    """Return what memories are linked with, in either direction: their id, the other's id, and its entry's number.

    A pair is in the list twice if both are asked for. The others may be deleted, or of another scope.
    """
    return [tuple(row) for row in conn.execute(_LINKED, {"ids": memory_ids}).all()]


def without_annotation(conn: Connection, memory_ids: Sequence[str]) -> list[Memory]:
    """Return those of some memories, in order, that are living and were added or edited since they were annotated."""
    newest = select(func.max(history.c.seq)).where(among(history.c.memory_id, memory_ids)).group_by(history.c.memory_id)
    others = select(history.c.memory_id).where(history.c.seq.in_(newest), history.c.stage != LINK)
    living = read_memories(conn, memories.c.id.in_(others), memories.c.deleted_at.is_(None))
    found = {memory.id: memory for memory in living}
    return [found[memory_id] for memory_id in memory_ids if memory_id in found]


def linked_with(conn: Connection, scope: Scope, memory: Memory) -> list[LinkedMemory]:
    """Return the living memories that a memory is linked with, in either direction, and why, the newest first."""
    ids = [other for _, other, _ in entries_linked_with(conn, [memory.id])]
    own = {link.memory_id: link.reason for link in memory.links}
    others = read_memories(conn, among(memories.c.id, ids), is_living(memories, scope), order=NEWEST)
    theirs = {other.id: link.reason for other in others for link in other.links if link.memory_id == memory.id}
    return [LinkedMemory(other, own.get(other.id) or theirs.get(other.id, "")) for other in others]


# Both directions of the links. Each half uses an index.
_ENDS = (memory_links.c.memory_id, memory_links.c.other_id)
_halves = (select(start, end).where(start.in_(listed("ids"))) for start, end in (_ENDS, _ENDS[::-1]))
_start, _end = union(*_halves).subquery().c
_IS_ENTRY = and_(vectors.c.kind == "memory", vectors.c.owner_id == _end)
_LINKED = select(_start, _end, vectors.c.seq).join(vectors, _IS_ENTRY)


# Look after links: erase what a purge takes from others, and follow ids that changed.
#
# What was written about a memory while a model saw another one may quote that one. So a purge takes links to erased
# memories, and every context, reason and tag from the background that may come from them, out of the memories and
# out of their histories. The background may write them again.

# What the background finds out about a memory, and its values as the memory's row or a row of its history has them.
PARTS = ("context", "links", "tags", "keywords")
State: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Erased:
    """What a purge erases: ids, and the words of all their texts. `beside` are memories annotated in the same edits."""

    ids: frozenset[str]
    words: frozenset[str]
    beside: frozenset[str]

    def quotes(self, text: str, own_words: AbstractSet[str]) -> bool:
        """Return whether a text has a word that only the erased texts explain."""
        return not (content_words(text) & self.words) <= own_words


def erase(conn: Connection, user_id: str, memory_ids: Sequence[str], texts: Sequence[str]) -> set[str]:
    """Erase what the memories of a user that stay say of erased ones. Return the ids of those that changed.

    It is called while the rows of the erased memories are still there. `texts` are all that these ever had, and those
    of the messages behind them.
    """
    erased = _erased(conn, memory_ids, texts)
    changed: set[str] = set()
    for row in conn.execute(_annotated(user_id)).all():
        without = partial(_without, erased, is_beside=row.id in erased.beside)
        if row.id not in erased.ids and _rewrite(conn, row, without):
            changed.add(row.id)
    for end in _ENDS:
        conn.execute(delete(memory_links).where(among(end, erased.ids)))
    return changed


def imported(conn: Connection, user_id: str, item: Mapping[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
    """Return a memory of an import with the ids that memories have here, in its links and those of its history.

    `ids` are those by the ids of the file, as far as it was read. What was read before and leads to this memory is led
    to the one that says the same here. Links to purged memories are left out.
    """
    stored = [item.get("links", []), *(version["state"].get("links", []) for version in item["history"])]
    is_linked = among(purged.c.owner_id, {other for pairs in stored for other, _ in pairs})
    gone = set(conn.execute(select(purged.c.owner_id).where(is_linked)).scalars())

    def led(state: Mapping[str, Any]) -> dict[str, Any]:
        kept = [(ids.get(other, other), reason) for other, reason in state.get("links", []) if other not in gone]
        return {**state, "context": state.get("context", ""), "links": _each_once(kept)}

    if ids[item["id"]] != item["id"]:
        _lead_to(conn, user_id, item["id"], ids[item["id"]])
    past = [{**version, "state": led(version["state"])} for version in item["history"]]
    return {**led(item), "history": past}


def _lead_to(conn: Connection, user_id: str, old_id: str, new_id: str) -> None:
    """Let links lead to another memory, also in the histories."""

    def led(state: State, _text: str, _new: AbstractSet[str]) -> State:
        kept = [(new_id if other == old_id else other, reason) for other, reason in state["links"]]
        return {**state, "links": _each_once(kept)}

    linking = select(memory_links.c.memory_id).where(memory_links.c.other_id == old_id)
    is_linking = (memories.c.user_id == user_id, memories.c.id.in_(linking))
    for row in conn.execute(select(memories).where(*is_linking).order_by(memories.c.id)).all():
        _rewrite(conn, row, led)


def _each_once(pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    return [[other, reason] for other, reason in dict(pairs).items()]


def _erased(conn: Connection, memory_ids: Sequence[str], texts: Sequence[str]) -> _Erased:
    edits = select(history.c.change).where(among(history.c.memory_id, memory_ids), history.c.stage == LINK)
    in_edits = (history.c.change.in_(edits), history.c.stage == LINK)
    beside = set(conn.execute(select(history.c.memory_id).where(*in_edits)).scalars())
    for one, other in (_ENDS, _ENDS[::-1]):
        beside.update(conn.execute(select(one).where(among(other, memory_ids))).scalars())
    return _Erased(frozenset(memory_ids), content_words(" ".join(texts)), frozenset(beside))


def _annotated(user_id: str) -> Any:
    """Select the memories of a user that the background annotated at some time, or that have a context or links."""
    by_edit = select(history.c.memory_id).where(history.c.stage == LINK)
    has_any = or_(memories.c.id.in_(by_edit), memories.c.context != "", cast(memories.c.links, Text) != "[]")
    return select(memories).where(memories.c.user_id == user_id, has_any)


def _rewrite(conn: Connection, row: Row[Any], change: Callable[[State, str, AbstractSet[str]], State]) -> bool:
    """Change the annotations of a memory and of its history, and return whether the memory itself changed.

    `change` gets a state, the text it belongs to, and the tags and hints that came from the background.
    """
    from_background: set[str] = set()
    before: set[str] = set()
    for version in conn.execute(select(history).where(history.c.memory_id == row.id).order_by(history.c.seq)).all():
        state: dict[str, Any] = {"context": "", "links": [], **version.state}
        labels = {*state["tags"], *state["keywords"]}
        if version.stage == LINK:
            from_background |= labels - before
        before = labels
        old = {name: state[name] for name in PARTS}
        if (new := change(old, version.new_memory or version.old_memory or "", from_background)) != old:
            conn.execute(update(history).where(history.c.seq == version.seq).values(state={**version.state, **new}))
    old = {name: getattr(row, name) for name in PARTS}
    if (new := change(old, row.text, from_background)) == old:
        return False
    conn.execute(update(memories).where(memories.c.id == row.id).values(**new))
    put(conn, memories_by_id(conn, [row.id])[row.id])
    return True


def _without(erased: _Erased, state: State, text: str, from_background: AbstractSet[str], *, is_beside: bool) -> State:
    """Return the annotations of a memory without what may come from erased ones."""
    own = content_words(text)
    is_from_them = is_beside or erased.quotes(state["context"], own)
    kept = [
        [other, "" if erased.quotes(reason, own) else reason]
        for other, reason in state["links"]
        if other not in erased.ids
    ]
    labels = {
        name: [label for label in state[name] if label not in from_background or not erased.quotes(label, own)]
        for name in ("tags", "keywords")
    }
    return {"context": "" if is_from_them else state["context"], "links": kept, **labels}


def content_words(text: str) -> frozenset[str]:
    """Return the words of a text that say something, as the full text has them."""
    return frozenset(without_function_words(search_tokens(text)))
