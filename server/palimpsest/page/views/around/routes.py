"""The paths of what there is to look around."""

from __future__ import annotations

from starlette.routing import Route

from palimpsest.page.views.around import activity, conversations, documents, entities, live, summaries, time_line

PATHS = ("/timeline", "/entities", "/conversations", "/documents", "/summaries", "/activity", "/live")
"""What these paths begin with."""

ROUTES = (
    Route("/timeline", time_line.time_line, methods=["GET"]),
    Route("/entities", entities.entities, methods=["GET"]),
    Route("/entities/graph", entities.graph, methods=["GET"]),
    Route("/entities/graph.json", entities.whole_graph, methods=["GET"]),
    Route("/entities/{id}", entities.entity, methods=["GET"]),
    Route("/entities/{id}/graph.json", entities.neighbourhood, methods=["GET"]),
    Route("/conversations", conversations.conversations, methods=["GET"]),
    Route("/conversations/{id}", conversations.conversation, methods=["GET"]),
    Route("/documents", documents.documents, methods=["GET"]),
    Route("/documents/{id}", documents.document, methods=["GET"]),
    Route("/summaries", summaries.summaries, methods=["GET"]),
    Route("/summaries/refresh", summaries.refresh, methods=["POST"]),
    Route("/activity", activity.activity, methods=["GET"]),
    Route("/live", live.live, methods=["GET"]),
)
