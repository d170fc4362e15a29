"""A session of thirty prompts through the hooks, with a real server: what was injected, and what was kept."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from mcp import Client, StdioServerParameters

from palimpsest.hooks.spool import utc_now
from palimpsest.text.tokenizer import count_tokens
from tests.support.command_line import palimpsest
from tests.support.environment import clean_environment
from tests.support.hook_program import run_hook
from tests.support.mcp_client import reply_text
from tests.support.memory import ALICE, memory_in
from tests.support.repositories import repository
from tests.support.sessions import ClaudeSession, kept

pytestmark = pytest.mark.anyio


class ClaudeCode:
    """A session of Claude Code in a folder, whose hooks are the real program. Each method returns what was injected."""

    def __init__(self, session: str, folder: Path, home: Path, environment: Mapping[str, str]) -> None:
        self.session, self.folder = session, folder
        self._environment = environment
        self._prompts = 0
        place = home / ".claude" / "projects" / folder.name / f"{session}.jsonl"
        self.transcript = ClaudeSession(place, session, str(folder))

    def start(self, source: str = "startup") -> str:
        """Begin, resume or clear the session, or begin again after a compaction."""
        return self._run("SessionStart", source=source)

    def prompt(self, text: str) -> str:
        """Send a prompt. The client writes it down after the hooks have run, and what they injected below it."""
        self._prompts += 1
        injected = self._run("UserPromptSubmit", prompt=text)
        self._user(text)
        if injected:
            self._attach(injected)
        return injected

    def reply(self, text: str, *, thought: str = "", result: str = "") -> str:
        """End a turn: with what the assistant thought, what a tool told it, and what it said."""
        if thought:
            self._assistant([{"type": "thinking", "thinking": thought, "signature": "x"}])
        if result:
            call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
            self._assistant([call])
            self._user([{"type": "tool_result", "tool_use_id": "toolu_1", "content": result}])
        # The file is written late: the last line follows after the hook.
        injected = self._run("Stop", last_assistant_message=text, stop_hook_active=False)
        self._assistant(text)
        return injected

    def interrupt(self, text: str) -> None:
        """Write down a reply that the user interrupts. No hook runs."""
        self._assistant(text)
        self._user("[Request interrupted by user]")

    def compact(self, summary: str) -> str:
        """Compact the context: the hooks before it, its lines in the transcript, and the start after it."""
        injected = self._run("PreCompact", trigger="auto", custom_instructions="")
        self.transcript.other(
            "system",
            subtype="compact_boundary",
            content="Conversation compacted",
            compactMetadata={"trigger": "auto", "preTokens": 155_000},
        )
        beginning = "This session is being continued from a previous conversation that ran out of context."
        self._user(f"{beginning}\n{summary}", isCompactSummary=True, isVisibleInTranscriptOnly=True)
        return injected + self.start("compact")

    def end(self) -> str:
        """End the session."""
        return self._run("SessionEnd", reason="prompt_input_exit")

    def _user(self, content: Any, **rest: Any) -> None:
        self.transcript.user(content, timestamp=utc_now(), **rest)

    def _assistant(self, content: Any) -> None:
        self.transcript.assistant(content, timestamp=utc_now())

    def _attach(self, text: str) -> None:
        attachment = {"type": "hook_additional_context", "content": [text], "hookEvent": "UserPromptSubmit"}
        self.transcript.other("attachment", attachment=attachment, sessionId=self.session, isSidechain=False)

    def _run(self, event: str, **fields: Any) -> str:
        """Run the hook at an event, and return what it puts before the model; "" for nothing."""
        payload: dict[str, Any] = {
            "session_id": self.session,
            "prompt_id": f"{self.session}-{self._prompts}",
            "transcript_path": str(self.transcript.path),
            "cwd": str(self.folder),
            "permission_mode": "default",
            "hook_event_name": event,
            **fields,
        }
        answer = run_hook(self.folder, payload, "--client", "claude-code", env=self._environment)
        if answer is None:
            return ""
        output = answer["hookSpecificOutput"]
        assert (set(answer), output["hookEventName"]) == ({"hookSpecificOutput"}, event)
        return output["additionalContext"]


SETTINGS = {"PALIMPSEST_EMBEDDER__PROVIDER": "e5", "PALIMPSEST_LLM__PROVIDER": "none", "PALIMPSEST_PROJECT": "auto"}

DATABASE = (
    "The tea shop's checkout service uses PostgreSQL 16 as its database, which runs on the machine of the shop itself, "
    "and a copy of it is written to a second machine every night"
)
DEPLOYS = "Deploys of the tea shop go through GitHub Actions to Hetzner"
PAYMENTS = "The tea shop uses Stripe for payments, and invoices are sent by Mollie"
JSON_KEYS = "The tea shop's API uses snake_case for JSON fields"
REDIS = "On 2026-10-02 it was decided to drop Redis and keep sessions in PostgreSQL"
STOCK = "Der Lagerbestand des Teeladens wird jede Nacht um drei Uhr abgeglichen"
CATS = "User lives in Utrecht with her partner Joost and two cats, Miep and Sjors"
DAUGHTER = "User's daughter Fenna was born on 2024-03-11"
ALLERGY = "User is allergic to hazelnuts"
LAPTOP = "User's laptop is a Framework 13 with Fedora"
VAT = "User's accountant needs the VAT figures by the 20th of each quarter's last month"
ADVISER = "Die Steuerberaterin der Nutzerin heißt Frau Lindqvist"
CHOIR = "De gebruiker gaat elke dinsdagavond naar koor"
NAME = "User's name is Marit Jansen"
FORM = "The garden site's contact form posts to Formspree"

OF_SITE = (FORM, "The garden site is built with Astro and deployed to Netlify", "The garden site's font is Inter")
OF_SHOP = (
    DATABASE,
    JSON_KEYS,
    PAYMENTS,
    DEPLOYS,
    REDIS,
    STOCK,
    "The integration tests of the tea shop need Docker running, because they start a mail server and a queue in it",
    "The admin pages of the tea shop are rendered on the server with Jinja templates and a few lines of htmx, no React",
    "Release notes of the tea shop are written in Dutch for the two people in the shop, who do not read English well",
)
OF_USER = (
    NAME,
    "User prefers tabs over spaces",
    CATS,
    "User is a freelance backend developer",
    DAUGHTER,
    ALLERGY,
    "User runs the half marathon of Amsterdam in October 2026",
    "De gebruiker wil commitberichten in het Engels",
    ADVISER,
    "User wants short answers without bullet points",
    CHOIR,
    "User's editor is Helix",
    LAPTOP,
    VAT,
)
FACTS = (*OF_SITE, *OF_SHOP, *OF_USER)

COMPACT = "compact"
SAME = "the prompt itself"


@dataclass(frozen=True)
class Turn:
    """A prompt, the facts that it must bring, and what of it is kept."""

    prompt: str
    brings: tuple[str, ...] = ()
    keeps: str = SAME
    is_interrupted: bool = False


TURNS = (
    Turn("Which database does the checkout service use?", (DATABASE,)),
    Turn("How do we deploy the tea shop again?", (DEPLOYS,)),
    Turn("What is the capital of Mongolia, by the way?"),
    Turn("/model", keeps=""),
    Turn("yes, do that"),
    Turn("Wie heißt eigentlich meine Steuerberaterin?", (ADVISER,)),
    Turn("Waar ben ik allergisch voor?", (ALLERGY,)),
    Turn("Write a function that reverses a linked list in Rust", is_interrupted=True),
    Turn("<task-notification>the build has ended with exit code 0</task-notification>", keeps=""),
    Turn("What did we decide about Redis?", (REDIS,)),
    Turn("Which database does the checkout service use?"),
    Turn(
        "The password of the staging server is Tr0ub4dor&3xyz, look at its queue",
        keeps="The password of the staging server is [secret removed: password], look at its queue",
    ),
    Turn(
        "What are my cats called? <private>My knee hurts, I see a doctor</private>",
        (CATS,),
        keeps="What are my cats called?",
    ),
    Turn("my daughter turns how old next year?", (DAUGHTER,)),
    Turn("When is the next deadline for the VAT figures?", (VAT,)),
    Turn("!ls -la && cat notes.txt", keeps=""),
    Turn("Explain how git rebase works"),
    Turn("refactor the payment module so that stripe webhooks are verified", (PAYMENTS,)),
    Turn(COMPACT),
    Turn("Which database does the checkout service use?", (DATABASE,)),
    Turn("Which database does the checkout service use?"),
    Turn("Where is my contact form posted to?"),
    Turn("How many moons does Jupiter have?"),
    Turn("What did we decide about Redis?"),
    Turn("how should the keys in the JSON response be written"),
    Turn("rename the variable foo to bar everywhere"),
    Turn("Auf welchem Laptop arbeite ich?"),
    Turn(
        f"You told me <palimpsest-memory>\n- {LAPTOP}\n</palimpsest-memory> but I have a new one",
        keeps="You told me  but I have a new one",
    ),
    Turn("Who won the world cup in 1998?"),
    Turn("ok, thanks"),
    Turn("Write a haiku about autumn leaves"),
)


def facts_in(text: str) -> list[str]:
    return [fact for fact in FACTS if fact in text]


def reply_to(number: int) -> str:
    return f"That was the turn with the number {number}."


def said_in(turns: tuple[Turn, ...]) -> list[tuple[str, str]]:
    messages: list[tuple[str, str]] = []
    for number, turn in enumerate(turns):
        if turn.prompt != COMPACT:
            messages += [("user", turn.prompt if turn.keeps == SAME else turn.keeps), ("assistant", reply_to(number))]
    return [message for message in messages if message[1]]


async def add_facts(client: Client) -> None:
    for project, texts in (("garden-site", OF_SITE), ("tea-shop", OF_SHOP), ("", OF_USER)):
        for text in texts:
            reply_text(await client.call_tool("add_memory", {"text": text, "scope": {"project": project}}))


def take_turns(session: ClaudeCode) -> list[str]:
    """Go through the session, and return what each prompt, and the compaction, had injected."""
    injected: list[str] = []
    for number, turn in enumerate(TURNS):
        if turn.prompt == COMPACT:
            injected.append(session.compact("The user asked about the tea shop, and about PostgreSQL."))
            continue
        injected.append(session.prompt(turn.prompt))
        if turn.is_interrupted:
            session.interrupt(reply_to(number))
        else:
            assert session.reply(reply_to(number), thought="The user asks.", result="some output of a tool") == ""
    return injected


def assert_injected(injected: list[str]) -> None:
    """Fail unless each prompt got the facts that it must, none of them twice, and none of the other project."""
    shown: set[str] = set()
    for turn, text in zip(TURNS, injected, strict=True):
        if turn.prompt == COMPACT:
            # Before the brief stands what was said so far, if a server had the time to write it.
            brief = text[text.rindex("<palimpsest-memory>") :]
            assert_brief(brief, "tea-shop", OF_SHOP)
            shown = set(facts_in(brief))
            assert DATABASE not in shown, "the oldest facts of the project have no room in the brief"
            continue
        facts = facts_in(text)
        assert (turn.prompt, bool(text), set(turn.brings) - set(facts)) == (turn.prompt, bool(turn.brings), set())
        assert shown.isdisjoint(facts), turn.prompt
        assert set(facts).isdisjoint(OF_SITE)
        assert count_tokens(text) <= 300
        assert len(facts) <= len(turn.brings) + 1, "nothing is injected that hardly matters"
        shown.update(facts)


def assert_brief(text: str, project: str, facts: tuple[str, ...]) -> None:
    """Fail unless a brief begins with the user's name, and names facts of its project and of no other."""
    others = (*OF_SITE, *OF_SHOP)
    heading, first = text.split("\n")[2:4]
    assert (heading, first.endswith(NAME)) == ("About the user:", True)
    assert f"About the project {project}:" in text
    assert {fact for fact in facts_in(text) if fact in others} <= set(facts)
    assert len(set(facts_in(text)) & set(facts)) >= min(len(facts), 4)
    assert count_tokens(text) <= 500


