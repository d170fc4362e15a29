"""Text for people: escape control characters, truncate, and write counts with their noun."""

import json
import re
import unicodedata

from palimpsest.text.tokenizer import is_unspaced

# Make control characters visible, so that no stored text steers a terminal or hides and reorders what is read.
#
# What is stored stays as it is; only what people and models read goes through here. `inert` does more, for what a
# model is given unasked: no tag, heading, image or mark of a chat format survives in it, and all of it stays
# readable.

# The flags of England, Scotland and Wales, which are written with tag characters.
_FLAG = "\U0001f3f4\U000e0067\U000e0062(?:{})\U000e007f".format(
    "|".join("".join(chr(0xE0000 + ord(letter)) for letter in country) for country in ("eng", "sct", "wls"))
)

_CONTROLS = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and line break, delete, C1
    r"\u2028\u2029\ud800-\udfff"  # line and paragraph separators, lone surrogates
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"  # bidi controls, and the deprecated format characters
    r"\ufff9-\ufffb\U000e0000-\U000e007f]"  # annotations and tags, whose text shows nowhere
)
_FLAG_OR_CONTROL = re.compile(f"{_FLAG}|{_CONTROLS}")
_CONTROL = re.compile(_CONTROLS)

_UNSEEN = r"\u00ad\u034f\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
_TAG_BEGIN = re.compile(
    # "<" in any width, unless it compares, points or redirects: "a < b", "<=", "<-", "<3", "< dump.sql"
    r"[<\uff1c\ufe64\u276c\u27e8](?![-=\d]|\s(?![^<>\uff1c\uff1e]{0,200}[>\uff1e\ufe65\u276d\u27e9]))"
    r"|(?:[\u2329\u3008]|&lt;?|&#0*60;?|&#x0*3c;?|\\u003c|\\x3c|%3c)(?=[/\uff0f\\|!?a-z])",
    re.IGNORECASE,
)
_HEADING = re.compile(r"(?:\A|(?<=[\n\r\x0b\x0c\x85\u2028\u2029]))([^\S\n]{0,20}[>*+-]?\s?)(#{1,6})(?=\s)")
_RULER = re.compile(r"([-=*_#~`])\1{3,}")
_FENCE = re.compile(r"`{3}|~{3}")

# A mark of a chat format, such as [INST].
_MARK = re.compile(rf"\[([{_UNSEEN}]*/?[A-Z][A-Z_ {_UNSEEN}]{{2,30}})\]")

_LINK = re.compile(r"(!(?=\[)|\](?=[(\[])|\{(?=[{%#]))")
_SCHEME = re.compile(r"\b(javascript|vbscript|data(?=:[\w.+-]+/)):", re.IGNORECASE)
_ROLE = re.compile(r"([\"'])role\1\s*:", re.IGNORECASE)


def inert(text: str) -> str:
    """Return a text in which nothing is markup for whoever reads it next, with every word readable."""
    text = _RULER.sub(r"\1\1\1", _HEADING.sub(lambda match: match[1] + "\u266f" * len(match[2]), text))
    text = _MARK.sub(r"(\1)", _FENCE.sub("\u2018\u2018\u2018", _TAG_BEGIN.sub("\u2039", text)))
    return _ROLE.sub(r"\1role\1 =", _SCHEME.sub(r"\1 :", _LINK.sub(r"\1 ", text)))


def visible(text: str) -> str:
    r"""Return a text with its control characters as escapes such as `\x1b` and `\u202e`; twice is as good as once.

    Line breaks and tabs stay, and a carriage return before a line break is left out.
    """
    if text.isprintable():
        return text
    # A flag is several characters, and stays.
    return _FLAG_OR_CONTROL.sub(
        lambda match: match[0] if len(match[0]) > 1 else match[0].encode("unicode_escape").decode("ascii"),
        text.replace("\r\n", "\n"),
    )


def visible_json(document: str) -> str:
    r"""Return a JSON document of the same value with its control characters escaped, such as `\u009b`."""
    return _CONTROL.sub(lambda match: json.dumps(match[0])[1:-1], document)


# Cut long texts to their beginning, for replies with little room.

ELLIPSIS = "…"

# How many characters a cut moves back at most to reach the end of a word, and how many in a script without spaces,
# where the next space may be whole sentences away.
MAX_STEP_BACK, MAX_UNSPACED = 30, 5

_ZERO_WIDTH_JOINER = "\u200d"


def shorten(text: str, max_chars: int) -> str:
    """Return a text of at most `max_chars` characters as it is, and of a longer one the beginning and "…"."""
    return text if len(text) <= max_chars else _beginning(text, max_chars - len(ELLIPSIS))


def shorten_to_tokens(text: str, max_tokens: int) -> str:
    """Return the same for a token count, as `count_tokens` estimates it. At least one character is kept.

    Control characters count as the escapes that `visible` shows for them.
    """
    quarters = 0  # four ASCII characters are one token, two letters of other alphabets, and every other character
    last_end = 0
    for end, char in enumerate(text, start=1):
        shown = visible(char)
        quarters += len(shown) if shown.isascii() else 2 if shown < "\u0800" else 4
        if quarters > 4 * max_tokens:
            return _beginning(text, last_end)
        if quarters <= 4 * (max_tokens - 1):  # leaves one token for the ellipsis
            last_end = end
    return text


# How much of what a server says about a failure is shown: its first sentence.
MAX_REASON_CHARS = 200


def reason_of(failure: object) -> str:
    """Return what a server or a driver says about a failure, in one line."""
    return shorten(visible(" ".join(str(failure).split())), MAX_REASON_CHARS)


def _beginning(text: str, end: int) -> str:
    """Return the text up to about `end` and "…", cut at the end of a word if one is near."""
    end = max(1, end)
    lowest = max(1, end - MAX_STEP_BACK)
    at_space = next((place for place in range(end, lowest - 1, -1) if text[place].isspace()), None)
    if at_space is None or sum(map(is_unspaced, text[at_space:end])) > MAX_UNSPACED:
        at_space = next((place for place in range(end, lowest - 1, -1) if not _is_joined(text, place)), end)
    return (text[:at_space].rstrip() or text[:end]) + ELLIPSIS


def _is_joined(text: str, place: int) -> bool:
    """Return whether the character at a place belongs to the one before it, as accents and parts of emoji do."""
    return unicodedata.category(text[place]).startswith("M") or _ZERO_WIDTH_JOINER in text[place - 1 : place + 1]


# Say how many there are of something, in English.


def counted(count: int, noun: str) -> str:
    """Return a count with its noun in the right number, as in "1 memory" and "2 memories"."""
    if count == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{count:,} {plural}"
