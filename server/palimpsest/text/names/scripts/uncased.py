"""Find names in scripts without capitals: Chinese, Japanese, Korean and Arabic, and Latin words inside of them.

A name is found by a list, by its form (a family name, a suffix such as that of a university), and by a word beside it
that introduces a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from palimpsest.text.names.lexicon.lists import is_also_word, is_place
from palimpsest.text.names.lexicon.well_known import WELL_KNOWN_UNCASED
from palimpsest.text.names.scripts.arabic import arabic_spans
from palimpsest.text.names.scripts.chinese import chinese_spans
from palimpsest.text.names.scripts.japanese import japanese_spans
from palimpsest.text.names.scripts.korean import korean_spans
from palimpsest.text.names.span import Span, first_group

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\u3005"
_KATAKANA = "\u30a1-\u30fa\u30fc"
_KANA = "\u3041-\u3096"

_HAS_UNCASED = re.compile(rf"[{_HAN}{_KANA}{_KATAKANA}\uac00-\ud7af\u0620-\u064a]")
_IS_JAPANESE = re.compile(rf"[{_KANA}]")

_TITLES_QUOTED = re.compile(r"《([^《》\n]{1,40})》|『([^『』\n]{1,40})』")
_NAMED_QUOTED = re.compile(
    r"「([^「」。、\n]{1,24})」(?=という|と呼|って(?:名|い)|的(?:项目|項目|书|書|店))|(?<=[叫名])[「“]([^「」“”。，\n]{1,24})[」”]"
)


_WELL_KNOWN = re.compile(
    rf"(?<![{_KATAKANA}])(?:" + "|".join(sorted(WELL_KNOWN_UNCASED, key=len, reverse=True)) + rf")(?![{_KATAKANA}])"
)


def uncased_spans(text: str) -> Iterator[Span]:
    """Yield the names of a text in scripts without capitals, the surest first."""
    if not _HAS_UNCASED.search(text):
        return
    for match in (*_TITLES_QUOTED.finditer(text), *_NAMED_QUOTED.finditer(text)):
        yield first_group(match, "document" if match[0][0] in "《『" else "other")
    for match in _WELL_KNOWN.finditer(text):
        yield Span(match.start(), match.end(), match[0], WELL_KNOWN_UNCASED[match[0]])
    if _IS_JAPANESE.search(text):
        yield from japanese_spans(text)
    elif re.search(rf"[{_HAN}]", text):
        yield from chinese_spans(text)
    yield from korean_spans(text)
    yield from arabic_spans(text)
    yield from _known_places(text)


def _known_places(text: str) -> Iterator[Span]:
    """Yield listed places in Chinese and Japanese, and places in Katakana, the longest first."""
    for run in re.finditer(rf"[{_KATAKANA}・]{{2,}}", text):
        if is_place(run[0]):
            yield Span(run.start(), run.end(), run[0], "place")
    for run in re.finditer(rf"[{_HAN}]{{2,}}", text):
        start = run.start()
        while start < run.end() - 1:
            for end in range(min(start + 6, run.end()), start + 1, -1):
                if is_place(text[start:end]) and not is_also_word(text[start:end]):
                    yield Span(start, end, text[start:end], "place")
                    start = end - 1
                    break
            start += 1
