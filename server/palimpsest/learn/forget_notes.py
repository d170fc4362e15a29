"""Notes of a reply on what was forgotten, or would be, and how they quote it.

Servers import this module before they open a memory, so it imports nothing of the store.
"""

from __future__ import annotations

from collections.abc import Sequence

from palimpsest.core.models import ForgetQuestion
from palimpsest.core.validation import one_line
from palimpsest.text.display import counted, shorten

SHORT_ID = 8

FORGOTTEN = "forgotten, as asked "
QUESTION = "not forgotten yet "
"""How the notes begin that quote what was forgotten, or what would be after a question."""

MORE_MAY_FIT = "more may fit than was looked at; ask again"

SHOWN_TEXTS, SHOWN_CHARS = 3, 80
"""How many texts a question quotes, and how much of each. Set by hand: enough to see what it is about."""


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
