"""The vector indexes behave the same in NumPy, in a Chroma folder and on a Chroma server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from palimpsest.core.errors import VectorIndexError
from palimpsest.core.protocols import Vector, VectorIndex
from palimpsest.index.chroma_folder import ChromaIndex
from palimpsest.index.chroma_server import ChromaServer, SharedIndex
from tests.support.chroma_server import ChromaProcess
from tests.support.exact_index import ExactIndex

PREFIX = "test"


def unit(*values: float) -> Vector:
    """Return the vector of length 1 in the direction of the values."""
    vector = np.array(values)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


EAST, NORTH, UP = unit(1, 0, 0), unit(0, 1, 0), unit(0, 0, 1)
NORTH_EAST, NEARLY_EAST = unit(1, 1, 0), unit(10, 1, 0)


@pytest.fixture(params=["exact", "chroma", "server"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[VectorIndex]:
    """Yield an empty index of each kind."""
    if request.param == "server":
        server: ChromaProcess = request.getfixturevalue("chroma")
        with closing(ChromaServer(server.settings(tmp_path).vector_store.config)) as connected:
            shared = SharedIndex(connected, f"test-{uuid.uuid4().hex}")
            yield shared.open(shared.begin("0").build)
        return
    opened = ExactIndex() if request.param == "exact" else ChromaIndex.open_folder(tmp_path, PREFIX)
    yield opened
    opened.close()


class TestEveryIndex:
    def test_a_query_returns_the_nearest_first(self, index: VectorIndex) -> None:
        """The order is by cosine similarity, whatever the order of the upserts."""
        index.upsert("ana", [1, 2, 3, 4], np.stack([UP, NORTH_EAST, EAST, NEARLY_EAST]))
        assert index.query("ana", EAST, 4)[:3] == [3, 4, 2]
        assert set(index.query("ana", EAST, 4)) == {1, 2, 3, 4}

    @pytest.mark.parametrize(("limit", "expected"), [(1, [3]), (2, [3, 4]), (3, [3, 4, 2])])
    def test_a_query_returns_no_more_than_the_limit(self, index: VectorIndex, limit: int, expected: list[int]) -> None:
        """The limit sets the number of candidates of a search."""
        index.upsert("ana", [1, 2, 3, 4], np.stack([UP, NORTH_EAST, EAST, NEARLY_EAST]))
        assert index.query("ana", EAST, limit) == expected

    def test_a_limit_larger_than_the_index_returns_everything(self, index: VectorIndex) -> None:
        """A search asks for a hundred candidates however few entries there are."""
        index.upsert("ana", [5, 6], np.stack([EAST, NORTH]))
        assert index.query("ana", unit(1.1, 1, 0), 100) == [5, 6]

    def test_a_vector_stored_again_replaces_the_old_one(self, index: VectorIndex) -> None:
        """An update replaces the old vector and does not count twice."""
        index.upsert("ana", [1, 2], np.stack([EAST, NORTH]))
        assert index.query("ana", NEARLY_EAST, 1) == [1]
        index.upsert("ana", [1], np.stack([UP]))
        assert index.count() == 2
        assert index.query("ana", UP, 1) == [1]
        assert index.query("ana", NEARLY_EAST, 1) == [2]

    def test_a_deleted_vector_is_not_found(self, index: VectorIndex) -> None:
        """A deleted memory must not be found."""
        index.upsert("ana", [1, 2, 3], np.stack([EAST, NORTH, UP]))
        assert index.query("ana", EAST, 1) == [1]
        index.delete("ana", [1, 3])
        assert index.count() == 1
        assert index.query("ana", EAST, 10) == [2]

    def test_deleting_unknown_numbers_is_not_an_error(self, index: VectorIndex) -> None:
        """The index log may name entries that never had a vector."""
        index.upsert("ana", [1], np.stack([EAST]))
        index.delete("ana", [2, 99])
        index.delete("nobody", [1])
        assert index.count() == 1

    def test_a_deleted_vector_can_be_stored_again(self, index: VectorIndex) -> None:
        """A memory can be restored."""
        index.upsert("ana", [1, 2], np.stack([EAST, NORTH]))
        index.delete("ana", [1])
        index.upsert("ana", [1], np.stack([UP]))
        assert index.query("ana", UP, 10) == [1, 2]

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("other", ["bert", "Ana", "ana ", "änä", "a/b\n*", "x" * 256])
    def test_users_never_see_each_other(self, index: VectorIndex, other: str) -> None:
        """User names may contain any characters."""
        index.upsert("ana", [1], np.stack([EAST]))
        index.upsert(other, [2], np.stack([EAST]))
        index.delete(other, [1])
        assert index.query("ana", EAST, 10) == [1]
        assert index.query(other, EAST, 10) == [2]
        assert index.count() == 2

    @pytest.mark.nightly
    def test_many_users_are_kept_apart(self, index: VectorIndex) -> None:
        """No two user names map to the same collection."""
        for number in range(40):
            index.upsert(f"user {number}", [number], EAST[np.newaxis])
        assert [index.query(f"user {number}", EAST, 10) for number in range(40)] == [[n] for n in range(40)]

    def test_an_unknown_user_has_nothing(self, index: VectorIndex) -> None:
        """A new user may search before storing anything."""
        assert index.query("nobody", EAST, 10) == []
        assert index.count() == 0

    def test_a_user_whose_vectors_are_all_deleted_has_nothing(self, index: VectorIndex) -> None:
        """An index whose vectors were deleted differs internally from an empty one."""
        index.upsert("ana", [1], np.stack([EAST]))
        index.delete("ana", [1])
        assert index.query("ana", EAST, 10) == []

    def test_large_entry_numbers_are_returned_unchanged(self, index: VectorIndex) -> None:
        """Chroma's ids are strings; large entry numbers must survive the conversion."""
        index.upsert("ana", [2**62, 7], np.stack([EAST, NORTH]))
        assert index.query("ana", EAST, 2) == [2**62, 7]


