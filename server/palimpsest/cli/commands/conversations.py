"""The commands that list conversations, read one, and find messages in all of them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from palimpsest.cli.console import AsJson, with_memory
from palimpsest.cli.hits import hits_parts
from palimpsest.cli.options import CONVERSATIONS
from palimpsest.cli.output import Part, notes_text, plain, print_result, table
from palimpsest.core.clock import iso, local_iso
from palimpsest.core.models import Message
from palimpsest.core.validation import MAX_LIMIT, one_line
from palimpsest.facade.conversations import ConversationPage, ConversationSummary, MessagePage
from palimpsest.memory import Memory
from palimpsest.server.replies.models import PageReply
from palimpsest.server.replies.notes import COMMANDS
from palimpsest.text.shorten import shorten

app = typer.Typer()

TITLE_CHARS = 60
"""How much of a conversation's first message stands for its title. Set by hand, to fit a line of a table."""


@app.command(rich_help_panel=CONVERSATIONS)
def conversations(
    ctx: typer.Context,
    conversation_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Read this one: its id, or the first 8 characters of it.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="How many are shown at most.")] = 20,
    cursor: Annotated[str | None, typer.Option(help="The cursor that the previous page ended with.")] = None,
    as_json: AsJson = False,
) -> None:
    """List conversations, the newest first, or read one."""

    async def work(memory: Memory) -> None:
        if conversation_id is None:
            page = await memory.conversations.list(memory.scope, limit=limit, cursor=cursor)
            print_result(as_json, _page_json(page), *_list_parts(page), *_more(page.cursor))
            return
        read = await memory.conversations.read(memory.scope, conversation_id, limit=limit, cursor=cursor)
        print_result(as_json, _messages_json(read), *_message_parts(read), *_more(read.cursor))

    with_memory(ctx, work)


@app.command(rich_help_panel=CONVERSATIONS)
def messages(  # noqa: PLR0913, PLR0917 - typer passes the options of a command by name
    ctx: typer.Context,
    words: Annotated[str, typer.Argument(metavar="[WORDS]", help="Only messages that have all of these words.")] = "",
    role: Annotated[
        str, typer.Option(metavar="ROLE", help="Only those of user or assistant, or pages with document.")
    ] = "",
    speaker: Annotated[str, typer.Option(metavar="NAME", help="Only what somebody of this name said.")] = "",
    session: Annotated[
        str, typer.Option(metavar="ID", help="Only one conversation: its id, or the first 8 characters of it.")
    ] = "",
    since: Annotated[
        str, typer.Option("--from", metavar="TIME", help="An ISO 8601 day or time: what was said from then on.")
    ] = "",
    until: Annotated[
        str, typer.Option("--to", metavar="TIME", help="An ISO 8601 day or time: what was said until its end.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, max=MAX_LIMIT, help="How many are shown at most.")] = 20,
    cursor: Annotated[str | None, typer.Option(help="The cursor that the previous page ended with.")] = None,
    as_json: AsJson = False,
) -> None:
    """List messages of all conversations page by page, newest first. palimpsest search finds them by meaning."""
    filters: dict[str, Any] = {"kind": "message"}
    filters |= {
        name: value
        for name, value in {"words": words, "role": role, "speaker": speaker, "session": session}.items()
        if value
    }
    if since or until:
        filters["at"] = {name: value for name, value in {"gte": since, "lte": until}.items() if value}

    async def work(memory: Memory) -> None:
        page = await memory.list(memory.scope, limit=limit, cursor=cursor, filters=filters)
        parts = [*hits_parts(page.hits, f"messages of {memory.scope}"), *notes_text(page.notes)]
        if not page.hits and not page.cursor:
            parts.insert(0, "there are no more" if cursor else f"no message of {memory.scope} matches")
        print_result(as_json, PageReply.of(page, memory.scope, COMMANDS).as_json(), *parts, *_more(page.cursor))

    with_memory(ctx, work)


def _list_parts(page: ConversationPage) -> list[Part]:
    if not page.conversations:
        return ["no conversations"]
    rows = table("id", "date", "client", "messages", "project", "title")
    for conversation in page.conversations:
        date, count = f"{conversation.ended_at:%Y-%m-%d}", str(conversation.messages)
        client, project = plain(conversation.client), plain(conversation.project)
        rows.add_row(conversation.id[:8], date, client, count, project, plain(_title(conversation)))
    return [rows, "palimpsest conversations ID reads one"]


def _title(conversation: ConversationSummary) -> str:
    """Return the title of a conversation, or its first words."""
    if conversation.title or conversation.first is None:
        return conversation.title
    return shorten(one_line(conversation.first.content), TITLE_CHARS)


def _message_parts(page: MessagePage) -> list[Part]:
    return [
        part
        for message in page.messages
        for part in (f"{local_iso(message.said_at)} {_who(message)}:", message.content, "")
    ]


def _who(message: Message) -> str:
    return f"{message.name} ({message.role})" if message.name else message.role


def _more(cursor: str | None) -> list[Part]:
    return [f"more: --cursor {cursor}"] if cursor else []


def _page_json(page: ConversationPage) -> dict[str, Any]:
    return {
        "conversations": [
            {
                "id": conversation.id,
                "client": conversation.client,
                "title": conversation.title,
                "first_words": "" if conversation.first is None else _title(conversation),
                "messages": conversation.messages,
                "project": conversation.project,
                "began_at": iso(conversation.began_at),
                "ended_at": iso(conversation.ended_at),
            }
            for conversation in page.conversations
        ],
        "cursor": page.cursor,
    }


def _messages_json(page: MessagePage) -> dict[str, Any]:
    return {
        "id": page.id,
        "messages": [
            {
                "id": message.id,
                "at": iso(message.said_at),
                "role": message.role,
                "name": message.name,
                "text": message.content,
            }
            for message in page.messages
        ],
        "cursor": page.cursor,
    }
