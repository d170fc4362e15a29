"""Search through the facade: by meaning and by words, within scope, time, filters and budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import Decision, Event, Fact, Scope
from palimpsest.index.backfill import embed_missing
from palimpsest.memory import Memory
from palimpsest.recall.hits import hit_tokens
from palimpsest.text.tokenizer import count_tokens
from tests.support.command_line import palimpsest
from tests.support.ledger_access import second_writer, write_decisions
from tests.support.mcp_client import reply_results
from tests.support.memory import ALICE, StoppedClock, memory_in, messages_from
from tests.support.server_in_process import connect

pytestmark = pytest.mark.anyio

LIFE = (
    "The company offsite takes place in Lisbon in June",
    "User's dog is named Rex",
    "User is allergic to peanuts",
    "The deploy script needs VERSION set",
    "User's mother works as a nurse in Bergen",
    "Invoices are sent on the first of the month",
    "User prefers window seats",
    "The staging database was moved to Frankfurt",
)


async def fill(memory: Memory, *texts: str, scope: Scope = ALICE) -> None:
    for text in texts:
        await memory.add_text(scope, text)


async def first(memory: Memory, query: str, **options: Any) -> str:
    return (await memory.search(ALICE, query, **options)).hits[0].text


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("where is the team retreat?", "The company offsite takes place in Lisbon in June"),
        ("what is the pet called", "User's dog is named Rex"),
        ("food intolerance", "User is allergic to peanuts"),
        ("which variable do deployments need?", "The deploy script needs VERSION set"),
        ("Frankfurt", "The staging database was moved to Frankfurt"),
    ],
)
async def test_a_memory_is_found_by_meaning_or_by_one_of_its_words(tmp_path: Path, query: str, expected: str) -> None:
    """Both searches work with the default embedder."""
    async with memory_in(tmp_path) as memory:
        await fill(memory, *LIFE)
        assert await first(memory, query) == expected


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("用户住在上海的浦东", "上海"),
        ("Пользователь работает врачом в Казани", "кто работает в Казани?"),
        ("ユーザーは京都で猫を飼っている", "京都の猫"),
        ("Die Nutzerin spielt Geige im Orchester", "Welches Orchester?"),
        ("المستخدم يعيش في القاهرة", "القاهرة"),
    ],
)
async def test_memories_in_other_languages_are_found_by_a_common_word(tmp_path: Path, text: str, query: str) -> None:
    """Search covers scripts that the default embedder hardly knows."""
    async with memory_in(tmp_path) as memory:
        await fill(memory, *LIFE, text)
        assert await first(memory, query) == text


async def test_a_single_memory_is_found(tmp_path: Path) -> None:
    """The mean of one vector is the vector itself, which leaves nothing to compare."""
    async with memory_in(tmp_path) as memory:
        await fill(memory, "User's dog is named Rex")
        assert await first(memory, "pet") == "User's dog is named Rex"


async def test_an_empty_memory_returns_no_hits(tmp_path: Path) -> None:
    """The very first search is no error."""
    async with memory_in(tmp_path) as memory:
        assert (await memory.search(ALICE, "anything")).hits == ()


async def test_a_search_returns_nothing_of_other_users(tmp_path: Path) -> None:
    """Users do not see each other's memories."""
    async with memory_in(tmp_path) as memory:
        await fill(memory, *LIFE)
        assert (await memory.search(Scope("bob"), "What is the dog called?")).hits == ()


