"""What every test shares: the event loop, the embedder, the stores, and how many examples a property is tried with.

How long an example takes is not tested: machines differ.
"""

from __future__ import annotations

import functools
import gc
import os
import pkgutil
import ssl
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import sqlalchemy
from pydantic import SecretStr
from xdist.scheduler import LoadFileScheduling  # pyright: ignore[reportMissingTypeStubs]

from palimpsest.embed import static
from palimpsest.memory import Memory
from palimpsest.store.postgres import postgres_database
from palimpsest.store.sqlite import sqlite_database
from postgresql import MEMORY, has_memory_for_files
from tests.support.environment import STATIC_EMBEDDER
from tests.support.examples import FULL_PROFILE, LOCAL_PROFILE
from tests.support.memory import StoppedClock, memory_in
from tests.support.postgres import PostgresStore, empty_database, shared_cluster
from tests.support.stores import Store, ledgers_removed, on_store

hypothesis.settings.register_profile(LOCAL_PROFILE, max_examples=25, deadline=None)
hypothesis.settings.register_profile(FULL_PROFILE, max_examples=100, deadline=None)
gc.set_threshold(20_000, 20, 50)  # what was imported is never garbage: looking through it took a tenth of a run
os.environ["TZ"] = "UTC"  # the days of a test do not depend on where it runs
time.tzset()
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the workers, and what tests start, would compile all files anew

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", LOCAL_PROFILE)
hypothesis.settings.load_profile(PROFILE)

if PROFILE == LOCAL_PROFILE and has_memory_for_files() and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
    # By day, temporary files are in main memory: half of a run would be waiting for the disk. By night they are on it.
    tempfile.tempdir = os.environ["TMPDIR"] = str(MEMORY)


STORES = ("sqlite", "postgres")

# How the paths begin of what runs once for each store, but for tests marked `only_on` one, with the reason.
ON_EVERY_STORE = (
    "admin/",
    "brief/",
    "capture/",
    "index/graph/",
    "index/test_backfill.py",
    "index/test_kept_keys.py",
    "index/test_sync.py",
    "learn/",
    "recall/",
    "store/graph/",
    "store/test_",
    "store/views/",
    "systems/",
    "test_conversations.py",
    "test_privacy.py",
)

# Of these, what runs on each store by day, because the database could do it differently: writes, undo, the queue of
# jobs, purge, search and concurrency. The rest runs on SQLite by day and on each store at night.
CONTRACT = (
    "admin/test_purge.py::test_a_message_purged",
    "admin/test_purge.py::test_an_id_of_another_scope",
    "admin/test_purge.py::test_the_neighbours",
    "index/test_sync.py::TestCatchingUp",
    "index/test_sync.py::TestStopping",
    "learn/test_add.py::test_a_conversation",
    "learn/test_add.py::test_a_known_text",
    "learn/test_add.py::test_messages_are_kept",
    "learn/test_at_once.py::test_a_memory_that_was_changed",
    "learn/test_at_once.py::test_reads",
    "learn/test_at_once.py::test_the_same",
    "learn/test_jobs.py::test_a_purge",
    "recall/test_entity_filters.py::test_at_an_instant",
    "recall/test_entity_filters.py::test_it_leaves",
    "recall/test_pipeline.py::test_a_filter_applies",
    "recall/test_pipeline.py::test_a_memory_is_found",
    "recall/test_pipeline.py::test_a_message_whose",
    "recall/test_pipeline.py::test_as_of",
    "store/graph/test_entities.py::test_one_number",
    "store/graph/test_entities.py::test_what_is_so",
    "store/test_ledger.py",
    "store/test_undo.py::test_an_",
    "store/test_undo.py::test_forgetting",
    "store/test_undo.py::test_undo",
)


def pytest_xdist_auto_num_workers() -> int | None:
    """Start two workers for each core, but one at night: half of the tests wait for a process most of the time."""
    return None if PROFILE == FULL_PROFILE else 2 * (os.cpu_count() or 1)


class WholeFiles(LoadFileScheduling):
    """Give a worker whole files, and all files of some folders, so that what they share is made once in a run."""

    def _split_scope(self, nodeid: str) -> str:
        folders = (folder for folder in ("tests/browser/", "tests/server/http/") if nodeid.startswith(folder))
        return next(folders, super()._split_scope(nodeid))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> WholeFiles:
    """Choose who runs what."""
    return WholeFiles(config, log)


def pytest_report_header() -> str:
    """Name the profile that decides how many examples are tried."""
    return f"hypothesis profile of the examples: {PROFILE} (HYPOTHESIS_PROFILE={FULL_PROFILE} tries all)"


