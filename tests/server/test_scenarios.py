"""What clients do with the server, step by step. The steps stand in `scenarios.json`, each with what it has to show.

A step does one thing: `call` a tool, which must succeed, or be `refused`; `read` a resource, or be `unread`; `complete`
a variable; fill in a `prompt`, or be `unprompted`; subscribe and be `unsubscribed`; run a `command` of palimpsest, with
`files`, `edits` of files and an `answer`; `get` or `post` a path of the page, as its owner or a `visitor`, with a
`status`; read a `file`; read the `instructions`; list the `tools`.
Its text `begins` and `ends` with something, `says` some parts and `never` others, has `lines`, and has parts as often
as `counts` says. Of structured content `gives` names values, `*` stands for every one of a list, and `keep` gives them
names, as `finds` does with what patterns find on a page: `${name}` is the value in later steps, and `${name:8}` its
first characters. `${x*9}` is a text of nine x.

A scenario may begin with what the `ledger` knows, and have a `page`. A scenario or a part of it has a head: `settings`,
or the `token` of a client over HTTP; the replies of the client's `model`, and parts of what `model_reads`; the answer
of its `user`, and of what `user_reads`.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio.to_thread
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import (
    CreateMessageResult,
    ElicitResult,
    ErrorData,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
)

from palimpsest.core.models import ABOUT_THE_PAST, NamedEntity, Relation, Scope
from palimpsest.page.page_context import Visitor
from palimpsest.server.access_tokens import Grant
from palimpsest.text.display import visible
from tests.support.client_files import content_of
from tests.support.command_line import palimpsest
from tests.support.documents import book
from tests.support.http_server import HttpServer, connect_http, new_access_token
from tests.support.ledger_access import store_memory
from tests.support.mcp_client import error_text, reply_text, subscribe
from tests.support.memory import memory_in
from tests.support.page import OWNER, OpenPage, page_in
from tests.support.server_in_process import server_in_process

pytestmark = pytest.mark.anyio

SCENARIOS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("scenarios.json").read_text("utf-8"))

# How long an error may be.
MAX_ERROR = 600

HOSTILE = "Rex \x1b]52;c;eA==\x07 and \x9b2J then \u202ereversed\u2069 with\U000e0068\U000e0069 hidden"

# Names that every scenario has.
KNOWN = {
    "hostile": HOSTILE,
    "shown": visible(HOSTILE),
    "past": ABOUT_THE_PAST,
    "today": datetime.now(UTC).date().isoformat(),
    "book": book("kitchen", "cellar"),
    "swept": book("kitchen", "cellar").replace("painted", "swept"),
}

NAME = re.compile(r"\$\{(\w+)(?:([:*])(\d+))?\}")


def value_at(value: Any, path: str) -> Any:
    """Return what stands in JSON at a path such as `results.0.id` or `results.*.text`."""
    if not path:
        return value
    key, _, rest = path.partition(".")
    if key == "*":
        return [value_at(item, rest) if rest else item for item in value]
    inner: Any = cast("list[Any]", value)[int(key)] if isinstance(value, list) else value.get(key)
    return value_at(inner, rest) if rest else inner


@dataclass
class Scenario:
    """A client, and the names of what was kept."""

    client: Client
    folder: Path
    names: dict[str, str]
    page: OpenPage | None = None

    def filled(self, value: Any) -> Any:
        """Return a value of the script with the names in it filled in."""
        if isinstance(value, dict):
            return {self.filled(key): self.filled(item) for key, item in cast("dict[str, Any]", value).items()}
        if isinstance(value, list):
            return [self.filled(item) for item in cast("list[Any]", value)]
        return NAME.sub(self._value, value) if isinstance(value, str) else value

    def _value(self, found: re.Match[str]) -> str:
        name, kind, number = found.groups()
        if kind == "*":
            return name * int(number)
        return self.names[name][: int(number)] if kind else self.names[name]

    async def done(self, step: dict[str, Any]) -> tuple[str, Any]:
        """Do what a step says. Return the text and the structured content."""
        kind = next(iter(step))
        if kind in ("call", "refused"):
            result = await self.client.call_tool(*step[kind])
            return (reply_text if kind == "call" else error_text)(result), result.structured_content
        if kind == "read":
            (content,) = (await self.client.read_resource(step["read"])).contents
            assert isinstance(content, TextResourceContents)
            return content.text, None
        if kind == "prompt":
            (message,) = (await self.client.get_prompt(*step["prompt"])).messages
            assert isinstance(message.content, TextContent)
            return message.content.text, None
        if kind == "complete":
            uri, *argument = step["complete"]
            ref = ResourceTemplateReference(uri=uri)
            completed = await self.client.complete(ref, dict(zip(("name", "value"), argument, strict=True)))
            return "", completed.completion.model_dump()
        if kind == "instructions":
            return self.client.instructions or "", None
        if kind == "tools":
            return "", [tool.name for tool in (await self.client.list_tools()).tools]
        if kind == "command":
            for name, content in step.get("files", {}).items():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                lines = cast("list[Any]", content if name.endswith(".jsonl") else [content])
                text = content if isinstance(content, str) else "".join(json.dumps(line) + "\n" for line in lines)
                (self.folder / name).write_text(text, "utf-8")
            for name, changes in step.get("edits", {}).items():
                edited = (self.folder / name).read_text("utf-8")
                for old, new in changes:
                    assert old in edited, (old, edited)
                    edited = edited.replace(old, new)
                (self.folder / name).write_text(edited, "utf-8")
            options = {name: step[name] for name in ("settings", "code", "answer") if name in step}
            text = await anyio.to_thread.run_sync(partial(palimpsest, self.folder, *step["command"], **options))
            return text, json.loads(text) if "--json" in step["command"] else None
        attempts = {
            "unread": lambda: self.client.read_resource(step[kind]),
            "unprompted": lambda: self.client.get_prompt(*step[kind]),
            "unsubscribed": lambda: subscribe(self.client, step[kind]),
        }
        with pytest.raises(MCPError) as error:
            await attempts[kind]()
        return str(error.value), {"code": error.value.error.code}

    async def page_with(self, method: str, step: dict[str, Any]) -> str:
        """Ask the page as its owner or a `visitor`, follow where it leads, and keep what a step `finds` by patterns."""
        assert self.page is not None
        visitor = Visitor(Grant(**step["visitor"])) if "visitor" in step else OWNER
        sent = {name: step[name] for name in ("params", "headers") if name in step}
        sent |= {"data": step["form"]} if "form" in step else {}
        async with self.page.browser(visitor) as browser:
            answer = await browser.request(method, step[method], follow_redirects=True, **sent)
        assert answer.status_code == step.get("status", 200), (step, answer.text)
        text = html.unescape(answer.text)
        for name, pattern in step.get("finds", {}).items():
            found = re.search(pattern, text)
            assert found, (pattern, text)
            self.names[name] = found[1]
        return text

    async def play(self, script: dict[str, Any]) -> None:
        """Do a step, and compare what comes of it with what the script says."""
        step = self.filled(script)
        if of_page := {"get", "post"} & step.keys():
            text, content = await self.page_with(of_page.pop(), step), None
        elif "file" in step:
            file = self.folder / step["file"]
            text, content = file.read_text("utf-8"), content_of(file) if "gives" in step else None
        else:
            text, content = await self.done(step)
        assert visible(text) == text or text.lstrip().startswith("<"), "whoever reads it sees what a text hides"
        assert "refused" not in step or len(text) < MAX_ERROR, text
        where = f"{step}\n{text}\n{content}"
        assert text.startswith(step.get("begins", "")), where
        assert text.endswith(step.get("ends", "")), where
        for part in step.get("says", ()):
            assert part in text, where
        for part in step.get("never", ()):
            assert part not in text, where
        if "lines" in step:
            assert text.splitlines() == step["lines"], where
        for part, count in step.get("counts", {}).items():
            assert text.count(part) == count, where
        for path, value in step.get("gives", {}).items():
            assert value_at(content, path) == value, where
        for name, path in step.get("keep", {}).items():
            self.names[name] = value_at(content, path)


def cases() -> list[Any]:
    """Return the scenarios, each with the eras and transports it is played in. All but the first wait for the night."""
    return [
        pytest.param(name, mode, marks=[pytest.mark.nightly] if script.get("nightly") or number else [])
        for name, script in SCENARIOS.items()
        for number, mode in enumerate(script.get("http") or script.get("modes", ["auto"]))
    ]


@dataclass
class People:
    """A client's language model, and its user. They answer from a script, and note what they were asked."""

    head: dict[str, Any]
    requests: list[Any] = field(default_factory=list[Any])
    questions: list[str] = field(default_factory=list[str])

    async def answer(self, _: Any, params: Any) -> CreateMessageResult | ErrorData:
        """Return the next reply of the model; null stands for a user who declines."""
        self.requests.append(params)
        reply = self.head["model"][len(self.requests) - 1]
        if reply is None:
            return ErrorData(code=-1, message="the user declined sampling")
        content = TextContent(type="text", text=reply if isinstance(reply, str) else json.dumps(reply))
        return CreateMessageResult(role="assistant", content=content, model="model-1", stop_reason="endTurn")

    async def agree(self, _: Any, params: Any) -> ElicitResult:
        """Return the user's answer to any question."""
        self.questions.append(params.message)
        return ElicitResult(**self.head["user"])

    def check(self) -> None:
        """Compare what they were asked with what the script says, each question with a part of it."""
        prompts = ["\n".join(message.content.text for message in request.messages) for request in self.requests]
        reads = self.head.get("model_reads", [""] * len(self.head.get("model", [])))
        for asked, expected in ((prompts, reads), (self.questions, self.head.get("user_reads", []))):
            assert len(asked) == len(expected), asked
            assert all(part in text for part, text in zip(expected, asked, strict=True)), asked
        assert all(request.system_prompt and 0 < request.max_tokens <= 4000 for request in self.requests)


