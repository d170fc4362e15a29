"""The paths of care."""

from __future__ import annotations

from starlette.routing import Route

from palimpsest.page.safety import UPLOAD_PATH
from palimpsest.page.views.care import backups, exports, imports, overview, prompts, settings, tokens

PATHS = ("/care",)
"""What the paths of care begin with."""

ROUTES = [
    Route("/care", overview.care, methods=["GET"]),
    Route("/care/findings", overview.findings, methods=["GET"]),
    Route("/care/backups", backups.backups, methods=["GET"]),
    Route("/care/backups", backups.make, methods=["POST"]),
    Route("/care/backups/restore", backups.ask, methods=["GET"]),
    Route("/care/backups/restore", backups.put_back, methods=["POST"]),
    Route("/care/backups/restored", backups.restored, methods=["GET"]),
    Route(UPLOAD_PATH, imports.import_, methods=["GET"]),
    Route(UPLOAD_PATH, imports.upload, methods=["POST"]),
    Route("/care/import/start", imports.start, methods=["POST"]),
    Route("/care/import/discard", imports.discard, methods=["POST"]),
    Route("/care/export/{form}", exports.export, methods=["GET"]),
    Route("/care/tokens", tokens.tokens, methods=["GET"]),
    Route("/care/tokens", tokens.create, methods=["POST"]),
    Route("/care/tokens/{id}/revoke", tokens.revoke, methods=["POST"]),
    Route("/care/settings", settings.settings, methods=["GET"]),
    Route("/care/prompts", prompts.prompts, methods=["GET"]),
    Route("/care/prompts/{name}", prompts.prompt, methods=["GET"]),
    Route("/care/prompts/{name}", prompts.save, methods=["POST"]),
    Route("/care/prompts/{name}/shipped", prompts.return_, methods=["POST"]),
]
