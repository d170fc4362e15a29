"""The statements that a graph database is sent. Names and texts are parameters and never part of a statement.

Our nodes are known by their label and the id of the ledger together: the database may have other nodes with the label,
and those of other ledgers. What all of this needs is in both Neo4j and Memgraph, except how an index is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, LiteralString, NamedTuple, TypeAlias

Provider: TypeAlias = Literal["neo4j", "memgraph"]
Text: TypeAlias = LiteralString


class Statement(NamedTuple):
    """A statement and its parameters."""

    text: Text
    parameters: Mapping[str, Any]


INDEXES: dict[Provider, tuple[Text, ...]] = {
    "neo4j": (
        "CREATE INDEX palimpsest_entity IF NOT EXISTS FOR (n:Entity) ON (n.id)",
        "CREATE INDEX palimpsest_relation IF NOT EXISTS FOR ()-[r:RELATES]-() ON (r.memory_id)",
    ),
    "memgraph": ("CREATE INDEX ON :Entity(id)", "CREATE EDGE INDEX ON :RELATES(memory_id)"),
}
"""Each is a transaction of its own. They are no constraints, because others may use the same label."""

READ_CHECKPOINT: Text = "MATCH (c:PalimpsestCheckpoint {ledger: $ledger}) RETURN properties(c) AS checkpoint"

WRITE_CHECKPOINT: Text = "MERGE (c:PalimpsestCheckpoint {ledger: $ledger}) SET c += $values"

REMOVE_SOME: Text = "MATCH (n:Entity {ledger: $ledger}) WITH n LIMIT 1000 DETACH DELETE n RETURN count(*) AS removed"

REMOVE_EDGES: Text = "MATCH (a:Entity)-[r:RELATES]->() WHERE r.memory_id IN $memory_ids AND a.ledger = $ledger DELETE r"

PUT_NODES: Text = (
    "UNWIND $rows AS row "
    "MERGE (n:Entity {id: row.id, ledger: $ledger}) "
    "SET n.user_id = row.user_id, n.project = row.project, n.name = row.name, n.type = row.type, "
    "n.aliases = row.aliases, n.is_user = row.is_user"
)

PUT_EDGES: Text = (
    "UNWIND $rows AS row "
    "MATCH (a:Entity {id: row.source_id, ledger: $ledger}) "
    "MATCH (b:Entity {id: row.destination_id, ledger: $ledger}) "
    "MERGE (a)-[r:RELATES {id: row.id}]->(b) "
    "SET r.name = row.name, r.memory_id = row.memory_id, r.text = row.text, r.valid_from = row.valid_from, "
    "r.valid_until = row.valid_until, r.created_at = row.created_at, r.expired_at = row.expired_at, "
    "r.is_current = row.is_current"
)

REMOVE_NODES: Text = "UNWIND $ids AS id MATCH (n:Entity {id: id, ledger: $ledger}) DETACH DELETE n"

COUNT_NODES: Text = "MATCH (n:Entity {ledger: $ledger}) RETURN count(n) AS count"

COUNT_EDGES: Text = "MATCH (:Entity {ledger: $ledger})-[r:RELATES]->() RETURN count(r) AS count"

NODES: Text = "MATCH (n:Entity) WHERE n.id IN $ids AND n.ledger = $ledger RETURN properties(n) AS properties"

EDGES: Text = (
    "MATCH (a:Entity)-[r:RELATES]->(b:Entity) WHERE r.memory_id IN $memory_ids AND a.ledger = $ledger "
    "RETURN a.id AS source_id, b.id AS destination_id, properties(r) AS properties"
)
