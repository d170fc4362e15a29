"""A dossier as plain lines of text, within a number of tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from palimpsest.core.entities import Entity, KnownRelation
from palimpsest.core.models import Memory
from palimpsest.core.validation import one_line
from palimpsest.learn.views.about.dossier import Dossier
from palimpsest.learn.views.listing import MORE
from palimpsest.learn.views.portrait.ranks import is_safety
from palimpsest.text.counting import counted
from palimpsest.text.dates.finder import date_and_sense
from palimpsest.text.shorten import shorten_to_tokens
from palimpsest.text.tokenizer import count_tokens, lines_within

MAX_TOKENS = 800
"""How long a dossier may be: as long as the reply to a search is by default."""

MAX_LINE_TOKENS = 80
"""How much of one memory it shows. Set by hand: facts are shorter, and ten pasted texts still fit."""

MAX_BESIDE = 10
"""How many names of entities it lists that are only named together with this one. Set by hand: one line."""

MAX_ALIASES = 8
"""How many other names it lists, for the same reason."""

MAX_APART = 3
"""How many names tell entities of one name apart. Set by hand."""

SHORT_ID = 8


def lines_of(dossiers: Sequence[Dossier], max_tokens: int = MAX_TOKENS) -> list[list[str]]:
    """Return the dossiers of the entities of one name as lines, all of them together within a number of tokens.

    If there are several, the first line of each has its id and says what only this one is connected with.
    """
    if len(dossiers) == 1:
        return [dossier_lines(dossiers[0], max_tokens)]
    share = max_tokens // max(len(dossiers), 1)
    told_apart = zip(dossiers, _apart(dossiers), strict=True)
    return [dossier_lines(dossier, share, apart=names) for dossier, names in told_apart]


def dossier_lines(dossier: Dossier, max_tokens: int = MAX_TOKENS, *, apart: Sequence[str] | None = None) -> list[str]:
    """Return a dossier as lines: who or what it is, what holds, what held before, and what it is connected with.

    What it is connected with and what held before may take a quarter of the room each; what holds takes the rest.
    """
    quarter = max_tokens // 4
    relations, further = ([_relation_line(item) for item in some] for some in (dossier.relations, dossier.further))
    last = _memories("Held before:", dossier.held, quarter, dossier.all_held)
    last += _section("Connected with:", relations, quarter, len(relations))
    last += _section("Two steps away:", further, quarter, len(further))
    last += [_beside_line(dossier.beside)] if dossier.beside else []
    if dossier.lookalikes:
        alike = " or ".join(f"{described(other)} [{other.id[:SHORT_ID]}]" for other in dossier.lookalikes)
        last.append(f"May be the same as {alike}; nobody has said so.")
    first = _heading(dossier, apart)
    left = max_tokens - sum(map(count_tokens, (first, *last)))
    holds = _memories("Holds now:", dossier.holds, left, dossier.all_holds)
    return [first, *(holds or ["Nothing holds now."]), *last]


def _apart(dossiers: Sequence[Dossier]) -> list[list[str]]:
    """Return for each dossier which names it alone is connected with, at most three."""
    counts = Counter(name for dossier in dossiers for name in _neighbours(dossier))
    return [[name for name in _neighbours(dossier) if counts[name] == 1][:MAX_APART] for dossier in dossiers]


def described(entity: Entity) -> str:
    """Return the name of an entity on one line, with what it is if that is known."""
    kind = "the user" if entity.is_user else "" if entity.type == "other" else entity.type
    return f"{one_line(entity.name)} ({kind})" if kind else one_line(entity.name)


def _heading(dossier: Dossier, apart: Sequence[str] | None) -> str:
    text = described(dossier.entity)
    if apart is not None:
        text += f" [{dossier.entity.id[:SHORT_ID]}]"
    if dossier.aliases:
        text += f", also called {', '.join(map(one_line, dossier.aliases[:MAX_ALIASES]))}"
    return f"{text}. Only this one is connected with {', '.join(apart)}" if apart else text


def _neighbours(dossier: Dossier) -> list[str]:
    own = dossier.entity.id
    related = [item.destination if item.source_id == own else item.source for item in dossier.relations]
    return list(dict.fromkeys(map(one_line, (*related, *(other.name for other, _ in dossier.beside)))))


def _section(title: str, lines: Sequence[str], budget: int, total: int) -> list[str]:
    """Return a title and the lines that fit, and how many more there are; nothing without lines."""
    if not lines:
        return []
    kept = lines_within(lines, budget)
    return [title, *kept, *([f"({total - len(kept):,}{MORE}"] if total > len(kept) else [])]


def _memories(title: str, memories: Sequence[Memory], budget: int, total: int) -> list[str]:
    """Return the same for memories, the newest first. If not all fit, those in the middle are left out.

    Who or what it is was mostly said first, and what holds of it last. What somebody's safety depends on is then shown
    before the rest.
    """
    lines = [_memory_line(memory) for memory in memories]
    if total <= len(lines) and sum(map(count_tokens, lines)) <= budget:
        return _section(title, lines, budget, total)
    safe = lines_within([_memory_line(memory) for memory in memories if is_safety(memory, "")], budget // 2)
    lines = [line for line in lines if line not in safe]
    total, budget = total - len(safe), budget - sum(map(count_tokens, safe))
    oldest = lines_within(lines[::-1], budget // 3)[::-1] if lines else []
    newest = lines_within(lines[: len(lines) - len(oldest)], budget - sum(map(count_tokens, oldest)))
    left_out = f"(between these {total - len(newest) - len(oldest):,}{MORE}"
    return [title, *safe, *newest, left_out, *oldest]


def _memory_line(memory: Memory) -> str:
    times = [f"since {memory.since}" if memory.since else "", f"until {memory.until}" if memory.until else ""]
    held = ", ".join(filter(None, times))
    text = shorten_to_tokens(one_line(memory.text), MAX_LINE_TOKENS)
    return f"- [{memory.id[:SHORT_ID]}] {date_and_sense(memory, text)} {text}" + (f" ({held})" if held else "")


def _relation_line(item: KnownRelation) -> str:
    return f"- {item.line}" + ("" if item.is_current or item.valid_until else " (no longer)")


def _beside_line(beside: Sequence[tuple[Entity, int]]) -> str:
    shown = ", ".join(f"{described(other)} in {counted(count, 'memory')}" for other, count in beside[:MAX_BESIDE])
    more = f" and {len(beside) - MAX_BESIDE:,} more" if len(beside) > MAX_BESIDE else ""
    return f"Named together with: {shown}{more}"
