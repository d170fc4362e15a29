"""Trees of messages, in which each message names the one it answers, and the order of conversations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from palimpsest.care.importers.records import ImportedMessage


def in_order(conversations: Iterable[list[ImportedMessage]]) -> tuple[ImportedMessage, ...]:
    """Return the messages of all conversations, the conversation that began first at the front.

    Exports begin with the newest conversation.
    """
    by_start = sorted((messages for messages in conversations if messages), key=lambda messages: messages[0].said_at)
    return tuple(message for messages in by_start for message in messages)


def leaves_of(parents: Mapping[str, str | None]) -> list[str]:
    """Return the messages that no other message answers: the ends of all branches."""
    answered = set(parents.values())
    return [message for message in parents if message not in answered]


def branch_to(leaf: str, parents: Mapping[str, str | None]) -> list[str]:
    """Return the branch that ends in `leaf`, first message first. A cycle in the tree ends the branch."""
    branch: dict[str, None] = {}
    message: str | None = leaf
    while message is not None and message in parents and message not in branch:
        branch[message] = None
        message = parents[message]
    return [*reversed(branch)]