@pytest.fixture
def anyio_backend() -> str:
    """Run asynchronous tests on asyncio, the loop the server itself runs on."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def one_embedder() -> Generator[None]:
    """Choose the static embedder, which is quick, and load it once. It keeps no state but a cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*STATIC_EMBEDDER)
        patch.setattr(static, "StaticEmbedder", functools.cache(static.StaticEmbedder))
        yield


class CompiledStatements(dict[tuple[Any, ...], Any]):
    """The SQL of statements. SQLAlchemy keys it by the dialect of one engine; here engines of a kind share it."""

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        """Return a compiled statement."""
        return super().get((key[0].name, *key[1:]), default)

    def __setitem__(self, key: tuple[Any, ...], compiled: Any) -> None:
        """Keep a compiled statement."""
        super().__setitem__((key[0].name, *key[1:]), compiled)


@pytest.fixture(scope="session", autouse=True)
def statements_compiled_once() -> Generator[None]:
    """Compile a statement once for all ledgers. To compile it anew takes half the time of a test of a few writes."""
    options = {"compiled_cache": CompiledStatements()}
    create_engine = functools.partial(sqlalchemy.create_engine, execution_options=options)
    with pytest.MonkeyPatch.context() as patch:
        for module in (sqlite_database, postgres_database):
            patch.setattr(module, "create_engine", create_engine)
        yield


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Generator[None]:
    """Read the certificates of the machine once for all clients. To read them takes longer than a request."""
    with pytest.MonkeyPatch.context() as patch:
        for client in ("httpx", "httpx2"):
            name = f"{client}._transports.default.create_ssl_context"
            patch.setattr(name, _read_once(pkgutil.resolve_name(name)))
        yield


def _read_once(create_ssl_context: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    """Return the function with a cache for each value of `SSL_CERT_FILE`, by which a test may name certificates."""

    @functools.cache
    def read(_variable: str | None, **options: Any) -> ssl.SSLContext:
        return create_ssl_context(**options)

    def create(**options: Any) -> ssl.SSLContext:
        return read(os.environ.get("SSL_CERT_FILE"), **options)

    return create


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each store that it is for, first all tests of a module on SQLite."""
    stores = _stores_of(metafunc.definition)
    if stores != ("sqlite",):
        by_day = "sqlite" not in stores or _name(metafunc.definition).startswith(CONTRACT)
        marks = (pytest.mark.postgres,) if by_day else (pytest.mark.postgres, pytest.mark.nightly)
        marked = [pytest.param(name, marks=marks if name == "postgres" else ()) for name in stores]
        metafunc.parametrize("store", marked, indirect=True, scope="module")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave all cases of a test but the first few to the night, if it is marked so. `-m` is looked at afterwards."""
    seen: Counter[tuple[str, str]] = Counter()
    for item in items:
        if (few := item.get_closest_marker("few_by_day")) is None:
            continue
        store = "postgres" if item.get_closest_marker("postgres") else ""
        case = item.nodeid.partition("[")[0], store
        seen[case] += 1
        if seen[case] > few.args[0]:
            item.add_marker(pytest.mark.nightly)


def _stores_of(test: pytest.Item) -> tuple[str, ...]:
    only = test.get_closest_marker("only_on")
    if only is not None:
        name, reason = only.args
        assert name in STORES, name
        assert reason, "a test that runs on one store alone says why"
        return (name,)
    return STORES if _name(test).startswith(ON_EVERY_STORE) else ("sqlite",)


def _name(test: pytest.Item) -> str:
    """Return the path of a test's file below `tests/`, and its classes and function after it."""
    return test.nodeid.removeprefix("tests/")


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
async def memory(tmp_path: Path, clock: StoppedClock) -> AsyncGenerator[Memory]:
    """Yield Alice's empty memory, which has no language model."""
    async with memory_in(tmp_path, clock) as opened:
        yield opened


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> PostgresStore:
    """Return the databases of this process, in a server that ends when the whole run has ended."""
    folder = tmp_path_factory.getbasetemp()
    if worker_id == "master":
        return PostgresStore(shared_cluster(folder, os.getpid()), worker_id)
    return PostgresStore(shared_cluster(folder.parent, os.getppid()), worker_id)


@pytest.fixture
def database(postgres: PostgresStore) -> Generator[SecretStr]:
    """Yield the URL of an empty database."""
    with empty_database(postgres.cluster) as url:
        yield url


@pytest.fixture(scope="module", autouse=True)
def store(request: pytest.FixtureRequest) -> Generator[Store]:
    """Choose where the ledgers of the tests are."""
    chosen = Store() if getattr(request, "param", "sqlite") == "sqlite" else request.getfixturevalue("postgres")
    with on_store(chosen):
        yield chosen


@pytest.fixture(autouse=True)
def _no_ledger_is_left(store: Store) -> Generator[None]:  # noqa: ARG001 - the store they are in is chosen first
    """Remove the ledgers of a test when it ends, but not those that its module shares."""
    with ledgers_removed():
        yield
