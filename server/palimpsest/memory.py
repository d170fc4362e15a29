"""An open memory: the facade that the tools, the command line, the page and the library share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
from sqlalchemy import Connection

from palimpsest.core import models
from palimpsest.core.clock import Clock, TimeSpan, in_zone, now, parse_range
from palimpsest.core.models import SURE, Fact, Message, Relation, Scope, Version
from palimpsest.core.protocols import LanguageModel, ReportProgress
from palimpsest.core.settings import Settings, load_settings
from palimpsest.core.threads import Threads
from palimpsest.core.validation import MAX_TOKENS, bounded, held_from, in_order
from palimpsest.hooks.brief import Briefs
from palimpsest.hooks.intake import Capture, write_hook_settings
from palimpsest.index.sync import KeptKeys, Projection
from palimpsest.learn import add, browsing, document_pages, entity_graph, job_runner, reconcile
from palimpsest.learn import engine as adapters
from palimpsest.learn.background import BackgroundWork, OnLearned
from palimpsest.learn.commit import WriteResult
from palimpsest.learn.edit import Corrections, Edits
from palimpsest.learn.engine import Engine, ignore, reads
from palimpsest.learn.recall_log import FadingMemories, RecallLog
from palimpsest.learn.summaries import summary_writer
from palimpsest.recall.listing import ListRequest, Page, page
from palimpsest.recall.search import MAX_NEAR, SearchQuery, SearchResult, filter_notes, search, search_all_projects
from palimpsest.store import entries, history, links, projects
from palimpsest.store import memories as memory_queries
from palimpsest.store import messages as message_queries
from palimpsest.store.graph.entities import entities_named, namesakes
from palimpsest.store.ledger import open_ledger
from palimpsest.store.rows import is_seen
from palimpsest.text.names.known_names import name_beginnings

if TYPE_CHECKING:
    from palimpsest.admin.maintenance import Care

# Open the parts of a memory: the ledger, the embedder, the index, the model, the prompts. Blocking.


def open_parts(
    settings: Settings, clock: Clock, threads: Threads, *, background: bool
) -> tuple[Engine, Projection, KeptKeys]:
    """Return the parts of a memory, whose settings have the project that the ledger knows.

    With `background` it may learn after its calls. Raises PalimpsestError.
    """
    prompts = adapters.open_prompts(settings)
    zones = settings.zones
    ledger = open_ledger(settings.ledger_place, clock, settings.max_memories, data_dir=settings.data_dir, zones=zones)
    try:
        write_hook_settings(settings)
        settings = browsing.in_its_project(settings, ledger)
        embedder = adapters.open_embedder(settings)
        projection = adapters.open_projection(settings, ledger, embedder.fingerprint)
        index = KeptKeys(ledger, projection)
        engine = Engine(
            ledger,
            embedder,
            index,
            adapters.open_model(settings),
            prompts,
            zones.clock(clock, settings.user_id),
            threads,
            settings,
            has_background=background,
            reranker=adapters.open_reranker(settings),
        )
    except BaseException:
        ledger.close()
        raise
    return engine, projection, index


# How far relations may lead from the entities that a question names. What is further away seldom says anything of them,
# and with the first two there may be thousands.
MAX_HOPS = 2


class MemoryHistory(NamedTuple):
    """A memory as it is now, its versions, oldest first, what it replaced, and what it is linked with.

    `successor_deleted` is whether the memory that took its place was deleted.
    """

    memory: models.Memory
    versions: Sequence[Version]
    predecessors: Sequence[models.Predecessor]
    linked: Sequence[models.LinkedMemory]
    successor_deleted: bool = False


# The facade: `async with open_memory(settings) as memory`.
#
# All parts of a memory are built and connected here. The MCP tools and the command line only call this, and nothing
# else opens a ledger for them.

# How many worker threads do blocking work. The MCP transport has threads of its own.
THREADS = 8


# A search asks up to so many other projects, too: if it found no sure answer, and if it did. Each takes as long as a
# search.
MAX_PROJECTS_ASKED, MAX_PROJECTS_BESIDE = 30, 6

# How many hits are shown if another project has the answer and none here is likely, which is to say more probably about
# what is asked than not.
MAX_UNLIKELY, LIKELY = 2, 0.5


@dataclass(frozen=True)
class Memory(Edits):
    """A long-term memory: add, search, update, delete, undo. Open one with `open_memory`.

    Every method works in one scope and raises PalimpsestError. `caller` is who called, for the history.
    """

    engine: Engine
    projection: Projection
    kept_keys: KeptKeys
    background: BackgroundWork | None
    briefs: Briefs
    fading: FadingMemories
    recall_log: RecallLog

    @property
    def settings(self) -> Settings:
        """Return the settings, with the project that the ledger knows."""
        return self.engine.settings

    @property
    def scope(self) -> Scope:
        """Return the scope of the settings."""
        settings = self.settings
        return Scope(settings.user_id, settings.project, settings.agent_id, settings.run_id)

    @property
    def care(self) -> Care:
        """Return what looks after this memory: export and import, purge, jobs, rebuild."""
        from palimpsest.admin.maintenance import Care  # noqa: PLC0415 - most calls need nothing of it

        return Care(self.engine, self.projection, self.kept_keys, self.scope, self.briefs)

    @property
    def conversations(self) -> browsing.Conversations:
        """Return the conversations of this memory."""
        return browsing.Conversations(self.engine)

    @property
    def documents(self) -> document_pages.Documents:
        """Return the documents of this memory."""
        return document_pages.Documents(self.engine, self._after_write)

    @property
    def corrections(self) -> Corrections:
        """Return what corrects this memory."""
        return Corrections(self.engine, self._after_write)

    @property
    def graph(self) -> entity_graph.Graph:
        """Return the entities of this memory and the relations between them."""
        return entity_graph.Graph(self.engine)

    @property
    def capture(self) -> Capture:
        """Return what takes conversations of clients into this memory."""
        after_write = self.background.after_write if self.background else ignore
        return Capture(self.engine, after_write, self.briefs.note_pauses, self.fading.after_naming)

    @property
    def projects(self) -> browsing.Projects:
        """Return the projects of this memory's user: list, move, merge, and which one a folder is."""
        return browsing.Projects(self.engine)

    def for_call(
        self,
        report_progress: ReportProgress | None = None,
        model: LanguageModel | None = None,
        threads: Threads | None = None,
        user_id: str | None = None,
    ) -> Memory:
        """Return this memory for one call, which may report progress, use the client's model and threads of its own.

        With `user_id`, days are those of that user.
        """
        engine = replace(
            self.engine if user_id is None else self.engine.of_user(user_id),
            report_progress=report_progress or self.engine.report_progress,
            threads=threads or self.engine.threads,
        )
        if model is not None:
            engine = replace(engine, model=model, is_model_borrowed=True)
        return replace(self, engine=engine)

    async def add_messages(
        self,
        messages: Sequence[Message],
        *,
        context: Sequence[str] = (),
        infer: bool | None = None,
        caller: str = "",
        stays_in_project: bool = True,
    ) -> WriteResult:
        """Keep messages of one scope. With a model, learn facts from them unless `infer` is False.

        `context` is shown to the model, but no facts are learned from it. Unless it `stays_in_project`, what is about a
        person is stored for all projects.
        """
        lesson = add.Lesson(messages[0].scope, messages, context, caller, stays_in_project=stays_in_project)
        self.fading.after_naming(lesson.scope.user_id, *(message.content for message in messages))
        return await self._after_write(lesson.scope, add.add_messages(self.engine.answering, lesson, infer=infer))

    async def add_text(  # noqa: PLR0913 - options, passed by name
        self,
        scope: Scope,
        text: str,
        *,
        at: datetime | None = None,
        replaces: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        relations: Sequence[Relation] | None = None,
        hints: Sequence[str] = (),
        since: str = "",
        until: str = "",
        role: str = "",
        name: str = "",
        infer: bool | None = None,
        caller: str = "",
    ) -> WriteResult:
        """Store one fact in the caller's words. `replaces` are the ids of memories that it supersedes.

        `relations` are as `relations_from` returns them. If they are None, those of what it supersedes stay that hold
        on; with an empty list none do. `hints` are questions that it answers and other words for it, by which it is
        found. `since` and `until` are the times between which it holds, each a year, a month, a day or
        an instant in ISO 8601, and "" if not known. `at` is when it was said, by default now; "yesterday" counts from
        it. `role` and `name` are those of who said it. Several pages of text become a document.
        """
        fact = Fact(
            text,
            keywords=tuple(hints),
            actor_id=name,
            role=role,
            metadata=metadata or {},
            said_at=at,
            relations=tuple(relations or ()),
            **held_from(since, until, self.zone),
        )
        fact, clears = in_order(fact, self.zone), relations is not None and not relations
        adding = add.add_text(
            self.engine.answering, scope, fact, replaces=replaces, infer=infer, caller=caller, sets_relations=clears
        )
        return await self._after_write(scope, adding)

    async def home_of(
        self, scope: Scope, text: str, relations: Sequence[Relation] = (), replaces: Sequence[str] = ()
    ) -> Scope:
        """Return where a text belongs that is told in a project: what is about a person, outside of the project."""
        return await reconcile.home_of(self.engine, scope, Fact(text, relations=tuple(relations)), replaces)

    async def search(  # noqa: PLR0913 - options, passed by name
        self,
        scope: Scope,
        query: str,
        *,
        also: Sequence[str] = (),
        limit: int = 10,
        max_tokens: int = 800,
        filters: Mapping[str, Any] | None = None,
        as_of: datetime | None = None,
        held_at: str = "",
        explain: bool = False,
        all_projects: bool = False,
        hops: int = 1,
        is_use: bool = True,
        caller: str = "",
    ) -> SearchResult:
        """Search by meaning and by words. `as_of` searches what was believed at that instant.

        `held_at` asks for what held in the world then: a day, a month, a year, or two with a "/" between.
        `also` are other wordings of the query, one of them perhaps the sentence as it may be stored.

        `explain` adds the parts of each score. `all_projects` searches every project of the user. `hops`: 1 or 2.
        Unless it `is_use`, it does not count for what fades, and the recall log does not name it.
        """
        bounded("hops", hops, 0, MAX_HOPS)
        now, fading = self.engine.clock(), self.fading
        request = SearchQuery(
            scope,
            query,
            now,
            limit,
            max_tokens,
            filters or {},
            as_of=as_of and in_zone(as_of, now.tzinfo),
            explain=explain,
            min_score=self.settings.min_score,
            hops=hops,
            forgetting=fading.forgetting,
            follows_links=self.settings.links == "on",
            also=tuple(also),
            held_at=self._span(held_at),
        )

        def search_project() -> SearchResult:
            found, deleted = search(self.engine, request), False if as_of is None else None
            notes = filter_notes(self.engine.ledger, scope, request.filters, found.hits, deleted=deleted)
            return replace(found, notes=(*found.notes, *notes))

        search_all = partial(search_all_projects, self.engine, request)
        result = await self.engine.run(search_all if all_projects else search_project)
        result = replace(result, hits=tuple(hit.in_zone(now.tzinfo) for hit in result.hits))
        if is_use and as_of is None:
            asked = " / ".join((query, *also))
            self.recall_log.note(scope, asked, [hit.id for hit in result.hits], caller, all_projects=all_projects)
            fading.after_search(result)
        if self.background is not None and self.projection.is_behind():
            self.background.wake()
        return result

    async def with_other_projects(self, scope: Scope, query: str, result: SearchResult, **options: Any) -> SearchResult:
        """Return a result with the other projects of the user whose own best hit is surely better than all its hits.

        It has at most half the doubt of those. What is of no project is ranked again beside it, in a search of its
        project. The options are those of the search: `also`, `filters`, `as_of` and `held_at`. If another project has
        the answer, few hits of a weak result are kept.
        """
        here = result.hits
        known = {*await self.engine.read(lambda conn: projects.project_names(conn, scope.user_id))}
        others, is_sure = sorted(known - {"", scope.project}), any(hit.score >= SURE for hit in here)
        if len(others) > (MAX_PROJECTS_BESIDE if is_sure else MAX_PROJECTS_ASKED):
            return result
        quick = replace(self, engine=replace(self.engine, reranker=None))  # which takes seconds for each project
        own = [hit for hit in here if hit.project]
        answering = list[str]()
        for name in others:
            asked = replace(scope, project=name, agent_id="", run_id="")
            found = await quick.search(asked, query, is_use=False, max_tokens=MAX_TOKENS, **options)
            beside = [*own, *(hit for hit in found.hits if hit.project != name)]
            its = () if found.is_weak else (hit for hit in found.hits if hit.project == name and not hit.is_forgotten)
            rival = min(max((hit.score for hit in hits), default=0.0) for hits in (here, beside))
            least = max(SURE, (1 + rival) / 2)
            if any(hit.score >= least for hit in its):
                answering.append(name)
        result = replace(result, elsewhere=tuple(answering))
        is_weak = result.is_weak or (not result.shows_all and all(hit.score < LIKELY for hit in here))
        return replace(result, hits=here[:MAX_UNLIKELY], confident=False) if answering and is_weak else result

    async def namesake_notes(self, scope: Scope, query: str, hits: Sequence[models.Hit]) -> list[str]:
        """Return the note on people whom a query may mean by a first name, and of whom no hit tells."""
        called, shown = name_beginnings(query), models.plain_name(" ".join(hit.text for hit in hits))
        people = await self.engine.read(lambda conn: namesakes(conn, scope, called)) if called else ()
        others = sorted((each.name, each.project) for each in people if models.name_key(each.name) not in shown)
        names = ", ".join(f"{name} (project {project})" if project else name for name, project in others)
        return [f"also of that name: {names}"] if 0 < len(others) <= MAX_NEAR else []

    async def projects_that_know(self, scope: Scope, name: str) -> tuple[str, ...]:
        """Return the other projects of the user in which a name is known."""

        def known(conn: Connection) -> tuple[str, ...]:
            others = {*projects.project_names(conn, scope.user_id)} - {"", scope.project}
            return tuple(each for each in sorted(others) if entities_named(conn, replace(scope, project=each), [name]))

        return await self.engine.read(known)

    async def list(
        self,
        scope: Scope,
        *,
        limit: int = 20,
        max_tokens: int = MAX_TOKENS,
        cursor: str | None = None,
        deleted: bool = False,
        filters: Mapping[str, Any] | None = None,
        held_at: str = "",
    ) -> Page:
        """Return a page of memories, newest first; with `held_at`, as in `search`, those that held then."""
        ledger, span = self.engine.ledger, self._span(held_at)
        request = ListRequest(scope, limit, max_tokens, cursor, deleted, filters, self.fading.forgetting, span)

        def read() -> Page:
            found = page(ledger, request)
            notes = filter_notes(ledger, scope, filters, found.hits, deleted=deleted)
            shown = tuple(hit.in_zone(self.zone) for hit in found.hits)
            return replace(found, hits=shown, notes=(*found.notes, *notes))

        return await self.engine.run(read)

    async def ids(self, scope: Scope, beginning: str, limit: int) -> Sequence[str]:
        """Return up to `limit` ids of memories that begin with a string, the newest memory first."""
        return await self.engine.read(lambda conn: entries.ids_beginning(conn, scope, beginning, limit))

    async def log(self, scope: Scope, *, limit: int = 20, before: int | None = None) -> Sequence[models.Edit]:
        """Return up to `limit` edits, newest first; only those before edit number `before`, if given."""
        found = await self.engine.read(lambda conn: history.edits(conn, scope, limit, before))
        return [each.in_zone(self.zone) for each in found]

    async def summary(
        self, scope: Scope, kind: str = "overall", *, refresh: bool = False, held_at: str = "", caller: str = ""
    ) -> summary_writer.SummaryResult:
        """Return a summary of what is known in the scope; with `held_at`, as in `search`, of what held then."""
        span = self._span(held_at)
        if self.engine.is_model_borrowed and not refresh:
            refresh = await summary_writer.missed_changes(self.engine, scope, kind) >= self.settings.summary.every
        return await summary_writer.get_summary(
            self.engine.answering, scope, kind, refresh=refresh, caller=caller, held_at=span
        )

    def _span(self, held_at: str) -> TimeSpan | None:
        return parse_range(held_at, "held_at", self.zone) if held_at else None

    async def get(self, scope: Scope, owner_id: str, *, is_use: bool = True) -> models.Memory | Message:
        """Return a memory or message, living or deleted, with its whole text unless a fact of it is forgotten."""
        owner = await self.engine.read(lambda conn: entries.find_shown(conn, scope, owner_id))
        if is_use:
            self.fading.after_naming(scope.user_id, owner.id)
        return owner.in_zone(self.zone)

    @reads
    def sources(self, conn: Connection, scope: Scope, memory_id: str) -> Sequence[Message]:
        """Return the messages behind a memory, oldest first, each with its text as `get` returns it."""
        memory = entries.find_memory(conn, scope, memory_id)
        behind = message_queries.sources_of(conn, [memory.id]).get(memory.id, ())
        return [entries.shown(conn, message).in_zone(self.zone) for message in behind]

    @reads
    def history(self, conn: Connection, scope: Scope, memory_id: str) -> MemoryHistory:
        """Return a memory, living or deleted, and how it came to be what it is, as far as the scope sees it."""
        memory = entries.find_memory(conn, scope, memory_id).in_zone(self.zone)
        replaced = [
            replace(each, memory=each.memory.in_zone(self.zone))
            for each in history.predecessors(conn, memory.id)
            if is_seen(scope, each.memory.scope)
        ]
        versions = [version.in_zone(self.zone) for version in history.versions_of(conn, memory.id)]
        successors = memory_queries.memories_by_id(conn, [memory.superseded_by or ""]).values()
        successor_deleted = any(successor.is_forgotten for successor in successors)
        return MemoryHistory(memory, versions, replaced, links.linked_with(conn, scope, memory), successor_deleted)

    async def health(self) -> dict[str, str]:
        """Return the state of the ledger, the vectors, the index and a graph database, in one word each."""
        from palimpsest.admin.doctor import health  # noqa: PLC0415 - as in `care`

        graph = self.background and self.background.graph
        return await self.engine.run(lambda: health(self.engine, self.projection.state, graph and graph.state))

    async def news(self, scope: Scope) -> tuple[str, ...]:
        """Return notes on the project and on what was learned, each once: the next call does not return them."""
        on_project = await self.projects.news(scope)
        if self.background is None:
            return on_project
        unreported = await job_runner.unreported(self.engine, scope)
        return (*on_project, *self.background.report(unreported))

    async def _after_write(self, scope: Scope, write: Awaitable[WriteResult]) -> WriteResult:
        """Await a write, start the background work that follows it, and return its result."""
        result = _shown_in(await write, self.zone)
        self.fading.after_write(scope.user_id, result.outcomes)
        notes = await self.briefs.after_write(scope.user_id, result.outcomes)
        if self.background is not None:
            # What the server keeps of a project rests on all that belongs to it.
            await self.background.after_write(replace(scope, with_general=True))
        return replace(result, notes=(*result.notes, *notes)) if notes else result