def clustered(rng: np.random.Generator, count: int, dims: int = 64, clusters: int = 25) -> Vector:
    """Return vectors clustered around a few centres, like those of texts."""
    centres = rng.normal(size=(clusters, dims))
    vectors = centres[rng.integers(clusters, size=count)] + 0.6 * rng.normal(size=(count, dims))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


class TestChromaInAFolder:
    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("seed", [1, 2])
    def test_it_finds_what_the_exact_index_finds(self, tmp_path: Path, seed: int) -> None:
        """The approximate index finds nearly all neighbours, also after deletes and overwrites."""
        rng = np.random.default_rng(seed)
        vectors, queries = np.split(clustered(rng, 650), [600])
        chroma, exact = ChromaIndex.open_folder(tmp_path, PREFIX), ExactIndex()
        for index in (chroma, exact):
            for start in range(0, 500, 100):
                index.upsert("ana", range(start, start + 100), vectors[start : start + 100])
            index.delete("ana", range(0, 100, 2))
            index.upsert("ana", range(100, 200), vectors[500:])
        shares = [len(set(chroma.query("ana", v, 10)) & set(exact.query("ana", v, 10))) / 10 for v in queries]
        assert chroma.count() == exact.count() == 450
        chroma.close()
        assert np.mean(shares) >= 0.95

    def test_a_reopened_folder_holds_what_was_stored(self, tmp_path: Path) -> None:
        """The next start must not need a rebuild."""
        first = ChromaIndex.open_folder(tmp_path, PREFIX)
        first.upsert("ana", [1, 2, 3], np.stack([EAST, NORTH, UP]))
        first.upsert("bert", [4], np.stack([UP]))
        first.delete("ana", [3])
        first.close()
        again = ChromaIndex.open_folder(tmp_path, PREFIX)
        assert again.count() == 3
        assert again.query("ana", NORTH, 1) == [2]
        assert again.query("bert", NORTH, 9) == [4]
        again.close()

    def test_other_collections_are_not_touched(self, tmp_path: Path) -> None:
        """Other collections beside ours are not counted."""
        ours = ChromaIndex.open_folder(tmp_path, "ours")
        others = ChromaIndex.open_folder(tmp_path, "theirs")
        ours.upsert("ana", [1], np.stack([EAST]))
        others.upsert("ana", [2], np.stack([EAST]))
        assert (ours.count(), others.count()) == (1, 1)
        assert ours.query("ana", EAST, 9) == [1]
        ours.close()
        others.close()


OTHER_DIMENSIONS: dict[str, Callable[[VectorIndex], object]] = {
    "upsert": lambda index: index.upsert("ana", [2], unit(1, 2)[np.newaxis]),
    "query": lambda index: index.query("ana", unit(1, 2), 1),
}
USES: dict[str, Callable[[VectorIndex], object]] = {
    "upsert": lambda index: index.upsert("ana", [2], NORTH[np.newaxis]),
    "delete": lambda index: index.delete("ana", [1]),
    "query": lambda index: index.query("ana", EAST, 1),
    "count": lambda index: index.count(),
}


class TestChromaFailures:
    """Every error that Chroma raises becomes a VectorIndexError that contains its text."""

    def test_a_folder_of_garbage_cannot_be_opened(self, tmp_path: Path) -> None:
        """The projection sets such a folder aside when it gets this error."""
        (tmp_path / "chroma.sqlite3").write_bytes(b"this is no database " * 500)
        with pytest.raises(VectorIndexError, match="could not be opened"):
            ChromaIndex.open_folder(tmp_path, PREFIX)

    def test_a_file_in_place_of_the_folder_cannot_be_opened(self, tmp_path: Path) -> None:
        """The settings may name a wrong path."""
        (tmp_path / "index").write_text("a file")
        with pytest.raises(VectorIndexError, match="could not be opened"):
            ChromaIndex.open_folder(tmp_path / "index", PREFIX)

    @pytest.mark.parametrize("use", OTHER_DIMENSIONS.values(), ids=OTHER_DIMENSIONS)
    def test_vectors_of_other_dimensions_are_refused(
        self, tmp_path: Path, use: Callable[[VectorIndex], object]
    ) -> None:
        """One collection never mixes vectors of two embedders."""
        index = ChromaIndex.open_folder(tmp_path, PREFIX)
        index.upsert("ana", [1], np.stack([EAST]))
        with pytest.raises(VectorIndexError, match="dimension"):
            use(index)
        assert index.query("ana", EAST, 9) == [1], "the index is unchanged"
        index.close()

    @pytest.mark.parametrize("use", USES.values(), ids=USES)
    def test_using_a_closed_index_is_an_error(self, tmp_path: Path, use: Callable[[VectorIndex], object]) -> None:
        """A search may come while the index is being closed."""
        index = ChromaIndex.open_folder(tmp_path, PREFIX)
        index.upsert("ana", [1], np.stack([EAST]))
        index.close()
        with pytest.raises(VectorIndexError, match="the Chroma index could not be"):
            use(index)


def test_a_longer_prefix_names_other_collections(tmp_path: Path) -> None:
    """`count` ignores the collections of a prefix that only begins the same."""
    ours, others = ChromaIndex.open_folder(tmp_path, "ours"), ChromaIndex.open_folder(tmp_path, "ours-2")
    try:
        others.upsert("ana", [1], np.eye(8, dtype=np.float32)[:1])
        assert (ours.count(), others.count()) == (0, 1)
    finally:
        ours.close()
        others.close()
