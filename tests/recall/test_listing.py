"""Lists: pages bounded in number and in tokens, which together show every memory once."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.errors import InputError
from palimpsest.core.models import Decision, Event, Fact, Provenance
from palimpsest.recall.hits import hit_tokens
from palimpsest.recall.listing import ListRequest, Page, page
from palimpsest.store.apply import Write
from palimpsest.store.ledger import Ledger
from tests.support.ledger_access import ledger_in
from tests.support.memory import ALICE
from tests.support.stores import Store

LENGTHS = (1, 5, 4_000, 40, 300, 20_000, 3, 3, 900, 60, 2_000, 7, 7, 7, 450, 10, 19_000, 2)
"""How many words the memories have, from the oldest to the newest."""

TEXTS = tuple(f"{place:02}{' tea' * length}" for place, length in enumerate(LENGTHS))


@pytest.fixture(scope="module")
def ledger(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Generator[Ledger]:  # noqa: ARG001 - each store has its own
    """Give a ledger with memories of all lengths. Every third one has a topic, every fourth one is deleted."""
    with ledger_in(tmp_path_factory.mktemp("listing")) as ledger:
        topics = ({"topic": "tea"} if place % 3 == 0 else {} for place in range(len(TEXTS)))
        facts = (Fact(text, metadata=topic) for text, topic in zip(TEXTS, topics, strict=True))
        adds = tuple(Decision(Event.ADD, fact) for fact in facts)
        outcomes = ledger.apply(Write(ALICE, Provenance("test"), decisions=adds)).outcomes
        deletions = tuple(Decision(Event.DELETE, memory_id=outcome.memory.id) for outcome in outcomes[::4])
        ledger.apply(Write(ALICE, Provenance("test"), decisions=deletions))
        yield ledger


def pages(ledger: Ledger, limit: int, max_tokens: int, **options: Any) -> list[Page]:
    """Return all pages, by following the cursors."""
    read = [page(ledger, ListRequest(ALICE, limit, max_tokens, **options))]
    while (cursor := read[-1].cursor) is not None:
        read.append(page(ledger, ListRequest(ALICE, limit, max_tokens, cursor, **options)))
    return read


@given(st.integers(1, 10), st.integers(50, 3_000), st.booleans(), st.sampled_from([None, {"topic": "tea"}]))
def test_the_pages_together_show_every_memory_once(
    ledger: Ledger,
    limit: int,
    max_tokens: int,
    deleted: bool,  # noqa: FBT001 - a drawn value
    filters: Mapping[str, Any] | None,
) -> None:
    expected = [
        place
        for place in reversed(range(len(TEXTS)))
        if (place % 4 == 0) == deleted and (filters is None or place % 3 == 0)
    ]
    read = pages(ledger, limit, max_tokens, deleted=deleted, filters=filters)
    assert [int(hit.text[:2]) for listed in read for hit in listed.hits] == expected
    for listed in read:
        assert len(listed.hits) <= limit
        assert sum(map(hit_tokens, listed.hits)) <= max_tokens
        assert listed.hits
        for place, hit in enumerate(listed.hits):
            text = TEXTS[int(hit.text[:2])]
            if hit.length is None:
                assert hit.text == text
            else:
                assert (place, hit.length) == (0, len(text))
                assert text.startswith(hit.text.removesuffix("…"))
                assert len(text) > max_tokens


def test_a_cursor_that_no_page_gave_is_refused(ledger: Ledger) -> None:
    for cursor in ("", "x", "-1", "1.5", "9" * 19):
        with pytest.raises(InputError, match="is not a cursor"):
            page(ledger, ListRequest(ALICE, 10, 1_000, cursor))
