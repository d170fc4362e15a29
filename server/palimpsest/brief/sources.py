"""Read from the ledger what a session begins with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo

from sqlalchemy import Connection

from palimpsest.brief.contradictions import without_contradicted
from palimpsest.brief.lines import plain
from palimpsest.brief.telling import in_project_order, most_telling
from palimpsest.core.errors import FullTextError
from palimpsest.core.models import EXPIRES_AT, Memory, Message, Scope, Summary
from palimpsest.learn.views.portrait.ranks import MUST, Rank, rank_of
from palimpsest.learn.views.portrait.signs import SAFETY, WHO
from palimpsest.store.database.full_text import MAX_QUERY_TOKENS
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import entries as entry_queries
from palimpsest.store.queries import memories as memory_queries
from palimpsest.store.queries import messages as message_queries
from palimpsest.store.queries import summaries as summary_queries
from palimpsest.store.views.pinned import is_pinned, is_unconfirmed, pinned_memories
from palimpsest.text.secrets.redaction import says_only_secrets
from palimpsest.text.standing import says_something
from palimpsest.text.tokenizer import search_tokens

KINDS = ("profile", "overall")
"""Which summaries say who the user is: the first that is current is shown."""

MAX_GLOBAL = 500
"""Among how many of the newest global memories the most telling are looked for. Set by hand: a few milliseconds."""

MAX_OF_PROJECT = 50
"""How many memories of a project are read: more than fit."""

MAX_BY_WORDS = 200
"""How many entries are looked at that have some of the words of safety and of identity, however old. Set by hand."""

_TOKENS = frozenset(
    token
    for signs in (SAFETY, WHO)
    for word in (*signs.words, *signs.unspaced)
    for token in search_tokens(word)
    if len(token) > 1
)
"""How the full text has the words of safety and of who somebody is."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What is known at the start of a session. No memory is in two of the groups.

    `first` never yields to anything: the user's name, what somebody's safety depends on, and who the user is. `pinned`
    is the rest of the block of the user and of the project. `help` is how the user wants to be helped. `rules` are the
    rules and commands of the project and `of_project` its other memories, each with the newest first;
    `telling` are other memories of the user, the most telling first.
    `profile` are the lines of the written profile of the user, or of the summary; none if there is neither or both say
    what no longer holds. `last_words` are the last exchange of the last conversation that
    says something: what the user said, and the answer if there is one.
    """

    first: tuple[Memory, ...] = ()
    pinned: tuple[Memory, ...] = ()
    help: tuple[Memory, ...] = ()
    profile: tuple[str, ...] = ()
    telling: tuple[Memory, ...] = ()
    rules: tuple[Memory, ...] = ()
    of_project: tuple[Memory, ...] = ()
    last_words: tuple[Message, ...] = ()

    def in_zone(self, zone: tzinfo | None) -> Sources:
        """Return the same with times of a zone."""
        groups = ("first", "pinned", "help", "telling", "rules", "of_project", "last_words")
        return replace(self, **{name: tuple(each.in_zone(zone) for each in getattr(self, name)) for name in groups})


def read_sources(ledger: Ledger, conn: Connection, scope: Scope, now: datetime, embedder: str) -> Sources:
    """Return what is known at the start of a session in a scope. `embedder` is the fingerprint of the embedder.

    Memories that expire are left out, because what is rendered may be read at any time later; so are those that a newer
    one contradicts, those whose text was a secret, and those that a page, a file or a tool told and nobody confirmed.
    Times are those of the zone of `now`.
    """
    user_scope = scope.general
    name = memory_queries.name_of_user(conn, scope)
    newest = [memory for _, memory in memory_queries.list_memories(conn, user_scope, MAX_GLOBAL)]
    of_project = memory_queries.newest_of_project(conn, scope, MAX_OF_PROJECT) if scope.project else []
    naming = memory_queries.memories_telling_name(conn, scope)[:1]
    pinned = pinned_memories(conn, scope)
    known = _shown(pinned, _never_yielding(ledger, conn, scope), naming, newest, of_project)
    times_said = Counter(owner for owner, _ in memory_queries.messages_of(conn, [memory.id for memory in known]))
    ranked = most_telling(known, times_said, name, now)
    contradicted = without_contradicted(conn, embedder, user_scope, [*pinned, *ranked, *of_project], now)
    held = [memory for memory in ranked if memory.id not in contradicted]
    ranks = {memory.id: rank_of(memory, name) for memory in held}
    first = [memory for memory in held if ranks[memory.id] <= (Rank.SAFETY if _is_set_apart(memory) else MUST)]
    rest = {memory.id: memory for memory in held}
    for memory in first:
        del rest[memory.id]
    own = [memory for memory in of_project if memory.id in rest and not is_pinned(memory.metadata)]
    rules, others = in_project_order(own)
    of_user = [memory for memory in rest.values() if not _is_set_apart(memory)]
    profile = _profile(conn, user_scope, contradicted)
    helpful = [] if profile else [memory for memory in of_user if ranks[memory.id] == Rank.HELP]
    return Sources(
        first=tuple(sorted(first, key=lambda memory: ranks[memory.id] is not Rank.NAME)),
        pinned=tuple(memory for memory in pinned if memory.id in rest),
        help=tuple(helpful),
        profile=profile,
        telling=tuple(of_user[len(helpful) :]),
        rules=tuple(rules),
        of_project=tuple(others),
        last_words=_last_exchange(message_queries.last_conversation(conn, scope)),
    ).in_zone(now.tzinfo)


def _last_exchange(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return what the user said last that says something, with the last answer to it."""
    last: dict[str, Message] = {}
    is_telling = False
    for message in messages:
        if message.role == "user":
            is_telling = says_something(message.content) and not says_only_secrets(message.content)
            last = {"user": message} if is_telling else last
        elif message.role == "assistant" and is_telling:
            last["assistant"] = message
    return tuple(last.values())


