"""Recognize sentences that state a rule, a preference, a decision, a name or a place, by a few cues a language.

The cues are strict, because what is taken by mistake stands in every session, and what is missed can be told again. A
question, a quotation, a text to work on, code, and what holds for this once state nothing. The cues stand in
`standing_cues.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias

from palimpsest.text.tokenizer import is_unspaced, query_tokens

StandingKind: TypeAlias = Literal["rule", "decision", "fact", "person"]

MAX_CHARS = 2_000
"""A longer text is mostly pasted. Set by hand."""

MIN_SENTENCE_CHARS, MAX_SENTENCE_CHARS = 5, 240
"""How long a sentence is that states one thing. Set by hand."""

MIN_WORDS = 2
"""How many words a text has beside courtesies and function words that says something. Set by hand."""

_WHOLE: tuple[StandingKind, ...] = ("fact", "decision", "rule")
"""What is taken to the end of its sentence, in the order in which it is looked for."""

MIN_RULE_WORDS = 3
"""How many words a rule has in a script with spaces. "Never returns" is a complaint. Set by hand."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence that holds beyond its conversation, as it was said. A `person` statement is about whoever said it."""

    text: str
    kind: StandingKind


_CODE_BLOCK = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_FOREIGN_LINE = re.compile(
    r"\s*(?:>|//|#|/\*|\*/|\||\$ |@@|\+\+\+|<|--\s|at \w+[.(]|\d+[:|]\s"
    r"|\[?(?i:warn(?:ing)?|error|err|hint|info|debug|fatal|panic|notice|todo|fixme|lint|help)\b[^\s:]{0,30}\]?:|[\w./\\-]+:\d)"
    r"|(?: {4}|\t)|.*[{};]\s*$"
)
"""A line that is quoted, code, or the output of a program."""

_QUOTED = re.compile(r'"[^"\n]{9,400}"|“[^”\n]{9,400}”|„[^“”\n]{9,400}[“”]|«[^»\n]{9,400}»|「[^」\n]{3,400}」')
_NOT_SAID = "\x00"
"""What stands for a quotation. A sentence with one says what somebody else said."""

_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|Hr|Fr|Sr|Sra|Sig|Nr|No|vs|e\.g|i\.e|z\.\s?B|p\. ?ex)\.(?=\s)")
_STOP = "\x01"
_APOSTROPHE = "['\u2019]"
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+|[;:]\s|(?<=：)|\s[–—-]+\s")  # noqa: RUF001 - full-width marks are meant
_QUESTION_MARKS = ("?", "？", "؟")  # noqa: RUF001 - the question mark of Chinese is meant
_END = " \t.!?…。！？؟,、，"  # noqa: RUF001 - full-width marks are meant
_CLAUSE = re.compile(
    r"[,\uff0c、،]\s*|\s(?=(?:because|since|weil|denn|car|parce que|porque|perché|omdat|bo|потому что)\b)"
)


def standing_statements(text: str) -> list[Statement]:
    """Return what a person wrote that holds beyond the conversation, each sentence once. Takes linear time."""
    if len(text) > MAX_CHARS:
        return []
    found = {statement.text: statement for sentence in _sentences(text) for statement in _stated(sentence)}
    return list(found.values())


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences that the person wrote as their own words."""
    own = "\n".join(line for line in _CODE_BLOCK.sub("\n", text).splitlines() if not _FOREIGN_LINE.match(line))
    own = _QUOTED.sub(_NOT_SAID, own.replace(_NOT_SAID, " ").replace(_STOP, " "))
    own = own[: material.end()] if (material := _cues()["material"].search(own)) else own
    for sentence in _SENTENCE_END.split(_ABBREVIATION.sub(lambda found: found[0][:-1] + _STOP, own)):
        plain = " ".join(sentence.split()).replace(_STOP, ".").lstrip("-*•–— ")  # noqa: RUF001 - a dash of a list
        if MIN_SENTENCE_CHARS <= len(plain) <= MAX_SENTENCE_CHARS and _NOT_SAID not in plain:
            yield plain


def _stated(sentence: str) -> Iterator[Statement]:
    """Yield what a sentence states: one thing at most."""
    cues = _cues()
    is_question = sentence.endswith(_QUESTION_MARKS) or cues["question"].match(sentence) is not None
    if cues["once"].search(sentence) or cues["made up"].match(_without_lead(sentence)):
        return
    for start in (0, *(clause.end() for clause in _CLAUSE.finditer(sentence))):
        rest = _without_lead(sentence[start:]).strip(_END)
        if len(rest) < MIN_SENTENCE_CHARS:
            continue
        if cues["person"].match(rest):
            yield Statement(_of_person(rest), "person")
            return
        if is_question:
            continue
        for kind in _WHOLE:
            is_other = _is_task(rest) or (kind == "rule" and _is_complaint(rest))
            if cues[kind].match(rest) and not is_other:
                yield Statement(_sentence(rest), kind)
                return
        if kin := cues["kin"].search(rest):
            yield Statement(_of_person(rest[kin.start() :]), "person")
            return


def says_something(text: str, words: int = MIN_WORDS) -> bool:
    """Return whether a text has so many words beside thanks, greetings, "go on" and function words."""
    return len(query_tokens(_cues()["courtesy"].sub(" ", text[:MAX_CHARS]))) >= words


def asks_something(text: str) -> bool:
    """Return whether a sentence of a text is a question, by its mark or its first word."""
    own = (sentence for sentence in _SENTENCE_END.split(text[:MAX_CHARS]) if sentence)
    return any(mark in text for mark in _QUESTION_MARKS) or any(map(_cues()["question"].match, own))


def _of_person(text: str) -> str:
    return _sentence(_cues()["person ends"].split(text, maxsplit=1)[0])


def _is_task(clause: str) -> bool:
    """Return whether a clause goes on with what is to be done now: "the repo is called acme, rename it"."""
    _, comma, rest = clause.partition(",")
    return bool(comma) and _cues()["task"].match(rest) is not None


def _is_complaint(clause: str) -> bool:
    """Return whether a clause tells what always or never happens, or is too short to wish for anything."""
    is_short = len(clause.split()) < MIN_RULE_WORDS and not any(map(is_unspaced, clause))
    return is_short or _cues()["complaint"].search(clause) is not None


def _without_lead(clause: str) -> str:
    """Return a clause without words such as "and" and "please" at its beginning."""
    lead = _cues()["lead"].match(clause)
    return clause if lead is None else clause[lead.end() :]


def _sentence(text: str) -> str:
    """Return a clause as a sentence of its own."""
    text = text.strip(_END)
    return text[:1].upper() + text[1:]


@cache
def _cues() -> Mapping[str, re.Pattern[str]]:
    """Return the cues by their section. They are compiled on first use."""
    sections: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    lines: list[str] = []
    for line in files("palimpsest.text").joinpath("standing_cues.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            lines = sections.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("# "):
            for name, value in names.items():
                line = line.replace(name, value)  # noqa: PLW2901 - each name may stand in it
            name, is_named, value = line.partition(" = ")
            if is_named and name.startswith("{"):
                names[name] = value
            else:
                lines.append(line.replace("'", _APOSTROPHE))
    return {name: re.compile("|".join(f"(?:{cue})" for cue in some), re.IGNORECASE) for name, some in sections.items()}
