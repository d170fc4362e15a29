"""Measure the time of `palimpsest-hook` for each event beside that of an interpreter that does nothing.

Both are started in turn, so that a busy moment hits both. The server of the last event answers at once: its own answer
is not what is measured here.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from palimpsest.hooks import spool

if sys.platform != "win32":
    from scripted_recall import answering, says

BARE = (sys.executable, "-I", "-c", "pass")
LIMIT = 60
"""Milliseconds that the 95th percentile may lie above that of the bare interpreter."""
SESSION = {"session_id": "benchmark", "cwd": "/home/ada/app", "transcript_path": "/home/ada/session.jsonl"}
ASKED = "Which database does the billing service use?"
EVENTS: dict[str, dict[str, Any]] = {
    "start, with a brief": {**SESSION, "hook_event_name": "SessionStart", "source": "startup"},
    "prompt, no server": {**SESSION, "hook_event_name": "UserPromptSubmit", "prompt": ASKED, "prompt_id": "p1"},
    "reply of 4,000 characters": {**SESSION, "hook_event_name": "Stop", "last_assistant_message": "It does. " * 444},
    "compaction": {**SESSION, "hook_event_name": "PreCompact", "trigger": "auto"},
    "end": {**SESSION, "hook_event_name": "SessionEnd", "reason": "exit"},
}
WITH_SERVER = "prompt, server answers"


def milliseconds(command: Sequence[str], payload: bytes, environment: dict[str, str]) -> float:
    """Return how long a command takes that is given a payload, from its start to its end."""
    begun_at = time.perf_counter()
    subprocess.run(command, input=payload, stdout=subprocess.DEVNULL, check=True, env=environment)
    return (time.perf_counter() - begun_at) * 1000


def measure(command: Sequence[str], event: dict[str, Any], runs: int, data_dir: Path) -> dict[str, float]:
    """Return medians and 95th percentiles in milliseconds, of the hook and of the bare interpreter."""
    payload = json.dumps(event).encode()
    environment = {**os.environ, "PALIMPSEST_DATA_DIR": str(data_dir)}
    bare: list[float] = []
    hook: list[float] = []
    for _ in range(runs):
        bare.append(milliseconds(BARE, payload, environment))
        hook.append(milliseconds(command, payload, environment))
        shutil.rmtree(spool.spool_dir(str(data_dir)), ignore_errors=True)
        shutil.rmtree(spool.shown_dir(str(data_dir)), ignore_errors=True)
    return {
        "bare_median": statistics.median(bare),
        "bare_p95": statistics.quantiles(bare, n=20)[-1],
        "median": statistics.median(hook),
        "p95": statistics.quantiles(hook, n=20)[-1],
    }


def write_brief(data_dir: Path) -> None:
    """Write a brief of about 500 tokens."""
    facts = "Ada lives in Lisbon and works on the billing service.\n" * 37
    text = f"<palimpsest-memory>\n{facts}</palimpsest-memory>"
    folders, brief = Path(spool.folders_file(str(data_dir))), Path(spool.brief_file(str(data_dir), "k1"))
    folders.parent.mkdir(mode=0o700, parents=True)
    folders.write_text(json.dumps({"v": 1, "users": {"": {"": "k1"}}}))
    brief.write_text(json.dumps({"v": 1, "text": text, "ids": ["m1"]}))


def measure_all(command: Sequence[str], runs: int) -> dict[str, dict[str, float]]:
    """Return the times of every event."""
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder, "data")
        write_brief(data_dir)
        times = {name: measure(command, event, runs, data_dir) for name, event in EVENTS.items()}
        if sys.platform != "win32":
            block = f"<palimpsest-memory>\n{ASKED}\n</palimpsest-memory>"
            with answering(data_dir, says(block, "m1")):
                times[WITH_SERVER] = measure(command, EVENTS["prompt, no server"], runs, data_dir)
    return times


def main() -> None:
    """Print the times of every event, and fail if one is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="starts of each event")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    command = (shutil.which("palimpsest-hook", path=str(Path(sys.executable).parent)) or "palimpsest-hook",)
    times = measure_all(command, options.runs)
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {options.runs} runs, milliseconds\n")
    print(f"{'':28}{'bare':>14}{'':>8}{'hook':>10}")
    print(f"{'event':28}{'median':>8}{'p95':>8}{'median':>10}{'p95':>8}{'p95 above bare':>18}")
    for name, figures in times.items():
        above = figures["p95"] - figures["bare_p95"]
        print(
            f"{name:28}{figures['bare_median']:8.1f}{figures['bare_p95']:8.1f}"
            f"{figures['median']:10.1f}{figures['p95']:8.1f}{above:18.1f}"
        )
    if options.json:
        options.json.write_text(json.dumps(times, indent=2) + "\n")
    if any(figures["p95"] - figures["bare_p95"] > LIMIT for figures in times.values()):
        raise SystemExit(f"An event takes more than {LIMIT} ms longer than the bare interpreter.")


if __name__ == "__main__":
    main()
