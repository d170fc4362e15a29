"""Measure a ledger in PostgreSQL beside one in SQLite, by the number of memories that other users have.

What `speed.py --store postgres` measures. One user has 10,000 memories in both, with a server over each, and its
searches and adds are timed in turn. PostgreSQL also holds the memories of a thousand other users, as many as `--sizes`
says together. They are copies, made by statements of their own, of memories that the ledger has written: with ids,
vectors and words of each user, but with the same texts. Both search by an exact scan (`vector_store.provider = exact`).
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from pydantic import SecretStr

from embedders import made_vectors, open_named, resident
from figures import Figures, cell
from filling import USER, call, serving
from palimpsest.core.clock import now
from palimpsest.core.models import Decision, Event, Fact, Provenance, Scope
from palimpsest.store.apply import Write
from palimpsest.store.ledger import open_ledger
from postgresql import Cluster, own_cluster
from sentences import Sentences
from startup import DATA, FILL_BATCH, Server

DATABASE = "ledger"
OWN, OTHERS = 10_000, 1_000
"""How many memories the user has whose calls are timed, and how many other users there are."""

WARM_UPS = 20

IDLE_SECONDS, IDLE_SHARE = 3.0, 0.03
"""A server that uses less than this share of a core for so long does nothing. Set by hand: it wakes at times."""

COPIED = ("memories", "history", "vectors", "changes", "lexical", "lexical_words", "lexical_users", "means")
"""The tables that hold something of a user without messages and entities."""

FAR = 10_000_000_000
"""The distance between the entry numbers of two users who are copies."""

COPIES = {
    "user_id": "'user-' || n",
    "id": "t.id || '-' || n",
    "memory_id": "t.memory_id || '-' || n",
    "owner_id": "t.owner_id || '-' || n",
    "unit_seq": f"t.unit_seq + n * {FAR}",
    "words": "ARRAY(SELECT word # (n * 2654435761) FROM unnest(t.words) AS word)",
}
"""What a column of a copy is. The key of a word becomes another number, as that of another user is."""

ROWS = {
    "search": "search_memories, PostgreSQL, ms",
    "search_sqlite": "search_memories, SQLite, ms",
    "search_ratio": "search: p50 / p50 of SQLite",
    "add": "add_memory, PostgreSQL, ms",
    "add_sqlite": "add_memory, SQLite, ms",
    "add_ratio": "add: p50 / p50 of SQLite",
    "ready": "s until both servers do nothing in the background",
    "rss": "RSS of the server over PostgreSQL, MB",
    "bytes": "bytes a memory, PostgreSQL",
    "load": "load of the machine",
}


def measure(sizes: Sequence[int], rounds: int, embedder: str, folder: Path) -> dict[int, Figures]:
    """Fill both ledgers, or go on with those in the folder, and measure at each size."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # PostgreSQL runs as another user
    figures: dict[int, Figures] = {}
    os.environ["PALIMPSEST_VECTOR_STORE__PROVIDER"] = "exact"
    with own_cluster(folder / "postgresql") as cluster:
        _fill_own(cluster, folder, embedder)
        for size in sizes:
            _fill_others(cluster, folder, size // OTHERS, embedder)
            figures[size] = _measured(cluster, folder, rounds, size)
            print(f"{size:,} memories of others measured, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    return figures


def _fill_own(cluster: Cluster, folder: Path, embedder: str) -> None:
    note = folder / f"filled-{embedder}"
    if note.exists():
        return
    cluster.drop_database(DATABASE)
    cluster.create_database(DATABASE)
    texts = Sentences(OWN).memories(OWN)
    (folder / DATA).mkdir(exist_ok=True)
    for place in (folder / DATA / "ledger.db", SecretStr(cluster.url(DATABASE))):
        _write(place, USER, texts, embedder)
    note.touch()


def _write(place: Path | SecretStr, user: str, texts: Sequence[str], embedder: str) -> None:
    """Write memories with their vectors through the ledger."""
    began, fingerprint, vectors = time.monotonic(), open_named(embedder).fingerprint, made_vectors(embedder, texts)
    by_text = dict(zip(texts, vectors, strict=True))
    with closing(open_ledger(place, now)) as ledger:
        for start in range(0, len(texts), FILL_BATCH):
            batch = texts[start : start + FILL_BATCH]
            decisions = tuple(Decision(Event.ADD, Fact(text)) for text in batch)
            known = {text: by_text[text] for text in batch}
            ledger.apply(
                Write(Scope(user), Provenance("fill"), decisions=decisions, vectors=known, embedder=fingerprint)
            )
    print(f"{len(texts)} of {user} in {ledger.location}: {time.monotonic() - began:.0f} s", file=sys.stderr)


def _fill_others(cluster: Cluster, folder: Path, each: int, embedder: str) -> None:
    """Give each of the other users so many memories, which are copies of those of one user."""
    note = folder / "others.json"
    has = json.loads(note.read_text("utf-8")) if note.exists() else 0
    if has > each:
        raise RuntimeError(f"{folder} holds {has * OTHERS:,} memories of others already. Use another folder")
    if has == each:
        return
    template, texts = f"template-{each}", Sentences(1).memories(each)[has:]
    _write(SecretStr(cluster.url(DATABASE)), template, texts, embedder)
    with cluster.administrator(DATABASE) as conn:
        conn.execute("SET session_replication_role = replica")  # a row that another refers to may come later
        conn.execute("SET synchronous_commit = off; SET work_mem = '64MB'")
        for table in COPIED:
            began = time.monotonic()
            _copy(conn, table, template)
            print(f"{table}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    with cluster.administrator(DATABASE) as conn:
        conn.execute("VACUUM (ANALYZE)")
        conn.execute("CHECKPOINT")
    note.write_text(str(each), encoding="utf-8")


def _copy(conn: psycopg.Connection, table: str, template: str) -> None:
    query = (
        "SELECT column_name::text, column_default LIKE 'nextval%%' FROM information_schema.columns "
        "WHERE table_name = %s"
    )
    values: dict[str, str] = {}
    for name, counts in conn.execute(query, [table]).fetchall():
        if not counts or table == "vectors":
            values[name] = f"t.seq + n * {FAR}" if name == "seq" else COPIES.get(name, f't."{name}"')
    of_template = "t.user_id = %(user)s"
    if table == "history":
        of_template = "t.memory_id IN (SELECT id FROM memories WHERE user_id = %(user)s)"
    names = ", ".join(f'"{name}"' for name in values)
    statement = (
        f"INSERT INTO {table}({names}) SELECT {', '.join(values.values())} "  # noqa: S608 - names of our own tables
        f"FROM generate_series(1::bigint, %(others)s) AS n, {table} AS t WHERE {of_template} ON CONFLICT DO NOTHING"
    )
    conn.execute(sql.SQL(statement), {"user": template, "others": OTHERS})  # pyright: ignore[reportArgumentType] - as above


def _measured(cluster: Cluster, folder: Path, rounds: int, size: int) -> Figures:
    """Time calls of the user over both stores in turn."""
    known, sentences = Sentences(OWN).memories(OWN), Sentences(size + int(time.time()))
    ours = folder / "server"
    ours.mkdir(exist_ok=True)
    with ExitStack() as stack:
        sqlite, first = stack.enter_context(serving(folder))
        postgres, second = stack.enter_context(serving(ours, PALIMPSEST_LEDGER_URL=cluster.url(DATABASE)))
        began = time.monotonic()
        for server, process in ((sqlite, first), (postgres, second)):
            _search(server, known[0])
            _wait_until_idle(process)
        ready = time.monotonic() - began
        searches = [partial(_search, server) for server in (postgres, sqlite)]
        adds = [partial(_add, server) for server in (postgres, sqlite)]
        search, search_sqlite = _in_turn(searches, sentences.questions(WARM_UPS + rounds, known))
        add, add_sqlite = _in_turn(adds, sentences.memories(WARM_UPS + rounds))
        with cluster.administrator(DATABASE) as conn:
            row = conn.execute("SELECT pg_database_size(current_database())").fetchone()
        rss = resident(second)
    return {
        "search": search,
        "search_sqlite": search_sqlite,
        "search_ratio": statistics.median(search) / statistics.median(search_sqlite),
        "add": add,
        "add_sqlite": add_sqlite,
        "add_ratio": statistics.median(add) / statistics.median(add_sqlite),
        "bytes": row[0] / (size + OWN) if row else None,
        "ready": ready,
        "rss": rss,
        "load": os.getloadavg()[0],
    }


def _wait_until_idle(process: int) -> None:
    """Wait until a server does nothing in the background: it reads all vectors into its index when it has started."""
    before = -1.0
    while before < 0 or _processor_seconds(process) - before > IDLE_SHARE * IDLE_SECONDS:
        before = _processor_seconds(process)
        time.sleep(IDLE_SECONDS)


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _in_turn(calls: Sequence[Callable[[str], None]], arguments: Sequence[str]) -> list[list[float]]:
    """Make all calls with each argument, each time another one first, and return the milliseconds of each call."""
    times: list[list[float]] = [[] for _ in calls]
    for number, argument in enumerate(arguments):
        for place in range(len(calls)):
            which = (number + place) % len(calls)
            began = time.perf_counter()
            calls[which](argument)
            times[which].append((time.perf_counter() - began) * 1000)
    return [each[WARM_UPS:] for each in times]


def _search(server: Server, question: str) -> None:
    call(server, "search_memories", {"query": question})


def _add(server: Server, text: str) -> None:
    (result,) = call(server, "add_memory", {"text": text})["results"]
    if result["event"] != "ADD":
        raise RuntimeError(f"it was not added: {result}")


def main(sizes: Sequence[int], rounds: int, embedder: str, folder: Path, json_file: Path | None) -> None:
    """Measure, print a table, and write the figures to a file if there is one."""
    figures = measure(sizes, rounds, embedder, folder.absolute())
    if json_file:
        about: dict[str, Any] = {"embedder": embedder, "rounds": rounds, "own": OWN, "others": OTHERS, "sizes": figures}
        json_file.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    print("| p50 / p95 | " + " | ".join(f"{size:,}" for size in figures) + " |")
    print("| --- |" + " ---: |" * len(figures))
    for name, label in ROWS.items():
        print(f"| {label} | " + " | ".join(cell(of_size.get(name)) for of_size in figures.values()) + " |")
