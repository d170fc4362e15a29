"""Erase for good, everywhere, and prove it: the files are searched for the text afterwards. Blocking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from palimpsest.core.errors import LedgerError
from palimpsest.core.models import Scope
from palimpsest.index.erasure import finish_purge
from palimpsest.index.sync import Projection
from palimpsest.store.ledger import Ledger
from palimpsest.store.queries import history as history_queries
from palimpsest.store.writes.purge import PurgeSelection

PIECE = 48
"""Bytes of a text that are looked for together: a longer run may be cut by a page of the database."""

ANCHOR = 8
"""Bytes by which a piece is found first; a text with fewer is not looked for: it would be found everywhere."""

BLOCK = 1 << 20

Starts: TypeAlias = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Trace:
    """Hold a place where an erased text can still be read, and what explains it; "" where nothing does."""

    file: Path
    piece: str
    explained: str = ""


@dataclass(frozen=True, slots=True)
class Purged:
    """Hold what was erased, what of the search is left to tell, and what a person still has to do."""

    erased: PurgeSelection
    files: int
    traces: tuple[Trace, ...]
    backups: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Say whether the text is in no file but backups and what other memories say themselves."""
        return not self.notes and all(trace.explained or trace.file in self.backups for trace in self.traces)


def purge(
    ledger: Ledger, projection: Projection, scope: Scope, owner_ids: Sequence[str] | None, *, and_backups: bool
) -> Purged:
    """Erase memories and turns with all they ever said, then search every file of ours for it.

    With `owner_ids` None all of the scope itself goes. `and_backups` deletes backups that hold any of it. Raises
    LedgerError, InputError and VectorIndexError. What is cut off after the rows are gone is finished by the next
    purge, or by the next server.
    """
    erased = ledger.purge(scope, owner_ids)
    notes = finish_purge(ledger, projection)
    pieces = _pieces(erased.texts)
    holding = tuple(
        file
        for file in ledger.backups.files()
        if _found_in(file, pieces) or ledger.backups.holds(file, erased.memory_ids, erased.message_ids)
    )
    if and_backups:
        for file in holding:
            file.unlink()
        holding = ()
    files = [*ledger.files(), *(_files(projection.root) if projection.root else ())]
    traces = [
        Trace(file, piece.decode(errors="replace"), _explained(ledger, scope, piece))
        for file in dict.fromkeys(files)
        for piece in _found_in(file, pieces)
    ]
    return Purged(erased, len(set(files)), tuple(traces), holding, tuple(notes))


def _pieces(texts: Sequence[str]) -> list[bytes]:
    """Return what is looked for: each text in runs of bytes that lie together on the disk."""
    found: dict[bytes, None] = {}
    for text in texts:
        raw = text.encode()
        runs = [raw[start : start + PIECE] for start in range(0, len(raw), PIECE)]
        if len(runs) > 1 and len(runs[-1]) < PIECE:
            runs[-1] = raw[-PIECE:]
        found.update(dict.fromkeys(run for run in runs if len(run) >= ANCHOR))
    return list(found)


def _found_in(file: Path, pieces: Sequence[bytes]) -> list[bytes]:
    """Return the pieces that a file holds."""
    if not pieces:
        return []
    by_start: dict[int, list[bytes]] = {}
    for piece in pieces:
        by_start.setdefault(int.from_bytes(piece[:ANCHOR], "little"), []).append(piece)
    wanted: Starts = np.array(sorted(by_start), dtype=np.uint64)
    found: dict[bytes, None] = {}
    for block in _blocks(file):
        starts = _starts(block)
        for at in np.flatnonzero(np.isin(starts, wanted)).tolist():
            held = [piece for piece in by_start[int(starts[at])] if block[at : at + len(piece)] == piece]
            found.update(dict.fromkeys(held))
    return list(found)


def _starts(block: bytes) -> Starts:
    """Return the first `ANCHOR` bytes from every place in a block on, as numbers."""
    octets = np.frombuffer(block, dtype=np.uint8)
    if len(octets) < ANCHOR:
        return np.zeros(0, dtype=np.uint64)
    total: Starts = np.zeros(len(octets) - ANCHOR + 1, dtype=np.uint64)
    for place in range(ANCHOR):
        total |= octets[place : len(octets) - ANCHOR + 1 + place].astype(np.uint64) << np.uint64(8 * place)
    return total


def _blocks(file: Path) -> Iterator[bytes]:
    """Yield a file in blocks that overlap by a piece."""
    try:
        with file.open("rb") as opened:
            block = opened.read(BLOCK)
            while block:
                yield block
                more = opened.read(BLOCK)
                block = block[-PIECE:] + more if more else b""
    except FileNotFoundError:
        return  # a client at work beside us has deleted it
    except OSError as error:
        raise LedgerError(f"{file} could not be searched for what was erased: {error}") from error


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []


def _explained(ledger: Ledger, scope: Scope, piece: bytes) -> str:
    """Say who else says a piece of an erased text, without giving away what other scopes hold."""
    with ledger.read() as conn:
        mine, others = history_queries.owners_of_passage(conn, scope, piece.decode(errors="ignore"))
    if mine:
        return f"also said by {', '.join(owner[:8] for owner in mine)}, which you may purge too"
    return "also said in another scope" if others else ""
