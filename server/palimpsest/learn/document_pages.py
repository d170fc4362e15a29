"""Learn documents as pages: split them, keep gists, and read folders."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from sqlalchemy import Connection

from palimpsest.core import errors
from palimpsest.core.clock import times_in_zone
from palimpsest.core.models import PAGE, Decision, Event, Message, Provenance, Scope
from palimpsest.core.protocols import LanguageModel, Progress, Vector
from palimpsest.core.validation import trimmed
from palimpsest.index.backfill import Backfill
from palimpsest.learn.commit import LearnedDocument, WriteResult, Writing, apply_write, embed_texts
from palimpsest.learn.engine import Engine, reads
from palimpsest.learn.readers import MARKUP, MAX_BYTES, TEXT, read_file
from palimpsest.learn.sanitize import Cleaner
from palimpsest.learn.summaries.extractive import Passage, most_telling
from palimpsest.llm.summarize import pauses, write_gist
from palimpsest.store import documents, messages
from palimpsest.store import entries as entry_queries
from palimpsest.store.apply import Write
from palimpsest.store.documents import CLIENT, Document, Gist, PagesRead, PageWithGist, external_id, kept_uri
from palimpsest.store.jobs import Job, JobEnd, JobRequest
from palimpsest.store.rows import content_hash
from palimpsest.store.writes import Conversation, session_id_of
from palimpsest.text.display import shorten, shorten_to_tokens
from palimpsest.text.tokenizer import count_words, sentences
from palimpsest.text.word_lists import LazyPattern

if TYPE_CHECKING:
    import re

    from pathspec import GitIgnoreSpec

logger = logging.getLogger(__name__)

# Split a text into pages at natural breaks, as in ReadAgent (Lee et al. 2024, section 3.1), without a model.
#
# A page ends before a heading if it can, else after a paragraph, else after a sentence. Code blocks and tables stay
# whole if they fit a page. Pure: the same text always has the same pages, and joined they are the text.

# How many words a page has at most. The same as in ReadAgent, and what a search can show whole.
MAX_WORDS = 600

# A fenced block of code, in which nothing is a heading, or a heading: a line of `#`, or one that is underlined.
_HEADING = LazyPattern(
    r"(?m)^(?P<fence>`{3,}|~{3,})(?s:.*?)(?:^(?P=fence)[`~]*[ \t]*$|\Z)"
    r"|^(?P<level>#{1,6})(?!\S)(?P<title>.*)"
    r"|(?<![^\n]\n)^(?P<underlined>(?=[^\w\n]*\w).*)\n(?P<line>=|-|~|\^|\*|\+)(?P=line){2,}[ \t]*$"
)
# A text is split in such stretches, each up to a heading or the end of a line if possible: the library's time grows
# with the square of the length.
_STRETCH = LazyPattern(r"(?s).{1,40000}(?:\Z|(?<=\n)(?=#))|.{1,40000}(?<=\n)|.{1,40000}")
_PARAGRAPH = LazyPattern(r"(?s)\S.*?(?=\n[ \t]*\n|\Z)")


def split(text: str, begins: Iterable[int] = ()) -> list[str]:
    """Return the pages of a text, in order. A page also ends before each of the places in `begins`, in order."""
    from semantic_text_splitter import MarkdownSplitter  # noqa: PLC0415 - only documents need it

    splitter = MarkdownSplitter.from_callback(lambda part: math.ceil(count_words(part)), MAX_WORDS, trim=False)
    passages = (text[start:end] for start, end in pairwise((0, *begins, len(text))))
    return [page for passage in passages for stretch in _STRETCH.findall(passage) for page in splitter.chunks(stretch)]


def long_sections(text: str) -> list[list[tuple[int, str]]]:
    """Return the paragraphs of each section longer than a page that no heading divides, each with its place."""
    starts = (0, *(heading.start() for heading in _headings(text)), len(text))
    return [
        [(found.start(), found[0]) for found in _PARAGRAPH.finditer(text, start, end)]
        for start, end in pairwise(starts)
        if count_words(text[start:end]) > MAX_WORDS
    ]


def _headings(text: str) -> Iterator[re.Match[str]]:
    return (found for found in _HEADING.finditer(text) if found["fence"] is None)


def _title(heading: re.Match[str]) -> str:
    return (heading["underlined"] or heading["title"]).strip().strip("#").strip()


def trails(pages: Sequence[str]) -> list[tuple[str, ...]]:
    """Return for each page the headings that it stands under, the highest first, with those that it begins with."""
    found: list[tuple[str, ...]] = []
    above: dict[int, str] = {}
    for page in pages:
        trail, end = above, 0
        for heading in _headings(page):
            level = len(heading["level"] or "") or (1 if heading["line"] == "=" else 2)
            above = {**{each: title for each, title in above.items() if each < level}, level: _title(heading)}
            if not page[end : heading.start()].strip():
                trail, end = above, heading.end()
        found.append(tuple(title for title in trail.values() if title))
    return found


def first_heading(text: str) -> str:
    """Return the first heading of a text, or without one its first line that shows something."""
    lines = (line.strip() for line in text.splitlines())
    return next((title for title in chain((_title(heading) for heading in _headings(text)), lines) if title), "")


# The gist of each page: its most central sentences at once, and what a model writes of it later, in the background.

# How long a gist without a model is: two or three sentences, a tenth of a page.
GIST_TOKENS = 80

# A shorter line says too little by itself: shorter are list items and captions.
MIN_SENTENCE_CHARS = 20

# After so many pages other jobs have their turn: less than a minute of a model.
PAGES_AT_ONCE = 10

# A line break within a paragraph, which ends no sentence.
_WRAP = LazyPattern(r"(?<=[^\n])\n(?=[^\s#|>`*+\-\d])")

TRAIL = " › "  # noqa: RUF001 - the sign between headings


def plain_gist(page: str, headings: Sequence[str]) -> Gist:
    """Return the headings that a page stands under and its most central sentences, in their order, without a model."""
    lines = [" ".join(sentence.split()) for sentence in sentences(_WRAP.sub(" ", page))]
    told = [line for line in lines if len(line) >= MIN_SENTENCE_CHARS and not line.startswith(("#", "|", "```"))]
    chosen = sorted(most_telling([Passage(line) for line in told], GIST_TOKENS))
    # A poem, a table, a chat of short lines have no sentence that says enough: their beginning does.
    text = " ".join(told[place] for place in chosen) or shorten_to_tokens(" ".join(page.split()), GIST_TOKENS)
    return Gist(": ".join(filter(None, (TRAIL.join(headings), text))))


async def write_gists(engine: Engine, model: LanguageModel, job: Job) -> JobEnd:
    """Write the gists of the pages of a job that no model has written yet, a few of them at once.

    Raises ModelError and PromptError; what is written is kept.
    """
    waiting = await engine.read(lambda conn: _waiting(conn, job))
    prompt = engine.prompts.get("gist")
    for page, title, headings in waiting[:PAGES_AT_ONCE]:
        text = await write_gist(model, prompt, title=title, headings=headings, page=page.content)
        gist = Gist(text, model.name, prompt.fingerprint)
        vectors, _ = await embed_texts(engine, [text])  # what cannot be embedded now waits for the background
        made_by = Provenance("gist", model.name, prompt.fingerprint)
        await apply_write(engine, Write(page.scope, made_by, gists={page.id: gist}, vectors=vectors))
    return JobEnd(is_unfinished=len(waiting) > PAGES_AT_ONCE)


def _waiting(conn: Connection, job: Job) -> list[tuple[Message, str, Sequence[str]]]:
    """Return the living pages of a job that no model wrote a gist of, with their titles and headings."""
    known = documents.of_pages(conn, job.message_ids)
    without = [page for page in job.message_ids if page not in known or not known[page].model]
    found = messages.messages_by_id(conn, without)
    places = documents.places(conn, without)
    living = [found[page] for page in without if page in found and found[page].deleted_at is None]
    return [(page, places[page.id].title, trails([page.content])[0]) for page in living if page.role == PAGE]


# Find the documents in a folder. What is not one is named, with the reason.

# More documents are refused: whoever has more names a folder within.
MAX_FILES = 5_000

IGNORE_FILE = ".gitignore"

CONVERSATIONS = frozenset({".json", ".jsonl", ".ndjson"})


@dataclass(frozen=True, slots=True)
class Skipped:
    """What is not learned from, and why."""

    path: str
    reason: str


def documents_in(folder: Path) -> tuple[list[Path], list[Skipped]]:
    """Return the documents in a folder and the folders in it, in the order of their names, and what was skipped.

    Links are not followed, and hidden files are not named. Raises InputError for a folder that cannot be read, or that
    has too many. Blocking.
    """
    files: list[Path] = []
    skipped: list[Skipped] = []
    waiting: list[tuple[Path, tuple[tuple[Path, GitIgnoreSpec], ...]]] = [(folder, ())]
    while waiting:
        place, ignored = waiting.pop()
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError as error:
            if place == folder:
                raise errors.InputError(f"{folder} cannot be read: {error.strerror}. Nothing was stored") from error
            skipped.append(Skipped(place.relative_to(folder).as_posix(), f"cannot be read: {error.strerror}"))
            continue
        ignored = (*ignored, *_ignored_in(place, entries))
        folders: list[Path] = []
        for entry in (each for each in entries if not each.name.startswith(".")):
            path = Path(entry.path)
            if reason := _reason(entry, ignored):
                skipped.append(Skipped(path.relative_to(folder).as_posix(), reason))
            elif entry.is_dir(follow_symlinks=False):
                folders.append(path)
            else:
                files.append(path)
        waiting += [(path, ignored) for path in reversed(folders)]
        if len(files) > MAX_FILES:
            raise errors.InputError(
                f"{folder} has more than {MAX_FILES:,} documents. Name a folder in it. Nothing was stored"
            )
    return files, skipped


def _ignored_in(place: Path, entries: Sequence[os.DirEntry[str]]) -> Iterator[tuple[Path, GitIgnoreSpec]]:
    """Yield what the file `.gitignore` of a folder says, if it has one that can be read."""
    for entry in entries:
        if entry.name == IGNORE_FILE and entry.is_file(follow_symlinks=False) and entry.stat().st_size <= MAX_BYTES:
            lines = Path(entry.path).read_text("utf-8", "replace").splitlines()
            from pathspec import GitIgnoreSpec  # noqa: PLC0415 - only folders need it

            yield place, GitIgnoreSpec.from_lines(lines)


def _reason(entry: os.DirEntry[str], ignored: Sequence[tuple[Path, GitIgnoreSpec]]) -> str:
    """Return why an entry of a folder is skipped, or "" if it is not."""
    is_folder = entry.is_dir(follow_symlinks=False)
    suffix = Path(entry.name).suffix.lower()
    if entry.is_symlink():
        return "a link, which is not followed"
    end = "/" if is_folder else ""
    if any(spec.match_file(f"{Path(entry.path).relative_to(base).as_posix()}{end}") for base, spec in ignored):
        return "ignored by .gitignore"
    if is_folder:
        return ""
    if suffix in CONVERSATIONS:
        return "may be a conversation; name the file itself to learn from it"
    is_document = suffix in TEXT | MARKUP and entry.is_file(follow_symlinks=False)
    return "" if is_document else f"not a document ({suffix or 'no suffix'})"


# Keep a document as pages, each a message, and bring the pages of one that has changed up to date.
#
# A page with the same text at the same place stays as it is. The others are added and deleted in one edit, so an
# undo takes the whole learning back, and the pages of before stay in the history.

# How much of its first line titles a text that has no name: a line of a list.
MAX_TITLE_CHARS = 80


@dataclass(frozen=True, slots=True)
class DocumentText:
    """A document that is to be kept: where it comes from, what it is called, its text and the date of it."""

    uri: str
    title: str
    text: str
    at: datetime


def is_long(text: str) -> bool:
    """Return whether a text is too long for a memory, and so a document."""
    return count_words(text) > MAX_WORDS


def text_document(text: str, at: datetime) -> DocumentText:
    """Return a text that has no name as a document. The same text always has the same uri."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    return DocumentText(f"text:{digest}", shorten(first_heading(text), MAX_TITLE_CHARS), text, at)


