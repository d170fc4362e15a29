"""Memories and messages as hits: the filters on them, the passage a page is shown by, and what repeats another."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from itertools import accumulate, pairwise
from typing import Any, Self

from sqlalchemy import Connection

from palimpsest.core.clock import parse_span, span_of
from palimpsest.core.errors import FullTextError
from palimpsest.core.filters import ENDED, FADED, MESSAGES, Bounds, Filter, plain
from palimpsest.core.models import PAGE, Candidate, DocumentPage, Hit, Link, Memory, Message, Scope
from palimpsest.core.threads import end_if_cancelled
from palimpsest.store import documents, history, links
from palimpsest.store import entries as entry_queries
from palimpsest.store import memories as memory_queries
from palimpsest.store import messages as message_queries
from palimpsest.store.database import FullText
from palimpsest.store.graph.entities import owners_mentioning
from palimpsest.store.messages import MessageBounds
from palimpsest.text.display import ELLIPSIS, shorten_to_tokens, visible
from palimpsest.text.tokenizer import count_tokens, query_tokens, search_tokens

# Memories and messages as hits: what a search or a listing returns, and what a filter sees.

# The reason of a hit that another hit led to.
LINKED = "linked"

# About what the id, the date and the speaker of a hit's line cost, in tokens.
LINE_TOKENS = 14

# The same for a hit that is cut, whose line ends with the length of the whole text.
CUT_LINE_TOKENS = LINE_TOKENS + 6

# About what the address of a page costs, which the line of a cut page ends with.
ADDRESS_TOKENS = 7

# How much of the best hit is shown at least. With its line it is 50 tokens, the smallest budget of a search.
MIN_BEST_TOKENS = 30

# How much of another hit is shown at least, or it is left out: about three sentences, which are enough to see what a
# text is about; less would take room from shorter hits and say little.
MIN_CUT_TOKENS = 60


def memory_hit(memory: Memory, sources: Sequence[Message] = ()) -> Hit:
    """Return a memory as a hit without a score; `sources` are the messages it was learned from."""
    return Hit(
        id=memory.id,
        kind="memory",
        text=memory.text,
        score=0.0,
        at=memory.at,
        at_precision=memory.at_precision,
        created_at=memory.created_at,
        updated_at=memory.updated_at,
        sources=tuple(source.source for source in sources),
        message_ids=tuple(source.id for source in sources),
        role=memory.role,
        name=memory.actor_id,
        tags=memory.tags,
        metadata=memory.metadata,
        project=memory.scope.project,
        is_event_date=memory.is_event_date,
        since=memory.since,
        until=memory.until,
        superseded_by=memory.superseded_by or "",
        is_living=memory.deleted_at is None,
        is_forgotten=memory.is_forgotten,
        was_dropped=memory.was_dropped,
    )


def message_hit(message: Message, document: DocumentPage | None = None) -> Hit:
    """Return a message as a hit without a score; `document` says which page it is, if it is one."""
    return Hit(
        id=message.id,
        kind="message",
        text=message.content,
        score=0.0,
        at=message.said_at,
        created_at=message.created_at,
        updated_at=message.created_at,
        sources=(message.source,),
        message_ids=(message.id,),
        role=message.role,
        name=message.name,
        project=message.scope.project,
        session=message.session_id,
        document=document,
    )


def memory_hits(conn: Connection, memories: Sequence[Memory]) -> list[Hit]:
    """Return memories as hits with the messages they were learned from, in their order."""
    sources = message_queries.sources_of(conn, [memory.id for memory in memories])
    return [memory_hit(memory, sources.get(memory.id, ())) for memory in memories]


def message_hits(conn: Connection, messages: Sequence[Message]) -> list[Hit]:
    """Return messages as hits, in their order. Pages of documents take one more query."""
    pages = [message.id for message in messages if message.role == PAGE]
    places = documents.places(conn, pages) if pages else {}
    return [message_hit(message, places.get(message.id)) for message in messages]


def hits_of(conn: Connection, candidates: Sequence[Candidate]) -> dict[int, Hit]:
    """Return the hits of candidates by entry number; those deleted, closed or erased meanwhile are left out."""
    memory_ids = [candidate.owner_id for candidate in candidates if candidate.kind == "memory"]
    message_ids = [candidate.owner_id for candidate in candidates if candidate.kind == "message"]
    memories = memory_queries.memories_by_id(conn, memory_ids).values()
    messages = message_queries.messages_by_id(conn, message_ids).values()
    closed = {candidate.owner_id for candidate in candidates if candidate.is_closed}

    def is_closed(memory: Memory) -> bool:
        return memory.id in closed and not memory.is_forgotten and memory.valid_until is not None

    living = [
        *memory_hits(conn, [memory for memory in memories if memory.deleted_at is None or is_closed(memory)]),
        *message_hits(conn, [message for message in messages if message.deleted_at is None]),
    ]
    hits = {hit.id: hit for hit in living}
    return {candidate.seq: hits[candidate.owner_id] for candidate in candidates if candidate.owner_id in hits}


def with_connections(conn: Connection, scope: Scope, hits: Sequence[Hit], words: AbstractSet[str]) -> list[Hit]:
    """Return the hits with the links and contexts that they were found by.

    That is a link to a hit above it, and a context that has `words` of the query which the text has not.
    """
    above: set[str] = set()
    memories = memory_queries.memories_by_id(conn, [hit.id for hit in hits if hit.kind == "memory"])
    found: list[Hit] = []
    for hit in hits:
        memory, linked = memories.get(hit.id), tuple[Link, ...]()
        if memory is not None and LINKED in hit.why:
            others = links.linked_with(conn, scope, memory)
            linked = tuple(Link(other.memory.id, other.reason) for other in others if other.memory.id in above)
        by_context = memory is not None and words & set(search_tokens(memory.context)) - set(search_tokens(hit.text))
        context = memory.context if memory is not None and (linked or by_context) else ""
        found.append(replace(hit, context=context, linked=linked))
        above.add(hit.id)
    return found


def hits_at(conn: Connection, scope: Scope, instant: datetime) -> list[Hit]:
    """Return everything that was believed at an instant: the memories, then the messages, as they were then.

    What somebody deleted since is left out, and so are messages that say it.
    """
    messages = message_queries.without_forgotten(conn, history.messages_at(conn, scope, instant))
    return [*memory_hits(conn, history.memories_at(conn, scope, instant)), *message_hits(conn, messages)]


def within_budget(hits: Sequence[Hit], max_tokens: int) -> list[Hit]:
    """Return the hits that fit `max_tokens` together; a hit that is too long is cut, or left out if too little fits.

    The first hit is always there. A hit that is cut leaves the hits below it the room they need, up to half of what is
    left.
    """
    kept: list[Hit] = []
    left = max_tokens
    needed = sum(map(hit_tokens, hits))
    for hit in hits:
        cost = hit_tokens(hit)
        needed -= cost  # now what the hits below need
        if cost > left:
            least = (MIN_CUT_TOKENS if kept else MIN_BEST_TOKENS) + CUT_LINE_TOKENS
            if kept and left < least:
                continue
            share = max(left // 2, left - needed)
            hit = cut_to_fit(hit, max(share, least))  # noqa: PLW2901 - the rest of the text is not used
        kept.append(hit)
        left -= hit_tokens(hit)
    return kept


def cut_to_fit(hit: Hit, max_tokens: int) -> Hit:
    """Return a hit that costs at most `max_tokens`, with the beginning of its text only if the whole is too long.

    At least `MIN_BEST_TOKENS` of the text are kept.
    """
    if hit_tokens(hit) <= max_tokens:
        return hit
    text = shorten_to_tokens(hit.text, max(max_tokens - CUT_LINE_TOKENS - _place_tokens(hit), MIN_BEST_TOKENS))
    return hit if text == hit.text else replace(hit, text=text, length=hit.length or len(hit.text))


def hit_tokens(hit: Hit) -> int:
    """Return what one hit costs in a reply, in tokens: its text as replies show it, and the rest of its line."""
    return (
        count_tokens(visible(hit.text)) + _place_tokens(hit) + (LINE_TOKENS if hit.length is None else CUT_LINE_TOKENS)
    )


def _place_tokens(hit: Hit) -> int:
    """Return what the name of a page costs, or what a memory was found by."""
    beside = [hit.context, *(link.reason for link in hit.linked)]
    found_by = sum(count_tokens(visible(text)) + ADDRESS_TOKENS for text in beside if text)
    return found_by if hit.document is None else count_tokens(visible(str(hit.document))) + ADDRESS_TOKENS


# Filters of searches and lists, with what they look up in the ledger: names, conversations and words.


@dataclass(frozen=True, slots=True)
class HitFilter:
    """A filter of one scope. `test` decides about each hit.

    `kinds` are those of the hits that match, and no message outside of `messages` does. If it `is_exact`, all messages
    within them match. With `with_closed` it asks for what ended, which is among what was replaced too.
    """

    test: Callable[[Hit], bool]
    kinds: AbstractSet[str]
    messages: MessageBounds
    is_exact: bool
    with_closed: bool = False

    @property
    def leaves_most_messages(self) -> bool:
        """Return whether messages are asked for, and most of them by a test of columns alone, such as their role."""
        return self.kinds == MESSAGES and self.is_exact and self.messages.leave_most


def hit_filter(
    conn: Connection,
    full_text: FullText,
    scope: Scope,
    filters: Mapping[str, Any],
    zone: tzinfo,
    *,
    as_of: datetime | None = None,
    deleted: bool = False,
    faded: Callable[[], AbstractSet[str]] = frozenset,
) -> HitFilter:
    """Return a filter for what is stored now, for what is deleted, or for what was stored at an instant.

    Days are those of `zone`. Of the graph only the mentions of the entities that the filter names are read. A name that
    nobody and nothing is known by is looked for in the texts. `faded` returns the ids of what faded, and is called if
    the filter asks for them. Raises InputError, and MemoryNotFoundError for a conversation that the scope does not see.
    """
    asked = Filter.of(filters, zone)
    is_past = deleted or as_of is not None
    sessions = {
        plain("session", text): message_queries.find_conversation(conn, scope, text, zone, deleted=is_past)
        for text in asked.texts_of("session")
    }
    learned = message_queries.memories_of_sessions(conn, sessions.values()) if sessions else {}
    words = {plain("words", text): frozenset(search_tokens(text)) for text in asked.texts_of("words")}
    names, fields = asked.texts_of("entity"), asked.fields
    owners = owners_mentioning(conn, scope, names, as_of) if names else {}
    unknown = {plain("entity", name): frozenset(search_tokens(name)) for name in names}
    unknown = {name: tokens for name, tokens in unknown.items() if tokens and not owners.get(name)}
    faded_ids = faded() if FADED in fields else frozenset[str]()

    def record(hit: Hit) -> dict[str, Any]:
        """Return what the filter sees of a hit."""
        tokens = frozenset(search_tokens(hit.text)) if words or unknown else frozenset[str]()
        return {
            "role": hit.role,
            "kind": hit.kind,
            "tags": hit.tags,
            "metadata": hit.metadata,
            "at": span_of(hit.at, hit.at_precision, zone) if "at" in fields else None,
            "created_at": span_of(hit.created_at, "") if "created_at" in fields else None,
            "changed": span_of(hit.updated_at, "") if "changed" in fields else None,
            "began": parse_span(hit.since, "began", zone) if hit.since else None,
            ENDED: parse_span(hit.until, ENDED, zone) if hit.until else None,
            "speaker": plain("speaker", hit.name) if "speaker" in fields else None,
            FADED: hit.id in faded_ids,
            "entity": [
                *(name for name, mentioning in owners.items() if hit.id in mentioning),
                *(name for name, sought in unknown.items() if sought <= tokens),
            ],
            "session": [
                text for text, session in sessions.items() if hit.session == session or hit.id in learned[session]
            ],
            "words": [text for text, sought in words.items() if sought and sought <= tokens],
        }

    bounds = asked.bounds
    speakers = _names_of(conn, scope, bounds.speakers)
    messages = MessageBounds(
        bounds.roles,
        speakers,
        None if bounds.sessions is None else [sessions[session] for session in bounds.sessions],
        bounds.said_from,
        bounds.said_until,
        None if is_past else _entries_with(conn, full_text, scope, bounds),
        None
        if bounds.entities is None or unknown
        else frozenset[str]().union(*(owners.get(name, ()) for name in bounds.entities)),
        bounds.has_pages,
    )
    is_exact = bounds.is_exact and (bounds.speakers is None) == (speakers is None) and not unknown
    with_closed = ENDED in fields and not is_past
    return HitFilter(lambda hit: asked.matches(record(hit)), bounds.kinds, messages, is_exact, with_closed)


def _names_of(conn: Connection, scope: Scope, speakers: AbstractSet[str] | None) -> Collection[str] | None:
    """Return the names as messages have them of the speakers sought. Return None for all names, if there are many."""
    if speakers is None:
        return None
    names = message_queries.speakers(conn, scope.user_id)
    if len(names) >= message_queries.MAX_SPEAKERS:
        return None
    return [name for name in names if plain("speaker", name) in speakers]


def _entries_with(conn: Connection, full_text: FullText, scope: Scope, bounds: Bounds) -> Collection[int] | None:
    """Return the entries that have the words of a filter and perhaps others; None if they cannot be looked up."""
    words = {word for text in bounds.words for word in search_tokens(text)}
    with suppress(FullTextError):  # every text is read instead
        return full_text.with_all(conn, scope, words) if words else None
    return None


def entries_matching(conn: Connection, scope: Scope, found: HitFilter) -> set[int]:
    """Return the living entries of the scope that match a filter."""
    entries: set[int] = set()
    if "memory" in found.kinds:
        for seq, memory in entry_queries.living_memories(conn, scope):
            end_if_cancelled()
            if found.test(memory_hit(memory)):
                entries.add(seq)
    if "message" not in found.kinds:
        return entries
    if found.is_exact:
        return entries | message_queries.message_entries(conn, scope, found.messages)
    for seq, message in message_queries.living_messages(conn, scope, found.messages):
        end_if_cancelled()
        if found.test(message_hit(message)):
            entries.add(seq)
    return entries


# Show of a page the passage that answers best, because a whole page would fill a reply.

# A page has at most this part of a reply, one fourth, unless it is whole within that: with 800 tokens that is a
# paragraph or two, and a caller that asks for 4,000 gets whole pages.
PAGE_SHARE = 4

_END = re.compile(r"[.!?…][\"')\]»”’]*\s+|[。！？｡۔।]\s*|\n+")  # noqa: RUF001 - full stops are meant


def with_passages(hits: Sequence[Hit], weights: Mapping[str, float], max_tokens: int) -> list[Hit]:
    """Return the hits with long pages cut to the passage that has most of the words of the query.

    `weights` are the search tokens of the query, each with what it counts for.
    """
    room = max(max_tokens // PAGE_SHARE, MIN_CUT_TOKENS + CUT_LINE_TOKENS)
    return [hit if hit.document is None or hit_tokens(hit) <= room else _cut(hit, weights, room) for hit in hits]


def shortest_passages(hits: Sequence[Hit], query: str) -> list[Hit]:
    """Return the hits with pages cut to two or three sentences, for people who look over them."""
    return with_passages(hits, dict.fromkeys(query_tokens(query), 1.0), max_tokens=0)


def _cut(hit: Hit, weights: Mapping[str, float], room: int) -> Hit:
    """Return a page with the sentences that have most of the words, the first of those that are as good."""
    frame = hit_tokens(hit) - count_tokens(hit.text)
    budget = max(room - frame - 2, MIN_BEST_TOKENS)
    passage, is_first, is_last = _passage(hit.text, weights, budget)
    text = shorten_to_tokens(passage, budget)
    before = "" if is_first else f"{ELLIPSIS} "
    after = "" if is_last or text.endswith(ELLIPSIS) else f" {ELLIPSIS}"
    return replace(hit, text=f"{before}{text}{after}", length=len(hit.text))


def _passage(text: str, weights: Mapping[str, float], budget: int) -> tuple[str, bool, bool]:
    """Return the sentences that stand together, fit and whose words weigh most, each counted once.

    Return also whether they are the first and the last of the text. They begin one sentence before the first word if
    that fits, because what a sentence is about is often said before it.
    """
    places = [0, *(end.end() for end in _END.finditer(text)), len(text)]
    parts = [text[start:end] for start, end in pairwise(places) if start < end]
    words = [weights.keys() & set(search_tokens(part)) for part in parts]
    sums = [0, *accumulate(count_tokens(part) for part in parts)]
    best, best_worth = (0, _end_of(0, sums, budget)), -1.0
    for start in range(len(parts)):
        if start and not words[start] and not (start + 1 < len(parts) and words[start + 1]):
            continue
        end = _end_of(start, sums, budget)
        worth = sum(weights[word] for word in set[str]().union(*words[start:end]))
        if worth > best_worth + 1e-9:
            best, best_worth = (start, end), worth
    first, last = best
    return "".join(parts[first:last]).strip(), first == 0, last >= len(parts)


def _end_of(start: int, sums: Sequence[int], budget: int) -> int:
    """Return where a run of parts that begins here and fits ends; it has at least one part."""
    return max(start + 1, bisect_right(sums, sums[start] + budget) - 1)


# Drop hits whose content another hit already shows, and show memories before their messages.
#
# A hit folds into another one only if its words are the same. A message folds into the memories that were learned
# from it, unless it holds more than they do.

# The share of a message's content words that its memories must hold, or the message holds more: a memory that says all
# of a message in the third person keeps about two of three words. The others are greetings, verbs in other forms and
# synonyms. A message with a smaller share mostly tells a detail that its memories leave out.
MIN_COVERED = 2 / 3

# A message this many times as long as its memories together holds more, whatever its words, so that long messages need
# not be taken apart: even a talkative message seldom needs six times the room of what it says.
MAX_RATIO = 6

# Punctuation that changes what a word means, as in C# and 5 %. All other punctuation only divides words.
_MEANINGFUL = frozenset("#%&*+/@\\")

# A hyphen that makes a number negative. It changes the meaning too.
_MINUS = re.compile(r"(?<!\w)-(?=\d)")


@dataclass(frozen=True, slots=True)
class FoldWords:
    """Search tokens with a part in folding: those of speakers' names, and those of the query without function words."""

    names: AbstractSet[str] = frozenset()
    query: AbstractSet[str] = frozenset()

    @classmethod
    def of(cls, hits: Sequence[Hit], query: str) -> Self:
        """Return the names of the speakers of the hits, and the words of a query."""
        names = {token for hit in hits if hit.kind == "message" for token in search_tokens(hit.name)}
        return cls(names, frozenset(query_tokens(query)))


