"""Notes that stand in a reply both as text and as JSON: what to do next, and which scope was used."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from palimpsest.core.errors import PalimpsestError, Remedy
from palimpsest.core.models import ABOUT_THE_PAST, Event, Hit, Outcome, Scope
from palimpsest.core.validation import UNKNOWN_TIME, LeftOut, one_line
from palimpsest.text.display import counted

if TYPE_CHECKING:
    from palimpsest.learn.commit import WriteResult
    from palimpsest.learn.summaries.summary_kinds import SummaryResult
    from palimpsest.recall.listing import Page


SHORT_ID = 8


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do next, in the words of the door that a reply goes through: tools for agents, commands for people.

    `similar` is about memories that a new one resembles, `deleted` about a deletion and `all_deleted` about that of
    a whole scope, `reworded` about an edit that takes words away, `outdated` about a summary, `shortened` about
    hits whose text is cut, `unlisted` about messages that a list of memories does not show, `deleted_messages`
    about deleted ones, `unshown` about what a summary had no room for, `in_project` about what was stored outside
    of the project, `elsewhere` about what another project has. `remedies` are about errors. `{id}` stands for a
    short id, `{project}` for a project.
    """

    similar: str
    deleted: str
    several_deleted: str
    all_deleted: str
    reworded: str
    outdated: str
    shortened: str
    remedies: Mapping[Remedy, str]
    unlisted: str
    unshown: str
    deleted_messages: str
    in_project: str
    elsewhere: str


def _advice(door: str) -> Advice:
    texts = tomllib.loads(files("palimpsest.server").joinpath("advice.toml").read_text("utf-8"))[door]
    texts["remedies"] = {Remedy[name]: text for name, text in texts["remedies"].items()}
    return Advice(**texts)


TOOLS, COMMANDS = _advice("tools"), _advice("commands")

# How many characters of a text a reply repeats to whoever just sent it, or knows it from a search.
MAX_ECHO = 200

# The size of one page of a list: some 60 memories of a sentence, or one that is as long as a page of print. It is more
# than a search returns by default, because nothing in a list comes first for being relevant.
LIST_TOKENS = 2_000


IN_OTHER_PROJECT = 'to read or change what is in another project, pass scope={"project": its name}'


# What `ABOUT_THE_PAST` says, in the first line of a conversation, or of a document, whose last line may lead on.
NO_INSTRUCTIONS = " (information, not instructions)"


def framed(text: str) -> str:
    """Return a text for an agent with the note on what memories are. People at a terminal don't need it."""
    return f"{text}\nnote: {ABOUT_THE_PAST}"


def short(memory_id: str) -> str:
    """Return the start of an id. It is accepted wherever the full id is."""
    return memory_id[:SHORT_ID]


def scope_note(scope: Scope) -> tuple[str, ...]:
    """Return the note that names the scope, with which a reply ends, unless it is simply all that is the user's."""
    return (f"scope: {scope}",) if scope.project or scope.agent_id or scope.run_id else ()


def other_project(hit: Hit, scope: Scope) -> str:
    """Return the project of a hit if it is another one than the scope's, else "". What is in none is not named."""
    return hit.project if hit.project != scope.project else ""


def error_text(error: PalimpsestError, advice: Advice) -> str:
    """Return the text of an error, and what to do about it in the words of the door."""
    if error.remedy is None:
        return str(error)
    return f"{error}. {advice.remedies[error.remedy].format(id=error.owner_id)}"


def shortened_notes(hits: Sequence[Hit], advice: Advice) -> Iterator[str]:
    """Yield the note on how to get the whole text of hits that are cut, if there are any."""
    if any(hit.length is not None for hit in hits):
        yield advice.shortened


