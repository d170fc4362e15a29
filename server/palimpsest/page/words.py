"""The words of the page in the language of a browser. They stand in `words.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

ENGLISH = "en"


@cache
def languages() -> Mapping[str, Mapping[str, str]]:
    """Return the words of each language, by key. What a language lacks is in English."""
    stored: dict[str, dict[str, str]] = tomllib.loads(
        files("palimpsest.page").joinpath("words.toml").read_text("utf-8")
    )
    return {language: {**stored[ENGLISH], **words} for language, words in stored.items()}


def language_of(accepted: str) -> str:
    """Return the language that a browser would rather read, from its header `Accept-Language`; else English."""
    weighed: list[tuple[float, str]] = []
    for item in accepted.split(","):
        name, _, options = item.strip().partition(";")
        quality = options.strip().removeprefix("q=") if options.strip().startswith("q=") else "1"
        language = name.strip().lower().partition("-")[0]
        if language in languages() and quality.replace(".", "", 1).isdigit():
            weighed.append((-float(quality), language))
    return min(weighed, key=lambda pair: pair[0])[1] if weighed else ENGLISH
