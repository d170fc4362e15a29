"""Say what a correction did, and offer to undo it."""

from __future__ import annotations

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from palimpsest.core.models import Memory, Scope
from palimpsest.learn.apply import WriteResult
from palimpsest.page.asked import own_path
from palimpsest.page.rendering import in_project, rendered


def done_by(result: WriteResult, done: str = "changed") -> str:
    """Return the word for what a write did: `done`, or that nothing had to change."""
    return done if result.edit else "unchanged"


def outcome_page(
    request: Request, scope: Scope, form: FormData, result: WriteResult, done: str, *, kept: Memory | None = None
) -> Response:
    """Return a page that says what was done, with its undo and the way back to where the form was."""
    values = {
        "scope": scope,
        "done": done_by(result, done),
        "edit": result.edit,
        "changed": result.outcomes if kept is None else (),
        "notes": result.notes,
        "kept": kept,
        "back": own_path(request, str(form.get("back", ""))) or in_project("/", scope),
    }
    return rendered(request, "done.html", values)