def fold(hits: Sequence[Hit], memories_below: Sequence[Hit] = (), words: FoldWords | None = None) -> list[Hit]:
    """Return the hits in order, without those that only repeat another one.

    A message that holds no more than the memories above it is left out. If it holds no more with one memory that stands
    below it, this memory takes its place and its score. `memories_below` are memories that follow after the hits;
    `words` are by default those of the hits' speakers.
    """
    words = words or FoldWords.of(hits, "")
    kept: list[Hit] = []
    kept_ids: set[str] = set()
    speakers: dict[str, set[str]] = {}
    for place, hit in enumerate(hits):
        if hit.id in kept_ids:
            continue
        shown = _shown_for(hit, kept, (*hits[place + 1 :], *memories_below), words)
        if shown is None:
            continue
        said_by = speakers.setdefault(same_words_key(shown.text), set())
        speaker = shown.name if shown.kind == "message" else ""
        if said_by and (not speaker or "" in said_by or speaker in said_by):  # two people who say the same are two hits
            continue
        said_by.add(speaker)
        kept.append(shown)
        kept_ids.add(shown.id)
    return kept


def _shown_for(hit: Hit, above: Sequence[Hit], below: Sequence[Hit], words: FoldWords) -> Hit | None:
    """Return the hit itself, the memory that takes its place, or None if the memories above say it all."""
    if hit.kind == "memory":
        return hit
    memories = _memories_of(hit, above)
    if memories and not holds_more(hit, memories, words):
        return None
    fuller = (memory for memory in _memories_of(hit, below) if not holds_more(hit, (*memories, memory), words))
    return next((_in_place_of(memory, hit) for memory in fuller), hit)


