"""The evaluation with a model: every system answers, a run goes on where it stopped, and the figures are right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evaluate
from evaluated_systems import FULL_CONTEXT, SYSTEMS
from evaluation_scores import f1, verdict
from locomo import read as read_locomo
from locomo import scripted_chat
from loopback import OpenAIServer, Reply

Chat = Callable[[dict[str, Any]], Reply | str]

# A conversation in LoCoMo's form.
CONVERSATION: dict[str, Any] = {
    "sample_id": "made-up",
    "conversation": {
        "speaker_a": "Mira",
        "speaker_b": "Jon",
        "session_1_date_time": "2:10 pm on 4 March, 2024",
        "session_1": [
            {"speaker": "Mira", "dia_id": "D1:1", "text": "I adopted a greyhound called Pilot last week."},
            {"speaker": "Jon", "dia_id": "D1:2", "text": "Lovely! I am learning to bake rye bread."},
        ],
        "session_2_date_time": "9:30 am on 20 May, 2024",
        "session_2": [
            {"speaker": "Jon", "dia_id": "D2:1", "text": "Yesterday I sold my first loaf at the market."},
            {"speaker": "Mira", "dia_id": "D2:2", "text": "Pilot ate half of my umbrella."},
        ],
    },
    "observation": {
        "session_1_observation": {"Mira": [["Mira adopted a greyhound called Pilot.", "D1:1"]]},
        "session_2_observation": {"Jon": [["Jon sold his first loaf at the market.", "D2:1"]]},
    },
    "qa": [
        {"question": "What is the dog of Mira called?", "answer": "Pilot", "evidence": ["D1:1"], "category": 4},
        {"question": "When did Jon sell a loaf?", "answer": "19 May 2024", "evidence": ["D2:1"], "category": 2},
        {"question": "Who ate the piano?", "adversarial_answer": "Pilot", "evidence": ["D2:2"], "category": 5},
    ],
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "data.json"
    file.write_text(json.dumps([CONVERSATION]), "utf-8")
    return file


def model_of(data: Path, asked: list[str]) -> Chat:
    """Return a model that learns the observations, answers from what it is shown, and judges.

    Prompts of questions are appended to `asked`.
    """
    learn = scripted_chat([session for conversation in read_locomo(data) for session in conversation.sessions])

    def chat(request: dict[str, Any]) -> str:
        prompt: str = request["messages"][-1]["content"]
        if prompt.startswith("Judge an answer"):
            is_strict = "CORRECT only if" in prompt
            answer, expected = (
                prompt.split(f"{label}: ")[1].partition("\n")[0] for label in ("Answer", "Expected answer")
            )
            return "CORRECT" if answer == expected or not is_strict else "That is incorrect: WRONG"
        if not prompt.startswith("Excerpts:"):
            return learn(request)
        asked.append(prompt)
        return "Pilot" if "Pilot" in prompt and "called?" in prompt else "a day in May"

    return chat


def evaluated(data: Path, server: OpenAIServer, *options: str) -> int:
    """Run the program with its files beside the data."""
    folder = data.parent
    places = ("--out", str(folder / "answers.jsonl"), "--work", str(folder / "work"), "--embedder", "static")
    return evaluate.main(
        [
            "--data",
            str(data),
            "--model",
            "scripted",
            "--base-url",
            server.base_url,
            *places,
            "--judge-runs",
            "2",
            *options,
        ]
    )


def answers_of(data: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (data.parent / "answers.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.nightly
def test_every_system_answers_every_question(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards the whole way: learned, searched, answered, judged, and shown as a table."""
    asked: list[str] = []
    with OpenAIServer(model_of(data, asked)) as server:
        assert evaluated(data, server, "--prices", "1", "2") == 0
    answers = answers_of(data)
    systems = [name for name in SYSTEMS if name != "mem0"]
    assert {(answer["system"], answer["category"]) for answer in answers} == {
        (system, category) for system in systems for category in ("single-hop", "temporal")
    }
    by_system = {answer["system"]: answer for answer in answers if answer["category"] == "single-hop"}
    assert all(answer["judged"] == {"lenient": [True, True], "strict": [True, True]} for answer in by_system.values())
    temporal = [answer for answer in answers if answer["category"] == "temporal"]
    assert all(answer["judged"] == {"lenient": [True, True], "strict": [False, False]} for answer in temporal)
    full = next(
        prompt for prompt in asked if all(turn["text"] in prompt for turn in CONVERSATION["conversation"]["session_2"])
    )
    assert "[Monday, 2024-03-04 14:10] Mira: I adopted a greyhound called Pilot last week." in full
    assert by_system["palimpsest, memories"]["context_tokens"] < by_system[FULL_CONTEXT]["context_tokens"]
    shown = capsys.readouterr().out
    for system in systems:
        assert f"| {system} | 2 | " in shown
    assert "1.000 ± 0.000 | 0.500 ± 0.000" in shown


def test_a_run_goes_on_where_it_stopped(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Guards money: what is answered and learned isn't paid for again."""
    asked: list[str] = []
    answer = model_of(data, asked)

    def failing(request: dict[str, Any]) -> Reply | str:
        if len(asked) == 3:
            return Reply("No more.", status=500, headers={"x-should-retry": "false"})
        return answer(request)

    systems = ("--systems", "palimpsest", FULL_CONTEXT, "RAG 128, k=1", "--parallel", "1", "--judge-runs", "0")
    with OpenAIServer(failing) as server:
        assert evaluated(data, server, *systems) == 1
    assert "No more." in (told := capsys.readouterr().err)
    assert "run it again to go on" in told
    assert len(answers_of(data)) == 3
    with (data.parent / "answers.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"system": "palimp')
    asked.clear()
    with OpenAIServer(answer) as server:
        assert evaluated(data, server, *systems) == 0
        learning = [sent for sent in server.requests if "New messages: " in sent["json"]["messages"][-1]["content"]]
    assert (len(asked), len(answers_of(data)), learning) == (3, 6, [])


def test_missing_data_are_named_in_a_line(tmp_path: Path) -> None:
    missing = tmp_path / "locomo.json"
    with pytest.raises(SystemExit, match=f"^there is no file or folder {missing}$"):
        evaluate.main(["--data", str(missing), "--model", "any"])


def test_the_scores_are_those_of_the_papers() -> None:
    cases = (("The Pilot.", "pilot", 1.0), ("19 May 2024", "May 2024", 0.8), ("a cat", "dogs", 0.0), ("", "", 1.0))
    for answer, expected, score in cases:
        assert f1(answer, expected) == pytest.approx(score)
    replies = ("CORRECT", "WRONG", "It looks correct, but the year is not: WRONG", "Incorrect.", "")
    assert [verdict(reply) for reply in replies] == [True, False, False, False, False]
