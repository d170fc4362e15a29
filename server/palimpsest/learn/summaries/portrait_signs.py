"""Rank memories by what depends on them, and sort them into sections by plain words."""

import re
import unicodedata
from collections.abc import Set
from dataclasses import dataclass
from enum import IntEnum

from palimpsest.core.models import SELF_NAMES, USER_NAME, Memory
from palimpsest.llm.user_name import is_about_user, places_of
from palimpsest.text.dates.date_finder import dates_in
from palimpsest.text.intents import begins_with_rule
from palimpsest.text.names.name_finder import PETS
from palimpsest.text.tokenizer import search_tokens
from palimpsest.text.word_lists import LazyPattern, word_lists

_LISTS = word_lists("palimpsest.learn.summaries", "portrait_signs.txt")

# Plain words that show which section of a portrait a memory belongs to, in several languages.
#
# They are read where a memory has no tags, as those in an agent's words have none. Words are compared whole and in
# lower case; signs of Chinese and Japanese, which have no spaces, anywhere in the text. English comes first, then
# German, French, Spanish, Italian, Portuguese, Dutch, Swedish, Polish and Russian, as far as a word serves no other
# purpose.

# A word. What goes on with a digit or "_" is a name of something, as grandMA2 is of a lighting console. A password
# manager is no person, the German month of May no Italian "never", and "Frau Ude" nobody's wife.
_WORD = LazyPattern(r"\b(?<!password )(?<!package )(?!Mai\b|\AFrau [A-ZÄÖÜ])[^\W\d_]+\b")


@dataclass(frozen=True, slots=True)
class Signs:
    """The words of a section, and what stands for them in scripts without spaces."""

    words: frozenset[str]
    unspaced: tuple[str, ...] = ()

    def count(self, text: str) -> int:
        """Return how many different signs a text has."""
        plain = unicodedata.normalize("NFKC", text)
        words = self.words.intersection(map(str.casefold, _WORD.findall(plain)))
        return len(words) + sum(sign in plain.casefold() for sign in self.unspaced)


def _signs(section: str) -> Signs:
    words, unspaced = (_LISTS.get(heading, "").casefold().split() for heading in (section, f"{section} unspaced"))
    return Signs(frozenset(words), tuple(unspaced))


HELP, IDENTITY, WORK, PREFERENCES, CALLED = map(_signs, ("help", "identity", "work", "preferences", "called"))

# How a memory begins that tells what the user is called, in an agent's words or in the user's own; what says for whom
# somebody works, and that something is to be done: in a project, by whoever works on it.
NAME, WORKS_FOR, OWES, _WISH, THEIRS = (
    LazyPattern(_LISTS[heading].replace("\n", ""), re.IGNORECASE)
    for heading in ("name", "works for", "owes", "wish", "theirs")
)

# A day in a text, PHRASE, with the words that go with it.
DAY = _LISTS["day"].replace("\n", "")

# The words in which a text and one that denies it differ.
POLARITY = frozenset(search_tokens(_LISTS["polarity"]))

# Who somebody is: name, birth, home, work and language.
WHO = _signs("who")

# What helps must respect, whatever else is left out: allergies, illnesses, medicines, and what access needs.
#
# Most of them serve a machine, too ("fault-intolerant", "a blind test"), so they count where a text is about a person;
# those of `ALLERGY` do not.
_MEDICINE, _TOPIC, _TAKES = map(_signs, ("medicine", "topic", "takes"))
_ILLNESS, ALLERGY = _signs("safety"), _signs("allergy")
SAFETY = Signs(_ILLNESS.words | _MEDICINE.words, (*_ILLNESS.unspaced, *_MEDICINE.unspaced))

# What an agent writes, of which a rule says how.
_WRITTEN = _signs("written")

# How the commands of a project are worded, and the money and the time that it has.
COMMANDS, TERMS = _signs("commands"), _signs("terms")

_FAMILY = _signs("family")

# A pet is part of the family.
PEOPLE = Signs(_FAMILY.words | PETS, _FAMILY.unspaced)

# How the user is named in what is the user's, and whom somebody only deals with: clients, patients, guests.
_USER, OTHERS = _signs("user"), _signs("others")

