"""Recognize what a sentence is for, without a model: a request to forget, or a rule, preference or decision."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Literal, TypeAlias

from palimpsest.core.models import ForgetQuestion
from palimpsest.core.validation import one_line
from palimpsest.text.display import counted, shorten
from palimpsest.text.tokenizer import is_unspaced, query_tokens, sentences
from palimpsest.text.word_lists import patterns

# Notes of a reply on what was forgotten, or would be, and how they quote it.
#
# Servers import this module before they open a memory, so it imports nothing of the store.

SHORT_ID = 8

FORGOTTEN = "forgotten, as asked "

# How the notes begin that quote what was forgotten, or what would be after a question.
QUESTION = "not forgotten yet "

MORE_MAY_FIT = "more may fit than was looked at; ask again"

# How many texts a question quotes, and how much of each: enough to see what it is about.
SHOWN_TEXTS, SHOWN_CHARS = 3, 80


def question_note(question: ForgetQuestion) -> str:
    """Return what a request to forget would take, and how to confirm it, for clients that cannot ask their user."""
    short = [id_[:SHORT_ID] for id_ in question.ids]
    quoted = ", ".join(f'"{id_}"' for id_ in short)
    more = f". Then {MORE_MAY_FIT}" if question.more_may_fit else ""
    return (
        f"{QUESTION}({question.what}): {quoted_texts(question)}. Show this to the user; if they want it gone, "
        f"call delete_memory(memory_ids=[{quoted}]), or run palimpsest delete {' '.join(short)}{more}"
    )


def quoted_texts(question: ForgetQuestion) -> str:
    """Return how much a request would take, and the first of it."""
    return f"it would take {counted(len(question.texts), 'entry')}, {first_of(question.texts)}"


def first_of(texts: Sequence[str]) -> str:
    """Return the first few texts in quotation marks, cut, and how many more there are."""
    shown = "; ".join(f'"{shorten(one_line(text), SHOWN_CHARS)}"' for text in texts[:SHOWN_TEXTS])
    more = f" and {len(texts) - SHOWN_TEXTS} more" if len(texts) > SHOWN_TEXTS else ""
    return f"{shown}{more}"


# Say whether a message asks, in its writer's own words, to forget something that is remembered.
#
# A language model reads what people ask for, and can be fooled by what they quote. So a request that it found is
# held against the words of the message, in the languages of `forget_requests.txt`. What somebody pastes asks for
# nothing: quoted lines, mails, letters, code, documents and quotations.

# A longer text of one's own is taken for a pasted one, but for its first and last words: nobody types so much to ask
# for something.
LONG_CHARS = 1_500

# How long the first and last words of such a text are: two or three sentences.
EDGE_CHARS = 300

# A quotation of fewer words is a name, which a request may have: forget the "Blue Note".
MIN_QUOTED_WORDS = 3

# How much of what was pasted is looked at.
MAX_REQUEST_CHARS = 20_000

# How many characters around a verb a negation is looked for: three or four words.
NEGATION_CHARS = 24


class Asking(IntEnum):
    """Whether somebody asks to forget: clearly, in a way that a question settles, or not at all."""

    NOT = 0
    UNCLEARLY = 1
    CLEARLY = 2


_REQUEST = patterns("palimpsest.text", "forget_requests.txt", "|")


def asks_to_forget(text: str, what: str = "") -> Asking:
    """Return whether a text asks in its writer's own words to forget something: `what`, as a model has read it."""
    own, introduced, quoted, pasted = _parts(unicodedata.normalize("NFKC", text))
    if not any(map(str.isalnum, own + introduced)):
        return Asking.NOT
    asking = _asking(own)
    if asking is Asking.CLEARLY and (words := set(query_tokens(what))).isdisjoint(query_tokens(own)):
        # The request is the writer's own, but perhaps not what it is said to mean.
        if not words.isdisjoint(query_tokens(pasted)):
            return Asking.NOT
        if not words.isdisjoint(query_tokens(quoted)):
            return Asking.UNCLEARLY
    if asking is not None:
        return asking
    if _asking(introduced) not in (None, Asking.NOT):
        return Asking.UNCLEARLY
    foreign = f"{quoted} {pasted}".casefold()
    is_pasted = any(_REQUEST[verb].search(foreign) for verb in ("any english", "forgets", "deletes"))
    return Asking.NOT if is_pasted else Asking.UNCLEARLY


