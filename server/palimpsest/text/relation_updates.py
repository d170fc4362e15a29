"""Tell which relations of a text outlive the text that replaces it, and which of them began at its date.

"My cousin Tom is a plumber in Wels" is replaced by "Tom moved to Salzburg": Tom is still a cousin and a plumber. A
relation ends if the new text denies it, says something else in its place, or says that somebody died or left. What
cannot be told stays, unless the old text says nothing else: then it is what was replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from itertools import pairwise, product, takewhile

from palimpsest.core.clock import shown_date
from palimpsest.core.models import (
    SELF_NAMES,
    EntityType,
    Fact,
    KnownRelation,
    Memory,
    Relation,
    name_key,
    plain_name,
    relation_key,
    relation_words,
)
from palimpsest.text.dates import vocabulary
from palimpsest.text.dates.date_finder import dates_in
from palimpsest.text.names.known_names import bare_name
from palimpsest.text.names.name_finder import TITLES, find_names
from palimpsest.text.stopwords import ALL_FUNCTION_WORDS, change_words, is_denial, is_portuguese
from palimpsest.text.tokenizer import query_tokens, search_tokens, sentences
from palimpsest.text.word_lists import headed, headings, patterns, word_lists, word_sets

_LISTS = word_lists("palimpsest.text", "relation_updates.txt")
_WORDS = word_sets("palimpsest.text", "relation_updates.txt")
_RE = patterns("palimpsest.text", "relation_updates.txt")

# Words that deny what a text says with all its other words. Scripts without spaces are not covered.
NEGATIONS = _WORDS["negations"]


KIN = _WORDS["kin"]

# Words for relatives, in lower case.
_FAMILY = KIN - _WORDS["birth"] | _WORDS["family"]


# The keys of relations that have one value at a time, for nearly everybody: extraction names relations in English and
# in the present, and so do most agents. A relation that has two after all is listed, and left as it is.
SINGLE_VALUED = _WORDS["single valued"]

# The same, and those of which another one is worth a question, though some have two.
ONE_AT_A_TIME = SINGLE_VALUED | _WORDS["one at a time"] | _WORDS["of events"]

# Those of which the end is the day or the place of an event.
OF_EVENTS = _WORDS["of events"]

# The keys of relations that only one has to somebody or something at a time, such as who leads a team.
ONE_HOLDER = _WORDS["one holder"]

# How the words begin by which relations and texts speak of home, work, and so on.
_AREAS = {area: tuple(words) for area, words in headed(_WORDS, "area ").items()}

_OTHER_AREAS = tuple(_WORDS["other areas"])

# Words that end what was so of somebody in an area, whether they name it or not.
_ENDS_ITS_AREA = headings(_WORDS, "ends area ")

# How many words before "died" say who did.
_NEAR = 2


def negations_of(text: str) -> AbstractSet[str]:
    """Return the words that deny something in a text.

    In a Portuguese one "no" does not: it is "in the". Nor does a part of a name, as in "la carrera Pas a Pas".
    """
    of_names = {name_key(word) for word in _RE["inner word"].findall(text) if word.istitle()}
    return NEGATIONS - of_names - ({"no"} if is_portuguese(text) else set())


def words_in(text: str) -> list[str]:
    """Return the words of a text as `name_key` gives them."""
    return [word for part in text.split() if (word := name_key(part))]


def numbers_in(text: str) -> frozenset[str]:
    """Return the whole numbers of a text, without separators and leading zeros: 1.450 is 1450. A date has three."""
    return frozenset("".join(filter(str.isdecimal, number)).lstrip("0") for number in _RE["number"].findall(text))


def has_name(words: Sequence[str], text: str, name: str) -> bool:
    """Return whether a text has a name: its words side by side, or its characters in a script without spaces.

    What tells two of a name apart, as in "Tom (plumber)", may stand elsewhere in the text.
    """
    name = bare_name(name) or name
    key = name_key(name)
    if not key.isascii() and len(key.split()) == 1 and key in plain_name(text):
        return True
    return f" {' '.join(words_in(name))} " in f" {' '.join(words)} "


def is_for_life(relation: Relation) -> bool:
    """Return whether a relation has no beginning that a text would date, such as "brother of"."""
    return not _WORDS["kin"].isdisjoint(relation_words(relation.name))


def is_tie(relation: Relation) -> bool:
    """Return whether a relation says who somebody is to another, such as "husband of" and "brother of"."""
    return is_for_life(relation) or not _WORDS["ties"].isdisjoint(relation_words(relation.name))


def is_standing(relation: Relation) -> bool:
    """Return whether a relation says where somebody lives, what they are or what they have, for longer than a day."""
    words = relation_words(relation.name)
    return is_tie(relation) or relation.key[1] in _WORDS["standing"] or (words[0] == "is" and words[-1] == "of")


def is_trait(relation: Relation) -> bool:
    """Return whether a relation says what somebody is like for years: an illness, a diet, a language, an origin."""
    return _RE["traits"].search(f"{relation.name.replace('_', ' ')}: {relation.destination}") is not None


def is_timeless(relation: Relation) -> bool:
    """Return whether a relation has none of the times of its text: kinship, a name, a birthday, a phone number."""
    return is_for_life(relation) or not _WORDS["timeless"].isdisjoint(relation_words(relation.name))


def words_that_ask(words: Iterable[str], name: str) -> frozenset[str]:
    """Return those of the words of a question that ask for a relation: "wife" and "married" for "married to"."""
    said, areas = _content_words(name), _areas(_content_words(name))
    asking = (word for word in words if word not in ALL_FUNCTION_WORDS)
    asked = (word for word in asking if _areas([word]) & areas or any(_begins_alike(word, other) for other in said))
    return frozenset(asked)


def finest(relations: Sequence[KnownRelation]) -> list[KnownRelation]:
    """Return relations without those of which another one says more of the same two: "works at", "professor at"."""
    of_two: dict[tuple[str, str], list[KnownRelation]] = {}
    for relation in relations:
        of_two.setdefault((relation.source_id, relation.destination_id), []).append(relation)
    pairs = ((one, of_two[one.source_id, one.destination_id]) for one in relations)
    return [one for one, others in pairs if not any(_is_finer(other, one) for other in others)]


def _is_finer(relation: KnownRelation, other: KnownRelation) -> bool:
    words, coarse = relation_words(relation.relationship), relation_words(other.relationship)
    said = [word for word in words if word not in ALL_FUNCTION_WORDS]
    if words[-1] != coarse[-1] or relation.valid_until != other.valid_until or not said:
        return False
    if not (NEGATIONS | _WORDS["of what"]).isdisjoint(words):  # a former boss is no boss
        return False
    is_role = relation_key(other.relationship) == "works_at" and not said[0].endswith(("s", "ed", "ing"))
    return is_role or _content_words(other.relationship) < set(said)


def since_of(relation: Relation, memory_since: str) -> str:
    """Return since when a relation holds, given since when the memory does that states it; "" if that is not known.

    What ended when the memory began, or before, did not begin with it.
    """
    if relation.since is not None:
        return relation.since
    is_earlier = bool(relation.until) and relation.until <= memory_since[: len(relation.until)]
    return "" if is_timeless(relation) or is_earlier else memory_since


def until_of(relation: Relation, memory_until: str, *, is_over: bool = False) -> str:
    """Return until when a relation holds, given until when the memory does that states it; "" if that is not known.

    What is so for life, or begins only then, does not end with a memory, unless that `is_over`.
    """
    since = relation.since or ""
    is_later = bool(memory_until) and since[: len(memory_until)] > memory_until[: len(since)]
    lasts = (is_timeless(relation) or relation.until == "" or is_later) and not is_over
    return min(filter(None, (relation.until, "" if lasts else memory_until)), default="")


def dated(owner: Memory | Fact) -> tuple[Relation, ...]:
    """Return the relations of a memory or a fact, each with the date that is its own."""
    since = shown_date(owner.valid_from, owner.valid_from_precision) if owner.valid_from else ""
    return tuple(replace(relation, since=since_of(relation, since)) for relation in owner.relations)


def is_beside_deadline(relation: Relation, text: str, date_places: Sequence[int]) -> bool:
    """Return whether a text that dates an offer or a deadline tells a relation beside it, as that of a contact."""
    spans = [span for span in _clause_spans(text) if not span[0] or any(span[0] <= at < span[1] for at in date_places)]
    is_dated = any(has_name(words_in(text[start:end]), text[start:end], relation.source) for start, end in spans)
    return _RE["deadlines"].search(text) is not None and not is_dated and name_key(relation.source) not in SELF_NAMES


def _clause_spans(text: str) -> list[tuple[int, int]]:
    cuts = [0, *(place for match in _RE["clauses"].finditer(text) for place in match.span()), len(text)]
    return [(start, end) for start, end in pairwise(cuts) if text[start:end].strip()]


def outliving(old: Memory, new: Fact, self_keys: AbstractSet[str]) -> tuple[Relation, ...]:
    """Return the relations of a replaced memory that still hold, with their dates, apart from those that are stated.

    `self_keys` are the keys of the names of the user.
    """
    stated = {relation.key for relation in new.relations}
    left = [relation for relation in dated(old) if relation.key not in stated]
    reading = _Reading(old, new, self_keys | SELF_NAMES)
    kept = [relation for relation in left if not reading.ends(relation) and not reading.has_other_numbers(relation)]
    if len(kept) == len(old.relations):  # nothing says what was replaced
        kept = [relation for relation in kept if not reading.is_all_that_was_said(relation)]
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class _Clause:
    """A part of a text: its words, and which of them are a genitive, such as "Petra's"."""

    words: tuple[str, ...]
    genitives: frozenset[str]

    @classmethod
    def of(cls, text: str) -> _Clause:
        genitives = frozenset(name_key(part) for part in text.split() if _RE["possessive"].search(part))
        return cls(tuple(words_in(text)), genitives)

    def place(self, name: str) -> int | None:
        """Return the number of the first word of a name that is not a genitive; None if the clause has none."""
        wanted = words_in(bare_name(name) or name)
        for start in range(len(self.words) - len(wanted) + 1):
            found = self.words[start : start + len(wanted)]
            if list(found) == wanted and found[-1] not in self.genitives:
                return start
        return None


class _Reading:
    """What a new text says of the relations of the one that it replaces."""

    def __init__(self, old: Memory, new: Fact, self_keys: AbstractSet[str]) -> None:
        self._old, self._new, self._self_keys = old, new, self_keys
        text = _with_plain_endings(new.text)
        self._words = words_in(text)
        self._clauses = [_Clause.of(text[start:end]) for start, end in _clause_spans(text)]
        entities = (*new.entities, *old.entities)
        self._negations = negations_of(new.text)
        ending = ending_in(new.text)
        self._ended = frozenset[str]().union(*(ending.ended if ending else ()))
        self._ending = self._ended.union(*(ending.denied if ending else ()))
        self._types: dict[str, EntityType] = {name_key(entity.name): entity.type for entity in entities}

    def ends(self, relation: Relation) -> bool:
        """Return whether the new text ends a relation."""
        if any(self._denies(clause, relation) for clause in self._clauses):
            return True
        if is_for_life(relation):
            return False
        if self._is_of_replaced(relation):
            return True
        is_called_off = bool(self._ended & {*query_tokens(relation.destination)}) and not is_standing(relation)
        if is_called_off and self._has(relation.source):
            return True
        is_replaced = any(self._is_instead(other, relation) for other in self._new.relations)
        if (is_replaced and not self._is_beside(relation)) or any(
            self._ends_in(clause, relation) for clause in self._clauses
        ):
            return True
        # It must say something of somebody, and not only of what is theirs.
        is_self = name_key(relation.source) in self._self_keys
        is_subject = is_self or any(clause.place(relation.source) is not None for clause in self._clauses)
        if not self._has(relation.source) or not (is_subject or self._said_in(self._words, relation)):
            return False
        ended = self._ended_areas(relation) & _areas_of(relation)
        if self._has(relation.destination):
            return bool(ended - {"home"})
        return bool(ended) or self._names_another(relation) or self._says_another(relation)

    def _ended_areas(self, relation: Relation) -> set[str]:
        """Return the areas that the new text ends, but for what only somebody else did: "after Sam retired"."""
        people = {key for key, of in self._types.items() if of == "person"} - self._self_keys - {relation.key[2]}
        ended = set[str]()
        for clause in self._clauses:
            others = [place for name in people if (place := clause.place(name)) is not None]
            begin = min(others, default=len(clause.words)) if clause.place(relation.source) is None else None
            ended |= {_ENDS_ITS_AREA[word] for word in clause.words[:begin] if word in _ENDS_ITS_AREA}
        return ended

    def has_other_numbers(self, relation: Relation) -> bool:
        """Return whether a relation leads to a number, a time or a date, and the new text has others and not this."""
        (own, at), (said, told) = (self._numbers_and_times(text) for text in (relation.destination, self._new.text))
        is_other = bool(own and said - numbers_in(self._old.text)) and own.isdisjoint(said)
        # A day off on Wednesdays is no other day than one of the calendar from which a wage is paid.
        is_put_off = any(of_sort.isdisjoint(told[sort]) for sort, of_sort in at.items() if of_sort and told.get(sort))
        # "Diabetes type 1" is a name.
        is_told = (is_other and not is_trait(relation)) or (is_put_off and not is_timeless(relation))
        return is_told and not self._is_beside(relation)

    def _numbers_and_times(self, text: str) -> tuple[AbstractSet[str], Mapping[object, AbstractSet[str]]]:
        """Return the numbers of a text that are no part of a date or a time of day, and its dates and times by sort."""
        spans, clocks = dates_in(text, self._old.stated_at, guesses=True), vocabulary.times_in(text)
        places = [(span.position, span.position + len(span.phrase)) for span in spans]
        places += [(clock.start, clock.end) for clock in clocks]
        left = "".join(" " if any(a <= at < b for a, b in places) else sign for at, sign in enumerate(text))
        times: dict[object, set[str]] = {"hour": set(numbers_in(" ".join(clock.written for clock in clocks)))}
        for span in spans:
            sort = span.unit, any(map(str.isdigit, span.phrase))
            times.setdefault(sort, set()).add(span.start.isoformat())
        return numbers_in(left), times

    def _is_beside(self, relation: Relation) -> bool:
        """Return whether the new text names another end of a relation that it ends: "takes Eliquis, not Marcumar"."""
        stated = {other.key for other in self._new.relations}
        return not self._has(relation.destination) and any(
            self._has(other.destination)
            for other in self._old.relations
            if other.key[:2] == relation.key[:2] and other.key not in {*stated, relation.key}
        )

    def is_all_that_was_said(self, relation: Relation) -> bool:
        """Return whether the old text says nothing but a relation, and what is so for life."""
        if is_for_life(relation) or (self._has(relation.source) and self._has(relation.destination)):
            return False
        is_alone = all(is_tie(other) is (other.key != relation.key) for other in self._old.relations)
        words = query_tokens(self._old.text)
        if is_alone and any(_begins_alike(word, ended) for ended in self._ending for word in words):
            return True
        others = [other for other in self._old.relations if is_for_life(other) or other.key == relation.key]
        said = [part for other in others for part in (other.source, other.name.replace("_", " "), other.destination)]
        known = {*words_in(" ".join((*said, *self._self_keys)))}
        left = [word for word in words_in(self._old.text) if word not in known and word not in ALL_FUNCTION_WORDS]
        return not any(word.isalpha() and word not in _WORDS["kin"] for word in left)

    def _has(self, name: str) -> bool:
        """Return whether the new text names somebody or something; of the user, whether it is about the user."""
        if name_key(name) in self._self_keys:
            named = {name_key(entity.name) for entity in self._new.entities} | set(self._words)
            return not named.isdisjoint(self._self_keys)
        return has_name(self._words, self._new.text, name)

    def _denies(self, clause: _Clause, relation: Relation) -> bool:
        place = next((number for number, word in enumerate(clause.words) if word in self._negations), None)
        if place is None or not (self._has(relation.source) or self._has(relation.destination)):
            return False
        is_named = clause.place(relation.destination) is not None and not is_tie(relation)
        return is_named or bool(self._said_in(clause.words, relation, but=clause.genitives))

    def _said_in(self, words: Sequence[str], relation: Relation, but: AbstractSet[str] = frozenset()) -> list[int]:
        """Return the numbers of the words that say a relation, such as "dog" of "has dog"."""
        said = _content_words(relation.name)
        places = (place for place, word in enumerate(words) if word not in but)
        return [place for place in places if any(_begins_alike(words[place], other) for other in said)]

    def _is_instead(self, other: Relation, relation: Relation) -> bool:
        """Return whether a relation that the new text states takes the place of another one."""
        if not self._is_same(other.source, relation.source):
            return other.key[1:] == relation.key[1:]
        words, others = (_content_words(each.name) for each in (relation, other))
        alike = other.key[1] == relation.key[1] or any(_begins_alike(word, new) for word in words for new in others)
        restated = [item.key for item in self._old.relations if item.key[::2] == other.key[::2]]  # of the same two
        areas = _areas_of(other), _areas_of(relation)
        # Of two medicines it is the one of which another dose is told; "runs on" is no "runs at".
        rivals = [item for item in self._old.relations if item.key[:2] == other.key[:2]]
        named = [item for item in rivals if _first_word(item) == _first_word(other) != ""]
        if rivals and not restated:
            return relation.key in {item.key for item in named or rivals}
        if restated:
            return (alike or bool(areas[0] & areas[1])) and relation.key in restated
        kinds = {self._types.get(name_key(item.destination), "other") for item in (other, relation)}
        is_same_kind = len(kinds) == 1 and "other" not in kinds and (areas[0] == areas[1] or not all(areas))
        return alike or is_same_kind or bool(areas[0] & areas[1] and len(kinds) == 1)

    def _is_of_replaced(self, relation: Relation) -> bool:
        """Return whether the new text tells what is instead of an end of a relation, and names the other end."""
        told = query_tokens(self._new.text)
        gone = [query_tokens("".join(filter(None, each))) for each in _RE["instead of"].findall(self._new.text)]
        ends = relation.key[::2], relation.key[::-2]
        left = [end for end, rest in ends if rest in self._self_keys or _has_all(told, rest)]
        return any(_has_all(words, end) for words in gone for end in left)

    def _is_same(self, name: str, other: str) -> bool:
        keys = name_key(name), name_key(other)
        return keys[0] == keys[1] or all(key in self._self_keys for key in keys)

    def _ends_in(self, clause: _Clause, relation: Relation) -> bool:
        """Return whether a clause says that what a relation leads to, or who has it, is no more, or was left."""
        ends = [end for end in (relation.destination, relation.source) if name_key(end) not in self._self_keys]
        places = [place for end in ends if (place := clause.place(end)) is not None]
        is_about = all(self._has(end) for end in (relation.source, relation.destination))
        at = clause.place(relation.destination) if is_about else None
        others = {name_key(entity.name) for entity in self._new.entities} - self._self_keys
        is_of_source = (self._has(relation.source) or not others) and not self._is_beside(relation)
        said = self._said_in(clause.words, relation, but=clause.genitives) if is_of_source else []
        objects = [*([] if at is None else [at]), *said]
        for number, word in enumerate(clause.words):
            if word in _WORDS["of whom"] and any(number - _NEAR <= place < number for place in (*places, *objects)):
                return True
            if word in _WORDS["of what"] and any(place > number for place in objects):
                return True
            if word in _WORDS["anywhere"] and objects:
                return True
        is_from = bool(at) and clause.words[at - 1] in _WORDS["from"]
        return is_from and not _ENDS_ITS_AREA.keys().isdisjoint(clause.words)

    def _names_another(self, relation: Relation) -> bool:
        """Return whether the new text names another place where the relation has one, and so on."""
        kind = self._types.get(name_key(relation.destination), "other")
        spoken, own = _areas(self._words) | self._ended_areas(relation), _areas_of(relation)
        if kind == "other" or (spoken and not spoken & own and (own or kind == "person")):
            return False
        before = {name_key(entity.name) for entity in self._old.entities}
        new = (entity for entity in self._new.entities if name_key(entity.name) not in before | self._self_keys)
        return any(entity.type == kind and not self._is_same(entity.name, relation.source) for entity in new)

    def _says_another(self, relation: Relation) -> bool:
        """Return whether the new text goes on otherwise after the same words: "works as", "is a"."""
        text = f" {' '.join(self._words)} "
        if len(words := relation.name.replace("_", " ").casefold().split()) > 1 and f" {' '.join(words)} " in text:
            return True
        old = _Clause(tuple(words_in(self._old.text)), frozenset())
        before = old.words[: old.place(relation.destination) or 0]
        said = list(takewhile((_WORDS["copulas"] | _WORDS["articles"]).__contains__, reversed(before)))
        return not _WORDS["copulas"].isdisjoint(said) and f" {' '.join(reversed(said))} " in text


def _first_word(relation: Relation) -> str:
    """Return the first word of what a relation leads to that is no number, such as the name of a medicine."""
    return next((word for word in words_in(relation.destination) if word.isalpha()), "")


def _has_all(words: Sequence[str], name: str) -> bool:
    """Return whether all tokens of a name are among words, in whatever form."""
    tokens = query_tokens(name)
    return bool(tokens) and len(_alike(tokens, words)) == len({*tokens})


def _content_words(name: str) -> set[str]:
    return {word for word in relation_words(name) if word not in ALL_FUNCTION_WORDS}


def _areas_of(relation: Relation) -> set[str]:
    return _areas(relation_words(relation.name))


def _begins_alike(word: str, other: str) -> bool:
    """Return whether two words are forms of one, such as "works" and "working"."""
    length = max(4, min(len(word), len(other)) - 2)
    return word[:length] == other[:length]


def _areas(words: Iterable[str]) -> set[str]:
    spoken = [word for word in words if not word.startswith(_OTHER_AREAS)]
    return {area for area, stems in _AREAS.items() if any(word.startswith(stems) for word in spoken)}


def is_asked_for(question: str, relation_name: str) -> bool:
    """Return whether a question is about what a relation is about: family, home, work, and so on."""
    return bool(_matters(words_in(question)) & _matters(relation_words(relation_name)))


def _matters(words: Sequence[str]) -> set[str]:
    areas = _areas(words)
    return areas | ({"family"} if "marriage" in areas or not _FAMILY.isdisjoint(words) else set())


# Tell whether a newer text says that what an older one says has ended: "The Cremona trip is cancelled" ends "Flies to
# Cremona on 4 December". It knows what a comparison of meanings cannot see, because the two texts are about one thing.

# How many texts are kept with what they end, and how much of each is read: one fact. A brief compares some hundred.
KEPT, MAX_CHARS = 2_048, 500


_VERB_ENDINGS = ("s", "ed")

# What somebody who ends a plan may call it, where the plan itself says only "flies to Cremona".
_OF_PLANS = frozenset(query_tokens(_LISTS["of plans"]))

# How many words a note without a subject has at most: "Moved to Salzburg in May".
_SHORT = 8

# How many words behind a verb or a negation say what it ends: "not keen on hazelnuts".
_OBJECT_WORDS = 3


@dataclass(frozen=True, slots=True)
class Ending:
    """What a text ends: the search tokens of what it denies, of what it calls ended and of who died, and areas."""

    denied: tuple[frozenset[str], ...]
    ended: tuple[frozenset[str], ...]
    areas: frozenset[str]
    died: frozenset[str]


@cache
def _exclusions() -> tuple[tuple[frozenset[str], frozenset[str], frozenset[str]], ...]:
    """Return words of which a text has one, those of which another cannot have one, and what both must have."""
    found: list[tuple[frozenset[str], frozenset[str], frozenset[str]]] = []
    for line in _LISTS["excludes"].splitlines():
        words, _, context = line.rstrip(")").partition("(")
        first, second, both = (frozenset(search_tokens(part)) for part in (*words.split("|"), context))
        found += [(first, second, both), (second, first, both)]
    return tuple(found)


def _with_plain_endings(text: str) -> str:
    """Return a text with one word for a phrase that ends something: "quit" for "gave up"."""
    return _RE["no longer"].sub(lambda match: match.lastgroup or "", text)


@lru_cache(maxsize=KEPT)
def ending_in(text: str) -> Ending | None:
    """Return what a text says has ended, or None if it says so of nothing."""
    denied: list[frozenset[str]] = []
    ended: list[frozenset[str]] = []
    died: set[str] = set()
    plain = _with_plain_endings(text[:MAX_CHARS])
    areas = {_ENDS_ITS_AREA[word] for word in words_in(_RE["full name"].sub(" ", plain)) if word in _ENDS_ITS_AREA}
    negations = negations_of(plain)
    for start, end in _clause_spans(plain):
        written = plain[start:end].split()
        words = [name_key(word) for word in written]
        for place, word in enumerate(words):
            if word in negations:
                tokens = frozenset(query_tokens(" ".join(words[place + 1 : place + 1 + _OBJECT_WORDS])))
                denied += [] if all(map(str.isdigit, tokens)) else [tokens]
            is_passive = not _WORDS["be"].isdisjoint(words[max(place - _OBJECT_WORDS, 0) : place])
            if word in _WORDS["is ended"] and (is_passive or word not in _WORDS["ends it"]):
                subject = [
                    said
                    for said in words[:place]
                    if said in ALL_FUNCTION_WORDS or not (said.isdigit() or said in _times())
                ]
                ended.append(frozenset(query_tokens(" ".join(subject[-2 * _OBJECT_WORDS :]))))
            elif word in _WORDS["ends it"]:
                ended.append(_object_of(word, written[place + 1 :]))
            if word in _WORDS["died"] and place:
                died.update(query_tokens(" ".join(words[max(place - _OBJECT_WORDS, 0) : place])))
    found = Ending(tuple(filter(None, denied)), tuple(filter(None, ended)), frozenset(areas), frozenset(died))
    return found if found.denied or found.ended or areas or died else None


def calls_off(text: str) -> bool:
    """Return whether a text denies something or calls it ended, as one that calls off a plan does."""
    found = ending_in(text)
    return any(map(text.__contains__, _WORDS["off signs"])) or bool(found and (found.ended or found.denied))


def is_lasting(memory: Memory) -> bool:
    """Return whether a memory tells what goes on when its day is over: a job that begins, a home, a lease."""
    return _RE["begins"].search(memory.text) is not None or any(map(is_standing, memory.relations))


def is_unanswered(text: str) -> bool:
    """Return whether a text says that an answer or a decision is still to come."""
    return _RE["unanswered"].search(text) is not None


def ends_something(text: str, relations: Iterable[Relation]) -> bool:
    """Return whether a text calls something off or changes it, or one of its relations says that it has ended."""
    if _RE["goes over"].search(text) or not _WORDS["is ended"].isdisjoint(words_in(_with_plain_endings(text))):
        return True
    named = [(relation.source, f"{relation.name} {relation.destination}") for relation in relations]
    told = " ".join(said for _, said in named)
    is_ended = not _WORDS["ends in relations"].isdisjoint(words_in(told))
    is_ended = is_ended or any(map(told.__contains__, _WORDS["ends in relations signs"]))
    return is_ended or any(calls_off(" ".join(each)) for each in named)


def _object_of(verb: str, behind: Sequence[str]) -> frozenset[str]:
    """Return the tokens of what a verb ends: the words behind it up to a preposition, or a place behind one."""
    words = list(behind[: _OBJECT_WORDS + 1])
    if words and name_key(words[0]) in _WORDS["prepositions"]:
        words = words[1:]
    words = list(takewhile(lambda word: name_key(word) not in _WORDS["prepositions"], words))
    # "left a gap" and "lost an hour" end nothing; "left Acme" does.
    if verb in _WORDS["ends named"] and not any(word[:1].isupper() for word in words):
        return frozenset()
    return frozenset(query_tokens(" ".join(words)))


@lru_cache(maxsize=KEPT)
def _names(text: str) -> frozenset[str]:
    """Return the keys of the people that a text names, with its first word if a verb follows: "Jonas likes chess"."""
    text, subject = text[:MAX_CHARS], _subject(text)
    names = {name_key(name.name) for name in find_names(text, {}) if name.type == "person"}
    return frozenset(names | {subject} if subject else names)


@lru_cache(maxsize=KEPT)
def _subject(text: str) -> str:
    """Return the key of the name with which a text begins, as in "Jonas likes chess" and "Jonas's dog"; "" if none."""
    if (topic := _RE["topic"].match(text)) is not None:
        return name_key(topic[1])
    first, second = (*text[:MAX_CHARS].split(maxsplit=2), "", "")[:2]
    is_owner = first.endswith(("'s", "’s"))  # noqa: RUF001 - a typographic apostrophe
    first = first[:-2] if is_owner else first
    is_name = first[:1].isupper() or (is_owner and not first.isalpha())  # or of a project: "web-ui's tests"
    is_verb = second in _WORDS["verbs"] | NEGATIONS or second.endswith(_VERB_ENDINGS)
    key, is_other = name_key(first), name_key(second) in _WORDS["prepositions"]
    is_other = is_other or key in _WORDS["self"] | ALL_FUNCTION_WORDS | _times()
    return key if is_name and (is_owner or is_verb) and not is_other else ""


@lru_cache(maxsize=KEPT)
def _named_subject(text: str) -> str:
    """Return the same if it is a name for certain, else a person with whose name a text begins.

    "Card" of "Card payments suit him" is none.
    """
    subject, names = _subject(text), find_names(text[:MAX_CHARS], {})
    if text.partition(" ")[0].casefold() != subject != "":  # "Ana's"
        return subject
    keys = [name_key(each.name) for each in names if each.type == "person" or name_key(each.name) == subject]
    begun = (key for key in keys if key == subject or f"{plain_name(text)} ".startswith((f"{key} ", f"{key},")))
    return next(begun, "")


@lru_cache(maxsize=KEPT)
def _tokens(text: str) -> frozenset[str]:
    return frozenset(query_tokens(text[:MAX_CHARS]))


@lru_cache(maxsize=KEPT)
def without_times(text: str) -> frozenset[str]:
    """Return the tokens of a text without its days and times, and without words of how often."""
    words = _RE["clock"].sub(" ", text[:MAX_CHARS].casefold()).split()
    left = (word for word in words if _times().isdisjoint((name_key(word), name_key(word).removesuffix("s"))))
    return frozenset(query_tokens(" ".join(left)))


@cache
def _times() -> frozenset[str]:
    return _words_of(_TIME_LETTERS) | _WORDS["recurring"]


@cache
def _words_of(kinds: frozenset[str]) -> frozenset[str]:
    """Return the words of all languages that are a part of a date of these kinds, by their letters."""
    known = vocabulary.vocabulary().words
    return frozenset(word for word, entries in known.items() if any(letters & kinds for _, letters in entries))


def _weekdays(text: str) -> frozenset[str]:
    return _words_of(_WEEKDAYS).intersection(word.removesuffix("s") for word in words_in(text))


_WEEKDAYS = frozenset("WK")
_TIME_LETTERS = frozenset("MbWKkNOU")


def differ_in_number(relation: Relation, other: Relation) -> bool:
    """Return whether two relations of the same source lead to values of one form: 8 € and 9 €, Monday and Tuesday."""
    is_other = relation.key[:2] == other.key[:2] and relation.key != other.key
    return is_other and _form_of(relation.destination) == _form_of(other.destination)


def _form_of(value: str) -> set[str]:
    """Return the tokens of a value without its numbers, days and times."""
    for span in dates_in(value, _ANY_TIME, guesses=True):
        value = value.replace(span.phrase, " ")
    return {word for word in without_times(value) - ALL_FUNCTION_WORDS if not any(map(str.isdigit, word))}


_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def is_at_another_time(newer: Memory, older: Memory) -> bool:
    """Return whether two memories date the same relation differently: it was put off, or the date corrected."""
    before = {item.key: (item.since or "", item.until or older.until) for item in dated(older)}
    now = [(item.key, item.since or "", item.until or newer.until) for item in dated(newer) if item.key in before]
    pairs = [(key, *zip(dates, before[key], strict=True)) for key, *dates in now]
    # Somebody may visit a town twice, but not at the same time.
    pairs = [one for one in pairs if not is_several(one[0][1]) or max(one[1]) <= min(filter(None, one[2]), default="9")]
    times = [(new, old) for _, *both in pairs for new, old in both if new and old]
    is_put_off = any(not new.startswith(old) and not old.startswith(new) for new, old in times)
    return is_put_off and not says_besides(newer.text)


@cache
def _number_words() -> dict[str, str]:
    words = [word for each in vocabulary.vocabulary().languages.values() for word in each.words.items()]
    found = {word: str(value) for word, of in words for letter, value in of if letter == "N"}
    return {word: value for word, value in found.items() if value == "1" or word not in ALL_FUNCTION_WORDS}


@lru_cache(maxsize=KEPT)
def _with_currencies(text: str) -> str:
    """Return a text with one word for each currency, behind its number, and numbers without spaces."""
    plain = _RE["currencies"].sub(lambda told: f" {told.lastgroup} ", _RE["spaced thousands"].sub("", text[:MAX_CHARS]))
    return _RE["currency before"].sub(r"\2 \1", plain)


@lru_cache(maxsize=KEPT)
def _amounts(text: str) -> Mapping[str, AbstractSet[str]]:
    """Return the amounts of a text, such as 80 and percent, as numbers by the tokens of their units. A date is none."""
    found: dict[str, set[str]] = {}
    plain = _RE["from one to another"].sub(r"\1 \3 \2 \3", text)
    for word, unit in pairwise(plain.split()):
        key, (number, *more) = name_key(unit), [*numbers_in(word), _number_words().get(name_key(word), "")]
        is_year = word[:2] in ("19", "20") and word[3:].isdigit()
        is_date = is_year or word.endswith(".") or not _times().isdisjoint((key, key[:3]))
        if number and not any(more) and key[:1].isalpha() and key not in ALL_FUNCTION_WORDS and not is_date:
            found |= {token: {number, *found.get(token, ())} for token in query_tokens(unit)}
    return found


def says_another_amount(newer: str, older: str, *, is_told: bool = False) -> bool:
    """Return whether a newer text tells, as a change, another number of something that an older one counts.

    With `is_told`, it need not tell it as a change.
    """
    if not (is_told or change_words(newer)) and _WORDS["left over"].isdisjoint(words_in(newer)):
        return False
    newer, older = _with_currencies(newer), _with_currencies(older)
    people, older_people = people_in(newer), people_in(older)
    rooms = product(*(_RE["numbered"].findall(text.casefold()) for text in (newer, older)))
    if people and people <= older_people and any(room[0] == other[0] and room != other for room, other in rooms):
        return True
    new, old = _amounts(newer), _amounts(older)
    # Of two new numbers one is the old one: "from 340 to 410 pounds".
    units = {of for of in new.keys() & old.keys() if new[of] - old[of] and (len(new[of]) == 1 or new[of] & old[of])}
    # Two prices in euros, of one company, of one day or of two people, are not those of one thing.
    texts = (without_times(_RE["full name"].sub(" ", text)) for text in (newer, older))
    common = frozenset[str].intersection(*texts) - units
    is_of_others = bool(people and older_people) and not _alike(people, older_people)
    subject = {*query_tokens(_subject(newer))}
    beside = common - (people - subject)
    same = (subject - _named(newer)).intersection(query_tokens(_subject(older)))
    is_of_one = bool(same or _common_words(newer, older) - _named(older) or (people & older_people and beside - people))
    is_of_others = is_of_others or all(map(str.isdigit, beside))
    return bool(units) and is_of_one and not (is_of_others or is_about_another(newer, older))


def _alike(words: Iterable[str], others: Iterable[str]) -> set[str]:
    """Return those words that are forms of one of the others."""
    return {word for word in words if any(_begins_alike(word, other) for other in others)}


@lru_cache(maxsize=KEPT)
def may_have_several(text: str) -> bool:
    """Return whether a text tells something of which somebody may have several at a time, as allergies."""
    return not _WORDS["several"].isdisjoint(words_in(text[:MAX_CHARS]))


@lru_cache(maxsize=KEPT)
def is_several(key: str, *, is_holder: bool = False) -> bool:
    """Return whether one may have several of the relation with a key at a time, as pets, languages and siblings.

    With `is_holder`: whether something may have several that it is so of, as a town those who live there.
    """
    single, other = (ONE_HOLDER, ONE_AT_A_TIME) if is_holder else (ONE_AT_A_TIME, ONE_HOLDER)
    words = (_WORDS["several"] | _WORDS["several relations"] | KIN).intersection(key.split("_"))
    return key not in single and (key in other or (bool(words) and (is_holder or not _is_attribute(key))))


def _is_attribute(key: str) -> bool:
    """Return whether a relation gives something a colour, a price or the like, of which it has one at a time."""
    return key.rpartition("_")[2] in _WORDS["attributes"]


# What adds to what was said before.
BESIDES = _RE["besides"]


def says_besides(text: str) -> bool:
    """Return whether a text tells of something beside what is known, as "also" does, and ends nothing."""
    return BESIDES.search(_RE["reasons"].split(text)[0]) is not None and not is_denial(text) and ending_in(text) is None


def is_of_one(key: str, text: str, *, has_source: bool) -> bool:
    """Return whether a relation has one end at a time, or one source: by its key, or if a text tells it as a change."""
    if key in (ONE_AT_A_TIME if has_source else ONE_HOLDER) or (has_source and _is_attribute(key)):
        return True
    others = ONE_HOLDER if has_source else _WORDS["ties"] | _WORDS["several to one"]
    is_role = has_source or _RE["role"].fullmatch(key) is not None
    is_one = is_role and not is_several(key) and others.isdisjoint((key, *key.split("_")))
    is_told = change_words(text) > 0 or not (has_source or _WORDS["roles of one"].isdisjoint(key.split("_")))
    return is_one and is_told and not says_besides(text)


def may_end(text: str) -> bool:
    """Return whether a text may end what another one says, so that it is worth comparing."""
    return ending_in(text) is not None or bool(_told_changes(text)) or not _tokens(text).isdisjoint(_excluding())


@cache
def _excluding() -> frozenset[str]:
    return frozenset[str]().union(*(words for words, _, _ in _exclusions()))


@lru_cache(maxsize=KEPT)
def people_in(text: str) -> frozenset[str]:
    """Return the tokens of the names of the people that a text names. It is asked for each pair of texts."""
    return frozenset(query_tokens(" ".join(_names(text))))


@lru_cache(maxsize=KEPT)
def _areas_in(text: str) -> frozenset[str]:
    return frozenset(_areas(words_in(_with_plain_endings(text))))


def says_ended(newer: str, older: str) -> bool:
    """Return whether a newer text says that what an older one says has ended, or says what excludes it."""
    ending, here, before = ending_in(newer), _tokens(newer), _tokens(older)
    if ending is not None:
        numbers = [{word for word in _tokens(_RE["date"].sub(" ", text)) if word.isdigit()} for text in (newer, older)]
        is_another = all(numbers) and numbers[0].isdisjoint(numbers[1])  # version 5 has no reset hole, version 3 has
        if not is_another and any(
            tokens <= before and (_beside(here, tokens) & before or here <= tokens | _WORDS["said with"])
            for tokens in ending.denied
        ):
            return True
        things = (tokens - people_in(newer) for tokens in ending.ended)
        if any(tokens & before and tokens <= before | _OF_PLANS for tokens in things):
            return True
        if ending.areas and ending.areas & _areas_in(older) and _is_about_same(newer, older):
            return True
        named = (word for word in older[:MAX_CHARS].split() if word[:1].isupper())
        if (died := ending.died & before) and not died.isdisjoint(query_tokens(" ".join(named))):
            return True
    return any(is_of(part, older) for is_of, part in _told_changes(newer)) or _excludes(newer, older)


def _takes_over(newer: str, older: str) -> bool:
    """Return whether a newer text names one more in the place or role in which an older one names somebody."""
    here, shared = people_in(newer), _common_names(newer, older)
    instead = [words - ALL_FUNCTION_WORDS for words in _told_instead(newer)]
    is_of_another = any(instead) and not any(_alike(words, _tokens(older)) for words in instead)
    if is_of_another or not (here and (shared or people_in(older))):
        return False
    # Carmen Gil is not Carmen Llopis.
    pairs = product(_whole_names(newer), _whole_names(older))
    known = {word for one, other in pairs if len(_alike(one, other)) >= min(len(one), len(other)) for word in one}
    common = without_times(newer) & without_times(older)
    is_of_both = bool(common - here or _common_words(newer, older)) or len(shared) > 1
    return is_of_both and bool(known | shared and here - known - shared)


def _common_names(newer: str, older: str) -> set[str]:
    """Return the names that two texts in Cyrillic have in common, where only names have a capital inside a sentence.

    Two of one first name have none.
    """
    here, before = (map(query_tokens, _RE["cyrillic name"].findall(text[:MAX_CHARS])) for text in (newer, older))
    pairs = [(one, _alike(one, other), other) for one, other in product(here, before)]
    pairs = [each for each in pairs if len(each[1]) >= min(map(len, each[::2])) or not _alike(each[0][:1], each[2][:1])]
    return {word for _, common, _ in pairs for word in common}


def share_a_name(newer: str, older: str) -> bool:
    """Return whether two texts have a name in common, in whatever form."""
    return bool(_alike(_named(newer), _named(older)) or _common_names(newer, older))


def _told_instead(newer: str) -> list[set[str]]:
    """Return the tokens of each thing that a text says another has replaced.

    "Ana Ruiz instead of Leo Ruiz" leaves only "leo": Ruiz is in both names.
    """
    newer = newer[:MAX_CHARS]
    told = ((each[0], "".join(filter(None, each.groups()))) for each in _RE["instead of"].finditer(newer))
    return [{*query_tokens(words)}.difference(query_tokens(newer.replace(whole, " "))) for whole, words in told]


def _whole_names(text: str) -> list[list[str]]:
    """Return the tokens of each person that a text names, but for one that begins the name of another."""
    names = _names(text)
    return [query_tokens(name) for name in names if not any(each.startswith(f"{name} ") for each in names)]


def _succeeds(newer: str, older: str) -> bool:
    """Return whether a newer text names somebody in a place or role of which an older one names another holder."""
    return bool(people_in(newer) and people_in(older) and _named(newer) & _named(older) and _common_words(newer, older))


def _gives_up(newer: str, older: str) -> bool:
    """Return whether two texts are about the same of the same person, firm or place: who withdrew had agreed to it."""
    return bool(not _are_others(newer, older) and _alike(_named(newer), _named(older)) and _common_words(newer, older))


def _are_others(newer: str, older: str) -> bool:
    """Return whether each of two texts names somebody with a name of their own."""
    here, before = people_in(newer), people_in(older)
    is_own = here - _alike(here, before) and before - _alike(before, here)
    return bool(is_own) and not _common_names(newer, older)


def _shifts(newer: str, older: str) -> bool:
    """Return whether an older text has a time, of what a newer one moves by some hours or days."""
    is_of_day = bool(_weekdays(newer) & _weekdays(older) and _named(newer) & _named(older))
    return any(map(str.isdigit, older)) and (is_of_day or bool(_common_words(newer, older)))


def parts_of(text: str) -> list[str]:
    """Return the sentences of a text, and what semicolons divide."""
    return [part for sentence in sentences(text) for part in re.split("[;\uff1b]", sentence)]


# A word has more letters than this. In a script without spaces, more characters than this are one.
_LETTERS = 2

# How many words a change takes: the old value, and the verb.
_CHANGED = 2


def leaves_out(newer: str, older: str) -> bool:
    """Return whether a newer text lacks more of an older one than what has changed.

    It lacks several words, an illness, what an amount is of, a time of day, or its weekday.
    """
    missing = _form_of(older) - _alike(_form_of(older), query_tokens(newer))
    signs = [word for word in missing if len(word) == 1 and not word.isascii()]
    words = [word for word in missing if len(word) > _LETTERS]
    clocks, own_clocks = (vocabulary.times_in(text) for text in (newer, older))
    is_day_missing = bool(_weekdays(older)) and not _weekdays(newer)
    units = _amounts(_with_currencies(older)).keys() - _amounts(_with_currencies(newer)).keys()
    is_ill = _RE["illness"].search(" ".join(words)) is not None
    is_much = is_ill or len(words) > _CHANGED or len(signs) > _LETTERS or len(own_clocks) > len(clocks)
    return is_much or is_day_missing or bool(words and units)


# Whoever takes over may be named in another sentence; what is given up or shifted is named in the same.
_OF_PARTS = ("gives up", "shifts")
_CHANGES = (("takes over", _takes_over), ("succeeds", _succeeds), ("gives up", _gives_up), ("shifts", _shifts))


@lru_cache(maxsize=KEPT)
def _told_changes(text: str) -> tuple[tuple[Callable[[str, str], bool], str], ...]:
    """Return the parts of a text that tell a change, each with the test whether another text tells what changed."""
    parts = {how: parts_of(text) if how in _OF_PARTS else [text] for how, _ in _CHANGES}
    return tuple((is_of, part) for how, is_of in _CHANGES for part in parts[how] if _RE[how].search(part))


def _common_words(newer: str, older: str) -> set[str]:
    """Return the words that two texts have in common, in whatever form, apart from times, names and units."""
    others = _named(newer) | people_in(newer) | _amounts(newer).keys()
    words = _alike(without_times(newer), without_times(older)) - others
    return {word for word in words if word.isalpha() and not (len(word) == 1 and word.isascii())}


@lru_cache(maxsize=KEPT)
def _named(text: str) -> frozenset[str]:
    """Return the tokens of all names in a text."""
    return frozenset(query_tokens(" ".join(each.name for each in find_names(text[:MAX_CHARS], {}))))


# What a newer text may tell that settles what an older one leaves open.
_SETTLED = (("mended", "broken"), ("undone", "mended"), ("paid", "owed"), ("answered", "asked"))


def settles(newer: str, older: str) -> bool:
    """Return whether a newer text settles what an older one leaves open, or denies a part of it.

    A debt is paid, a fault mended, a request answered, a repair undone; something is at nine instead of at eight, or no
    longer on Fridays.
    """
    found = ((_RE[done].search(newer), _RE[still_open].search(older)) for done, still_open in _SETTLED)
    if any(done and before and _is_one_matter(newer, older, f"{done[0]} {before[0]}") for done, before in found):
        return True
    no_more = (newer[start:end] for start, end in _clause_spans(newer) if _RE["no more"].search(newer[start:end]))
    denied = _told_instead(newer) + [{*query_tokens(clause)} - without_times(clause) for clause in no_more]
    said = ({word for word in _alike(words, _tokens(older)) if len(word) > 1} - ALL_FUNCTION_WORDS for words in denied)
    return any(words and _is_one_matter(newer, older, " ".join(words), least=1) for words in said)


def denies_else(newer: Memory, older: Memory) -> bool:
    """Return whether a newer memory denies something that an older one does not tell, and leaves what that one tells.

    It names that, or that is what somebody may have several of: allergies, and what else is denied.
    """
    ends, before = (query_tokens(" ".join(one.destination for one in each.relations)) for each in (newer, older))
    said, known = ([{*relation_words(one.name)} for one in each.relations] for each in (newer, older))
    is_named = bool(_alike(before, _tokens(newer.text))) and not any(NEGATIONS & words for words in known)
    several = [bool(NEGATIONS & {*relation_words(one.name)}) or is_several(one.key[1]) for one in older.relations]
    is_else = bool(ends) and not _alike(ends, _tokens(older.text)) and (is_named or (any(several) and all(several)))
    return is_else and all(NEGATIONS & words for words in said)


def is_of_another(newer: Memory, older: Memory) -> bool:
    """Return whether two memories say the same about two things with names of their own: two vats, two importers."""
    pairs = [(one, other) for one, other in product(newer.relations, older.relations) if one.key[1] == other.key[1]]

    def own(relation: Relation, text: str) -> set[str]:
        proper = (word for word in relation.source.split() if word[:1].isupper() or any(map(str.isdigit, word)))
        return {*map(name_key, proper), *SELF_NAMES & {name_key(relation.source)}}.difference(words_in(text))

    apart = (not {*one.key[::2]} & {*two.key} and own(one, older.text) and own(two, newer.text) for one, two in pairs)
    return bool(pairs) and all(apart)


def puts_off(newer: str, older: str) -> bool:
    """Return whether a newer text moves something that an older one tells to another time."""
    return any(_is_one_matter(newer, older, told[0]) for told in _RE["put off"].finditer(newer))


def _is_one_matter(newer: str, older: str, told: str, least: int = 2) -> bool:
    """Return whether two texts share a code, or `least` of a name and words, but for those that are `told`."""
    codes, before = (set(_RE["code"].findall(text[:MAX_CHARS].casefold())) for text in (newer, older))
    lettered, other = ({code for code in of if code[0].isalpha()} for of in (codes, before))
    are_others = _are_others(newer, older) and people_in(older).isdisjoint(query_tokens(told))  # but "not Mr Tanaka"
    if are_others or (lettered and other and lettered.isdisjoint(other)):
        return False
    days = " ".join(span.phrase for span in dates_in(older[:MAX_CHARS], _ANY_TIME))
    but = {*query_tokens(f"{told} {days}"), *TITLES}
    words = _common_words(newer, older) - _alike(_common_words(newer, older), but)
    return bool(codes & before) or len(words) + bool(_alike(_named(newer), _named(older)) - but) >= least


def takes_over_from(text: str, name: str) -> bool:
    """Return whether a text says that somebody takes the place of another, or fails, and names the one of that name."""
    words = words_in(text)
    is_named = has_name(words, text, name) or not {*words_in(name)}.isdisjoint({*words} - ALL_FUNCTION_WORDS)
    return is_named and (_RE["takes over"].search(text) or _RE["is out"].search(text)) is not None


def stands_in(newer: str, older: str) -> bool:
    """Return whether a newer text tells that somebody fails, and who does it in their place."""
    out = _RE["is out"].search(newer)
    clause = "" if out is None else next(newer[a:b] for a, b in _clause_spans(newer) if out.start() < b)
    shared = _common_names(newer, older)
    return out is not None and _takes_over(newer, older) and (not shared or bool(_common_names(clause, older)))


def _beside(words: AbstractSet[str], tokens: AbstractSet[str]) -> set[str]:
    """Return words without some tokens and their parts: "type" of "typescript"."""
    return {word for word in words if not any(word in token for token in tokens)}


def _is_about_same(newer: str, older: str) -> bool:
    """Return whether two texts name the same person, or both are about whoever speaks, or the same relative."""
    subjects = {_subject(newer), _subject(older)} - {""}
    if _relative(newer) != _relative(older) or len(subjects) > 1:
        return False
    return bool(_names(newer) & _names(older)) or (_is_of_self(newer) and _is_of_self(older))


def is_about_another(newer: str, older: str) -> bool:
    """Return whether two texts are about somebody or something that the other does not name: "Ana's car", "Ben's car".

    So are two relatives, and two machines. What tells of a repair leaves what was repaired as it is.
    """
    here, before = words_in(newer[:MAX_CHARS]), words_in(older[:MAX_CHARS])
    if not _WORDS["repairs"].isdisjoint(here) and _WORDS["repairs"].isdisjoint(before):
        return True
    if (relative := _relative(newer)) and relative not in before and not _names(newer) & _names(older):
        return True
    one, other = (_RE["lettered"].match(text) for text in (newer, older))
    is_lettered = one and other and one[1] == other[1] and one[2] != other[2]
    kin, other_kin = ({sign for sign in _WORDS["kin signs"] if sign in text} for text in (newer, older))
    if is_lettered or (kin and other_kin and kin.isdisjoint(other_kin)):
        return True
    subject, other = map(_named_subject, (newer, older))
    if not (subject and other) or subject in plain_name(older) or other in plain_name(newer):
        return False
    one, two = {*subject.split()}, {*other.split()}
    if one & two and (two - one).isdisjoint(here) and (one - two).isdisjoint(before):  # two of one family
        return True
    # Somebody who takes over may be named by one name.
    is_told = change_words(newer) > 0 or may_end(newer)
    return not (is_told and " " in subject + other and people_in(newer) & people_in(older))


@lru_cache(maxsize=KEPT)
def _relative(text: str) -> str:
    """Return the relative that a text is about, as in "my wife takes oat milk"; "" if it begins otherwise."""
    first, second = (*words_in(text)[:2], "", "")[:2]
    return second if first in _WORDS["own"] and (second in _WORDS["kin"] or second in _WORDS["companions"]) else ""


@lru_cache(maxsize=KEPT)
def _is_of_self(text: str) -> bool:
    """Return whether a text is about whoever speaks: "I moved", "User lives in Wels", "Eats meat"."""
    words = words_in(text)
    is_note = len(words) <= _SHORT and words[0].endswith(_VERB_ENDINGS) if words else False
    return is_note or not _WORDS["self"].isdisjoint(words)


def _excludes(newer: str, older: str) -> bool:
    """Return whether two texts about one person have words that exclude each other."""
    # Names take the longest to find, and few texts have such words.
    if not _has_excluding_words(_tokens(newer), _tokens(older)):
        return False
    return _WORDS["for others"].isdisjoint(words_in(f"{newer} {older}")) and _is_about_same(newer, older)


def _has_excluding_words(here: AbstractSet[str], before: AbstractSet[str]) -> bool:
    for one, other, context in _exclusions():
        if here & one and before & other and not here & other:
            rest, left = here - one, before - other
            if not context or (rest & context and left & context) or ("any" in context and rest & left):
                return True
    return False
