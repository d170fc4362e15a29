"""The paths of the corrections. Those of many memories come before those of one."""

from __future__ import annotations

from starlette.routing import Route

from palimpsest.page.views.correct import alike, chosen, deleted, in_place

ROUTES = (
    Route("/memories/delete", chosen.delete, methods=["POST"]),
    Route("/memories/restore", chosen.restore, methods=["POST"]),
    Route("/memories/tag", chosen.add_tag, methods=["POST"]),
    Route("/memories/untag", chosen.remove_tag, methods=["POST"]),
    Route("/memories/pin", chosen.pin, methods=["POST"]),
    Route("/memories/unpin", chosen.unpin, methods=["POST"]),
    Route("/memories/confirm", chosen.confirm, methods=["POST"]),
    Route("/memories/{id}/edit", in_place.form, methods=["GET"]),
    Route("/memories/{id}/edit", in_place.save, methods=["POST"]),
    Route("/memories/{id}/hit", in_place.hit, methods=["GET"]),
    Route("/memories/{id}/merge", alike.merge_with, methods=["GET"]),
    Route("/duplicates", alike.duplicates, methods=["GET"]),
    Route("/duplicates/merge", alike.merge, methods=["POST"]),
    Route("/conflicts", alike.conflicts, methods=["GET"]),
    Route("/conflicts/settle", alike.settle, methods=["POST"]),
    Route("/deleted", deleted.deleted, methods=["GET"]),
    Route("/captured", deleted.captured, methods=["GET"]),
)

PATHS = ("/duplicates", "/conflicts", "/captured", "/deleted")
"""What their paths begin with, beside those of a memory."""
