"""Count what the agent would be asked to store of what users of coding sessions say, without a model.

    python benchmarks/said.py --show

`said_in_sessions.json` has whole sessions, and `said_alone.json` lists of single prompts. Each prompt names what of it
is worth keeping. Found is what stands in a sentence that the agent would be asked about; needless is a prompt with
nothing to keep that it would be asked about. The memory is empty.

The sessions and the first list were written before any cue was run. The next two were written after the cues had been
fitted to those before; of these, when they were new, 7 of 20 (6 needless) and 3 of 12 (3 needless) were found. To the
last list nothing was fitted: what the table says of it is what to expect. Leave it so, and write new ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import parser_of, table
from palimpsest.text.intents import lasting_sentences, standing_statements

FOLDER = Path(__file__).parent
WAYS: dict[str, Callable[[str], list[str]]] = {
    "standing statements": lambda text: [statement.text for statement in standing_statements(text)],
    "lasting sentences": lasting_sentences,
}


def judged(prompts: list[Any], way: Callable[[str], list[str]]) -> Iterator[tuple[str, str]]:
    """Yield found, missed or needless with what it is about."""
    for prompt in prompts:
        named = way(prompt["prompt"])
        for wanted in prompt["keep"]:
            is_named = any(wanted.casefold() in sentence.casefold() for sentence in named)
            yield "found" if is_named else "missed", prompt["prompt"]
        if named and not prompt["keep"]:
            yield "needless", prompt["prompt"]


def main() -> None:
    """Print what each way to recognize sentences finds."""
    parser = parser_of(__doc__)
    parser.add_argument("--show", action="store_true", help="print what is missed and what is asked needlessly")
    shows = parser.parse_args().show
    rows: list[tuple[object, ...]] = []
    sessions = json.loads((FOLDER / "said_in_sessions.json").read_text("utf-8"))
    lists = {"sessions": [prompt for session in sessions for prompt in session["prompts"]]}
    lists |= {some["name"]: some["prompts"] for some in json.loads((FOLDER / "said_alone.json").read_text("utf-8"))}
    for title, prompts in lists.items():
        for name, way in WAYS.items():
            results = list(judged(prompts, way))
            counts = {kind: sum(found == kind for found, _ in results) for kind in ("found", "missed", "needless")}
            rows.append((title, name, f"{counts['found']} of {counts['found'] + counts['missed']}", counts["needless"]))
            if shows and way is lasting_sentences:
                print(*(f"{kind}: {text}" for kind, text in results if kind != "found"), sep="\n")
    print(table(("prompts", "recognized by", "found", "needless"), *rows))


if __name__ == "__main__":
    main()
