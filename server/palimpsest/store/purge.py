"""Erase for good, inside a transaction: rows, history, full text, vectors, entities, and summaries that may quote.

This is the only place that deletes rows of memories and messages. `Ledger.erase_free_space` removes what the database
still holds of them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update

from palimpsest.core.models import BECAUSE, PAGE, SELF_NAMES, Message, Scope, name_key
from palimpsest.store import contextual_keys, entries, jobs, links, usage, writes
from palimpsest.store import documents as document_queries
from palimpsest.store import messages as message_queries
from palimpsest.store import schema as db
from palimpsest.store import summaries as summary_queries
from palimpsest.store.database import FullText
from palimpsest.store.entries import next_edit_number, reserve_edit_numbers
from palimpsest.store.graph.identity import USER, members_of, told
from palimpsest.store.history import edits_of_entities, hints_of
from palimpsest.store.links import content_words
from palimpsest.store.messages import said_then
from palimpsest.store.rows import among, grouped, owns
from palimpsest.text.names.known_names import bare_name

# Erase what is said of erased pages elsewhere in their documents: in the gists of other pages, and in titles.
#
# A gist names the headings that its page stands under, and a title may be the first of them. Both may be of a page
# that a purge erases.


def erase_from_pages(conn: Connection, message_ids: Sequence[str]) -> set[str]:
    """Erase gists and titles with words that only erased pages explain. Return the ids of the pages concerned.

    A page without a gist is found by its own words, and a document without a title is called by its uri. The rows of
    the erased pages are still there.
    """
    erased = set(message_ids)
    are_erased = (among(db.messages.c.id, message_ids), db.messages.c.role == PAGE)
    changed: set[str] = set()
    for document in set(conn.execute(select(db.messages.c.session_id).where(*are_erased)).scalars()):
        query = select(db.messages.c.id, db.messages.c.content).filter_by(session_id=document, role=PAGE)
        words = {row.id: content_words(row.content) for row in conn.execute(query)}
        gone = frozenset[str]().union(*(words[page] for page in words.keys() & erased))
        left = words.keys() - erased
        told = document_queries.of_pages(conn, sorted(left))
        changed |= {page for page, gist in told.items() if (content_words(gist.text) & gone) - words[page]}
        _erase_title(conn, document, gone - frozenset[str]().union(*(words[page] for page in left)))
    document_queries.erase(conn, sorted(changed))
    return changed


def _erase_title(conn: Connection, document: str, gone: frozenset[str]) -> None:
    is_document = db.conversations.c.session_id == document
    for row in conn.execute(select(db.conversations.c.title, db.conversations.c.external_id).where(is_document)).all():
        if content_words(row.title) & gone:
            conn.execute(update(db.conversations).where(is_document).values(title=row.external_id))


# Erase what purged memories and messages name: mentions, relations, and entities, names and edits that only they
# knew.
#
# An entity is kept as long as anything mentions it or an entity that was merged into it.


def erase_from_graph(
    conn: Connection, user_id: str, memory_ids: Sequence[str], message_ids: Sequence[str]
) -> tuple[str, ...]:
    """Erase what memories and messages of a user name and state, and return the names that nothing has any more."""
    named: dict[str, list[str]] = defaultdict(list)
    for kind, ids in (("memory", memory_ids), ("message", message_ids)):
        of_owners = (db.mentions.c.kind == kind, among(db.mentions.c.owner_id, ids))
        for row in conn.execute(select(db.mentions.c.entity_id, db.mentions.c.name).where(*of_owners)):
            named[row.entity_id].append(row.name)
        conn.execute(delete(db.mentions).where(*of_owners))
    conn.execute(delete(db.relations).where(among(db.relations.c.memory_id, memory_ids)))
    if not named:
        return ()
    known = {row.id: row for row in conn.execute(select(db.entities).where(db.entities.c.user_id == user_id))}
    edits = edits_of_entities(conn, user_id)
    touched = _connected(named.keys() & known.keys(), known, edits)
    erased = {name for names in named.values() for name in names} | _forget(conn, touched, known)
    erased = {name for name in erased if name_key(name) not in SELF_NAMES}
    _forget_edits(conn, touched, [row for row in edits if row.entity_id in touched], erased)
    return tuple(sorted(erased - _still_there(conn, erased, None)))


def _connected(ids: AbstractSet[str], known: Mapping[str, Row[Any]], edits: Sequence[Row[Any]]) -> set[str]:
    """Return entities with all that were ever merged with them or split from them, directly or not."""
    linked: dict[str, set[str]] = defaultdict(set)
    pairs = [(row.id, row.merged_into) for row in known.values() if row.merged_into is not None]
    pairs += [(row.entity_id, other) for row in edits for other in told(row) & known.keys()]
    for one, other in pairs:
        linked[one].add(other)
        linked[other].add(one)
    connected, new = set(ids), set(ids)
    while new:
        new = {other for one in new for other in linked[one]} - connected
        connected |= new
    return connected & known.keys()


def _forget(conn: Connection, touched: AbstractSet[str], known: Mapping[str, Row[Any]]) -> set[str]:
    """Erase entities that nothing mentions and aliases that no mention has, and return the names that they had."""
    erased: set[str] = set()
    for entity_id in sorted(touched):
        entity, is_of = known[entity_id], db.entity_aliases.c.entity_id == entity_id
        aliases = conn.execute(select(db.entity_aliases).where(is_of).order_by(db.entity_aliases.c.key)).all()
        is_in_group = among(db.mentions.c.entity_id, members_of(conn, [entity_id]))
        of_group = conn.execute(select(db.mentions).where(is_in_group).order_by(db.mentions.c.seq)).all()
        if not of_group:
            erased |= {entity.name, *(alias.name for alias in aliases)}
            conn.execute(delete(db.entity_aliases).where(is_of))
            conn.execute(delete(db.entities).where(db.entities.c.id == entity_id))
            continue
        of_group = sorted(of_group, key=lambda mention: mention.entity_id != entity_id)  # its own names come first
        own = [(mention.key, mention.name) for mention in of_group if mention.entity_id == entity_id]
        own += [(name_key(bare), bare) for _, name in own if (bare := bare_name(name))]  # "Tom" of "Tom (plumber)"
        erased |= _forget_aliases(conn, aliases, grouped(own))
        given = [alias.name for alias in aliases if alias.given]
        stated = [*given, *([USER] if entity.is_user else (mention.name for mention in of_group))]
        if entity.name not in stated:
            erased.add(entity.name)
            conn.execute(update(db.entities).where(db.entities.c.id == entity_id).values(name=stated[0]))
    return erased


def _forget_aliases(conn: Connection, aliases: Sequence[Row[Any]], names: Mapping[str, list[str]]) -> set[str]:
    """Erase the aliases that nobody gave and no mention has, and spellings of the others that no mention has."""
    erased: set[str] = set()
    for alias in aliases:
        if alias.given or alias.name in names.get(alias.key, ()):
            continue
        erased.add(alias.name)
        is_it = (db.entity_aliases.c.entity_id == alias.entity_id, db.entity_aliases.c.key == alias.key)
        if alias.key in names:
            conn.execute(update(db.entity_aliases).where(*is_it).values(name=names[alias.key][0]))
        else:
            conn.execute(delete(db.entity_aliases).where(*is_it))
    return erased


def _still_there(conn: Connection, names: AbstractSet[str], ids: AbstractSet[str] | None) -> set[str]:
    """Return which of these names something has: these entities, or with None any."""
    present: set[str] = set()
    for name_column, id_column in (
        (db.entities.c.name, db.entities.c.id),
        (db.entity_aliases.c.name, db.entity_aliases.c.entity_id),
        (db.mentions.c.name, db.mentions.c.entity_id),
    ):
        is_read = among(name_column, names) if ids is None else among(id_column, ids)
        present.update(conn.execute(select(name_column).distinct().where(is_read)).scalars())
    return present & names


def _forget_edits(conn: Connection, touched: AbstractSet[str], edits: Sequence[Row[Any]], erased: set[str]) -> None:
    """Erase the edits that tell of an erased entity or name. They cannot be undone any more."""
    present = set(conn.execute(select(db.entities.c.id).where(among(db.entities.c.id, touched))).scalars())
    names = erased - _still_there(conn, erased, touched)
    gone = (touched - present) | {form for name in names for form in (name.casefold(), name_key(name))}
    for row in edits:
        texts = [text.casefold() for text in told(row)]
        if any(name in text for name in gone for text in texts):
            conn.execute(delete(db.entity_history).where(db.entity_history.c.seq == row.seq))


# The key in `meta` that exists from the erasure of rows until the database was rewritten without them.
ROWS_ON_DISK = "unscrubbed"


@dataclass(frozen=True, slots=True)
class PurgeSelection:
    """What a purge erases: ids, and every text that these memories and messages ever had.

    `names` are those of entities that nothing has any more, and hints of several words: one word may stand anywhere.
    They are known when the rows are erased.
    """

    memory_ids: tuple[str, ...]
    message_ids: tuple[str, ...]
    texts: tuple[str, ...]
    names: tuple[str, ...] = ()


def purge_selection(conn: Connection, scope: Scope, owner_ids: Sequence[str] | None) -> PurgeSelection:
    """Return what a purge would erase: the given memories and messages or, with None, a whole scope.

    The messages that a memory was learned from are erased with it, because they say the same in other words. Raises
    InputError for an unknown id.
    """
    if owner_ids is None:
        memory_ids = list(conn.execute(select(db.memories.c.id).where(owns(db.memories, scope))).scalars())
        message_ids = list(conn.execute(select(db.messages.c.id).where(owns(db.messages, scope))).scalars())
    else:
        owners = [entries.find(conn, scope, owner_id) for owner_id in owner_ids]
        memory_ids = list(dict.fromkeys(owner.id for owner in owners if not isinstance(owner, Message)))
        message_ids = [owner.id for owner in owners if isinstance(owner, Message)]
    sources = message_queries.sources_of(conn, memory_ids)
    message_ids += [message.id for messages_of_memory in sources.values() for message in messages_of_memory]
    message_ids = list(dict.fromkeys(message_ids))
    return PurgeSelection(tuple(memory_ids), tuple(message_ids), _texts(conn, scope, memory_ids, message_ids))


def purge(
    conn: Connection, full_text: FullText, scope: Scope, owner_ids: Sequence[str] | None, now: datetime
) -> PurgeSelection:
    """Erase memories and messages, or a whole scope, and return what was erased."""
    selection = purge_selection(conn, scope, owner_ids)
    newest_edit = next_edit_number(conn) - 1
    hints = hints_of(conn, selection.memory_ids)
    names = erase_from_graph(conn, scope.user_id, selection.memory_ids, selection.message_ids)
    _erase_causes(conn, scope.user_id, selection.texts)
    touched = entries.TouchedEntries()
    rewritten = links.erase(conn, scope.user_id, selection.memory_ids, selection.texts)
    touched.annotated |= rewritten
    of_rewritten = (db.vectors.c.kind == "memory", among(db.vectors.c.owner_id, sorted(rewritten)))
    for entry in conn.execute(select(db.vectors).where(*of_rewritten)).all():  # its vector was also that of its context
        touched.move(entry.user_id, entry.embedder, entry.key, entry.vector, -1)
    conn.execute(update(db.vectors).where(*of_rewritten).values(embedder="", partial=False, vector=None, key=None))
    touched.messages |= erase_from_pages(conn, selection.message_ids)
    # The keys of the entries whose context the erased rows were are rebuilt without them.
    touched.messages |= contextual_keys.neighbour_ids(conn, selection.message_ids) - {*selection.message_ids}
    citing = select(db.memory_sources.c.memory_id).where(among(db.memory_sources.c.message_id, selection.message_ids))
    touched.memories |= {*conn.execute(citing).scalars()} - {*selection.memory_ids}
    for kind, ids in (("memory", selection.memory_ids), ("message", selection.message_ids)):
        entries_of = select(db.vectors).where(db.vectors.c.kind == kind, among(db.vectors.c.owner_id, ids))
        for entry in conn.execute(entries_of).all():
            touched.move(entry.user_id, entry.embedder, entry.key, entry.vector, -1)
            full_text.remove(conn, [entry.seq])
            conn.execute(delete(db.vectors).where(db.vectors.c.seq == entry.seq))
            conn.execute(insert(db.index_log).values(unit_seq=entry.seq, user_id=entry.user_id, op="delete", at=now))
    owners = (*selection.memory_ids, *selection.message_ids)
    if kept := [*dict.fromkeys((*_sayings(conn, selection.message_ids), *owners))]:
        conn.execute(delete(db.purged).where(among(db.purged.c.owner_id, kept)))
        conn.execute(insert(db.purged), [{"owner_id": owner_id} for owner_id in kept])
    is_erased = among(db.index_log.c.memory_id, selection.memory_ids)
    conn.execute(update(db.index_log).where(is_erased).values(memory_id=None))
    usage.erase_uses(conn, selection.memory_ids)
    document_queries.erase(conn, selection.message_ids)
    for column, ids in (
        (db.memory_sources.c.memory_id, selection.memory_ids),
        (db.memory_sources.c.message_id, selection.message_ids),
        (db.history.c.memory_id, selection.memory_ids),
        (db.message_history.c.message_id, selection.message_ids),
        (db.memories.c.id, selection.memory_ids),
        (db.messages.c.id, selection.message_ids),
    ):
        conn.execute(delete(column.table).where(among(column, ids)))
    writes.erase_empty(conn)
    summary_queries.erase_of(conn, summary_queries.resting_on(conn, scope.user_id, owners))
    jobs.erase(conn, scope.user_id, owners)
    usage.erase_recalls(conn, scope.user_id, owners, (*selection.texts, *hints))
    if owner_ids is None:
        usage.erase_of_scope(conn, scope)
    contextual_keys.index(conn, full_text, touched, now)
    reserve_edit_numbers(conn, newest_edit)  # those of erased edits are not used again
    entries.begin_epoch(conn, entries.epoch(conn))
    entries.set_meta(conn, ROWS_ON_DISK, 1)
    return replace(selection, names=(*names, *(hint for hint in hints if " " in hint)))


def _erase_causes(conn: Connection, user_id: str, texts: Sequence[str]) -> None:
    """Erase the causes of a user's memories, in all versions, that repeat a text which is erased."""
    of_user = select(db.memories.c.id).where(db.memories.c.user_id == user_id)
    for table, owner, column, path in (
        (db.memories, db.memories.c.id, db.memories.c.metadata, (BECAUSE,)),
        (db.history, db.history.c.memory_id, db.history.c.state, ("metadata", BECAUSE)),
    ):
        told = select(table.c.seq, column).where(owner.in_(of_user), among(column[path].as_string(), texts))
        for seq, values in conn.execute(told).all():
            holder = values if column is db.memories.c.metadata else values["metadata"]
            del holder[BECAUSE]
            conn.execute(update(table).where(table.c.seq == seq).values({column: values}))


