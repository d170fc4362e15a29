"""What candidates are requested by, their features, and the fitted weights."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from palimpsest.core.errors import EmbedderError, FullTextError
from palimpsest.core.models import Candidate, Fact, Hit, Kind, Memory, Scope, name_key
from palimpsest.core.protocols import Vector
from palimpsest.recall.hits import HitFilter
from palimpsest.store import entries as entry_queries
from palimpsest.text.intents import is_exception
from palimpsest.text.relation_updates import ends_something, may_end, may_have_several, says_ended, without_times
from palimpsest.text.stopwords import change_words
from palimpsest.text.tokenizer import search_tokens

# The fitted numbers of the ranking: weights of the features, and mean vectors of questions and passages.
#
# `benchmarks/fit.py` writes both files and says in them what they were fitted on. Nothing else changes them.

# Keys of the fitted numbers besides the features: the constant of a logistic regression, and the probability that
# counts as a yes.
CONSTANT, THRESHOLD = "constant", "threshold"

# The two sets of weights: for embedders that read whole sentences, and for mean word vectors.
SENTENCE, STATIC = "e5", "static"


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights for one sort of embedder, by the name of the feature.

    Those of the score are for a question "alone" or with other wordings ("also"), and for memories with hints ("hints",
    or "both" with other wordings). `replacement` makes the probability that one text replaces another, `change` the one
    that a memory with hints changes another one with hints, and `match` the one that a text is about what is asked.
    `alike` is as for `ALIKE`, and infinity if the weights were not fitted with this embedder, so that it is not known
    what its cosines say.
    """

    memory: Mapping[str, Mapping[str, float]]
    message: Mapping[str, Mapping[str, float]]
    replacement: Mapping[str, float]
    change: Mapping[str, float]
    match: Mapping[str, float]
    alike: float = math.inf

    def of_memories(self, *, with_others: bool, hinted: float) -> Mapping[str, float]:
        """Return the weights of memories, a share of which is `hinted`.

        All memories of a search have the same weights, or those with hints would stand above the others for nothing.
        """
        plain, full = (self.memory[mode] for mode in (("also", "both") if with_others else ("alone", "hints")))
        return {name: (1 - hinted) * weight + hinted * full.get(name, 0.0) for name, weight in plain.items()}

    def of_messages(self, *, with_others: bool) -> Mapping[str, float]:
        """Return the weights of messages."""
        return self.message["also" if with_others else "alone"]


# The cosine from which on two memories without relations may tell states of one thing, such as where somebody lives. Of
# the lives in benchmarks/lives_in_time.json one pair in twenty that tell other things of one person is as near, and
# half of those that tell states of one thing (a quarter with mean word vectors).
ALIKE = {SENTENCE: 0.28, STATIC: 0.37}


@cache
def weights_for(fingerprint: str) -> Weights:
    """Return the weights for the embedder with this fingerprint."""
    name = STATIC if fingerprint.startswith("local:") else SENTENCE
    is_fitted = fingerprint.startswith(("local:", "e5:"))
    return Weights(**_read("weights.json")["weights"][name], alike=ALIKE[name] if is_fitted else math.inf)


def _read(name: str) -> Any:
    return json.loads((files("palimpsest.recall") / name).read_text("utf-8"))


# What candidates are requested by, and the features they are ranked by.

# A vector shorter than this has no direction. Far below the rounding of float32 for vectors of length 1.
TINY = 1e-9

# How many entries the embedder's mean of passages in general counts for in the centre of a collection: twenty vectors
# have a mean of their own.
PRIOR_ENTRIES = 20

# The same for the centre of questions, which moves with the collection more slowly: by as many entries it has moved
# half of the way. Chosen on everyday and work memories; between 100 and 300 hardly anything changes.
QUESTION_PRIOR = 150

# One number for each candidate: shape (n,), float32 or float64.
Column: TypeAlias = npt.NDArray[Any]

# The smallest standard deviation of cosines: of two memories that are equally near, neither is far better. It is less
# than half of the usual deviation, which is 0.12.
MIN_SPREAD = 0.05


@dataclass(frozen=True, slots=True)
class PoolSize:
    """How many entries are requested by meaning and by words, and how many of the nearest are kept (None: all)."""

    by_meaning: int
    by_words: int
    kept: int | None = None


