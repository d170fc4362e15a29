"""Files as other memory tools and chat applications export them."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

MEM0_COLUMNS = (
    "id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT, "
    "created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT"
)


def mem0_database(file: Path, columns: str, *rows: Sequence[Any], more: str = "") -> Path:
    """Write a history database of mem0; the rows lack their first column, the id, which is filled in."""
    with closing(sqlite3.connect(file)) as conn:
        conn.executescript(f"CREATE TABLE history ({columns});{more}")
        for number, row in enumerate(rows):
            placeholders = ", ".join("?" * (len(row) + 1))
            conn.execute(f"INSERT INTO history VALUES ({placeholders})", (f"h{-number}", *row))  # noqa: S608 - only placeholders
        conn.commit()
    return file


def write_file(file: Path, case: Mapping[str, Any]) -> None:
    """Write a file of a tool from a JSON file of the tests: its lines, its value, a mem0 history or a ZIP."""
    match case:
        case {"history": {"columns": columns, "rows": rows, **more}}:
            mem0_database(file, columns, *rows, **more)
        case {"lines": lines}:
            file.write_bytes("\n".join(lines).encode())
        case {"zip": members}:
            json_zip(file, **members)
        case _:
            file.write_bytes(json.dumps(case["json"]).encode())


def json_lines(*values: Any) -> str:
    """Return JSON lines as the official memory server writes them: no needless escapes, no final newline."""
    return "\n".join(json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in values)


def json_zip(file: Path, **members: Any) -> Path:
    """Write a ZIP archive of JSON files. `__` in a member's name stands for a slash."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in members.items():
            archive.writestr(name.replace("__", "/") + ".json", json.dumps(value))
    return file


def chatgpt_node(parent: str | None, role: str, *parts: Any, at: float | None = None, **more: Any) -> dict[str, Any]:
    """Return a node of a ChatGPT conversation tree.

    `more` adds keys to its message; `kind` and `meta` set the content type and the metadata.
    """
    content = {"content_type": more.pop("kind", "text"), "parts": [*parts]}
    message = {"author": {"role": role, "name": None}, "content": content, "create_time": at, "weight": 1.0}
    return {"parent": parent, "message": {**message, "metadata": more.pop("meta", {}), **more}}


def chatgpt_conversation(
    current: str | None, created_at: float = 1_700_000_000, /, **nodes: dict[str, Any]
) -> dict[str, Any]:
    """Return a ChatGPT conversation; the id of each message is the name of its node."""
    mapping = {
        name: {**node, "message": node["message"] and {"id": name, **node["message"]}} for name, node in nodes.items()
    }
    return {"title": None, "create_time": created_at, "current_node": current, "mapping": mapping}


def claude_conversation(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"uuid": "c1", "name": "", "created_at": "2025-02-01T09:00:00Z", "chat_messages": [*messages], **more}
