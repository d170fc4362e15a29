"""Conversations with a scripted model: what is stored, closed, shown to the model, forgotten, summarized and told.

Each row of `stories.json` and `views.json` is played in a memory of its own. A step is a text to store, or an object
with what the caller sends (`say`, `text`, `update`, `delete`, `undo`, `search`, `view`), what the model replies
(`facts`, `forget`, `user_name`, `decide`, `summary`; `cut` ends the reply before a word, `status` refuses it) and what
must come of it. A decision is fact, event, memory and text. `"*"` is each fact; a memory is a number, a part of its
text, or the mark that it was shown with, such as `@past`.

A text with `names`, each with its type, is stored past the search for names; `reword` and `forgets` are decisions of
that kind. `wait` moves the clock. A `view` is a summary, and asks the model if it gives its reply; `{a text}` is the
beginning of the id of what says so. A row with `each` is played once for each value of a name in it, the first by day.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest

from loopback import OpenAIServer, Reply
from palimpsest.core.clock import parse_date
from palimpsest.core.errors import InputError
from palimpsest.core.models import Decision, Event, Fact, NamedEntity, Relation, Scope
from palimpsest.core.models import Memory as StoredMemory
from palimpsest.memory import Memory
from palimpsest.store.memories import name_of_user
from tests.support.ledger_access import write_decisions
from tests.support.memory import ALICE, StoppedClock, llm_settings, memory_in, messages_from
from tests.support.scripted_model import given, is_extraction
from tests.support.watched_embedder import watched

pytestmark = pytest.mark.anyio

# More memories than a model is shown, each nearer to a walk home than an old address is.
NEARER = [
    f"The {street} on the way {way} is one of the new streets of"
    for street in ("Kouter", "Veldstraat", "Korenlei", "Graslei", "Sint-Baafsplein", "Vrijdagmarkt", "Hoogpoort")
    for way in ("home from the office", "to the office from home")
]

Item = dict[str, Any]


def stories() -> Iterator[Any]:
    """Return the rows of both files. Those that differ in one value alone wait for the night."""
    for file in ("stories.json", "views.json"):
        for story in json.loads(Path(__file__).with_name(file).read_text("utf-8")):
            each = story.pop("each", {})
            for number, values in enumerate(product(*each.values())):
                text = json.dumps(story)
                for name, value in zip(each, values, strict=True):
                    text = text.replace(json.dumps(name), json.dumps(value))
                marks = [pytest.mark.nightly] if number else []
                yield pytest.param(json.loads(text), id=story["name"], marks=marks)


class Script:
    """A model that replies as a step says. It keeps what it was sent."""

    server: OpenAIServer

    def begin(self, step: Item) -> None:
        """Reply as this step says from now on."""
        self.step, self.shown, self.unmatched = step, list[str](), list[Any]()
        self.requests: list[str] = []
        self.raw: list[Item] = []

    def __call__(self, request: Item) -> str | Reply:
        """Answer one request."""
        self.raw.append(request)
        self.requests.append("\n".join(message["content"] for message in request["messages"]))
        if "status" in self.step:
            return Reply(status=self.step["status"])
        if "view" in self.step:
            key = "about" if self.step["view"].startswith("about") else "summary"
            return json.dumps({key: self.step["summary"]})
        if is_extraction(request):
            facts = self.step.get("facts", [])
            if not self.step.get("bare"):
                facts = [{"sources": [1], **({"text": fact} if isinstance(fact, str) else fact)} for fact in facts]
            forget = self.step.get("forget")
            reply: Item = {key: self.step[key] for key in ("user_name",) if key in self.step}
            if forget is not None:
                reply["forget"] = [{"forget": forget, "sources": [1]} if isinstance(forget, str) else forget]
            reply["facts"] = facts
            text = json.dumps(reply)
            return Reply(text[: text.rindex(self.step["cut"])], finish_reason="length") if "cut" in self.step else text
        facts, memories = given(request, "New facts"), given(request, "Stored memories")
        self.shown = [item["text"] for item in memories]
        decide = self.step.get("decide", [["*", "ADD"]])
        if isinstance(decide, dict):
            return json.dumps(decide)
        return json.dumps({"decisions": [made for item in decide for made in self._decisions(facts, memories, *item)]})

    def check(self) -> None:
        """Compare what the model was sent with what the step says of it."""
        compare(self.step, "\n".join(self.requests), "reads", "unread")

    def _decisions(
        self, facts: list[Item], memories: list[Item], fact: Any, event: str, memory: Any = None, text: Any = None
    ) -> list[Item]:
        numbers = [memory]
        if isinstance(memory, str):
            mark = memory.removeprefix("@")
            numbers = [item["id"] for item in memories if (mark in (item if mark != memory else item["text"]))]
            self.unmatched += [] if numbers else [memory]
        of = [item["fact"] for item in facts] if fact == "*" else [fact]
        return [
            {"event": event, "text": text, **({"fact": one, "memory": number} if one is not None else in_mem0(number))}
            for one in of
            for number in numbers
        ]


def compare(step: Item, text: str, has: str, lacks: str) -> None:
    """Compare a text with what a step says that it has and lacks."""
    assert [part for part in step.get(has, ()) if part not in text] == [], text
    assert [part for part in step.get(lacks, ()) if part in text] == [], text


def in_mem0(number: int | None) -> Item:
    """Return how Mem0's form names a memory, or a new one."""
    return {"id": "99" if number is None else str(number)}


