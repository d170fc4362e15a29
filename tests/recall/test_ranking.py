"""Ranking, as pure functions over numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from palimpsest.core.models import Candidate
from palimpsest.recall.features import Candidates, Centre, Ranked, Weights, centred, rank, rarity, squash
from palimpsest.recall.query import ParsedQuery
from palimpsest.recall.score import SUPERSEDED, SearchScoring, damped
from palimpsest.text.dates.date_finder import dates_in
from palimpsest.text.stopwords import asks_for_the_past
from palimpsest.text.tokenizer import query_tokens, search_tokens
from tests.support.scripted_model import NOW
from tests.support.watched_embedder import WholeTextEmbedder

WEIGHTS = Weights(
    memory={
        "meaning": 1,
        "coverage": 1,
        "speaker": 1,
        "number": 1,
        "said": 1,
        "told": 1,
        "linked": 1,
        "linked meaning": 1,
        "linked coverage": 1,
        "replaced": -3,
        "update": 2,
        "former": 2,
    },
    message={
        "meaning": 1,
        "context": 1,
        "words": 1,
        "coverage in context": 1,
        "speaker": 1,
        "session": 1,
        "question": -1,
        "answers": 1,
        "answer type": 1,
        "length": 1,
        "said": 1,
        "told": 1,
    },
    replacement={
        "constant": -10,
        "cosine": 3,
        "shared": 3,
        "change words": 1,
        "changed": 2,
        "nearest older": 3,
        "nearest newer": 2,
    },
    relevance={},
)
"""Round weights, so that these tests do not depend on what was fitted."""


def test_centring_spreads_out_crowded_vectors() -> None:
    """Centring removes the common component and leaves each vector with length 1."""
    vectors = np.array([[1, 0.1], [1, -0.1]], dtype=np.float32)

    result = centred(vectors, np.array([1, 0], dtype=np.float32))

    np.testing.assert_allclose(result, [[0, 1], [0, -1]], atol=1e-6)
    assert result.dtype == np.float32
    assert float(result[0] @ result[1]) == pytest.approx(-1)


@pytest.mark.parametrize("mean", [None, np.zeros(2, dtype=np.float32)], ids=["none", "zero"])
def test_without_a_mean_only_the_length_changes(mean: np.ndarray | None) -> None:
    """A small collection has no mean yet; its vectors only get length 1."""
    np.testing.assert_allclose(centred(np.array([3, 4], dtype=np.float32), mean), [0.6, 0.8], atol=1e-6)


def test_a_vector_that_equals_the_mean_becomes_zero() -> None:
    """A vector without a direction is similar to nothing, and does not divide by zero."""
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
    return Candidate(seq, known.pop("kind", "message"), f"id{seq}", known.pop("at", NOW), chars=150, text=text, **known)


def memory(seq: int, text: str, days_ago: float = 0) -> Candidate:
    """Return a memory."""
    return Candidate(seq, "memory", f"id{seq}", NOW - timedelta(days=days_ago), text=text)


def ranked(
    entries: Sequence[Candidate], *, query: str = "", speakers: Set[str] = frozenset(), **features: Any
) -> list[Ranked]:
    """Return the candidates of a search, best first."""
    words = query_tokens(query)
    parsed = ParsedQuery(
        text=query,
        words=tuple(dict.fromkeys(words)),
        names=frozenset(token for name in speakers for token in search_tokens(name)),
        speakers=frozenset(speakers),
        dates=dates_in(query, NOW),
        is_english=True,
        is_about_the_past=asks_for_the_past(query),
    )
    return rank(candidates(entries, **features), SearchScoring(parsed, NOW, WEIGHTS, WholeTextEmbedder()))


def order(entries: Sequence[Candidate], **features: Any) -> list[int]:
    """Return the numbers of candidates, best first."""
    return [item.candidate.seq for item in ranked(entries, **features)]


def candidates(
    entries: Sequence[Candidate],
    *,
    meaning: Sequence[float] | None = None,
    bm25: Sequence[float] | None = None,
    words: Sequence[set[str]] | None = None,
    weights: Mapping[str, float] | None = None,
    outdated: Set[str] = frozenset(),
    linked: Sequence[tuple[int, int]] = (),
) -> Candidates:
    """Return candidates with their features; `meaning` holds cosines with the query."""
    query_vector = vectors = None
    if meaning is not None:
        query_vector = np.array([1, 0], dtype=np.float32)
        vectors = np.array([[cosine, np.sqrt(1 - cosine**2)] for cosine in meaning], dtype=np.float32)
    texts = [frozenset(text) for text in words or [search_tokens(entry.text) for entry in entries]]
    return Candidates(
        entries,
        vectors,
        vectors,
        np.full(len(entries), vectors is not None),
        query_vector,
        np.array(bm25 or [0.0] * len(entries), dtype=np.float32),
        texts,
        texts,
        weights or {},
        len(entries),
        outdated,
        linked,
    )


THREE = [candidate(1), candidate(2), candidate(3)]


def test_a_match_in_meaning_and_in_words_comes_first() -> None:
    """The score is a sum: the best match in both beats the best match in one."""
    words = [{"tea"}, {"tea", "green"}, set[str]()]
    numbers = order(THREE, meaning=[0.9, 0.8, 0.1], bm25=[1.0, 3.0, 0.0], words=words, weights={"tea": 1, "green": 2})
    assert numbers == [2, 1, 3]


def test_a_score_is_the_sum_of_its_parts() -> None:
    """The explanation of a score is what the score was made of."""
    words = [{"tea"}, set[str](), {"green"}]
    features: dict[str, Any] = {
        "meaning": [0.2, 0.8, 0.1],
        "bm25": [1.0, 0.0, 2.0],
        "weights": {"tea": 1, "green": 2},
    }
    for item in ranked(THREE, words=words, outdated={"id2"}, speakers={"Ana"}, **features):
        assert item.score == pytest.approx(sum(item.parts.values()), abs=1e-5)
        assert item.parts["superseded"] == (-SUPERSEDED if item.candidate.seq == 2 else 0)


@pytest.mark.parametrize("meaning", [None, [0.5, 0.5, 0.5]], ids=["no vectors", "all alike"])
def test_equal_candidates_are_ordered_by_number(meaning: list[float] | None) -> None:
    """Equal scores do not divide by zero, and neither does a search while the embedder is down."""
    assert order(THREE, meaning=meaning) == [1, 2, 3]
    assert order([], meaning=[]) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"speaker": "Ana"}, {"speaker": "Ben"}),
        ({"speaker": "Ana", "kind": "memory"}, {"speaker": "Ben", "kind": "memory"}),
        ({"text": "Ana paints", "kind": "memory"}, {"text": "Ben paints", "kind": "memory"}),
        ({}, {"is_question": True}),
        ({"at": NOW - timedelta(days=1)}, {"at": NOW - timedelta(days=400)}),
    ],
    ids=["who is asked about", "whom a memory is about", "whom it names", "an answer before a question", "the newer"],
)
def test_of_two_similar_candidates_one_comes_first(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Each property besides likeness counts by itself."""
    assert order([candidate(1, **second), candidate(2, **first)], speakers={"Ana"}) == [2, 1]


