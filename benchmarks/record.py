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

import argparse
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
from typing import IO, Any, cast

import anyio
import httpx
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp.types import PromptReference, ResourceTemplateReference

HERE = Path(__file__).parent
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
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
        return kept | {
            "HOME": str(self.folder),
            "RECORD_CLOCK": str(self.folder / "clock"),
            "PALIMPSEST_DATA_DIR": str(self.folder / "data"),
            "PALIMPSEST_USER_ID": "alice",
            "PALIMPSEST_EMBEDDER__PROVIDER": "static",
            "PALIMPSEST_TIMEZONE": "Europe/Prague",
            "COLUMNS": "120",
            "NO_COLOR": "1",
            "TERM": "dumb",
        }


def facts() -> list[dict[str, Any]]:
    """Return the facts of the first persona of the everyday memories, and the questions about them."""
    return json.loads((HERE / "everyday.json").read_text("utf-8"))


async def _tool(recorder: Recorder, client: Client, name: str, **arguments: Any) -> list[str]:
    """Record a call of a tool, and return the ids that it answers with."""
    recorder.tick()
    try:
        result = await client.call_tool(name, arguments)
    except MCPError as error:
        recorder.keep(f"{name} {json.dumps(arguments)}", f"error: {error}")
        return []
    recorder.keep(f"{name} {json.dumps(arguments)}", result.model_dump(mode="json", exclude_none=True))
    found = re.findall(r"\"id\": ?\"([0-9a-f-]{36})\"", json.dumps(result.structured_content))
    return list(dict.fromkeys(found))


async def _fill(recorder: Recorder, client: Client) -> tuple[list[str], list[str]]:
    """Store facts, conversations, relations and a document, and return ids and questions."""
    persona = facts()[0]
    ids: list[str] = []
    for fact in persona["facts"]:
        ids += (await _tool(recorder, client, "add_memory", text=fact["text"], at=fact["at"]))[:1]
    stated = [["Lena", "works at", "Ferrow"]]
    await _tool(recorder, client, "add_memory", text="Lena works at Ferrow", relations=stated)
    await _tool(recorder, client, "add_memory", text="My sister Lena lives in Brno", metadata={"tags": ["family"]})
    await _tool(recorder, client, "add_memory", text="Deploys run at 9 on Mondays", scope={"project": "quay"})
    await _tool(recorder, client, "add_memory", text="Ada works at Acme", scope={"project": "quay"})
    for session in ("s1", "s2"):
        messages = [
            {"role": "user", "content": f"I am learning the cello, lesson {number} of {session}", "name": "Alice"}
            if number % 2
            else {"role": "assistant", "content": f"Noted: practise scale {number}."}
            for number in range(6)
        ]
        await _tool(recorder, client, "add_memory", messages=messages, scope={"run_id": session})
    await _tool(recorder, client, "add_memory", messages=[{"role": "user", "content": "forget about the ThinkPad"}])
    return ids, [question["q"] for question in persona["questions"]] + persona["unknown"]


async def _tools(recorder: Recorder, client: Client) -> None:
    ids, questions = await _fill(recorder, client)

    async def call(name: str, **arguments: Any) -> None:
        await _tool(recorder, client, name, **arguments)

    for question in questions:
        await call("search_memories", query=question)
    for options in (
        {"limit": 3},
        {"limit": 50},
        {"filters": {"type": "memory"}},
        {"filters": {"type": "message"}},
        {"filters": {"tags": "family"}},
        {"filters": {"happened_at": {"gte": "2026-01-01"}}},
        {"filters": {"nothing": 1}},
        {"as_of": "2026-02-01"},
        {"scope": {"project": "quay"}},
        {"scope": {"project": "*"}},
        {"max_tokens": 120},
        {"deleted": True},
        {"unknown": 1},
    ):
        await call("search_memories", query="Where does Lena work, and when are deploys?", **options)
        await call("list_memories", **options)
    first, second, third = ids[:3]
    await call("update_memory", memory_id=first, text="User is a staff engineer at Ferrow.")
    await call("update_memory", memory_id=second, metadata={"tags": ["style"], "source": "talk"})
    await call("update_memory", memory_id=third, restore=True)
    await call("update_memory", memory_id="nothing", text="x")
    await call("add_memory", text="Lena moved to Olomouc", replaces=[ids[4]])
    await call("delete_memory", memory_ids=[ids[5]])
    await call("delete_memory", memory_ids=[ids[5], "nothing"])
    await call("update_memory", memory_id=ids[5], restore=True)
    await call("delete_memory", all=True)
    for memory_id in (*ids[:6], "0000", None):
        await call("get_history", **({"memory_id": memory_id} if memory_id else {}))
    for kind in ("", "recent", "day", "day:yesterday", "session", "session:s1", "overall", "profile", "project"):
        await call("get_summary", **({"kind": kind} if kind else {}))
    for kind in ("procedures", "about:Lena", "about:Nobody", "wrong"):
        await call("get_summary", kind=kind)
    await call("add_memory")
    await call("add_memory", text="")
    await call("add_memory", text="my password is hunter2secret9")
    await call("nothing")
    await _rest(recorder, client, ids)


