"""Looking after an open memory: backups, export and import, purge, jobs, rebuild."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TextIO

from palimpsest.admin.backup import inspect_backup, restore
from palimpsest.admin.erase import PurgeResult, purge
from palimpsest.admin.export import export
from palimpsest.admin.import_file import ImportResult, plan_import, preview_import, run_import
from palimpsest.admin.importers.records import MAX_BYTES
from palimpsest.admin.markdown_files import FolderExport, export_folder
from palimpsest.admin.markdown_import import FolderImport, import_folder
from palimpsest.core.errors import GraphStoreError, InputError
from palimpsest.core.models import Scope
from palimpsest.core.protocols import Progress, unseen
from palimpsest.hooks.brief import Briefs
from palimpsest.hooks.intake import Capture
from palimpsest.index.backfill import Backfill, embed_gists, embed_relations
from palimpsest.index.graph_database import GraphProjection, graph_projection
from palimpsest.index.sync import KeptKeys, Projection
from palimpsest.learn import job_runner
from palimpsest.learn.engine import Engine
from palimpsest.store import contextual_keys, entries
from palimpsest.store import jobs as job_queries
from palimpsest.store import purge as purge_writes
from palimpsest.store.database import Restored
from palimpsest.store.jobs import ModelUse
from palimpsest.store.purge import PurgeSelection


@dataclass(frozen=True)
class Care:
    """What looks after an open memory, as `memory.care`. `scope` is that of the settings.

    Every method raises PalimpsestError.
    """

    _engine: Engine
    _projection: Projection
    _kept_keys: KeptKeys
    _scope: Scope
    _briefs: Briefs

    async def purge_selection(self, scope: Scope, owner_ids: Sequence[str] | None) -> PurgeSelection:
        """Return what `purge` would erase."""
        return await self._engine.read(lambda conn: purge_writes.purge_selection(conn, scope, owner_ids))

    async def purge(self, scope: Scope, owner_ids: Sequence[str] | None, *, and_backups: bool = False) -> PurgeResult:
        """Erase memories and messages for good; with None, all of a scope itself. Then search the files for traces.

        What hooks captured and nobody took in yet is erased like the rest.
        """
        await Capture(self._engine).empty_spool(scope if owner_ids is None else None)
        work = partial(purge, self._engine, self._projection, scope, owner_ids, and_backups=and_backups)
        try:
            result = await self._engine.run(work)
        finally:
            self._kept_keys.clear()
        try:
            if (graph := self._graph_database) is not None:
                await graph.catch_up()
        except GraphStoreError as error:
            return replace(result, notes=(*result.notes, f"the graph database may still show what was erased: {error}"))
        return result

    @property
    def _graph_database(self) -> GraphProjection | None:
        return graph_projection(self._engine.settings.graph_store, self._engine.ledger, self._engine.threads)

    async def export(self, out: Path | TextIO, progress: Progress, user_id: str | None = None) -> int:
        """Write everything of a user, by default the settings' user. Return the number of items."""
        return await self._engine.run(lambda: export(self._engine, user_id or self._scope.user_id, out, progress))

    async def restore(self, name: str) -> Restored:
        """Replace the ledger, which all users share, with a backup by its name, after a backup of the present one."""
        try:
            settings, clock = self._engine.settings, self._engine.clock
            return await self._engine.write(lambda: restore(settings, inspect_backup(settings, name).path, clock))
        finally:
            self._kept_keys.clear()
            self._briefs.wake()

    async def import_file(
        self, scope: Scope, file: Path, progress: Progress, *, dry_run: bool = False, max_bytes: int = MAX_BYTES
    ) -> ImportResult:
        """Import an export of Palimpsest or of another tool, each item once. With `dry_run` only return the counts.

        What was deleted or purged here since an earlier import stays away. A file of another tool has at most
        `max_bytes`, unpacked.
        """
        engine, work = self._engine, preview_import if dry_run else partial(run_import, progress=progress)
        try:
            return await self._engine.run(lambda: work(engine, scope, plan_import(engine, scope, file, max_bytes)))
        finally:
            self._briefs.wake()
            await job_runner.queue_expiry(engine)

    async def export_folder(self, folder: Path, progress: Progress, *, overwrites: bool = False) -> FolderExport:
        """Write the current memories of the settings' scope to a folder of Markdown files.

        With `overwrites` also over files of an earlier export that were edited since.
        """
        engine, scope = self._engine, self._scope
        return await engine.run(lambda: export_folder(engine.ledger, scope, folder, progress, overwrites=overwrites))

    async def import_folder(
        self, folder: Path, *, dry_run: bool = False, deletes: bool = False, caller: str = ""
    ) -> FolderImport:
        """Bring what was edited in an exported folder into the ledger, as one edit. With `dry_run` only say what.

        With `deletes` the memories are deleted whose items were removed.
        """
        result = await import_folder(self._engine, folder, dry_run=dry_run, deletes=deletes, caller=caller)
        notes = await self._briefs.after_write(self._scope.user_id, result.outcomes)
        return replace(result, notes=(*result.notes, *notes))

    async def jobs(self) -> Sequence[job_runner.JobReport]:
        """Return the jobs of the settings' user, the newest first."""
        return await job_runner.reports_of_user(self._engine, self._scope.user_id)

    async def model_use(self) -> ModelUse:
        """Return how often a model was asked in the background today (UTC), for all users."""
        return await self._engine.read(lambda conn: job_queries.model_use(conn, self._engine.clock()))

    async def enrich(self, limit: int | None = None, *, dry_run: bool = False) -> job_runner.Enrichment:
        """Let the background write hints for memories without any, at most `limit`; with `dry_run` count them."""
        return await job_runner.queue_enrichment(self._engine, self._scope, limit, dry_run=dry_run)

    async def retry_jobs(self) -> int:
        """Work now on the jobs of the settings' user that wait or have failed; return how many there were.

        What the background of this process works on is awaited; what another process works on is left to it.
        Raises InputError if nothing can be tried again because there is no model.
        """
        engine, user_id, model = self._engine, self._scope.user_id, self._engine.own_model
        retry, kinds = job_queries.retry, job_runner.kinds_for(model)
        jobs = await engine.write(lambda: engine.ledger.run_for(user_id, retry, user_id, kinds, engine.ledger.clock()))
        if not jobs and model is None:
            raise InputError("there is no language model, so nothing was tried again. palimpsest setup chooses one")
        after = self._briefs.after_work
        await job_runner.work_on_jobs(engine, model, lambda scope, outcomes: after(scope.user_id, outcomes))
        return jobs

    async def read_ledger(self) -> None:
        """Read a row of the ledger, which raises LedgerError if the ledger cannot be read now."""
        await self._engine.run(lambda: self._engine.ledger.id)

    async def waiting(self) -> int:
        """Return how many texts wait for a vector of this embedder, or for the rest of theirs."""
        embedder = self._engine.embedder.fingerprint
        return await self._engine.read(lambda conn: entries.count_missing_vectors(conn, embedder))

    async def rebuild(self, progress: Progress = unseen) -> tuple[int, int]:
        """Rebuild the full text and the vector index from the ledger; return how many rows each has."""
        ledger, embedder = self._engine.ledger, self._engine.embedder
        rows = await self._engine.run(lambda: ledger.run(contextual_keys.rebuild_full_text, ledger.full_text))
        await self._engine.run(lambda: Backfill(ledger, embedder).run(progress=progress))
        await self._engine.run(lambda: embed_gists(ledger, embedder) and embed_relations(ledger, embedder))
        return rows, await self._engine.run(lambda: self._projection.rebuild(progress))

    async def rebuild_graph(self, progress: Progress = unseen) -> tuple[str, int, int]:
        """Replace what a graph database shows of this ledger; return its address, and how many nodes and edges it has.

        Raises InputError if the settings name no graph database.
        """
        if (projection := self._graph_database) is None:
            raise InputError("the settings name no graph database (graph_store.provider). Nothing was rebuilt")
        nodes, edges = await projection.rebuild(progress)
        return projection.address, nodes, edges
