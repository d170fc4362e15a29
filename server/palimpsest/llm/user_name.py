"""One name for the user: a fact about "User" is a fact about the person whose name is known."""

import re
from collections.abc import Iterator, Sequence

from palimpsest.core.models import Message
from palimpsest.core.validation import one_line
from palimpsest.llm.ask import NOTHING
from palimpsest.text.tokenizer import is_unspaced
from palimpsest.text.word_lists import patterns

# A longer name is a sentence.
MAX_NAME_CHARS = 64

_NO_NAMES = NOTHING | {"user", "the user", "me", "i", "myself", "you", "assistant", "agent", "human", "anonymous"}

_RE = patterns("palimpsest.llm", "user_name.txt")


def told_name(name: str, messages: Sequence[Message]) -> str:
    """Return the user's name as a model read it in messages, or "" unless it stands in what a user wrote.

    Models also write "unknown", and names that nobody said.
    """
    name = one_line(name).strip(" .,;:'\"")
    if name.casefold() in _NO_NAMES or len(name) > MAX_NAME_CHARS:
        return ""
    written = [text for message in messages if message.role == "user" for text in (message.name, message.content)]
    return name if any(any(places_of(name.casefold(), one_line(text).casefold())) for text in written) else ""


def with_name(text: str, user_name: str) -> str:
    """Return a fact with the user's name in place of "User" or "The user" at its beginning.

    Only the beginning is certain to mean the person: "User" inside a sentence may be the user of a program. If the name
    follows, as in "User Nadia likes tea.", only the name stays.
    """
    found = _RE["person"].match(text)
    if not user_name.strip() or found is None:
        return text
    rest = text[found.end() :]
    if not found["possessive"] and (named := _RE["name follows"].match(rest)):
        after = rest[named.end() :]
        if begins_with(user_name.split(maxsplit=1)[0], after):
            return after.replace(")", "", 1) if "(" in named[0] else after
    return f"{user_name}{found['possessive'] or ''}{rest}"


def behind_user(text: str) -> str:
    """Return what follows the user at the beginning of a text: "Ana Ruiz, a vet" of "The user is Ana Ruiz, a vet".

    It is "" if the text begins with something else, or with what is the user's.
    """
    found = _RE["person"].match(text)
    return _LINK.sub("", text[found.end() :], count=1) if found and not found["possessive"] else ""


# What may stand between the user and the name: "The user, Ana Ruiz, …", "User is Ana Ruiz".
_LINK = re.compile(r"[\s,(:\uff0c]*(?:(?:is|ist|est|es|è|é|jest|to|heet|heter|это|[-\u2013\u2014])\s)?")


def is_about_user(text: str) -> bool:
    """Return whether a text begins with the user: with "User" in one of the languages above, or with "I" or "my"."""
    return _RE["person"].match(text) is not None or _RE["first person"].match(text) is not None


def has_user_as_subject(text: str, user_name: str = "") -> bool:
    """Return whether a text begins with the user, by name or not, and not with what is the user's."""
    if user_name.strip() and begins_with(user_name, text):
        return not _RE["possessive"].match(text, len(user_name))
    found = _RE["person"].match(text)
    return not found["possessive"] if found else _RE["first person"].match(text) is not None


def places_of(name: str, text: str) -> Iterator[re.Match[str]]:
    """Yield where a name is a word, or several, of a text."""
    for found in re.finditer(re.escape(name), text):
        if begins_with(name, text[found.start() :]) and not _joins(text[found.start() - 1 : found.start()], name[0]):
            yield found


def begins_with(name: str, text: str) -> bool:
    """Return whether a text begins with a name as a word, or several."""
    return text.startswith(name) and not _joins(name[-1], text[len(name) : len(name) + 1])


def _joins(char: str, following: str) -> bool:
    """Return whether two characters are of one word. Scripts that put no spaces between words do not tell."""
    return char.isalnum() and following.isalnum() and not (is_unspaced(char) or is_unspaced(following))
