"""What the commands export and import print of a folder of Markdown files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from palimpsest.care.transfer.markdown.folder import listed
from palimpsest.care.transfer.markdown.importing import FolderImport, Imported
from palimpsest.care.transfer.markdown.items import PARTS, Shown
from palimpsest.care.transfer.markdown.merging import Conflict
from palimpsest.cli.console import CALLER, progress_bar
from palimpsest.cli.output import notes_text, print_result, print_text
from palimpsest.core.models import Event
from palimpsest.memory import Memory
from palimpsest.text.counting import counted

MAX_LISTED = 100
"""How many memories of each kind are printed. Set by hand: JSON has all of them."""

_MARKS = {Event.ADD: "+", Event.UPDATE: "~", Event.DELETE: "-"}
_VERBS = {Event.ADD: ("add", "added"), Event.UPDATE: ("change", "changed"), Event.DELETE: ("delete", "deleted")}


def is_page(file: str) -> bool:
    """Return whether a Markdown export goes to one page for reading, and not to a folder."""
    path = Path(file)
    return file == "-" or (path.suffix.lower() in (".md", ".markdown") and not path.is_dir())


async def exported_folder(memory: Memory, folder: Path, *, overwrites: bool) -> None:
    """Export to a folder, and print what was written."""
    with progress_bar("exporting") as progress:
        result = await memory.care.export_folder(folder, progress, overwrites=overwrites)
    counts = [
        f"{len(result.written):,} written",
        *([f"{len(result.removed):,} removed"] if result.removed else []),
        *([f"{result.unchanged:,} unchanged"] if result.unchanged else []),
    ]
    text = f"exported {counted(result.memories, 'memory')} to {folder}; files: {', '.join(counts)}"
    parts = [text]
    if result.left:
        parts += notes_text([f"copies from an earlier export, left as they are: {listed(result.left)}"])
    print_text(*parts, done=text)


async def imported_folder(memory: Memory, folder: Path, *, dry_run: bool, deletes: bool, as_json: bool) -> None:
    """Import what was edited in a folder, and print it."""
    result = await memory.care.import_folder(folder, dry_run=dry_run, deletes=deletes, caller=CALLER)
    counts = [
        f"{would if dry_run else did} {counted(number, 'memory')}"
        for event, (would, did) in _VERBS.items()
        if (number := sum(each.event is event for each in result.done))
    ]
    verb = "would " if dry_run and counts else ""
    done = f"{folder}: {verb}{', '.join(counts) or 'nothing to change'}"
    parts = [done, *_lines(result.done), *_removed_lines(result), *_conflict_lines(result)]
    if result.edit:
        parts.append(f"palimpsest undo --change {result.edit} takes it back")
    parts += [*notes_text([*_missing_notes(result), *result.notes]), f"scope: {result.scope}"]
    print_result(as_json, _as_json(result, dry_run=dry_run), *parts, done=done if result.edit else "")


def _lines(imported: tuple[Imported, ...]) -> list[str]:
    lines = [line for each in imported[:MAX_LISTED] for line in _imported_lines(each)]
    return [*lines, *_more(len(imported))]


def _imported_lines(each: Imported) -> list[str]:
    place = f"[{each.memory_id[:8]}] {each.where}" if each.memory_id else each.where
    joined = f" (joined with [{each.joined[:8]}], which says the same)" if each.joined else ""
    lines = [f"{_MARKS[each.event]} {place}{joined}"]
    if each.before is None or each.after is None:
        said = each.before or each.after
        return [*lines, *([f"    {_whole(said)}"] if said is not None else [])]
    return [*lines, *(f"    {line}" for line in _differences(each.before, each.after))]


def _differences(before: Shown, after: Shown) -> list[str]:
    """Return the parts that differ, each with both values."""
    differing = [part for part in PARTS if getattr(before, part) != getattr(after, part)]
    return [f"{part}: {_value(before, part)} -> {_value(after, part)}" for part in differing]


def _value(shown: Shown, part: str) -> str:
    return (", ".join(shown.tags) if part == "tags" else str(getattr(shown, part))) or "(none)"


def _whole(shown: Shown) -> str:
    return " ".join(shown.text.split())


def _more(count: int) -> list[str]:
    return [f"  and {count - MAX_LISTED:,} more"] if count > MAX_LISTED else []


def _removed_lines(result: FolderImport) -> list[str]:
    if not result.removed:
        return []
    count = counted(len(result.removed), "memory")
    return [f"not deleted: {count} whose items were removed. --yes deletes them:", *_lines(result.removed)]


def _conflict_lines(result: FolderImport) -> list[str]:
    if not result.conflicts:
        return []
    lines = [f"{counted(len(result.conflicts), 'conflict')}, in which the memory stays as it is:"]
    for conflict in result.conflicts[:MAX_LISTED]:
        lines += _one_conflict(conflict)
    return [
        *lines,
        *_more(len(result.conflicts)),
        "To keep what is here, write it into the file. To keep what the file says: palimpsest edit ID TEXT.",
    ]


def _one_conflict(conflict: Conflict) -> list[str]:
    lines = [f"! [{conflict.memory_id[:8]}] {conflict.where}: {conflict.reason}"]
    if conflict.in_file is not None and conflict.here is not None:
        differing = [part for part in PARTS if getattr(conflict.in_file, part) != getattr(conflict.here, part)]
        for part in differing:
            lines += [
                f"    {part} in the file: {_value(conflict.in_file, part)}",
                f"    {part} here: {_value(conflict.here, part)}",
            ]
        return lines
    in_file = "(removed)" if conflict.in_file is None else _whole(conflict.in_file)
    here = "(gone)" if conflict.here is None else _whole(conflict.here)
    return [*lines, f"    in the file: {in_file}", f"    here: {here}"]


def _missing_notes(result: FolderImport) -> list[str]:
    return [
        f"the file {path} is gone, and {counted(number, 'memory')} with it; nothing of it was deleted. Export again "
        "with --yes to have it back, or palimpsest delete"
        for path, number in result.missing.items()
    ]


def _as_json(result: FolderImport, *, dry_run: bool) -> dict[str, Any]:
    return {
        "format": "palimpsest-markdown",
        "dry_run": dry_run,
        "edit": result.edit or None,
        "changes": [_imported_json(each) for each in result.done],
        "not_deleted": [_imported_json(each) for each in result.removed],
        "conflicts": [
            {
                "id": conflict.memory_id,
                "where": conflict.where,
                "reason": conflict.reason,
                "in_file": _shown_json(conflict.in_file),
                "here": _shown_json(conflict.here),
            }
            for conflict in result.conflicts
        ],
        "missing_files": dict(result.missing),
        "notes": list(result.notes),
    }


def _imported_json(each: Imported) -> dict[str, Any]:
    return {
        "event": each.event.value,
        "id": each.memory_id or None,
        "where": each.where,
        "before": _shown_json(each.before),
        "after": _shown_json(each.after),
        **({"joined": each.joined} if each.joined else {}),
    }


def _shown_json(shown: Shown | None) -> dict[str, Any] | None:
    return None if shown is None else {**asdict(shown), "tags": list(shown.tags)}
