"""Record what a filled memory answers to some 400 calls, and compare with an older record.

    python benchmarks/record.py --write before.json
    python benchmarks/record.py --compare before.json

Hold a change of the code that changes no behaviour to it: record before, compare after. The calls go through the public
doors: all tools, resources, completions and prompts over stdio, the pages over HTTP, and the commands of the command
line, as text and with `--json`. The clock shows the time of the call's number, and ids are made of that time, so two
records differ only where the answers do. Ports, folders, durations and secrets are left out. The embedder is the static
one, and there is no language model.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from string import Template
from typing import IO, Any, cast

import anyio
import httpx
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp.types import PromptReference, ResourceTemplateReference

from harness import environment, parser_of

HERE = Path(__file__).parent
CALLS = HERE / "record_calls.json"
BEGIN = datetime(2026, 5, 4, 9, 0, tzinfo=UTC)
"""A Monday. The first call is then, and each one a minute after the one before it."""

TIMEOUT = 120.0

CHILD = """
import hashlib, os, sys, uuid
from datetime import datetime
from pathlib import Path

import palimpsest.core.clock

CLOCK = Path(os.environ["RECORD_CLOCK"])
numbers = {}

def now():
    return datetime.fromisoformat(CLOCK.read_text())

def uuid4():
    time = CLOCK.read_text()
    numbers[time] = numbers.get(time, 0) + 1
    return uuid.UUID(bytes=hashlib.sha256(f"{time} {numbers[time]}".encode()).digest()[:16], version=4)

palimpsest.core.clock.now = now
uuid.uuid4 = uuid4

from palimpsest.__main__ import main

if sys.argv[1:] != ["commands"]:
    main()
    sys.exit()

import json, tempfile

