"""Commands on memories: add, search, list, show, edit, delete, undelete."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

import typer

from palimpsest.cli.console import CALLER, Memory, Options, Reply, command
from palimpsest.cli.lazy import advice, filters, hits, models, output, replies, summary_writer, validation
from palimpsest.core.clock import parse_instant, parse_until
from palimpsest.core.errors import InputError, raised_as
from palimpsest.text.display import visible

if TYPE_CHECKING:
    from palimpsest.learn.commit import WriteResult
    from palimpsest.recall.search import SearchResult

# What a person types for a filter, for metadata and for a text: in words, on standard input, or in an editor.

STANDARD_INPUT = "-"

_CONDITION = re.compile(r"(?P<key>[^=<>!]+?)\s*(?P<sign>==|=|!=|>=|<=|>|<)\s*(?P<value>.+)", re.DOTALL)

_SIGNS = {"=": "eq", "==": "eq", "!=": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}


_EXAMPLES = '--filter topic=garden, --filter \'at>=2026-01-01\' or --filter \'{"topic": {"in": ["garden", "cats"]}}\''


def filters_from(conditions: Sequence[str]) -> dict[str, Any] | None:
    """Return the filter that all conditions make together, each JSON or KEY=VALUE; None without any.

    Raises InputError. What a filter as JSON means is checked where it is used.
    """
    filters = [_filter_from(condition.strip()) for condition in conditions]
    return {"AND": filters} if len(filters) > 1 else next(iter(filters), None)


def _filter_from(condition: str) -> dict[str, Any]:
    if condition.startswith("{"):
        with raised_as(InputError, "--filter is not JSON", f". A filter is such as {_EXAMPLES}", json.JSONDecodeError):
            return cast("dict[str, Any]", json.loads(condition))
    if (match := _CONDITION.fullmatch(condition)) is None:
        raise InputError(f"--filter '{condition[:80]}' has no KEY, sign and VALUE; use {_EXAMPLES}")
    key, value = match["key"].strip(), match["value"]
    is_text = key in filters.FIELDS and key != filters.FADED
    return {key: {_SIGNS[match["sign"]]: value if is_text else _from_json(value)}}


def _from_json(text: str) -> Any:
    """Return the value of a text in JSON; of any other, the text."""
    with suppress(ValueError):
        return json.loads(text, parse_constant=int)
    return text


def relations_from_words(words: Sequence[str]) -> tuple[models.Relation, ...]:
    """Return the relations that `--relation` gives, each three names with | between. Raises InputError."""
    return validation.relations_from([word.split("|") for word in words])


def hints_from_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return the hints that `--hint` gives. Raises InputError."""
    return validation.hints_from(validation.HintsInput(words=list(words)))


def metadata_from_words(pairs: Sequence[str], *, may_remove: bool) -> dict[str, Any]:
    """Return the metadata of KEY=VALUE pairs. A value that is JSON is stored as such, any other as a text.

    With `may_remove`, `KEY=` removes a key. Raises InputError.
    """
    metadata: dict[str, Any] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key.strip() or not (value or may_remove):
            raise InputError(f"--metadata '{pair[:80]}' is not KEY=VALUE. Nothing was done")
        read = _from_json(value)  # `null` is a text here, because the removal of a key is written `KEY=`
        metadata[key.strip()] = (value if read is None else read) if value else None
    return metadata


def text_given(text: str) -> str:
    """Return a text, or what standard input has if it is "-". Raises InputError if that is not UTF-8."""
    if text != STANDARD_INPUT:
        return text
    if sys.stdin is None:
        raise InputError("standard input is closed, so there is no text to read. Nothing was done")
    with raised_as(InputError, "standard input is not UTF-8", ". Nothing was done", UnicodeDecodeError):
        return sys.stdin.buffer.read().decode("utf-8-sig")


# Hits as tables, with how relevant each is, and how to get the whole of what is cut.


def _cells(hit: models.Hit, project: str = "") -> tuple[str, output.Text, output.Text]:
    """Return when, who and what of a hit: below the date between which times it holds; the text on one line.

    Of a long text it is the beginning, and how many characters the whole has. `project` is the hit's, if the search
    went beyond its scope's.
    """
    times = (("from", hit.since), ("to", hit.until))
    date = "\n".join([hit.date, *(f"{word} {time}" for word, time in times if time)])
    text = visible(validation.one_line(hit.text))
    if _is_cut(hit):
        length = len(hit.text) if hit.length is None else hit.length
        text = f"{output.cut_to_width(text, output.MAX_TEXT)} ({length:,} characters)"
    place = f"({project}) " if project else ""
    replaced = f"(replaced by {advice.short(hit.superseded_by)}) " if hit.superseded_by else ""
    who = output.cut_to_width(visible(replies.speaker_of(hit)), output.MAX_NAME)
    return date, output.plain(who), output.plain(f"{place}{replaced}{text}")