def test_a_sentence_comes_before_a_greeting() -> None:
    """A message that says next to nothing loses score. A memory is short by nature and does not."""
    greeting, sentence = candidate(1)._replace(chars=12), candidate(2)
    assert order([greeting, sentence]) == [2, 1]
    assert ranked([memory(1, "Hi")])[0].parts["length"] == 0


def test_a_candidate_of_a_relevant_session_comes_first() -> None:
    """Of two similar messages, the one whose session is about the subject comes first."""
    messages = [
        candidate(1, session="b"),
        candidate(2, session="a"),
        candidate(3, session="a"),
        candidate(4, session="b"),
    ]
    assert order(messages, meaning=[0.5, 0.5, 0.9, 0.1])[:2] == [3, 2]


def test_what_was_said_at_the_date_of_the_query_comes_first() -> None:
    """A month in the query is compared with when a message was said, and with the dates it tells of."""
    march, june = NOW.replace(month=3, day=4), NOW.replace(month=6, day=4)
    asked = f"What broke in June {NOW.year - 1}?"
    said = [candidate(1, at=march.replace(year=NOW.year - 1)), candidate(2, at=june.replace(year=NOW.year - 1))]
    assert order(said, query=asked) == [2, 1]
    told = [memory(1, "The pump broke in March 2025"), memory(2, f"The pump broke in June {NOW.year - 1}")]
    assert order(told, query=asked) == [2, 1]


