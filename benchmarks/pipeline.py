"""Try the pipeline on written cases, and count what its prompts cost.

    python benchmarks/pipeline.py --cases --scripted
    python benchmarks/pipeline.py --cases --base-url http://localhost:11434/v1 --model qwen3:8b
    python benchmarks/pipeline.py --cases --only forget-one-person --base-url URL --model MODEL --api-key-env MY_KEY
    python benchmarks/pipeline.py --tokens

`--cases` runs the cases of `pipeline_cases.json`, or of another file in its form, and prints for each what was stored,
closed, forgotten and related against what should be. With a scripted endpoint it tests the pipeline, with a real one
the model. `--tokens` sends a written conversation to a scripted endpoint and prints the length of the prompts. The exit
code is 1 if a case failed.
"""

from __future__ import annotations

import os
import statistics
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio

import embedders
from cases.data import CASES_FILE, CONVERSATION_FILE, Case, read_cases, read_conversation
from cases.judge import failures
from cases.run import End, ModelCall, forwarded, run, scripted
from harness import parser_of

STAGES = ("extract", "decide")


async def run_cases(cases: Sequence[Case], options: Namespace) -> int:
    """Run cases, print a table for each, and return how many failed."""
    failed = ran = adds = 0
    calls: list[ModelCall] = []
    for case in cases:
        if case.only_scripted and not options.scripted:
            print(f"left out  {case.id}: it needs the script")
            continue
        chat = scripted(case.script) if options.scripted else forwarded(options.base_url, options.api_key)
        end = await run(case, chat, options.model, options.embedder)
        faults = failures(case.expected, end)
        ran += 1
        failed += bool(faults)
        adds += end.adds
        calls += end.calls
        print("\n".join(table(case, end, faults)), flush=True)
    print(f"\n{failed} of {ran} cases failed")
    print("\n".join(cost(calls, adds)))
    return failed


def table(case: Case, end: End, faults: Sequence[str]) -> Iterator[str]:
    """Yield the lines that show a case: whether it passed, and what should be there and is there."""
    yield f"\n{'FAILED' if faults else 'passed'}  {case.id}  ({case.language}; {case.point})"
    yield from (f"  ! {fault}" for fault in faults)
    expected = case.expected
    for word, patterns, texts in (
        ("stored", expected.stored, [f"{held.memory.text} ({held.memory.date})" for held in end.living]),
        ("closed", expected.closed, [f"{stored.text} ({_period(stored.valid_until)})" for stored in end.closed]),
        ("forgotten", expected.forgotten, [stored.text for stored in end.deleted]),
        ("absent", expected.absent, []),
    ):
        for pattern in patterns:
            yield f"  {f'should be {word}':<20} {pattern}"
        for text in texts:
            yield f"  {f'is {word}':<20} {text}"
    for word, relations, should in (
        ("related", [item for item in end.related if item.is_current], expected.related),
        ("formerly related", [item for item in end.related if not item.is_current], expected.formerly_related),
        ("unrelated", [], expected.unrelated),
    ):
        yield from (f"  {f'should be {word}':<27} {item}" for item in should)
        yield from (f"  {f'is {word}':<27} {item.line}" for item in relations)
    for note in end.notes:
        yield f"  {'the reply says':<20} {note}"


def _period(until: object) -> str:
    return f"until {str(until)[:10]}" if until else "no longer"


def cost(calls: Sequence[ModelCall], adds: int) -> Iterator[str]:
    """Yield the lines on model calls and prompt tokens, in all and for each add."""
    if not calls:
        return
    tokens = [call.prompt_tokens for call in calls]
    counter = "the endpoint" if all(call.is_endpoints_count for call in calls) else "Palimpsest's tokenizer"
    yield f"{adds} adds: {len(calls)} model calls ({len(calls) / adds:.2f} an add)"
    yield f"prompt tokens, as counted by {counter}: {sum(tokens)} ({sum(tokens) / adds:.0f} an add)"
    for stage in STAGES:
        of_stage = [call.prompt_tokens for call in calls if call.stage == stage]
        if of_stage:
            middle, largest = statistics.median(of_stage), max(of_stage)
            yield f"  {stage:<8} {len(of_stage):>4} calls, median {middle:.0f} tokens, largest {largest}"


async def count_tokens_of_conversation(options: Namespace) -> None:
    """Add a written conversation turn by turn, and print what the prompts cost."""
    conversation = read_conversation(CONVERSATION_FILE)
    end = await run(conversation, scripted(conversation.script), options.model, options.embedder)
    messages = sum(len(step.messages) for step in conversation.steps)
    print(f"{messages} messages, {len(end.living)} memories at the end")
    print("\n".join(cost(end.calls, end.adds)))


def _parser() -> ArgumentParser:
    parser = parser_of(__doc__)
    parser.add_argument("--cases", type=Path, nargs="?", const=CASES_FILE, metavar="FILE", help="run written cases")
    parser.add_argument("--only", nargs="+", metavar="ID", help="run these cases only")
    parser.add_argument("--tokens", action="store_true", help="count the prompts of a written conversation")
    parser.add_argument("--scripted", action="store_true", help="answer with the scripts of the cases, without a model")
    parser.add_argument(
        "--base-url", default="", help="an OpenAI-compatible endpoint, such as http://localhost:11434/v1"
    )
    parser.add_argument("--model", default="scripted", help="the name of the model at the endpoint")
    parser.add_argument("--api-key-env", metavar="NAME", help="the environment variable that holds the endpoint's key")
    embedders.add_option(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the options choose. Return 1 if a case failed, else 0."""
    parser = _parser()
    options = parser.parse_args(arguments)
    options.api_key = os.environ.get(options.api_key_env, "") if options.api_key_env else ""
    if options.cases is None and not options.tokens:
        parser.error("choose --cases or --tokens")
    if options.cases is not None and options.scripted == bool(options.base_url):
        parser.error("--cases needs either --scripted, or --base-url and --model")
    if options.tokens:
        anyio.run(count_tokens_of_conversation, options)
    if options.cases is None:
        return 0
    cases = read_cases(options.cases)
    if unknown := set(options.only or ()) - {case.id for case in cases}:
        parser.error(f"there is no case {', '.join(sorted(unknown))}")
    chosen = [case for case in cases if not options.only or case.id in options.only]
    return int(anyio.run(run_cases, chosen, options) > 0)


if __name__ == "__main__":
    sys.exit(main())
