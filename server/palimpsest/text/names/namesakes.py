"""Find where a text says that it means another one of a name: "another Tom", "also named Tom", "Tom (the plumber)"."""

from __future__ import annotations

import re
import unicodedata

from palimpsest.core.entities import SELF_NAMES, plain_name
from palimpsest.text.stopwords import FUNCTION_WORDS

_ANOTHER = "|".join(
    (
        r"another|an?\s+(?:different|second)|the\s+other|yet\s+another",
        r"ein(?:e[mnrs]?)?\s+(?:andere[mnrs]?|weitere[mnrs]?|zweite[mnrs]?)|noch\s+ein(?:e[mnrs]?)?|de[mnrs]\s+anderen?",
        r"(?:un|une|l)\W?\s*autre|un\s+deuxième|une\s+deuxième",
        r"(?:el\s+|la\s+)?otr[oa]|un\W?\s*altr[oa]|l\W?altr[oa]|(?:um|uma)?\s*outr[oa]",
        r"een\s+andere|nog\s+een|de\s+andere|en\s+annan|den\s+andr[ae]|inn(?:y|a|ego|ej)|drug(?:i|a|iego|iej)",
        r"друг(?:ой|ая|ого|ому|им|ую)|ещё\s+од(?:ин|на|ного)",  # noqa: RUF001 - Russian
    )
)
_NAMED = "|".join(
    (
        r"named|called|by\s+the\s+name\s+of|namens|genannt|heißt|nomm[ée]e?|appel[ée]e?|llamad[oa]|chiamat[oa]",
        r"chamad[oa]|genaamd|som\s+heter|o\s+imieniu|по\s+имени",
    )
)
_ALSO = r"(?:also|auch|ebenfalls|aussi|también|anche|também|ook|också|też|również|тоже|также)"
_ANOTHER_UNSPACED = r"(?:另一[个個位名]?|另外一?[个個位名]?|別の|もう一人の|또\s?다른\s+|다른\s+)"
_ARTICLE = r"(?:the|an?|der|die|das|ein|eine|le|la|les|l|el|los|las|il|lo|o|os|as|de|het|den|det)\b"
"""Words that begin what tells two of a name apart. "Lyon (France)" and "Tom (42)" tell nobody apart."""


_BEFORE = re.compile(rf"(?<!\w)(?:(?:{_ANOTHER})\s+(?:\w+\W+(?:{_NAMED})\s+)?|{_ALSO}\s+(?:{_NAMED})\s+)\Z")
_BEFORE_UNSPACED = re.compile(rf"{_ANOTHER_UNSPACED}\Z")

_WINDOW = 100
"""How many characters before a name may say that it is another one. Compiling a pattern for each name takes 5 ms."""


def says_another(text: str, name: str) -> bool:
    """Return whether a text says that it means another one of that name than the one that is known."""
    plain, called = _plain(text), _plain(name)
    start = plain.find(called)
    while start >= 0:
        end, earliest = start + len(called), max(0, start - _WINDOW)
        ends_word = end == len(plain) or not (plain[end].isalnum() or plain[end] == "_")
        if (ends_word and _BEFORE.search(plain, earliest, start)) or _BEFORE_UNSPACED.search(plain, earliest, start):
            return True
        start = plain.find(called, start + 1)
    return False


def qualifier(text: str, name: str) -> str:
    """Return what a text adds to a name to tell it apart, such as "the plumber" in "Tom (the plumber)"; else ""."""
    plain = _plain(text)
    if "(" not in plain:  # compiling the pattern takes longer than everything else that is done with a name
        return ""
    found = re.search(rf"(?<!\w){re.escape(_plain(name))}\s*\(\s*({_ARTICLE}[^()]{{2,40}})\)", plain)
    return " ".join(found[1].split()) if found else ""


def describing(text: str, name: str) -> set[str]:
    """Return the words beside a name that say who it is: "cousin" of "my cousin Tom", "dentist" of "Tom, a dentist"."""
    plain, called = _plain(text), _plain(name)
    said: set[str] = set()
    start = plain.find(called)
    while start >= 0:
        before = _WORDS_BEFORE.search(plain, max(0, start - _WINDOW), start)
        after = _APPOSITION.match(plain, start + len(called))
        said |= set(before[0].split()[-1:] if before else ()) | set(after[1].split() if after else ())
        start = plain.find(called, start + 1)
    return {word for word in said if word.isalpha() and word not in _COMMON and word not in SELF_NAMES}


_WORDS_BEFORE = re.compile(r"(?:[^\W\d_]+\s+)+\Z")
_APPOSITION = re.compile(rf"\s*[,(]\s*(?:{_ARTICLE}\s+|my\s+|user['’]s\s+)?([^\W\d_]+(?:\s+[^\W\d_]+)?)\s*[,.)]")  # noqa: RUF001
_COMMON = frozenset(word for words in FUNCTION_WORDS.values() for word in words)


def bare_name(name: str) -> str:
    """Return a name without what tells it apart at its end: "Tom" for "Tom (plumber)". A name without that is "".

    A call such as "open(path)" tells nothing apart.
    """
    found = _TOLD_APART.fullmatch(unicodedata.normalize("NFKC", name).strip())
    return found[1] if found else ""


_TOLD_APART = re.compile(r"(.*\S)(?:\s+|(?<=[^\x00-\x7f]))\([^()]*[^()\s][^()]*\)")


def _plain(text: str) -> str:
    return plain_name(text)