# How instructions and rules are worded, and what the sections of a project and of procedures have.
ALWAYS, WORKED, FAILED = map(_signs, ("always", "worked", "failed"))
DECIDED, STACK, OPEN = map(_signs, ("decided", "stack", "open"))

_CONVENTIONS = _signs("conventions")

# How the conventions of a project are worded.
RULES = Signs(ALWAYS.words | _CONVENTIONS.words, (*ALWAYS.unspaced, *_CONVENTIONS.unspaced))

# Words about people that are also said of things: child processes, parent classes, a library's home. What is surely
# about a person in scripts without spaces. What shows work or a preference only of a person.
ALSO_OF_THINGS, PRIVATE, OF_PERSONS = map(_signs, ("also of things", "private", "of persons"))

# When a colleague works or not; whom the user has an appointment with.
ROTA, APPOINTMENTS, VISITS = map(_signs, ("rota", "appointments", "visits"))

# Signs of what is about a project, whoever the subject is, and what is done for one.
OF_PROJECTS, ACTS = _signs("of projects"), _signs("acts")


# How much depends on a memory, judged by its words and tags: what must be in view wherever little fits.

# Tags of how something is to be done.
RULE_TAGS = frozenset({"instruction", "style", "procedure", "correction"})

# Within how many words a text names whom it is about.
BEGINNING = 3

# What may stand before a name: "Der Herr Bode".
_TITLE = LazyPattern(r"\A(?:(?:der|die|the|el|la|le|il|herrn?|frau|mr|mrs|ms|dr|señora?|signora?)\.? )*", re.IGNORECASE)


class Rank(IntEnum):
    """How much depends on a memory. What is in front is shown first, however old it is and however much is pinned."""

    SAFETY = 0
    NAME = 1
    IDENTITY = 2
    HELP = 3
    OTHER = 4


# The last rank that never yields to what is pinned or new.
MUST = Rank.IDENTITY


# Within how many characters a text that begins with the user says the user's name.
INTRODUCED = 40


# How many characters of a text are read for a wish: the time that the patterns take grows with their square.
_MAX_WISH = 300


def rank_of(memory: Memory, user_name: str) -> Rank:
    """Return how much depends on a memory. `user_name` may be ""."""
    if is_safety(memory, user_name):
        return Rank.SAFETY
    if USER_NAME in memory.metadata or NAME.match(memory.text):
        return Rank.NAME
    if user_name and user_name in memory.text[:INTRODUCED] and is_about_user(memory.text):
        return Rank.IDENTITY  # "The user, Ana Ruiz, is a vet"
    is_of_user = memory.happened_at is None and is_about(memory, user_name)
    if is_of_user and WHO.count(memory.text) and not _WISH.search(memory.text[:_MAX_WISH]):
        beginning = " ".join(memory.text.split(maxsplit=BEGINNING)[:BEGINNING])
        return Rank.OTHER if PEOPLE.count(beginning) else Rank.IDENTITY  # "User's brother lives in Bern"
    return Rank.HELP if is_rule(memory, user_name) or is_wish(memory, user_name) else Rank.OTHER


def is_safety(memory: Memory, user_name: str) -> bool:
    """Return whether somebody's health or access depends on a memory. Most of the words may be about a machine."""
    if not names_danger(memory.text):
        return False
    is_of_person = is_about(memory, user_name) or any(entity.type == "person" for entity in memory.entities)
    is_sure = not memory.scope.project and ALLERGY.count(memory.text) > 0
    return is_of_person or is_sure or PEOPLE.count(memory.text) > 0


def is_of_health(memory: Memory) -> bool:
    """Return whether a memory tells of an appointment for the health of the user's people, or of their safety."""
    is_visit = APPOINTMENTS.count(memory.text) + VISITS.count(memory.text) > 0
    return (is_visit and not OTHERS.count(memory.text)) or is_safety(memory, "")


def names_danger(text: str) -> bool:
    """Return whether a text has words of safety, and not only a medicine that somebody sells or writes about."""
    is_topic = _TOPIC.count(text) > _TAKES.count(text) == 0
    return _ILLNESS.count(text) > 0 or (_MEDICINE.count(text) > 0 and not is_topic)


