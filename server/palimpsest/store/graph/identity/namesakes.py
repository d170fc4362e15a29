"""Choose among entities of one name: by what a memory says of the name, by who is with it, by what it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from sqlalchemy import bindparam, select

from palimpsest.core.entities import NamedEntity
from palimpsest.core.models import Memory
from palimpsest.core.protocols import Vector
from palimpsest.store.graph.groups import members_of, roots_of
from palimpsest.store.graph.identity.candidates import Candidate, mentioned
from palimpsest.store.graph.identity.history import GraphWrite
from palimpsest.store.graph.tables import mentions
from palimpsest.store.mapping import Query, is_seen, listed
from palimpsest.store.queries.memories import memories_by_id
from palimpsest.store.queries.vectors import own_vectors
from palimpsest.text.names.namesakes import describing, qualifier, says_another
from palimpsest.text.shorten import shorten

NEWEST = 20
"""How many memories of an entity are compared with a new one. What is known lately says most. Set by hand."""

MAX_TOLD, MAX_QUOTED = 4, 60
"""How many of a name a note tells apart, and how much it quotes of what is known of each."""

CLEARLY_NEARER = 0.8
"""The nearest is clear if its distance is at most this part of the second one's: the ratio test of Lowe (2004)."""


def choose(
    write: GraphWrite, memory: Memory, entity: NamedEntity, candidates: Sequence[Candidate], others: Iterable[str]
) -> Candidate | None:
    """Return which entity of a name a memory means, or None if it is a new one or that is not clear.

    `others` are the ids of the other entities that the memory mentions.
    """
    if apart := qualifier(memory.text, entity.name):
        return _only(_called(write, entity, apart, candidates))
    if len(candidates) > 1:
        candidates = mentioned(write.conn, candidates) or candidates
    if len(candidates) == 1:
        return None if says_another(memory.text, entity.name) else candidates[0]
    return (
        _described(write, memory, entity, candidates)
        or _with_others(write, candidates, others)
        or _nearest(write, memory, candidates)
    )


def is_unclear(text: str, name: str, candidates: Sequence[Candidate]) -> bool:
    """Return whether a text may mean any of several of a name, and does not say that it means another one."""
    return len(candidates) > 1 and not qualifier(text, name) and not says_another(text, name)


def unclear(write: GraphWrite, memory: Memory, entity: NamedEntity, candidates: Sequence[Candidate]) -> str:
    """Return the note on a name that is not attached to any of the entities that have it.

    Only what the scope of the write sees is quoted of them.
    """
    newest = _newest(write, candidates)
    texts = memories_by_id(write.conn, [memory_id for ids in newest.values() for memory_id in ids])

    def shown(candidate: Candidate) -> str:
        quoted = next(
            (
                known
                for known in (texts[one] for one in newest[candidate.root.id] if one in texts)
                if known.deleted_at is None and is_seen(write.scope, known.scope)
            ),
            None,
        )
        if quoted is None:
            return f"{entity.name} [{candidate.root.id[:8]}]"
        return f'{candidate.root.name} [{candidate.root.id[:8]}] ("{shorten(quoted.text, MAX_QUOTED)}")'

    known = " or ".join(shown(candidate) for candidate in candidates[:MAX_TOLD])
    return (
        f"{entity.name} is not attached to anybody, because it may be {known}; say in the text of [{memory.id[:8]}] "
        f'who is meant, as in "my cousin {entity.name}"'
    )


def _only(candidates: Sequence[Candidate]) -> Candidate | None:
    return candidates[0] if len(candidates) == 1 else None


def _described(
    write: GraphWrite, memory: Memory, entity: NamedEntity, candidates: Sequence[Candidate]
) -> Candidate | None:
    """Return the candidate that is described as a memory describes it, such as "cousin", if it is one alone."""
    said = describing(memory.text, entity.name)
    if not said:
        return None
    newest = _newest(write, candidates)
    texts = memories_by_id(write.conn, [memory_id for ids in newest.values() for memory_id in ids])

    def known(candidate: Candidate) -> set[str]:
        told = (texts[one].text for one in newest[candidate.root.id] if one in texts)
        return {word for text in (candidate.root.name, *told) for word in describing(text, entity.name)}

    return _only([candidate for candidate in candidates if said & known(candidate)])


def _called(write: GraphWrite, entity: NamedEntity, apart: str, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates that a memory tells apart by the same words."""
    newest = _newest(write, candidates)
    texts = memories_by_id(write.conn, [memory_id for ids in newest.values() for memory_id in ids])
    return [
        candidate
        for candidate in candidates
        if any(
            qualifier(texts[memory_id].text, entity.name) == apart
            for memory_id in newest[candidate.root.id]
            if memory_id in texts
        )
    ]


def _with_others(write: GraphWrite, candidates: Sequence[Candidate], others: Iterable[str]) -> Candidate | None:
    """Return the candidate that memories mention together with most of the other entities, if it is one alone."""
    known = roots_of(write.conn, others)
    context = members_of(write.conn, {root.id for root in known.values() if not root.is_user})  # the user is with all
    members = members_of(write.conn, [candidate.root.id for candidate in candidates])
    if not context:
        return None
    together = write.conn.execute(_TOGETHER, {"ids": list(members), "others": list(context)})
    pairs = {(members[row.one], context[row.other]) for row in together}
    counts = {candidate.root.id: sum(one == candidate.root.id for one, _ in pairs) for candidate in candidates}
    most = max(counts.values())
    return _only([candidate for candidate in candidates if most and counts[candidate.root.id] == most])


def _nearest(write: GraphWrite, memory: Memory, candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the candidate whose memories are clearly nearer to the text than those of all others, if all are known."""
    vector = write.vectors.get(memory.text)
    if vector is None:
        return None
    newest = _newest(write, candidates)
    stored = own_vectors(write.conn, write.embedder, "memory", [one for ids in newest.values() for one in ids])
    means = [[stored[one] for one in newest[candidate.root.id] if one in stored] for candidate in candidates]
    if not all(means):
        return None
    distances = [1 - _cosine(vector, np.mean(of_candidate, axis=0)) for of_candidate in means]
    first, second = np.argsort(distances)[:2]
    return candidates[int(first)] if distances[first] <= CLEARLY_NEARER * distances[second] else None


def _cosine(one: Vector, other: Vector) -> float:
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / lengths if lengths else 0.0


def _newest(write: GraphWrite, candidates: Sequence[Candidate]) -> Mapping[str, list[str]]:
    """Return the newest memories that mention each candidate, by the id of its root."""
    newest: dict[str, list[str]] = {}
    for candidate in candidates:
        members = list(members_of(write.conn, [candidate.root.id]))
        ids = write.conn.execute(_NEWEST, {"ids": members, "limit": NEWEST}).scalars()
        newest[candidate.root.id] = list(dict.fromkeys(ids))
    return newest


_NEWEST: Query = (
    select(mentions.c.owner_id)
    .where(mentions.c.entity_id.in_(listed("ids")), mentions.c.kind == "memory")
    .order_by(mentions.c.seq.desc())
    .limit(bindparam("limit"))
)

_with = mentions.alias()
_TOGETHER: Query = (
    select(mentions.c.entity_id.label("one"), _with.c.entity_id.label("other"))
    .join(_with, (_with.c.kind == mentions.c.kind) & (_with.c.owner_id == mentions.c.owner_id))
    .where(mentions.c.entity_id.in_(listed("ids")), _with.c.entity_id.in_(listed("others")))
    .distinct()
)
