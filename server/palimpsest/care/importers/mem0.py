"""mem0's memories: its history database, which has every version, and what `get_all()` returns, saved as JSON."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from palimpsest.care.importers.records import (
    EXPECTED,
    OLDEST,
    TOO_LONG,
    Foreign,
    ForeignMemory,
    ForeignVersion,
    Left,
    fields,
    instant,
    items,
    notes_of,
    plain,
    sensible,
    tag_from,
)
from palimpsest.core.errors import InputError
from palimpsest.core.models import Event
from palimpsest.core.validation import MAX_METADATA_BYTES, MAX_TEXT_CHARS, well_formed

_THEIRS = ("user_id", "agent_id", "run_id", "app_id", "attributed_to", "expiration_date")
_SPEAKER = ("actor_id", "role")

# mem0 has renamed its columns once; these are their names, the present one first
_OLD = ("old_memory", "prev_value")
_NEW = ("new_memory", "new_value")
_MADE = ("created_at", "timestamp")


def read_history(file: Path, now: datetime) -> Foreign:
    """Return a memory with all its versions for each memory id in mem0's history database, which is only read.

    Raises InputError when it is another database, or damaged.
    """
    try:
        # as_uri percent-encodes what SQLite would take for the end of the path
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
            database.text_factory = _decoded
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            columns = {row[1] for row in database.execute("PRAGMA table_info(history)")}
            _check(file, columns)
            cursor = database.execute("SELECT * FROM history ORDER BY rowid")
            names = [column[0] for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor]
            (recent,) = database.execute("SELECT count(*) FROM messages").fetchone() if "messages" in tables else (0,)
    except sqlite3.Error as error:
        raise InputError(f"{file} cannot be read as a database: {error}; {EXPECTED}") from error
    left = Left({"messages mem0 had at hand for its next extraction": recent})
    return Foreign("mem0-history", _from_history(rows, now, left), notes=notes_of(left))


def _check(file: Path, columns: set[str]) -> None:
    if {"seq", "state", "stage"} <= columns:
        raise InputError(f"{file} is a ledger of palimpsest itself; palimpsest restore puts it in the place of yours")
    if not ({"memory_id", "event"} <= columns and columns & {*_OLD} and columns & {*_NEW}):
        raise InputError(f"{file} is a database without a history of mem0's in it; {EXPECTED}")


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _from_history(rows: Sequence[dict[str, Any]], now: datetime, left: Left) -> tuple[ForeignMemory, ...]:
    by_memory: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_memory[well_formed(str(row["memory_id"] or ""))].append(row)
    left["changes of a memory without an id"] += len(by_memory.pop("", ()))
    found: list[ForeignMemory] = []
    for memory_id, changes in by_memory.items():
        versions = _versions(_dated(changes, now), now, left)
        if any(len(version.text or "") > MAX_TEXT_CHARS for version in versions):
            left[TOO_LONG] += 1
        elif versions:
            said = {part: text for part in _SPEAKER for row in changes if (text := plain(row.get(part)))}
            found.append(ForeignMemory(versions, {**said, "imported_from": "mem0", "mem0_id": memory_id}))
    return tuple(found)


def _dated(changes: Sequence[dict[str, Any]], now: datetime) -> list[tuple[dict[str, Any], datetime]]:
    """Return the changes of one memory in order of time, each with its time, none later than the next.

    mem0 sorts by time too, but some of its versions write a deletion without one, which then comes first. Here what
    has no time keeps its place behind what was written before it.
    """
    times: list[datetime] = []
    for change in changes:
        at = instant(change.get("updated_at")) or instant(_either(change, _MADE))
        times.append(at or (times[-1] if times else OLDEST))
    order = sorted(range(len(changes)), key=times.__getitem__)
    dated: list[tuple[dict[str, Any], datetime]] = []
    following = now
    for place in reversed(order):
        following = min(following, sensible(times[place], now))
        dated.append((changes[place], following))
    return dated[::-1]


def _versions(
    dated: Sequence[tuple[dict[str, Any], datetime]], now: datetime, left: Left
) -> tuple[ForeignVersion, ...]:
    """Return the versions of one memory, such that each follows from the one before and the first adds it."""
    found: list[ForeignVersion] = []
    for row, at in dated:
        old, new = plain(_either(row, _OLD)), plain(_either(row, _NEW))
        event = plain(row["event"]).upper()
        deletes = event == Event.DELETE or bool(row.get("is_deleted"))
        if not deletes and (event not in (Event.ADD, Event.UPDATE) or not new):
            if event != Event.NONE:
                left["changes of a memory without a text"] += 1
            continue
        if not found and old and (deletes or event == Event.UPDATE):  # its beginning is missing
            made = sensible(instant(_either(row, _MADE)), now)
            found.append(ForeignVersion(Event.ADD, old, min(made, at)))
        living = bool(found) and found[-1].text is not None
        if not deletes:
            found.append(ForeignVersion(Event.UPDATE if living else Event.ADD, new, at))
        elif living:
            found.append(ForeignVersion(Event.DELETE, None, at))
        else:
            left["deletions of what was not there"] += 1
    return tuple(found)


def _either(row: dict[str, Any], names: tuple[str, str]) -> Any:
    return row.get(names[0]) if names[0] in row else row.get(names[1])


def is_memory(value: Any) -> bool:
    """Say whether a JSON value is a memory as mem0 returns it."""
    return isinstance(fields(value).get("memory"), str)


def read_export(memories: Sequence[Any], whole: Mapping[str, Any], now: datetime) -> Foreign:
    """Return a memory for each that mem0's `get_all()` returned; `whole` is the object they were in, or is empty."""
    left = Left()
    found = [each for item in memories if (each := _from_export(item, now, left)) is not None]
    left["relations of mem0's graph"] += len(items(whole.get("relations"))) + len(items(whole.get("entities")))
    notes = notes_of(left)
    if whole.get("next"):
        notes = (f"this is one page of an export, with {len(memories):,} of {whole.get('count')} memories", *notes)
    return Foreign("mem0-export", tuple(found), notes=notes)


