"""A memory's page, corrections of one or many, and the log of edits."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import partial
from http import HTTPStatus
from typing import Any, TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from palimpsest.core.errors import ChangedMeanwhileError, InputError, StaleDecisionError
from palimpsest.core.models import EXPIRES_AT, PINNED, Memory, Scope, Undo, Version
from palimpsest.core.validation import HintsInput, hints_from
from palimpsest.learn.browsing import label_changes
from palimpsest.learn.commit import WriteResult
from palimpsest.learn.duplicates import AlikePage
from palimpsest.memory import Memory as OpenMemory
from palimpsest.page import page_context as context
from palimpsest.page.page_context import CALLER
from palimpsest.recall.hits import memory_hit

# Say what a correction did, and offer to undo it.


def done_by(result: WriteResult, done: str = "changed") -> str:
    """Return the word for what a write did: `done`, or that nothing had to change."""
    return done if result.edit else "unchanged"


async def outcome_page(request: Request, result: WriteResult, done: str, kept: Memory | None = None) -> Response:
    """Lead to a page that says what was done, with its undo and the way back to where the form was."""
    scope, form = context.scope_of(request), await request.form()
    values = {
        "scope": scope,
        "done": done_by(result, done),
        "edit": result.edit,
        "changed": result.outcomes if kept is None else (),
        "notes": result.notes,
        "kept": kept,
        "back": context.own_path(str(form.get("back", ""))) or context.in_project("/", scope),
    }
    return context.answered(request, "/done", values)


async def done(request: Request) -> Response:
    """Say what the write did that led here. What is no longer kept is not said any more."""
    told = context.told_to(request)
    return context.rendered(request, "done.html", **told) if told else context.redirect("/")


# A memory's page: what it says, how it came to say it, and what it is connected with.

# How many recalls are shown, the newest: enough to see what a memory is used for.
MAX_RECALLS = 20


async def memory_page(
    request: Request, draft: Mapping[str, str] | None = None, problem: str = "", status: int = 200
) -> Response:
    """Show a memory, living or deleted. `draft` is what somebody wrote that could not be saved, because of a `problem`.

    A problem is a text, or the name of one among the words of the page.
    """
    memory_id, told = request.path_params["id"], context.told_to(request)
    opened, scope = await context.memory_of(request), context.scope_of(request)
    stored, versions, predecessors, linked, _ = await opened.history(scope, memory_id)
    return context.shown(
        request,
        "memory.html",
        status,
        memory=stored,
        versions=[(version, list(_pieces(version))) for version in reversed(versions)],
        sources=await opened.sources(scope, stored.id),
        predecessors=predecessors,
        labels=await label_changes(opened.engine, scope, [version.edit for version in versions]),
        contradicting=[] if stored.deleted_at else await _contradicting(opened, scope, stored.id),
        linked=linked,
        recalls=await opened.recall_log.recalls(
            scope, stored.id, limit=MAX_RECALLS, in_all_projects=not context.visitor_of(request).grant.project
        ),
        recall_log_days=opened.recall_log.days,
        done=told.get("done", ""),
        edit=told.get("edit", 0),
        draft=draft or {},
        problem=problem,
    )


async def _contradicting(opened: OpenMemory, scope: Scope, memory_id: str) -> list[Memory]:
    """Return the memories that give a relation another value than a memory does, where it can have one only."""
    found: list[Memory] = []
    for conflict in await opened.corrections.conflicts(scope, memory_id):
        of_value = [value.memories for value in conflict.values]
        if any(each.id == memory_id for memories in of_value for each in memories):
            found += [each for memories in of_value for each in memories if memory_id not in {m.id for m in memories}]
    return found


def _pieces(version: Version) -> Iterator[tuple[str, str]]:
    """Yield the text of a version word by word, each piece with "added", "removed" or ""."""
    before = (version.old_memory or "").split()
    after = ("" if version.is_deleted else version.new_memory or "").split()
    for change, start, end, new_start, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if start < end and change != "equal":
            yield " ".join(before[start:end]), "removed"
        if new_start < new_end:
            yield " ".join(after[new_start:new_end]), "" if change == "equal" else "added"


# Correct a hit where it stands in a list. Without JavaScript a link leads to the page of the memory instead.

# The problem, among the words of the page, of a form whose memory was changed since it was sent.
CHANGED_BY_ANOTHER = "changed_by_another"


async def form(request: Request) -> Response:
    """Return a hit as a form."""
    scope = context.writable_scope_of(request)
    stored = await memory_named(request)
    if not context.is_part(request):
        return context.redirect(f"/memories/{stored.id}", scope)
    return _form(request, stored, {name: fields_of(stored)[name] for name in ("text", "tags", "pinned")})


async def hit(request: Request) -> Response:
    """Return a hit as it is, in place of its form."""
    return _hit(request, await memory_named(request), "", 0)


async def save_hit(request: Request) -> Response:
    """Correct a memory, and return it as a hit with its undo, or the form again with what is wrong."""
    memory, scope, sent = await context.memory_of(request), context.writable_scope_of(request), await request.form()
    stored = await memory_named(request)
    text, tags, pinned = str(sent.get("text", "")), str(sent.get("tags", "")), sent.get("pinned") == "on"
    given = {"text": text, "tags": tags, "pinned": pinned}
    listed, metadata, revision = tags.split(","), {PINNED: pinned or None}, context.number_in(sent, "revision")
    write = memory.update(scope, stored.id, text=text, metadata=metadata, tags=listed, caller=CALLER, revision=revision)
    if not isinstance(result := await _saved(request, given, write), WriteResult):
        stored = await memory_named(request)
        return _form(request, stored, given, result) if result else _hit(request, stored, "unchanged", 0)
    (outcome,) = result.outcomes
    kept = await memory_named(request, outcome.duplicate_of or outcome.memory.id)
    if not context.is_part(request):
        return context.answered(request, f"/memories/{kept.id}", {"done": done_by(result), "edit": result.edit})
    return _hit(request, kept, done_by(result), result.edit)


async def _saved(request: Request, given: Mapping[str, Any], write: Awaitable[WriteResult]) -> WriteResult | str:
    """Return what a write of the path's memory did, or why it was not done: "" if the same was sent twice."""
    try:
        return await write
    except (ChangedMeanwhileError, StaleDecisionError):
        is_same = bool(given) and given.items() <= fields_of(await memory_named(request)).items()
        return "" if is_same else CHANGED_BY_ANOTHER
    except InputError as error:
        return str(error)


