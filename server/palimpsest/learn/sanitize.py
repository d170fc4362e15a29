"""Sanitize input before any of it is stored: remove secrets, recalled text, and blocks of memory tools."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection

from palimpsest.core.errors import InputError, Remedy
from palimpsest.core.models import ABOUT_THE_PAST, PAGE, Fact, Message, Relation, Scope
from palimpsest.core.validation import one_line, trimmed
from palimpsest.learn.engine import Engine
from palimpsest.store import entries, history
from palimpsest.store import summaries as summary_queries
from palimpsest.text.display import counted, inert, visible
from palimpsest.text.redaction import is_marker, redact, redact_json, says_only_secrets, secret_kind
from palimpsest.text.word_lists import LazyPattern

# Leave out what memory tools put into a conversation: blocks between tags that frame recalled text.
#
# It was said in an earlier session, or by nobody, and would be learned again from session to session. What a person
# writes about such a tag stays: a block begins on a line of its own, or its tag ends a line.

_TAG = LazyPattern(r"<\s{0,3}(?P<end>/?)\s{0,3}(?P<name>[A-Za-z][\w:.-]{2,60})(?P<rest>[^<>]{0,500})>")

# The names of such tags: those of tools, and whatever has memory or recall as a part of its name.
_FRAMES = LazyPattern(
    r"(?=[\w:.-]*[-_:.])(?:.*[-_:.])?(?:[a-z]{0,12}memor(?:y|ies)|mem0?|zep|letta|cognee|recall(?:ed|s)?|remembered|recollections?"
    r"|supermemory)(?:[-_:.].*)?"
    r"|(?:(?:user|relevant|recalled|retrieved|auto|past|long_?term|saved|stored|core|project|session|agent|open|super)_?)"
    r"memor(?:y|ies)(?:[-_:.]?(?:context|block|bank|store|results?))?"
    r"|memories|memorycontext|recollections"
    r"|(?:past|previous|earlier|prior|last)[-_:.](?:conversations?|sessions?|chats?|context|interactions?|observations?)"
    r"|(?:retrieved|recalled|injected)[-_:.](?:context|facts?|knowledge|notes?|conversations?|sessions?|history)",
    re.IGNORECASE,
)

_PARTS = LazyPattern(r"[-_:.]")
_MACHINES = """in max min shared heap free total used video gpu virtual physical limit limits cache size usage mb gb
    leak unit pool swap request requests address"""
# Parts of names of the memory that computers have.
_OF_MACHINES = frozenset(_MACHINES.split())

_MAX_INDENT = 40

# Names that other documents have as well. They are a block only if both tags stand alone on their lines.
_LONE = LazyPattern(r"memory|recall", re.IGNORECASE)


def without_recalled_blocks(text: str) -> str:
    """Return a text without such blocks, nested ones included. One that is not closed goes to the end of the text."""
    if "<" not in text or ">" not in text:
        return text
    tags = [tag for tag in _TAG.finditer(text) if not tag["rest"].rstrip().endswith("/")]
    return without_blocks(text, tags, _begins_block)


def without_blocks(text: str, tags: Sequence[re.Match[str]], begins: Callable[[str, re.Match[str], bool], bool]) -> str:
    """Return a text without what stands between tags, which have the groups `name` and `end`. Takes linear time.

    `begins` says whether a block begins with a tag, given the text and whether the tag is closed. One whose tags are
    not balanced ends with the last closing one.
    """
    kept: list[str] = []
    kept_to = depth = 0
    name = ""
    last_ends = {tag["name"].lower(): tag for tag in tags if tag["end"]}
    for tag in tags:
        tag_name = tag["name"].lower()
        if depth:
            if tag_name == name:
                depth += -1 if tag["end"] else 1
                kept_to = tag.end() if not depth else kept_to
        elif not tag["end"]:
            last_end = last_ends.get(tag_name)
            is_closed = last_end is not None and last_end.start() > tag.start()
            if begins(text, tag, is_closed):
                kept.append(text[kept_to : tag.start()])
                depth, name, kept_to = 1, tag_name, last_end.end() if is_closed and last_end else len(text)
    return "".join([*kept, text[kept_to:]])


def _begins_block(text: str, tag: re.Match[str], is_closed: bool) -> bool:  # noqa: FBT001 - called by position
    before = text[max(0, tag.start() - _MAX_INDENT) : tag.start()]  # not all of a long line, for each of its tags
    begins_line = not before.rpartition("\n")[2].strip(" \t\r>") and ("\n" in before or len(before) < _MAX_INDENT)
    ends_line = text[tag.end() : tag.end() + 2].strip(" \t\r")[:1] in ("", "\n")
    if _LONE.fullmatch(tag["name"]):
        return begins_line and ends_line and is_closed
    if not _FRAMES.fullmatch(tag["name"]) or not _OF_MACHINES.isdisjoint(_PARTS.split(tag["name"].lower())):
        return False
    return (begins_line or ends_line) if is_closed else (begins_line and ends_line)


# Sanitize input before any of it is stored: remove secrets, and text that came from this memory.
#
# A conversation often contains the results of its own searches. If they were kept again, they would become new
# memories of old ones, which is the most common junk in memories. So lines that repeat a hit are removed, and the
# rest is kept.

# A hit as a search prints it: [id] date text, or [id] date name said: text. Before the date may stand which one it is,
# and after it the project or origin.
_HIT = LazyPattern(
    r"\s*(?:[-*>]\s*)?\[(?P<id>[0-9a-f]{8}[0-9a-f-]{0,28})\]\s*(?:(?P<sense>said|on|in)\s)?\d{4}(?:-\d\d){0,2}\s"
    r"(?P<place>\((?:project|from) [^\n]{0,300}?\) )?(?P<text>.*)"
)

# How many summaries, the newest of a scope, are looked for in what is said: a month of them.
MAX_SUMMARIES = 50

# What stands around the passage of a page in its hit.
_PASSAGE = LazyPattern(r"^.*?, page \d+: |(?<=…) \([\d,]+ characters\)$")

_CUT = LazyPattern(r"…(?: \([\d,]+ characters\))?$")

# How a line ends that shows the beginning of a text, and how long this is at least.
_MIN_CUT_CHARS = 40

# How many lines of a text are looked up in the ledger: those of several searches: half a second.
MAX_HITS = 500

# How much of the message before is read for a question: a long sentence.
MAX_QUESTION_CHARS = 200

# A shorter summary is not removed, because people may say the same by chance.
_MIN_SUMMARY_CHARS = 40


def sanitize_messages(
    engine: Engine, scope: Scope, messages: Sequence[Message], context: Sequence[str]
) -> tuple[tuple[Message, ...], tuple[str, ...], list[str]]:
    """Return the messages and system texts that are left to keep, without secrets and recalled text, and notes.

    There is a note for each kind of text that was removed. Blocking. Raises LedgerError.
    """
    cleaner = Cleaner(engine)
    with engine.ledger.read() as conn:
        newest = summary_queries.newest_texts(conn, scope, MAX_SUMMARIES)
        summaries = [visible(text) for text in newest]  # as a reply shows it
        rest = [without_recalled(conn, scope, message.content, summaries) for message in messages]
    recalled = sum(removed for _, removed in rest)
    kept: list[Message] = []
    before = ""
    for message, (text, _) in zip(messages, rest, strict=True):
        if text:
            content, name = _answer(cleaner, before, text), cleaner.text(message.name)
            kept.append(replace(message, content=content, name=name, external_id=cleaner.text(message.external_id)))
        before = text
    context = tuple(cleaner.text(text) for text in context)
    notes = cleaner.notes()
    if recalled:
        notes.append(f"{counted(recalled, 'recalled passage')} left out")
    return tuple(kept), context, notes


def _answer(cleaner: Cleaner, before: str, text: str) -> str:
    """Return a text without its secrets; if the message before it asked for one, also without the answer."""
    question = before.rstrip()[-MAX_QUESTION_CHARS:].rpartition("\n")[2]
    if question.endswith(("?", "\uff1f")):
        cleaned = cleaner.text(f"{question}\n{text}")
        if cleaned.startswith(f"{question}\n"):
            return cleaned[len(question) + 1 :]
    return cleaner.text(text)


def sanitize_fact(engine: Engine, fact: Fact) -> tuple[Fact, list[str]]:
    """Return a fact in the caller's words without secrets, and notes on them. Blocking.

    Raises InputError if nothing would be left of the text.
    """
    cleaner = Cleaner(engine)
    keywords = tuple(map(cleaner.text, fact.keywords))
    metadata = cleaner.value(dict(fact.metadata))
    cleaned = replace(fact, text=cleaner.text(fact.text), keywords=keywords, metadata=metadata)
    if cleaner.kinds and is_marker(cleaned.text):
        raise InputError(
            f"the text is a secret ({cleaner.kinds[0]}) and nothing else; nothing was stored. Secrets are not kept",
            Remedy.KEEP_ELSEWHERE,
        )
    (named,), notes = without_secret_names(engine, [cleaned], fact.text)
    if says_only_secrets(named.text):
        notes = ["hardly anything else is left of the text; if that is of no use, delete_memory", *notes]
    return named, [*cleaner.notes(), *notes]


def without_secret_names(engine: Engine, facts: Iterable[Fact], told: str = "") -> tuple[list[Fact], list[str]]:
    """Return facts without the entities and relations that hold a secret, and a note on them.

    `told` is the text before its secrets were replaced: what it had and a fact's text has not is part of a secret. A
    secret is left out and not marked, because a marker names nothing.
    """
    if engine.settings.keep_secrets:
        return list(facts), []
    kept: list[Fact] = []
    left_out = 0
    for fact in facts:
        text = fact.text
        secret = {relation for relation in fact.relations if _states_secret(relation, text, told)}
        relations = tuple(relation for relation in fact.relations if relation not in secret)
        ends = {end for relation in secret for end in (relation.source, relation.destination) if end not in text}
        named = [entity for entity in fact.entities if entity.name not in ends]
        entities = tuple(entity for entity in named if not _is_secret([entity.name], text, told))
        left_out += len(fact.relations) - len(relations) + len(fact.entities) - len(entities)
        kept.append(replace(fact, entities=entities, relations=relations))
    return kept, [f"left out what holds a secret: {left_out:,} of the entities and relations"] if left_out else []


def _states_secret(relation: Relation, text: str, told: str) -> bool:
    source, name, end = relation.source, relation.name, relation.destination
    return any(secret_kind(key, end) for key in (name, source)) or _is_secret([source, name, end], text, told)


def _is_secret(names: Sequence[str], text: str, told: str) -> bool:
    is_gone = any(name in told and name not in text for name in names)
    return is_gone or any(map(is_marker, names)) or bool(redact(" ".join(names)).kinds)


def original_text(engine: Engine, scope: Scope, text: str) -> str:
    """Return the text of the memory that a line of a search result repeats; any other text as it is. Blocking."""
    if _HIT.fullmatch(one_line(text)) is None:
        return text
    return engine.ledger.read_with(_recalled, scope, one_line(text)) or text


def without_recalled(conn: Connection, scope: Scope, text: str, summaries: Iterable[str]) -> tuple[str, int]:
    """Return a text without blocks of recalled text, summaries and lines that repeat a hit; and how many it had."""
    own = without_recalled_blocks(text)
    text, removed = (text, 0) if own == text else (trimmed(own), 1)
    for summary in summaries:
        if len(summary) >= _MIN_SUMMARY_CHARS and summary in text:
            text, removed = text.replace(summary, ""), removed + 1
    lines = text.split("\n")
    hits = [place for place, line in enumerate(lines) if _HIT.fullmatch(line)][:MAX_HITS]
    repeated = {place for place in hits if _recalled(conn, scope, lines[place]) is not None}
    kept = [line for place, line in enumerate(lines) if place not in repeated]
    removed += len(lines) - len(kept)
    if not removed:
        return text, 0
    frame = (f"scope: {scope}", f"note: {ABOUT_THE_PAST}")  # the last lines of every reply
    return trimmed("\n".join(line for line in kept if line.strip() not in frame)), removed


def _recalled(conn: Connection, scope: Scope, line: str) -> str | None:
    """Return the text that a line of a search result repeats: of a memory, now or in the past, or of a message."""
    if (match := _HIT.fullmatch(line)) is None:
        return None
    try:
        owner = entries.find(conn, scope, match["id"])
    except InputError:
        return None  # the id of something else: the line is the speaker's own
    lines = [_as_shown(match["text"]), *([_as_shown(match["place"] + match["text"])] if match["place"] else [])]
    if match["sense"] and (isinstance(owner, Message) or owner.is_event_date is (match["sense"] == "said")):
        return None  # no date of it is shown so
    if isinstance(owner, Message) and owner.role == PAGE:
        passage = _PASSAGE.sub("", lines[-1]).strip(" …")
        return owner.content if passage and passage in _as_shown(owner.content) else None
    if isinstance(owner, Message):
        return owner.content if _repeats(lines, f"{owner.name or owner.role} said: {owner.content}") else None
    texts = (owner.text, *(version.new_memory or "" for version in history.versions_of(conn, owner.id)))
    return next((text for text in texts if _repeats(lines, text)), None)


def _repeats(lines: Sequence[str], text: str) -> bool:
    """Return whether one of these lines shows a text, or the beginning of it, as a search or a brief does."""
    forms = (_as_shown(text), _as_shown(inert(text)))
    beginnings = [_CUT.sub("", line) for line in lines if _CUT.search(line)]
    return any(line in forms for line in lines) or any(
        len(beginning) >= _MIN_CUT_CHARS and form.startswith(beginning) for beginning in beginnings for form in forms
    )


def _as_shown(text: str) -> str:
    """Return a text as a search prints it."""
    return visible(one_line(text))


@dataclass(frozen=True, slots=True)
class Cleaner:
    """Replaces secrets in texts, unless the settings keep them, and collects the kinds of secrets it replaced."""

    engine: Engine
    kinds: list[str] = field(default_factory=list[str])

    def text(self, text: str) -> str:
        """Return a text without its secrets."""
        if self.engine.settings.keep_secrets or not text:
            return text
        redacted = redact(text)
        self.kinds.extend(redacted.kinds)
        return redacted.text

    def value(self, value: Any) -> Any:
        """Return a JSON value without the secrets in its texts."""
        if self.engine.settings.keep_secrets:
            return value
        cleaned, kinds = redact_json(value)
        self.kinds.extend(kinds)
        return cleaned

    def notes(self) -> list[str]:
        """Return a note on the secrets that were replaced, if there were any."""
        if not self.kinds:
            return []
        kinds = Counter(self.kinds).items()
        listed = ", ".join(f"{number} times {kind}" if number > 1 else kind for kind, number in kinds)
        secrets = counted(len(self.kinds), "secret")
        return [f"replaced {secrets} by a marker before anything was stored ({listed}); look whether others are left"]
