"""The command on documents: list them, read one, delete one; and how `palimpsest learn` keeps files as documents."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from palimpsest.cli.console import CALLER, AsJson, exit_on_error, progress_bar, settings_of, with_memory
from palimpsest.cli.hits import search_parts
from palimpsest.cli.options import CONVERSATIONS
from palimpsest.cli.output import Part, notes_text, plain, print_result, table
from palimpsest.core.clock import shown_date
from palimpsest.core.errors import InputError
from palimpsest.facade.documents import LearnedFolder
from palimpsest.memory import Memory
from palimpsest.server.replies import documents as replies
from palimpsest.server.replies.models import SearchReply
from palimpsest.text.counting import counted

app = typer.Typer()

MAX_NAMED = 10
"""How many skipped files of one reason are named. Set by hand, to fit a screen; JSON names all of them."""


@app.command(rich_help_panel=CONVERSATIONS)
def documents(
    ctx: typer.Context,
    document_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Read this one: its id, or the first 8 characters of it.")
    ] = None,
    page: Annotated[int | None, typer.Option(min=1, help="Only this page of it, whole.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete its pages. palimpsest undo restores them.")] = False,
    as_json: AsJson = False,
) -> None:
    """List documents that were learned, show the pages of one, or delete one."""

    async def work(memory: Memory) -> None:
        if document_id is None:
            if page is not None or delete:
                raise InputError("--page and --delete need the ID of a document. Nothing was done")
            await _list(memory, as_json=as_json)
        elif delete:
            found, result = await memory.documents.delete(memory.scope, document_id, caller=CALLER)
            done = f"deleted: {found.title}, {counted(found.pages, 'page')}"
            content = {"deleted": replies.document_json(found), "notes": result.notes}
            print_result(as_json, content, done, *notes_text(result.notes), done=done)
        elif page is not None:
            found, shown = await memory.documents.page(memory.scope, document_id, page)
            content = {**replies.document_json(found), "page": shown.number, "text": shown.message.content}
            print_result(as_json, content, replies.page_text(found, shown, note=""))
        else:
            found, pages = await memory.documents.pages(memory.scope, document_id)
            print_result(as_json, replies.pages_json(found, pages), replies.pages_text(found, pages, note=""))

    with_memory(ctx, work)


async def _list(memory: Memory, *, as_json: bool) -> None:
    listed = await memory.documents.list(memory.scope)
    rows = table("id", "learned", "pages", "project", "title", "source")
    for item in listed:
        date, count = shown_date(item.learned_at), str(item.pages)
        rows.add_row(item.id[:8], date, count, plain(item.project), plain(item.title), plain(item.uri))
    content = {"documents": [replies.document_json(item) for item in listed]}
    more = "palimpsest documents ID shows the pages of one"
    print_result(as_json, content, *([rows, more] if listed else ["no documents; palimpsest learn FILE adds one"]))


def learn_documents(ctx: typer.Context, path: Path, ask: Sequence[str], *, temporary: bool, as_json: bool) -> None:
    """Keep a file, or the files of a folder, as documents, and answer questions from them."""
    is_folder = path.is_dir()

    async def work(memory: Memory) -> None:
        with progress_bar("learning") as progress:
            if is_folder:
                result = await memory.documents.learn_folder(memory.scope, path, progress, caller=CALLER)
            else:
                result = LearnedFolder([await memory.documents.learn_file(memory.scope, path, caller=CALLER)])
        waiting = 0
        if not all(learned.is_unchanged for learned in result.learned):
            with progress_bar("embedding") as progress:
                waiting = await memory.documents.embed(progress)
        notes = _notes(result, waiting)
        answers = {question: await memory.search(memory.scope, question, limit=3, caller=CALLER) for question in ask}
        parts: list[Part] = [*_lines(result, path), *notes_text(notes)]
        for question, answer in answers.items():
            parts += search_parts(answer, question, memory.scope)
        content: dict[str, Any] = {
            "documents": [replies.learned_json(learned) for learned in result.learned],
            "skipped": [{"path": item.path, "reason": item.reason} for item in result.skipped],
            "gone": [replies.document_json(item) for item in result.gone],
            "notes": list(notes),
            "answers": {name: SearchReply.of(answer, memory.scope).as_json() for name, answer in answers.items()},
        }
        print_result(as_json, content, *parts, done="" if temporary else str(parts[0]))

    if not temporary:
        with_memory(ctx, work)
        return
    settings = exit_on_error(lambda: settings_of(ctx))
    with tempfile.TemporaryDirectory(prefix="palimpsest-") as folder:
        temporary_paths = {"data_dir": Path(folder), "history_db_path": None}
        with_memory(ctx, work, settings.model_copy(update=temporary_paths))


def _lines(result: LearnedFolder, path: Path) -> list[Part]:
    """Return a line for each document that is new or has changed, then how many have not, what was skipped, and why."""
    changed = [learned for learned in result.learned if not learned.is_unchanged]
    lines: list[Part] = [replies.learned_line(learned) for learned in changed]
    unchanged = len(result.learned) - len(changed)
    if unchanged == 1 and not changed and not path.is_dir():
        lines.append(replies.learned_line(result.learned[0]))
    elif unchanged:
        lines.append(f"unchanged: {counted(unchanged, 'document')}")
    if not result.learned:
        lines.append(f"nothing was learned from {path}")
    reasons = Counter(item.reason for item in result.skipped)
    for reason, count in reasons.items():
        names = [item.path for item in result.skipped if item.reason == reason][:MAX_NAMED]
        more = f" and {count - MAX_NAMED} more" if count > MAX_NAMED else ""
        lines.append(f"skipped: {', '.join(names)}{more}: {reason}")
    lines += [
        f"gone: {item.title} is not in the folder any more. Its pages stay; palimpsest documents {item.id[:8]} "
        "--delete deletes them"
        for item in result.gone
    ]
    return lines


def _notes(result: LearnedFolder, waiting: int) -> tuple[str, ...]:
    """Return the notes on all documents, without those on texts that have been embedded since."""
    told = (note for learned in result.learned for note in learned.notes)
    notes = dict.fromkeys(note for note in told if not note.startswith("found by"))
    late = [f"found by words only, until they can be embedded: {counted(waiting, 'text')}"] if waiting else []
    return (*notes, *late)
