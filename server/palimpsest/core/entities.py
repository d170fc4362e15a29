"""Who and what memories speak of: entities and the relations between them, as texts name them and as they are known.

Names as a text gives them belong to the memory (`Memory.entities`, `Memory.relations`) and change with it. Which entity
a name means is known to the ledger (`store/graph`).
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias, get_args

EntityType: TypeAlias = Literal["person", "organization", "place", "product", "project", "event", "document", "other"]

ENTITY_TYPES: tuple[EntityType, ...] = get_args(EntityType)

MAX_NAME_CHARS = 256
"""The maximum length of the name of an entity or a relation, as of all other names."""

SELF_NAMES = frozenset(
    {
        *("i", "me", "myself", "user", "the user", "you", "speaker"),
        *("ich", "nutzer", "nutzerin", "benutzer", "der nutzer", "die nutzerin", "der benutzer"),
        *("yo", "usuario", "usuaria", "el usuario", "je", "moi", "utilisateur", "l'utilisateur", "io", "utente"),
        *("eu", "usuário", "я", "пользователь", "我", "用户", "用戶", "使用者", "私", "ユーザー", "나", "사용자"),
    }
)
"""What texts and models call the user, as `name_key` gives it. All of these are one entity, the user's own."""

RESOLVE = "resolve"
"""The stage of the edits in which the background looked for names, and found entities of projects to be global ones. A
plain undo passes over them."""

_AROUND = " \t\n.,;:!?\"'`´()[]{}<>«»„“”‘’「」『』《》、。，；：！？"  # noqa: RUF001 - quotes and full stops of many scripts
_POSSESSIVE = re.compile(r"'s$")
_ONE_SIGN = str.maketrans(
    dict.fromkeys("\u2018\u2019\u201b\u02bc\u02b9\u055a\u2032`\u00b4", "'")
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u058a", "-")
)
"""Apostrophes and hyphens, each as the one on a keyboard."""
_BETWEEN_WORDS = re.compile(r"[\s_\-]+")


@dataclass(frozen=True, slots=True)
class NamedEntity:
    """An entity as a text names it. `type` is "other" if it is not known."""

    name: str
    type: EntityType = "other"


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation as a text states it, by names: from `source` to `destination`, such as Ana, lives in, Lyon.

    `since` is since when it holds, as ISO 8601 as exactly as that is known, and "" if it is not. With None it holds
    since the memory does that states it.
    """

    source: str
    name: str
    destination: str
    since: str | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Return what is equal for the spellings of one relation."""
        return name_key(self.source), relation_key(self.name), name_key(self.destination)


@dataclass(frozen=True, slots=True)
class Entity:
    """Somebody or something that memories speak of.

    It belongs to a user, or to one of the user's projects. `is_user` marks the user's own entity. An entity that was
    merged has the id of the other one in `merged_into`.
    """

    id: str
    user_id: str
    project: str
    name: str
    type: EntityType
    created_at: datetime
    is_user: bool = False
    merged_into: str | None = None


@dataclass(frozen=True, slots=True)
class KnownRelation:
    """A relation that a memory states, between entities by the names they are shown by.

    `valid_from` and `valid_until` are ISO 8601 as exactly as they are known, and "" if the memory does not say. It was
    known from `created_at` to `expired_at`, which is None for a relation that is known now, or was at the time asked
    about. `holds_from` is since when it holds as far as is known, for ordering.
    """

    source: str
    relationship: str
    destination: str
    source_id: str
    destination_id: str
    memory_id: str
    valid_from: str
    valid_until: str
    created_at: datetime
    expired_at: datetime | None
    holds_from: datetime

    @property
    def is_current(self) -> bool:
        """Return whether the memory that states it is living."""
        return self.expired_at is None

    @property
    def line(self) -> str:
        """Return the relation as one line, such as "Ana — works at → Ferrow (since 2025-03)"."""
        return relation_line(self.source, self.relationship, self.destination, self.valid_from, self.valid_until)


def relation_line(source: str, name: str, destination: str, since: str, until: str = "") -> str:
    """Return a relation and its times as one line."""
    source, name, destination = (" ".join(part.split()) for part in (source, name.replace("_", " "), destination))
    held = " ".join(f"{word} {time}" for word, time in (("since", since), ("until", until)) if time)
    return f"{source} — {name} → {destination}" + (f" ({held})" if held else "")


@dataclass(frozen=True, slots=True)
class Merge:
    """An edit: `entity_id` is the same as `into_id`."""

    entity_id: str
    into_id: str


@dataclass(frozen=True, slots=True)
class Split:
    """An edit: what some memories say of an entity is about another one of that name, which is called `name`."""

    entity_id: str
    memory_ids: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class Rename:
    """An edit: an entity has another name, another type, or both. The old name stays an alias."""

    entity_id: str
    name: str = ""
    type: EntityType | None = None


EntityEdit: TypeAlias = Merge | Split | Rename


def plain_name(name: str) -> str:
    """Return a name in lower case, with one form of each letter, apostrophe and hyphen, and no invisible characters."""
    if name.isascii():
        return name.casefold().replace("`", "'")
    visible = "".join(char for char in name.translate(_ONE_SIGN) if unicodedata.category(char) != "Cf")
    # Of some letters the form in lower case is composed otherwise.
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
    return folded.translate(_ONE_SIGN)


def name_key(name: str) -> str:
    """Return what is equal for the spellings of one name.

    Case, width, the form of apostrophes and hyphens, quotes around it and a possessive do not count. The key is "" for
    a text that names nothing.
    """
    return " ".join(_POSSESSIVE.sub("", plain_name(name).strip(_AROUND)).split()).strip(_AROUND)[:MAX_NAME_CHARS]


def relation_key(name: str) -> str:
    """Return what is equal for the spellings of the name of a relation, such as "lives in" and "LIVES_IN"."""
    plain = plain_name(name).strip(_AROUND)
    return _BETWEEN_WORDS.sub("_", plain).strip("_")[:MAX_NAME_CHARS]