async def _rest(recorder: Recorder, client: Client, ids: Sequence[str]) -> None:
    """Record the lists, the resources, the prompts and the completions."""
    for name, listed in (
        ("tools", await client.list_tools()),
        ("resources", await client.list_resources()),
        ("templates", await client.list_resource_templates()),
        ("prompts", await client.list_prompts()),
    ):
        recorder.keep(f"list {name}", listed.model_dump(mode="json", exclude_none=True))
    fixed = ("memory://summary", "memory://recent", "memory://entities", "memory://none")
    uris = (*fixed, *(f"memory://{memory_id}" for memory_id in ids[:5]), *(f"memory://{ids[0]}/history",))
    for uri in (
        *uris,
        "entity://Lena",
        "entity://Nobody",
        "conversation://s1",
        "conversation://none",
        "document://none",
    ):
        await _asked(recorder, f"read {uri}", client.read_resource, uri)
    for name, arguments in (
        ("recall", {"topic": "Lena"}),
        ("remember-this-conversation", {}),
        ("review-memory", {}),
        ("no", {}),
    ):
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


async def _asked(recorder: Recorder, call: str, function: Any, *arguments: Any) -> None:
    recorder.tick()
    try:
        answer = (await function(*arguments)).model_dump(mode="json", exclude_none=True)
    except MCPError as error:
        answer = f"error: {error}"
    recorder.keep(call, answer)


async def _over_stdio(recorder: Recorder) -> None:
    recorder.tick()
    server = StdioServerParameters(
        command=sys.executable, args=["-c", CHILD, "serve"], env=recorder.environment, cwd=recorder.folder
    )
    async with Client(server) as client:
        recorder.keep("instructions", client.instructions or "")
        await _tools(recorder, client)


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


def _ids(run: Any) -> list[str]:
    return list(dict.fromkeys(re.findall(r'"(?:memory_)?id": "([0-9a-f-]{36})"', run("list", "--json"))))


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
        ids = _ids(run)
        for reading in (
            ("--version",),
            ("--help",),
            ("list",),
            ("list", "--deleted"),
            ("list", "--limit", "3"),
            ("search", "Where does Lena work?"),
            ("search", "--limit", "2", "port 8084"),
            ("search", "zebra"),
            *(("get", memory_id) for memory_id in ids[:4]),
            *(("history", memory_id) for memory_id in ids[:4]),
            ("get", "nothing"),
            ("summary",),
            ("summary", "profile"),
            ("log",),
            ("conversations",),
            ("conversations", "s1"),
            ("messages",),
            ("documents",),
            ("entities",),
            ("entity", "show", "Lena"),
            ("entity", "show", "Nobody"),
            ("graph",),
            ("graph", "--format", "dot"),
            ("graph", "--format", "graphml"),
            ("projects",),
            ("fading",),
            ("jobs",),
            ("doctor",),
            ("doctor", "--deep"),
            ("embedder",),
            ("prompts", "list"),
            ("prompts", "check"),
            ("prompts", "show", "extract"),
            ("token", "list"),
            ("install",),
            ("restore",),
            ("migrate", "--dry-run"),
            ("show", "x"),
            ("nothing",),
        ):
            run(*reading)
            run(*reading, "--json")
        for command in _command_names(run("--help")):
            run(command, "--help")
        _write_commands(recorder, run, ids)


def _command_names(text: str) -> Iterator[str]:
    """Yield the commands that a help lists, in its order."""
    for line in text.splitlines():
        if found := re.match(r"  ([a-z]+)  +\S", line):
            yield found[1]


def _write_commands(recorder: Recorder, run: Any, ids: Sequence[str]) -> None:
    exported = str(recorder.folder / "memory.jsonl")
    run("export", exported)
    run("export", str(recorder.folder / "pages"), "--format", "markdown")
    for writing in (
        ("add", "The kettle is blue"),
        ("add", "The gate is green", "--metadata", "tags=home", "--at", "2026-05-01"),
        ("edit", ids[0], "User is a principal engineer at Ferrow."),
        ("edit", "nothing", "x"),
        ("delete", ids[1]),
        ("undelete", ids[1]),
        ("undo",),
        ("undo", "--edit", "3"),
        ("entity", "rename", "Lena", "Lena Brandt"),
        ("import", str(recorder.folder / "pages"), "--dry-run"),
        ("import", exported, "--dry-run"),
        ("backup",),
        ("token", "create", "laptop"),
        ("token", "list"),
        ("rebuild",),
        ("purge", ids[2], "--yes"),
        ("purge", "nothing", "--yes"),
        ("log",),
    ):
        run(*writing, "--json")
    recorder.keep("exported", Path(exported).read_text("utf-8") if Path(exported).exists() else "none")
    for page in sorted((recorder.folder / "pages").rglob("*.md")):
        recorder.keep(f"page {page.name}", page.read_text("utf-8"))


PAGES = (
    "/",
    "/?q=Where+does+Lena+work",
    "/?q=port&kind=messages",
    "/?project=quay",
    "/edits",
    "/timeline",
    "/timeline?unit=year",
    "/timeline?day=2026-05-04",
    "/entities",
    "/entities/graph",
    "/entities/graph.json",
    "/conversations",
    "/conversations/s1",
    "/documents",
    "/summaries",
    "/activity",
    "/duplicates",
    "/conflicts",
    "/deleted",
    "/captured",
    "/care",
    "/care/findings",
    "/care/backups",
    "/care/import",
    "/care/export/jsonl",
    "/care/tokens",
    "/care/settings",
    "/care/prompts",
    "/care/prompts/extract",
    "/sign-in",
    "/nothing",
    "/memories/nothing",
)


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
            for path in (*PAGES, *more, *(f"/entities/{entity_id}" for entity_id in entities[:4])):
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
    parser = argparse.ArgumentParser(description="Record what a filled memory answers to some 400 calls, and compare.")
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
