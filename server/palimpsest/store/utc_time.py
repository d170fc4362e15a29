"""The column type of all times in the ledger."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from palimpsest.core.clock import exact_iso


class UtcTime(TypeDecorator[datetime]):
    """An aware datetime, stored as ISO 8601 text in UTC with microseconds. Text order is time order."""

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        """Return the instant as text in UTC. Raises ValueError for a naive time, which is a bug."""
        del dialect
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a zone reached the ledger: {value!r}")
        return exact_iso(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:
        """Return the instant as an aware datetime in UTC."""
        del dialect
        return None if value is None else datetime.fromisoformat(value)
