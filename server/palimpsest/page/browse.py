"""Search, list what is deleted, and browse the time line, activity, conversations, documents, entities, summaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any, Literal, TypeAlias, cast, get_args
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from palimpsest.core.clock import parse_date, parse_range
from palimpsest.core.errors import InputError
from palimpsest.core.models import ENTITY_TYPES, KINDS, EntityType, Memory, Scope, name_key
from palimpsest.core.validation import MAX_TOKENS, parse_until
from palimpsest.learn.browsing import TimeLine, cursor_before
from palimpsest.learn.entity_graph import MAX_NODES, EntityGraph
from palimpsest.learn.job_runner import jobs_seen
from palimpsest.learn.summaries.summary_writer import KEPT_KIND_NAMES, kept_summary, last_days
from palimpsest.memory import Memory as OpenMemory
from palimpsest.page import page_context as context
from palimpsest.recall.hits import shortest_passages
from palimpsest.server.replies import picked

# Spans of a time line: a day, a week, a month or a year.

PeriodName: TypeAlias = Literal["day", "week", "month", "year"]

PERIOD_NAMES: tuple[PeriodName, ...] = get_args(PeriodName)


@dataclass(frozen=True, slots=True)
class Period:
    """A day, week, month or year: from its first day until before the day `end`. A week begins on Monday (ISO 8601)."""

    name: PeriodName
    first: date
    end: date

    @property
    def last(self) -> date:
        """Return its last day."""
        return self.end - timedelta(days=1)

    @property
    def parts(self) -> Sequence[Period]:
        """Return what it consists of: the months of a year, else its days."""
        if self.name == "year":
            return [period("month", date(self.first.year, month, 1)) for month in range(1, 13)]
        return [period("day", self.first + timedelta(days=number)) for number in range((self.end - self.first).days)]

    @property
    def key(self) -> str:
        """Return the name of its time in ISO 8601: "2026-11-21", "2026-W47", "2026-11" or "2026"."""
        return self.first.strftime({"day": "%Y-%m-%d", "week": "%G-W%V", "month": "%Y-%m", "year": "%Y"}[self.name])


def period(name: PeriodName, day: date) -> Period:
    """Return the day, week, month or year that a day is in."""
    first = {
        "day": day,
        "week": day - timedelta(days=day.weekday()),
        "month": day.replace(day=1),
        "year": day.replace(month=1, day=1),
    }[name]
    end = first + timedelta(days={"day": 1, "week": 7, "month": 31, "year": 366}[name])
    return Period(name, first, end.replace(day=1) if name in ("month", "year") else end)


def day_from(text: str, default: date) -> date:
    """Return the day that a text names as in ISO 8601, of a month or year its first one; else `default`.

    The first and the last years of the calendar, around which there are no others, are not among them.
    """
    parsed = parse_date(text)
    day = default if parsed is None else parsed[0].date()
    return day if date.min.year + 1 < day.year < date.max.year - 1 else default


# What goes on in the background, and how the memory grew.

# How many jobs are shown, the newest.
JOBS = 30

# How many months a plot shows: two years, a bar of each fits a narrow screen.
MONTHS = 24


# How many days a plot shows at most. As `MONTHS`.
MAX_DAYS = 60


async def activity(request: Request) -> Response:
    """Show the jobs, and plots of what was stored, said and asked."""
    memory, scope = await context.memory_of(request), context.scope_of(request)
    today = memory.engine.clock().date()
    months = _last("month", MONTHS, today)
    growth = await TimeLine(memory.engine).growth(scope, "month", months[0].first, months[-1].end)
    plots = [_plot("memories_stored", months, growth.memories), _plot("messages_said", months, growth.messages)]
    if memory.recall_log.days:
        days = _last("day", min(memory.recall_log.days, MAX_DAYS), today)
        plots.append(_plot("questions_asked", days, await memory.recall_log.count_by_day(scope)))
    return context.shown(request, "around/activity.html", jobs=await jobs_seen(memory.engine, scope, JOBS), plots=plots)


def _last(name: PeriodName, number: int, today: date) -> Sequence[Period]:
    """Return the last days or months, the present one last."""
    periods = [period(name, today)]
    while len(periods) < number:
        periods.insert(0, period(name, periods[0].first - timedelta(days=1)))
    return periods


def _plot(name: str, periods: Sequence[Period], counts: Mapping[str, int]) -> Mapping[str, object]:
    """Return a plot by its name among the words of the page; a bar is a period, its value and its height up to 1."""
    values = {each: counts.get(each.key, 0) for each in periods}
    most = max(values.values())
    bars = [{"period": each, "value": value, "height": value / (most or 1)} for each, value in values.items()]
    return {"name": name, "unit": periods[0].name, "bars": bars, "most": most}


# The time line: what a day, week, month or year is about, and a way to what was believed then.

# How many memories, and how many conversations, a time line shows at most: a long day of work.
TIME_LINE_LIMIT = 200

# How many memories each day of a week shows before its link to the whole day.
FIRST_SHOWN = 5


async def time_line(request: Request) -> Response:
    """Show a period of the time line, by default the week that something was last about."""
    memory, scope = await context.memory_of(request), context.scope_of(request)
    line = TimeLine(memory.engine)
    bounds = await line.bounds(scope)
    today = memory.engine.clock().date()
    newest = min(bounds[1], today) if bounds else today
    asked = request.query_params
    name = cast("PeriodName", asked.get("period")) if asked.get("period") in PERIOD_NAMES else "week"
    asked_for = period(name, day_from(asked.get("on", ""), newest))
    parts, unit = asked_for.parts, "month" if name == "year" else "day"
    span = await line.span(scope, unit, asked_for.first, asked_for.end, TIME_LINE_LIMIT)
    of_day: dict[date, list[Memory]] = {}
    for each in span.memories if name == "week" else ():
        of_day.setdefault(each.at.date(), []).append(each)
    rows: list[dict[str, Any]] = [
        {
            "period": part,
            "memories": span.counts.memories.get(part.key, 0),
            "messages": span.counts.messages.get(part.key, 0),
            "first": of_day.get(part.first, [])[:FIRST_SHOWN],
        }
        for part in parts
    ]
    return context.shown(
        request,
        "around/time_line.html",
        period=asked_for,
        day_before=asked_for.first - timedelta(days=1),
        names=PERIOD_NAMES,
        rows=rows,
        most=max((row["memories"] + row["messages"] for row in rows), default=0),
        memories=span.memories if name == "day" else (),
        conversations=span.conversations if name == "day" else (),
        today=today,
        bounds=bounds,
        limit=TIME_LINE_LIMIT,
    )


# Conversations: the list of them, and one of them message by message.

# How many conversations are listed at once.
LISTED_CONVERSATIONS = 30

# How many messages are shown at once.
SHOWN_MESSAGES = 200

# How many messages before the one that is asked for are shown with it: some screens of talk.
CONTEXT = 20


async def conversations(request: Request) -> Response:
    """List the conversations, the one with the newest message first."""
    memory, scope = await context.memory_of(request), context.scope_of(request)
    cursor = request.query_params.get("cursor") or None
    page = await memory.conversations.list(scope, limit=LISTED_CONVERSATIONS, cursor=cursor)
    return context.shown(request, "around/conversations.html", page=page)


async def conversation(request: Request) -> Response:
    """Show a conversation, named by its id or by that of a message in it; then it begins a little before that one."""
    memory, scope = await context.memory_of(request), context.scope_of(request)
    named = request.path_params["id"]
    cursor = request.query_params.get("cursor") or await cursor_before(memory.engine, scope, named, CONTEXT)
    with context.or_not_found():
        page = await memory.conversations.read(scope, named, limit=SHOWN_MESSAGES, cursor=cursor)
    if page.about is None and page.messages:
        target = context.in_project(f"/documents/{page.id}?message={named}", scope)
        return context.redirect(f"{target}#m-{named}")
    return context.shown(request, "around/conversation.html", page=page, named=named, has_earlier=cursor is not None)


# Documents: the list of them, and one of them page by page.

# How many documents are listed at once.
LISTED_DOCUMENTS = 50

# How many pages of a document are shown at once. A page has about two thousand characters.
SHOWN_PAGES = 20


async def documents(request: Request) -> Response:
    """List the documents, the one that was learned last first."""
    found = await (await context.memory_of(request)).documents.list(context.scope_of(request))
    start = context.number_in(request.query_params, "from") or 0
    listed, following = found[start : start + LISTED_DOCUMENTS], start + LISTED_DOCUMENTS
    more = following if len(found) > following else None
    return context.shown(request, "around/documents.html", documents=listed, following=more)


async def document(request: Request) -> Response:
    """Show pages of a document, by default the first ones; or those from the one on that a message is."""
    memory, scope = await context.memory_of(request), context.scope_of(request)
    with context.or_not_found():
        found, pages = await memory.documents.pages(scope, request.path_params["id"])
    asked = request.query_params.get("message", "")
    place = next((number for number, page in enumerate(pages) if page.message.id == asked), None)
    start = place if place is not None else context.number_in(request.query_params, "from") or 0
    return context.shown(
        request,
        "around/document.html",
        document=found,
        pages=pages[start : start + SHOWN_PAGES],
        start=start,
        previous=max(start - SHOWN_PAGES, 0),
        following=start + SHOWN_PAGES if len(pages) > start + SHOWN_PAGES else None,
    )


# Entities: the list of them, one with what is known of it, and the graph that they are.

# How many entities are listed at once.
LISTED_ENTITIES = 60

# How many others the drawing of a neighbourhood has: with more, names cover each other.
NEIGHBOURS = 60

# How many memories and relations of an entity are listed.
SHOWN = 30


async def entities(request: Request) -> Response:
    """List entities, the one mentioned last first, by type and by a part of their name."""
    memory, scope, asked = await context.memory_of(request), context.scope_of(request), request.query_params
    type_ = cast("EntityType", asked.get("type")) if asked.get("type") in ENTITY_TYPES else None
    part = asked.get("name", "").strip()
    found = await memory.graph.entities(scope, type=type_, limit=MAX_NODES if part else LISTED_ENTITIES + 1)
    named = [each for each in found if name_key(part) in name_key(each.entity.name)]
    return context.shown(
        request,
        "around/entity_list.html" if context.is_part(request) else "around/entities.html",
        entities=named[:LISTED_ENTITIES],
        has_more=len(named) > LISTED_ENTITIES,
        types=ENTITY_TYPES,
        type=type_ or "",
        name=part,
    )


async def entity(request: Request) -> Response:
    """Show what is known about an entity."""
    dossier = await _dossier(request, await context.memory_of(request))
    return context.shown(request, "around/entity.html", dossier=dossier, shown=SHOWN)


async def neighbourhood(request: Request) -> Response:
    """Return an entity and what is near it, as nodes and links in JSON."""
    memory, scope = await context.memory_of(request), context.scope_of(request)
    dossier = await _dossier(request, memory)
    near = await memory.graph.around(scope, dossier.entity, 1, NEIGHBOURS)
    return JSONResponse(_drawing(near, scope, dossier.entity.id))


async def graph(request: Request) -> Response:
    """Show the page that draws all entities."""
    await context.memory_of(request)
    return context.shown(request, "around/graph.html")


async def whole_graph(request: Request) -> Response:
    """Return all entities, as nodes and links in JSON."""
    memory, scope = await context.memory_of(request), context.scope_of(request)
    return JSONResponse(_drawing(await memory.graph.whole(scope), scope, ""))


async def _dossier(request: Request, memory: OpenMemory) -> Any:
    with context.or_not_found():
        (dossier,) = await memory.graph.dossiers(context.scope_of(request), request.path_params["id"])
    return dossier


def _drawing(found: EntityGraph, scope: Scope, centre: str) -> dict[str, Any]:
    """Return a graph as `graph.js` reads it: nodes with the paths that they lead to, and links."""
    nodes, edges = found
    return {
        "centre": centre,
        "nodes": [
            {
                **picked(node, "id=entity.id name=entity.name type=entity.type memories"),
                "path": context.in_project(f"/entities/{node.entity.id}", scope),
            }
            for node in nodes
        ],
        "links": [picked(edge, "source=source_id target=destination_id name memories") for edge in edges],
    }


# Summaries and the profile, each with what it rests on.

# How many of the memories and messages that a summary rests on are shown.
SOURCES = 100

# How many of the last days have a link to their summary.
DAYS = 14

WITHOUT_ARGUMENT = tuple(kind for kind in KEPT_KIND_NAMES if kind not in {"session", "day", "mood"})


async def summaries(request: Request) -> Response:
    """Show a summary, by default the overall one, and links to the others."""
    memory, scope = await context.memory_of(request), context.scope_of(request)
    with context.or_not_found():
        kept = await kept_summary(memory.engine, scope, request.query_params.get("kind", "overall"), SOURCES)
    return context.shown(
        request,
        "around/summaries.html",
        kind=kept.result.kind,
        kinds=[name for name in WITHOUT_ARGUMENT if name != "project" or scope.project],
        days=await last_days(memory.engine, scope, DAYS),
        kept=kept,
        has_model=memory.engine.own_model is not None,
    )


async def refresh(request: Request) -> Response:
    """Let the model write a summary again."""
    memory, scope, form = await context.memory_of(request), context.writable_scope_of(request), await request.form()
    result = await memory.summary(scope, str(form.get("kind", "")), refresh=True, caller=context.CALLER)
    return context.redirect(f"/summaries?kind={result.kind}", scope)


# The filters of a search, as its form sends them.

# The filters that stand folded below the search.
FURTHER = ("tag", "entity", "speaker", "first", "last", "held_at", "agent", "run")


def of_hits(filters: Mapping[str, str]) -> Mapping[str, Any]:
    """Return what the form sent, by `kind` and `FURTHER`, as a filter on hits.

    What is "" does not filter. `first` and `last` are days in ISO 8601.
    """
    names = {"kind": "kind", "tags": "tag", "entity": "entity", "speaker": "speaker"}
    chosen: dict[str, Any] = {name: filters[sent] for name, sent in names.items() if filters[sent]}
    days = {operator: filters[sent] for operator, sent in (("gte", "first"), ("lte", "last")) if filters[sent]}
    return chosen | {"at": days} if days else chosen


# The first page: search as you type, and without a question the newest memories.

# How many hits a search and a list show at once.
SEARCH_LIMIT = 20

# How many months back the strip below the search goes; a date goes further: two lines of a screen.
STRIP_MONTHS = 18


async def search(request: Request) -> Response:
    """Answer a question, or list the newest memories. As part of a page only the hits."""
    memory, asked = await context.memory_of(request), request.query_params
    kind = asked.get("kind", "")
    filters = {"kind": kind if kind in KINDS else ""} | {name: asked.get(name, "").strip() for name in FURTHER}
    scope = replace(context.scope_of(request), agent_id=filters["agent"], run_id=filters["run"], with_shared=False)
    project = context.visitor_of(request).grant.project
    values: dict[str, Any] = {
        "scope": scope,
        "question": asked.get("q", "").strip(),
        "also": asked.get("also", "").strip(),
        "as_of": asked.get("as_of", ""),
        "filters": filters,
        "further": {name: filters[name] for name in FURTHER},
        "is_filtered": bool(of_hits(filters) or filters["held_at"]),
        "explain": asked.get("explain") == "on",
        "projects": [project] if project else [known.name for known in await memory.projects.list()],
        "notes": (),
        "confident": True,
        "more": "",
        "relations": (),
        "ignores": False,
        "begins_later": "",
        "months": await _months(memory, scope) if not context.is_part(request) else (),
    }
    values |= await _found(memory, scope, values, asked.get("cursor") or None)
    return context.shown(request, "hits.html" if context.is_part(request) else "search.html", **values)


async def _found(memory: OpenMemory, scope: Scope, values: Mapping[str, Any], cursor: str | None) -> Mapping[str, Any]:
    """Return the hits of a question; without one what was believed at a time, or the newest memories."""
    found: dict[str, Any]
    instant, held_at, filters = None, "", values["filters"]
    with suppress(InputError):  # an unfinished date, as it is while somebody types it, is none
        instant = parse_until(values["as_of"], "as_of", memory.zone) if values["as_of"] else None
    with suppress(InputError):
        held_at = parse_range(filters["held_at"], "held_at", memory.zone) and filters["held_at"]
    if values["question"]:
        result = await memory.search(
            scope,
            values["question"],
            also=(values["also"],) if values["also"] else (),
            limit=SEARCH_LIMIT,
            max_tokens=MAX_TOKENS,
            filters=of_hits(filters),
            as_of=instant,
            held_at=held_at,
            explain=values["explain"],
            is_use=False,  # what somebody reads on the way to their question is no use of it
        )
        found = {
            "hits": shortest_passages(result.hits, values["question"]),
            "confident": not result.is_weak,
            "notes": result.notes,
            "relations": result.relation_lines,
        }
    elif instant is not None:
        before = context.number_in({"cursor": cursor}, "cursor")
        hits, before = await TimeLine(memory.engine).believed(scope, instant, SEARCH_LIMIT, before)
        found = {"hits": hits, "more": _more(values, before), "ignores": values["is_filtered"]}
    else:
        listed = await memory.list(scope, limit=SEARCH_LIMIT, cursor=cursor, filters=of_hits(filters), held_at=held_at)
        found = {"hits": listed.hits, "more": _more(values, listed.cursor), "notes": listed.notes}
    if instant is not None and not found["hits"]:
        first = await TimeLine(memory.engine).first_stored_on(scope)
        found["begins_later"] = str(first) if first is not None and first > instant.date() else ""
    return found


def _more(values: Mapping[str, Any], cursor: str | int | None) -> str:
    """Return the path of the next page of a list, "" if there is none."""
    if cursor is None:
        return ""
    asked = {"cursor": cursor, "as_of": values["as_of"], **values["filters"]}
    return "/?" + urlencode({name: value for name, value in asked.items() if value})


async def _months(memory: OpenMemory, scope: Scope) -> Sequence[Period]:
    """Return the last months in which something was stored, the newest first."""
    first = await TimeLine(memory.engine).first_stored_on(scope)
    *months, _ = _last("month", STRIP_MONTHS + 1, memory.engine.clock().date())
    return [] if first is None else [month for month in reversed(months) if month.end > first]


async def deleted(request: Request) -> Response:
    """List deleted and replaced memories, or deleted messages, the newest first."""
    memory, scope = await context.memory_of(request), context.scope_of(request)
    kind = "message" if request.query_params.get("kind") == "message" else "memory"
    listed = await memory.list(
        scope,
        limit=SEARCH_LIMIT,
        max_tokens=MAX_TOKENS,
        cursor=request.query_params.get("cursor") or None,
        deleted=True,
        filters={"kind": "message"} if kind == "message" else None,
    )
    return context.shown(request, "correct/deleted.html", listed=listed, kind=kind)


async def captured(request: Request) -> Response:
    """List what was recognized in conversations without a model and nobody has confirmed yet, the newest first."""
    found = await (await context.memory_of(request)).corrections.captured(context.scope_of(request), SEARCH_LIMIT + 1)
    has_more = len(found) > SEARCH_LIMIT
    return context.shown(request, "correct/captured.html", found=found[:SEARCH_LIMIT], has_more=has_more)