def test_a_number_in_the_query_finds_the_memory_that_has_it() -> None:
    """Of two services that sound alike, the one with the port of the query comes first."""
    services = [memory(1, "The api listens on port 8084"), memory(2, "The gate listens on port 8048")]
    weights = {"port": 0.4, "8048": 1.1}
    assert order(services, query="what is on port 8048", meaning=[0.5, 0.5], weights=weights) == [2, 1]


OLD = memory(1, "The team's office is in Zurich", days_ago=90)
NEW = memory(2, "Since March the team's office is in Winterthur", days_ago=10)
OTHER = memory(3, "The printer is on the second floor", days_ago=50)
FACTS, MEANING = [OLD, NEW, OTHER], [0.9, 0.8, -0.5]


def test_a_newer_memory_comes_before_the_one_it_replaces() -> None:
    """Both are about one matter, and the newer one says that something has changed."""
    parts = {item.candidate.seq: item.parts for item in ranked(FACTS, query="Where is the office?", meaning=MEANING)}

    assert order(FACTS, query="Where is the office?", meaning=MEANING)[0] == 2
    assert parts[1]["replaced"] < 0 < parts[2]["update"]
    assert abs(parts[3]["replaced"]) < 0.1


@pytest.mark.parametrize(
    "query",
    ["Where was the office before?", "The team's office is in Zurich", "the TEAM'S office is in zurich."],
    ids=["the past", "the exact text", "the exact text in other case"],
)
def test_an_older_memory_comes_first_if_it_is_asked_for(query: str) -> None:
    """A question about the past, and the exact words of the older memory, ask for the older one."""
    assert order(FACTS, query=query, meaning=MEANING)[0] == 1


def test_the_exact_text_is_made_of_whole_words() -> None:
    """The end of another name is not the name."""
    owners = [memory(1, "Anna Fuchs owns the service", 90), memory(2, "Hanna Fuchs owns the service", 10), OTHER]
    assert order(owners, query="Anna Fuchs owns the service", meaning=[0.9, 0.89, -0.5])[0] == 1


def test_a_number_of_the_older_memory_asks_for_it() -> None:
    """The update about port 9000 does not take the place of the memory that has port 8084."""
    ports = [memory(1, "The api listens on port 8084", 90), memory(2, "The api moved to port 9000 now", 10), OTHER]
    assert order(ports, query="what is on port 8084", meaning=MEANING)[0] == 1
    assert order(ports, query="Which port does the api use?", meaning=MEANING)[0] == 2


def test_what_is_said_in_one_session_replaces_nothing() -> None:
    """People talk about one matter again and again in a conversation."""
    old, new = (
        candidate(seq, text, session="a", at=at) for seq, text, at in [(1, OLD.text, OLD.at), (2, NEW.text, NEW.at)]
    )
    assert order([old, new], query="Where is the office?", meaning=[0.9, 0.8]) == [1, 2]


IN_PASSING = memory(4, "Ottoline blew out all seven candles in one go", 10)
AGE = memory(5, "Ottoline is six years old", 90)
RARE = {"ottolin": 3.0, "old": 1.0}


def test_the_newer_of_two_that_stand_out_comes_first() -> None:
    """Nothing but the question says that the two are about one matter: no word of change, and a low likeness."""
    facts, meaning = [AGE, IN_PASSING, OTHER], [0.9, 0.4, -0.9]
    parts = {item.candidate.seq: item.parts for item in ranked(facts, query="How old?", meaning=meaning, weights=RARE)}

    assert order(facts, query="How old?", meaning=meaning, weights=RARE) == [4, 5, 3]
    assert parts[4]["newer of two"] > 0
    assert parts[5]["newer of two"] == 0


