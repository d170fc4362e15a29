"""Claude's conversation export: lists of messages. In newer exports each message names the one it answers."""

import mimetypes
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from palimpsest.admin.importers import records
from palimpsest.admin.importers.records import ImportedFile, Reading, Skipped, text_of
from palimpsest.core.models import PICTURE
from palimpsest.core.validation import list_of, object_of, one_line

# What Claude's export has beside the conversations: what Claude remembers (memories.json), and projects.
#
# The formats are undocumented. A file of memories has `conversations_memory`, a text in Markdown, and
# `project_memories`, such a text for the id of each project. A project has `name`, `description`, `prompt_template`
# and `docs`.

# A line that heads the paragraphs below it.
_HEADING = re.compile(r"#{1,6}\s+(?P<marked>.+?)\s*#*|\*\*(?P<bold>[^*]+)\*\*:?")

_BULLET = re.compile(r"(?m)^\s*[-*•]\s+")


def is_of_claude(value: Any) -> bool:
    """Return whether a JSON value is Claude's memory of an account, or a project."""
    return _is_memory(object_of(value)) or _is_project(object_of(value))


def _keep_memories(values: Sequence[Any], reading: Reading) -> None:
    """Keep one memory per paragraph that Claude remembers, and one per description of a project."""
    objects = [object_of(value) for value in values]
    projects = [value for value in objects if _is_project(value) and not value.get("is_starter_project")]
    names = {text_of(project.get("uuid")): one_line(text_of(project.get("name"))) for project in projects}
    for value in filter(_is_memory, objects):
        at = reading.time_of(value.get("updated_at"))
        for tags, text in _paragraphs(text_of(value.get("conversations_memory"))):
            reading.keep("claude", text, at, tags)
        for project_id, memory in object_of(value.get("project_memories")).items():
            prefix = f"{names[project_id]}: " if names.get(project_id) else ""
            for tags, text in _paragraphs(text_of(memory)):
                reading.keep("claude", f"{prefix}{text}", at, tags)
    for project in projects:  # the description; the instructions are orders and no facts, and the documents are books
        name, description = one_line(text_of(project.get("name"))), text_of(project.get("description"))
        if description:
            text, at = f"{name}: {description}" if name else description, reading.time_of(project.get("updated_at"))
            reading.keep("claude", text, at)
        others = len(list_of(project.get("docs"))) + bool(text_of(project.get("prompt_template")))
        reading.skipped["instructions and documents of projects"] += others


def _is_memory(value: dict[str, Any]) -> bool:
    return isinstance(value.get("conversations_memory"), str) or isinstance(value.get("project_memories"), dict)


def _is_project(item: dict[str, Any]) -> bool:
    return "chat_messages" not in item and isinstance(item.get("name"), str) and {"prompt_template", "docs"} <= {*item}


