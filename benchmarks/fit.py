"""Fit the weights of the ranking, and write them with what they were fitted on.

    python benchmarks/fit.py --locomo locomo.json --embedder e5
    python benchmarks/fit.py --locomo locomo.json --embedder e5 static --write
    python benchmarks/fit.py --changes --write
    python benchmarks/fit.py --means --write

The cases are the questions about the personas of `everyday.json` and `work.json`, without and with hints and other
wordings, also in small memories of a few of their facts and in one memory of all, and about the conversations of a
LoCoMo file, once with the turns alone and once with the facts of the data set. Each figure is printed twice: fitted,
and with the persona or conversation left out whose questions are asked. LoCoMo (CC BY-NC) is
not part of this project; of it, only the weights remain. `--means` measures the mean vectors of questions and passages
over the texts beside this file instead.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

import embedders
from fitting import cases, match, order, pairs
from fitting.cases import Case
from fitting.order import Fitted
from locomo import read
from measures.hand_written import read_data
from measures.personas import read_far_off, read_personas
from palimpsest.core.protocols import Embedder
from palimpsest.recall.features import SENTENCE, STATIC, Weights

HERE = Path(__file__).parent
FACTS = [HERE / "everyday.json", HERE / "work.json"]
TARGET = HERE.parent / "server" / "palimpsest" / "recall"
SETS = {"e5": SENTENCE, "static": STATIC}
DIGITS, DIGITS_OF_MEANS = 3, 5
TEXTS_OF_MEANS = "paraphrases.json, languages.json and updates.json"

# The modes, and the one whose weights each begins with.
PRIOR = {"alone": "", "hints": "alone", "also": "alone", "both": "also"}


async def _cases(locomo: Path, embedder: str) -> list[Case]:
    found: list[Case] = []
    personas, far_off = read_personas(FACTS), read_far_off(half=1)
    for persona in personas:
        for family in ("facts", "hinted", "said"):
            found += await cases.of_persona(persona, embedder, far_off, family=family)
        found += await cases.of_small_memories(persona, embedder, far_off)
    for with_hints in (False, True):
        found += await cases.of_all(personas, embedder, with_hints=with_hints)
    for facts in (False, True):
        for conversation in read(locomo):
            found += await cases.of_conversation(conversation, embedder, far_off, facts=facts)
    return found


def fit(found: list[Case], embedder: str) -> Weights:
    """Fit all weights of one embedder, and print the figures.

    Those of a mode with help begin with those of the mode with less of it: no data set has other wordings for
    conversations, or hints for messages.
    """
    replacement = pairs.fit(read_personas(FACTS), embedders.open_named(embedder))
    fitted: dict[str, Fitted] = {}
    for mode, prior in PRIOR.items():
        print(f"\n### {mode}")
        of_mode = [case for case in found if case.mode == mode]
        fitted[mode] = order.fit(of_mode, replacement, fitted[prior] if prior else None)
    return Weights(
        {mode: fitted[mode].weights("memory") for mode in PRIOR},
        {mode: fitted[mode].weights("message") for mode in ("alone", "also")},
        replacement.weights,
        pairs.fit_changes(embedders.open_named(embedder)),
        match.fit(found),
    )


def means_of(embedder: Embedder) -> dict[str, dict[str, list[float]]]:
    """Return the mean vectors of questions and of passages in general, by the fingerprint of the embedder."""
    lives, updates = read_data("paraphrases")["lives"], read_data("updates")["pairs"]
    languages = [fact for group in read_data("languages")["languages"].values() for fact in group]
    questions = [asked["question"] for life in lives for asked in life["asked"]]
    questions += [each["question"] for each in (*languages, *updates)]
    passages = [text for life in lives for text in life["memories"]] + [fact["fact"] for fact in languages]
    passages += [pair[age] for pair in updates for age in ("old", "new")]
    print(f"{len(questions)} questions, {len(passages)} passages")
    vectors = {"question": embedder.embed_queries(questions)}
    vectors["passage"] = embedder.embed_passages(passages, background=True)
    means = {kind: of.mean(axis=0).astype(float).round(DIGITS_OF_MEANS).tolist() for kind, of in vectors.items()}
    return {embedder.fingerprint: means}


def _rounded(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Return weights, or groups of weights, rounded."""
    return {
        name: round(value, DIGITS) if isinstance(value, float) else _rounded(value) for name, value in weights.items()
    }


def _write(name: str, key: str, values: Mapping[str, Any], fitted_on: str = "") -> None:
    """Replace some values of a data file, and say what they were fitted on."""
    path = TARGET / name
    content: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8"))
    if fitted_on:
        content["fitted on"] |= dict.fromkeys(values, f"{fitted_on}; {datetime.now(UTC):%Y-%m-%d}")
    content[key] |= values
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


def main() -> None:
    """Fit for the chosen embedders, print the figures, and write the weights if asked to."""
    parser = argparse.ArgumentParser(description="Fit the weights of the ranking.")
    parser.add_argument("--locomo", type=Path, help="a LoCoMo JSON file")
    parser.add_argument("--embedder", nargs="+", choices=list(SETS), default=list(SETS), help="default: both")
    parser.add_argument("--changes", action="store_true", help="fit only what a memory with hints changes")
    parser.add_argument("--means", action="store_true", help="measure the mean vectors instead")
    parser.add_argument("--write", action="store_true", help="write the result into the package")
    arguments = parser.parse_args()
    if arguments.means:
        values = means_of(embedders.open_named("e5"))
        if arguments.write:
            _write("means.json", "means", values, TEXTS_OF_MEANS)
        return
    if arguments.changes:
        for name in arguments.embedder:
            print(f"\n## {name}")
            weights = _rounded({"change": pairs.fit_changes(embedders.open_named(name))})
            if arguments.write:
                known = json.loads((TARGET / "weights.json").read_text("utf-8"))["weights"][SETS[name]]
                _write("weights.json", "weights", {SETS[name]: known | weights})
        return
    if arguments.locomo is None:
        parser.error("--locomo FILE is needed")
    for embedder in arguments.embedder:
        print(f"\n## {embedder}")
        fitted = fit(anyio.run(lambda name=embedder: _cases(arguments.locomo, name)), embedder)
        if arguments.write:
            sets = {
                part: _rounded(getattr(fitted, part))
                for part in ("memory", "message", "replacement", "change", "match")
            }
            fitted_on = " and ".join(file.name for file in (*FACTS, arguments.locomo))
            _write("weights.json", "weights", {SETS[embedder]: sets}, fitted_on)


if __name__ == "__main__":
    main()
