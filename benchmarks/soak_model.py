"""The scripted model of `soak.py`, which counts who asks it."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

MODEL_SECONDS = 0.02
"""How long the model takes to answer. Set by hand: time enough for another process to ask too."""

MEMORIES = "Memories: "


class Model:
    """A scripted model, which counts how often it is asked, and whether two ask it at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_once = 0
        self.asked = 0
        self.most_at_once = 0

    def begin(self) -> None:
        """Begin a round: nobody who was killed in the last one counts."""
        with self._lock:
            self._at_once = self.asked = self.most_at_once = 0

    def __call__(self, request: dict[str, Any]) -> str:
        """Answer one request, after the time in which another process would ask too."""
        with self._lock:
            self.asked += 1
            self._at_once += 1
            self.most_at_once = max(self._at_once, self.most_at_once)
        time.sleep(MODEL_SECONDS)
        with self._lock:
            self._at_once -= 1
        return _reply(request)


def _reply(request: dict[str, Any]) -> str:
    prompt = request["messages"][1]["content"]
    if prompt.startswith(MEMORIES) and '"near"' in prompt:
        shown = json.loads(prompt.removeprefix(MEMORIES))
        return json.dumps({"notes": [_note(memory, len(shown)) for memory in shown]})
    return json.dumps({"summary": f"A summary of {len(str(request))} characters.", "facts": [], "decisions": []})


def _note(memory: dict[str, Any], number: int) -> dict[str, Any]:
    """Return what the model says of a memory: it is linked with the next one."""
    place = memory["id"]
    links = [{"memory": (place + 1) % number, "reason": "the next"}] if "near" in memory and number > 1 else []
    return {"memory": place, "context": f"Said beside {number} others.", "tags": ["soak"], "links": links}