async def memory_named(request: Request, memory_id: str = "") -> Memory:
    """Return the memory that a path names, living or deleted, or another. Raises an error that answers 404."""
    memory = await context.memory_of(request)
    stored = await memory.get(context.scope_of(request), memory_id or request.path_params["id"], is_use=False)
    if not isinstance(stored, Memory):
        raise HTTPException(404)
    return stored


def fields_of(stored: Memory) -> dict[str, Any]:
    """Return what the forms of a memory show of it."""
    return {
        "text": stored.text,
        "tags": ", ".join(stored.tags),
        "hints": "\n".join(stored.keywords),
        "since": stored.since,
        "until": stored.until or str(stored.metadata.get(EXPIRES_AT) or ""),
        "pinned": bool(stored.metadata.get(PINNED)),
    }


def _form(request: Request, stored: Memory, fields: Mapping[str, Any], problem: str = "") -> Response:
    return context.shown(request, "correct/hit_form.html", memory=stored, problem=problem, **fields)


def _hit(request: Request, stored: Memory, done: str, edit: int) -> Response:
    said: dict[str, Any] = {"done": done, "edit": edit, "back": context.place_of(request)}
    return context.shown(request, "correct/hit.html", hit=memory_hit(stored), explain=False, **said)


# Merge memories that say nearly the same, and settle which of several is true now.

# How many memories are merged, or closed in favour of one, at once: more than a page offers.
MAX_MERGED = 50

# How many conflicts are listed at once.
LISTED = 30

# What further contradictions of relations are shown with: those between texts stand on pages of their own.
NOT_COMPARED = AlikePage((), 0, None)