@dataclass(frozen=True, slots=True)
class CandidateRequest:
    """What to retrieve candidates for.

    `words` are the search tokens to look for, and `names` those of the people it names. `vectors`, of shape (n, dims),
    are those of the question and of its other wordings before centring, or None if they could not be embedded. `kind`
    and `filter` limit which entries are candidates. With `whole_texts` the request is a text to compare with others,
    not a question: `vectors` has that of a passage alone, and all the words of each candidate are returned. With
    `as_of` the candidates are what was believed then. With `follows_links` what a candidate is linked with is a
    candidate too. `clause` are the vectors of the question without its clause that says when, and of the clause. With
    `with_closed` memories that were replaced or ended are candidates too, `with_dropped` also plans that never held.
    """

    scope: Scope
    words: Sequence[str]
    vectors: Vector | None
    pool: PoolSize
    names: AbstractSet[str] = frozenset()
    kind: Kind | None = None
    filter: HitFilter | None = None
    whole_texts: bool = False
    as_of: datetime | None = None
    follows_links: bool = False
    clause: Vector | None = None
    with_closed: bool = False
    with_dropped: bool = False


@dataclass(frozen=True, slots=True)
class Candidates:
    """The n candidates of one query with everything they are ranked by. All columns are in the order of `entries`.

    `vectors` are those of the texts and `contexts` those of the texts in their context, both of shape (n, dims);
    `queries`, of shape (m, dims), are those of the question and of its other wordings. All are centred, and None if
    nothing was embedded. A row without a vector is zero
    and False in `has_vector`. `bm25` has shape (n,). `words` are search tokens of each text and `words_in_context`
    those of its context too, at least the ones that the query asks for; `weights` are the inverse document frequencies
    of the query's words among the `collection` entries. `outdated` are the ids of messages whose facts were all
    superseded. `source_pairs` are pairs of rows: a memory, and a message it was learned from. `link_pairs` are pairs of
    rows of memories with a link between them, in both directions. `past` holds the hit of each candidate as it was at
    the instant of `as_of`, and is None without one. `errors` say what could not be used. `states` are the relations
    that each memory states, as `states_of` returns them, by its id. `near` are the ids of those that state a relation
    far nearer to the question than most. `clause` are the centred vectors of the question without its clause that says
    when, and of the clause; None if it has none.
    """

    entries: Sequence[Candidate]
    vectors: Vector | None
    contexts: Vector | None
    has_vector: npt.NDArray[np.bool_]
    queries: Vector | None
    bm25: npt.NDArray[np.float32]
    words: Sequence[frozenset[str]]
    words_in_context: Sequence[frozenset[str]]
    weights: Mapping[str, float]
    collection: int
    outdated: AbstractSet[str] = frozenset()
    source_pairs: Sequence[tuple[int, int]] = ()
    past: Mapping[int, Hit] | None = None
    errors: Sequence[FullTextError | EmbedderError] = ()
    link_pairs: Sequence[tuple[int, int]] = ()
    states: Mapping[str, AbstractSet[tuple[str, str, str]]] = field(default_factory=dict[str, Any])
    near: AbstractSet[str] = frozenset()
    clause: Vector | None = None


@dataclass(frozen=True, slots=True)
class Centre:
    """The mean vectors that questions and passages are compared less of, each of shape (dims,); None for no mean."""

    question: Vector | None = None
    passage: Vector | None = None

    @classmethod
    def of(cls, fingerprint: str, entries: int, mean: Vector | None) -> Centre:
        """Return the centre of a collection of so many entries with this mean.

        The mean of few vectors is unreliable: of a single vector it is that vector, and centring would leave nothing.
        So it is mixed with the embedder's mean of passages in general, or shrunk if that is not known. The centre of
        questions is their mean in general, moved with the collection.
        """
        means = _means_in_general(fingerprint)
        if mean is None:
            return means
        share = entries / (entries + PRIOR_ENTRIES)
        passage = share * mean + (0.0 if means.passage is None else (1 - share) * means.passage)
        if means.question is None or means.passage is None:
            return cls(passage, passage)
        # In a collection about one thing, everyday questions would otherwise all lie beside it.
        moved = entries / (entries + QUESTION_PRIOR) * (mean - means.passage)
        return cls((means.question + moved).astype(np.float32), passage)


@cache
def _means_in_general(fingerprint: str) -> Centre:
    """Return the means of questions and of passages in general that are known of the embedder."""
    known = _read("means.json")["means"].get(fingerprint, {})
    return Centre(**{name: np.array(mean, dtype=np.float32) for name, mean in known.items()})


