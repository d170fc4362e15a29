"""Search through the facade: by meaning and by words, within scope, time, filters and budget, the asked one first."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from palimpsest.core.errors import InputError
from palimpsest.core.models import Decision, Event, Fact, Hit, Relation, Scope
from palimpsest.index.backfill import Backfill
from palimpsest.memory import Memory
from palimpsest.recall.hits import hit_tokens
from tests.support.ledger_access import write_decisions
from tests.support.memory import ALICE, StoppedClock, add_text, memory_in, messages_from

pytestmark = pytest.mark.anyio

LIFE = (
    "The company offsite takes place in Lisbon in June",
    "User's dog is named Rex",
    "User is allergic to peanuts",
    "The deploy script needs VERSION set",
    "The staging database was moved to Frankfurt",
)
OTHER_LANGUAGES = {
    "用户住在上海的浦东": "上海",
    "Пользователь работает врачом в Казани": "кто работает в Казани?",
    "ユーザーは京都で猫を飼っている": "京都の猫",
    "المفاتيح عند البواب": "أين مفتاح المخزن؟",  # a plural that is formed inside the word, with an article
}


async def fill(memory: Memory, *texts: str, scope: Scope = ALICE) -> None:
    for text in texts:
        await memory.add_text(scope, text)


async def found(memory: Memory, query: str, scope: Scope = ALICE, **options: Any) -> list[str]:
    """Return the texts of the hits, best first."""
    return [hit.text for hit in (await memory.search(scope, query, **options)).hits]


async def tell(memory: Memory, said: str, learned: str, **rest: Any) -> tuple[str, str]:
    """Store a message and a fact that was learned from it, and return the ids of both."""
    (message,) = messages_from({"role": "user", "content": said, **rest})
    await memory.add_messages([message], infer=False)
    decision = Decision(Event.ADD, Fact(learned, sources=(message.id,)))
    return message.id, write_decisions(memory, decision, stage="extract").outcomes[0].memory.id


async def test_a_memory_is_found_by_meaning_or_by_one_of_its_words(memory: Memory) -> None:
    by_meaning = {
        "where is the team retreat?": LIFE[0],
        "what is the pet called": LIFE[1],
        "food intolerance": LIFE[2],
        "which variable do deployments need?": LIFE[3],
        "Frankfurt": LIFE[4],
    }
    assert await found(memory, "anything") == [], "the very first search is no error"
    await fill(memory, LIFE[1])
    assert await found(memory, "pet") == [LIFE[1]], "the mean of one vector leaves nothing to compare"
    await fill(memory, *LIFE)
    for query, expected in by_meaning.items():
        assert (await found(memory, query))[0] == expected, query
    assert await found(memory, "What is the dog called?", Scope("bob")) == []
    await fill(memory, *OTHER_LANGUAGES)
    for expected, query in OTHER_LANGUAGES.items():
        assert (await found(memory, query))[0] == expected, query
    with pytest.raises(InputError, match="operator 'like'"):
        await memory.search(ALICE, "x", filters={"topic": {"like": "w"}})


async def test_a_memory_stands_in_the_place_of_its_message_for_every_limit(memory: Memory) -> None:
    said, cited = await tell(memory, "I named the dog Rex", "Ana named the dog Rex", name="Ana", id="t1")
    hits = (await memory.search(ALICE, "dog named Rex")).hits
    assert [(hit.id, hit.sources) for hit in hits] == [(cited, ("t1",))]
    await fill(memory, *LIFE, *(f"User's dog number {number} has a name" for number in range(20)))
    for limit in (1, 3, 20):
        hits = (await memory.search(ALICE, "Which dog did Ana name?", limit=limit, max_tokens=20_000)).hits
        assert len(hits) == limit
        assert (hits[0].id, hits[0].sources) == (cited, ("t1",))
        assert said not in {hit.id for hit in hits}
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


async def test_the_budget_holds_and_the_best_hit_is_cut(memory: Memory) -> None:
    recipe = "User's recipe for rabbit stew: " + "stir the rabbit stew, then wait. " * 400
    await add_text(memory, recipe, metadata={"from": "a cookbook"})  # without, it would be a document
    await fill(memory, *(f"The rabbit number {number} eats {'carrots ' * 20}" for number in range(12)))
    result = await memory.search(ALICE, "recipe for rabbit stew", max_tokens=500)
    assert result.hits[0].length == len(recipe)
    assert recipe.startswith(result.hits[0].text.removesuffix("…"))
    assert sum(map(hit_tokens, result.hits)) <= 500
    result = await memory.search(ALICE, "rabbit carrots", limit=8, max_tokens=200)
    assert sum(map(hit_tokens, result.hits)) <= 200
    assert len(result.hits) + result.omitted == 8


async def test_as_of_returns_what_was_believed_then(memory: Memory, clock: StoppedClock) -> None:
    query = "where does the user live"
    _, nice = await tell(memory, "I live in Nice", "User lives in Nice")
    tea = await add_text(memory, "User likes tea", metadata={"mood": "calm"})
    _, locker = await tell(memory, "My locker is number 4711", "User's locker has number 4711")
    started = clock.at
    clock.forward(days=1)
    await memory.update(ALICE, nice, text="User lives in Lyon")
    await memory.update(ALICE, tea, metadata={"mood": "wild"})
    await memory.delete(ALICE, [locker])
    between = clock.at
    clock.forward(days=1)
    now = await found(memory, query)
    assert now[0] == "User lives in Lyon"
    assert "I live in Nice" in now, "the memory no longer holds what its message says"
    await memory.add_text(ALICE, "User lives in Metz", replaces=[nice])
    assert (await found(memory, query))[0] == "User lives in Metz"
    assert (await found(memory, query, as_of=between))[0] == "User lives in Lyon"
    then = await found(memory, query, as_of=started)
    assert then[0] == "User lives in Nice"
    assert "I live in Nice" not in then, "but it did at the time"
    assert await found(memory, "tea", filters={"mood": "calm"}, as_of=started) == ["User likes tea"]
    for instant in (started, between):
        assert "4711" not in " ".join(await found(memory, "locker 4711", as_of=instant)), "somebody deleted it since"
    await memory.restore(ALICE, locker)
    assert "4711" in (await found(memory, "locker 4711", as_of=started))[0]
    assert await found(memory, "where", as_of=clock.at - timedelta(days=3)) == []


async def test_a_message_whose_facts_were_deleted_is_not_found(memory: Memory) -> None:
    _, fact = await tell(memory, "My locker is number 4711", "User's locker has number 4711")
    await memory.delete(ALICE, [fact])
    assert await found(memory, "locker number") == []
    await memory.restore(ALICE, fact)
    assert "4711" in (await found(memory, "locker number"))[0]


async def test_a_filter_applies_to_everything_and_not_to_the_best_hits(memory: Memory) -> None:
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({"topic": "work"}, {"a"}),
        ({"stars": {"gte": 2, "lt": 4}}, {"b"}),
        ({"OR": [{"topic": "work"}, {"topic": "home"}]}, {"a", "b"}),
        ({"NOT": {"topic": "work"}, "stars": {"gt": 0}}, {"b"}),
        ({"kind": "message"}, {"a message"}),
        ({"at": {"lt": "2026-01-01"}}, {"a message"}),
    ]
    noise = (Decision(Event.ADD, Fact(f"noise about letters, number {number}")) for number in range(150))
    write_decisions(memory, *noise)
    await memory.engine.run(lambda: Backfill(memory.engine.ledger, memory.engine.embedder).run())
    await add_text(memory, "a", metadata={"topic": "work", "stars": 1})
    await add_text(memory, "b", metadata={"topic": "home", "stars": 3})
    old = messages_from({"role": "user", "content": "a message", "at": "2025-05-05"})
    await memory.add_messages(old, infer=False)
    for filters, expected in cases:
        assert set(await found(memory, "noise about letters", filters=filters)) == expected, filters


EXACT = (
    ("what is on port 8048", "The gate listens on port 8048", "The api listens on port 8084"),
    ("who edits page 88124", "Ida edits https://wiki.test/pages/88124/edit", "Ben edits page 88142 and reads it"),
    ("which linter for C++", "C++ is checked by clang-tidy", "C# is checked by the linter of the editor"),
    ("whose number is 0612 345 678", "Yusuf has the number 0612345678", "Ilse has the number 0612 354 678"),
    ('who wrote "the tide turns"', "The tide turns is by Ana", "Ben wrote that the turns of the tide are late"),
    ("where is src/lib/util.py used", "util.py in src/lib/util.py is used by the worker", "src/lib is used"),
)


async def test_what_alone_has_a_number_or_a_quotation_comes_first(memory: Memory) -> None:
    facts = [Decision(Event.ADD, Fact(text)) for _, *texts in EXACT for text in reversed(texts)]
    write_decisions(memory, *facts)
    for query, first, _ in EXACT:
        assert (await found(memory, query))[0] == first, query


TOLD = (
    ("Tom is allergic to nuts", ("Tom", "is allergic to", "nuts")),
    ("Tom speaks Portuguese", ("Tom", "speaks", "Portuguese")),
    ("Tom's sister is Ida", ("Ida", "is sister of", "Tom")),
    ("Tom is allergic to latex", ("Tom", "is allergic to", "latex")),
    ("Tom speaks Greek", ("Tom", "speaks", "Greek")),
    ("Tom's sister is Bea", ("Bea", "is sister of", "Tom")),
)


async def test_the_value_that_is_asked_for_comes_first(memory: Memory, clock: StoppedClock) -> None:
    """Guards against taking a second allergy, language or sister for an update."""
    for text, relation in TOLD:
        clock.forward(days=10)
        await add_text(memory, text, relations=[Relation(*relation)])
    asked = ("Is Tom allergic to nuts?", 0), ("does Tom speak Portuguese?", 1), ("who is Ida", 2), ("who is Bea", 5)
    for question, answer in asked:
        assert (await found(memory, question))[0] == TOLD[answer][0], question


@pytest.mark.parametrize(("limit", "max_tokens"), [(1, 3_000), (3, 50), (10, 3_000)])
async def test_the_pages_together_show_every_memory_once(memory: Memory, limit: int, max_tokens: int) -> None:
    """Also if one of them is longer than a page: it is cut there."""
    lengths = (1, 4_000, 40, 7, 300, 20_000, 3, 900)
    texts = [f"{place:02}{' tea' * length}" for place, length in enumerate(lengths)]
    outcomes = write_decisions(memory, *(Decision(Event.ADD, Fact(text)) for text in texts)).outcomes
    deleted = [outcome.memory.id for outcome in outcomes[::4]]
    await memory.delete(ALICE, deleted)
    for is_deleted in (False, True):
        hits: list[Hit] = []
        cursor: str | None = None
        while cursor is not None or not hits:
            page = await memory.list(ALICE, limit=limit, max_tokens=max_tokens, cursor=cursor, deleted=is_deleted)
            assert 0 < len(page.hits) <= limit
            assert sum(map(hit_tokens, page.hits)) <= max_tokens
            hits, cursor = [*hits, *page.hits], page.cursor
        expected = [text for place, text in enumerate(texts) if (place % 4 == 0) == is_deleted]
        assert [hit.length or len(hit.text) for hit in hits] == [len(text) for text in reversed(expected)]


async def test_of_two_facts_about_one_person_the_one_that_answers_comes_first(tmp_path: Path) -> None:
    """Guards small memories: the newer fact shares the person's name with the question, and nothing else."""
    facts = (
        "Mira lives in Majorna, a part of Gothenburg",
        "Mira's dog must not eat chicken",
        "We release on Thursdays",
    )
    clock = StoppedClock()
    async with memory_in(tmp_path, clock, embedder={"provider": "e5"}) as memory:
        for fact in facts:
            await memory.add_text(ALICE, fact)
            clock.forward(minutes=1)
        for query in ("wo wohnt Mira?", "où habite Mira ?", "where does Mira live?"):
            assert (await found(memory, query))[0] == facts[0], query


