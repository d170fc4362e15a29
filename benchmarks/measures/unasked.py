"""What hooks recall unasked in coding sessions: how much of it is beside the point, and how much is found.

`coding_sessions.json` has a developer's memories, and the prompts of a session with those of them that each is about.
"""

from __future__ import annotations

from typing import Any, cast

from measures.hand_written import read_data
from measures.stores import SCOPE, StoppedClock, add, embed_waiting, new_memory
from measures.tables import Table, described
from palimpsest.hooks.brief import RecallRequest
from palimpsest.memory import Memory


async def unasked(embedder: str) -> list[Table]:
    """Play each session, with what was shown in it before."""
    table = Table("unasked")
    for session in read_data("coding_sessions"):
        async with new_memory(StoppedClock(), embedder) as memory:
            ids = [await add(memory, text) for text in session["memories"]]
            await embed_waiting(memory)
            table.figures[session["name"]] = await _play(memory, session, ids, table)
    return [table]


async def _play(memory: Memory, session: Any, ids: list[str], table: Table) -> dict[str, float]:
    found, beside, shown = 0, 0, frozenset[str]()
    for asked in session["prompts"]:
        block = await memory.briefs.answer(RecallRequest(asked["prompt"], user=SCOPE.user_id, shown=shown))
        about = {ids[number] for number in cast("list[int]", asked["about"])}
        found += len(about & set(block.ids))
        for wrong in set(block.ids) - about:
            beside += 1
            text = session["memories"][ids.index(wrong)]
            table.misses.append(described(asked["prompt"][:200], "nothing", [text]))
        shown |= frozenset(block.ids)
    wanted = {number for asked in session["prompts"] for number in asked["about"]}
    return {"prompts": len(session["prompts"]), "to be shown": len(wanted), "shown": found, "beside the point": beside}