def centred(vectors: Vector, mean: Vector | None) -> Vector:
    """Return vectors of shape (..., dims) minus the mean, each of length 1 again.

    Removing the common component (Mu & Viswanath 2018, "All-but-the-Top") spreads out what a small embedder crowds
    together.
    """
    moved = vectors if mean is None else vectors - mean
    lengths = np.linalg.norm(moved, axis=-1, keepdims=True)
    return (moved / np.maximum(lengths, TINY)).astype(np.float32)


def z_scores(values: Column, counted: Column | None = None, min_spread: float = TINY) -> Column:
    """Return values in standard deviations from their mean; zeros if they are all alike.

    The mean and the deviation are those of the `counted` rows. A deviation below `min_spread` counts as that.
    """
    sample = values if counted is None else values[counted]
    return (values - sample.mean()) / max(float(sample.std()), min_spread)


def rarity(frequency: Mapping[str, int], words: Iterable[str], entries: int) -> dict[str, float]:
    """Return the inverse document frequency of each word among `entries` entries; always positive."""
    return {word: math.log(1 + max(entries, 1) / (1 + frequency.get(word, 0))) for word in words}


def linked_rows(candidates: Sequence[Candidate], learned_from: Iterable[tuple[str, str]]) -> list[tuple[int, int]]:
    """Return the rows of each memory and message that are both candidates, given pairs of their ids."""
    rows = {(entry.kind, entry.owner_id): row for row, entry in enumerate(candidates)}
    pairs = [(rows.get(("memory", memory)), rows.get(("message", message))) for memory, message in learned_from]
    return [(memory, message) for memory, message in pairs if memory is not None and message is not None]


def stacked(vectors: Sequence[Vector | None]) -> tuple[Vector | None, npt.NDArray[np.bool_]]:
    """Return vectors as one matrix of shape (n, dims), with zeros for None, and which rows have one.

    The matrix is None if there is no vector at all.
    """
    has_vector = np.array([vector is not None for vector in vectors], dtype=np.bool_)
    empty = next((np.zeros_like(vector) for vector in vectors if vector is not None), None)
    if empty is None:
        return None, has_vector
    return np.stack([empty if vector is None else vector for vector in vectors]), has_vector


# The vectors of memories and messages in the form in which they are compared with each other.


def centred_vectors(
    conn: Connection, embedder: str, scope: Scope, kind: Kind, owner_ids: Sequence[str]
) -> dict[str, Vector]:
    """Return the centred unit vectors of texts, each of shape (dims,), by the id of the memory or message.

    `embedder` is the fingerprint of the embedder. Texts that it has not embedded yet are left out.
    """
    own = entry_queries.own_vectors(conn, embedder, kind, owner_ids)
    if not own:
        return {}
    _, centre = stored_centre(conn, embedder, scope)
    return dict(zip(own, centred(np.stack(list(own.values())), centre.passage), strict=True))


def stored_centre(conn: Connection, embedder: str, scope: Scope) -> tuple[entry_queries.Centre, Centre]:
    """Return the mean of a user's stored vectors, and the centre that vectors are compared around."""
    stored = entry_queries.centre(conn, scope.user_id, embedder)
    return stored, Centre.of(embedder, stored.entries, stored.mean)


# Order candidates by a score that is a sum of parts.
#
# Nothing here reads or writes. Because a score is a sum of named parts, every place in the order can be explained.
# Searches are scored by `score.SearchScoring`, near-duplicates by `similar.likeness_parts`. A new feature is a column
# of `Candidates` and a part of a score.


def best_first(scores: Column) -> list[int]:
    """Return the rows with the highest score first; those of equal score in their order."""
    return cast("list[int]", np.argsort(-scores, kind="stable").tolist())


class Ranked(NamedTuple):
    """A candidate and its score, with the columns of parts that sum up to it and the candidate's row in them."""

    candidate: Candidate
    score: float
    row: int
    columns: Mapping[str, Column]

    @property
    def parts(self) -> dict[str, float]:
        """Return what speaks for and against the candidate, by name."""
        return {name: float(column[self.row]) for name, column in self.columns.items()}

    def has(self, part: str) -> bool:
        """Return whether a part, by its name, speaks for or against the candidate."""
        column = self.columns.get(part)
        return column is not None and bool(column[self.row])