async def fill(data: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Add memories that name entities and state relations."""
    async with memory_in(data) as memory:
        for row in rows:
            labels: dict[str, Any] = {
                "entities": tuple(NamedEntity(*named) for named in row.get("entities", ())),
                "relations": tuple(Relation(*relation) for relation in row.get("relations", ())),
            }
            if "since" in row:
                since = datetime.fromisoformat(row["since"]).replace(tzinfo=UTC)
                labels |= {"valid_from": since, "valid_from_precision": "month"}
            store_memory(memory, row["text"], scope=Scope(row.get("user", "alice"), row.get("project", "")), **labels)


@asynccontextmanager
async def connected(head: dict[str, Any], mode: str, folder: Path, server: HttpServer | None) -> AsyncGenerator[Client]:
    """Connect a client as the head of a part says: with a token over HTTP, or in this process."""
    people = People(head)
    callbacks: dict[str, Any] = {
        "sampling_callback": people.answer if "model" in head else None,
        "elicitation_callback": people.agree if "user" in head else None,
    }
    if server is not None:
        token = {
            name: value.replace("${how}", mode) if name == "user" else value for name, value in head["token"].items()
        }
        async with connect_http(server, mode, new_access_token(server.data, **token), **callbacks) as client:
            yield client
    else:
        async with Client(server_in_process(folder, **head.get("settings", {})), mode=mode, **callbacks) as client:
            yield client
    people.check()


def page_of(head: Any, folder: Path) -> AbstractAsyncContextManager[OpenPage]:
    """Open the page over the memory of a folder; "with prompts" of one's own, those are in the folder itself."""
    prompts: dict[str, Any] = {"prompts_dir": folder} if head == "with prompts" else {}
    return page_in(folder / "data", **prompts)


@pytest.mark.parametrize(("name", "mode"), cases())
async def test_a_scenario_is_played_to_its_end(
    tmp_path: Path, request: pytest.FixtureRequest, name: str, mode: str
) -> None:
    script, names = SCENARIOS[name], {**KNOWN, "how": mode, "folder": str(tmp_path)}
    server = request.getfixturevalue("protected_server") if "http" in script else None
    if "ledger" in script:
        await fill(tmp_path / "data" if server is None else server.data, script["ledger"])
    parts: list[Any] = script["parts"] if "parts" in script else [[script, script["steps"]]]
    for head, steps in parts:
        folder = tmp_path if server is None else server.data.parent
        async with AsyncExitStack() as opened:
            page = await opened.enter_async_context(page_of(script["page"], folder)) if "page" in script else None
            client = await opened.enter_async_context(connected(head, mode, folder, server))
            for step in steps:
                await Scenario(client, folder, names, page).play(step)
