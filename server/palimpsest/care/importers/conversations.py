"""Trees of messages, in which each message names the one it answers, and the order of conversations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from palimpsest.care.importers.records import ImportedConversation


def in_order(conversations: Iterable[ImportedConversation]) -> tuple[ImportedConversation, ...]:
    """Return the conversations that have messages, the one that began first at the front.

    Exports begin with the newest conversation.
    """
    with_messages = (conversation for conversation in conversations if conversation.messages)
    return tuple(sorted(with_messages, key=lambda conversation: conversation.messages[0].said_at))


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
