"""The house: which file may import which, held as a table; and what else every file of the package keeps to."""

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

FLOORS: list[tuple[str, ...]] = [
    # ground: no I/O but files
    ("errors", "records", "function_words"),
    ("clock", "prompts", "lexicon", "ports", "stated_secrets"),
    ("filters",),
    ("inputs", "reply", "secrets", "locks", "jsonc", "project"),
    ("config", "lines", "foreign_records", "tokens", "installing"),
    ("foreign_server_memory", "foreign_mem0", "foreign_chatgpt", "foreign_claude"),
    ("foreign",),
    # truth
    ("ledger.tables",),
    ("ledger.rows", "ledger.copying"),
    ("ledger.lexical",),
    ("ledger.keys",),
    ("ledger.units",),
    ("ledger.searching", "ledger.reading", "ledger.naming", "ledger.log", "ledger.pen"),
    ("ledger.beliefs", "ledger.turns", "ledger.moving", "ledger.purging", "ledger.verifying"),
    ("ledger.undoing",),
    ("ledger.writing",),
    ("ledger.ledger",),
    (
        "ledger.migrations.env",
        "ledger.migrations.versions.0001_ledger",
        "ledger.migrations.versions.0002_full_text",
        "ledger.migrations.versions.0003_edits",
        "ledger.migrations.versions.0004_smaller",
    ),
    # pure
    ("ranking", "hits", "wording"),
    ("nearest",),
    ("stages.extract", "stages.decide", "stages.summarize"),
    # vendor
    (
        "adapters.model_openai",
        "adapters.model_sampling",
        "adapters.embedder_local",
        "adapters.embedder_openai",
        "adapters.embedder_chroma",
        "adapters.index_exact",
        "adapters.index_chroma",
    ),
    # flow
    ("engine", "checkpoint", "similar"),
    ("projection",),
    ("applying", "embedding", "recall", "screening", "summary", "compose"),
    ("correct", "listing", "transfer", "purge", "backups"),
    ("remember", "following", "doctor"),
    ("deep",),
    # door
    ("memory",),
    ("door", "replies", "access", "rounds"),
    ("roots",),
    ("subscriptions",),
    ("server", "bearer", "bounds"),
    ("resources", "starters", "sampling"),
    ("tools", "terminal"),
    ("serving",),
    ("cli_care", "cli_install", "cli_moving", "cli_prompts", "cli_tokens"),
    ("cli",),
    ("__main__",),
]
"""The modules from the ground up; a file imports from lower floors of this list only, never from its own."""

LEDGER = tuple(name for floor in FLOORS for name in floor if name.startswith("ledger."))
GROUND = tuple(name for floor in FLOORS[: FLOORS.index(("ledger.tables",))] for name in floor)
FORBIDDEN = {
    "stages.": (*LEDGER, "adapters."),  # a stage returns a value and writes nothing
    "adapters.": (*LEDGER, "stages.", "ranking", "filters", "inputs", "reply"),
    "ranking": (*LEDGER,),
    "door": (*LEDGER, "adapters.", "stages."),
    "tools": (*LEDGER, "adapters.", "stages.", "engine", "compose", "projection"),
}
"""What the order alone would allow and the architecture does not: by the beginning of the names on both sides."""

BROAD = Counter({"adapters.index_chroma": 1, "adapters.embedder_chroma": 1, "memory": 1, "door": 1, "rounds": 1})
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


def imports(path: Path) -> set[str]:
    """Return the names of our modules that a file imports, wherever in it: at the top, in a function, for types only.

    A text that is the name of a module of ours counts too: `importlib` takes it.
    """
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}, line {node.lineno}: imports are absolute"
            found.add(str(node.module))
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    ours = {name.removeprefix("palimpsest.") for name in found if name.startswith("palimpsest.")}
    return ours & set(MODULES)


def floor_of(name: str) -> int:
    """Return the number of a module's floor; a module without one stands above all and may be imported by none."""
    return next((number for number, floor in enumerate(FLOORS) if name in floor), len(FLOORS))


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


class TestFloors:
    def test_the_table_names_every_module_once(self) -> None:
        """Guards the table itself: a new file needs a place in the house before anything else."""
        assert Counter(name for floor in FLOORS for name in floor) == Counter(list(MODULES))

    @pytest.mark.parametrize("name", MODULES)
    def test_a_file_imports_from_lower_floors_only(self, name: str) -> None:
        """Guards the one direction: no cycles, no stage that knows a store, no siblings that know each other."""
        above = {other for other in imports(MODULES[name]) if floor_of(other) >= floor_of(name)}
        assert above == set(), f"{name} may not import these"

    @pytest.mark.parametrize("name", MODULES)
    def test_a_file_imports_nothing_that_its_place_forbids(self, name: str) -> None:
        """Guards what the order alone does not: stages ask and do not store, adapters know their port only."""
        barred = tuple(part for place, parts in FORBIDDEN.items() if name.startswith(place) for part in parts)
        assert {other for other in imports(MODULES[name]) if other.startswith(barred)} == set()

    @pytest.mark.parametrize("name", PACKAGES)
    def test_a_package_file_imports_nothing(self, name: str) -> None:
        """Guards start-up: importing one module never drags its siblings in."""
        body = parsed(PACKAGES[name]).body
        assert all(isinstance(node, ast.Expr | ast.Assign) for node in body)

    @pytest.mark.parametrize("package", ["stages", "adapters"])
    def test_siblings_never_import_each_other(self, package: str) -> None:
        """Guards that a stage or a vendor can be read, replaced and deleted alone."""
        siblings = {name for name in MODULES if name.startswith(f"{package}.")}
        assert len(siblings) > 1
        assert {name: imports(MODULES[name]) & siblings for name in siblings} == {name: set() for name in siblings}

    def test_the_ground_imports_only_the_ground(self) -> None:
        """Guards the lowest floors, on which everything stands."""
        assert {other for name in GROUND for other in imports(MODULES[name])} <= set(GROUND)


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
        assert readers == {"config"}

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