def _memories_of(message: Hit, hits: Sequence[Hit]) -> list[Hit]:
    return [hit for hit in hits if hit.kind == "memory" and message.id in hit.message_ids]


def holds_more(message: Hit, memories: Sequence[Hit], words: FoldWords) -> bool:
    """Return whether a message says something that the memories learned from it do not.

    It does if fewer than `MIN_COVERED` of its content words are in the memories, or if they lack one of its numbers or
    one of its words that the query asks for. Function words, question words and speakers' names do not count.
    """
    text = "\n".join(memory.text for memory in memories)
    if len(message.text) > MAX_RATIO * len(text):
        return True
    content = {
        token
        for token in query_tokens(message.text)
        if not (len(token) == 1 and token.isascii() and token.isalpha())  # what is left of "I'm" and "don't"
    } - words.names
    missing = content.difference(search_tokens(text))
    if missing & words.query or any(char.isdigit() for token in missing for char in token):
        return True
    return len(missing) > (1 - MIN_COVERED) * len(content)


def same_words_key(text: str) -> str:
    """Return a string that is equal for texts which differ only in case, punctuation and white space."""
    plain = _MINUS.sub("\N{MINUS SIGN}", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(plain.translate(_WITHOUT_PUNCTUATION).split()) or text


class _WithoutPunctuation(dict[int, int]):
    """A table for `str.translate` that makes punctuation a space. Each character is looked up once in a process."""

    def __missing__(self, code: int) -> int:
        char = chr(code)
        divides = unicodedata.category(char).startswith("P") and char not in _MEANINGFUL
        self[code] = ord(" ") if divides else code
        return self[code]


_WITHOUT_PUNCTUATION = _WithoutPunctuation()


# Show what was learned from a message before, or directly below, the message itself.
#
# A memory can be read on its own: it has names and dates where the message has "she" and "yesterday". The message
# holds more, so both are hits; only their places change.

# In how many of the first places a message has its memory directly below it: a memory that moves up takes the place of
# another hit. Further down that costs more answers than it brings memories (`benchmarks/locomo.py`).
FOLLOWED = 3


def memories_first(hits: Sequence[Hit], memories_below: Sequence[Hit], words: FoldWords) -> list[Hit]:
    """Return folded hits with memories before the messages that they were learned from.

    For a message above all its memories: the best memory that has all the words of the query that the message has takes
    its place, and the message that of the memory. If there is none and the message is one of the first hits, it stays
    where it is, because only it may have the answer, and its best memory follows, unless a single word was asked for.
    `memories_below` are memories that rank below the hits.
    """
    placed = list(hits)
    known = {same_words_key(hit.text) for hit in hits}
    spare = [hit for hit in memories_below if same_words_key(hit.text) not in known]
    seen: set[str] = set()
    for place in range(len(hits)):
        hit = placed[place]
        if hit.kind == "memory":
            seen.update(hit.message_ids)
        elif hit.id not in seen:
            _place_memory(placed, place, spare, words)
            seen.update(placed[place].message_ids)
    return placed


def _place_memory(placed: list[Hit], place: int, spare: list[Hit], words: FoldWords) -> None:
    """Put a memory of the message at a place there, or directly below it. It may come from `spare`."""
    message = placed[place]
    memories = _memories_of(message, (*placed[place + 1 :], *spare))
    common = words.query & set(query_tokens(message.text))
    asked = common - words.names or common
    holder = next((memory for memory in memories if asked <= set(search_tokens(memory.text))), None)
    # Of a query of one word, such as a name, a memory without it says nothing.
    if not memories or (holder is None and (place >= FOLLOWED or len(words.query) == 1)):
        return
    memory = holder or memories[0]
    if memory in spare:
        spare.remove(memory)
    lower = placed.index(memory) if memory in placed else len(placed)
    if holder is not None:
        placed[lower : lower + 1] = [_in_place_of(message, memory)]
        placed[place] = _in_place_of(memory, message)
    else:
        del placed[lower : lower + 1]
        placed.insert(place + 1, _in_place_of(memory, message))


def _in_place_of(hit: Hit, other: Hit) -> Hit:
    """Return a hit with the score of another one, so that the order of the scores stays."""
    return replace(hit, score=other.score, score_parts=other.score_parts)