async def test_a_memory_and_its_message_are_one_hit(tmp_path: Path) -> None:
    """The same content is not returned twice."""
    async with memory_in(tmp_path) as memory:
        (message,) = messages_from({"role": "user", "content": "We named our new dog Rex", "id": "t1"})
        await memory.add_messages([message], infer=False)
        cited = await _add_fact(memory, "User's dog is named Rex", message.id)
        hits = (await memory.search(ALICE, "dog named Rex")).hits
        assert [(hit.id, hit.sources) for hit in hits] == [(cited, ("t1",))]


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("limit", [1, 3, 20])
async def test_a_memory_stands_in_the_place_of_its_message_for_every_limit(tmp_path: Path, limit: int) -> None:
    """The message ranks higher, as it has the words of the query. The memory says the same and is shown first."""
    async with memory_in(tmp_path) as memory:
        (message,) = messages_from({"role": "user", "name": "Ana", "content": "I named the dog Rex", "id": "t1"})
        await memory.add_messages([message], infer=False)
        cited = await _add_fact(memory, "Ana named the dog Rex", message.id)
        await fill(memory, *LIFE, *(f"User's dog number {number} has a name" for number in range(20)))
        hits = (await memory.search(ALICE, "Which dog did Ana name?", limit=limit, max_tokens=20_000)).hits
        assert len(hits) == limit
        assert (hits[0].id, hits[0].sources) == (cited, ("t1",))
        assert message.id not in {hit.id for hit in hits}
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


async def test_a_message_folds_into_what_was_believed_then(tmp_path: Path) -> None:
    """A memory that was changed later no longer holds what its first message says, but it did at the time."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        (message,) = messages_from(("user", "I live in Nice"))
        await memory.add_messages([message], infer=False)
        cited = await _add_fact(memory, "User lives in Nice", message.id)
        then = clock()
        clock.forward(days=1)
        await memory.update(ALICE, cited, text="User lives in Lyon")
        before = (await memory.search(ALICE, "Where does the user live?", as_of=then)).hits
        now = (await memory.search(ALICE, "Where does the user live?")).hits
        assert [hit.text for hit in before] == ["User lives in Nice"]
        assert {hit.text for hit in now} == {"User lives in Lyon", "I live in Nice"}


async def test_a_long_memory_that_answers_is_shown_cut(tmp_path: Path) -> None:
    """The best hit is never left out for its length, and the shorter ones below it are shown too."""
    text = "User's recipe for rabbit stew: " + "stir the rabbit stew, then wait. " * 400
    async with memory_in(tmp_path) as memory:
        await fill(memory, *LIFE)
        await memory.add_text(ALICE, text, metadata={"from": "a cookbook"})  # without, it would be a document
        search_result = await memory.search(ALICE, "recipe for rabbit stew", max_tokens=500)
        best = search_result.hits[0]
        assert best.length == len(text)
        assert text.startswith(best.text.removesuffix("…"))
        assert sum(map(hit_tokens, search_result.hits)) <= 500
        assert len(search_result.hits) + search_result.omitted == len(LIFE) + 1
        assert search_result.omitted == 0


async def test_hits_that_are_not_relevant_enough_are_left_out_and_counted(tmp_path: Path) -> None:
    """The setting min_relevance; its note says how many hits it left out."""
    async with memory_in(tmp_path, min_relevance=1.0) as memory:
        await fill(memory, *LIFE)
        search_result = await memory.search(ALICE, "Where does the user's mother work?")
        assert search_result.hits == ()
        assert search_result.omitted == 0
        assert f"{len(LIFE)} hits are left out" in search_result.notes[0]


async def test_a_message_whose_facts_were_deleted_is_not_found(tmp_path: Path) -> None:
    """Deleting a fact also hides the message it came from, until the fact is restored."""
    async with memory_in(tmp_path) as memory:
        (message,) = messages_from(("user", "My locker is number 4711"))
        await memory.add_messages([message], infer=False)
        fact = await _add_fact(memory, "User's locker has number 4711", message.id)
        await memory.delete(ALICE, [fact])
        assert (await memory.search(ALICE, "locker number")).hits == ()
        await memory.restore(ALICE, fact)
        assert "4711" in await first(memory, "locker number")


async def test_a_message_is_found_by_the_name_of_its_speaker(tmp_path: Path) -> None:
    """A query about one of several people returns what that person said."""
    async with memory_in(tmp_path) as memory:
        conversation = [
            {"role": "user", "name": name, "content": text, "at": f"2026-05-{day:02}"}
            for day, (name, text) in enumerate(
                [
                    ("Ana", "I go sailing at the weekend"),
                    ("Ben", "At the weekend I sail a lot"),
                    ("Ana", "The train was late again"),
                    ("Ben", "My sister baked a cake"),
                    ("Ana", "We painted the kitchen green"),
                    ("Ben", "The printer is out of paper"),
                ],
                start=1,
            )
        ]
        await memory.add_messages(messages_from(*conversation), infer=False)
        assert (await memory.search(ALICE, "How does Ben spend the weekend?")).hits[0].name == "Ben"
        assert (await memory.search(ALICE, "How does Ana spend the weekend?")).hits[0].name == "Ana"


async def test_limit_and_token_budget_hold_and_omitted_hits_are_counted(tmp_path: Path) -> None:
    """A reply does not fill the agent's context."""
    async with memory_in(tmp_path) as memory:
        await fill(memory, *(f"The rabbit number {number} eats {'carrots ' * 20}" for number in range(12)))
        search_result = await memory.search(ALICE, "rabbit carrots", limit=8, max_tokens=200)
        assert sum(hit_tokens(hit) for hit in search_result.hits) <= 200
        assert len(search_result.hits) + search_result.omitted == 8
        assert len((await memory.search(ALICE, "rabbit", limit=5, max_tokens=20_000)).hits) == 5
        assert count_tokens(search_result.hits[0].text) > 30