def _from_export(item: Any, now: datetime, left: Left) -> ForeignMemory | None:
    theirs = fields(item)
    text = plain(theirs.get("memory"))
    if not text:
        left["memories without a text"] += 1
        return None
    if len(text) > MAX_TEXT_CHARS:
        left[TOO_LONG] += 1
        return None
    made, changed = instant(theirs.get("created_at")), instant(theirs.get("updated_at"))
    metadata: dict[str, Any] = _metadata(theirs.get("metadata"), left)
    metadata |= {f"mem0_{part}": word for part in _THEIRS if (word := plain(theirs.get(part)))}
    metadata |= {part: word for part in _SPEAKER if (word := plain(theirs.get(part)))}
    if made is not None and changed is not None and made < changed:
        metadata["mem0_created_at"] = made.isoformat()  # the text it had then is not in the export
    metadata["imported_from"] = "mem0"
    if theirs.get("id"):
        metadata["mem0_id"] = well_formed(str(theirs["id"]))
    tags = dict.fromkeys(tag for word in items(theirs.get("categories")) for tag in tag_from(word))
    return ForeignMemory((ForeignVersion(Event.ADD, text, sensible(changed or made, now)),), metadata, tuple(tags))


def _metadata(value: Any, left: Left) -> dict[str, Any]:
    """Return metadata of theirs that can be kept: well-formed, and not too large."""
    try:
        written = well_formed(json.dumps(fields(value), ensure_ascii=False, allow_nan=False))
    except (ValueError, RecursionError):
        written = ""
    if not written or len(written.encode()) > MAX_METADATA_BYTES:
        left[f"metadata of more than {MAX_METADATA_BYTES:,} bytes, or that is no JSON"] += 1
        return {}
    return json.loads(written)
