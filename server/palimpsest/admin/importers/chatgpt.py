"""ChatGPT's conversation export: a list of message trees. `current_node` names the last message that was shown."""

import re
from datetime import datetime
from typing import Any

from palimpsest.admin.importers import records
from palimpsest.admin.importers.records import ImportedFile, Reading, Skipped, text_of
from palimpsest.core.models import PICTURE
from palimpsest.core.validation import is_picture, list_of, object_of

_TEXT_TYPES = ("text", "multimodal_text")

# A mark that the web page draws as a link to a source. The source itself is not in the text.
_CITATION = re.compile(r"\ue200(?:cite|filecite)\ue202[^\ue200\ue201]{0,500}\ue201")

_FORGET = re.compile(r"(?:please )?(?:forget|delete|remove)\b", re.IGNORECASE)

SAVED = "memories are what ChatGPT saved in these chats, also what was changed or deleted in its settings since"


def read(source: records.SourceFile, now: datetime) -> ImportedFile | None:
    """Return the user's and assistant's messages on the branch last shown of each conversation, and the memories.

    Memories are what ChatGPT saved on these branches with its tool `bio`, and those of the export's own list, where it
    has one. Return None if the file has no ChatGPT conversation.
    """
    if not any(_is_conversation(item) for item in source.items):
        return None
    reading = Reading(now)
    conversations = records.in_order([_conversation(object_of(item), reading) for item in source.items])
    memories_notes = (SAVED,) if reading.memories else ()
    for item in map(object_of, source.beside):  # the export's own list
        if not (text := text_of(item.get("content"))) or item.get("enabled") is False:
            reading.skipped["memories that are turned off or have no text"] += 1
            continue
        reading.keep("chatgpt", text, reading.time_of(item.get("updated_at"), item.get("created_at")))
    notes = (*memories_notes, *reading.notes, *records.unread_notes(source.unread))
    return ImportedFile("chatgpt", tuple(reading.memories.values()), conversations, notes)


def _is_conversation(value: Any) -> bool:
    return isinstance(object_of(value).get("mapping"), dict)


def _conversation(conversation: dict[str, Any], reading: Reading) -> records.ImportedConversation:
    if not _is_conversation(conversation):
        reading.skipped[records.UNKNOWN_CONVERSATION] += 1
    nodes = object_of(conversation.get("mapping"))
    messages: list[records.ImportedMessage] = []
    parents = {name: text_of(object_of(node).get("parent")) or None for name, node in nodes.items()}
    said = {name: object_of(object_of(node).get("message")) for name, node in nodes.items()}
    current = text_of(conversation.get("current_node"))
    for name, message, at in records.shown_branch(said, parents, current, "create_time", reading):
        said_at = reading.time_of(at, conversation.get("create_time"))
        if message.get("recipient") == "bio":
            _take_saved(message, said_at, reading)
        elif message and (content := _content(message, reading.skipped)):
            author, message_id = object_of(message["author"]), text_of(message.get("id")) or text_of(name)
            speaker = text_of(author.get("name"))
            messages.append(records.ImportedMessage(message_id, author["role"], content, said_at, speaker))
    conversation_id = text_of(conversation.get("conversation_id")) or text_of(conversation.get("id"))
    return records.ImportedConversation(conversation_id, text_of(conversation.get("title")), tuple(messages))


def _take_saved(message: dict[str, Any], said_at: datetime, reading: Reading) -> None:
    """Take in what the model gave to its memory. A request to forget something there changes nothing here."""
    parts = list_of(object_of(message.get("content")).get("parts"))
    if not (text := text_of("\n".join(part for part in parts if isinstance(part, str)))) or _FORGET.match(text):
        reading.skipped["requests to forget a memory"] += 1
    else:
        reading.keep("chatgpt", text, said_at)


def _content(message: dict[str, Any], skipped: Skipped) -> str:
    """Return the text of a message. Return "" and count the message if it is not part of the visible conversation."""
    if not _is_shown(message):
        skipped[records.NOT_SAID] += 1
        return ""
    parts = list_of(object_of(message.get("content")).get("parts"))
    pictures = [part for part in parts if is_picture(object_of(part))]
    shown = [PICTURE if part in pictures else part for part in parts]
    texts = [part if isinstance(part, str) else object_of(part).get("text") for part in shown]
    # A picture is in both lists, a document only among the attachments.
    attachments = list_of(object_of(message.get("metadata")).get("attachments"))
    others = sum(1 for text in texts if not isinstance(text, str))
    skipped[records.PICTURES] += len(pictures)
    skipped[records.NOT_SAID] += max(len(attachments) - len(pictures), others)
    content = text_of(_CITATION.sub("", "\n".join(text for text in texts if isinstance(text, str))))
    skipped[records.NOT_SAID] += not content
    return content


def _is_shown(message: dict[str, Any]) -> bool:
    """Return whether a message is part of the visible conversation."""
    role = object_of(message.get("author")).get("role")
    content_type = object_of(message.get("content")).get("content_type") or "text"
    is_hidden = object_of(message.get("metadata")).get("is_visually_hidden_from_conversation")
    is_for_tool = role == "assistant" and message.get("recipient") not in (None, "all")
    is_text = role in ("user", "assistant") and content_type in _TEXT_TYPES
    return is_text and not is_for_tool and not is_hidden and message.get("weight") != 0
