"""How results are said: a text for a model to read, and the same content as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from palimpsest.core.clock import iso
from palimpsest.core.models import Edit, Event, Hit, Memory, Outcome, Scope, Step, Version

if TYPE_CHECKING:  # the flows are slow to import, and shaping a reply needs only their names
    from palimpsest.learn.apply import WriteResult
    from palimpsest.learn.edit import Stored
    from palimpsest.learn.summaries import Summarized
    from palimpsest.recall.listing import Page
    from palimpsest.recall.pipeline import SearchResult

SHORT_ID = 8
SHOWN_STEPS = 10
"""How many steps of one edit are listed."""

RESEMBLES = (
    'if one it resembles is no longer true: add_memory with the same text and replaces=["its id"]; if one says the '
    "same: delete_memory; if all are true: leave them"
)


def short(memory_id: str) -> str:
    """Return the beginning of an id, which is accepted wherever the id is."""
    return memory_id[:SHORT_ID]


def hit_json(hit: Hit) -> dict[str, Any]:
    """Return a hit as `search_memories` gives it."""
    found: dict[str, Any] = {
        "id": hit.id,
        "kind": hit.kind,
        "text": hit.text,
        "score": round(hit.score, 3),
        "at": iso(hit.at),
        "sources": list(hit.sources),
        "role": hit.role,
        "name": hit.name,
        "metadata": dict(hit.metadata),
        "created_at": iso(hit.created_at),
        "updated_at": iso(hit.updated_at),
    }
    if hit.tags:
        found["tags"] = list(hit.tags)
    if hit.score_parts:
        found["explained"] = {name: round(part, 2) for name, part in hit.score_parts.items() if round(part, 2)}
    return found


def explanation(hit: Hit) -> str:
    """Return of what the score of a hit was made, the weightiest first; empty where that was not asked for."""
    parts = sorted(hit.score_parts.items(), key=lambda each: -abs(each[1]))
    return ", ".join(f"{name} {part:+.2f}" for name, part in parts if round(part, 2))


def hit_line(hit: Hit) -> str:
    """Return a hit as one line of text: id, date, who said it, what."""
    who = f" {hit.name or hit.role} said:" if hit.kind == "message" else ""
    line = f"[{short(hit.id)}] {iso(hit.at)[:10]}{who} {_one_line(hit.text)}"
    return f"{line}\n  {explanation(hit)}" if hit.score_parts else line


def answer_text(answer: SearchResult, scope: Scope) -> str:
    """Return the answer of a search as text."""
    lines = [hit_line(hit) for hit in answer.hits] or ["nothing found"]
    if answer.omitted:
        lines.append(f"({answer.omitted} more did not fit; raise max_tokens to see them)")
    return _with_notes(lines, answer.notes, scope)


def answer_json(answer: SearchResult, scope: Scope) -> dict[str, Any]:
    """Return the answer of a search as JSON."""
    return {
        "results": [hit_json(hit) for hit in answer.hits],
        "omitted": answer.omitted,
        "notes": _notes(answer.notes, scope),
    }


def page_text(page: Page, scope: Scope) -> str:
    """Return a page of memories as text."""
    lines = [hit_line(hit) for hit in page.hits] or ["no memories"]
    if page.cursor:
        lines.append(f"(more: the same call with cursor='{page.cursor}')")
    return _with_notes(lines, (), scope)


def page_json(page: Page, scope: Scope) -> dict[str, Any]:
    """Return a page of memories as JSON; there is no score to speak of."""
    results = [{key: value for key, value in hit_json(hit).items() if key != "score"} for hit in page.hits]
    return {"results": results, "cursor": page.cursor, "notes": _notes((), scope)}


def done_text(done: WriteResult, notes: Sequence[str], scope: Scope) -> str:
    """Return what an add did as text, the most important first."""
    lines = [_changed_line(done, change) for change in done.outcomes]
    if done.kept_messages and not done.outcomes:
        lines.append(f"kept {done.kept_messages} message{'s' if done.kept_messages != 1 else ''}")
    if not lines:
        lines.append("unchanged")
    return _with_notes(lines, [*notes, *_advice(done)], scope)


def _advice(done: WriteResult) -> list[str]:
    """Return what to do about resemblance, where there is some."""
    return [RESEMBLES] if any(done.similar.values()) else []


def _changed_line(done: WriteResult, change: Outcome) -> str:
    line = change_line(change)
    for item in done.similar.get(change.memory.id, ()):
        memory = item.memory
        line += f"\n  resembles [{short(memory.id)}] {iso(memory.at)[:10]} {_cut(memory.text)}"
    return line


def change_line(change: Outcome) -> str:
    """Return what one change did, beginning with the word for it."""
    memory = change.memory
    text = f"[{short(memory.id)}] {_one_line(memory.text)}"
    if change.replaced:
        ids = ", ".join(f"[{short(memory_id)}]" for memory_id in change.replaced)
        return f"replaced: {text} (was: {ids} {_cut(change.previous or '')})"
    match change.event:
        case Event.ADD:
            return f"added: {text}"
        case Event.UPDATE if change.previous == memory.text:
            return f"updated: {text} (text as before, other metadata, labels or date)"
        case Event.UPDATE:
            return f"updated: {text} (was: {_cut(change.previous or '')})"
        case Event.DELETE if change.duplicate_of is not None:
            return f"deleted: {text} (another memory, {short(change.duplicate_of)}, already says the new text)"
        case Event.DELETE:
            return f"deleted: {text}"
        case Event.NONE if change.duplicate_of is not None:
            return f"unchanged (duplicate of {short(change.duplicate_of)}): {_one_line(memory.text)}"
        case Event.NONE:
            return f"unchanged{' (deleted already)' if memory.deleted_at else ''}: {text}"


def done_json(done: WriteResult, notes: Sequence[str], scope: Scope) -> dict[str, Any]:
    """Return what an add did as JSON."""
    return {
        "results": [_result(change, done) for change in done.outcomes],
        "kept_messages": done.kept_messages,
        "notes": _notes([*notes, *_advice(done)], scope),
    }


def _result(change: Outcome, done: WriteResult) -> dict[str, Any]:
    result = change_json(change)
    similar = done.similar.get(change.memory.id, ())
    if similar:
        result["similar"] = [
            {
                "id": item.memory.id,
                "text": item.memory.text,
                "at": iso(item.memory.at),
                "score": round(item.likeness, 3),
            }
            for item in similar
        ]
    return result


def change_json(change: Outcome) -> dict[str, Any]:
    """Return one change in Mem0's form."""
    result: dict[str, Any] = {
        "id": change.memory.id,
        "event": change.event.value,
        "memory": change.memory.text,
    }
    if change.previous is not None and change.event is not Event.DELETE:
        result["previous"] = change.previous
    if change.replaced:
        result["replaced"] = list(change.replaced)
    if change.duplicate_of is not None:
        result["duplicate_of"] = change.duplicate_of
    return result


