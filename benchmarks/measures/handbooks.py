"""Made-up handbooks: plain English of some hundred pages, the same in every run, with known answers on single pages.

`documents.json` has the templates, the words of ten places of work, and the questions. A page is a section of its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

from measures.hand_written import read_data

SENTENCES = 24
"""So many sentences make a page of about 400 words, which ends before the next heading."""

SECTIONS = 5
"""The pages of a chapter, one for each thing that a handbook is about."""

SEED = 20261123


@dataclass(frozen=True)
class Answered:
    """A question whose answer stands on one page. `number` counts the pages of the handbook from 1.

    `gist` says what the answer is about in other words than the page. `about` asks in words of the gist, and `meant` in
    words that neither has.
    """

    handbook: str
    number: int
    question: str
    fact: str
    gist: str
    about: str
    meant: str


@dataclass(frozen=True)
class Handbooks:
    """The texts of handbooks by name, in Markdown, and what is asked about them."""

    texts: Mapping[str, str]
    questions: Sequence[Answered]


def made_handbooks() -> Handbooks:
    """Return the handbooks: each has ten chapters of five pages."""
    data = read_data("documents")
    chance = random.Random(SEED)  # noqa: S311 - text, no secret
    texts: dict[str, str] = {}
    questions: list[Answered] = []
    for number, book in enumerate(data["handbooks"]):
        of_book = [entry for entry in data["questions"] if entry["handbook"] == number]
        section_of = {entry["fact"]: chance.randrange(SECTIONS) for entry in of_book}
        sections: list[str] = []
        for chapter, title in enumerate(book["chapters"]):
            facts = [entry for entry in of_book if entry["chapter"] == chapter]
            for place, thing in enumerate(book["thing"]):
                told = [entry for entry in facts if section_of[entry["fact"]] == place]
                sentences = list(_sentences(data, book, thing, chance))
                for entry in told:
                    sentences.insert(chance.randrange(SENTENCES // 3, SENTENCES), entry["fact"])
                    words = (entry["question"], entry["fact"], entry["gist"], entry["about"], entry["meant"])
                    questions.append(Answered(book["name"], len(sections) + 1, *words))
                sections.append(f"## {title}: {thing}\n\n{' '.join(sentences)}\n\n")
        texts[book["name"]] = "".join(sections)
    return Handbooks(texts, questions)


def _sentences(data: Mapping[str, Any], book: Mapping[str, Any], thing: str, chance: random.Random) -> Iterator[str]:
    """Yield the sentences of a page: different templates, with words of the handbook."""
    words: dict[str, Sequence[str]] = {**data["words"], **{name: book[name] for name in ("role", "place", "tool")}}
    for template in chance.sample(data["templates"], SENTENCES):
        names = {name for _, name, _, _ in Formatter().parse(template) if name}
        chosen = {name: chance.choice(words[name]) for name in sorted(names & words.keys())}
        numbers = {name: str(chance.randrange(2, 60)) for name in ("number", "number2")}
        code = f"{chance.choice('ABCDEFGH')}-{chance.randrange(100, 999)}"
        sentence = template.format(**chosen, **numbers, code=code, thing=thing, act=chance.choice(book["act"]))
        yield sentence[0].upper() + sentence[1:]