async def learn_document(engine: Engine, scope: Scope, text: DocumentText, caller: str) -> LearnedDocument:
    """Keep a document, or bring it up to date. Raises InputError if it has no text, and LedgerError.

    Raises StaleDecisionError if another process learns it at the same moment.
    """
    cleaner = Cleaner(engine)

    def cleaned() -> DocumentText:
        uri, title, whole = map(cleaner.text, (text.uri, text.title, text.text))
        return DocumentText(kept_uri(uri), title, whole, text.at)

    clean = await engine.run(cleaned)
    parts = await _pages(engine, scope, clean)
    learned, write = await engine.run(partial(_plan, engine, scope, clean, caller, parts))
    if learned.is_unchanged:
        return learned
    vectors, on_embedding = await embed_texts(engine, [page.content for page in write.messages], write.vectors)
    applied = await apply_write(engine, replace(write, vectors=vectors))
    document_id = applied.messages[0].session_id if applied.messages else learned.id
    return replace(learned, id=document_id, notes=(*cleaner.notes(), *on_embedding, *applied.notes))


# Of a longer run without headings only so many parts are shown to a model at once: ten thousand tokens.
MAX_PARTS = 250


async def _pages(engine: Engine, scope: Scope, source: DocumentText) -> list[str]:
    """Return the pages of a document. A model says where a long run without headings pauses; if it fails, nothing does.

    A text that is stored already keeps its pages, because a model may divide it otherwise each time.
    """
    model, text = engine.answering.own_model, source.text
    sections = await engine.run(lambda: long_sections(text)) if model is not None else []
    if model is None or not sections:
        return await engine.run(lambda: split(text))
    stored = await engine.read(lambda conn: _stored_pages(conn, scope, source.uri))
    if "".join("".join(stored).split()) == "".join(text.split()):
        return stored
    begins: list[int] = []
    runs = [section[at : at + MAX_PARTS] for section in sections for at in range(0, len(section), MAX_PARTS)]
    for parts in runs:
        shown = [(round(count_words(part)), part) for _, part in parts]
        try:
            found = await pauses(model, engine.prompts.get("pauses"), title=source.title, parts=shown)
        except (errors.ModelError, errors.PromptError) as error:
            logger.warning("pages end where they are full, because no model said where the text pauses: %s", error)
            break
        begins += [parts[number][0] for number in found]
    return await engine.run(lambda: split(text, begins))