async def test_as_of_returns_what_was_believed_then(tmp_path: Path) -> None:
    """Updated, superseded and deleted texts can still be searched for as of their time."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        result = await memory.add_text(ALICE, "User lives in Nice")
        nice = result.outcomes[0].memory.id
        started = clock.at
        clock.forward(days=10)
        await memory.update(ALICE, nice, text="User lives in Lyon")
        between = clock.at
        clock.forward(days=10)
        await memory.add_text(ALICE, "User lives in Metz", replaces=[nice])
        assert await first(memory, "where does the user live") == "User lives in Metz"
        assert await first(memory, "where does the user live", as_of=between) == "User lives in Lyon"
        assert await first(memory, "where does the user live", as_of=started) == "User lives in Nice"
        clock.forward(days=-21)
        assert (await memory.search(ALICE, "where", as_of=clock.at)).hits == ()


async def test_a_filter_applies_to_everything_and_not_to_the_best_hits(tmp_path: Path) -> None:
    """An entry that passes the filter is found even if it would have ranked far down."""
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({"topic": "work"}, {"a"}),
        ({"stars": {"gte": 2, "lt": 4}}, {"b"}),
        ({"OR": [{"topic": "work"}, {"topic": "home"}]}, {"a", "b"}),
        ({"NOT": {"topic": "work"}, "stars": {"gt": 0}}, {"b"}),
        ({"kind": "message"}, {"a message"}),
        ({"at": {"lt": "2026-01-01"}}, {"a message"}),
    ]
    async with memory_in(tmp_path) as memory:
        await fill(memory, *(f"noise about letters, number {number}" for number in range(150)))
        await memory.add_text(ALICE, "a", metadata={"topic": "work", "stars": 1})
        await memory.add_text(ALICE, "b", metadata={"topic": "home", "stars": 3})
        await memory.add_messages(
            messages_from({"role": "user", "content": "a message", "at": "2025-05-05"}), infer=False
        )
        for filters, expected in cases:
            found = await memory.search(ALICE, "noise about letters", filters=filters, limit=100, max_tokens=20_000)
            assert {hit.text for hit in found.hits} == expected, filters


async def test_an_unknown_operator_is_refused(tmp_path: Path) -> None:
    """A filter with an unknown operator is an error and does not match everything."""
    async with memory_in(tmp_path) as memory:
        with pytest.raises(InputError, match="operator 'like'"):
            await memory.search(ALICE, "x", filters={"topic": {"like": "w"}})


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("provider", ["chroma", "exact"])
async def test_results_are_the_same_with_and_without_the_index(tmp_path: Path, provider: str) -> None:
    """The index only proposes candidates; the ledger decides."""
    async with memory_in(tmp_path, vector_store={"provider": provider}, background=True) as memory:
        await fill(memory, *LIFE)
        before = await memory.search(ALICE, "pets and family")
        await memory.engine.run(memory.projection.rebuild)
        assert memory.projection.state == "ready"
        assert await memory.search(ALICE, "pets and family") == before
        await memory.add_text(ALICE, "User's cat is named Miso")
        assert "Miso" in {word for hit in (await memory.search(ALICE, "cat")).hits for word in hit.text.split()}
        await memory.delete(ALICE, [before.hits[0].id])
        after = await memory.search(ALICE, "pets and family")
        assert before.hits[0].id not in {hit.id for hit in after.hits}


async def _add_fact(memory: Memory, text: str, message_id: str) -> str:
    """Add a fact that cites a message, as extraction does, and return its id."""
    decision = Decision(Event.ADD, Fact(text, sources=(message_id,)))
    return write_decisions(memory, decision, stage="extract").outcomes[0].memory.id


async def test_messages_with_the_same_external_id_are_two(tmp_path: Path) -> None:
    """Clients may number the messages of every conversation from 1."""
    async with memory_in(tmp_path) as memory:
        january = {"role": "user", "id": "1", "content": "I adopted a cat", "at": "2026-01-01"}
        march = {"role": "user", "id": "1", "content": "My cat had surgery", "at": "2026-03-01"}
        await memory.add_messages(messages_from(january), infer=False)
        await memory.add_messages(messages_from(march), infer=False)
        assert len((await memory.search(ALICE, "cat")).hits) == 2


async def test_as_of_knows_the_metadata_and_the_deleted_messages_of_then(tmp_path: Path) -> None:
    """Search at an instant covers more than the texts."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        result = await memory.add_text(ALICE, "User likes tea", metadata={"mood": "calm"})
        tea = result.outcomes[0].memory.id
        (message,) = messages_from(("user", "My locker is number 4711"))
        await memory.add_messages([message], infer=False)
        locker = await _add_fact(memory, "User's locker has number 4711", message.id)
        before = clock.at
        clock.forward(days=1)
        await memory.update(ALICE, tea, metadata={"mood": "wild"})
        await memory.delete(ALICE, [locker])
        clock.forward(days=1)
        then = await memory.search(ALICE, "tea", filters={"mood": "calm"}, as_of=before)
        assert [hit.text for hit in then.hits] == ["User likes tea"]
        assert len((await memory.search(ALICE, "locker 4711", as_of=before)).hits) >= 1
        texts = [hit.text for hit in (await memory.search(ALICE, "locker 4711", as_of=clock.at)).hits]
        assert "4711" not in " ".join(texts)