for line in sys.stdin.buffer:
    sys.argv = ["palimpsest", *json.loads(line)]
    with tempfile.TemporaryFile() as output:
        kept = os.dup(1), os.dup(2), os.dup(0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        status = 0
        try:
            main()
        except SystemExit as ended:
            status = ended.code or 0
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in zip((1, 2, 0), kept):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(nothing)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    os.write(1, json.dumps([status, text]).encode() + b"\\n")
"""
"""The program itself, with the clock and ids of the record. With `commands` it reads commands from standard input."""

HIDDEN = (
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\b\d+(?:[.,]\d+)*(?:e-\d+)? ?(?:ms|seconds?|s|kB|MB|GB|bytes)\b"), "AMOUNT"),
    (re.compile(r"pal_[\w-]{20,}|[\w-]{40,}"), "SECRET"),
    (re.compile(r'("(?:bytes|size|pid|seconds|rss|free)": )\d+(?:\.\d+)?'), r"\1AMOUNT"),
    (re.compile(r"0\.\d{5,}"), "FRACTION"),
    (re.compile(r"(?:\d+ vectors, )?\d+ changes? behind"), "BEHIND"),
)
"""What two runs of the same code may say differently, and what stands in the record for it."""


@dataclass
class Recorder:
    """The answers so far. `tick` sets the time of the next call."""

    folder: Path
    answers: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def tick(self) -> None:
        """Set the clock of the memory to the time of the next call."""
        clock = self.folder / "clock.new"
        clock.write_text((BEGIN + timedelta(minutes=len(self.answers))).isoformat())
        clock.replace(self.folder / "clock")

    def keep(self, call: str, answer: object) -> None:
        """Keep the answer of a call, without what differs from run to run."""
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, indent=1)
        text = text.replace(str(self.folder), "FOLDER")
        for pattern, replacement in HIDDEN:
            text = pattern.sub(replacement, text)
        text = "\n".join(line.rstrip() for line in text.splitlines())  # the width of a table depends on what is hidden
        self.answers.append({"call": call.replace(str(self.folder), "FOLDER"), "answer": text})

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of the memory's processes."""
        settings = {"embedder__provider": "static", "timezone": "Europe/Prague"}
        shown = {"RECORD_CLOCK": str(self.folder / "clock"), "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
        return environment(self.folder, **settings) | shown


def calls(kind: str, ids: Sequence[str] = (), folder: Path | None = None) -> list[Any]:
    """Return the calls of a kind from `record_calls.json`, with the ids of memories that their answers gave."""
    given = {f"id{number}": memory_id for number, memory_id in enumerate(ids)} | {"folder": str(folder)}
    return json.loads(Template(CALLS.read_text("utf-8")).safe_substitute(given))[kind]


async def _tool(recorder: Recorder, client: Client, name: str, arguments: dict[str, Any]) -> list[str]:
    """Record a call of a tool, and return the ids that it answers with."""
    answer = await _asked(recorder, f"{name} {json.dumps(arguments)}", client.call_tool, name, arguments)
    content = answer.get("structured_content")
    return list(dict.fromkeys(re.findall(r"\"id\": ?\"([0-9a-f-]{36})\"", json.dumps(content))))


async def _asked(recorder: Recorder, call: str, function: Any, *arguments: Any) -> Any:
    """Record what a request is answered with, and return it."""
    recorder.tick()
    try:
        answer = (await function(*arguments)).model_dump(mode="json", exclude_none=True)
    except MCPError as error:
        answer = {"error": str(error)}
    recorder.keep(call, answer)
    return answer


async def _over_stdio(recorder: Recorder) -> None:
    recorder.tick()
    server = StdioServerParameters(
        command=sys.executable, args=["-c", CHILD, "serve"], env=recorder.environment, cwd=recorder.folder
    )
    persona = json.loads((HERE / "everyday.json").read_text("utf-8"))[0]
    async with Client(server) as client:
        recorder.keep("instructions", client.instructions or "")
        ids: list[str] = []
        for fact in persona["facts"]:
            ids += (await _tool(recorder, client, "add_memory", {"text": fact["text"], "at": fact["at"]}))[:1]
        for name, arguments in calls("fill"):
            await _tool(recorder, client, name, arguments)
        for question in [question["q"] for question in persona["questions"]] + persona["unknown"]:
            await _tool(recorder, client, "search_memories", {"query": question})
        for name, arguments in calls("tools", ids):
            await _tool(recorder, client, name, arguments)
        await _rest(recorder, client, ids)


async def _rest(recorder: Recorder, client: Client, ids: Sequence[str]) -> None:
    """Record the lists, the resources, the prompts and the completions."""
    for listed in (client.list_tools, client.list_resources, client.list_resource_templates, client.list_prompts):
        await _asked(recorder, listed.__name__, listed)
    for uri in calls("resources", ids):
        await _asked(recorder, f"read {uri}", client.read_resource, uri)
    for name, arguments in calls("prompts"):
        await _asked(recorder, f"prompt {name}", client.get_prompt, name, arguments)
    for template in (await client.list_resource_templates()).resource_templates:
        uri = template.uri_template
        for variable in re.findall(r"{(\w+)}", uri):
            for value in ("", "L", ids[0][:2]):
                reference = ResourceTemplateReference(type="ref/resource", uri=uri)
                asked = {"name": variable, "value": value}
                await _asked(recorder, f"complete {uri} {value}", client.complete, reference, asked)
    reference = PromptReference(type="ref/prompt", name="recall")
    await _asked(recorder, "complete recall", client.complete, reference, {"name": "topic", "value": "L"})


@contextmanager
def _commands(recorder: Recorder) -> Generator[Any]:
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, "commands"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=recorder.environment,
        cwd=recorder.folder,
    )
    stdin, stdout = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)

    def run(*arguments: str) -> str:
        recorder.tick()
        stdin.write(json.dumps(arguments).encode() + b"\n")
        stdin.flush()
        status, text = json.loads(stdout.readline())
        recorder.keep("palimpsest " + " ".join(arguments), f"{text}\nstatus {status}")
        return text

    try:
        yield run
    finally:
        stdin.close()
        process.wait(TIMEOUT)