async def test_a_question_finds_what_only_implies_the_answer(tmp_path: Path) -> None:
    """The question has a wider word than the fact, and others say something of the kind too."""
    facts = (
        "The user is a forester with the council of Aviemore.",
        "The user's brother Alasdair works at the hospital as an anaesthetist.",
        "Biscuit, a lurcher, sleeps at the foot of the user's bed.",
        "The neighbour walks her dachshund every evening.",
        "The user rents the cottage from Mrs Geddes for 640 pounds a month.",
        "The oil tank is filled by Highland Fuels every October.",
    )
    async with memory_in(tmp_path, embedder={"provider": "e5"}) as memory:
        await fill(memory, *facts)
        assert (await found(memory, "do I have any pets"))[0] == facts[2]
        assert (await found(memory, "who delivers heating"))[0] == facts[5]
        assert (await found(memory, "who is my landlady"))[0] == facts[4]


async def test_hits_of_all_projects_are_in_order(tmp_path: Path) -> None:
    """What belongs to no project is found in each of them, and keeps the place that it deserves."""
    async with memory_in(tmp_path) as memory:
        await fill(memory, *LIFE)
        for project in ("atlas", "globe", "zebra"):
            scope = Scope("alice", project)
            await fill(memory, f"The {project} build runs on Debian", "Rex the parser is slow", scope=scope)
        hits = (await memory.search(ALICE, "what is the dog called", all_projects=True)).hits
        assert hits[0].text == "User's dog is named Rex"
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        few = await memory.search(ALICE, "what is the dog called", all_projects=True, limit=1)
        assert [hit.text for hit in few.hits] == ["User's dog is named Rex"]
