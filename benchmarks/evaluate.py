r"""Evaluate answers as the papers on LoCoMo do: a model answers each question from what each system finds.

    python benchmarks/evaluate.py --data locomo10.json --model gpt-4o-mini --limit 20
    python benchmarks/evaluate.py --data locomo10.json --base-url http://localhost:11434/v1 --model qwen3 \
        --systems palimpsest "full context" "RAG 512, k=2" --prices 0.15 0.6 --plot plot.png

The systems are Palimpsest (memories and messages, one of them, or both with relations), the full context, chunks of 128
to 8192 tokens of which one or two are retrieved, and mem0 if it is installed. The endpoint speaks OpenAI's protocol,
and its key is in the environment variable that `--api-key-env` names. It is asked to learn, to answer and to judge, so
a whole run costs money: begin with `--limit`. Each finished answer is a line of the file `--out`, and a run goes on
where the last one stopped; learned memories are kept in `--work`. F1 is of words in lower case without punctuation and
articles. BLEU-1 needs nltk, and `--plot` matplotlib. Costs are those of the answers alone.

The data is not part of this project: a file of LoCoMo (CC BY-NC 4.0) or LongMemEval, or a folder of BEAM's chats.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import openai

import embedders
from evaluated_systems import MEM0, SYSTEMS, Question, Sample, Search, open_systems, read
from evaluation_scores import RUBRICS, draw, judge_prompt, table, verdict
from harness import parser_of
from palimpsest.core.errors import PalimpsestError
from palimpsest.text.tokenizer import count_tokens

INSTRUCTIONS = """You answer questions about past conversations from excerpts of them.
- Use only the excerpts. Each begins with the time at which it was said or noted.
- Turn "yesterday", "last week" and the like into dates, counted from the time of their excerpt.
- If excerpts contradict each other, the later one holds.
- Answer in as few words as possible, without a sentence around them. If the excerpts do not say it: not known."""


class Evaluation:
    """A run: it answers and judges what the file of finished answers does not have of the model yet."""

    def __init__(self, options: Namespace) -> None:
        self._options = options
        self._client = openai.AsyncOpenAI(base_url=options.base_url, api_key=options.api_key, max_retries=5)
        self.answers = [answer for answer in finished(options.out) if answer["model"] == options.model]
        self._searching = anyio.Lock()
        self._limiter = anyio.CapacityLimiter(options.parallel)

    async def run(self, samples: Sequence[Sample]) -> None:
        """Answer the questions of all samples. Raises OpenAIError and PalimpsestError, perhaps in groups."""
        known = {(answer["system"], answer["sample"], answer["question"]) for answer in self.answers}
        embedder = embedders.open_named(self._options.embedder)
        async with self._client:
            for sample in samples:
                asked = [(system, question) for system in self._options.systems for question in sample.questions]
                left = [pair for pair in asked if (pair[0], sample.name, pair[1].id) not in known]
                names = list(dict.fromkeys(system for system, _ in left))
                print(f"{sample.name}: {len(left)} answers to find with {names}", file=sys.stderr, flush=True)
                opened = open_systems(names, sample, self._options, embedder)
                async with opened as searches, anyio.create_task_group() as tasks:
                    for system, question in left:
                        tasks.start_soon(self._answer, sample, system, question, searches[system])

    async def _answer(self, sample: Sample, system: str, question: Question, search: Search) -> None:
        async with self._limiter:
            async with self._searching:  # so that searches are timed one at a time
                began = time.perf_counter()
                context = await search(question.text)
                search_seconds = time.perf_counter() - began
            asked = f"Excerpts:\n{context}\n\nToday is {sample.asked_at:%A, %Y-%m-%d}.\nQuestion: {question.text}"
            began = time.perf_counter()
            reply, usage = await self._ask(self._options.model, INSTRUCTIONS, asked)
            total_seconds = search_seconds + time.perf_counter() - began
            judged = {rubric: await self._judge(rubric, question, reply) for rubric in RUBRICS}
        key = {"model": self._options.model, "system": system, "sample": sample.name, "question": question.id}
        said = {"asked": question.text, "expected": question.answer, "answer": reply, "judged": judged}
        tokens = (usage.prompt_tokens, usage.completion_tokens) if usage else (count_tokens(asked), count_tokens(reply))
        used = {"context_tokens": count_tokens(context), "prompt_tokens": tokens[0], "reply_tokens": tokens[1]}
        times = {"search_seconds": round(search_seconds, 4), "total_seconds": round(total_seconds, 4)}
        answer: dict[str, Any] = {**key, "category": question.category, **said, **used, **times}
        self.answers.append(answer)
        with self._options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(answer, ensure_ascii=False) + "\n")
        marks = " ".join(f"{rubric} {sum(runs)}/{len(runs)}" for rubric, runs in judged.items() if runs)
        print(f"{len(self.answers):>6}  {system:<24} {marks}  {question.text[:60]}", file=sys.stderr, flush=True)

    async def _judge(self, rubric: str, question: Question, answer: str) -> list[bool]:
        """Return the verdict of each run of the judge."""
        prompt = judge_prompt(rubric, question.text, question.answer, answer)
        name = self._options.judge_model or self._options.model
        return [verdict((await self._ask(name, prompt))[0]) for _ in range(self._options.judge_runs)]

    async def _ask(self, model: str, *texts: str) -> tuple[str, Any]:
        """Return the reply to a user's text, perhaps after instructions, and what the endpoint says of its tokens."""
        roles = ("system", "user")[-len(texts) :]
        messages: Any = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
        found = await self._client.chat.completions.create(model=model, messages=messages)
        return (found.choices[0].message.content or "").strip(), found.usage