def changes_text(done: WriteResult, scope: Scope) -> str:
    """Return changes as text, with the way back from a deletion."""
    lines = [_changed_line(done, change) for change in done.outcomes] or ["unchanged: there was nothing to do"]
    return _with_notes(lines, [*done.notes, *_advice(done), *_way_back(done)], scope)


def _way_back(done: WriteResult) -> list[str]:
    """Return how a deletion is taken back, and how it is made for good."""
    deleted = next((change.memory.id for change in done.outcomes if change.event is Event.DELETE), None)
    if deleted is None:
        return []
    back = f'update_memory(memory_id="{short(deleted)}", restore=true) brings it back'
    return [f"{back}; only the command line erases for good: palimpsest purge"]


def all_deleted_text(done: WriteResult, scope: Scope) -> str:
    """Return what a deletion of everything did as text."""
    if not done.outcomes:
        return _with_notes(["unchanged: nothing is stored in this scope"], done.notes, scope)
    turns = sum(change.kind == "message" for change in done.outcomes)
    told = f"deleted: {len(done.outcomes) - turns} memories and {turns} turns of conversations"
    back = "list_memories(deleted=true) shows the memories; on the command line palimpsest undo brings all of it back"
    return _with_notes([told], [*done.notes, back], scope)


def would_delete_text(there: Stored, scope: Scope, wanted: str) -> str:
    """Return what a deletion of everything would do, and how it is confirmed."""
    examples = "; ".join(_cut(memory.text, 60) for memory in there.memories[-3:])
    rest = "what is outside the project stays" if scope.project else "what belongs to projects stays; scope names one"
    return (
        f"this would {wanted} of {scope} ({rest}){f', such as: {examples}' if examples else ''}. Nothing was deleted. "
        f"Ask the user; if that is wanted, call again with all=true and confirm='{wanted}'."
    )


def restored_text(done: WriteResult, scope: Scope) -> str:
    """Return the return of a deleted memory or turn as text."""
    lines = [
        f"restored: [{short(change.memory.id)}] {_one_line(change.memory.text)}"
        if change.event is Event.ADD
        else f"unchanged (not deleted): [{short(change.memory.id)}] {_one_line(change.memory.text)}"
        for change in done.outcomes
    ]
    return _with_notes(lines, done.notes, scope)


def changes_json(done: WriteResult, scope: Scope) -> dict[str, Any]:
    """Return changes as JSON."""
    notes = [*done.notes, *_advice(done), *_way_back(done)]
    return {"results": [_result(change, done) for change in done.outcomes], "notes": _notes(notes, scope)}


