"""Which of a model's decisions are believed: a fact is known by, completes or contradicts only what it resembles.

A wrong NONE loses a fact and a wrong DELETE a memory, while a fact that is added beside what it repeats or contradicts
loses nothing. So what is doubtful is added, and the caller is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from palimpsest.core.entities import SELF_NAMES, Relation, name_key, relation_key
from palimpsest.core.models import Event, Fact
from palimpsest.llm.decisions.verdicts import Comparison, Doubt, Verdict
from palimpsest.llm.names import has_user_as_subject
from palimpsest.text.stopwords import without_function_words
from palimpsest.text.tokenizer import search_tokens

LEAST_LIKENESS, CERTAIN_LIKENESS = 0.1, 0.2
"""Below the first likeness a fact and a memory are about different things, and from the second on about one. Between
them they must have words in common, or contradict each other in what they say of the user. Of 45 pairs that contradict
each other or say the same, 41 are believed with the embedder e5 and 35 with the static one; of 23 about different
things, 3 and 4."""

SAME_NAMES_LIKENESS = 0.5
"""The likeness from which a memory may say what a fact says without naming anything that the fact names."""


def believed(verdicts: Sequence[Verdict], comparison: Comparison) -> tuple[list[Verdict], tuple[Doubt, ...]]:
    """Return the verdicts that are plausible, and those that are not. A fact with a doubtful one only is added.

    A deletion for no fact is believed as one for the fact that it resembles most.
    """
    if not comparison.near:  # nothing is known of what resembles what
        return list(verdicts), ()
    kept: list[Verdict] = []
    doubts: list[Doubt] = []
    doubted: list[int] = []
    for verdict in (_with_fact(verdict, comparison) for verdict in verdicts):
        if _is_plausible(verdict, comparison):
            kept.append(verdict)
            continue
        fact = "" if verdict.item is None else comparison.facts[verdict.item].text
        doubts.append(Doubt(verdict.event, fact, _text(verdict.entry, comparison)))
        doubted += [] if verdict.item is None else [verdict.item]
    decided = {verdict.item for verdict in kept}
    added = [Verdict(item, Event.ADD) for item in dict.fromkeys(doubted) if item not in decided]
    return [*kept, *added], tuple(dict.fromkeys(doubts))


def _with_fact(verdict: Verdict, comparison: Comparison) -> Verdict:
    if verdict.item is not None or verdict.event is not Event.DELETE or verdict.entry is None:
        return verdict
    likeness = [dict(near).get(verdict.entry, 0.0) for near in comparison.near[: len(comparison.facts)]]
    best = max(range(len(likeness)), key=likeness.__getitem__, default=None)
    return verdict if best is None or likeness[best] < LEAST_LIKENESS else replace(verdict, item=best, text=None)


def _is_plausible(verdict: Verdict, comparison: Comparison) -> bool:
    if verdict.event is Event.ADD or verdict.entry is None:
        return True
    if verdict.item is None:
        return verdict.event is not Event.DELETE
    if verdict.item >= len(comparison.facts):  # what people ask to forget is another matter
        return True
    fact, text = comparison.facts[verdict.item], _text(verdict.entry, comparison)
    entry = comparison.stored(verdict.entry)
    relations = entry.memory.relations if entry is not None else ()
    if _states_same(fact.relations, relations, comparison.user_name):
        return True
    likeness = dict(comparison.near[verdict.item]).get(verdict.entry)
    is_known = verdict.event is Event.NONE
    if _is_about_others(fact, relations, text, comparison.user_name) or (
        is_known and (likeness or 0.0) < SAME_NAMES_LIKENESS and not _names_some(fact, text)
    ):
        return False
    if likeness is not None and not LEAST_LIKENESS <= likeness < CERTAIN_LIKENESS:
        return likeness >= CERTAIN_LIKENESS
    user = comparison.user_name
    is_of_user = has_user_as_subject(fact.text, user) and has_user_as_subject(text, user)
    return _shares_words(fact.text, text, user) or (likeness is not None and is_of_user and not is_known)


def _states_same(first: Iterable[Relation], second: Iterable[Relation], user_name: str) -> bool:
    """Return whether two texts state the same relation of the same source, such as where one lives."""
    stated = [{(_key(item.source, user_name), relation_key(item.name)) for item in items} for items in (first, second)]
    return not stated[0].isdisjoint(stated[1])


def _is_about_others(fact: Fact, relations: Sequence[Relation], text: str, user_name: str) -> bool:
    """Return whether a fact and a memory state relations of different people or things, and nothing in common."""
    sources = [{_key(item.source, user_name) for item in items} for items in (fact.relations, relations)]
    if not all(sources) or not sources[0].isdisjoint(sources[1]):
        return False
    ends = {_key(end, user_name) for item in fact.relations for end in (item.source, item.destination)} - {"user"}
    return not any(_is_in(end, text) for end in ends)


def _names_some(fact: Fact, text: str) -> bool:
    """Return whether a text names something that a fact names; also if the fact names nothing but the user."""
    keys = {name_key(entity.name) for entity in fact.entities if entity.type != "other"} - SELF_NAMES
    return not keys or any(_is_in(key, text) for key in keys)


def _is_in(key: str, text: str) -> bool:
    """Return whether a text has a name or the beginning of it, by which its bearer may be called."""
    return key.split(" ", 1)[0] in text.casefold()


def _key(name: str, user_name: str) -> str:
    key = name_key(name)
    return "user" if key in SELF_NAMES or (user_name and key == name_key(user_name)) else key


def _shares_words(first: str, second: str, user_name: str) -> bool:
    """Return whether two texts have a word in common that says something, and is not the user's name or its "'s"."""
    own = {*SELF_NAMES, *search_tokens(user_name)}
    words = [set(without_function_words(search_tokens(text))) - own for text in (first, second)]
    return any(len(word) > 1 or not word.isascii() for word in words[0] & words[1])


def _text(entry: int | None, comparison: Comparison) -> str:
    stored, listed = comparison.stored(entry), comparison.listed_fact(entry)
    return stored.memory.text if stored is not None else comparison.facts[listed or 0].text