def is_rule(memory: Memory, user_name: str) -> bool:
    """Return whether a memory says how something is to be done, by its tags or words.

    "User always …" is a habit, what must be done by a day to come a deadline, and "the boiler should be replaced" an
    advice on something else than what an agent writes.
    """
    is_of_somebody = is_about(memory, user_name) or _is_about_another(memory, user_name)
    is_meant = begins_with_rule(memory.text) or _WRITTEN.count(memory.text) > 0
    is_worded = ALWAYS.count(memory.text) > 0 and is_meant and not is_of_somebody and not is_due(memory)
    return is_worded or not RULE_TAGS.isdisjoint(memory.all_tags)


def is_wish(memory: Memory, user_name: str) -> bool:
    """Return whether a memory says how the user wants to be answered or reached.

    What begins with something else than the user or an answer, as "The bank's reply is late", says what happens.
    """
    if is_about(memory, user_name):
        return HELP.count(memory.text) > 0 or _WISH.search(memory.text[:_MAX_WISH]) is not None
    beginning = " ".join(memory.text.split(maxsplit=2)[:2])
    return HELP.count(beginning) > 0 and not _is_about_another(memory, user_name) and not is_due(memory)


def says_rule(memory: Memory) -> bool:
    """Return whether a memory of a project is a rule, a command or a warning."""
    is_worded = "`" in memory.text or RULES.count(memory.text) + COMMANDS.count(memory.text) > 0
    return is_worded or is_rule(memory, "") or is_safety(memory, "")


def is_due(memory: Memory) -> bool:
    """Return whether the text of a memory names a day that was to come when it was said."""
    return any(date.end > memory.stated_at for date in dates_in(memory.text, memory.stated_at))


def _is_about_another(memory: Memory, user_name: str) -> bool:
    """Return whether a memory begins with the name of a person who is not the user, as "Der Herr Bode" does."""
    people = (entity.name for entity in memory.entities if entity.type == "person")
    first_names = tuple(first for name in people for first in name.split()[:1])
    return _TITLE.sub("", memory.text, count=1).startswith(first_names) and not is_about(memory, user_name)


def is_about(memory: Memory, user_name: str) -> bool:
    """Return whether the user is the subject of a memory: it begins with "User" or "I", or with the user's name."""
    first_name = user_name.split(maxsplit=1)[0] if user_name.strip() else ""
    return is_about_user(memory.text) or bool(first_name and memory.text.startswith(first_name))


# How many characters before and after the user's name a word of the family stands: "la fille de 7 ans de Ana Ruiz".
_BEFORE, _AFTER = 30, 12

# What makes of a relative somebody else's: "mother of the bride".
_OF = LazyPattern(r"\A\S+ (?:of|von|der|des|de|du|d['\u2019]|del|della|di|da|do|van|av)\b", re.IGNORECASE)


def names_relative(text: str, own_names: Set[str]) -> bool:
    """Return whether a text names somebody as the user's relative or friend: "the son of Ana Ruiz", "Dad".

    `own_names` are what the user is called, as `name_key` gives it.
    """
    folded = text.casefold()
    words = [word.casefold() for word in _WORD.findall(text[: _BEFORE + _AFTER])]
    first = _FAMILY.words.intersection(words[:1])
    is_others = _OF.match(text) or not OTHERS.words.isdisjoint(words[1:2])  # "Сын покупательницы Дарьи"
    is_first = text.startswith(_FAMILY.unspaced) or (first and not is_others)
    if is_first and (names_danger(text) or first.isdisjoint(ALSO_OF_THINGS.words)):
        return True
    names = (each for name in own_names - SELF_NAMES if name for each in (name, f"{name}s"))
    spans = [(found.start(), found.end() + _AFTER) for name in names for found in places_of(name, folded)]
    spans += [(word.start(), word.start()) for word in _WORD.finditer(folded) if word[0] in _USER.words]
    spans += [(0, len(" ".join(text.split(maxsplit=BEGINNING)[:BEGINNING])))] if is_about_user(text) else []
    return any(PEOPLE.count(text[max(start - _BEFORE, 0) : end]) for start, end in spans)
