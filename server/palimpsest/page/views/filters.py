"""The filters of a search, as its form sends them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request

from palimpsest.core.models import Scope

KINDS = ("memory", "message")

FURTHER = ("tag", "entity", "speaker", "first", "last", "agent", "run")
"""The filters that stand folded below the search."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What hits must be: of a kind, with a tag, about an entity, by a speaker, of an agent or run, within two days.

    What is "" does not filter. `first` and `last` are days in ISO 8601.
    """

    kind: str = ""
    tag: str = ""
    entity: str = ""
    speaker: str = ""
    first: str = ""
    last: str = ""
    agent: str = ""
    run: str = ""

    @property
    def further(self) -> Mapping[str, str]:
        """Return those that stand folded below the search, by name."""
        return {name: str(getattr(self, name)) for name in FURTHER}

    @property
    def of_hits(self) -> Mapping[str, Any]:
        """Return them as a filter on hits."""
        chosen = {"kind": self.kind, "tags": self.tag, "entity": self.entity, "speaker": self.speaker}
        filters: dict[str, Any] = {name: value for name, value in chosen.items() if value}
        days = {operator: day for operator, day in (("gte", self.first), ("lte", self.last)) if day}
        return filters | {"at": days} if days else filters

    def within(self, scope: Scope) -> Scope:
        """Return a scope with the agent and the run that are asked for."""
        return replace(scope, agent_id=self.agent, run_id=self.run)


def filters_of(request: Request) -> Filters:
    """Return the filters of a request."""
    asked = request.query_params
    kind = asked.get("kind", "")
    return Filters(kind if kind in KINDS else "", **{name: asked.get(name, "").strip() for name in FURTHER})