def _paragraphs(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the paragraphs and list items of a text in Markdown, each with its heading as a tag."""
    tags: tuple[str, ...] = ()
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip().split("\n")
        if (heading := _HEADING.fullmatch(lines[0].strip())) is not None:
            tags, lines = records.tags_of(heading["marked"] or heading["bold"]), lines[1:]
        yield from ((tags, kept) for item in _BULLET.split("\n".join(lines)) if (kept := one_line(item)))


_ROLES = {"human": "user", "assistant": "assistant"}
# The beginning of the parent id of a first message.
_ROOT = "00000000-0000-"


def read(source: records.SourceFile, now: datetime) -> ImportedFile | None:
    """Return the human's and assistant's messages on the newest branch of each conversation, and the memories.

    Memories are what Claude remembers of the chats and of its projects, and the descriptions of the projects. Return
    None if the file has none of these.
    """
    everything = [*source.items, *source.beside]
    if not any(_is_conversation(item) or is_of_claude(item) for item in everything):
        return None
    reading = Reading(now)
    items = [item for item in source.items if not is_of_claude(item)]
    conversations = records.in_order([_conversation(object_of(item), reading) for item in items])
    _keep_memories(everything, reading)
    notes = (*reading.notes, *records.unread_notes(source.unread))
    return ImportedFile("claude", tuple(reading.memories.values()), conversations, notes)


def _is_conversation(value: Any) -> bool:
    return isinstance(object_of(value).get("chat_messages"), list)


def _conversation(conversation: dict[str, Any], reading: Reading) -> records.ImportedConversation:
    skipped = reading.skipped
    if not _is_conversation(conversation):
        skipped[records.UNKNOWN_CONVERSATION] += 1
    by_name = {
        text_of(object_of(message).get("uuid")) or f"#{number}": object_of(message)
        for number, message in enumerate(list_of(conversation.get("chat_messages")))
    }
    messages: list[records.ImportedMessage] = []
    current = text_of(conversation.get("current_leaf_message_uuid"))
    for _, message, at in records.shown_branch(by_name, _parents_of(by_name), current, "created_at", reading):
        role, said_at = _ROLES.get(text_of(message.get("sender"))), reading.time_of(at, conversation.get("created_at"))
        if role is None:
            skipped[records.NOT_SAID] += 1
            continue
        message_id, files = text_of(message.get("uuid")), _attached_texts(message, skipped)
        # Before the message, so that a question and its answer stay side by side.
        messages += [
            records.ImportedMessage(f"{message_id}/{file}", role, f"{file}:\n{text}", said_at) for file, text in files
        ]
        kinds = [object_of(block).get("type") for block in list_of(message.get("content"))]
        # As blocks, or as files, of which the export has the names.
        pictures = kinds.count("image") + sum(map(_is_picture, list_of(message.get("files"))))
        skipped[records.PICTURES] += pictures
        content = "\n".join(filter(None, (_content(message), *[PICTURE] * pictures)))
        skipped[records.NOT_SAID] += sum(kind not in ("text", "image") for kind in kinds)
        if content:
            messages.append(records.ImportedMessage(message_id, role, content, said_at))
        elif not files:
            skipped[records.NOT_SAID] += 1
    title = text_of(conversation.get("name"))
    return records.ImportedConversation(text_of(conversation.get("uuid")), title, tuple(messages))


def _attached_texts(message: dict[str, Any], skipped: Skipped) -> list[tuple[str, str]]:
    """Return the name and the text of each attached file of which the export has the text. Count the others."""
    attachments = [object_of(attachment) for attachment in list_of(message.get("attachments"))]
    texts = [
        (one_line(text_of(attachment.get("file_name"))) or "pasted text", text)
        for attachment in attachments
        if (text := text_of(attachment.get("extracted_content")))
    ]
    others = [file for file in list_of(message.get("files")) if not _is_picture(file)]
    skipped[records.NOT_SAID] += len(attachments) - len(texts) + len(others)
    return texts


def _is_picture(file: Any) -> bool:
    kind, _ = mimetypes.guess_type(text_of(object_of(file).get("file_name")))
    return object_of(file).get("file_kind") == "image" or (kind or "").startswith("image/")


def _parents_of(messages: dict[str, dict[str, Any]]) -> dict[str, str | None]:
    """Return the message that each one answers."""
    parents: dict[str, str | None] = {}
    previous: str | None = None
    for name, message in messages.items():
        parent = text_of(message.get("parent_message_uuid"))
        # Older exports name no parents. There, a message answers the one before it.
        parents[name] = parent if parent in messages else None if parent.startswith(_ROOT) else previous
        previous = name
    return parents


def _content(message: dict[str, Any]) -> str:
    """Return the text of a message."""
    blocks = [object_of(block) for block in list_of(message.get("content"))]
    texts = [block.get("text") for block in blocks if block.get("type") == "text"]
    # Old exports have only `text`. Where there are blocks, `text` repeats them, with placeholders for non-text blocks.
    return text_of("\n".join(text for text in texts if isinstance(text, str)) if blocks else message.get("text"))