def _run_commands(recorder: Recorder) -> None:
    note = recorder.folder / "note.md"
    note.write_text("# Boats\n\nThe skiff lies in dock 4. Paint it in May.\n\n## Sails\n\nThe jib is torn.\n")
    os.utime(note, (BEGIN.timestamp(), BEGIN.timestamp()))
    talk = recorder.folder / "talk.json"
    talk.write_text(
        json.dumps([{"role": "user", "content": "I sold the skiff"}, {"role": "assistant", "content": "ok"}])
    )
    with _commands(recorder) as run:
        run("learn", str(note))
        run("learn", str(talk), "--json")
        ids = list(dict.fromkeys(re.findall(r'"(?:memory_)?id": "([0-9a-f-]{36})"', run("list", "--json"))))
        for reading in calls("readings", ids, recorder.folder):
            run(*reading)
            run(*reading, "--json")
        for command in re.findall(r"^│ ([a-z]+)  +\S", run("--help"), re.MULTILINE):
            run(command, "--help")
        for export in calls("exports", folder=recorder.folder):
            run(*export)
        for writing in calls("writings", ids, recorder.folder):
            run(*writing, "--json")
    exported = recorder.folder / "memory.jsonl"
    for page in (exported, *sorted((recorder.folder / "pages").rglob("*.md"))):
        recorder.keep(f"exported {page.name}", page.read_text("utf-8") if page.exists() else "none")


def _pages(recorder: Recorder) -> None:
    recorder.tick()
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, "ui", "--no-open"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=recorder.environment,
        cwd=recorder.folder,
    )
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    try:
        entrance = ""
        while not entrance:
            found = re.search(r"http://127\.0\.0\.1:\d+/\S*enter\S*", process.stdout.readline())
            entrance = found[0] if found else ""
        with httpx.Client(base_url=entrance.partition("/enter")[0], follow_redirects=True, timeout=TIMEOUT) as browser:
            first = browser.get(entrance).text
            ids = list(dict.fromkeys(re.findall(r"/memories/([0-9a-f-]{36})", first)))
            entities = list(dict.fromkeys(re.findall(r"/entities/([0-9a-f-]{36})", browser.get("/entities").text)))
            more = (f"/memories/{memory_id}" for memory_id in ids[:8])
            for path in (*calls("pages"), *more, *(f"/entities/{entity_id}" for entity_id in entities[:4])):
                recorder.tick()
                answer = browser.get(path)
                recorder.keep(f"GET {path}", f"{answer.status_code}\n{answer.text}")
    finally:
        process.terminate()
        process.wait(TIMEOUT)


def record() -> list[dict[str, Any]]:
    """Play all calls against a new memory, and return them with their answers."""
    folder = Path(tempfile.gettempdir()).resolve() / "palimpsest-record"
    folder.mkdir()  # always of this name, because the ids of documents are made of their paths
    try:
        recorder = Recorder(folder)
        anyio.run(_over_stdio, recorder)
        _run_commands(recorder)
        _pages(recorder)
        return recorder.answers
    finally:
        shutil.rmtree(folder)


def differences(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield what differs, call by call."""
    if len(before) != len(after):
        yield f"{len(before)} calls before, {len(after)} now"
    for old, new in zip(before, after, strict=False):
        if old != new:
            lines = difflib.unified_diff(
                f"{old['call']}\n{old['answer']}".splitlines(),
                f"{new['call']}\n{new['answer']}".splitlines(),
                n=1,
                lineterm="",
            )
            yield "\n".join([f"== {old['call']}", *list(lines)[2:]])


def main() -> None:
    """Record, and write the record or compare it."""
    parser = parser_of(__doc__)
    parser.add_argument("--write", type=Path, help="the file that the record is written to")
    parser.add_argument("--compare", type=Path, help="an older record")
    arguments = parser.parse_args()
    answers = record()
    print(f"{len(answers)} calls")
    if arguments.write:
        arguments.write.write_text(json.dumps(answers, ensure_ascii=False, indent=1))
    if arguments.compare:
        found = list(differences(json.loads(arguments.compare.read_text()), answers))
        print("\n".join(found), f"\n{len(found)} differ")
        sys.exit(bool(found))


if __name__ == "__main__":
    main()
