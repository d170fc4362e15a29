"""Export a memory to a folder of Markdown files, edit them as a person does, and import them."""

from __future__ import annotations

from pathlib import Path

from palimpsest.admin.markdown_files import MANIFEST, FolderExport
from palimpsest.admin.markdown_import import FolderImport
from palimpsest.memory import Memory
from tests.support.ledger_access import ignore_progress


async def export_to(memory: Memory, folder: Path, *, overwrites: bool = False) -> FolderExport:
    return await memory.care.export_folder(folder, ignore_progress, overwrites=overwrites)


async def import_from(memory: Memory, folder: Path, *, dry_run: bool = False, deletes: bool = False) -> FolderImport:
    """Import what was edited in a folder."""
    return await memory.care.import_folder(folder, dry_run=dry_run, deletes=deletes)


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder, hidden ones too, by their paths."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def page_with(folder: Path, text: str) -> Path:
    """Return the only file of an export that has a text."""
    (found,) = (path for path in folder.rglob("*.md") if text in path.read_text("utf-8"))
    return found


def remove_item(folder: Path, text: str) -> None:
    """Remove the item that begins with a text, up to the next item."""
    page = page_with(folder, f"- {text}")
    kept: list[str] = []
    is_removed = False
    for line in page.read_text("utf-8").split("\n"):
        if line.startswith("- "):
            is_removed = line.startswith(f"- {text}")
        kept += [] if is_removed else [line]
    page.write_text("\n".join(kept), "utf-8", newline="")


def manifest_of(folder: Path) -> Path:
    """Return the file that says what the export said."""
    return folder / MANIFEST
