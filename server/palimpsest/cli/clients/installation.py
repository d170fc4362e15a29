"""What `install` and `uninstall` change: the edits of all files of a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from palimpsest.cli.clients import entries, hooks_text
from palimpsest.cli.clients.catalog import Client, Folders, Hooks
from palimpsest.cli.clients.file_edits import FileEdit, edit_of
from palimpsest.cli.clients.programs import hook_program
from palimpsest.core.errors import InputError

_Change: TypeAlias = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Target:
    """The client and the folders that a command works on, and whether it is the project's files."""

    client: Client
    folders: Folders
    in_project: bool

    @property
    def entry_file(self) -> Path:
        """Return the file with the servers. Raises InputError if the client has none in a project."""
        return self.folders.entry_file(self.client, in_project=self.in_project)

    @property
    def hooks_file(self) -> Path:
        """Return the file with the hooks. Raises InputError if the client runs no hooks."""
        return self.folders.hooks_file(self.hooks, in_project=self.in_project)

    @property
    def hooks(self) -> Hooks:
        """Return how the client runs hooks. Raises InputError if it runs none that we can install."""
        if self.client.hooks is None:
            raise InputError(
                f"hooks cannot be installed in {self.client.title}. Nothing was changed. Leave --hooks out"
            )
        return self.client.hooks


def installation(target: Target, env: Mapping[str, str], hook_arguments: Sequence[str] | None) -> list[FileEdit]:
    """Return the edits that install the entry and, with arguments for them, the hooks.

    Raises InputError if a file cannot be read, is not valid, or holds another server under our name.
    """
    client, file = target.client, target.entry_file
    entry = entries.entry_for(client, env, shared=target.in_project)
    changes: dict[Path, list[_Change]] = {file: [lambda text: entries.with_entry(client, file, text, entry)]}
    if hook_arguments is not None:
        hooks = target.hooks
        command = [hook_program(), "--client", client.name, *hook_arguments]
        _add(changes, target.hooks_file, lambda text: hooks_text.with_hooks(hooks, text, command))
    return _edits(target, changes)


def removal(target: Target) -> list[FileEdit]:
    """Return the edits that remove the entry and the hooks. Raises InputError as `installation` does."""
    client, file = target.client, target.entry_file
    changes: dict[Path, list[_Change]] = {file: [lambda text: entries.without_entry(client, file, text)]}
    if client.hooks is not None:
        _add(changes, target.hooks_file, hooks_text.without_hooks)
    return _edits(target, changes)


def off_notes(target: Target, edits: Sequence[FileEdit]) -> list[str]:
    """Return a line if our entry is turned off in the file: a person did that, so an installation leaves it."""
    notes: list[str] = []
    for edit in edits:
        if edit.file == target.entry_file:
            entry = entries.servers_in(target.client, edit.file, edit.after).get(entries.ENTRY_NAME)
            if off := entries.is_off(entry):
                notes.append(
                    f"note: '{entries.ENTRY_NAME}' is turned off in {edit.file} ({off}) and stays so. Remove that to "
                    "use the memory"
                )
    return notes


def foreign_notes(target: Target, edit: FileEdit) -> list[str]:
    """Return a line for each server of somebody else's that a file still has under a name of ours."""
    if edit.file != target.entry_file:
        return []
    names = entries.foreign_entries(target.client, edit.file, edit.after)
    return [f"{edit.file}: the entry '{name}' belongs to another server and stays" for name in names]


def _add(changes: dict[Path, list[_Change]], file: Path, change: _Change) -> None:
    changes.setdefault(file, []).append(change)


def _edits(target: Target, changes: Mapping[Path, list[_Change]]) -> list[FileEdit]:
    inside = Path(target.folders.project) if target.in_project else None
    return [edit_of(file, file_changes, inside=inside) for file, file_changes in changes.items()]
