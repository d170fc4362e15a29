"""The pinned block: its order, its limit, and what is refused with which advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import PINNED
from palimpsest.memory import Memory
from palimpsest.store.ledger import Ledger
from tests.support.exports import exported
from tests.support.graph import Graph
from tests.support.graph_cases import GraphCase, graph_cases
from tests.support.ledger_access import ignore_progress
from tests.support.memory import ALICE, StoppedClock, add_text

pytestmark = pytest.mark.anyio

CASES = graph_cases(Path(__file__).with_name("pinned_cases.json"))


@pytest.mark.parametrize("case", CASES)
async def test_the_pinned_block(ledger: Ledger, clock: StoppedClock, case: str) -> None:
    GraphCase(Graph(ledger, clock)).play(*CASES[case])


async def test_a_number_that_json_or_an_order_has_not_is_refused(tmp_path: Path, memory: Memory) -> None:
    """Guards every search and the block: an infinite number in one memory's metadata made all of them unreadable."""
    kept = await add_text(memory, "User lives in Nice", metadata={PINNED: 7})
    for value in (float("inf"), float("nan"), 10**400):
        with pytest.raises(InputError):
            await add_text(memory, "User likes tea", metadata={PINNED: value})
    with pytest.raises(InputError):
        await memory.update(ALICE, kept, metadata={"nested": [float("inf")]})
    file = tmp_path / "export.jsonl"
    file.write_bytes((await exported(memory)).replace(b'"pinned":7', b'"pinned":1e999'))
    with pytest.raises(InputError):
        await memory.care.import_file(ALICE, file, ignore_progress)
    assert [hit.text for hit in (await memory.search(ALICE, "Where?")).hits] == ["User lives in Nice"]