def _stored_pages(conn: Connection, scope: Scope, uri: str) -> list[str]:
    """Return the texts of the living pages of a document, in order."""
    living = [page for page in documents.pages_of_uri(conn, scope, uri) if not page.is_deleted]
    known = messages.messages_by_id(conn, [page.id for page in living])
    return [known[page.id].content for page in sorted(living, key=lambda page: page.number) if page.id in known]


def _plan(
    engine: Engine, scope: Scope, source: DocumentText, caller: str, parts: Sequence[str]
) -> tuple[LearnedDocument, Write]:
    """Return what a document will be in parts, and the write that makes it so. Blocking.

    The vectors and gists of texts that stood at another place before are used again. Raises InputError if it has no
    text.
    """
    uri, title = source.uri, source.title
    headings = {trimmed(part): trail for part, trail in zip(parts, trails(parts), strict=True)}
    texts = [text for part in parts if (text := trimmed(part))]
    if not texts:
        raise errors.InputError("it has no text")
    wanted = [(number, content_hash(text), text) for number, text in enumerate(texts, 1)]
    with engine.ledger.read() as conn:
        stored = documents.pages_of_uri(conn, scope, uri)
        same = {(page.number, page.digest): page for page in reversed(stored)}
        before = {page.digest: page.id for page in reversed(stored)}
        missing = [each for each in wanted if each[:2] not in same]
        owners = [before[digest] for _, digest, _ in missing if digest in before]
        vectors = entry_queries.own_vectors(conn, engine.embedder.fingerprint, "message", owners)
        told = documents.of_pages(conn, owners)
    now = engine.clock()
    new: list[Message] = []
    gists: dict[str, Gist] = {}
    known: dict[str, Vector] = {}
    for number, digest, text in missing:
        page = Message(str(uuid.uuid4()), scope, PAGE, text, source.at, now, external_id=external_id(uri, number))
        new.append(page)
        old = before.get(digest, "")
        gists[page.id] = told.get(old) or plain_gist(text, headings[text])
        known |= {text: vectors[old]} if old in vectors else {}
    kept = [same[each[:2]] for each in wanted if each[:2] in same]
    kept_ids = {page.id for page in kept}
    deleted = [page.id for page in stored if not page.is_deleted and page.id not in kept_ids]
    restored = [page.id for page in kept if page.is_deleted]
    events = {Event.DELETE: deleted, Event.ADD: restored}
    asks_model = engine.model is not None and not engine.is_model_borrowed
    write = Write(
        scope,
        Provenance("learn document", caller=caller),
        tuple(new),
        Conversation(CLIENT, uri, title),
        tuple(Decision(event, memory_id=page, kind="message") for event, pages in events.items() for page in pages),
        vectors=known,
        gists=gists,
        pages_read=PagesRead(uri, frozenset(stored)),
        later=(JobRequest("gist", "messages"),) if asks_model else (),
    )
    document_id, added = session_id_of(scope, CLIENT, uri), len(new) + len(restored)
    return LearnedDocument(document_id, title, uri, len(texts), added, len(deleted)), write


