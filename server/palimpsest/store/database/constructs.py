"""Parts of SQL statements that each database writes in its own way, in its `dialect.py`."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Integer
from sqlalchemy.sql.functions import FunctionElement


class json_elements(FunctionElement[Any]):  # noqa: N801 - SQL functions are lower case, as in SQLAlchemy
    """The elements of a JSON array, one row each. Each database has its own function for it."""

    name = "json_elements"
    inherit_cache = True


class json_numbers(json_elements):  # noqa: N801 - likewise
    """The elements of a JSON array of integers, one row each."""

    name = "json_numbers"
    inherit_cache = True


class next_number(FunctionElement[int]):  # noqa: N801 - likewise
    """The next edit number: above all its arguments, none of which is NULL.

    A database that lets several writers in at a time counts by itself.
    """

    name = "next_number"
    type = Integer()
    inherit_cache = True
