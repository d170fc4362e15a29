"""Measure a ledger in PostgreSQL beside one in SQLite, by the number of memories that other users have.

What `speed.py --store postgres` measures. One user has 10,000 memories in both, with a server over each, and its
searches and adds are timed in turn. PostgreSQL also holds the memories of a thousand other users, as many as `--sizes`
says together. They are copies, made by statements of their own, of memories that the ledger has written: with ids,
vectors and words of each user, but with the same texts. Both search by an exact scan (`vector_store.provider = exact`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psycopg
from psycopg import sql
from pydantic import SecretStr

from harness import DATA, Server, cell, in_turn, percentile, serving, table, write_memories
from postgresql import Cluster, own_cluster
from sentences import Sentences

DATABASE = "ledger"

# How many memories the user has whose calls are timed, and how many other users there are.
OWN, OTHERS = 10_000, 1_000

WARM_UPS = 20

# A server that uses less than this share of a core for so long does nothing. It wakes at times.
IDLE_SECONDS, IDLE_SHARE = 3.0, 0.03

# The tables that hold something of a user without messages and entities.
COPIED = ("memories", "history", "vectors", "changes", "lexical", "lexical_counts", "means")

# The distance between the entry numbers of two users who are copies.
FAR = 10_000_000_000

# What a column of a copy is. The key of a word becomes another number, as that of another user is.
COPIES = {
    "user_id": "'user-' || n",
    "id": "t.id || '-' || n",
    "memory_id": "t.memory_id || '-' || n",
    "owner_id": "t.owner_id || '-' || n",
    "unit_seq": f"t.unit_seq + n * {FAR}",
    "word": "t.word # (n * 2654435761)",
    "words": "ARRAY(SELECT word # (n * 2654435761) FROM unnest(t.words) AS word)",
}

ROWS = (
    "search, PostgreSQL, ms",
    "search: p50 / p50 of SQLite",
    "add, PostgreSQL, ms",
    "add: p50 / p50 of SQLite",
)


def measure(sizes: Sequence[int], rounds: int, embedder: str, folder: Path) -> str:
    """Fill both ledgers, or go on with those in the folder, and measure at each size. Return a table."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # PostgreSQL runs as another user
    columns: list[Sequence[str]] = []
    with own_cluster(folder / "postgresql") as cluster:
        if not (folder / f"filled-{embedder}").exists():
            cluster.drop_database(DATABASE)
            cluster.create_database(DATABASE)
            (folder / DATA).mkdir(exist_ok=True)
            for place in (folder / DATA / "ledger.db", SecretStr(cluster.url(DATABASE))):
                write_memories(place, Sentences(OWN).memories(OWN), embedder)
            (folder / f"filled-{embedder}").touch()
        for size in sizes:
            _fill_others(cluster, folder, size // OTHERS, embedder)
            columns.append([cell(figure) for figure in _measured(cluster, folder, rounds, size, embedder)])
            print(f"{size:,} memories of others measured, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    return table(("p50 / p95", *sizes), *zip(ROWS, *columns, strict=True))


def _fill_others(cluster: Cluster, folder: Path, each: int, embedder: str) -> None:
    """Give each of the other users so many memories, which are copies of those of one user."""
    note = folder / "others"
    has = int(note.read_text("utf-8")) if note.exists() else 0
    if has > each:
        raise RuntimeError(f"{folder} holds {has * OTHERS:,} memories of others already. Use another folder")
    if has == each:
        return
    template, texts = f"template-{each}", Sentences(1).memories(each)[has:]
    write_memories(SecretStr(cluster.url(DATABASE)), texts, embedder, template)
    with cluster.administrator(DATABASE) as conn:
        conn.execute("SET session_replication_role = replica")  # a row that another refers to may come later
        conn.execute("SET synchronous_commit = off; SET work_mem = '64MB'")
        for name in COPIED:
            _copy(conn, name, template)
    with cluster.administrator(DATABASE) as conn:
        conn.execute("VACUUM (ANALYZE)")
        conn.execute("CHECKPOINT")
    note.write_text(str(each), encoding="utf-8")


def _copy(conn: psycopg.Connection, name: str, template: str) -> None:
    query = (
        "SELECT column_name::text, column_default LIKE 'nextval%%' FROM information_schema.columns "
        "WHERE table_name = %s"
    )
    values: dict[str, str] = {}
    for column, counts in conn.execute(query, [name]).fetchall():
        if not counts or name == "vectors":
            values[column] = f"t.seq + n * {FAR}" if column == "seq" else COPIES.get(column, f't."{column}"')
    of_template = "t.user_id = %(user)s"
    if name == "history":
        of_template = "t.memory_id IN (SELECT id FROM memories WHERE user_id = %(user)s)"
    if name == "lexical_counts":
        of_template = "t.word IN (SELECT unnest(words) FROM lexical WHERE user_id = %(user)s)"
    columns = ", ".join(f'"{column}"' for column in values)
    statement = (
        f"INSERT INTO {name}({columns}) SELECT {', '.join(values.values())} "  # noqa: S608 - names of our own tables
        f"FROM generate_series(1::bigint, %(others)s) AS n, {name} AS t WHERE {of_template} ON CONFLICT DO NOTHING"
    )
    conn.execute(sql.SQL(statement), {"user": template, "others": OTHERS})  # pyright: ignore[reportArgumentType] - as above


def _measured(cluster: Cluster, folder: Path, rounds: int, size: int, embedder: str) -> Sequence[object]:
    """Time calls of the user over both stores in turn, and return the figures of `ROWS`."""
    known, sentences = Sentences(OWN).memories(OWN), Sentences(size + int(time.time()))
    settings = {"vector_store__provider": "exact", "llm__provider": "none", "embedder__provider": embedder}
    with ExitStack() as stack:
        sqlite = stack.enter_context(serving(folder, **settings))
        postgres = stack.enter_context(serving(folder / "server", **settings, ledger_url=cluster.url(DATABASE)))
        servers = (postgres, sqlite)
        for server in servers:
            server.call("search_memories", query=known[0])
            _wait_until_idle(server.process.pid)
        questions, texts = sentences.questions(WARM_UPS + rounds, known), sentences.memories(WARM_UPS + rounds)
        search, search_sqlite = in_turn([partial(_search, server) for server in servers], questions, WARM_UPS)
        add, add_sqlite = in_turn([partial(_add, server) for server in servers], texts, WARM_UPS)
    return (
        search,
        percentile(search, 0.5) / percentile(search_sqlite, 0.5),
        add,
        percentile(add, 0.5) / percentile(add_sqlite, 0.5),
    )


def _wait_until_idle(process: int) -> None:
    """Wait until a server does nothing in the background: it reads all vectors into its index when it has started."""
    before = -1.0
    while before < 0 or _processor_seconds(process) - before > IDLE_SHARE * IDLE_SECONDS:
        before = _processor_seconds(process)
        time.sleep(IDLE_SECONDS)


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _search(server: Server, question: str) -> None:
    server.call("search_memories", query=question)


def _add(server: Server, text: str) -> None:
    (result,) = server.call("add_memory", text=text)["results"]
    if result["event"] != "ADD":
        raise RuntimeError(f"it was not added: {result}")
