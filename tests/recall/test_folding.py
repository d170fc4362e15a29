"""Folding: the same words once, a memory before its message, and a message only where it holds more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from palimpsest.core.models import Hit
from palimpsest.recall.fold import FoldWords, fold, holds_more, same_words_key
from tests.support.scripted_model import NOW


def memory(hit_id: str, text: str, *message_ids: str) -> Hit:
    """Return a memory that was learned from messages."""
    return Hit(hit_id, "memory", text, 0.4, NOW, NOW, NOW, message_ids=message_ids, sources=message_ids)


def message(hit_id: str, text: str, name: str = "") -> Hit:
    """Return a message."""
    return Hit(hit_id, "message", text, 0.9, NOW, NOW, NOW, role="user", name=name, message_ids=(hit_id,))


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.id for hit in hits]


REX = message("t1", "We named our new dog Rex!")
REX_MEMORY = memory("m1", "User's dog is named Rex.", "t1")
MOVED = message("t2", "I moved to Lyon in May and work at the bakery in Rue Mercière, my sister Eva found it.")
MOVED_MEMORY = memory("m2", "User moved to Lyon.", "t2")


class TestTheSameWords:
    @pytest.mark.parametrize(
        ("text", "other"),
        [
            ("Tea at five", "tea  at\nFIVE."),
            ("Tea, at five!", "Tea at five"),
            ("\uff34\uff45\uff41 at five", "tea at five"),
            ("Straße 5", "STRASSE 5"),
            ("用户住在上海。", "用户住在上海"),
            ("¿Dónde vive?", "dónde vive"),
            ("...", "..."),
        ],
    )
    def test_case_punctuation_and_white_space_make_no_difference(self, text: str, other: str) -> None:
        """One of two such hits says everything, in every script."""
        assert same_words_key(text) == same_words_key(other)
        assert ids(fold([memory("a", text), memory("b", "No tea"), memory("c", other)])) == ["a", "b"]

    @pytest.mark.parametrize(
        ("text", "other"),
        [
            ("User's locker is 4711", "User's locker is 4712"),
            ("It was -5 degrees", "It was 5 degrees"),
            ("User codes in C#", "User codes in C"),
            ("The budget is 1,5", "The budget is 15"),
            ("Ana is 30", "Ana is 3 0"),
            ("User lives in Nice", "User lived in Nice"),
            ("Tea 👍", "Tea 👎"),
            ("...", "!!!"),
        ],
    )
    def test_any_other_difference_makes_two_hits(self, text: str, other: str) -> None:
        """What looks nearly the same may be the answer."""
        assert ids(fold([memory("a", text), memory("b", other)])) == ["a", "b"]

    def test_a_shared_message_is_no_repetition(self) -> None:
        """Two facts of one message are two hits, even if hits above cover all their messages."""
        facts = [memory("a", "Ana has a cat", "1", "2"), memory("b", "Ana has a dog", "2"), memory("c", "Ana sings")]
        assert ids(fold(facts)) == ["a", "b", "c"]
        assert fold([]) == []

    def test_two_people_who_say_the_same_are_two_hits(self) -> None:
        """Who said it may be the answer. The same person, or a memory of the same words, is a repetition."""
        ana, ben, ana_again = (
            message(*hit) for hit in (("1", "Me too!", "Ana"), ("2", "Me too", "Ben"), ("3", "me too", "Ana"))
        )
        assert ids(fold([ana, ben, ana_again, memory("4", "Me too")])) == ["1", "2"]


class TestAMemoryAndItsMessage:
    def test_a_message_below_its_memory_is_left_out_if_it_holds_no_more(self) -> None:
        """The memory names the message among its sources."""
        assert fold([REX_MEMORY, REX]) == [REX_MEMORY]

    def test_a_memory_takes_the_place_of_the_message_above_it(self) -> None:
        """The better rank of the two counts, and the order of the scores stays."""
        other = memory("x", "User sings")
        first, second = fold([replace(REX, relevance=0.8), other, REX_MEMORY])
        assert (first.id, first.text, first.sources) == ("m1", REX_MEMORY.text, ("t1",))
        assert (first.score, first.relevance) == (0.9, 0.8)
        assert second == other

    def test_a_memory_that_was_not_read_yet_takes_the_place_too(self) -> None:
        """The result does not depend on how many hits are read at once, and the memory is there only once."""
        other = memory("x", "User sings")
        assert ids(fold([REX, other], [REX_MEMORY])) == ["m1", "x"]
        assert ids(fold([REX, other, REX_MEMORY], [REX_MEMORY])) == ["m1", "x"]

    def test_a_message_that_holds_more_is_shown_with_its_memory(self) -> None:
        """A detail that nobody extracted can still be found."""
        assert ids(fold([MOVED, MOVED_MEMORY])) == ["t2", "m2"]
        assert ids(fold([MOVED_MEMORY, MOVED])) == ["m2", "t2"]
        assert ids(fold([MOVED], [MOVED_MEMORY])) == ["t2"]

    def test_a_message_folds_into_its_own_memories_only(self) -> None:
        """A memory with other sources may be about somebody else."""
        stranger = memory("s", "The neighbour's dog is named Rex, a new dog.", "t9")
        assert ids(fold([stranger, REX])) == ["s", "t1"]

    def test_several_memories_above_hold_a_message_together(self) -> None:
        """A message of two facts repeats the two memories, but not one of them."""
        both = message("t", "My brother Tom plays the cello and my aunt Mia breeds alpacas")
        tom = memory("a", "User's brother Tom plays the cello", "t")
        mia = memory("b", "User's aunt Mia breeds alpacas", "t")
        assert ids(fold([tom, mia, both])) == ["a", "b"]
        assert ids(fold([tom, both, mia])) == ["a", "b"]
        assert ids(fold([tom, both])) == ["a", "t"]


@pytest.mark.parametrize(
    ("said", "remembered", "more"),
    [
        ("I'm allergic to peanuts", "User is allergic to peanuts.", False),
        ("Hey! I am allergic to peanuts, cashews and pistachios", "User is allergic to peanuts.", True),
        ("My sister is vegetarian", "User is vegetarian.", True),
        ("My locker is number 4711", "User has a locker with a number.", True),
        ("Where do I keep the keys?", "User asked where to keep the keys.", False),
        ("Ich bin gegen Erdnüsse allergisch", "Nutzer ist allergisch gegen Erdnüsse.", False),
        ("Meine Schwester Eva ist gegen Erdnüsse allergisch", "Nutzer ist allergisch gegen Erdnüsse.", True),
        ("Ich wohne jetzt in Köln und arbeite bei der Stadt", "Nutzer wohnt in Köln.", True),
        ("我对花生过敏", "用户对花生过敏。", False),
        ("我对花生过敏。我妹妹对猫毛过敏", "用户对花生过敏。", True),
        ("Я работаю врачом в Казани", "Пользователь работает врачом в Казани", False),
        ("Я работаю врачом в Казани, раньше жил в Москве", "Пользователь работает врачом", True),
        ("Mm. " * 100, "User agrees", True),
        ("Oh, is it?", "", True),
    ],
)
def test_a_message_holds_more_if_its_memories_lack_its_words(said: str, remembered: str, *, more: bool) -> None:
    """Rewording to the third person is no loss; another person, place or number is."""
    assert holds_more(message("t", said), [memory("m", remembered, "t")], FoldWords()) == more


@pytest.mark.parametrize(
    ("query", "expected"),
    [("Who goes to Zermatt?", ["t"]), ("Who likes hiking?", ["m"]), ("What does Ana like?", ["m"])],
)
def test_a_message_with_a_word_that_the_query_asks_for_holds_more(query: str, expected: list[str]) -> None:
    """The one word that a memory leaves out may be the answer. A speaker's name is not such a word."""
    said = message("t", "Ana here: my sister Eva likes hiking in the Alps around Zermatt", name="Ana")
    remembered = memory("m", "User's sister Eva likes hiking in the Alps.", "t")
    assert ids(fold([said], [remembered], FoldWords.of([said], query))) == expected