@pytest.mark.nightly
async def test_a_session_of_thirty_prompts(tmp_path: Path) -> None:
    """Each prompt gets what answers it, once in a context; what was said is kept once; the next session knows of it."""
    shop, site = repository(tmp_path / "tea-shop"), repository(tmp_path / "garden-site")
    environment = clean_environment(tmp_path, **SETTINGS)
    of_site, of_shop = (
        StdioServerParameters(command=sys.executable, args=["-m", "palimpsest"], env=environment, cwd=folder)
        for folder in (site, shop)
    )
    session = ClaudeCode("first", shop, tmp_path, environment)
    assert session.start() == ""
    async with Client(of_site) as client:
        await add_facts(client)
    async with Client(of_shop) as client:
        await client.list_tools()
        reply_text(await client.call_tool("search_memories", {"query": "anything"}))
        injected = await anyio.to_thread.run_sync(take_turns, session)
        assert session.end() == ""
    assert len(TURNS) == 31
    assert_injected(injected)

    palimpsest(tmp_path, "list", settings=SETTINGS)  # it takes in what the server has not
    listed = palimpsest(tmp_path, "conversations", settings={**SETTINGS, "PALIMPSEST_PROJECT": "tea-shop"})
    assert "claude-code" in listed
    async with memory_in(tmp_path / "data", embedder={"provider": "e5"}) as memory:
        assert kept(memory) == said_in(TURNS)
        assert sorted(row.text for row in (await memory.scope_contents(ALICE)).memories) == sorted(OF_USER)

    brief = ClaudeCode("second", shop, tmp_path, environment).start()
    other = ClaudeCode("third", site, tmp_path, environment).start()
    assert_brief(brief, "tea-shop", OF_SHOP)
    assert f'- user: "{TURNS[-1].prompt}"\n- assistant: "{reply_to(len(TURNS) - 1)}"\n' in brief
    assert_brief(other, "garden-site", OF_SITE)
    assert "The last conversation" not in other


@pytest.mark.nightly
def test_a_command_renders_what_it_took_in(tmp_path: Path) -> None:
    """Where no server had run yet, the brief of a folder stayed empty after a command had taken its session in."""
    shop = repository(tmp_path / "tea-shop")
    settings = {"PALIMPSEST_LLM__PROVIDER": "none", "PALIMPSEST_PROJECT": "auto"}
    environment = clean_environment(tmp_path, **settings)
    session = ClaudeCode("first", shop, tmp_path, environment)
    session.prompt("We ship on Fridays only")
    session.reply("Noted: releases are on Fridays.")
    subprocess.run(  # in the folder of the session, as a person does
        [sys.executable, "-m", "palimpsest", "list"], env=environment, cwd=shop, check=True, capture_output=True
    )
    brief = ClaudeCode("second", shop, tmp_path, environment).start()
    assert '- user: "We ship on Fridays only"\n- assistant: "Noted: releases are on Fridays."' in brief
