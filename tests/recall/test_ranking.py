"""Ranking, as pure functions over numbers, and how well dates agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from palimpsest.core.models import Candidate
from palimpsest.recall.features import Candidates, Centre, Ranked, Weights, centred, rank, rarity
from palimpsest.recall.query import ParsedQuery, exact_form, exact_parts, look_alikes, said_match, text_match
from palimpsest.recall.score import SUPERSEDED, SearchScoring, damped
from palimpsest.text.dates.date_finder import dates_in
from palimpsest.text.stopwords import asks_for_the_past
from palimpsest.text.tokenizer import query_tokens, search_tokens
from tests.support.scripted_model import NOW

REPLACEMENT = {"constant": -10, "cosine": 3, "shared": 3, "change words": 1, "changed": 2}
OF_MEMORY = {
    **dict.fromkeys(("meaning", "words", "speaker", "said", "told"), 1.0),
    "replaced": -3,
    "update": 2,
    "former": 2,
}
OF_MESSAGE = {
    **dict.fromkeys(("meaning", "words", "speaker", "session", "answer type", "said", "told"), 1.0),
    "question": -1,
}
OF_OTHERS = {"meaning": 0.2, "meaning of others": 1.0, "words of others": 1.0}
WEIGHTS = Weights(
    memory={"alone": OF_MEMORY, "hints": OF_MEMORY, "also": OF_MEMORY | OF_OTHERS, "both": OF_MEMORY | OF_OTHERS},
    message={"alone": OF_MESSAGE, "also": OF_MESSAGE | OF_OTHERS},
    replacement={**REPLACEMENT, "nearest older": 3, "nearest newer": 2},
    match={},
)
"""Round weights, so that these tests do not depend on what was fitted."""


def test_centring() -> None:
    """Centring removes the common component and leaves vectors of length 1; one equal to the mean becomes zero."""
    crowded = centred(np.array([[1, 0.1], [1, -0.1]], dtype=np.float32), np.array([1, 0], dtype=np.float32))
    np.testing.assert_allclose(crowded, [[0, 1], [0, -1]], atol=1e-6)
    assert crowded.dtype == np.float32
    for mean in (None, np.zeros(2, dtype=np.float32)):
        np.testing.assert_allclose(centred(np.array([3, 4], dtype=np.float32), mean), [0.6, 0.8], atol=1e-6)
    mean = np.array([0.6, 0.8], dtype=np.float32)
    np.testing.assert_array_equal(centred(mean[np.newaxis], mean), [[0, 0]])


def test_the_mean_of_few_vectors_is_shrunk() -> None:
    """A single vector is not its own centre, or it would be similar to nothing. Many vectors are."""
    mean = np.array([1, 0], dtype=np.float32)
    one, many = Centre.of("unknown", 1, mean).passage, Centre.of("unknown", 10_000, mean).passage
    assert one is not None
    assert many is not None
    assert np.linalg.norm(one) < 0.1
    np.testing.assert_allclose(many, mean, atol=0.01)
    assert Centre.of("unknown", 0, None) == Centre(None, None)


def candidate(seq: int, text: str = "", **known: Any) -> Candidate:
    """Return a message of the usual length from this moment."""
    return Candidate(seq, known.pop("kind", "message"), f"id{seq}", known.pop("at", NOW), text=text, **known)


def memory(seq: int, text: str, days_ago: float = 0) -> Candidate:
    """Return a memory."""
    return Candidate(seq, "memory", f"id{seq}", NOW - timedelta(days=days_ago), text=text)


def ranked(
    entries: Sequence[Candidate],
    *,
    query: str = "",
    also: Sequence[str] = (),
    speakers: Set[str] = frozenset(),
    **features: Any,
) -> list[Ranked]:
    """Return the candidates of a search, best first."""
    parsed = ParsedQuery(
        text=query,
        words=tuple(dict.fromkeys(query_tokens(query))),
        names=frozenset(token for name in speakers for token in search_tokens(name)),
        speakers=frozenset(speakers),
        dates=dates_in(query, NOW),
        is_about_the_past=asks_for_the_past(query),
        also=tuple(tuple(query_tokens(text)) for text in also),
        exact_parts=exact_parts(query),
    )
    asked: dict[str, Any] = {"weights": dict.fromkeys(parsed.all_words, 1.0)} | features
    return rank(candidates(entries, **asked), SearchScoring(parsed, NOW, WEIGHTS).parts)


def order(entries: Sequence[Candidate], **features: Any) -> list[int]:
    """Return the numbers of candidates, best first."""
    return [item.candidate.seq for item in ranked(entries, **features)]


def parts_of(entries: Sequence[Candidate], **features: Any) -> dict[int, dict[str, float]]:
    """Return the parts of the scores of candidates by their numbers."""
    return {item.candidate.seq: item.parts for item in ranked(entries, **features)}


def candidates(
    entries: Sequence[Candidate],
    *,
    meaning: Sequence[float] | None = None,
    of_others: Sequence[float] | None = None,
    bm25: Sequence[float] | None = None,
    words: Sequence[set[str]] | None = None,
    weights: Mapping[str, float] | None = None,
    outdated: Set[str] = frozenset(),
    linked: Sequence[tuple[int, int]] = (),
) -> Candidates:
    """Return candidates with their features: `meaning` holds cosines with the query, `of_others` with its wording."""
    queries = vectors = None
    if meaning is not None:
        other = of_others or [0.0] * len(meaning)
        queries = np.eye(3, dtype=np.float32)[: 2 if of_others else 1]
        rest = [np.sqrt(max(0, 1 - a**2 - b**2)) for a, b in zip(meaning, other, strict=True)]
        vectors = np.stack([meaning, other, rest], axis=1).astype(np.float32)
    texts = [frozenset(text) for text in words or [search_tokens(entry.text) for entry in entries]]
    has_vector, scores = np.full(len(entries), vectors is not None), np.array(bm25 or [0.0] * len(entries), np.float32)
    known = weights or {}
    return Candidates(
        entries, vectors, vectors, has_vector, queries, scores, texts, texts, known, len(entries), outdated, linked
    )


THREE = [candidate(1), candidate(2), candidate(3)]


def test_a_score_is_the_sum_of_its_parts() -> None:
    """The best match in meaning and in words beats the best match in one, and the explanation adds up to the score."""
    words = [{"tea"}, {"tea", "green"}, set[str]()]
    asked: dict[str, Any] = {"query": "green tea", "weights": {"tea": 1, "green": 2}}
    assert order(THREE, meaning=[0.9, 0.8, 0.1], bm25=[1.0, 3.0, 0.0], words=words, **asked) == [2, 1, 3]
    words = [{"tea"}, set[str](), {"green"}]
    features: dict[str, Any] = {"meaning": [0.2, 0.8, 0.1], "bm25": [1.0, 0.0, 2.0], **asked}
    for item in ranked(THREE, words=words, outdated={"id2"}, speakers={"Ana"}, **features):
        assert item.score == pytest.approx(sum(item.parts.values()), abs=1e-5)
        assert item.parts["superseded"] == (-SUPERSEDED if item.candidate.seq == 2 else 0)


def test_equal_candidates_are_ordered_by_number() -> None:
    """Equal scores do not divide by zero, and neither does a search while the embedder is down."""
    for meaning in (None, [0.5, 0.5, 0.5]):
        assert order(THREE, meaning=meaning) == [1, 2, 3]
    assert order([], meaning=[]) == []


def test_of_two_similar_candidates_one_comes_first() -> None:
    """Each property besides likeness counts by itself."""
    cases: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
        ({"speaker": "Ana"}, {"speaker": "Ben"}),
        ({"speaker": "Ana", "kind": "memory"}, {"speaker": "Ben", "kind": "memory"}),
        ({"text": "Ana paints", "kind": "memory"}, {"text": "Ben paints", "kind": "memory"}),
        ({}, {"is_question": True}),
        ({"at": NOW - timedelta(days=1)}, {"at": NOW - timedelta(days=400)}),
    )
    for first, second in cases:
        assert order([candidate(1, **second), candidate(2, **first)], speakers={"Ana"}) == [2, 1], first


def test_a_candidate_of_a_relevant_session_comes_first() -> None:
    """Of two similar messages, the one whose session is about the subject comes first."""
    messages = [candidate(seq, session=session) for seq, session in ((1, "b"), (2, "a"), (3, "a"), (4, "b"))]
    assert order(messages, meaning=[0.5, 0.5, 0.9, 0.1])[:2] == [3, 2]


def test_what_was_said_at_the_date_of_the_query_comes_first() -> None:
    """A month in the query is compared with when a message was said, and with the dates it tells of."""
    year = NOW.year - 1
    march, june = NOW.replace(year=year, month=3, day=4), NOW.replace(year=year, month=6, day=4)
    told = [memory(1, f"The pump broke in March {year}"), memory(2, f"The pump broke in June {year}")]
    for entries in ([candidate(1, at=march), candidate(2, at=june)], told):
        assert order(entries, query=f"What broke in June {year}?") == [2, 1]


def test_a_number_in_the_query_finds_the_memory_that_has_it() -> None:
    """What only one entry has comes first, however near others are."""
    cases = (
        ("what is on port 8048", "The gate listens on port 8048", "The api listens on port 8084"),
        ("who edits page 88124", "Ida edits https://wiki.test/pages/88124/edit", "Ben edits page 88142 and reads it"),
        ("which linter for C++", "C++ is checked by clang-tidy", "C# is checked by the linter of the editor"),
        ("whose number is 0612 345 678", "Yusuf has the number 0612345678", "Ilse has the number 0612 354 678"),
        ('who wrote "the tide turns"', "The tide turns is by Ana", "Ben wrote that the turns of the tide are late"),
        ("where is src/lib/util.py used", "util.py in src/lib/util.py is used by the worker", "src/lib is used"),
    )
    for query, first, nearer in cases:
        assert order([memory(1, nearer), memory(2, first)], query=query, meaning=[0.9, 0.1]) == [2, 1], query
    both = [memory(1, "The api is on port 8048"), memory(2, "The gate is on port 8048")]
    assert order(both, query="what is on port 8048", meaning=[0.1, 0.9]) == [2, 1], "two have it"


def test_what_is_asked_for_as_it_is_written() -> None:
    """A year, an ordinal and two words with a stroke are no codes."""
    for question in ("What was in 2022?", "on the 3rd floor", "tea and/or coffee", "User's wife", "10 km", "#general"):
        assert exact_parts(question) == (), question
    assert [name for name, _ in look_alikes("does invoice-sync know M.C.?")] == [" invoice sync ", " m c "]
    assert exact_parts("Is LDG-1117 in `app.py`, v2?") == (" app py ", " ldg 1117 ", " v2 ")
    assert " 0612345678 " in exact_form("call 0612 345 678 or 06 12")


def test_other_wordings_find_what_the_question_does_not_say() -> None:
    """The meaning and the words of other wordings count; their numbers and quotes do not."""
    facts = [memory(1, "The train leaves at nine"), memory(2, "Rubbish is collected on Thursdays")]
    asked: dict[str, Any] = {"query": "when must the bins be out", "meaning": [0.4, 0.3]}
    assert order(facts, **asked) == [1, 2]
    assert order(facts, **asked, also=["waste day"], of_others=[0.1, 0.8]) == [2, 1]
    assert order(facts, **asked, also=["rubbish is collected"], of_others=[0.1, 0.1]) == [2, 1]
    ports = [memory(1, "The api has port 8084"), memory(2, "The gate is new")]
    assert (
        order(ports, query="the gate", also=["the gate has port 8084"], meaning=[0.1, 0.8], of_others=[0.1, 0.8])[0]
        == 2
    )


OLD = memory(1, "The team's office is in Zurich", days_ago=90)
NEW = memory(2, "Since March the team's office is in Winterthur", days_ago=10)
OTHER = memory(3, "The printer is on the second floor", days_ago=50)
FACTS, MEANING = [OLD, NEW, OTHER], [0.9, 0.8, -0.5]
OWNERS = [memory(1, "Anna Fuchs owns the service", 90), memory(2, "Hanna Fuchs owns the service", 10), OTHER]
PORTS = [memory(1, "The api listens on port 8084", 90), memory(2, "The api moved to port 9000 now", 10), OTHER]


def test_a_newer_memory_comes_before_the_one_it_replaces() -> None:
    """Both are about one matter, and the newer one says that something has changed."""
    parts = parts_of(FACTS, query="Where is the office?", meaning=MEANING)
    assert parts[1]["replaced"] < 0 < parts[2]["update"]
    assert abs(parts[3]["replaced"]) < 0.1
    cases = (
        (FACTS, "Where is the office?", 2),
        (FACTS, "Where was the office before?", 1),
        (FACTS, "The team's office is in Zurich", 1),
        (FACTS, "the TEAM'S office is in zurich.", 1),
        (OWNERS, "Anna Fuchs owns the service", 1),  # the end of another name is not the name
        (PORTS, "what is on port 8084", 1),
        (PORTS, "Which port does the api use?", 2),
    )
    for facts, query, expected in cases:
        meaning = [0.9, 0.89, -0.5] if facts is OWNERS else MEANING
        assert order(facts, query=query, meaning=meaning)[0] == expected, query
    # People talk about one matter again and again in a conversation.
    said = [candidate(item.seq, item.text, session="a", at=item.at) for item in (OLD, NEW)]
    assert order(said, query="Where is the office?", meaning=[0.9, 0.8]) == [1, 2]


IN_PASSING = memory(4, "Ottoline blew out all seven candles in one go", 10)
AGE = memory(5, "Ottoline is six years old", 90)
RARE = {"ottolin": 3.0, "old": 1.0}


def test_the_newer_of_two_that_stand_out_comes_first() -> None:
    """Nothing but the question says that the two are about one matter: no word of change, and a low likeness."""
    facts, meaning = [AGE, IN_PASSING, OTHER], [0.9, 0.4, -0.9]
    parts = parts_of(facts, query="How old?", meaning=meaning, weights=RARE)
    assert order(facts, query="How old?", meaning=meaning, weights=RARE) == [4, 5, 3]
    assert parts[4]["newer of two"] > 0
    assert parts[5]["newer of two"] == 0
    kite = memory(3, "Ottoline has a kite", 5)
    older_first = (
        ("a third is as near", "How old?", kite, RARE),
        ("the newer lacks most of the words", "How old?", OTHER, {"ottolin": 1.0, "old": 3.0}),
        ("about the past", "How old was she before?", OTHER, RARE),
        ("a common name", "How old?", OTHER, {"ottolin": 0.7, "old": 0.3}),
    )
    for name, query, third, weights in older_first:
        meaning = [0.9, 0.4, 0.38 if third is kite else -0.9]
        assert order([AGE, IN_PASSING, third], query=query, meaning=meaning, weights=weights)[0] == 5, name


def test_a_question_for_a_number_or_a_time_is_answered_by_what_has_one() -> None:
    """An answer seldom repeats the words of its question."""
    entries = [candidate(1, "The old ones are gone"), candidate(2, "It is 7 by now")]
    for query, first in (("How many bikes are there?", 2), ("When does the train leave?", 2), ("What else?", 1)):
        assert order(entries, query=query)[0] == first, query


def test_a_memory_and_its_message_repeat_each_other() -> None:
    """The two are wordings of one matter; one below the other makes room. Two memories of a message both stay."""
    said = candidate(1, "We moved to Graz with both dogs", session="a")
    facts = [memory(2, "They live in Graz"), memory(3, "They have two dogs"), memory(4, "Ida likes tea")]
    parts = parts_of([said, *facts], meaning=[0.7, 0.9, 0.8, 0.1], linked=[(1, 0), (2, 0)])
    assert parts[1]["repeated"] < 0
    assert [parts[seq]["repeated"] for seq in (2, 3, 4)] == [0, 0, 0]


def test_numbers_keep_their_order() -> None:
    """Rare words weigh more; far above the mean nearer is hardly better."""
    weights = rarity({"the": 90, "tea": 3}, ["the", "tea", "samovar"], 100)
    assert 0 < weights["the"] < weights["tea"] < weights["samovar"]
    assert rarity({}, ["tea"], 0)["tea"] > 0
    low, zero, one, four = damped(np.array([-2.0, 0.0, 1.0, 4.0])).tolist()
    assert low < zero == 0 < one < four < 4 * one


TODAY = datetime(2026, 5, 8, 12, tzinfo=UTC)
SAID = (
    ("what happened in March", "2026-03-20", 1),
    ("what happened in March", "2026-04-05", 0.4),
    ("what happened in March", "2026-04-20", 0),
    ("what happened in March", "2026-02-28", 0),
    ("what happened in March", "2025-03-20", 0.5),
    ("what happened in March 2026", "2025-03-20", 0),
    ("what is new since February", "2025-09-03", 0),
    ("what did she show on 3 May 2025", "2025-05-03T18:00", 1),
    ("what did she show on 3 May 2025", "2025-05-02T18:00", 1),
    ("what did she show on 3 May 2025", "2025-05-01T18:00", 0.5),
    ("what did she show on 3 May 2025", "2025-05-09", 0.5),
    ("what did she show on 3 May 2025", "2025-05-20", 0),
    ("who won in 2025", "2025-12-31", 1),
    ("what was the model before February", "2025-09-04", 1),
    ("what was the model before February", "2026-02-03", 0),
    ("what is new since February", "2026-02-03", 1),
    ("what is new since February", "2026-01-03", 0),
    ("in March 2024 or on 3 May 2025", "2024-03-09", 1),
    ("in March 2024 or on 3 May 2025", "2025-05-03", 1),
)
TOLD = (
    ("what happened on 3 May 2025", "We went to the lake yesterday", "2025-05-04", 1),
    ("what happened on 3 May 2025", "We went to the lake last week", "2025-05-08", 1),
    ("what happened on 3 May 2025", "We went to the lake last month", "2025-06-08", 0.5),
    ("what happened on 3 May 2025", "We went to the lake last year", "2026-01-08", 0),
    ("what happened in March 2025", "The office moved last month", "2025-04-20", 1),
    ("what happened in March 2025", "The office moved on 5 June 2025", "2025-06-20", 0),
    ("whose birthday is in October", "Amara's birthday is 3 October", "2024-01-20", 1),
    ("wohin verreisen wir im Sommer", "Im Juli 2026 wandert die Familie in Südtirol", "2026-01-20", 1),
    ("was war im Juli", "Im Juli 2024 war die Familie in Südtirol", "2024-01-20", 0.5),
    ("what happened in March", "The office is blue", "2026-03-05", 0),
)


def test_how_well_dates_agree() -> None:
    """The dates of a query are compared with when an entry was said, and with the dates in its text."""
    for query, at, expected in SAID:
        found = said_match(dates_in(query, TODAY), datetime.fromisoformat(at).replace(tzinfo=UTC))
        assert found == expected, (query, at)
    for query, text, at, expected in TOLD:
        in_text = dates_in(text, datetime.fromisoformat(at).replace(tzinfo=UTC), guesses=True)
        assert text_match(dates_in(query, TODAY, guesses=True), in_text) == expected, (query, text)
    for query in ("in March", "on 29 February", "before 2020", "since last week", "im Sommer"):
        asked = dates_in(query, TODAY, guesses=True)
        for days in range(0, 3_000, 37):
            at = TODAY - timedelta(days)
            assert 0 <= said_match(asked, at) <= 1
            for text in ("yesterday", "on 3 May", "last winter", "in 2020"):
                assert 0 <= text_match(asked, dates_in(text, at)) <= 1