def search_parts(result: SearchResult, query: str, scope: models.Scope) -> list[output.Part]:
    """Return the hits of a search as a table, with why each was found, and what was left out.

    A text of another project than the scope's begins with the project's name.
    """
    notes = output.notes_text(result.notes)
    elsewhere = [*advice.elsewhere_notes(result.elsewhere, advice.COMMANDS)]
    if not result.hits and not result.omitted:
        nothing = f"nothing was found for: {output.cut_to_width(validation.one_line(query), output.MAX_TEXT)}"
        return [*elsewhere, nothing, *notes]
    rows = output.Rows("id", "why", "date", "who", "what", title=query)
    for hit in hits.shortest_passages(result.hits, query):
        rows.add_row(advice.short(hit.id), ", ".join(hit.why), *_cells(hit, advice.other_project(hit, scope)))
        if hit.score_parts:
            rows.add_row("", "", "", "", f"{hit.score:.3f}: {replies.explanation(hit)}")
    parts: list[output.Part] = [*elsewhere, *replies.weak_lines(result)]
    parts += [rows, *result.relation_lines]
    if result.omitted:
        parts.append(f"({replies.omitted_text(result)}; a smaller --limit leaves them more room)")
    return [*parts, *notes, *_shortened(result.hits)]


def _is_cut(hit: models.Hit) -> bool:
    text = visible(validation.one_line(hit.text))
    return hit.length is not None or output.cut_to_width(text, output.MAX_TEXT) != text


def _shortened(hits: Sequence[models.Hit]) -> list[str]:
    """Return how to get the whole texts, if a text is cut."""
    return [advice.COMMANDS.shortened] if any(map(_is_cut, hits)) else []


# Commands that change one memory or delete it: edit, delete, undelete.

app = typer.Typer()


def changed_reply(result: WriteResult, scope: models.Scope) -> Reply:
    """Return what a command changed."""
    text = replies.changed_text(result, scope, advice.COMMANDS)
    return Reply(replies.changed_json(result, scope, advice.COMMANDS), text, done=True)


@command(app, "edit")
async def edit(
    memory: Memory,
    memory_id: str,
    text: str | None = None,
    metadata: list[str] | None = None,
    hint: list[str] | None = None,
    since: str = "",
    until: str = "",
    relation: list[str] | None = None,
) -> Reply:
    """Give a memory another text, metadata, hints, times or relations. The history keeps the old ones."""
    result = await memory.update(
        memory.scope,
        memory_id,
        metadata=validation.metadata_from(metadata_from_words(metadata or (), may_remove=True)),
        text=None if text is None else validation.text_from(text_given(text)),
        hints=None if hint is None else hints_from_words(hint),
        since=since,
        until=until,
        relations=None if relation is None else relations_from_words(relation),
        caller=CALLER,
    )
    return changed_reply(result, memory.scope)


@command(app, "delete")
async def delete(memory: Memory, ids: list[str] | None = None, everything: bool = False, yes: bool = False) -> Reply:
    """Delete memories and messages. They are no longer found, and can be restored with undelete or undo."""
    scope = memory.scope
    if everything == bool(ids):
        raise InputError("give either ids or --all. Nothing was deleted")
    if ids:
        return changed_reply(await memory.delete(scope, ids, caller=CALLER), scope)
    stored = await memory.scope_contents(scope)
    if not yes and (stored.memories or stored.messages):
        kept = "what is outside the project stays" if scope.project else "what belongs to projects stays"
        output.confirm(f"Delete {stored} of {scope} ({kept})?")
    result = await memory.delete_all(scope, caller=CALLER)
    return Reply(replies.deleted_all_json(result), replies.all_deleted_text(result, scope, advice.COMMANDS), done=True)


@command(app, "undelete")
async def undelete(memory: Memory, memory_id: str) -> Reply:
    """Restore a deleted or replaced memory, or a deleted message. palimpsest list --deleted has their ids."""
    result = await memory.restore(memory.scope, memory_id, caller=CALLER)
    content = replies.changed_json(result, memory.scope, advice.COMMANDS)
    return Reply(content, replies.restored_text(result, memory.scope), done=True)


# Commands that add, search, list and show memories.


@command(app, "add")
async def add(  # noqa: PLR0913 - typer passes the options of a command by name
    memory: Memory,
    options: Options,
    text: str,
    at: str = "",
    replaces: list[str] | None = None,
    metadata: list[str] | None = None,
    relation: list[str] | None = None,
    hint: list[str] | None = None,
    since: str = "",
    until: str = "",
) -> Reply:
    """Store one fact."""
    scope, project = memory.scope, memory.scope.project
    said_at = parse_instant(at, "--at", memory.zone) if at else None
    fact, relations = validation.text_from(text_given(text)), relations_from_words(relation or ())
    if not options.names_project:
        scope = await memory.home_of(scope, fact, relations, replaces or ())
    result = await memory.add_text(
        scope,
        fact,
        at=said_at,
        replaces=replaces or (),
        metadata=validation.metadata_from(metadata_from_words(metadata or (), may_remove=False)),
        relations=relations or None,
        hints=hints_from_words(hint or ()),
        since=since,
        until=until,
        caller=CALLER,
    )
    moved_from = "" if scope.project else project
    general = advice.general_notes(moved_from, result, advice.COMMANDS, is_successor=bool(replaces))
    result = replace(result, notes=(*result.notes, *general))
    content = replies.added_json(result, scope, advice.COMMANDS)
    return Reply(content, replies.added_text(result, scope, advice.COMMANDS), done=True)