async def duplicates(request: Request) -> Response:
    """List groups of memories that say nearly the same."""
    memory, scope = await context.memory_of(request), context.scope_of(request)
    before = context.number_in(request.query_params, "cursor")
    page = await memory.corrections.duplicates(scope, before)
    return context.shown(request, "correct/duplicates.html", page=page, is_first=before is None)


async def conflicts(request: Request) -> Response:
    """List relations with several values, and memories that a newer one probably replaces."""
    memory, scope = await context.memory_of(request), context.scope_of(request)
    before = context.number_in(request.query_params, "cursor")
    after = context.number_in(request.query_params, "after") or 0
    named = await memory.corrections.conflicts(scope)
    of_named = [{each.id for value in conflict.values for each in value.memories} for conflict in named]
    page = NOT_COMPARED if after else await memory.corrections.contradictions(scope, before)
    groups = [
        group
        for group in page.groups
        if not any({each.id for each in group.memories} <= ids for ids in of_named)  # it is named above
    ]
    following = after + LISTED
    return context.shown(
        request,
        "correct/conflicts.html",
        conflicts=named[after:following] if before is None else (),
        all_conflicts=len(named),
        following=following if before is None and len(named) > following else None,
        page=replace(page, groups=tuple(groups)),
        is_first=before is None,
    )


async def merge(request: Request) -> Response:
    """Close memories in favour of one that says the same, which takes over what they know."""
    return await _in_favour(request, "merged", (await context.memory_of(request)).corrections.merge)


async def settle(request: Request) -> Response:
    """Close memories in favour of the one that is true now, or delete those that never were."""
    memory, were_true = await context.memory_of(request), (await request.form()).get("never") != "on"
    close = partial(memory.corrections.settle, were_true=were_true)
    return await _in_favour(request, "settled" if were_true else "settled_never", close)


async def _in_favour(request: Request, done: str, close: Callable[..., Awaitable[WriteResult]]) -> Response:
    """Close the memories that a form names in favour of the one that it keeps."""
    memory, scope, form = await context.memory_of(request), context.writable_scope_of(request), await request.form()
    kept = str(form.get("kept", ""))
    others = [str(value) for value in form.getlist("id") if value != kept]
    if not kept or not 0 < len(others) <= MAX_MERGED:
        raise InputError(f"choose the memory to keep, and 1 to {MAX_MERGED} others; nothing was changed")
    result = await close(scope, kept, others, caller=CALLER)
    stored = await memory.get(scope, kept, is_use=False)
    return await outcome_page(request, result, done, stored if isinstance(stored, Memory) else None)


# Correct several memories at once. Each action is one edit, and changes all of them or none.

# How many memories one action may change: more than a page shows.
MAX_CHOSEN = 500

Action: TypeAlias = Callable[[OpenMemory, str], Callable[..., Awaitable[WriteResult]]]

# By the last part of the path: the word for what was done, and the write, which is given the tag of the form.
ACTIONS: Mapping[str, tuple[str, Action]] = {
    "delete": ("deleted", lambda memory, _: memory.delete),
    "restore": ("restored", lambda memory, _: memory.restore_all),
    "tag": ("changed", lambda memory, tag: partial(memory.corrections.add_tag, tag=tag)),
    "untag": ("changed", lambda memory, tag: partial(memory.corrections.remove_tag, tag=tag)),
    "pin": ("changed", lambda memory, _: partial(memory.corrections.pin, pinned=True)),
    "unpin": ("changed", lambda memory, _: partial(memory.corrections.pin, pinned=False)),
    "confirm": ("changed", lambda memory, _: memory.corrections.confirm),
}


async def correct_many(request: Request) -> Response:
    """Do what the path says with the memories and messages that a form chose, or with all that it showed."""
    memory, scope, form = await context.memory_of(request), context.writable_scope_of(request), await request.form()
    done, action = ACTIONS[request.url.path.rpartition("/")[2]]
    chosen = [str(value) for value in form.getlist("shown" if form.get("all") == "on" else "id")]
    if not 0 < len(chosen) <= MAX_CHOSEN:
        raise InputError(f"choose 1 to {MAX_CHOSEN} memories; nothing was changed")
    result = await action(memory, str(form.get("tag", "")))(scope, chosen, caller=CALLER)
    return await outcome_page(request, result, done)


