"""Score answers: token F1, BLEU-1 and a judge with a lenient and a strict rubric; a table and a plot of the scores."""

from __future__ import annotations

import importlib
import importlib.util
import re
import statistics
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from compare import COLOURS, OUR_COLOUR
from harness import percentile, plotting

# An answer as `evaluate.py` keeps it.
Answered = Mapping[str, Any]

RUBRICS: Mapping[str, str] = {
    "lenient": (
        "An answer is CORRECT if it has the gist of the expected answer. It may be longer, say it in other words, and "
        "give a date in another form. If it is about the same thing or the same time, count it as correct."
    ),
    "strict": (
        "An answer is CORRECT only if everything in the expected answer is in it, with the same names, numbers and "
        "dates (in any form), and nothing in it contradicts the expected answer. An answer that is only on the same "
        "subject, that is vaguer, that names several possibilities, or that says nothing is known, is WRONG, unless "
        "the expected answer says that nothing is known."
    ),
}

_JUDGED = """Judge an answer to a question about a past conversation.
{rubric}
Reply with one word: CORRECT or WRONG.

Question: {question}
Expected answer: {expected}
Answer: {answer}"""


def judge_prompt(rubric: str, question: str, expected: str, answer: str) -> str:
    """Return what a judge is asked."""
    return _JUDGED.format(rubric=RUBRICS[rubric], question=question, expected=expected, answer=answer)


def verdict(reply: str) -> bool:
    """Return whether a judge calls an answer correct. The last of the two words counts, so that it may think aloud."""
    words = re.findall(r"\b(?:in)?correct\b|\bwrong\b", reply.lower())
    return bool(words) and words[-1] == "correct"


def words_of(text: str) -> list[str]:
    """Return the words of an answer in lower case, without punctuation and articles."""
    plain = text.lower().replace("-", " ").translate(str.maketrans("", "", string.punctuation))
    return [word for word in plain.split() if word not in ("a", "an", "the")]


def f1(answer: str, expected: str) -> float:
    """Return the harmonic mean of precision and recall of the words."""
    given, wanted = words_of(answer), words_of(expected)
    common = sum((Counter(given) & Counter(wanted)).values())
    return 2 * common / (len(given) + len(wanted)) if common else float(given == wanted)


def bleu1(answer: str, expected: str) -> float:
    """Return BLEU with single words, by NLTK."""
    bleu: Any = importlib.import_module("nltk.translate.bleu_score")
    smoothing = bleu.SmoothingFunction().method1
    given, wanted = words_of(answer), words_of(expected)
    return float(bleu.sentence_bleu([wanted], given, weights=(1,), smoothing_function=smoothing)) if given else 0.0


def _judged(rubric: str, answers: Sequence[Answered]) -> tuple[float, float] | None:
    """Return the mean and the deviation of the shares that the runs of a judge call correct."""
    runs = list(zip(*(answer["judged"][rubric] for answer in answers if rubric in answer["judged"]), strict=True))
    shares = [statistics.fmean(run) for run in runs]
    return (statistics.fmean(shares), statistics.pstdev(shares)) if shares else None


def scores(answers: Sequence[Answered], prices: Sequence[float]) -> dict[str, str]:
    """Return the figures of answers, by the headings of the table. `prices` are of a million tokens in and out."""
    has_nltk = importlib.util.find_spec("nltk") is not None

    def mean(of: Callable[[Answered], float]) -> float:
        return statistics.fmean(map(of, answers))

    def times(key: str) -> str:
        seconds = [float(answer[key]) for answer in answers]
        return f"{percentile(seconds, 0.5):.2f} / {percentile(seconds, 0.95):.2f}"

    shares = {rubric: _judged(rubric, answers) for rubric in RUBRICS}
    judged = {f"judge, {name}": f"{of[0]:.3f} ± {of[1]:.3f}" if of else "-" for name, of in shares.items()}
    cost = mean(lambda each: each["prompt_tokens"] * prices[0] + each["reply_tokens"] * prices[1]) / 1000
    return {
        "n": str(len(answers)),
        "F1": f"{mean(lambda each: f1(each['answer'], each['expected'])):.3f}",
        "BLEU-1": f"{mean(lambda each: bleu1(each['answer'], each['expected'])):.3f}" if has_nltk else "-",
        **judged,
        "context, tokens": f"{mean(lambda each: each['context_tokens']):,.0f}",
        "search, s (p50 / p95)": times("search_seconds"),
        "total, s (p50 / p95)": times("total_seconds"),
        "cost of 1,000 answers": f"{cost:.2f}" if any(prices) else "-",
    }


def table(answers: Sequence[Answered], prices: Sequence[float]) -> Iterator[str]:
    """Yield the lines of a Markdown table for each category and for all of them, with a row for each system."""
    groups = {"all": list(answers)}
    for answer in answers:
        groups.setdefault(answer["category"], []).append(answer)
    for category, group in groups.items():
        rows = {name: scores(of, prices) for name, of in by_system(group).items()}
        headings = next(iter(rows.values()))
        yield f"\n### {category}\n"
        yield "| | " + " | ".join(headings) + " |"
        yield "|---" * (len(headings) + 1) + "|"
        yield from (f"| {name} | " + " | ".join(row.values()) + " |" for name, row in rows.items())


def by_system(answers: Sequence[Answered]) -> dict[str, list[Answered]]:
    """Return answers by the system whose context they rest on."""
    found: dict[str, list[Answered]] = {}
    for answer in answers:
        found.setdefault(answer["system"], []).append(answer)
    return found


def draw(answers: Sequence[Answered], file: Path) -> None:
    """Draw what each system scores against the tokens of its contexts. Needs matplotlib."""
    figure, axes = plotting().subplots(figsize=(10, 6), layout="constrained")
    for number, (name, of) in enumerate(by_system(answers).items()):
        tokens = statistics.fmean(answer["context_tokens"] for answer in of)
        found = _judged("strict", of) or (statistics.fmean(f1(each["answer"], each["expected"]) for each in of), 0.0)
        colour = OUR_COLOUR if name.startswith("palimpsest") else COLOURS[number % len(COLOURS)]
        axes.errorbar([tokens], [found[0]], yerr=[found[1]], fmt="o", color=colour)
        axes.annotate(name, (tokens, found[0]), xytext=(6, 4), textcoords="offset points", fontsize=8, rotation=25)
    axes.set_xscale("log")
    axes.set_xlabel("tokens of context")
    axes.set_ylabel("judged correct (strict); without a judge, F1")
    figure.savefig(file, dpi=150)
