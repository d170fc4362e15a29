"""Add messages and texts with a scripted model, without one, in pieces, once more, and within the bound of a user."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loopback import Reply
from palimpsest.core.errors import InputError
from palimpsest.core.models import Event, Scope
from palimpsest.learn import commit
from palimpsest.learn.add import PIECE_TOKENS, pieces
from palimpsest.memory import Memory
from palimpsest.text.tokenizer import count_tokens
from tests.support.mcp_client import reply_text
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in, memory_texts, messages_from
from tests.support.scripted_model import add_all, answering, decision, facts_reply, given, memory_with
from tests.support.server_in_process import connect
from tests.support.watched_embedder import watched

pytestmark = pytest.mark.anyio

UNREACHABLE = {"provider": "openai", "config": {"model": "e", "openai_base_url": "http://127.0.0.1:9/v1"}}


async def test_a_conversation_becomes_facts_with_sources_dates_and_labels(tmp_path: Path) -> None:
    labels = {"happened_at": "2026-05-07", "keywords": ["flat"], "tags": ["event"]}
    fact = {"text": "Ana got the keys on 2026-05-07.", "sources": [1], **labels}
    async with memory_with([json.dumps({"facts": [fact]}), facts_reply("Nora sails")], tmp_path) as (memory, server):
        keys = {"role": "user", "name": "Ana", "content": "We got the keys yesterday!", "id": "t1"}
        result = await memory.add_messages(messages_from(keys, ("assistant", "Congratulations!")))
        (hit,) = (await memory.list(ALICE)).hits
        assert len(server.chat_requests) == 1, "nothing is known yet, so there is nothing to decide"
        bob, old = Scope("bob"), {"role": "user", "content": "I sail", "at": "2025-01-02T10:00:00Z"}
        await memory.add_messages(messages_from(old, scope=bob))
        (late,) = (await memory.list(bob)).hits
    assert (result.kept_messages, [change.event for change in result.outcomes]) == (2, [Event.ADD])
    assert (hit.text, hit.sources, hit.name, hit.tags) == (fact["text"], ("t1",), "Ana", ("event",))
    assert [f"{one.at:%Y-%m-%d}" for one in (hit, late)] == ["2026-05-07", "2025-01-02"]


async def test_the_prompt_is_that_of_who_talks_with_the_wishes_of_the_user(tmp_path: Path) -> None:
    wishes: dict[str, Any] = {"custom_instructions": "Prices in $.", "includes": ["work"]}
    async with memory_with([facts_reply()] * 2, tmp_path, **wishes) as (memory, server):
        for scope in (Scope("alice", agent_id="otto"), ALICE):
            await memory.add_messages(messages_from(("user", "Never deploy on Fridays"), scope=scope))
        graph = memory.engine.prompts.get("graph").system
    prompts = [request["messages"][0]["content"] for request in server.chat_requests]
    assert ["memory of an AI agent" in prompt for prompt in prompts] == [True, False]
    said = f"Prices in $.\n\nExtract facts about these topics only: work.\n\n{graph}"
    assert [prompt.endswith(said) for prompt in prompts] == [True, True]


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(status=401), "401"),
        (Reply(body=b'{"choices": [{"mess'), "not in OpenAI's format"),
        (Reply(refusal="I will not"), "declined"),
        ("I am sorry, I cannot help with that.", "no usable reply"),
    ],
)
async def test_the_messages_are_kept_and_the_reply_says_what_was_not_done(
    tmp_path: Path, reply: Reply | str, expected: str
) -> None:
    async with memory_with(lambda _: reply, tmp_path) as (memory, _):
        result = await memory.add_messages(messages_from(("user", "I moved to Lyon")))
        assert [hit.text for hit in (await memory.search(ALICE, "Lyon")).hits] == ["I moved to Lyon"]
    assert (result.kept_messages, result.outcomes) == (1, ())
    (note,) = result.notes
    assert note.startswith("kept 1 message, but no facts were learned")
    assert expected in note


async def test_what_is_known_of_somebodys_allergy_is_named_and_nobody_elses(memory: Memory) -> None:
    """An allergy that is out of date must not be overlooked, however little the two texts have in common."""
    known = await add_text(memory, "Ruth Hallam lives with her son Ben, 11, who has a nut allergy")
    await add_text(memory, "Mia Hallam is allergic to wool")
    for text in ("Ben Hallam's allergy is to peanuts only, tree nuts are fine", "Tests showed that Ben tolerates nuts"):
        told = await memory.add_text(ALICE, text, infer=False)
        added = told.outcomes[0].memory.id
        assert [item.memory.id for item in told.similar[added] if not item.is_only_near] == [known]
        known = added


async def test_what_ends_before_the_other_begins_is_no_contradiction(memory: Memory) -> None:
    await add_text(memory, "The band rehearses on Thursdays in the town hall until December 2026", until="2026-12")
    later = "The band rehearses on Tuesdays in the fire station from January 2027"
    result = await memory.add_text(ALICE, later, since="2027-01")
    assert all(item.is_only_near for item in result.similar.get(result.outcomes[0].memory.id, ()))


async def test_a_broken_prompt_file_is_named_and_the_messages_are_kept(tmp_path: Path) -> None:
    """A prompt may be edited, and broken, while the server runs."""
    own = tmp_path / "prompts"
    own.mkdir()
    async with memory_with([], tmp_path, prompts_dir=own) as (memory, _):
        (own / "extract.md").write_text("---\nname: extract\n", "utf-8")
        result = await memory.add_messages(messages_from(("user", "I moved to Lyon")))
    assert "extract.md" in result.notes[0]
    assert result.kept_messages == 1


@pytest.mark.nightly
async def test_without_an_embedder_texts_are_stored_and_found_by_words(tmp_path: Path) -> None:
    async with memory_in(tmp_path, embedder=UNREACHABLE) as memory:
        result = await memory.add_text(ALICE, "User plays the cello")
        search_result = await memory.search(ALICE, "cello")
    assert "found by words only" in result.notes[0]
    assert [hit.text for hit in search_result.hits] == ["User plays the cello"]
    assert "searched by words only" in search_result.notes[0]
    async with memory_in(tmp_path) as memory:
        assert "no vector of this embedder yet" in (await memory.search(ALICE, "cello")).notes[0]
        await memory.care.rebuild()
        assert (await memory.search(ALICE, "musical instrument")).notes == ()


async def test_messages_are_kept_and_found_and_the_reply_says_so(memory: Memory, clock: StoppedClock) -> None:
    retreat = {"role": "user", "content": "The team retreat is in Lisbon", "at": "2024-02-29T08:00:00+02:00"}
    result = await memory.add_messages(messages_from(retreat))
    (hit,) = (await memory.search(ALICE, "where is the offsite of the team?")).hits
    clock.forward(minutes=5)
    assert (await memory.add_messages(messages_from(retreat, at=clock.at))).kept_messages == 0
    assert result.kept_messages == 1
    assert result.notes[0].startswith("there is no language model to ask: messages are kept as they are")
    assert (hit.kind, hit.at.isoformat()) == ("message", "2024-02-29T06:00:00+00:00")
    assert hit.created_at == StoppedClock().at


async def test_a_known_text_takes_a_later_date_and_keeps_it(memory: Memory) -> None:
    first, later = datetime(2025, 3, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
    await memory.add_text(ALICE, "User lives in Lyon", at=first)
    (hit,) = (await memory.search(ALICE, "where does the user live")).hits
    assert (hit.at, hit.created_at) == (first, StoppedClock().at)
    assert (await memory.add_text(ALICE, "User lives in Lyon", at=first)).outcomes[0].event is Event.NONE
    (change,) = (await memory.add_text(ALICE, "User lives in Lyon", at=later)).outcomes
    assert (change.event, change.memory.at) == (Event.UPDATE, later)
    unchanged = await memory.add_text(ALICE, "User lives in Lyon", at=first)
    assert unchanged.outcomes[0].event is Event.NONE
    assert unchanged.notes == ("its date stays 2026-03-01, which is later",)
    await memory.undo(ALICE)
    (hit,) = (await memory.list(ALICE)).hits
    assert hit.at == first


async def test_one_too_many_is_refused_leaves_nothing_and_finds_no_way_round(tmp_path: Path) -> None:
    """What adds nothing is done in a full memory."""
    texts = ["Alice keeps bees", "Alice lives in Lyon", "Alice plays the cello"]
    async with memory_in(tmp_path, max_memories=3) as memory:
        bees, _, cello = [await add_text(memory, text) for text in texts]
        edits = await memory.log(ALICE)
        with pytest.raises(InputError, match=r"alice would have 4 memories and may have 3 .*nothing was stored"):
            await add_text(memory, "Alice drinks Darjeeling")
        assert (await memory_texts(memory), await memory.log(ALICE)) == (texts, edits)
        assert not [hit for hit in (await memory.search(ALICE, "Darjeeling")).hits if "Darjeeling" in hit.text]
        await add_text(memory, "Alice keeps wasps", replaces=[bees])
        await memory.update(ALICE, cello, text="Alice plays the viola")
        assert (await memory.add_text(ALICE, texts[1], infer=False)).outcomes[0].event is Event.NONE
        await memory.delete(ALICE, [cello])
        await add_text(memory, "Alice drinks Darjeeling")
        with pytest.raises(InputError, match="would have 4 memories"):
            await memory.restore(ALICE, cello)
        for _ in range(4):
            await memory.undo(ALICE)
        assert await memory_texts(memory) == texts


async def test_many_writers_at_once_do_not_exceed_it(tmp_path: Path) -> None:
    """All scopes of the user count, and no other user does."""
    refused: list[InputError] = []
    scopes = [Scope("alice"), Scope("alice", "web"), Scope("alice", "web", "coder", "r1")]

    async def add(memory: Memory, number: int) -> None:
        try:
            await memory.add_text(scopes[number % 3], f"Ticket {number} is open", infer=False)
        except InputError as error:
            refused.append(error)

    async with memory_in(tmp_path, max_memories=7) as first, memory_in(tmp_path, max_memories=7) as second:
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(add, (first, second)[number % 2], number)
        stored = {hit.id for scope in scopes for hit in (await first.list(scope)).hits}
        await first.add_text(Scope("bob"), "Releases are tagged", infer=False)
    assert (len(stored), len(refused)) == (7, 13)


async def test_a_call_embeds_no_longer_than_a_client_waits(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts that do not fit are stored, found by their words, and embedded later."""
    monkeypatch.setattr(commit, "CALL_SECONDS", 0.0)
    monkeypatch.setattr(commit, "FIRST_CHARS", 0)
    slow, embedder = watched(memory)
    said = messages_from(("user", "User lives in Nice"), ("user", "User lives in Lyon"))
    added = await slow.add_messages(said, infer=False)
    assert embedder.texts == []
    assert [note for note in added.notes if "2 of 2 texts" in note]
    assert (await memory.search(ALICE, "Lyon")).hits[0].text == "User lives in Lyon"
    await memory.care.rebuild()
    assert (await memory.health())["vectors"] == "complete"


