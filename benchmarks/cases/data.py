"""The written cases: what is said, what should be stored, closed and forgotten at the end, and scripted replies.

A word of a case may be the beginning of a word, because a model words freely: "allerg" is found in "allergic" and
"allergy". "six|6" is either of two words. A number is found only as a whole.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter

from palimpsest.core.models import EntityType

CASES_FILE = Path(__file__).parent.parent / "pipeline_cases.json"
CONVERSATION_FILE = Path(__file__).parent.parent / "pipeline_conversation.json"

Words: TypeAlias = tuple[str, ...]


# The first of the characters of Chinese and Japanese, whose words no space separates.
_FIRST_UNSPACED = "\u2e80"


def has_words(text: str, words: Sequence[str]) -> bool:
    """Return whether every word, or one of its alternatives, begins a word of the text."""
    return all(has_any_word(text, word.split("|")) for word in words)


def has_any_word(text: str, words: Sequence[str]) -> bool:
    """Return whether any of the words begins a word of the text."""
    folded = _folded(text)
    return any(re.search(_pattern(_folded(option)), folded) for word in words for option in word.split("|"))


def _pattern(word: str) -> str:
    before = r"(?<!\d)" if word[0].isdigit() else "" if word[0] >= _FIRST_UNSPACED else r"(?<![^\W_])"
    return before + re.escape(word) + (r"(?!\d)" if word[-1].isdigit() else "")


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


class Part(BaseModel):
    """A part of a case. An unknown key is an error, so that a mistyped expectation is not passed over."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Pattern(Part):
    """A text with all of `words` and none of `without`."""

    words: Words
    without: Words = ()

    def fits(self, text: str) -> bool:
        """Return whether a text has all words and none of those that are excluded."""
        return has_words(text, self.words) and not has_any_word(text, self.without)

    def __str__(self) -> str:
        """Return what is asked for, as a reader of the table sees it."""
        without = f", not {', '.join(self.without)}" if self.without else ""
        return f"{', '.join(self.words) or 'anything'}{without}"


class Stored(Pattern):
    """A memory that lives at the end: the date that it shows, a tag that it has, and words of an earlier text of it.

    An earlier text is one of its own or that of a memory that it replaced.
    """

    date: str = ""
    tag: str = ""
    replaced: Words = ()


class Closed(Pattern):
    """A memory that no longer holds but is not forgotten, and the beginning of the date until when it held."""

    until: str = ""


class Forgotten(Pattern):
    """What no living memory says, and no hit of a search for the question shows."""

    question: str


class Limit(Pattern):
    """How many living memories say something, at most."""

    at_most: int


class Related(Part):
    """A relation, by a word of each of its parts, and the beginning of the date until when it held."""

    source: str
    name: str
    destination: str
    until: str = ""

    def __str__(self) -> str:
        """Return what is asked for, as a reader of the table sees it."""
        return f"{self.source} — {self.name} → {self.destination}"


class Named(Part):
    """How many entities a name means. If it is one: a word of the name that it is shown by, and its type."""

    name: str
    count: int = 1
    shown: str = ""
    type: EntityType | Literal[""] = ""


class Expected(Part):
    """What should hold at the end of a case.

    What is `absent` is said by no memory, living or not. `related` is what holds, `formerly_related` what held and is
    kept with its end, and `unrelated` what neither holds nor held. `notes` are words of the replies, each of one note,
    and `no_notes` are words that no note of a reply has.
    """

    stored: tuple[Stored, ...] = ()
    closed: tuple[Closed, ...] = ()
    forgotten: tuple[Forgotten, ...] = ()
    absent: tuple[Pattern, ...] = ()
    limits: tuple[Limit, ...] = ()
    entities: tuple[Named, ...] = ()
    related: tuple[Related, ...] = ()
    formerly_related: tuple[Related, ...] = ()
    unrelated: tuple[Related, ...] = ()
    notes: tuple[str, ...] = ()
    no_notes: tuple[str, ...] = ()


class Step(Part):
    """One call at a time: messages or a text are added. With `summarize` the summary is written after it."""

    at: AwareDatetime
    messages: tuple[dict[str, Any], ...] = ()
    text: str = ""
    infer: bool | None = None
    summarize: bool = False


class Rule(Part):
    """A scripted decision about each fact or request with the words `fact` and each memory with the words `memory`."""

    fact: Words
    event: Literal["ADD", "UPDATE", "DELETE", "NONE"]
    memory: Words = ()
    text: str | None = None


class Script(Part):
    """The replies of a scripted endpoint: to each extraction in order, to decisions by rule, to each summary in order.

    A fact that no rule is about is added. With `cut` the replies to extractions end in the middle, as if the model had
    reached its limit. With `as_mem0` decisions have the form that Mem0's prompts ask for: each memory with what becomes
    of it, and the new ones.
    """

    extract: tuple[dict[str, Any], ...] = ()
    decide: tuple[Rule, ...] = ()
    summaries: tuple[str, ...] = ()
    cut: bool = False
    as_mem0: bool = False


class Case(Part):
    """One case. `language` is an ISO 639-1 code, `point` what the case tests, `settings` are added to the defaults.

    `only_scripted` is whether the case tests what a real model does only by chance.
    """

    id: str
    language: str
    point: str
    steps: tuple[Step, ...] = Field(min_length=1)
    expected: Expected
    script: Script
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    only_scripted: bool = False


def read_cases(path: Path) -> tuple[Case, ...]:
    """Return the cases of a file. Raises pydantic's ValidationError, a ValueError, if it is not in this form."""
    return TypeAdapter(tuple[Case, ...]).validate_json(path.read_bytes())


def read_conversation(path: Path) -> Case:
    """Return the conversation whose prompts are counted: a case that expects nothing."""
    return Case.model_validate_json(path.read_bytes())