def _shown_in(result: WriteResult, zone: tzinfo) -> WriteResult:
    """Return what a write did with the times of its memories as times of a zone."""
    outcomes = tuple(replace(outcome, memory=outcome.memory.in_zone(zone)) for outcome in result.outcomes)
    similar = {
        owner: [replace(item, memory=item.memory.in_zone(zone)) for item in found]
        for owner, found in result.similar.items()
    }
    return replace(result, outcomes=outcomes, similar=similar)


@asynccontextmanager
async def open_memory(
    settings: Settings | None = None, *, clock: Clock = now, background: bool = True, on_learned: OnLearned = ignore
) -> AsyncGenerator[Memory]:
    """Open the ledger, the embedder, the index and the model, and close them at the end.

    Without `settings`, they are those of the server and the command line.
    With `background` the vector index is opened and kept up to date in the background. Without it, searches read the
    vectors in the ledger, which suits a process that makes a single call. `on_learned` is awaited with what was
    learned in the background. Raises PalimpsestError.
    """
    threads = Threads((anyio.CapacityLimiter(THREADS),), (anyio.CapacityLimiter(1),))
    opening = partial(open_parts, settings or load_settings(), clock, threads, background=background)
    engine, projection, kept_keys = await threads.run(opening)
    recall_log = RecallLog(engine)
    fading = FadingMemories(engine, recall_log)
    briefs = Briefs(engine.settings, engine, recall_log)
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks:
            work = BackgroundWork(engine, projection, tasks, briefs.before(on_learned)) if background else None
            opened = Memory(engine, projection, kept_keys, work, briefs, fading, recall_log)
            for each in (work, opened.capture, briefs, fading) if work else ():
                tasks.start_soon(each.run)
            try:
                yield opened
            except Exception as error:  # noqa: BLE001 - raised again below, without the task group's wrapping
                failure = error
            finally:
                projection.stop()
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
    finally:
        with anyio.CancelScope(shield=True):
            await fading.write()
            await threads.run(projection.close)
            if engine.model is not None:
                await engine.model.aclose()
            engine.ledger.close()
