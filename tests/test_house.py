"""What every file of the package keeps to; which file may import which is in `pyproject.toml`."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import palimpsest

PACKAGE = Path(palimpsest.__file__).parent
SERVER = Path(__file__).parents[1] / "server"

BROAD = Counter(
    {
        "index.chroma": 1,
        "embed.chroma": 1,
        "memory": 1,
        "server.session.lazy_memory": 1,
        "server.session.continuations": 1,
    }
)
"""Where everything may be caught, how often: vendors that raise anything, the
facade, which raises it again, the door, which tells it, and a call in rounds, which raises it in the next."""

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50


def name_of(path: Path) -> str:
    """Return the dotted name of a file under the package; a package's own file has the package's name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


FILES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
MODULES = {name: path for name, path in FILES.items() if path.name != "__init__.py"}
PACKAGES = {name: path for name, path in FILES.items() if path.name == "__init__.py"}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(parsed(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def names_in(node: ast.expr | None) -> set[str]:
    """Return every name in an expression, the last part of a dotted one."""
    within = list(ast.walk(node)) if node is not None else []
    plain = {each.id for each in within if isinstance(each, ast.Name)}
    return plain | {each.attr for each in within if isinstance(each, ast.Attribute)}


def catches_all(handler: ast.ExceptHandler) -> bool:
    """Say whether a handler takes every exception and keeps it; one that ends by raising it again does not."""
    broad = handler.type is None or names_in(handler.type) & {"Exception", "BaseException"}
    last = handler.body[-1]
    return bool(broad) and not (isinstance(last, ast.Raise) and last.exc is None)


class TestFolders:
    @pytest.mark.parametrize("name", PACKAGES)
    def test_a_package_file_imports_nothing(self, name: str) -> None:
        """Guards start-up: importing one module never drags its siblings in."""
        body = parsed(PACKAGES[name]).body
        assert all(isinstance(node, ast.Expr | ast.Assign) for node in body)


class TestManners:
    def test_only_the_settings_read_the_environment(self) -> None:
        """Guards that every setting has one name, one place and one check."""
        readers = {
            name
            for name, path in FILES.items()
            for node in ast.walk(parsed(path))
            if (isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv"})
            or (isinstance(node, ast.ImportFrom) and {alias.name for alias in node.names} & {"environ", "getenv"})
        }
        assert readers == {"core.settings"}

    def test_everything_is_caught_only_where_that_is_allowed(self) -> None:
        """Guards against failures that are swallowed: elsewhere the exceptions are named."""
        found = Counter(
            name
            for name, path in FILES.items()
            for node in ast.walk(parsed(path))
            if (isinstance(node, ast.ExceptHandler) and catches_all(node))
            or (
                isinstance(node, ast.Call)
                and "suppress" in names_in(node.func)
                and any(names_in(argument) & {"Exception", "BaseException"} for argument in node.args)
            )
        )
        assert found <= BROAD, found - BROAD

    @pytest.mark.parametrize("name", FILES)
    def test_a_file_is_short(self, name: str) -> None:
        """Guards that a file can be read in one sitting."""
        assert len(FILES[name].read_text("utf-8").splitlines()) <= MAX_FILE_LINES

    @pytest.mark.parametrize("name", FILES)
    def test_a_function_is_short(self, name: str) -> None:
        """Guards that a function does one thing."""
        long = {
            node.name: node.end_lineno - node.lineno + 1
            for node in functions(FILES[name])
            if node.end_lineno is not None and node.end_lineno - node.lineno >= MAX_FUNCTION_LINES
        }
        assert long == {}

    def test_nothing_is_left_to_be_done(self) -> None:
        """Guards against marks that stay: what is to be done is done, or is written where work is planned."""
        mark = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
        marked = {
            f"{path.name}: {line.strip()}"
            for path in sorted(SERVER.rglob("*.py"))
            for line in path.read_text("utf-8").splitlines()
            if mark.search(line)
        }
        assert marked == set()