def finished(file: Path) -> list[dict[str, Any]]:
    """Return the answers in a file. A last line that was cut off is removed from it."""
    if not file.is_file():
        return []
    whole, end, cut = file.read_text("utf-8").rpartition("\n")
    if cut:
        file.write_text(whole + end, "utf-8")
    return [json.loads(text) for text in whole.splitlines()]


def limited(samples: Sequence[Sample], limit: int | None) -> list[Sample]:
    """Return the samples with the first questions alone, so many in all."""
    left = sys.maxsize if limit is None else limit
    found: list[Sample] = []
    for sample in samples:
        if questions := sample.questions[:left]:
            found.append(replace(sample, questions=questions))
            left -= len(questions)
    return found


def first(errors: BaseExceptionGroup[Exception]) -> Exception:
    """Return the first error of a group, which may have groups in it."""
    error = errors.exceptions[0]
    return first(error) if isinstance(error, BaseExceptionGroup) else error


def options_of(arguments: Sequence[str] | None) -> Namespace:
    """Return the options of the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a file of LoCoMo or LongMemEval, or a folder of BEAM")
    parser.add_argument("--model", required=True, help="the model that learns and answers")
    parser.add_argument("--base-url", default="https://api.openai.com/v1", metavar="URL")
    parser.add_argument("--api-key-env", default="OPENAI_API_KEY", metavar="NAME", help="the variable with the key")
    parser.add_argument("--judge-model", metavar="NAME", help="the model that judges (default: the same)")
    parser.add_argument("--judge-runs", type=int, default=3, help="how often each answer is judged; 0 for never")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="NAME")
    parser.add_argument("--limit", type=int, help="ask so many questions only")
    parser.add_argument("--hits", type=int, default=20, help="how many hits Palimpsest and mem0 return at most")
    parser.add_argument("--hit-tokens", type=int, default=2_000, help="how many tokens Palimpsest returns at most")
    parser.add_argument("--parallel", type=int, default=4, help="how many questions are answered at a time")
    prices = "the prices of a million tokens of a prompt and of a reply"
    parser.add_argument("--prices", type=float, nargs=2, default=(0.0, 0.0), metavar=("IN", "OUT"), help=prices)
    parser.add_argument("--out", type=Path, default=Path("answers.jsonl"), help="the file of finished answers")
    parser.add_argument("--work", type=Path, default=Path("evaluated"), help="the folder of what was learned")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw scores against tokens into this file")
    embedders.add_option(parser)
    options = parser.parse_args(arguments)
    if not options.data.exists():
        raise SystemExit(f"there is no file or folder {options.data}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print the table. Return 1 if the endpoint failed."""
    options = options_of(arguments)
    if MEM0 in options.systems and importlib.util.find_spec("mem0") is None:
        print("mem0 is not installed, and left out", file=sys.stderr)
        options.systems = [name for name in options.systems if name != MEM0]
    options.api_key = os.environ.get(options.api_key_env) or "none"
    options.work = options.work.absolute() / re.sub(r"[^\w.-]", "-", options.model)
    evaluation = Evaluation(options)
    failure = ""
    try:
        anyio.run(evaluation.run, limited(read(options.data), options.limit))
    except* (openai.OpenAIError, PalimpsestError) as errors:
        failure = f"{first(errors)} What is finished is in {options.out}; run it again to go on."
    if evaluation.answers:
        print("\n".join(table(evaluation.answers, options.prices)))
        if options.plot:
            draw(evaluation.answers, options.plot)
    if failure:
        print(failure, file=sys.stderr)
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
