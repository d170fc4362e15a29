"""Codes of locks and numbers by which a state knows a person are secrets; other numbers near such words stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palimpsest.text.redaction import redact

LEAST_REMOVED = 0.75

SECRETS = """
The safe opens with [[4471]]
Kod till larmet: [[8812]]
The combination of the bike lock is [[3-7-1]]
The gym locker combination is [[12-34-8]]
bike lock: [[3-7-1]]
The code for the shed padlock is [[0912]].
Der Code für das Fahrradschloss ist [[4711]]
Der Tresor öffnet sich mit [[99-12-34]]
Le code de la porte est [[45A7]]
Le code du portail est [[4512]]
El código de la puerta del garaje es [[9021]]
Il codice del cancello è [[3345]]
De code van de voordeur is [[5521]]
Kod do drzwi to [[4412]]
Marta's personal number is [[840503-1234]]
My SSN is [[078-05-1120]]
NI number [[QQ 12 34 56 C]]
codice fiscale [[RSSMRA85T10A562S]]
Mein DNI es [[12345678Z]]
User's wifi is SeeNetz, pass [[Kielwasser77]]
The guest network is Hafen5 and the pass is [[tide-high-42]]
Wi-Fi SeeNetz / key [[Kielwasser77]]
Netflix: anna@example.org / [[Sommer!2025]]
login anna pass [[Regen88wolke]]
alarm panel pin [[4471]]
sim pin [[4471]]
"""

HARMLESS = """
ski pass Zermatt 2027
boarding pass LH1234 seat 12A
user login pass rate 98.5%
user 4711 / team7blue
The door pin is loose
write to anna@example.org / 2nd floor
Wi-Fi 802.11ax / 5GHz
The code for the port is 8080
The door opens with 20 mm clearance
The safe opens with a key
Gate 12 opens at 18:30
The alarm code from 2019 was changed
The lock is 30 cm long
The code of the gate module has 4000 lines
Tor 4711 is closed
The combination of tea and milk is 200 ml
Nie 12345 gesehen
The passport number is on page 2
Bus 840503 stops here
"""


@pytest.mark.parametrize("line", SECRETS.strip().splitlines())
def test_the_number_is_removed(line: str) -> None:
    before, secret, after = line.replace("]]", "[[").split("[[")
    text = redact(before + secret + after).text
    assert secret not in text
    assert text.startswith(f"{before}[secret removed: ")
    assert text.endswith(f"]{after}")


@pytest.mark.parametrize("text", HARMLESS.strip().splitlines())
def test_another_number_stays(text: str) -> None:
    assert redact(text).text == text


def test_most_of_somebody_elses_secrets_are_removed_and_nothing_harmless() -> None:
    """`secret_cases.json` was written without sight of the rules. Accounts and passports, which stay, are among it."""
    cases: list[dict[str, str | None]] = json.loads(Path(__file__).with_name("secret_cases.json").read_text("utf-8"))
    secrets = [case for case in cases if case["secret"]]
    removed = [case for case in secrets if str(case["secret"]) not in redact(str(case["text"])).text]
    damaged = [case["text"] for case in cases if not case["secret"] and redact(str(case["text"])).text != case["text"]]
    assert damaged == []
    assert len(removed) >= LEAST_REMOVED * len(secrets)
