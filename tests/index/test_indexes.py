"""The vector indexes behave the same in NumPy, in a Chroma folder and on a Chroma server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest

from palimpsest.core.errors import VectorIndexError
from palimpsest.core.protocols import Vector, VectorIndex
from palimpsest.index.chroma_folder import ChromaIndex
from palimpsest.index.chroma_server import SharedIndex
from tests.support.chroma_server import ChromaProcess
from tests.support.projections import ExactIndex

PREFIX = "test"


def unit(*values: float) -> Vector:
    vector = np.array(values)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


EAST, NORTH, UP = unit(1, 0, 0), unit(0, 1, 0), unit(0, 0, 1)
NORTH_EAST, NEARLY_EAST = unit(1, 1, 0), unit(10, 1, 0)


@pytest.fixture(params=["exact", "chroma", "server"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[VectorIndex]:
    if request.param == "server":
        server: ChromaProcess = request.getfixturevalue("chroma")
        config = server.settings(tmp_path).vector_store.config
        with closing(SharedIndex(config, f"test-{uuid.uuid4().hex}")) as shared:
            yield shared.open(shared.begin("0").build)
        return
    opened = ExactIndex() if request.param == "exact" else ChromaIndex.open_folder(tmp_path, PREFIX)
    yield opened
    opened.close()


ALL = {1: UP, 2: NORTH_EAST, 3: EAST, 4: NEARLY_EAST}
NAMES = ["ana", "bert", "Ana", "ana ", "änä", "a/b\n*", "x" * 256, *(f"user {number}" for number in range(9))]
Step: TypeAlias = tuple[str, dict[int, Vector] | list[int]] | tuple[str, Vector, int, list[int]]

CASES: dict[str, list[Step]] = {
    "the nearest first, and no more than the limit": [
        ("ana", ALL),
        *(("ana", EAST, limit, [3, 4, 2, 1][:limit]) for limit in (1, 3, 100)),
    ],
    "a vector stored again, also after it was deleted": [
        ("ana", {1: EAST, 2: NORTH}),
        ("ana", {1: UP}),
        ("ana", UP, 1, [1]),
        ("ana", NEARLY_EAST, 1, [2]),
        ("ana", [1]),
        ("ana", UP, 10, [2]),
        ("ana", {1: UP}),
        ("ana", UP, 10, [1, 2]),
    ],
    "unknown numbers, as the index log may name them": [
        ("ana", {2**62: EAST}),
        ("ana", [2, 99]),
        ("nobody", [1]),
        ("ana", EAST, 10, [2**62]),
        ("nobody", EAST, 10, []),
    ],
    "users of any name": [
        *((name, {number: EAST}) for number, name in enumerate(NAMES)),
        *((name, [number - 1]) for number, name in enumerate(NAMES)),
        *((name, EAST, 10, [number]) for number, name in enumerate(NAMES)),
    ],
}


@pytest.mark.parametrize("case", CASES)
def test_every_index_answers_alike(index: VectorIndex, case: str) -> None:
    """Whatever the kind, users never see each other, and it counts what it holds."""
    stored: set[tuple[str, int]] = set()
    assert (index.query("nobody", EAST, 10), index.count()) == ([], 0)
    for step in CASES[case]:
        if len(step) == 4:
            user, vector, limit, expected = step
            assert index.query(user, vector, limit) == expected
            continue
        user, what = step
        numbers = {(user, number) for number in what}
        if isinstance(what, dict):
            index.upsert(user, list(what), np.stack(list(what.values())))
            stored |= numbers
        else:
            index.delete(user, what)
            stored -= numbers
    assert index.count() == len(stored)


class TestChromaInAFolder:
    def test_other_collections_are_neither_counted_nor_read(self, tmp_path: Path) -> None:
        """Nor those of a prefix that only begins the same."""
        with (
            closing(ChromaIndex.open_folder(tmp_path, "ours")) as ours,
            closing(ChromaIndex.open_folder(tmp_path, "ours-2")) as others,
        ):
            others.upsert("ana", [2, 3], np.stack([EAST, UP]))
            assert (ours.count(), others.count()) == (0, 2)
            ours.upsert("ana", [1], np.stack([EAST]))
            assert ours.query("ana", EAST, 9) == [1]


USES: list[Callable[[VectorIndex], object]] = [
    lambda index: index.upsert("ana", [2], NORTH[np.newaxis]),
    lambda index: index.delete("ana", [1]),
    lambda index: index.query("ana", EAST, 1),
    lambda index: index.count(),
]


class TestChromaFailures:
    """Every error that Chroma raises becomes a VectorIndexError that contains its text."""

    def test_a_folder_that_is_none_cannot_be_opened(self, tmp_path: Path) -> None:
        """The projection sets such a folder aside when it gets this error."""
        (tmp_path / "index").write_text("a file")
        (tmp_path / "chroma.sqlite3").write_bytes(b"this is no database " * 500)
        for folder in (tmp_path, tmp_path / "index"):
            with pytest.raises(VectorIndexError, match="could not be opened"):
                ChromaIndex.open_folder(folder, PREFIX)

    def test_vectors_of_other_dimensions_and_a_closed_index_are_refused(self, tmp_path: Path) -> None:
        """One collection never mixes vectors of two embedders, and a search may come while it is being closed."""
        index = ChromaIndex.open_folder(tmp_path, PREFIX)
        index.upsert("ana", [1], np.stack([EAST]))
        with pytest.raises(VectorIndexError, match="dimension"):
            index.upsert("ana", [2], unit(1, 2)[np.newaxis])
        assert index.query("ana", EAST, 9) == [1], "the index is unchanged"
        index.close()
        for use in USES:
            with pytest.raises(VectorIndexError, match="the Chroma index could not be"):
                use(index)
