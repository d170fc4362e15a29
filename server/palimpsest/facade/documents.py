"""Documents of an open memory: learn files and folders, list what was learned, read and delete it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import anyio
from sqlalchemy import Connection

from palimpsest.core.clock import in_zone
from palimpsest.core.errors import EmbedderError, InputError, MemoryNotFoundError
from palimpsest.core.models import Decision, Event, Provenance, Scope
from palimpsest.core.protocols import Progress
from palimpsest.index.backfill import Backfill
from palimpsest.learn.apply import AfterWrite, LearnedDocument, WriteResult, apply_decisions
from palimpsest.learn.documents.folder import Skipped, documents_in
from palimpsest.learn.documents.learn import DocumentText, ReadDocument, learn_document
from palimpsest.learn.documents.readers.reading import read_file
from palimpsest.learn.engine import Engine
from palimpsest.store.queries import vectors as vector_queries
from palimpsest.store.views import documents as queries
from palimpsest.store.views.documents import Document, Page, kept_uri

FILE = "file://"
"""How the uri of a file begins. The path follows as it is, so that people can read it."""


@dataclass(frozen=True, slots=True)
class LearnedFolder:
    """What learning a folder did: its documents, what was skipped, and the documents whose files are gone."""

    learned: Sequence[LearnedDocument]
    skipped: Sequence[Skipped] = ()
    gone: Sequence[Document] = ()


class Documents:
    """The documents in a memory, as `memory.documents`. Every method raises PalimpsestError."""

    def __init__(self, engine: Engine, after_write: AfterWrite) -> None:
        self._engine = engine
        self._after_write = after_write

    async def learn_file(self, scope: Scope, file: Path, *, title: str = "", caller: str = "") -> LearnedDocument:
        """Keep a file as a document, or bring it up to date. Raises InputError if it cannot be read."""
        path = await anyio.Path(file).absolute()

        async def read() -> DocumentText:
            text = await read_file(Path(path))
            changed_at = datetime.fromtimestamp((await path.stat()).st_mtime, UTC)
            return DocumentText(f"{FILE}{path.as_posix()}", title or path.name, text, changed_at)

        try:
            return await self._learn(scope, read, caller)
        except InputError as error:
            raise InputError(f"{file}: {error}. Nothing of it was stored") from error
        except OSError as error:
            raise InputError(
                f"{file}: it cannot be read: {error.strerror or error}. Nothing of it was stored"
            ) from error

    async def learn_folder(self, scope: Scope, folder: Path, progress: Progress, *, caller: str = "") -> LearnedFolder:
        """Keep the files of a folder as documents. What cannot be read is skipped, and named with the reason."""
        root = Path(await anyio.Path(folder).absolute())
        contents = await self._engine.run(lambda: documents_in(root))
        learned: list[LearnedDocument] = []
        skipped = list(contents.skipped)
        for number, file in enumerate(contents.files, 1):
            name = file.relative_to(root).as_posix()
            try:
                learned.append(await self.learn_file(scope, file, title=name, caller=caller))
            except InputError as error:
                skipped.append(Skipped(name, str(error.__cause__ or error)))
            progress(number, len(contents.files))
        gone = await self._engine.run(lambda: self._gone(scope, root))
        return LearnedFolder(learned, skipped, gone)

    async def embed(self, progress: Progress) -> int:
        """Embed what waits for it, and return how many texts could not be embedded now."""
        engine = self._engine
        fingerprint = engine.embedder.fingerprint

        def waiting(conn: Connection) -> int:
            return vector_queries.count_missing_vectors(conn, fingerprint, only_failed=True)

        def work() -> int:
            backfill = Backfill(engine.ledger, engine.embedder, only_failed=True, in_background=False)

            def look() -> bool:
                with engine.ledger.read() as conn:
                    progress(total - waiting(conn), total)
                return False

            with engine.ledger.read() as conn:
                total = waiting(conn)
            try:
                backfill.run(look)
            except EmbedderError:
                with engine.ledger.read() as conn:
                    return waiting(conn)
            return 0

        return await engine.run(work)

    def _of_zone(self, document: Document) -> Document:
        return replace(document, learned_at=in_zone(document.learned_at, self._engine.clock().tzinfo))

    async def list(self, scope: Scope) -> Sequence[Document]:
        """Return the documents that the scope sees, the one that was learned last first."""
        found = await self._engine.read(lambda conn: queries.documents(conn, scope))
        return [self._of_zone(document) for document in found]

    async def pages(self, scope: Scope, document_id: str) -> tuple[Document, Sequence[Page]]:
        """Return a document, which is named by its id or the beginning of it, and its pages with their gists."""

        def read(conn: Connection) -> tuple[Document, Sequence[Page]]:
            found = queries.document(conn, scope, document_id)
            return self._of_zone(found), queries.pages(conn, scope, found)

        return await self._engine.read(read)

    async def page(self, scope: Scope, document_id: str, number: int) -> tuple[Document, Page]:
        """Return one page of a document. Raises MemoryNotFoundError if it has no such page."""

        def read(conn: Connection) -> tuple[Document, Page]:
            found = queries.document(conn, scope, document_id)
            for page in queries.pages(conn, scope, found, number):
                return found, page
            raise MemoryNotFoundError(f"'{found.title}' has {found.pages} pages, and no page {number}")

        return await self._engine.read(read)

    async def ids(self, scope: Scope, beginning: str, limit: int) -> Sequence[str]:
        """Return up to `limit` ids of documents that begin with a string, the newest first."""
        return await self._engine.read(lambda conn: queries.ids_beginning(conn, scope, beginning, limit))

    async def delete(self, scope: Scope, document_id: str, *, caller: str = "") -> tuple[Document, WriteResult]:
        """Delete the pages of a document. An undo brings them back."""
        found, pages = await self.pages(scope, document_id)
        decisions = [Decision(Event.DELETE, memory_id=page.message.id, kind="message") for page in pages]
        provenance = Provenance("delete document", caller=caller)
        deleting = apply_decisions(self._engine, scope, decisions, provenance)
        return found, await self._after_write(scope, deleting)

    async def _learn(self, scope: Scope, read: ReadDocument, caller: str) -> LearnedDocument:
        learned: list[LearnedDocument] = []

        async def write() -> WriteResult:
            learned.append(await learn_document(self._engine, scope, read, caller))
            return WriteResult()

        notes = (await self._after_write(scope, write())).notes
        return replace(learned[0], notes=(*learned[0].notes, *notes))

    def _gone(self, scope: Scope, root: Path) -> list[Document]:
        """Return the documents of files that lay in a folder and are there no more. Blocking."""
        with self._engine.ledger.read() as conn:
            known = queries.documents(conn, scope)
        below = f"{FILE}{root.as_posix().rstrip('/')}/"
        of_folder = [
            document for document in known if document.uri.startswith(below) and document.project == scope.project
        ]
        return [
            document
            for document in of_folder
            if kept_uri(document.uri) == document.uri and not Path(document.uri.removeprefix(FILE)).exists()
        ]
