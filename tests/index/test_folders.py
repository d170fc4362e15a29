"""Index folders: which index can go on, who has a folder, what is deleted, and searches without an index."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest

from palimpsest.admin.backup import back_up, restore
from palimpsest.admin.doctor import examine, verify
from palimpsest.core.errors import VectorIndexError
from palimpsest.core.files import file_lock
from palimpsest.core.settings import Settings, load_settings
from palimpsest.index import sync
from palimpsest.index.sync import BATCH, FILE_NAME, index_folders
from palimpsest.store.ledger import Ledger
from tests.support.ledger_access import ignore_progress, ledger_in, store_memory
from tests.support.ledger_files import data_files, search_texts
from tests.support.memory import ALICE, StoppedClock, memory_in
from tests.support.projections import Indexes, add, agrees, build, direction, entry_of, facts, opened, projected

pytestmark = pytest.mark.anyio


class TestCheckpoint:
    def test_a_reopened_index_applies_only_new_changes(self, ledger: Ledger, indexes: Indexes, root: Path) -> None:
        """The cost of the next start depends on what changed, not on the size of the ledger."""
        add(ledger, *facts(BATCH + 5))
        build(ledger, indexes, root)
        build(ledger, indexes, root)
        assert indexes.last.upserted == []
        (outcome,) = add(ledger, "one more")
        with opened(ledger, indexes.open, root):
            assert indexes.last.upserted == [entry_of(ledger, outcome)]
            assert agrees(ledger, indexes.last)
        assert not (root / "0.aside").exists()

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("other", [{"embedder": "another"}, {"layout": "another"}, {}], ids=str)
    def test_an_index_of_another_embedder_layout_or_ledger_is_set_aside(
        self, ledger: Ledger, indexes: Indexes, root: Path, tmp_path: Path, other: dict[str, str]
    ) -> None:
        """Vectors of two embedders are never compared, nor numbers of two ledgers, also not after changing back."""
        add(ledger, *facts(3))
        build(ledger, indexes, root)
        with (
            ledger_in(tmp_path / "other") as theirs,
            opened(ledger if other else theirs, indexes.open, root, **other) as projection,
        ):
            assert projection.state == "ready"
            assert projection.count() == (3 if "layout" in other else 0)
        assert (root / "0.aside").is_dir()
        with opened(ledger, indexes.open, root):
            assert len(indexes.last.upserted) == 3
            assert agrees(ledger, indexes.last)

    def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(
        self, ledger: Ledger, exact: Indexes, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On a full disk the error is reported, and the next start repeats what the checkpoint does not cover."""
        add(ledger, *facts(3))
        with opened(ledger, exact.open, root) as projection:
            before = (root / "0" / "checkpoint.json").read_text()
            add(ledger, "one more")

            def full(_path: Path, _target: Path) -> Path:
                raise OSError(28, "No space left on device")

            with monkeypatch.context() as patched:
                patched.setattr(Path, "replace", full)
                with pytest.raises(VectorIndexError, match="No space left on device"):
                    projection.catch_up()
            assert projection.state == "broken"
            assert "No space left" in projection.fault
        assert (root / "0" / "checkpoint.json").read_text() == before
        with opened(ledger, exact.open, root):
            assert len(exact.last.upserted) == 1
            assert agrees(ledger, exact.last)


class TestLease:
    def test_two_projections_never_share_a_folder(self, ledger: Ledger, indexes: Indexes, root: Path) -> None:
        """Two writers in one Chroma folder would corrupt it permanently."""
        add(ledger, *facts(3))
        with projected(ledger, indexes.open, root) as first, projected(ledger, indexes.open, root) as second:
            first.open()
            second.open()
            assert (first.folder, second.folder) == (root / "0", root / "1")
            add(ledger, "one more")
            first.catch_up()
            second.catch_up()
            assert all(agrees(ledger, index) for index in indexes.opened)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(None, data_dir=tmp_path / "data", user_id="alice", llm={"provider": "none"})


async def build_indexes(settings: Settings, number: int) -> None:
    with ExitStack() as stack:
        for name in range(number):
            async with memory_in(settings.data_dir) as memory:
                store_memory(memory, f"User has seen film {name}")
                memory.projection.open()
            stack.enter_context(file_lock(settings.index_dir / f"{name}.lock"))


def names(settings: Settings) -> list[str]:
    return [folder.name for folder in index_folders(settings.index_dir)]


async def alarms(settings: Settings) -> list[str]:
    """Return what `doctor --deep` finds degraded."""
    findings = [*await examine(settings), *verify(settings, ignore_progress, repair=False)]
    return [finding.text for finding in findings if not finding.ok]


async def test_a_restore_deletes_the_folders_that_nobody_uses(settings: Settings) -> None:
    """Guards `doctor`, which went on about a folder that no process will ever use again."""
    await build_indexes(settings, 3)
    copy = back_up(settings, None, StoppedClock()).path
    with file_lock(settings.index_dir / "1.lock"):
        restore(settings, copy, StoppedClock())
    assert names(settings) == ["1"], "a folder in use is left to its process"
    assert await alarms(settings) == []