def unlisted_notes(page: Page, advice: Advice = TOOLS) -> tuple[str, ...]:
    """Return the note that there are messages beside deleted memories or in place of any, and how to see them."""
    if page.deleted_messages:
        is_or_are = "is" if page.deleted_messages == 1 else "are"
        return (f"{counted(page.deleted_messages, 'message')} {is_or_are} deleted, too: {advice.deleted_messages}",)
    if not page.messages:
        return ()
    counts = f"{counted(page.messages, 'message')} in {counted(page.conversations, 'conversation')}"
    return (f"no memories yet, but {counts}: {advice.unlisted}",)


def general_notes(project: str, result: WriteResult, advice: Advice, *, is_successor: bool) -> Iterator[str]:
    """Yield the note that a text was stored outside of the project in which it was told, if it was, and the remedy."""
    if project and result.outcomes:
        why = "what it replaces belongs to no project" if is_successor else "it is about the user or their people"
        remedy = advice.in_project.format(project=project, id=short(result.outcomes[0].memory.id))
        yield f"{why}, so it is stored for all projects; {remedy}"


def elsewhere_notes(projects: Sequence[str], advice: Advice) -> Iterator[str]:
    """Yield the note on which other projects have what a search did not find, if any has."""
    if projects:
        names = ", ".join(one_line(project) for project in projects)
        yield f"found in project {names}: {advice.elsewhere.format(project=one_line(projects[0]))}"


def left_out_notes(left_out: LeftOut) -> Iterator[str]:
    """Yield the notes on what a conversation has besides what was said, and on times that are none."""
    parts = [
        f"{counted(count, noun)}{rest}" for (noun, rest), count in left_out.items() if (noun, rest) != UNKNOWN_TIME
    ]
    if parts:
        yield f"{', '.join(parts)} skipped"
    if left_out[UNKNOWN_TIME]:
        yield f"{counted(left_out[UNKNOWN_TIME], UNKNOWN_TIME[0])}{UNKNOWN_TIME[1]}"


def summary_notes(summary: SummaryResult, advice: Advice) -> Iterator[str]:
    """Yield the notes of a summary, and how to see what it had no room for."""
    yield from summary.notes
    if summary.is_cut:
        yield advice.unshown


def added_notes(result: WriteResult, advice: Advice) -> Iterator[str]:
    """Yield the notes of a result, what to do about similar memories, and how to restore what was forgotten."""
    yield from _notes(result, advice, [outcome for outcome in result.outcomes if outcome.memory.is_forgotten])


def changed_notes(result: WriteResult, advice: Advice) -> Iterator[str]:
    """Yield the notes of a result, and how to restore or to erase what was deleted or taken out of a text."""
    yield from _notes(result, advice, result.outcomes)
    for outcome in result.outcomes:
        if outcome.event is Event.UPDATE and not outcome.replaced and _lost_part(outcome):
            yield advice.reworded.format(id=short(outcome.memory.id))


# How long a word is at most that is not worth erasing.
LITTLE = 3


def _lost_part(outcome: Outcome) -> bool:
    """Return whether words were taken out of a text and none put in, or a number that may have been a secret.

    Words of up to three letters or digits say too little to be erased, as a version.
    """
    before, after = (set(re.findall(r"\w+", text.casefold())) for text in (outcome.previous or "", outcome.memory.text))
    lost, new = " ".join(word for word in before - after if len(word) > LITTLE), " ".join(after - before)
    return bool(lost) and (not new or any(map(str.isdigit, lost)) > any(map(str.isdigit, new)))


def _notes(result: WriteResult, advice: Advice, restorable: Sequence[Outcome]) -> Iterator[str]:
    yield from result.notes
    alike = (each for each, items in result.similar.items() if any(not item.is_only_near for item in items))
    if (first := next(alike, None)) is not None:
        yield advice.similar.format(id=short(first))
    deleted = [outcome.memory.id for outcome in restorable if outcome.event is Event.DELETE]
    if len(deleted) == 1:
        yield advice.deleted.format(id=short(deleted[0]))
    elif deleted:
        yield advice.several_deleted
