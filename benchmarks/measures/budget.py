"""Recall on LoCoMo with an ample token budget, and with the default one."""

from __future__ import annotations

import tempfile
from pathlib import Path

from locomo import Conversation, Score, messages_of, read, scripted_chat, settings_for
from loopback import OpenAIServer
from measures.stores import AMPLE, DEFAULT, LIMIT, embed_waiting
from measures.tables import Table, Tally
from palimpsest.core.models import Scope
from palimpsest.memory import open_memory


async def budget(file: Path, embedder: str) -> list[Table]:
    """Compare the recall at 10 on LoCoMo with an ample token budget and with the default one."""
    tally = Tally("budget (recall@10)")
    conversations = read(file)
    for name, facts in (("messages only", False), ("messages and facts", True)):
        scores = {max_tokens: Score() for max_tokens in (AMPLE, DEFAULT)}
        for conversation in conversations:
            await _measure_recall(conversation, scores, embedder, facts=facts)
        ample, default = (scores[max_tokens].recall(0, LIMIT) for max_tokens in (AMPLE, DEFAULT))
        tally.results[name] = {f"{max_tokens} tokens": score.recalls[0, LIMIT] for max_tokens, score in scores.items()}
        tally.results[name]["ratio"] = [default / ample]
    return [tally.table()]


async def _measure_recall(conversation: Conversation, scores: dict[int, Score], embedder: str, *, facts: bool) -> None:
    """Add one conversation as locomo.py does, and ask each of its questions with each token budget."""
    scope = Scope(user_id=conversation.name)
    with tempfile.TemporaryDirectory() as folder, OpenAIServer(scripted_chat(conversation.sessions)) as server:
        async with open_memory(settings_for(Path(folder), server.base_url if facts else None, embedder)) as memory:
            for session in conversation.sessions:
                await memory.add_messages(messages_of(session, scope), infer=None if facts else False)
            await embed_waiting(memory)
            for question in conversation.questions:
                for max_tokens, score in scores.items():
                    reply = await memory.search(scope, question.text, limit=LIMIT, max_tokens=max_tokens)
                    score.add(question, [hit.sources for hit in reply.hits])
