"""Sixty near-identical facts of a kind, made from templates. They differ in digits, in a word or in word order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations, product

COUNT = 60

PEOPLE = ["Anna", "Boris", "Clara", "Dario", "Elif", "Femke", "Goran", "Hanna", "Ivo", "Jasmin"]
SURNAMES = ["Adler", "Brandt", "Conti", "Dvorak", "Eriksen", "Fuchs"]
MONTHS = "January February March April May June July August September October November December"
SERVICES = ["billing", "ledger", "search", "mail", "auth", "media", "export", "report", "cache", "queue"]
STAGES = ["development", "test", "staging", "demo", "canary", "production"]
COLOURS = ["red", "blue", "green", "yellow", "white", "black", "grey", "orange", "brown", "purple"]
SHELVES = ("cellar", "attic", "garage", "kitchen", "office", "shed")

MONATE = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember"
FARBEN = ["rote", "blaue", "grüne", "gelbe", "weiße", "schwarze", "graue", "braune", "lila", "türkise"]
ORTE = ("im Keller", "auf dem Dachboden", "in der Garage", "in der Küche", "im Büro", "im Schuppen")

SURNAMES_ZH = "王李张刘陈杨赵黄周吴"
GIVEN_NAMES_ZH = ("小雨", "建国", "丽华", "志强", "明月", "海燕")
CITIES_ZH = ("北京", "上海", "广州", "成都", "西安", "武汉", "杭州", "南京", "重庆", "天津")
CARGO_ZH = ("茶叶", "丝绸", "瓷器", "水果", "书籍", "玩具")


@dataclass(frozen=True)
class Family:
    """Look-alikes of one kind in one language."""

    name: str
    language: str
    has_digits: bool
    build: Callable[[], list[str]]

    def texts(self) -> list[str]:
        """Return the first sixty texts."""
        return self.build()[:COUNT]


def _ports() -> list[str]:
    pairs = enumerate(product(SERVICES, STAGES))
    return [f"The {service} service listens on port {8000 + 7 * i} in {stage}." for i, (service, stage) in pairs]


def _birthdays() -> list[str]:
    people = enumerate(product(PEOPLE, SURNAMES))
    return [
        f"{name} {surname} was born on {1 + i * 7 % 28} {MONTHS.split()[i % 12]} {1960 + i % 5}."
        for i, (name, surname) in people
    ]


def _rooms() -> list[str]:
    return [f"Team {i % 10 + 1} meets at {8 + i // 10}:30 in room {100 + i * 13 % 60}." for i in range(COUNT)]


def _versions() -> list[str]:
    return [f"Release 2.{i // 6}.{i % 6} needs Python 3.{8 + i % 6} or later." for i in range(COUNT)]


def _boxes() -> list[str]:
    return [f"The {colour} box with the spare keys is in the {shelf}." for colour, shelf in product(COLOURS, SHELVES)]


def _owners() -> list[str]:
    return [f"{name} {surname} owns the service." for name, surname in product(PEOPLE, SURNAMES)]


def _debts() -> list[str]:
    return [f"{lender} lent {borrower} the tent." for lender, borrower in permutations(PEOPLE, 2)]


def _geburtstage() -> list[str]:
    personen = enumerate(product(PEOPLE, SURNAMES))
    return [
        f"{name} {surname} hat am {1 + i * 7 % 28}. {MONATE.split()[i % 12]} {1960 + i % 5} Geburtstag."
        for i, (name, surname) in personen
    ]


def _raeume() -> list[str]:
    return [f"Der Kurs {i + 1} findet um {8 + i % 10} Uhr in Raum {200 + i * 11 % 60} statt." for i in range(COUNT)]


def _kisten() -> list[str]:
    return [f"Die {farbe} Kiste mit den Ersatzschlüsseln steht {ort}." for farbe, ort in product(FARBEN, ORTE)]


def _schulden() -> list[str]:
    return [f"{eins} hat {zwei} das Zelt geliehen." for eins, zwei in permutations(PEOPLE, 2)]


def _extensions_zh() -> list[str]:
    people = enumerate(product(SURNAMES_ZH, GIVEN_NAMES_ZH))
    return [f"{surname}{name}的分机号是{6100 + 3 * i}。" for i, (surname, name) in people]


def _rooms_zh() -> list[str]:
    return [f"第{i + 1}小组每周{'一二三四五六'[i % 6]}在{300 + i * 7 % 60}会议室开会。" for i in range(COUNT)]


def _trucks_zh() -> list[str]:
    return [f"运往{city}的{cargo}装在同一辆货车上。" for city, cargo in product(CITIES_ZH, CARGO_ZH)]


def _journeys_zh() -> list[str]:
    return [f"他每年夏天都坐火车从{start}到{end}。" for start, end in permutations(CITIES_ZH, 2)]


FAMILIES = (
    Family("ports", "en", has_digits=True, build=_ports),
    Family("birthdays", "en", has_digits=True, build=_birthdays),
    Family("rooms", "en", has_digits=True, build=_rooms),
    Family("versions", "en", has_digits=True, build=_versions),
    Family("birthdays", "de", has_digits=True, build=_geburtstage),
    Family("rooms", "de", has_digits=True, build=_raeume),
    Family("extensions", "zh", has_digits=True, build=_extensions_zh),
    Family("rooms", "zh", has_digits=True, build=_rooms_zh),
    Family("boxes", "en", has_digits=False, build=_boxes),
    Family("owners", "en", has_digits=False, build=_owners),
    Family("who to whom", "en", has_digits=False, build=_debts),
    Family("boxes", "de", has_digits=False, build=_kisten),
    Family("who to whom", "de", has_digits=False, build=_schulden),
    Family("trucks", "zh", has_digits=False, build=_trucks_zh),
    Family("from and to", "zh", has_digits=False, build=_journeys_zh),
)
