"""How SQLite writes the SQL constructs that `store/mapping.py` defines."""

from __future__ import annotations

from typing import Any

from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

from palimpsest.store.mapping import json_elements, json_numbers, next_number


def register() -> None:
    """Teach SQLAlchemy's compiler for SQLite our constructs."""
    compiles(json_elements, "sqlite")(_json_elements)
    compiles(json_numbers, "sqlite")(_json_elements)
    compiles(next_number, "sqlite")(_next_number)


def _json_elements(element: json_elements, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **options)})"


def _next_number(element: next_number, compiler: SQLCompiler, **options: Any) -> str:
    return f"max({compiler.process(element.clauses, **options)}) + 1"