@pytest.mark.parametrize(
    ("query", "third", "weights"),
    [
        ("How old?", memory(3, "Ottoline has a kite", 5), RARE),
        ("How old?", OTHER, {"ottolin": 1.0, "old": 3.0}),
        ("How old was she before?", OTHER, RARE),
        ("How old?", OTHER, {"ottolin": 0.7, "old": 0.3}),
    ],
    ids=["a third is as near", "the newer lacks most of the words", "about the past", "a common name"],
)
def test_the_older_of_two_stays_first(query: str, third: Candidate, weights: dict[str, float]) -> None:
    """Where the two do not stand out together, the older one is the better answer."""
    facts, meaning = [AGE, IN_PASSING, third], [0.9, 0.4, 0.38 if third is not OTHER else -0.9]
    assert order(facts, query=query, meaning=meaning, weights=weights)[0] == 5


def test_the_answer_to_a_question_is_found_by_the_question() -> None:
    """An answer seldom repeats the words of its question. Only the next message of the same session answers it."""
    asked = candidate(1, "Where did you get the bike?", session="a", is_question=True)
    answer, later, elsewhere = (
        candidate(seq, "At the market", session=session) for seq, session in [(2, "a"), (3, "a"), (4, "b")]
    )
    entries = [asked, answer, later, elsewhere]

    parts = {item.candidate.seq: item.parts for item in ranked(entries, meaning=[0.9, 0.1, 0.1, 0.1])}

    assert parts[2]["answers"] > 0
    assert parts[1]["answers"] == parts[3]["answers"] == parts[4]["answers"] == 0


@pytest.mark.parametrize("query", ["How many bikes are there?", "When does the train leave?"])
def test_what_can_hold_the_answer_comes_first(query: str) -> None:
    """A question for a number or a time is answered by a message that has one."""
    assert order([candidate(1, "The old ones are gone"), candidate(2, "It is 7 by now")], query=query)[0] == 2
    assert order([candidate(1, "The old ones are gone"), candidate(2, "It is 7 by now")], query="What else?")[0] == 1


def test_far_above_the_mean_nearer_is_hardly_better() -> None:
    """The logarithm keeps the order and the sign, and one very near text does not outweigh everything else."""
    damped_scores = damped(np.array([-2.0, 0.0, 1.0, 4.0]))

    assert damped_scores[0] < damped_scores[1] == 0 < damped_scores[2] < damped_scores[3]
    assert damped_scores[3] - damped_scores[2] < 3 * damped_scores[2]


def test_a_memory_is_found_by_the_message_it_was_learned_from() -> None:
    """The two are wordings of one matter, so a match of the one raises the other."""
    said = candidate(1, "My dentist is Dr Kofler in Herrengasse", session="a")
    learned, other = memory(2, "Kofler treats the user"), memory(3, "Moser treats the user")
    entries, words = [said, learned, other], {"dentist": 2.0, "treat": 0.1}

    parts = {item.candidate.seq: item.parts for item in ranked(entries, weights=words, linked=[(1, 0)])}

    assert parts[2]["linked coverage"] > parts[3]["linked coverage"] == 0


def test_what_repeats_a_hit_above_it_makes_room() -> None:
    """A message below its memory says little that is new. Two memories of one message are two facts, and both stay."""
    said = candidate(1, "We moved to Graz with both dogs", session="a")
    first, second, other = memory(2, "They live in Graz"), memory(3, "They have two dogs"), memory(4, "Ida likes tea")
    entries, meaning = [said, first, second, other], [0.7, 0.9, 0.8, 0.1]

    parts = {item.candidate.seq: item.parts for item in ranked(entries, meaning=meaning, linked=[(1, 0), (2, 0)])}

    assert parts[1]["repeated"] < 0
    assert [parts[seq]["repeated"] for seq in (2, 3, 4)] == [0, 0, 0]


def test_rare_words_weigh_more() -> None:
    """The inverse document frequency is highest for a word that occurs nowhere."""
    weights = rarity({"the": 90, "tea": 3}, ["the", "tea", "samovar"], 100)
    assert 0 < weights["the"] < weights["tea"] < weights["samovar"]
    assert rarity({}, ["tea"], 0)["tea"] > 0


def test_squashing_keeps_the_order_between_zero_and_one() -> None:
    """Scores in a reply lie between 0 and 1, in the order of the scores before."""
    scores = [squash(score) for score in (-30.0, -2.0, -0.1, 0.0, 0.1, 2.0, 30.0)]

    assert scores == sorted(scores)
    assert len(set(scores)) == len(scores)
    assert all(0 < score < 1 for score in scores)
    assert squash(0) == 0.5