# Correct what is stored: every action is one edit, and its answer offers to undo it.


Edit: TypeAlias = Callable[[OpenMemory, Mapping[str, Any]], Callable[..., Awaitable[WriteResult]]]

# By the last part of the path: the word for what was done, the fields that can be corrected, and the write, which is
# given the form. One without fields can be done with many memories.
EDITS: Mapping[str, tuple[str, Sequence[str], Edit]] = {
    "text": ("changed", ("text",), lambda memory, sent: partial(memory.update, text=sent["text"])),
    "tags": ("changed", ("tags",), lambda memory, sent: partial(memory.update, tags=sent["tags"].split(","))),
    "hints": ("changed", ("hints",), lambda memory, sent: partial(memory.update, hints=_hints(sent["hints"]))),
    "dates": (
        "changed",
        ("since", "until"),
        lambda memory, sent: partial(memory.corrections.set_validity, since=sent["since"], until=sent["until"]),
    ),
    "pinned": ("changed", (), lambda memory, sent: partial(memory.corrections.pin, pinned=sent.get("pinned") == "on")),
    "delete": ("deleted", (), lambda memory, _: memory.delete),
    "restore": ("restored", (), lambda memory, _: memory.restore_all),
}


def _hints(text: str) -> tuple[str, ...]:
    return hints_from(HintsInput(words=text.splitlines()))


async def correct(request: Request) -> Response:
    """Do what the path says with a memory, and lead to its page. What cannot be saved is shown with the reason."""
    memory, scope, form = await context.memory_of(request), context.writable_scope_of(request), await request.form()
    memory_id, (word, fields, edit_with) = request.path_params["id"], EDITS[request.url.path.rpartition("/")[2]]
    given = {name: str(form.get(name, "")) for name in fields}

    async def write() -> WriteResult:
        edit = edit_with(memory, dict(form) | given)
        revision = context.number_in(form, "revision")
        if not fields:
            return await edit(scope, [memory_id if revision is None else f"{memory_id}@{revision}"], caller=CALLER)
        return await edit(scope, memory_id, caller=CALLER, revision=revision)

    result = await _saved(request, given, write())
    if isinstance(result, str) and result:
        await memory_named(request)
        status = HTTPStatus.CONFLICT if result == CHANGED_BY_ANOTHER else HTTPStatus.BAD_REQUEST
        return await memory_page(request, given, result, status)
    done, number = (done_by(result, word), result.edit) if isinstance(result, WriteResult) else ("unchanged", 0)
    return context.answered(request, f"/memories/{memory_id}", {"done": done, "edit": number})


async def undo(request: Request) -> Response:
    """Undo an edit by its number, or all edits from one on."""
    memory, scope, form = await context.memory_of(request), context.writable_scope_of(request), await request.form()
    number = request.path_params["number"]
    what = Undo(edit=number)
    if form.get("since") == "on":
        (edit,) = [entry for entry in await memory.log(scope, limit=1, before=number + 1) if entry.number == number]
        what = Undo(since=edit.made_at)
    await memory.undo(scope, what, caller=CALLER)
    back = context.own_path(str(form.get("back", ""))) or context.in_project("/edits", scope)
    return context.redirect(f"{back}{'&' if '?' in back else '?'}{context.DONE}=undone")


# The log of edits, newest first, each with its undo.

# How many edits are shown at once.
LIMIT = 30


async def edits(request: Request) -> Response:
    """List the edits that the scope sees."""
    memory, scope = await context.memory_of(request), context.scope_of(request)
    listed = await memory.log(scope, limit=LIMIT, before=context.number_in(request.query_params, "before"))
    return context.shown(
        request,
        "edits.html",
        edits=listed,
        labels=await label_changes(memory.engine, scope, [edit.number for edit in listed]),
        before=listed[-1].number if len(listed) == LIMIT else None,
    )
