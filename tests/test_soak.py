"""Short runs of the soaks in benchmarks/. Nothing acknowledged is lost, whoever is killed, however many write."""

from __future__ import annotations

import tempfile
from pathlib import Path

import anyio
import pytest

import clients
import soak
from replicas import rounds


@pytest.mark.nightly
def test_a_writer_killed_at_random_moments_loses_nothing(tmp_path: Path) -> None:
    """Guards acknowledged writes against kill -9: while writing, rebuilding, migrating, embedding, moving."""
    tally = soak.run(tmp_path / "data", rounds=len(soak.KINDS), seed=7)
    assert tally.faults == []
    assert set(tally.rounds) == set(soak.KINDS)
    assert tally.acknowledged > 0


@pytest.mark.nightly
def test_many_clients_of_one_memory_see_each_others_writes_at_once(tmp_path: Path) -> None:
    """Guards one memory under several server processes: found at once by the others, once, and not after deletion."""
    tally = anyio.run(clients.run, tmp_path, 3, 8, 7)
    assert tally.faults == []
    assert tally.acknowledged > 0


@pytest.mark.nightly
@pytest.mark.postgres
def test_servers_over_one_database_lose_nothing_whatever_fails() -> None:
    """Guards acknowledged writes of replicas: one is killed, the database crashes, connections are severed."""
    with tempfile.TemporaryDirectory() as folder:  # the database runs as another user, who may not enter `tmp_path`
        record, done = rounds.run(Path(folder), 2, 3, 7)
    assert record.described == []
    assert set(done) == {"kill", "restart", "sever"}
    assert record.acknowledged > 0


@pytest.mark.nightly
@pytest.mark.postgres
def test_many_clients_of_one_database_see_each_others_writes_at_once() -> None:
    """Guards one memory under servers with data directories of their own, as on several machines."""
    with tempfile.TemporaryDirectory() as folder, clients.database_url(Path(folder)) as url:
        tally = anyio.run(clients.run, Path(folder), 3, 8, 7, url)
    assert tally.faults == []
    assert tally.acknowledged > 0


def test_the_judge_of_the_soak_notices_a_loss(tmp_path: Path) -> None:
    """Guards the soak itself: what was acknowledged and is not there is counted."""
    folder = tmp_path / "data"
    expected = soak.Expected()
    anyio.run(soak.first, folder, expected)
    lost = next(iter(expected.living))
    expected.living[lost] = "something else was acknowledged"
    tally = soak.Tally()
    anyio.run(soak.judge, folder, (), expected, tally, soak.random.Random(0))
    assert tally.lost == 1
    assert not tally.clean