class Stage:
    """An open memory whose model follows a script."""

    def __init__(self, memory: Memory, script: Script, clock: StoppedClock) -> None:
        self.memory, self.script, self.clock = memory, script, clock
        self.ids: dict[str, str] = {}

    async def play(self, story: Item) -> None:
        """Take all steps of a story, and check each of them and what is stored in the end."""
        for each in story["steps"]:
            step: Item = {"text": each} if isinstance(each, str) else each
            self.script.begin(step)
            await self.take(step, replace(ALICE, **{key: step[key] for key in ("project", "user_id") if key in step}))
        living = {item.text: item for item in (await self.memory.scope_contents(ALICE)).memories}
        hits = (await self.memory.list(ALICE, deleted=True, limit=100)).hits
        closed = {hit.text: (await self.memory.history(ALICE, hit.id))[0] for hit in hits}
        self.check(story, living, closed)
        found = {hit.text: hit for hit in (*(await self.memory.list(ALICE, limit=100)).hits, *hits)}
        assert {text: found[text].date for text in story.get("dates", ())} == story.get("dates", {})
        assert {text: len(found[text].sources) for text in story.get("sources", ())} == story.get("sources", {})
        if "user_name" in story:
            name = await self.memory.engine.read(lambda conn: name_of_user(conn, ALICE))
            assert name == story["user_name"]
        for text, expected in story.get("replaced", {}).items():
            old = (await self.memory.history(ALICE, living[text].id)).predecessors
            assert [item.memory.text for item in old] == expected, text

    async def take(self, step: Item, scope: Scope) -> None:
        """Take one step and check what came of it."""
        memory = self.memory
        contents = await memory.scope_contents(scope)
        self.ids.update({item.text: item.id for item in contents.memories})
        self.ids.update({item.content: item.id for item in contents.messages})
        if "wait" in step:
            self.clock.forward(**step["wait"])
        elif step.keys() & {"view", "refused", "dossier"}:
            await self.look(step, scope)
        elif step.keys() & {"names", "reword", "forgets"}:
            self.write(step, scope)
        elif "search" in step:
            texts = [hit.text for hit in (await memory.search(scope, step["search"])).hits]
            compare(step, "\n".join(texts), "has", "lacks")
            assert step.get("hits", texts) == texts
        elif "nearer" in step:
            for text in NEARER:
                await memory.add_text(scope, f"{text} {step['nearer']}.", infer=False)
        elif "undo" in step:
            await memory.undo(scope)
        else:
            await self.send(step, scope)

    async def send(self, step: Item, scope: Scope) -> None:
        """Send what a caller says or changes, and check the reply and what the model was asked."""
        ids, script = self.ids, self.script
        memory, embedder = watched(self.memory)
        infer = step.get("infer", None if "say" in step or "decide" in step else False)
        if "say" in step:
            said = cast("list[Any]", step["say"]) if isinstance(step["say"], list) else [step["say"]]
            at = {"at": f"{step['at']}T10:00:00Z"} if "at" in step else {}
            texts = [{"role": "user", **at, **({"content": one} if isinstance(one, str) else one)} for one in said]
            stays = step.get("stays_in_project", False)
            result = await memory.add_messages(messages_from(*texts, scope=scope), infer=infer, stays_in_project=stays)
        elif "update" in step:
            result = await memory.update(
                scope, ids[step["update"]], text=step.get("text"), metadata=step.get("metadata")
            )
        elif "delete" in step:
            named = [ids[text] for text in step["delete"] if text != "*"]
            result = await (memory.delete(scope, named) if named else memory.delete_all(scope))
        else:
            at = datetime.fromisoformat(step["at"]).replace(tzinfo=UTC) if "at" in step else None
            relations = [Relation(*item) for item in step.get("relations", ())]
            rest: Item = {
                "metadata": step.get("metadata"),
                "replaces": [ids[text] for text in step.get("replaces", ())],
            }
            result = await memory.add_text(scope, step["text"], at=at, infer=infer, relations=relations, **rest)
        notes = "\n".join(result.notes)
        assert script.unmatched == [], script.shown
        compare(step, notes, "told", "untold")
        assert step.get("told") != [] or notes == ""
        script.check()
        compare(step, "\n".join(script.shown), "shown", "unshown")
        assert "unshown" not in step or script.shown
        assert len(script.requests) == step.get("requests", len(script.requests))
        assert "embeds" not in step or step["embeds"] == [list(texts) for texts in embedder.texts]
        resembles = [item.memory.text for items in result.similar.values() for item in items]
        assert step.get("resembles", resembles) == resembles
        assert "events" not in step or [change.event for change in result.outcomes] == step["events"]

    def write(self, step: Item, scope: Scope) -> None:
        """Decide on a memory past all stages, with what it names and since when it holds."""
        since, precision = parse_date(step.get("since", "")) or (None, "")
        fact = Fact(
            step.get("to", step.get("text", "")),
            tuple(self.ids[text] for text in step.get("sources", ())),
            tags=tuple(step.get("tags", ())),
            metadata=step.get("metadata", {}),
            valid_from=since,
            valid_from_precision=precision,
            entities=tuple(NamedEntity(*name.split("/")) for name in step.get("names", ())),
            relations=tuple(Relation(*item) for item in step.get("relations", ())),
        )
        if "reword" in step:
            decision = Decision(Event.UPDATE, fact, self.ids[step["reword"]])
        elif "forgets" in step:
            decision = Decision(Event.DELETE, memory_id=self.ids[step["forgets"]], forgets=True)
        else:
            decision = Decision(Event.ADD, fact, replaces=tuple(self.ids[text] for text in step.get("replaces", ())))
        write_decisions(self.memory, decision, scope=scope, stage=step.get("stage", "test"))

    async def look(self, step: Item, scope: Scope) -> None:
        """Read a summary or a dossier, and check what it says and what the model was asked for it."""
        memory, script = self.memory, self.script
        if "refused" in step:
            with pytest.raises(InputError) as error:
                await memory.summary(scope, step["refused"])
            self.read(step, str(error.value))
            return
        if "dossier" in step:
            as_of = self.clock.at - timedelta(**step["before"]) if "before" in step else None
            (dossier,) = await memory.graph.dossiers(scope, step["dossier"], as_of=as_of)
            assert [item.text for item in dossier.holds] == step["holds"]
            assert [item.text for item in dossier.held] == step["held"]
            assert [[item.destination, item.is_current] for item in dossier.relations] == step["relations"]
            return
        shown = await memory.summary(scope, step["view"], refresh=step.get("refresh", False))
        self.read(step, shown.text)
        notes = "\n".join(shown.notes)
        assert [part for part in step.get("told", ()) if part not in notes] == [], notes
        found = {"kind": shown.kind, "changes": shown.changes_since, "lines": list(shown.lines)}
        assert {key: found[key] for key in found if key in step} == {
            key: json.loads(self.filled(json.dumps(step[key]))) for key in found if key in step
        }
        assert "sources" not in step or list(shown.sources) == [self.ids[text] for text in step["sources"]]
        assert bool(script.requests) == (not step.keys().isdisjoint({"summary", "status"})), script.requests
        script.check()
        for label, value in step.get("given", {}).items():
            got = given(script.raw[-1], label)
            assert ([item["text"] for item in got] if isinstance(value, list) else got) == value

    def filled(self, text: str) -> str:
        """Return a text with the ids in it."""
        return re.sub(r"\{([^{}\"]+)\}", lambda found: self.ids[found[1]][:8], text)

    def read(self, step: Item, text: str) -> None:
        """Compare a text with what a step says of it."""
        whole = "\n".join(step["is"]) if isinstance(step.get("is"), list) else step.get("is")
        assert whole is None or self.filled(whole) == text
        assert text.startswith(self.filled(step.get("begins", ""))), text
        assert text.endswith(step.get("ends", "")), text
        compare(step, text, "says", "never")
        assert {part: text.count(part) for part in step.get("counts", {})} == step.get("counts", {}), text

    def check(self, story: Item, living: dict[str, StoredMemory], closed: dict[str, StoredMemory]) -> None:
        """Check what is stored at the end."""
        assert story.get("then", sorted(living)) == sorted(living)
        assert [text for text in story.get("holds", ()) if text not in living] == []
        if "closed" in story:
            assert {text: str(closed[text].valid_until)[: len(end)] for text, end in story["closed"].items()} == story[
                "closed"
            ]
            assert closed.keys() == story["closed"].keys()
            assert not any(item.is_forgotten for item in closed.values())
        found: dict[str, Callable[[StoredMemory], Any]] = {
            "revisions": lambda item: item.revision,
            "relations": lambda item: [f"{one.source} — {one.name} → {one.destination}" for one in item.relations],
            "entities": lambda item: [
                one.name if one.type == "other" else f"{one.name} ({one.type})" for one in item.entities
            ],
        }
        for key, read in found.items():
            assert {text: read(living[text]) for text in story.get(key, ())} == story.get(key, {})


@pytest.fixture(scope="module")
def script() -> Generator[Script]:
    """Give a model to all stories."""
    played = Script()
    with OpenAIServer(played) as played.server:
        yield played


@pytest.mark.parametrize("story", list(stories()))
async def test_what_becomes_of_a_conversation(script: Script, tmp_path: Path, story: Item) -> None:
    clock = StoppedClock()
    settings: Item = {"llm": llm_settings(script.server.base_url), **story.get("settings", {})}
    async with memory_in(tmp_path, clock, **settings) as memory:
        await Stage(memory, script, clock).play(story)
