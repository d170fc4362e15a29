"""Change one table of a TOML file that people edit. Comments, order and everything else stay as they are."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

BYTE_ORDER_MARK = "\ufeff"
"""What some editors on Windows put before a text. It stays."""

Path: TypeAlias = tuple[str, str]
"""The name of a table and the key of a table in it."""


def parse(text: str) -> dict[str, Any]:
    """Return the values of a TOML text. Raises ValueError that names the line if it is not TOML."""
    return tomllib.loads(text.removeprefix(BYTE_ORDER_MARK))


def with_table(text: str, path: Path, values: Mapping[str, Any]) -> str:
    """Return the text with a table at a path. Raises ValueError if that would change anything else."""
    before = parse(text)
    if _table(before, path[0]).get(path[1]) == values:
        return text

    def change(document: Any) -> None:
        import tomlkit  # noqa: PLC0415 - only Codex needs it

        if path[0] not in document:
            document.append(path[0], tomlkit.table(is_super_table=True))
        document[path[0]][path[1]] = dict(values)

    return _changed(text, change, {**before, path[0]: {**_table(before, path[0]), path[1]: dict(values)}})


def without_table(text: str, path: Path) -> str:
    """Return the text without the table at a path. Raises ValueError if that would change anything else."""
    expected = copy.deepcopy(parse(text))
    if path[1] not in _table(expected, path[0]):
        return text
    del expected[path[0]][path[1]]

    def change(document: Any) -> None:
        del document[path[0]][path[1]]

    return _changed(text, change, expected)


def _changed(text: str, change: Callable[[Any], None], expected: Mapping[str, Any]) -> str:
    """Return the text after a change. Raises ValueError if its values are not the expected ones then."""
    import tomlkit  # noqa: PLC0415 - only Codex needs it

    mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
    document = tomlkit.parse(text.removeprefix(mark))
    change(document)
    after = mark + tomlkit.dumps(document)
    if "\r\n" in text and "\n" not in text.replace("\r\n", ""):
        after = after.replace("\r\n", "\n").replace("\n", "\r\n")
    if _without_empty(parse(after)) != _without_empty(expected):
        raise ValueError("this change cannot be made without changing other values. Make it by hand")
    return after


def _table(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a table, empty if there is none. Raises ValueError if something else has its name."""
    table: Any = values.get(name, {})
    if isinstance(table, Mapping):
        return cast("Mapping[str, Any]", table)
    raise ValueError(f"a table is expected where '{name}' is {table!r:.40}")


def _without_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without empty tables at the top: a header need not stay if nothing is left below it."""
    return {key: value for key, value in values.items() if value != {}}