def rank(candidates: Candidates, parts_of: Callable[[Candidates], Mapping[str, Column]]) -> list[Ranked]:
    """Return the candidates, best first; those of equal score by their number.

    `parts_of` returns what speaks for and against each candidate, by name; the score is the sum of these parts.
    Adding normalized scores beats reciprocal-rank fusion here (Bruch et al. 2023 find the same).
    """
    entries = candidates.entries
    if not entries:
        return []
    columns = parts_of(candidates)
    scores = cast("Column", np.sum(list(columns.values()), axis=0))
    order = cast("list[int]", np.lexsort((np.array([candidate.seq for candidate in entries]), -scores)).tolist())
    return [Ranked(entries[row], float(scores[row]), row, columns) for row in order]


# How probable it is that a newer text replaces an older one.
#
# "The office is in Winterthur now" replaces "The office is in Zurich": the two are about one matter, they share the
# words of it, each is the nearest to the other, and the newer one says that something has changed. A logistic
# regression over these signs orders updates in a search and names what a new memory may contradict.

# One number for each pair of n texts: shape (n, n), with a row for the newer and a column for the older one.
Matrix: TypeAlias = npt.NDArray[Any]


# More words of change do not make a change more certain.
MAX_CHANGE_WORDS = 3


# The probability if the texts differ in one word, as "User lives in Lyon" and "User lives in Nice" do. The data set has
# no such updates, and people store them all the time.
OTHER_VALUE = 0.8

# The probability if the newer text says that what the older one says has ended. Such texts are about one thing and so
# look no more alike than two that both hold.
ENDED = 0.8

# How many words such texts have in common at least: one word says nothing.
MIN_COMMON = 2


def pair_features(
    vectors: Vector, words: Sequence[AbstractSet[str]], texts: Sequence[str], is_older: Matrix
) -> dict[str, Matrix]:
    """Return the features of each pair of n texts, by name.

    `vectors` of shape (n, dims) are centred unit vectors, `words` the search tokens of each text. `is_older[j, i]` is
    whether text i is older than text j.
    """
    cosines, shared = vectors @ vectors.T, shared_words(words)
    likeness = cosines + shared  # each alone often takes another text for the nearest
    changes = np.array([min(change_words(text), MAX_CHANGE_WORDS) for text in texts], dtype=np.float32)[:, np.newaxis]
    return {
        "cosine": cosines,
        "shared": shared,
        "nearest older": _is_nearest(likeness, is_older, axis=1),
        "nearest newer": _is_nearest(likeness, is_older, axis=0),
        "change words": np.broadcast_to(changes, cosines.shape),
        "changed": np.broadcast_to(np.minimum(changes, 1), cosines.shape),
    }


def replacement_probability(
    vectors: Vector,
    words: Sequence[AbstractSet[str]],
    texts: Sequence[str],
    is_older: Matrix,
    weights: Mapping[str, float],
) -> Matrix:
    """Return the probability that the newer text of each pair replaces the older one; 0 where it is not newer."""
    is_older = is_older & ~_one_holds_once(texts)
    fitted = probability(pair_features(vectors, words, texts, is_older), weights)
    return np.where(is_older, np.maximum(fitted, replaced_by_words(words, texts, is_older)), 0.0)


def replaced_by_words(words: Sequence[AbstractSet[str]], texts: Sequence[str], is_older: Matrix) -> Matrix:
    """Return the probability that the newer text of each pair replaces the older one as far as words alone say it."""
    # One allergy is not another value of the other: somebody may have both.
    many = np.array([may_have_several(text) for text in texts], dtype=bool)
    another = np.maximum(_differ_by_one(words), _at_another_time(texts, is_older)) * ~np.logical_and.outer(many, many)
    return np.where(_one_holds_once(texts), 0.0, np.maximum(OTHER_VALUE * another, ENDED * _ended(texts, is_older)))


# How near the next memory counts as at least, among many and among few: else one would stand out by being alone.
UNRELATED, AMONG_FEW, FEW = 0.25, 0.45, 5


