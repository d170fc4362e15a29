"""Erase memories and messages for good, and prove it: files and tables are searched for the texts. Blocking."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from palimpsest.core.errors import LedgerError, raised_as
from palimpsest.core.files import files_below
from palimpsest.core.models import DELETE, Decision, Event, Provenance, Scope
from palimpsest.hooks.brief import RenderedFiles
from palimpsest.hooks.spool import hooks_dir
from palimpsest.index.sync import Projection, finish_purge
from palimpsest.learn.engine import Engine
from palimpsest.store import history, summaries
from palimpsest.store.apply import Write
from palimpsest.store.ledger import Ledger
from palimpsest.store.purge import PurgeSelection, plans_waited_for
from palimpsest.store.rows import grouped

# Bytes of a text that are searched for together. A longer run may be split across two pages of the database.
PIECE = 48

# Bytes by which a piece is located. A shorter text is not searched for, because it would be found everywhere.
ANCHOR = 8

BLOCK = 1 << 20

Starts: TypeAlias = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Trace:
    """Where an erased text can still be read, and why it may be there; "" if there is no explanation.

    `file` is a file, or "table NAME" in a remote database.
    """

    file: Path
    piece: str
    explained: str = ""


@dataclass(frozen=True, slots=True)
class PurgeResult:
    """What was erased, what the search of the files found, and notes on what a person still has to do.

    `files` is the number of searched files, `tables` that of searched tables of a remote database. `backups` are those
    that still contain an erased text.
    """

    erased: PurgeSelection
    files: int
    traces: tuple[Trace, ...]
    backups: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    tables: int = 0

    @property
    def clean(self) -> bool:
        """Return whether the texts are only in backups and in other memories, and nothing is left to do."""
        return not self.notes and all(trace.explained or trace.file in self.backups for trace in self.traces)


def purge(
    engine: Engine, projection: Projection, scope: Scope, owner_ids: Sequence[str] | None, *, and_backups: bool
) -> PurgeResult:
    """Erase memories and messages with all their versions, then search every file of the memory for their texts.

    If `owner_ids` is None, everything stored in the scope itself is erased. `and_backups` deletes the backups that
    contain any of it. What sessions begin with is removed. Raises LedgerError, InputError and
    VectorIndexError. If the purge is interrupted after the rows are erased, the next purge or the next server finishes
    it.
    """
    ledger, data_dir = engine.ledger, engine.settings.data_dir
    if plans := ledger.read_with(plans_waited_for, scope, owner_ids):  # first, so that what they would replace holds on
        deletions = tuple(Decision(Event.DELETE, memory_id=plan) for plan in plans)
        ledger.apply(Write(scope, Provenance(DELETE), decisions=deletions))
    erased = ledger.purge(scope, owner_ids)
    notes: list[str] = []
    try:
        RenderedFiles(data_dir).remove(scope.user_id)
    except OSError as error:
        gone = f"delete {hooks_dir(str(data_dir))}"
        notes.append(f"what new sessions begin with could not be removed: {error}; {gone}")
    notes += finish_purge(ledger, projection)
    pieces = _pieces(erased.texts)
    # JSON has a name with escapes. A backup may have it from other memories, and its own rows tell if it holds these.
    with_names = _pieces((*erased.texts, *erased.names, *(json.dumps(name)[1:-1] for name in erased.names)))
    backups = tuple(
        file
        for file in ledger.backups.files()
        if _pieces_in(file, pieces) or ledger.backups.holds(file, erased.memory_ids, erased.message_ids)
    )
    if and_backups:
        for file in backups:
            file.unlink()
        backups = ()
    files = [*ledger.database.files(), *files_below(data_dir), *files_below(projection.root)]
    tables = ledger.database.search_tables(with_names)
    # Closing a file releases every lock that this process has on it, so no connection may be open to those searched.
    ledger.close()
    found = [(file, piece) for file in dict.fromkeys(files) for piece in _pieces_in(file, with_names)]
    found += [(Path(f"table {table}"), piece) for table, pieces in tables.items() for piece in pieces]
    traces = [Trace(file, piece.decode(errors="replace"), _explanation(ledger, scope, piece)) for file, piece in found]
    return PurgeResult(erased, len(set(files)), tuple(traces), backups, tuple(notes), len(tables))


def _pieces(texts: Sequence[str]) -> list[bytes]:
    """Return the byte sequences to search for: each text or name in runs that are stored contiguously."""
    pieces: dict[bytes, None] = {}
    for text in texts:
        raw = text.encode()
        runs = [raw[start : start + PIECE] for start in range(0, len(raw), PIECE)]
        if len(runs) > 1 and len(runs[-1]) < PIECE:
            runs[-1] = raw[-PIECE:]
        pieces.update(dict.fromkeys(run for run in runs if len(run) >= ANCHOR))
    return list(pieces)


def _pieces_in(file: Path, pieces: Sequence[bytes]) -> list[bytes]:
    """Return the pieces that a file contains."""
    if not pieces:
        return []
    by_start = grouped((int.from_bytes(piece[:ANCHOR], "little"), piece) for piece in pieces)
    sought: Starts = np.array(sorted(by_start), dtype=np.uint64)
    contained: dict[bytes, None] = {}
    for block in _blocks(file):
        starts = _starts(block)
        for offset in np.flatnonzero(np.isin(starts, sought)).tolist():
            found = (piece for piece in by_start[int(starts[offset])] if block.startswith(piece, offset))
            contained.update(dict.fromkeys(found))
    return list(contained)


def _starts(block: bytes) -> Starts:
    """Return, for every offset in a block, the `ANCHOR` bytes from there on as one number."""
    if len(block) < ANCHOR:
        return np.zeros(0, dtype=np.uint64)
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(block, dtype=np.uint8), ANCHOR)
    return np.ascontiguousarray(windows).view("<u8").ravel()


def _blocks(file: Path) -> Iterator[bytes]:
    """Yield a file in blocks that overlap by the length of a piece."""
    fault = f"everything was erased, but {file} could not be searched for traces"
    # A client may have deleted it in the meantime.
    with raised_as(LedgerError, fault, "", OSError), suppress(FileNotFoundError), file.open("rb") as stream:
        block = b""
        while more := stream.read(BLOCK):
            block = block[-PIECE:] + more
            yield block


def _explanation(ledger: Ledger, scope: Scope, piece: bytes) -> str:
    """Return which other memories or messages contain a piece of an erased text, without revealing other scopes.

    Summaries that rest on what was erased are gone. Others may say the same of what they rest on.
    """
    with ledger.read() as conn:
        passage = piece.decode(errors="ignore")
        in_scope, is_elsewhere = history.owners_of_passage(conn, scope, passage)
        if in_scope:
            return f"also in {', '.join(owner_id[:8] for owner_id in in_scope)}, which you can purge too"
        is_kept = is_elsewhere or summaries.kinds_with_passage(conn, passage) or history.is_in_names(conn, passage)
        return "also in another scope, a summary or a name" if is_kept else ""