def _is_set_apart(memory: Memory) -> bool:
    """Return whether a memory has a place of its own: in the pinned block, or among those of the project."""
    return is_pinned(memory.metadata) or bool(memory.scope.project)


def _shown(*groups: Iterable[Memory]) -> list[Memory]:
    """Return memories, each once, that hold for long and say something."""
    memories = {memory.id: memory for group in groups for memory in group}
    return [memory for memory in memories.values() if not _is_left_out(memory)]


def _is_left_out(memory: Memory) -> bool:
    return EXPIRES_AT in memory.metadata or is_unconfirmed(memory.metadata) or says_only_secrets(memory.text)


def _never_yielding(ledger: Ledger, conn: Connection, scope: Scope) -> list[Memory]:
    """Return memories with a word of safety or of identity, however old they are. A damaged full text finds none."""
    try:
        known = list(ledger.full_text.document_counts(conn, scope.user_id, _TOKENS))
        words = (known[start : start + MAX_QUERY_TOKENS] for start in range(0, len(known), MAX_QUERY_TOKENS))
        seqs = {seq for some in words for seq in ledger.full_text.search(conn, scope, some, MAX_BY_WORDS)}
    except FullTextError:
        return []
    return entry_queries.memories_at(conn, scope, seqs)


def _profile(conn: Connection, scope: Scope, contradicted: frozenset[str]) -> tuple[str, ...]:
    """Return the lines of what was written of the user, unless it rests on what is contradicted or not confirmed."""
    written = (summary_queries.current_summary(conn, scope, kind) for kind in KINDS)
    text = next((summary.text for summary in written if summary and _holds(conn, summary, contradicted)), "")
    return tuple(line for line in map(plain, text.splitlines()) if line)


def _holds(conn: Connection, summary: Summary, contradicted: frozenset[str]) -> bool:
    behind = memory_queries.memories_by_id(conn, summary_queries.memories_behind(conn, summary.scope, summary.kind))
    return contradicted.isdisjoint(behind) and not any(is_unconfirmed(memory.metadata) for memory in behind.values())