def edits_text(edits: Sequence[Edit]) -> str:
    """Return what was changed as text, one edit after another, newest first."""
    lines: list[str] = []
    for edit in edits:
        made_by = " ".join(part for part in (edit.provenance.stage, edit.provenance.model) if part)
        caller = f" for {edit.provenance.caller}" if edit.provenance.caller else ""
        lines.append(f"#{edit.number} {iso(edit.made_at)} {made_by}{caller}")
        lines += [f"  {_step_line(step)}" for step in edit.steps[:SHOWN_STEPS]]
        if len(edit.steps) > SHOWN_STEPS:
            lines.append(f"  … and {len(edit.steps) - SHOWN_STEPS} more")
    return "\n".join(lines or ["nothing was changed yet"])


def _step_line(step: Step) -> str:
    word = {
        ("memory", Event.ADD): "added",
        ("memory", Event.UPDATE): "updated",
        ("memory", Event.DELETE): "deleted",
        ("message", Event.ADD): "kept turn",
        ("message", Event.DELETE): "deleted turn",
    }.get((step.kind, step.event), step.event.value.lower())
    text = _one_line(step.after if step.after is not None else step.before or "")
    was = step.event is Event.UPDATE and step.before is not None and step.before != step.after
    return f"{word} [{short(step.owner_id)}] {text}" + (f" (was: {_one_line(step.before or '')})" if was else "")


def edits_json(edits: Sequence[Edit]) -> dict[str, Any]:
    """Return what was changed as JSON, newest first."""
    return {
        "changes": [
            {
                "change": edit.number,
                "at": iso(edit.made_at),
                "stage": edit.provenance.stage,
                "model": edit.provenance.model,
                "caller": edit.provenance.caller,
                "steps": [
                    {
                        "kind": step.kind,
                        "id": step.owner_id,
                        "event": step.event.value,
                        "before": step.before,
                        "after": step.after,
                    }
                    for step in edit.steps
                ],
            }
            for edit in edits
        ]
    }


def summary_text(found: Summarized, scope: Scope) -> str:
    """Return a summary as text."""
    notes = list(found.notes)
    if found.changes_since:
        notes.append(f"{found.changes_since} later changes are not in it; refresh=true writes it anew")
    return _with_notes([found.text], notes, scope)


def summary_json(found: Summarized, scope: Scope) -> dict[str, Any]:
    """Return a summary as JSON."""
    return {
        "summary": found.text,
        "kind": found.kind,
        "changes_since": found.changes_since,
        "notes": _notes(found.notes, scope),
    }


def history_text(memory: Memory, entries: Sequence[Version]) -> str:
    """Return every version of a memory as text, oldest first."""
    state = "deleted" if memory.deleted_at else "current"
    if memory.superseded_by:
        state = f"superseded by [{short(memory.superseded_by)}]"
    lines = [f"[{short(memory.id)}] {state}: {_one_line(memory.text)}"]
    for entry in entries:
        made_by = " ".join(part for part in (entry.provenance.stage, entry.provenance.model) if part)
        sources = f", from {', '.join(entry.sources)}" if entry.sources else ""
        text = _one_line(entry.new_memory if entry.new_memory is not None else entry.old_memory or "")
        lines.append(f"{iso(entry.updated_at)} {entry.event} by {made_by}{sources}: {text}")
    return "\n".join(lines)


def history_json(memory: Memory, entries: Sequence[Version]) -> dict[str, Any]:
    """Return every version of a memory as JSON, with the columns of Mem0's history."""
    return {
        "id": memory.id,
        "memory": memory.text,
        "deleted": memory.deleted_at is not None,
        "superseded_by": memory.superseded_by,
        "history": [
            {
                "id": entry.id,
                "memory_id": entry.memory_id,
                "old_memory": entry.old_memory,
                "new_memory": entry.new_memory,
                "event": entry.event.value,
                "created_at": iso(entry.created_at),
                "updated_at": iso(entry.updated_at),
                "is_deleted": entry.is_deleted,
                "actor_id": entry.actor_id,
                "role": entry.role,
                "stage": entry.provenance.stage,
                "model": entry.provenance.model,
                "prompt": entry.provenance.prompt,
                "caller": entry.provenance.caller,
                "change": entry.edit,
                "sources": list(entry.sources),
            }
            for entry in entries
        ],
    }


def _notes(notes: Sequence[str], scope: Scope) -> list[str]:
    return [*notes, f"scope: {scope}"]


def _with_notes(lines: Sequence[str], notes: Sequence[str], scope: Scope) -> str:
    return "\n".join([*lines, *(f"note: {note}" for note in notes), f"scope: {scope}"])


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cut(text: str, longest: int = 200) -> str:
    """Return a text on one line, its end cut off where it is long: it is only mentioned."""
    line = _one_line(text)
    return line if len(line) <= longest else f"{line[:longest].rstrip()}…"
