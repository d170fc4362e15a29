"""mem0's memories: its history database, which has every version, and what `get_all()` returns, saved as JSON."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime
from functools import partial
from typing import Any

from palimpsest.admin.importers import records
from palimpsest.admin.importers.records import ImportedFile, ImportedMemory, Reading, instant_of, text_of
from palimpsest.core.errors import InputError, raised_as
from palimpsest.core.models import Event
from palimpsest.core.validation import MAX_METADATA_BYTES, MAX_TEXT_CHARS, has_nul, list_of, object_of, well_formed
from palimpsest.store.rows import grouped

_KEPT_FIELDS = ("user_id", "agent_id", "run_id", "app_id", "attributed_to", "expiration_date")
_SPEAKER = ("actor_id", "role")

UNUSABLE = "history rows without text or a memory id"

# The columns of mem0's history. Its first versions, until 2024, called the last two otherwise, and are not read.
_COLUMNS = {"memory_id", "event", "old_memory", "new_memory"}


def read_history(source: records.SourceFile, now: datetime) -> ImportedFile | None:
    """Return every memory in mem0's history database, with all its versions. The database is only read.

    Return None if the file is not a database or has no mem0 history. Raises InputError if the database is damaged, or
    is a Palimpsest ledger.
    """
    if not source.is_database:
        return None
    # as_uri percent-encodes characters that SQLite would take for the end of the path
    place, fault = f"{source.path.resolve().as_uri()}?mode=ro", f"{source.name} cannot be read as a database"
    advice = f". {records.EXPECTED}"
    with raised_as(InputError, fault, advice, sqlite3.Error), closing(sqlite3.connect(place, uri=True)) as database:
        database.text_factory = partial(str, encoding="utf-8", errors="replace")
        columns = {row[1] for row in database.execute("PRAGMA table_info(history)")}
        if {"seq", "state", "stage"} <= columns:
            raise InputError(f"{source.path} is a Palimpsest ledger. palimpsest restore replaces your ledger with it")
        if not columns >= _COLUMNS:
            return None
        database.row_factory = sqlite3.Row
        rows = [dict(row) for row in database.execute("SELECT * FROM history ORDER BY rowid")]
    reading = Reading(now)
    return ImportedFile("mem0-history", tuple(_history_memories(rows, reading)), notes=reading.notes)


def _history_memories(rows: Sequence[dict[str, Any]], reading: Reading) -> Iterator[ImportedMemory]:
    by_memory = grouped((well_formed(str(row["memory_id"] or "")), row) for row in rows)
    reading.skipped[UNUSABLE] += len(by_memory.pop("", ()))
    for memory_id, memory_rows in by_memory.items():
        versions = _versions(_dated_rows(memory_rows, reading), reading)
        if any(len(version.text or "") > MAX_TEXT_CHARS for version in versions):
            reading.skipped[records.TOO_LONG] += 1
        elif versions:
            speaker = {part: text for part in _SPEAKER for row in memory_rows if (text := text_of(row.get(part)))}
            yield ImportedMemory(versions, {**speaker, "imported_from": "mem0", "mem0_id": memory_id})


def _dated_rows(rows: Sequence[dict[str, Any]], reading: Reading) -> list[tuple[dict[str, Any], datetime]]:
    """Return the rows of one memory in order of time, each with its time. No time is later than the next one.

    mem0 sorts by time too, but some of its versions write a deletion without a time, which then sorts first. Here, a
    row without a time stays behind the row that was written before it.
    """
    times: list[datetime] = []
    for row in rows:
        at = instant_of(row.get("updated_at")) or instant_of(row.get("created_at"))
        times.append(at or (times[-1] if times else records.OLDEST))
    order = sorted(range(len(rows)), key=times.__getitem__)
    dated: list[tuple[dict[str, Any], datetime]] = []
    latest = reading.now
    for index in reversed(order):
        latest = min(latest, reading.time_of(times[index]))
        dated.append((rows[index], latest))
    return dated[::-1]


def _versions(rows: Sequence[tuple[dict[str, Any], datetime]], reading: Reading) -> tuple[records.ImportedVersion, ...]:
    """Return the versions of one memory. The first one adds it, and each follows from the one before."""
    versions: list[records.ImportedVersion] = []
    for row, at in rows:
        old, new = text_of(row["old_memory"]), text_of(row["new_memory"])
        event = text_of(row["event"]).upper()
        deletes = event == Event.DELETE or bool(row.get("is_deleted"))
        if not deletes and (event not in (Event.ADD, Event.UPDATE) or not new):
            reading.skipped[UNUSABLE] += event != Event.NONE
            continue
        if not versions and old and (deletes or event == Event.UPDATE):  # the row that added it is missing
            versions.append(records.ImportedVersion(Event.ADD, old, min(reading.time_of(row.get("created_at")), at)))
        exists = bool(versions) and versions[-1].text is not None
        if not deletes:
            versions.append(records.ImportedVersion(Event.UPDATE if exists else Event.ADD, new, at))
        elif exists:
            versions.append(records.ImportedVersion(Event.DELETE, None, at))
    return tuple(versions)


def read_export(source: records.SourceFile, now: datetime) -> ImportedFile | None:
    """Return the memories in a saved reply of mem0's `get_all()` or `get()`.

    Return None if the file has no such memory.
    """
    if not any(isinstance(object_of(item).get("memory"), str) for item in source.items):
        return None
    reading = Reading(now)
    memories = [memory for item in source.items if (memory := _export_memory(item, reading)) is not None]
    whole = object_of(source.value)
    in_graph = [*list_of(whole.get("relations")), *list_of(whole.get("entities"))]
    reading.skipped["relations in mem0's graph"] += len(in_graph)
    page = f"this is one page of an export, with {len(source.items):,} of {whole.get('count')} memories"
    return ImportedFile("mem0-export", tuple(memories), notes=((page,) if whole.get("next") else ()) + reading.notes)


def _export_memory(item: Any, reading: Reading) -> ImportedMemory | None:
    exported = object_of(item)
    if not (text := text_of(exported.get("memory"))) or len(text) > MAX_TEXT_CHARS:
        reading.skipped[records.TOO_LONG if text else "memories without text"] += 1
        return None
    created_at, updated_at = instant_of(exported.get("created_at")), instant_of(exported.get("updated_at"))
    metadata: dict[str, Any] = _metadata(exported.get("metadata"), reading)
    metadata |= {f"mem0_{name}": value for name in _KEPT_FIELDS if (value := text_of(exported.get(name)))}
    metadata |= {name: value for name in _SPEAKER if (value := text_of(exported.get(name)))}
    if created_at is not None and updated_at is not None and created_at < updated_at:
        metadata["mem0_created_at"] = created_at.isoformat()  # the text of that time is not in the export
    metadata["imported_from"] = "mem0"
    if exported.get("id"):
        metadata["mem0_id"] = well_formed(str(exported["id"]))
    tags = dict.fromkeys(tag for category in list_of(exported.get("categories")) for tag in records.tags_of(category))
    version = records.ImportedVersion(Event.ADD, text, reading.time_of(updated_at, created_at))
    return ImportedMemory((version,), metadata, tuple(tags))


def _metadata(value: Any, reading: Reading) -> dict[str, Any]:
    """Return metadata as well-formed JSON. Return {} and count it if it is too large or not valid JSON."""
    try:
        text = well_formed(json.dumps(object_of(value), ensure_ascii=False, allow_nan=False))
    except (ValueError, RecursionError):
        text = ""
    if not text or has_nul(text) or len(text.encode()) > MAX_METADATA_BYTES:
        reading.skipped[f"metadata larger than {MAX_METADATA_BYTES:,} bytes or not valid JSON"] += 1
        return {}
    return json.loads(text)