async def test_writes_of_another_process_reach_the_index_after_a_search(tmp_path: Path) -> None:
    """A process that only searches brings its index up to date."""
    async with memory_in(tmp_path, background=True) as memory:
        with anyio.fail_after(60):
            await memory.search(ALICE, "anything")
            while memory.projection.state != "ready":  # noqa: ASYNC110 - another task opens it, and says nothing
                await anyio.sleep(0.01)
            with second_writer(tmp_path) as add:
                add("User lives in Metz")
            await memory.engine.run(lambda: embed_missing(memory.engine.ledger, memory.engine.embedder))
            await memory.search(ALICE, "Metz")
            while await memory.engine.run(memory.projection.count) != 1:  # noqa: ASYNC110 - likewise
                await anyio.sleep(0.01)


async def test_a_hit_explains_its_score_on_request(tmp_path: Path) -> None:
    """The facade, the command and, if the settings say so, the tool return the parts of a score."""
    async with memory_in(tmp_path / "data") as memory:
        await fill(memory, *LIFE)
        hits = (await memory.search(ALICE, "What is the dog named?", explain=True)).hits
        assert hits[0].score_parts["coverage"] > hits[1].score_parts["coverage"]
        assert hits[0].score > hits[1].score
        assert (await memory.search(ALICE, "dog")).hits[0].score_parts == {}
    printed = palimpsest(tmp_path, "search", "What is the dog named?", "--explain")
    assert "coverage +" in printed
    assert "coverage" not in palimpsest(tmp_path, "search", "What is the dog named?")
    async with connect(tmp_path, PALIMPSEST_EXPLAIN="true") as explaining:
        (hit,) = reply_results(await explaining.call_tool("search_memories", {"query": "the dog", "limit": 1}))
        assert hit["explained"]["coverage"] > 0


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    ("old", "new", "query"),
    [
        ("Anna lives in Leeds", "Anna has moved to York", "Where does Anna live?"),
        ("The support line has extension 41", "The support line has extension 77 now", "Which extension has support?"),
        ("用户在银行工作", "用户现在在医院工作", "用户在哪里工作"),
        ("Олег работает в банке", "Олег теперь работает в школе", "Где работает Олег?"),
    ],
)
async def test_a_current_fact_comes_before_the_one_it_replaced(tmp_path: Path, old: str, new: str, query: str) -> None:
    """The old fact is often worded more like the query. As of its time it still comes first."""
    clock = StoppedClock()
    async with memory_in(tmp_path, clock) as memory:
        await fill(memory, *LIFE, old)
        then = clock()
        clock.forward(days=1)
        await fill(memory, new)
        texts = [hit.text for hit in (await memory.search(ALICE, query)).hits]
        assert texts.index(new) < texts.index(old)
        assert await first(memory, query, as_of=then) == old


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize("query", ["wo wohnt Mira?", "où habite Mira ?", "where does Mira live?"])
async def test_of_two_facts_about_one_person_the_one_that_answers_comes_first(tmp_path: Path, query: str) -> None:
    """Guards small memories: the newer fact shares the person's name with the question, and nothing else."""
    facts = [
        "Mira lives in Majorna, a part of Gothenburg",
        "Mira's dog must not eat chicken",
        "We release on Thursdays",
    ]
    clock = StoppedClock()
    async with memory_in(tmp_path, clock, embedder={"provider": "e5"}) as memory:
        for fact in facts:
            await memory.add_text(ALICE, fact)
            clock.forward(minutes=1)
        assert (await memory.search(ALICE, query)).hits[0].text == facts[0]


async def test_an_arabic_plural_is_found_by_its_singular(tmp_path: Path) -> None:
    """Arabic plurals are formed inside the word, with and without the article."""
    async with memory_in(tmp_path) as memory:
        await fill(memory, *LIFE, "المفاتيح عند البواب", "يربي كريم النحل على السطح")
        assert await first(memory, "أين مفتاح المخزن؟") == "المفاتيح عند البواب"


async def test_hits_of_all_projects_are_in_order(tmp_path: Path) -> None:
    """What belongs to no project is found in each of them, and keeps the place that it deserves."""
    async with memory_in(tmp_path) as memory:
        await fill(memory, *LIFE)
        for project in ("atlas", "globe", "zebra"):
            scope = Scope("alice", project)
            await fill(memory, f"The {project} build runs on Debian", "Rex the parser is slow", scope=scope)
        hits = (await memory.search(ALICE, "what is the dog called", all_projects=True)).hits
        assert hits[0].text == "User's dog is named Rex"
        assert [hit.relevance for hit in hits] == sorted((hit.relevance for hit in hits), reverse=True)
        few = await memory.search(ALICE, "what is the dog called", all_projects=True, limit=1)
        assert [hit.text for hit in few.hits] == ["User's dog is named Rex"]
