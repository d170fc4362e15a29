"""Rules that hold for every file. Which package may import which is checked by the contracts in `pyproject.toml`."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import palimpsest

PACKAGE = Path(palimpsest.__file__).parent
REPOSITORY = Path(__file__).parents[1]

# How many handlers of a module may catch every exception.
#
# A worker raises it where the work was given. Chroma, onnxruntime and tokenizers raise anything. The facade raises the
# exception again, and so does a call that ends with its connection. The lazily opened memory reports it to every call.
# A call in several rounds raises it in the next round. A job ends with the error, and the work on jobs logs it and goes
# on. So does taking in what hooks captured, and following the ledger with a graph database. A damaged PDF makes its
# reader raise anything. An import of the page ends with it and logs it.
BROAD_HANDLERS = Counter(
    {
        "hooks.intake": 1,
        "embed.workers": 1,
        "index.chroma_folder": 1,
        "index.graph_database": 1,
        "learn.job_runner": 3,
        "learn.readers": 1,
        "embed.chroma": 1,
        "embed.e5": 1,
        "embed.onnx": 1,
        "embed.static": 1,
        "memory": 1,
        "page.administration": 1,
        "server.session.rate_limits": 1,
        "server.session.context": 1,
        "server.session.client_requests": 1,
    }
)


def module_name(path: Path) -> str:
    """Return the dotted name of a file below `palimpsest`; the name of an `__init__.py` is that of its folder."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
PACKAGES = {name: path for name, path in FILES.items() if path.name == "__init__.py"}
FOLDERS = [path.parent for path in PACKAGES.values() if path.parent != PACKAGE]
TEST_FILES = [path for path in sorted((REPOSITORY / "tests").rglob("*.py")) if "node_modules" not in path.parts]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(parsed(path)))


def names_in(expression: ast.expr | None) -> set[str]:
    """Return every name in an expression, the last part of a dotted one."""
    nodes = list(ast.walk(expression)) if expression is not None else []
    plain = {node.id for node in nodes if isinstance(node, ast.Name)}
    return plain | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def catches_everything(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler catches every exception and does not raise it again at its end."""
    broad = handler.type is None or names_in(handler.type) & {"Exception", "BaseException"}
    last = handler.body[-1]
    return bool(broad) and not (isinstance(last, ast.Raise) and last.exc is None)


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the dotted names that a file imports: modules, and names from modules."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


def test_a_name_means_one_file_three_levels_deep_at_most() -> None:
    """Guards that a file is found by its name, and that the architecture page names every folder.

    Only adapters share a name, and only Alembic has a deeper folder.
    """
    names = Counter(path.name for path in FILES.values() if path.name != "__init__.py")
    assert {name for name, number in names.items() if number > 1} == {"openai.py"}
    deep = {path.parent.name for path in FILES.values() if len(path.relative_to(PACKAGE).parts) > 3}
    assert deep == {"versions"}
    page = (REPOSITORY / "docs" / "architecture.md").read_text("utf-8")
    assert {folder.name for folder in FOLDERS} - set(re.findall(r"(\w+)/", page)) == set()


def test_package_files_and_test_modules_are_not_imported_for_what_is_in_them() -> None:
    """Guards start-up time: a package file imports nothing. What several tests use lies in `tests/support`.

    That of the whole package imports `Memory` when somebody asks for it; `test_library.py` guards that nothing is
    imported before.
    """
    importing = {
        name
        for name, path in PACKAGES.items()
        if not all(isinstance(node, ast.Expr | ast.Assign) for node in parsed(path).body)
    }
    assert importing == {""}
    imports = {
        f"{path.relative_to(REPOSITORY)} imports {name}"
        for path in TEST_FILES
        for name in imported_modules(path)
        if re.search(r"(^|\.)test_\w+", name)
    }
    assert imports == set()


def test_only_the_settings_read_the_environment() -> None:
    """Guards that every setting has one name, one place and one check.

    The embedder sets a variable of OpenMP's while it is loaded, and the server one of NumPy's before it is loaded.
    Both have no other interface for it. The hook reads the few variables that it needs itself, because it imports
    the standard library alone. The clients' own variables say where their files are. The launch is what the
    settings are loaded from, before they are.
    """
    readers = {
        name
        for name, path in FILES.items()
        for node in nodes_of(path)
        if (isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv"})
        or (isinstance(node, ast.ImportFrom) and {alias.name for alias in node.names} & {"environ", "getenv"})
    }
    expected = {"__main__", "hooks.instructions", "core.settings", "embed.e5", "hooks.events", "cli.clients.catalog"}
    assert readers == expected


def test_every_exception_is_caught_only_where_that_is_allowed() -> None:
    """Guards against swallowed failures: elsewhere, handlers name the exceptions they catch."""
    handlers = Counter(
        name
        for name, path in FILES.items()
        for node in nodes_of(path)
        if (isinstance(node, ast.ExceptHandler) and catches_everything(node))
        or (
            isinstance(node, ast.Call)
            and "suppress" in names_in(node.func)
            and any(names_in(argument) & {"Exception", "BaseException"} for argument in node.args)
        )
    )
    assert handlers <= BROAD_HANDLERS, handlers - BROAD_HANDLERS


def test_one_file_prints_what_commands_show() -> None:
    """Guards the terminal: people's text goes through `cli.output`, which takes it for text and not for markup."""
    printing = {"rich.console.Console", "rich.markup.escape", "rich.print", "typer.echo"}
    printers = {
        name
        for name, path in FILES.items()
        if printing & set(imported_modules(path))
        or any(isinstance(node, ast.Attribute) and node.attr in {"echo", "secho"} for node in nodes_of(path))
    }
    assert printers == {"cli.output"}
