"""Say what a correction did, and offer to undo it."""

from __future__ import annotations

from http import HTTPStatus

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from palimpsest.core.models import Memory, Scope
from palimpsest.learn.apply import WriteResult
from palimpsest.page.asked import answered, own_path, told_to
from palimpsest.page.rendering import in_project, rendered


def done_by(result: WriteResult, done: str = "changed") -> str:
    """Return the word for what a write did: `done`, or that nothing had to change."""
    return done if result.edit else "unchanged"


def outcome_page(
    request: Request, scope: Scope, form: FormData, result: WriteResult, done: str, *, kept: Memory | None = None
) -> Response:
    """Lead to a page that says what was done, with its undo and the way back to where the form was."""
    values = {
        "scope": scope,
        "done": done_by(result, done),
        "edit": result.edit,
        "changed": result.outcomes if kept is None else (),
        "notes": result.notes,
        "kept": kept,
        "back": own_path(request, str(form.get("back", ""))) or in_project("/", scope),
    }
    return answered(request, in_project("/done", scope), values)


async def done(request: Request) -> Response:
    """Say what the write did that led here. What is no longer kept is not said any more."""
    told = told_to(request)
    return rendered(request, "done.html", told) if told else RedirectResponse("/", HTTPStatus.SEE_OTHER)