def _parts(text: str) -> tuple[str, str, str, str]:
    """Take a text apart, line by line, in linear time.

    The parts are its writer's own words, what a line of theirs introduces with a colon, what they quote within a line,
    and what was pasted as lines.
    """
    lines = text.split("\n")
    own: list[str] = []
    introduced: list[str] = []
    quoted: list[str] = []
    pasted: list[str] = []
    closing, letter, is_introduced = "", -1, False  # what ends the block of code or the element that is open
    for number, line in enumerate(lines):
        if closing:
            pasted.append(line)
            is_closed = closing in line if closing.startswith("</") else line.strip().startswith(closing)
            closing = "" if is_closed else closing
        elif opened := _REQUEST["fence"].match(line):
            pasted.append(line)
            closing = opened[1]
        elif element := _REQUEST["element"].match(line):
            pasted.append(line)
            closing = "" if f"</{element[1]}" in line else f"</{element[1]}"
        elif _REQUEST["mail line"].match(line) or (
            _REQUEST["header"].match(line) and any(map(_REQUEST["header"].match, lines[number + 1 : number + 2]))
        ):
            pasted += lines[number:]
            break
        elif _REQUEST["quoted line"].match(line):
            pasted.append(line)
        elif letter >= 0 and _REQUEST["closing pattern"].match(line):
            pasted += own[letter:]
            del own[letter:]
            letter = -1
        else:
            letter = len(own) if letter < 0 and _REQUEST["salutation pattern"].match(line) else letter
            is_introduced = is_introduced and bool(line.strip())
            kept = _REQUEST["quotation"].sub(lambda found: " " if _is_long(found[0]) else found[0], line)
            quoted += [found for found in _REQUEST["quotation"].findall(line) if _is_long(found)]
            (introduced if is_introduced else own).append(kept)
            is_introduced = is_introduced or line.rstrip().endswith(":")
    first, second, third = ("\n".join(some)[:MAX_REQUEST_CHARS] for some in (introduced, quoted, pasted))
    return "\n".join(own), first, second, third


def _is_long(quotation: str) -> bool:
    return len(quotation.split()) >= MIN_QUOTED_WORDS or any(map(is_unspaced, quotation))


def _asking(text: str) -> Asking | None:
    """Return whether a text asks to forget, by the sentence that does so most clearly; None if none speaks of it."""
    edges = [text] if len(text) <= LONG_CHARS else [text[:EDGE_CHARS], text[-EDGE_CHARS:]]
    context = text[:LONG_CHARS].casefold()
    asked = [sentence.strip() for edge in edges for sentence in _REQUEST["request end"].split(edge.casefold())]
    found = [ask(sentence, context) for sentence in asked if sentence for ask in (_of_english, _of_other)]
    return max((asking for asking in found if asking is not None), default=None)


def _of_english(sentence: str, own: str) -> Asking | None:
    if _REQUEST["do not forget"].search(sentence):
        return Asking.NOT
    if found := _REQUEST["forgetting"].search(sentence):
        return _forgets(found["rest"], sentence, own)
    if found := _REQUEST["stop remembering"].search(sentence):
        is_clear = _REQUEST["mine"].search(found["rest"]) or _REQUEST["any memory"].search(sentence)
        return Asking.CLEARLY if is_clear else Asking.UNCLEARLY
    if found := _REQUEST["deleting"].search(sentence):
        return _deletes(found["rest"], sentence, own)
    return None


def _deletes(rest: str, sentence: str, own: str) -> Asking:
    """Return what "delete …" asks for, given what follows the word: most things that are deleted lie elsewhere."""
    if _REQUEST["own memory"].search(rest):
        return Asking.CLEARLY
    if _REQUEST["lies elsewhere"].search(rest):
        return Asking.NOT
    if _REQUEST["any memory"].search(sentence) or _REQUEST["everything about"].search(rest):
        return Asking.CLEARLY
    return Asking.UNCLEARLY if _REQUEST["mine"].search(rest) or _REQUEST["any memory"].search(own) else Asking.NOT


def _forgets(rest: str, sentence: str, own: str) -> Asking:
    """Return what "forget …" asks for, given what follows the word: it may only mean "let it be"."""
    is_polite = _REQUEST["polite"].search(sentence) is not None
    about_memory = _REQUEST["any memory"].search(rest) is not None
    if rest.startswith(" to "):
        return Asking.NOT
    if _REQUEST["that"].match(rest):
        is_nothing = _REQUEST["it"].match(rest) is not None
        return Asking.NOT if is_nothing else Asking.CLEARLY if is_polite else Asking.UNCLEARLY
    following = own[own.find(sentence) + len(sentence) :].strip()
    if not about_memory and (_REQUEST["going on instead"].search(rest) or _REQUEST["next instead"].match(following)):
        return Asking.UNCLEARLY if _REQUEST["mine"].search(rest.partition(",")[0]) else Asking.NOT
    is_loose = _REQUEST["about"].match(rest) and not (is_polite or about_memory)
    return Asking.UNCLEARLY if is_loose else Asking.CLEARLY