async def test_a_memory_changes_over_to_another_embedder_and_can_be_searched_meanwhile(tmp_path: Path) -> None:
    async with memory_in(tmp_path) as before:
        for text in ("Anna spielt Geige", "User lives in Nice"):
            await before.add_text(ALICE, text, infer=False)
        async with memory_in(tmp_path, background=True, embedder={"provider": "e5"}) as memory:
            assert await memory.care.waiting() == 2, "nothing begins before the first call"
            assert (await memory.search(ALICE, "Geige")).hits[0].text == "Anna spielt Geige"
            await memory.add_text(ALICE, "User drinks tea", infer=False)
            with anyio.fail_after(60):
                while (await memory.health())["vectors"] != "complete":
                    await anyio.lowlevel.checkpoint()
            found = await memory.search(ALICE, "Which instrument does Anna play?")
            assert found.hits[0].text == "Anna spielt Geige"
            await before.add_text(ALICE, "User has a dog", infer=False)
            assert (await memory.search(ALICE, "dog")).hits[0].text == "User has a dog"
        assert (await before.search(ALICE, "Nice")).hits[0].text == "User lives in Nice"


async def test_a_message_longer_than_a_piece_is_split_where_sentences_end(tmp_path: Path) -> None:
    """Guards who "she" is: a later part is shown how the message begins, what precedes it, and what was found."""
    seen: list[str] = []
    notes: list[list[str]] = []

    def extract(request: dict[str, Any]) -> dict[str, Any]:
        notes.append(given(request, "Notes of the system, for context only"))
        seen.append(given(request, "New messages")[0]["text"])
        return {"facts": [{"text": f"Fact of part {len(seen)}.", "sources": [1]}]}

    diary = "My sister Ida moved in. " + "".join(
        f"On day {day} she painted the hedge of Mr. {day}. " for day in range(800)
    )
    async with memory_with(answering(extract=extract, decide=add_all), tmp_path) as (memory, _):
        result = await memory.add_messages(messages_from(("user", diary)))
        assert (await memory.add_messages(messages_from(("user", diary)))).outcomes == ()
        assert len({hit.message_ids for hit in (await memory.list(ALICE)).hits}) == 1
    assert len(seen) > 3
    assert "".join(seen).strip() == diary.strip()
    assert all(text.rstrip().endswith(".") and count_tokens(text) <= PIECE_TOKENS for text in seen)
    assert (len(result.outcomes), result.kept_messages) == (len(seen), 1)
    assert notes[0] == [f"Message 1 is part 1 of {len(notes)} of one long message, which goes on after it"]
    for number, (part, facts) in enumerate(notes[1:], 2):
        assert part.startswith(f"Message 1 is part {number} of {len(notes)} of one long message")
        assert ("goes on" in part) == (number < len(notes))
        assert 'begins: "My sister Ida moved in. ' in part
        assert seen[number - 2][-60:].strip() in part
        assert f"Fact of part {number - 1}." in facts


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("unit", [".", "…a", "\u3002a", "? ", "\n"])
def test_a_text_of_full_stops_is_split_in_linear_time(unit: str) -> None:
    """Guards every caller: in quadratic time such a text takes half an hour, and the interpreter with it."""
    (given_message,) = messages_from(("user", unit * (180_000 // len(unit)) + "end"))
    parts = [part for piece in pieces([given_message]) for part in piece]
    assert "".join(part.message.content for part in parts) == given_message.content
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]


async def test_a_request_in_a_long_message_waits_until_all_of_it_was_read(tmp_path: Path) -> None:
    extractions = 0

    def extract(_: dict[str, Any]) -> dict[str, Any]:
        nonlocal extractions
        extractions += 1
        text, forget = f"Fact of part {extractions}.", "Mark" if extractions == 1 else ""
        return json.loads(facts_reply(text, forget=forget))

    def decide(request: dict[str, Any]) -> dict[str, Any]:
        mark = next((each["id"] for each in given(request, "Stored memories") if each["text"] == "Mark drinks."), 0)
        made = [
            decision(item["fact"], "DELETE", mark, "") if "forget" in item else decision(item["fact"], "ADD")
            for item in given(request, "New facts")
        ]
        return {"decisions": made}

    diary = "Forget Mark. " + "We looked at the ponds, hedges and sheds. " * 600
    async with memory_with(answering(extract=extract, decide=decide), tmp_path) as (memory, _):
        await memory.add_text(ALICE, "Mark drinks.", infer=False)
        result = await memory.add_messages(messages_from(("user", diary)))
        assert await memory_texts(memory) == [f"Fact of part {number + 1}." for number in range(extractions)]
    assert extractions > 2
    assert any(note.startswith("forgotten, as asked (Mark)") for note in result.notes)


async def everything(memory: Memory) -> tuple[Any, ...]:
    """Return every edit and everything living."""
    return await memory.log(ALICE, limit=1_000), await memory.scope_contents(ALICE)


async def kept(memory: Memory, *messages: dict[str, Any], scope: Scope = ALICE) -> int:
    """Add messages and return how many were kept."""
    return (await memory.add_messages(messages_from(*messages, scope=scope, at=memory.engine.clock()))).kept_messages


async def test_messages_without_ids_or_times_are_recognized_for_ten_minutes(
    memory: Memory, clock: StoppedClock
) -> None:
    hello, hi = {"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi", "name": "Bot"}
    for minutes, new in ((0, 2), (0, 0), (5, 0), (5, 0), (1, 2)):
        clock.forward(minutes=minutes)
        before = await everything(memory)
        assert await kept(memory, hello, hi) == new
        assert (await everything(memory) == before) is (new == 0)
    for scope in (Scope("alice", project="web"), Scope("alice", run_id="r1")):
        assert await kept(memory, hello, hi, scope=scope) == 2
    others = ((hello,), (hi, hello), (hello, {**hi, "name": "Bob"}), (hello, {**hi, "role": "user"}), (hello, hi) * 2)
    for batch in others:
        clock.forward(seconds=1)
        assert await kept(memory, *batch) == len(batch), batch
        assert await kept(memory, *batch) == 0, batch


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("more", [{}, {"id": "t1"}, {"at": "2026-05-01T10:00:00Z"}])
async def test_facts_are_extracted_once_when_messages_are_repeated_after_a_failure(
    tmp_path: Path, more: dict[str, str]
) -> None:
    """Also from messages that were kept when there was no model."""
    clock, said = StoppedClock(), {"role": "user", "content": "I moved to Lyon", **more}
    learned = facts_reply("User lives in Lyon")
    async with memory_with([Reply(status=401), "Sure!", "Sure!", learned], tmp_path, clock) as (memory, server):
        for new, learnt, requests in ((1, 0, 1), (0, 0, 3), (0, 1, 4), (0, 0, 4)):
            result = await memory.add_messages(messages_from(said, at=clock.at))
            assert (result.kept_messages, len(result.outcomes)) == (new, learnt)
            assert len(server.chat_requests) == requests
            clock.forward(minutes=1)
    async with memory_in(tmp_path / "kept") as memory:
        assert await kept(memory, said) == 1
    async with memory_with([learned], tmp_path / "kept") as (memory, _):
        assert (await memory.add_messages(messages_from(said))).kept_messages == 0
        assert await memory_texts(memory) == ["User lives in Lyon"]


async def test_every_tool_that_writes_can_be_called_again(tmp_path: Path) -> None:
    batch = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    with_ids = [{**message, "id": f"t{number}"} for number, message in enumerate(batch)]
    async with connect(tmp_path) as server, memory_in(tmp_path / "data") as memory:

        async def twice(tool: str, expected: str, **arguments: Any) -> list[dict[str, Any]]:
            first = await server.call_tool(tool, arguments)
            reply_text(first)
            after = await everything(memory)
            assert reply_text(await server.call_tool(tool, arguments)).startswith(expected)
            assert await everything(memory) == after
            return first.structured_content.get("results", [])

        known, said = "unchanged (duplicate of ", "unchanged\nnote: all of these messages were known already"
        (tea,) = await twice("add_memory", known, text="User likes tea", metadata={"a": 1})
        (nice,) = await twice("add_memory", known, text="User lives in Nice")
        await twice("add_memory", said, messages=batch)
        await twice("add_memory", said, messages=with_ids)
        (lyon,) = await twice("add_memory", known, text="User lives in Lyon", replaces=[nice["id"][:8]])
        of_lyon = {"memory_id": lyon["id"]}
        await twice("update_memory", f"unchanged: [{lyon['id'][:8]}]", **of_lyon, text="User lives in Metz")
        await twice("update_memory", f"unchanged (duplicate of {tea['id'][:8]})", **of_lyon, text="User likes tea")
        await twice("delete_memory", "unchanged (already deleted): ", memory_ids=[tea["id"]])
        await twice("update_memory", "unchanged (not deleted): ", memory_id=tea["id"], restore=True)
        confirmed = {"all": True, "confirm": "delete 1 memory and 4 messages"}
        await twice("delete_memory", "unchanged: nothing is stored in this scope", **confirmed)


async def test_a_wrong_id_in_replaces_is_noticed(memory: Memory) -> None:
    """What shares no word with what it replaced may have been meant for another memory."""
    nuts = await add_text(memory, "Tobia is allergic to hazelnuts")
    hours = await memory.add_text(ALICE, "Miriam works 38 hours a week", replaces=[nuts], infer=False)
    (note,) = hours.notes
    assert note.startswith(f"[{nuts[:8]}], which it replaced, shares no word with it; ")
    assert note.endswith(": Tobia is allergic to hazelnuts")
    replaces = [hours.outcomes[0].memory.id]
    assert (await memory.add_text(ALICE, "Miriam works 30 hours", replaces=replaces, infer=False)).notes == ()