def change_features(cosines: Column, new: Memory | Fact, older: Sequence[Memory | Fact]) -> dict[str, Column]:
    """Return the signs that a memory with hints changes each of n older ones, by name. Each has the shape (n,).

    `cosines` are those of the keys. A key contains the hints, so two that answer the same question are near, whatever
    their words. "lead" is how much nearer one is than the next, and "kept" how much of what its relations lead to the
    new text still says.
    """
    words, sources = frozenset(search_tokens(new.text)), {name_key(each.source) for each in new.relations}
    ends = [frozenset(search_tokens(" ".join(each.destination for each in one.relations))) for one in older]
    best = np.sort(np.append(cosines, UNRELATED if len(older) >= FEW else AMONG_FEW))[::-1]
    has_source = [any(name_key(each.source) in sources for each in one.relations) for one in older]
    return {
        "cosine": cosines,
        "lead": cosines - np.where(cosines == best[0], best[1], best[0]),
        "ends": np.full(len(older), float(ends_something(new.text, new.relations))),
        "same source": np.array(has_source, dtype=np.float64),
        "kept": np.array([len(words & end) / max(len(end), 1) for end in ends]),
    }


def probability(features: Mapping[str, Matrix], weights: Mapping[str, float]) -> Matrix:
    """Return the fitted probability that the newer text of each pair replaces the older one."""
    logits = weights[CONSTANT] + sum(weights[name] * column for name, column in features.items())
    return 1 / (1 + np.exp(-logits))


def shared_words(words: Sequence[AbstractSet[str]]) -> Matrix:
    """Return for each pair the weight of the common words over the weight of the lighter text; between 0 and 1.

    Words that fewer of the texts have weigh more.
    """
    frequency = Counter(word for text_words in words for word in text_words)
    weights = np.array([math.log(1 + len(words) / (1 + count)) for count in frequency.values()], dtype=np.float32)
    has_word = word_matrix(words, frequency)
    common = (has_word * weights) @ has_word.T
    totals = common.diagonal()
    lighter = np.minimum(totals[:, np.newaxis], totals[np.newaxis, :])
    return np.divide(common, lighter, out=np.zeros_like(common), where=lighter > 0)


def word_matrix(words: Sequence[AbstractSet[str]], columns: Iterable[str]) -> Matrix:
    """Return 1 for each text and word that the text has, else 0: shape (n, number of columns)."""
    order = {word: column for column, word in enumerate(columns)}
    has_word = np.zeros((len(words), len(order)), dtype=np.float32)
    for row, text_words in enumerate(words):
        has_word[row, [order[word] for word in text_words]] = 1.0
    return has_word


def _ended(texts: Sequence[str], is_older: Matrix) -> Matrix:
    """Return 1 for each pair whose newer text says that what the older one says has ended, else 0."""
    ended = np.zeros(is_older.shape, dtype=np.float32)
    ends = np.array([may_end(text) for text in texts])[:, np.newaxis]
    for newer, older in np.argwhere(is_older & ends).tolist():
        ended[newer, older] = says_ended(texts[newer], texts[older])
    return ended


def _differ_by_one(words: Sequence[AbstractSet[str]]) -> Matrix:
    """Return 1 for each pair of texts that have all words but one in common, and two or more in common; else 0."""
    has_word = word_matrix(words, frozenset[str]().union(*words))
    common = has_word @ has_word.T
    sizes = common.diagonal()
    larger = np.maximum(sizes[:, np.newaxis], sizes[np.newaxis, :])
    return ((common >= MIN_COMMON) & (larger - common == 1)).astype(np.float32)


def _at_another_time(texts: Sequence[str], is_older: Matrix) -> Matrix:
    """Return 1 for each pair of texts that differ in days, times and numbers alone, as two times of a meeting do."""
    rest = [without_times(text) for text in texts]
    moved = np.zeros(is_older.shape, dtype=np.float32)
    for newer, older in np.argwhere(is_older).tolist():
        moved[newer, older] = bool(rest[newer]) and rest[newer] == rest[older] and texts[newer] != texts[older]
    return moved


def _one_holds_once(texts: Sequence[str]) -> Matrix:
    """Return for each pair whether one text tells what holds for one time only, and the other what is usual."""
    once = np.array([is_exception(text) for text in texts], dtype=bool)
    return np.not_equal.outer(once, once)


def _is_nearest(likeness: Matrix, is_older: Matrix, axis: int) -> Matrix:
    """Return 1 for each pair whose older text (axis 1) or newer text (axis 0) is the nearest of its sort, else 0."""
    comparable = np.where(is_older, likeness, -np.inf)
    return ((comparable == comparable.max(axis=axis, keepdims=True)) & is_older).astype(np.float32)