def _of_other(sentence: str, own: str) -> Asking | None:
    """Return the same for a sentence in another language than English, whose verb may stand anywhere."""
    if _REQUEST["idiom words"].match(_REQUEST["please words"].sub(" ", sentence)):
        return Asking.NOT
    if _REQUEST["not keep words"].search(sentence):
        return Asking.CLEARLY
    forget = _REQUEST["forgets"].search(sentence)
    verb = forget or _REQUEST["deletes"].search(sentence)
    if verb is None:
        return None
    is_told = _REQUEST["infinitive"].fullmatch(verb[0]) and not _REQUEST["asked words"].search(sentence)
    if is_told or _is_negated(sentence, verb):
        return Asking.NOT
    if forget is None:
        return _deletes_in_other(sentence, own)
    if _REQUEST["instead in other"].search(sentence, verb.end()):
        return Asking.UNCLEARLY if _REQUEST["of memory"].search(sentence) else Asking.NOT
    return Asking.CLEARLY


def _deletes_in_other(sentence: str, own: str) -> Asking:
    if _REQUEST["of memory"].search(sentence):
        return Asking.CLEARLY
    if _REQUEST["elsewhere in other"].search(sentence):
        return Asking.NOT
    if _REQUEST["all words"].search(sentence):
        return Asking.CLEARLY
    return Asking.UNCLEARLY if _REQUEST["of memory"].search(own) else Asking.NOT


def _is_negated(sentence: str, verb: re.Match[str]) -> bool:
    before = sentence[max(verb.start() - NEGATION_CHARS, 0) : verb.start()]
    after = sentence[verb.end() : verb.end() + NEGATION_CHARS].lstrip()
    return bool(_REQUEST["not words"].search(before) or _REQUEST["not words"].match(after))


# Recognize sentences that state a rule, a preference, a decision, a name or a place, by a few cues a language.
#
# The cues are strict, because what is taken by mistake stands in every session, and what is missed can be told
# again. A question, a quotation, a text to work on, code, and what holds for this once state nothing. The cues stand
# in `standing_cues.txt`.

StandingKind: TypeAlias = Literal["rule", "decision", "fact", "person"]

# A longer text is mostly pasted.
MAX_STATEMENT_CHARS = 2_000

# How long a sentence is that states one thing.
MIN_SENTENCE_CHARS, MAX_SENTENCE_CHARS = 5, 240

# How many words a text has beside courtesies and function words that says something.
MIN_WORDS = 2

# What no question states, in the order in which it is looked for.
_TOLD: tuple[StandingKind, ...] = ("fact", "decision", "rule")

