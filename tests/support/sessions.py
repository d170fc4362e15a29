"""Sessions of clients as they leave them: records in the spool, and transcripts in the clients' own forms."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import select

from palimpsest.hooks import spool
from palimpsest.memory import Memory
from palimpsest.store.schema import messages

BEGAN = datetime(2026, 5, 8, 9, tzinfo=UTC)


def spooled(
    folder: Path, event: str, text: str = "", *, session: str = "s1", client: str = "claude-code", **rest: Any
) -> Path:
    """Leave a record in the spool as a hook does, and return its file. `rest` may name any field, also `at`."""
    role = {"prompt": "user", "reply": "assistant"}.get(event, "")
    at = rest.pop("at", None)
    record = spool.new_record(client, event, session, role=role, text=text, **rest)
    if at is not None:
        record["at"] = at.isoformat()
    return Path(spool.write_record(str(folder), record))


def waiting(folder: Path) -> list[str]:
    """Return the names of what lies in the spool."""
    place = Path(spool.spool_dir(str(folder)))
    return sorted(path.name for path in place.iterdir()) if place.is_dir() else []


def unknown_lines(folder: Path) -> Any:
    """Return how many lines of each unknown type were met, by client."""
    return json.loads(Path(spool.transcripts_file(str(folder))).read_text("utf-8"))["unknown"]


class ClaudeSession:
    """A transcript of Claude Code that is being written. Times are a second apart."""

    def __init__(self, path: Path, session: str = "s1", cwd: str = "/nowhere") -> None:
        self.path, self.session, self.cwd = path, session, cwd
        self.lines: list[dict[str, Any]] = []
        path.parent.mkdir(parents=True, exist_ok=True)

    @property
    def now(self) -> datetime:
        """Return the time of the next line."""
        return BEGAN + timedelta(seconds=len(self.lines))

    def user(self, content: Any, **rest: Any) -> str:
        """Write a line of the user and return its id."""
        return self._line("user", {"role": "user", "content": content}, rest)

    def assistant(self, content: Any, **rest: Any) -> str:
        """Write a line of the assistant and return its id."""
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        return self._line("assistant", {"id": "msg_1", "role": "assistant", "content": blocks}, rest)

    def other(self, kind: str, **rest: Any) -> None:
        """Write a line of another type."""
        self.write({"type": kind, **rest})

    def write(self, line: dict[str, Any]) -> None:
        """Append a line."""
        self.lines.append(line)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def _line(self, kind: str, message: dict[str, Any], rest: dict[str, Any]) -> str:
        name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.path} {len(self.lines)}"))
        line = {
            "type": kind,
            "uuid": name,
            "timestamp": self.now.isoformat().replace("+00:00", "Z"),
            "sessionId": self.session,
            "cwd": self.cwd,
            "version": "2.1.0",
            "isSidechain": False,
            "message": message,
        }
        self.write({**line, **rest})
        return name


def kept(memory: Memory) -> list[tuple[str, str]]:
    """Return role and text of all living messages of the ledger, in the order in which they were said."""
    with memory.engine.ledger.read() as conn:
        query = select(messages.c.role, messages.c.content).where(messages.c.deleted_at.is_(None))
        return [(row.role, row.content) for row in conn.execute(query.order_by(messages.c.said_at, messages.c.seq))]