@command(app, "search")
async def search(  # noqa: PLR0913 - typer passes the options of a command by name
    memory: Memory,
    query: str,
    also: list[str] | None = None,
    limit: int = 10,
    filters: list[str] | None = None,
    as_of: str = "",
    held_at: str = "",
    explain: bool = False,
    all_projects: bool = False,
    hops: int = 1,
    group_by: Literal["day"] | None = None,
) -> Reply:
    """Search memories and messages by meaning and by words."""
    instant = parse_until(as_of, "--as-of", memory.zone) if as_of else None
    options: dict[str, Any] = {"also": validation.also_from(also), "filters": filters_from(filters or ())}
    options |= {"as_of": instant, "held_at": held_at}
    answer = await memory.search(
        memory.scope,
        validation.query_from(query),
        limit=limit,
        max_tokens=validation.MAX_TOKENS,
        explain=explain or memory.settings.explain,
        all_projects=all_projects,
        hops=hops,
        caller=CALLER,
        **options,
    )
    if not all_projects:
        answer = await memory.with_other_projects(memory.scope, query, answer, **options)
    days = replies.by_day(answer.hits) if group_by else None
    answer = answer if days is None else replace(answer, hits=tuple(hit for hits in days.values() for hit in hits))
    parts = search_parts(answer, query, memory.scope)
    return Reply(replies.search_json(answer, memory.scope, advice.COMMANDS, by_day=days), *parts)


@command(app, "list")
async def list_(
    memory: Memory,
    limit: int = 20,
    filters: list[str] | None = None,
    cursor: str | None = None,
    held_at: str = "",
    deleted: bool = False,
) -> Reply:
    """List memories page by page, newest first."""
    wanted = filters_from(filters or ())
    page = await memory.list(memory.scope, limit=limit, cursor=cursor, deleted=deleted, filters=wanted, held_at=held_at)
    unlisted = advice.unlisted_notes(page, advice.COMMANDS)
    page = replace(page, notes=(*page.notes, *unlisted))
    kinds = "messages" if page.hits and all(hit.kind == "message" for hit in page.hits) else "memories"
    rows = output.Rows("id", "date", "who", "what", title=f"{'deleted ' if deleted else ''}{kinds} of {memory.scope}")
    for hit in page.hits:
        rows.add_row(advice.short(hit.id), *_cells(hit))
    parts = [*([rows] if page.hits else []), *_shortened(page.hits), *output.notes_text(page.notes)]
    if not page.hits and not unlisted:
        nothing = f"no {'deleted ' if deleted else ''}memory of {memory.scope} was found"
        parts.insert(0, "there are no more" if cursor else nothing)
    if page.cursor:
        parts.append(f"more: --cursor {page.cursor}")
    return Reply(replies.page_json(page, memory.scope, advice.COMMANDS), *parts)


@command(app, "get")
async def get(memory: Memory, memory_id: str) -> Reply:
    """Print a memory or message whole, with its sources, metadata and dates."""
    owner = await memory.get(memory.scope, memory_id)
    sources = () if isinstance(owner, models.Message) else await memory.sources(memory.scope, owner.id)
    return Reply(replies.whole_json(owner, sources), replies.whole_reply_text(owner, sources))


@command(app, "history")
async def history(memory: Memory, memory_id: str) -> Reply:
    """Show every version of a memory, or the whole text of a message."""
    if isinstance(owner := await memory.get(memory.scope, memory_id), models.Message):
        around = await memory.conversations.around(memory.scope, owner)
        return Reply(replies.message_history_json(owner, around), replies.message_text(owner, around))
    found = await memory.history(memory.scope, owner.id)
    return Reply(replies.history_json(found), replies.history_text(found))


@command(app, "summary")
async def summary(
    memory: Memory, kind: str = "overall", days: int = 0, held_at: str = "", refresh: bool = False
) -> Reply:
    """Summarize the memory in a paragraph, or its last days in one each."""
    kinds = await summary_writer.last_days(memory.engine, memory.scope, days) if days else [kind]
    asked = partial(memory.summary, memory.scope, refresh=refresh, held_at=held_at, caller=CALLER)
    results = [await asked(kind) for kind in kinds]
    as_values = [replies.summary_json(result, memory.scope) for result in results]
    if days:
        return Reply({"days": as_values}, replies.days_text(results, memory.scope))
    return Reply(as_values[0], replies.summary_text(results[0], memory.scope, advice.COMMANDS))