# How many words a rule has in a script with spaces. "Never returns" is a complaint.
MIN_RULE_WORDS = 3


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence that holds beyond its conversation, as it was said. A `person` statement is about whoever said it."""

    text: str
    kind: StandingKind


_CUES = patterns("palimpsest.text", "standing_cues.txt", "|")

# What stands for a quotation. A sentence with one says what somebody else said.
_NOT_SAID = "\x00"

_QUESTION_MARKS = ("?", "？", "؟")
_END = " \t.!…。！,、，"


def standing_statements(text: str) -> list[Statement]:
    """Return what a person wrote that holds beyond the conversation, each sentence once. Takes linear time."""
    if len(text) > MAX_STATEMENT_CHARS:
        return []
    found = {statement.text: statement for sentence in _own_sentences(text) for statement in _stated(sentence)}
    return list(found.values())


@lru_cache(maxsize=2_048)
def is_exception(text: str) -> bool:
    """Return whether a text tells what holds for one time only, and leaves what is usual as it is."""
    return _CUES["exception"].search(text[:MAX_STATEMENT_CHARS]) is not None


def begins_with_rule(text: str) -> bool:
    """Return whether a text begins as a rule does: "Never deploy on Fridays". "Orders are always late" is none."""
    told = _without_lead(text)
    return _CUES["rule"].match(told) is not None and not _is_complaint(told)


_SIGNS = tuple(pattern for name, pattern in _CUES.items() if name.startswith("sign "))

# How many of the signs of a rule, a decision or a correction a sentence has that none of them alone makes one.
MIN_SIGNS = 2

# How many words it has then. "No, not that one" corrects only what was just done.
MIN_SIGNED_WORDS = 5


def lasting_sentences(text: str) -> list[str]:
    """Return the sentences of a person that may be a rule, a decision or a correction, as they were said.

    They are more than the standing statements, and some of them hold for this once: an agent is asked about them.
    """
    if len(text) > MAX_STATEMENT_CHARS:
        return []
    return [sentence for sentence in dict.fromkeys(_own_sentences(text)) if _may_last(sentence)]


def _may_last(sentence: str) -> bool:
    is_question = sentence.endswith(_QUESTION_MARKS) or _CUES["question"].match(_without_lead(sentence))
    is_made_up = _CUES["made up"].match(_without_lead(sentence))
    if is_question or is_made_up or _CUES["passing"].search(sentence):
        return False
    if _CUES["lasting"].search(sentence):
        return True
    if _CUES["at hand"].search(sentence):
        return False
    if standing_statements(sentence):
        return True
    signs = sum(sign.search(sentence) is not None for sign in _SIGNS)
    return signs >= MIN_SIGNS and (len(sentence.split()) >= MIN_SIGNED_WORDS or any(map(is_unspaced, sentence)))


def _own_sentences(text: str) -> Iterator[str]:
    """Yield the sentences that the person wrote as their own words."""
    own = "\n".join(
        line for line in _CUES["code block"].sub("\n", text).splitlines() if not _CUES["foreign line"].match(line)
    )
    own = _CUES["quoted"].sub(_NOT_SAID, own.replace(_NOT_SAID, " "))
    own = own[: material.end()] if (material := _CUES["material"].search(own)) else own
    for sentence in sentences(own):
        plain = " ".join(sentence.split()).lstrip("-*•–— ")
        if MIN_SENTENCE_CHARS <= len(plain) <= MAX_SENTENCE_CHARS and _NOT_SAID not in plain:
            yield plain


def _stated(sentence: str) -> Iterator[Statement]:
    """Yield a sentence that states something, whole: what stands beside a cue may turn its sense."""
    is_question = sentence.endswith(_QUESTION_MARKS) or _CUES["question"].match(sentence) is not None
    if _CUES["once"].search(sentence) or _CUES["made up"].match(_without_lead(sentence)):
        return
    stated = _without_lead(sentence).strip(_END)
    whole = stated[:1].upper() + stated[1:]
    for start in (0, *(clause.end() for clause in _CUES["clause"].finditer(sentence))):
        rest = _without_lead(sentence[start:]).strip(_END)
        if len(rest) < MIN_SENTENCE_CHARS:
            continue
        if _CUES["person"].match(rest):
            yield Statement(whole, "person")
            return
        if is_question:
            continue
        for kind in _TOLD:
            is_other = _is_task(rest) or (kind == "rule" and _is_complaint(rest))
            if _CUES[kind].match(rest) and not is_other:
                yield Statement(whole, kind)
                return
        if _CUES["kin"].search(rest):
            yield Statement(whole, "person")
            return


def says_something(text: str, words: int = MIN_WORDS) -> bool:
    """Return whether a text has so many words beside thanks, greetings, "go on" and function words."""
    return len(query_tokens(_CUES["courtesy"].sub(" ", text[:MAX_STATEMENT_CHARS]))) >= words


def asks_something(text: str) -> bool:
    """Return whether a sentence of a text is a question, by its mark or its first word."""
    own = map(_CUES["question"].match, sentences(text[:MAX_STATEMENT_CHARS]))
    return any(mark in text for mark in _QUESTION_MARKS) or any(own)


def _is_task(clause: str) -> bool:
    """Return whether a clause goes on with what is to be done now: "the repo is called acme, rename it"."""
    _, comma, rest = clause.partition(",")
    return bool(comma) and _CUES["task"].match(rest) is not None


def _is_complaint(clause: str) -> bool:
    """Return whether a clause tells what always or never happens, or is too short to wish for anything."""
    is_short = len(clause.split()) < MIN_RULE_WORDS and not any(map(is_unspaced, clause))
    return is_short or _CUES["complaint"].search(clause) is not None


def _without_lead(clause: str) -> str:
    """Return a clause without words such as "and" and "please" at its beginning."""
    lead = _CUES["lead"].match(clause)
    return clause if lead is None else clause[lead.end() :]