# Documents of an open memory: learn files and folders, list what was learned, read and delete it.

# How the uri of a file begins. The path follows as it is, so that people can read it.
FILE = "file://"


@dataclass(frozen=True, slots=True)
class LearnedFolder:
    """What learning a folder did: its documents, and what was skipped."""

    learned: Sequence[LearnedDocument]
    skipped: Sequence[Skipped] = ()


class Documents(Writing):
    """The documents in a memory, as `memory.documents`. Every method raises PalimpsestError."""

    async def learn_file(self, scope: Scope, file: Path, *, title: str = "", caller: str = "") -> LearnedDocument:
        """Keep a file as a document, or bring it up to date. Raises InputError if it cannot be read."""
        path = await anyio.Path(file).absolute()
        failures = (errors.InputError, errors.StaleDecisionError, OSError)
        with errors.raised_as(errors.InputError, f"{file}", ". Nothing of it was stored", *failures):
            text = await read_file(Path(path))
            changed_at = datetime.fromtimestamp((await path.stat()).st_mtime, UTC)
            source = DocumentText(f"{FILE}{path.as_posix()}", title or path.name, text, changed_at)
            learned: list[LearnedDocument] = []

            async def write() -> WriteResult:
                learned.append(await learn_document(self.engine, scope, source, caller))
                return WriteResult()

            notes = (await self._after_write(scope, write())).notes
            return replace(learned[0], notes=(*learned[0].notes, *notes))

    async def learn_folder(self, scope: Scope, folder: Path, progress: Progress, *, caller: str = "") -> LearnedFolder:
        """Keep the files of a folder as documents. What cannot be read is skipped, and named with the reason."""
        root = Path(await anyio.Path(folder).absolute())
        files, skipped = await self.engine.run(lambda: documents_in(root))
        learned: list[LearnedDocument] = []
        for number, file in enumerate(files, 1):
            name = file.relative_to(root).as_posix()
            try:
                learned.append(await self.learn_file(scope, file, title=name, caller=caller))
            except errors.InputError as error:
                skipped.append(Skipped(name, str(error.__cause__ or error)))
            progress(number, len(files))
        return LearnedFolder(learned, skipped)

    async def embed(self, progress: Progress) -> int:
        """Embed what waits for it, and return how many texts could not be embedded now."""
        ledger, embedder = self.engine.ledger, self.engine.embedder
        backfill = Backfill(ledger, embedder, only_failed=True, in_background=False)
        try:
            await self.engine.run(lambda: backfill.run(progress=progress))
        except errors.EmbedderError:
            return await self.engine.read(
                lambda conn: entry_queries.count_missing_vectors(conn, embedder.fingerprint, only_failed=True)
            )
        return 0

    @reads
    def list(self, conn: Connection, scope: Scope) -> Sequence[Document]:
        """Return the documents that the scope sees, the one that was learned last first."""
        return [times_in_zone(document, self.zone, "learned_at") for document in documents.documents(conn, scope)]

    @reads
    def pages(self, conn: Connection, scope: Scope, document_id: str) -> tuple[Document, Sequence[PageWithGist]]:
        """Return a document, which is named by its id or the beginning of it, and its pages with their gists."""
        found = documents.document(conn, scope, document_id)
        return times_in_zone(found, self.zone, "learned_at"), documents.pages(conn, scope, found)

    @reads
    def page(self, conn: Connection, scope: Scope, document_id: str, number: int) -> tuple[Document, PageWithGist]:
        """Return one page of a document. Raises MemoryNotFoundError if it has no such page."""
        found = documents.document(conn, scope, document_id)
        for page in documents.pages(conn, scope, found, number):
            return found, page
        raise errors.MemoryNotFoundError(f"'{found.title}' has {found.pages} pages, and no page {number}")

    async def ids(self, scope: Scope, beginning: str, limit: int) -> Sequence[str]:
        """Return up to `limit` ids of documents that begin with a string, the newest first."""
        return await self.engine.read(lambda conn: documents.ids_beginning(conn, scope, beginning, limit))

    async def delete(self, scope: Scope, document_id: str, *, caller: str = "") -> tuple[Document, WriteResult]:
        """Delete the pages of a document. An undo brings them back."""
        found, pages = await self.pages(scope, document_id)
        decisions = [Decision(Event.DELETE, memory_id=page.message.id, kind="message") for page in pages]
        return found, await self._apply(scope, decisions, "delete document", caller)