def plans_waited_for(conn: Connection, scope: Scope, owner_ids: Sequence[str] | None) -> list[str]:
    """Return the ids of plans that a purge would erase and that are to take the place of what goes on until then."""
    erased = purge_selection(conn, scope, owner_ids).memory_ids
    waiting = (among(db.memories.c.superseded_by, erased), db.memories.c.deleted_at.is_(None))
    return list(conn.execute(select(db.memories.c.superseded_by).where(*waiting).distinct()).scalars())


def has_erased_rows_on_disk(conn: Connection) -> bool:
    """Return whether the database may still hold traces of erased rows: a purge is under way or was interrupted."""
    return entries.meta_value(conn, ROWS_ON_DISK) is not None


def note_free_space_erased(conn: Connection) -> None:
    """Record that the database was rewritten after the last purge."""
    conn.execute(delete(db.meta).where(db.meta.c.key == ROWS_ON_DISK))


def _texts(conn: Connection, scope: Scope, memory_ids: Sequence[str], message_ids: Sequence[str]) -> tuple[str, ...]:
    quoting = summary_queries.resting_on(conn, scope.user_id, (*memory_ids, *message_ids))
    texts: dict[str, None] = {}
    for column, key, ids in (
        (db.memories.c.text, db.memories.c.id, memory_ids),
        (db.history.c.old_memory, db.history.c.memory_id, memory_ids),
        (db.history.c.new_memory, db.history.c.memory_id, memory_ids),
        (db.messages.c.content, db.messages.c.id, message_ids),
        (db.gists.c.text, db.gists.c.message_id, message_ids),
        (db.summaries.c.text, db.summaries.c.id, quoting),
    ):
        texts |= dict.fromkeys(filter(None, conn.execute(select(column).where(among(key, ids))).scalars()))
    return tuple(texts)


def _sayings(conn: Connection, message_ids: Sequence[str]) -> list[str]:
    """Return what is kept of messages of clients, whose transcripts may say the same under other ids."""
    columns = (db.messages.c[name] for name in ("user_id", "external_id", "role", "content_hash", "said_at"))
    query = select(*columns).where(among(db.messages.c.id, message_ids), db.messages.c.external_id != "")
    return list(dict.fromkeys(said_then(*row)[1] for row in conn.execute(query).all()))
