"""Short runs of the soaks in benchmarks/. Nothing acknowledged is lost, whoever is killed, however many write."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio
import pytest

import servers
import soak


@pytest.mark.nightly
def test_a_writer_killed_at_random_moments_loses_nothing(tmp_path: Path) -> None:
    """Guards acknowledged writes against kill -9: while writing, rebuilding, migrating, embedding, moving."""
    record = soak.run(tmp_path / "data", rounds=len(soak.KINDS), seed=7)
    assert record.faults == []
    assert set(record.rounds) == set(soak.KINDS)
    assert record.counts["acknowledged"] > 0


@pytest.mark.nightly
def test_servers_of_one_memory_see_each_others_writes_at_once(tmp_path: Path) -> None:
    """Guards one memory under several server processes: found at once by the others, once, and not after deletion."""
    record = servers.run(tmp_path, "sqlite", 3, 1, 7)
    assert record.faults == []
    assert record.counts["acknowledged writes"] > 0


@pytest.mark.nightly
@pytest.mark.postgres
def test_servers_over_one_database_lose_nothing_whatever_fails() -> None:
    """Guards acknowledged writes of several machines: a server is killed, the database crashes, connections are cut."""
    with tempfile.TemporaryDirectory() as folder:  # the database runs as another user, who may not enter `tmp_path`
        record = servers.run(Path(folder), "postgres", 2, 3, 7)
    assert record.faults == []
    assert record.counts["acknowledged writes"] > 0
    assert {"kill", "restart", "sever"} <= set(record.slowest)


def test_the_judge_of_the_soak_notices_a_loss(tmp_path: Path) -> None:
    """Guards the soak itself: what was acknowledged and is not there is counted."""
    folder = tmp_path / "data"
    record = soak.Record()
    anyio.run(soak.first, folder, record)
    lost = next(iter(record.living))
    record.living[lost] = "something else was acknowledged"
    anyio.run(soak.judge, folder, (), record, soak.random.Random(0))
    assert record.counts["lost"] == 1
