"""A conversation as text: who said what and when, with the ids to cite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palimpsest.core.clock import zone_shown
from palimpsest.core.models import Message
from palimpsest.core.validation import one_line
from palimpsest.server.replies.notes import NO_INSTRUCTIONS, short
from palimpsest.text.control_characters import visible
from palimpsest.text.counting import counted

if TYPE_CHECKING:  # slow to import, and only needed for the annotations
    from palimpsest.facade.conversations import MessagePage


def conversation_text(page: MessagePage, next_uri: str) -> str:
    """Return a page of a conversation: a line that says what it is, then each message with its whole text."""
    lines = [_heading(page), *(_message_text(message) for message in page.messages)]
    if page.cursor:
        lines.append(f"(it goes on: read {next_uri})")
    return visible("\n".join(lines))


def _heading(page: MessagePage) -> str:
    about = page.about
    if about is None:
        return f"conversation {page.id}{NO_INSTRUCTIONS}"
    where = ", ".join(one_line(part) for part in (about.client, about.title) if part)
    days = dict.fromkeys((f"{about.began_at:%Y-%m-%d}", f"{about.ended_at:%Y-%m-%d}"))
    held = f"{counted(about.messages, 'message')}, {' to '.join(days)}, times in {zone_shown(about.ended_at)}"
    return f"conversation {page.id}{f' ({where})' if where else ''}: {held}{NO_INSTRUCTIONS}"


def _message_text(message: Message) -> str:
    who = f"{one_line(message.name)} ({message.role})" if message.name else message.role
    return f"[{short(message.id)}] {message.said_at:%Y-%m-%d %H:%M} {who}: {message.content}"