async def test_a_folder_of_this_ledger_is_kept(settings: Settings) -> None:
    """Guards the indexes of clients that are not running now, also those of another embedder."""
    await build_indexes(settings, 2)
    for provider in ("local", "static"):
        async with memory_in(settings.data_dir, embedder={"provider": provider}) as memory:
            memory.projection.open()
            assert names(settings) == ["0", "1"]


# Searches without an index.

TEA, BREAD = "User drinks green tea", "User bakes rye bread"
EXACT = {"provider": "exact"}


@pytest.mark.parametrize("numbers", [2**20, 0], ids=["in memory", "no room"])
async def test_a_search_finds_everything_and_no_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: int
) -> None:
    """Guards the scan: it is ready at once, and the same whether or not there is room for the keys."""
    monkeypatch.setattr(sync, "MAX_NUMBERS_WITHOUT_INDEX", numbers)
    async with memory_in(tmp_path, vector_store=EXACT) as memory:
        store_memory(memory, TEA)
        before = data_files(tmp_path)
        memory.projection.open()
        store_memory(memory, BREAD)
        for question, text in (("Which hot drink?", TEA), ("What comes out of the oven?", BREAD)):
            assert (await search_texts(memory, question))[0] == text
        assert (memory.projection.count(), memory.projection.is_behind()) == (2, False)
        assert bool(memory.kept_keys.users) is bool(numbers)
    assert data_files(tmp_path) == before


async def test_a_purge_deletes_the_index_that_was_used_before(tmp_path: Path) -> None:
    """Guards erased vectors: who changes the setting leaves a folder behind that nobody opens."""
    async with memory_in(tmp_path) as memory:
        purged = store_memory(memory, TEA)
        memory.projection.open()
    assert list((tmp_path / "index").rglob("*.sqlite3"))
    async with memory_in(tmp_path, vector_store=EXACT) as memory:
        assert (await memory.care.purge(ALICE, [purged])).clean
    assert not list((tmp_path / "index").rglob("*.sqlite3"))


Break: TypeAlias = Callable[[Indexes, Path], object]


def lose_a_vector(indexes: Indexes, folder: Path) -> None:
    with closing(indexes.open(folder)) as behind:
        behind.delete("bert", behind.query("bert", direction("fact 1"), 1))


def store_a_vector_of_nobody(indexes: Indexes, folder: Path) -> None:
    with closing(indexes.open(folder)) as behind:
        behind.upsert("nobody", [999], direction("nothing")[np.newaxis])


def with_number(number: object) -> Break:
    def change(_indexes: Indexes, folder: Path) -> None:
        path = folder / FILE_NAME
        path.write_text(json.dumps({**json.loads(path.read_text()), "log_number": number}))

    return change


BROKEN: dict[str, dict[str, Break]] = {
    "exact": {
        "a vector too few": lose_a_vector,
        "a vector too many": store_a_vector_of_nobody,
        "no checkpoint": lambda _, folder: (folder / FILE_NAME).unlink(),
        "a torn checkpoint": lambda _, folder: (folder / FILE_NAME).write_text('{"ledger": "tor'),
        **{f"{number!r} for a number": with_number(number) for number in ("5", None, [1])},
    },
    "chroma": {
        "a vector too few": lose_a_vector,
        "a vector too many": store_a_vector_of_nobody,
        "no checkpoint": lambda _, folder: (folder / FILE_NAME).unlink(),
        "no database": lambda _, folder: (folder / "chroma.sqlite3").unlink(),
        # Chroma remembers a failed attempt to open a folder, which must not block the rebuild.
        "garbage for a database": lambda _, folder: (folder / "chroma.sqlite3").write_bytes(b"garbage" * 999),
    },
}


@pytest.mark.parametrize(("kind", "fault"), [(kind, fault) for kind, faults in BROKEN.items() for fault in faults])
def test_a_damaged_index_is_set_aside_and_rebuilt(ledger: Ledger, root: Path, kind: str, fault: str) -> None:
    """A folder in an unknown state is kept for inspection."""
    indexes = Indexes(kind)
    for user in ("ana", "bert"):
        add(ledger, *facts(4), user=user)
    build(ledger, indexes, root)
    BROKEN[kind][fault](indexes, root / "0")
    left = {path.name for path in (root / "0").iterdir()}
    with opened(ledger, indexes.open, root) as projection:
        assert (projection.state, projection.fault, projection.count()) == ("ready", "", 8)
        assert agrees(ledger, indexes.last, "ana", "bert")
    assert left <= {path.name for path in (root / "0.aside").iterdir()}
    build(ledger, indexes, root)
    assert indexes.last.upserted == [], "the new checkpoint is valid"
