"""Measure the time of `palimpsest-hook` for each event beside that of an interpreter that does nothing.

    python benchmarks/hooks.py --runs 100

Both are started in turn, so that a busy moment hits both. The server of the last events answers at once: its own answer
is not what is measured here. The exit code is 1 if an event takes more than 60 ms longer than the bare interpreter.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from harness import DATA, USER, environment, in_turn, parser_of, percentile, table
from palimpsest.hooks import spool
from scripted_recall import answering, says

BARE = (sys.executable, "-I", "-c", "pass")

# Milliseconds that the 95th percentile may lie above that of the bare interpreter.
LIMIT = 60

SESSION = {"session_id": "benchmark", "cwd": "/home/ada/app", "transcript_path": "/home/ada/session.jsonl"}
ASKED = "Which database does the billing service use?"
PROMPT = {"hook_event_name": "UserPromptSubmit", "prompt": ASKED, "prompt_id": "p1"}
EVENTS: dict[str, dict[str, Any]] = {
    "start, with a brief": {"hook_event_name": "SessionStart", "source": "startup"},
    "prompt, no server": PROMPT,
    "reply of 4,000 characters": {"hook_event_name": "Stop", "last_assistant_message": "It does. " * 444},
    "compaction": {"hook_event_name": "PreCompact", "trigger": "auto"},
    "end": {"hook_event_name": "SessionEnd", "reason": "exit"},
}


def measure(name: str, event: dict[str, Any], runs: int, home: Path) -> list[Any]:
    """Return the name of an event, and medians and 95th percentiles in ms of the bare interpreter and of the hook."""
    program = shutil.which("palimpsest-hook", path=str(Path(sys.executable).parent)) or "palimpsest-hook"
    payload = json.dumps({**SESSION, **event}).encode()

    def start(command: Sequence[str], _run: int) -> None:
        subprocess.run(command, input=payload, stdout=subprocess.DEVNULL, check=True, env=environment(home))

    def hook(run: int) -> None:
        start((program,), run)
        for folder in (spool.spool_dir, spool.shown_dir):
            shutil.rmtree(folder(str(home / DATA)), ignore_errors=True)

    bare, hooked = in_turn((partial(start, BARE), hook), range(runs))
    return [name, *(percentile(times, share) for share in (0.5, 0.95) for times in (bare, hooked))]


def write_brief(data_dir: Path) -> None:
    """Write a brief of about 500 tokens."""
    facts = "Ada lives in Lisbon and works on the billing service.\n" * 37
    text = f"<palimpsest-memory>\n{facts}</palimpsest-memory>"
    folders, brief = Path(spool.folders_file(str(data_dir))), Path(spool.brief_file(str(data_dir), "k1"))
    folders.parent.mkdir(mode=0o700, parents=True)
    folders.write_text(json.dumps({"v": 1, "users": {USER: {"": "k1"}}}))
    brief.write_text(json.dumps({"v": 1, "text": text, "ids": ["m1"]}))


def main() -> None:
    """Print the times of every event, and fail if one is above the limit."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=100, help="starts of each event (default 100)")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_brief(home / DATA)
        rows = [measure(name, event, runs, home) for name, event in EVENTS.items()]
        with answering(home / DATA, says(f"<palimpsest-memory>\n{ASKED}\n</palimpsest-memory>", "m1")):
            rows.append(measure("prompt, a server answers at once", PROMPT, runs, home))
    print(table(("event", "bare, median", "hook, median", "bare, p95", "hook, p95"), *rows))
    sys.exit(any(row[4] - row[3] > LIMIT for row in rows))


if __name__ == "__main__":
    main()
