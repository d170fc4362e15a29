"""Names are found by what the text shows and by what is known, in any script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palimpsest.core.models import EntityType, NamedEntity
from palimpsest.text.names.known_names import MAX_CANDIDATES, name_candidates, told_self_name
from palimpsest.text.names.name_finder import find_names

SENTENCES: list[tuple[str, dict[str, str]]] = [
    ("The meeting with Daniela Ferro was moved to Zurich.", {"Daniela Ferro": "person", "Zurich": "place"}),
    ("Retries are logged, and every one is counted.", {}),
    ("On Monday in May they speak French and pay in Euro.", {}),
    ("Seine Schwester Gerda wohnt in Husum und mag die Musik.", {"Gerda": "person", "Husum": "place"}),
    ("Der Hund schläft im Garten unter dem Apfelbaum.", {}),
    ("Su hermana Lucía vive en Sevilla.", {"Lucía": "person", "Sevilla": "place"}),
    ("Il travaille à Grenoble avec Mathieu.", {"Grenoble": "place", "Mathieu": "person"}),
    ("Её сестра Ольга живёт в городе Новосибирск.", {"Ольга": "person", "Новосибирск": "place"}),
    ("同事王小明在深圳工作。", {"王小明": "person", "深圳": "place"}),
    ("周末高兴的时候去公园跑步。", {}),
    ("佐藤さんは北海道大学で働いている。", {"佐藤": "person", "北海道大学": "organization"}),
    ("毎朝六時に起きて散歩する。", {}),
    ("친구 김서연은 부산에 산다.", {"김서연": "person", "부산": "place"}),
    ("在成都市第三人民医院当护士。", {"成都市第三人民医院": "organization"}),
    ("用户在银行做柜员，上班路上听书。", {}),  # noqa: RUF001 - Chinese
    ("林越正在自学，大家都叫她何姐。", {"林越": "person", "何姐": "person"}),  # noqa: RUF001 - Chinese
    ("用Notion记笔记，Vue的依赖也删了。", {"Notion": "product", "Vue": "product"}),  # noqa: RUF001 - Chinese
    ("과제는 OPAL에 올린다.", {"OPAL": "other"}),
    ("部長の大野は忙しい。祖父の腕時計と父の梅酒は古い。", {"大野": "person"}),
    ("家電メーカー「ミナト電機」で働く。", {"ミナト電機": "organization"}),
    ("新人の村田涼子さんが来た。", {"村田涼子": "person"}),
    ("Сыр сдают на завод «Ополье».", {"Ополье": "organization"}),
    ("Le titre est « La Marée des absents ».", {"La Marée des absents": "document"}),
    ("Am liebsten isst Malte Grünkohl mit der Familie.", {"Malte": "person"}),
    ("Ein Ölwechsel dauert zwei Tage, ab Mitte September im Neubau.", {}),
    ("Cinnamon buns and day-old bread sell out. Day-old rolls are cheap.", {}),
    ("The board talks SPI and I2C, and firmware V7.60 has no DMA.", {}),
    ("درس في جامعة القاهرة.", {"جامعة القاهرة": "organization"}),
    ("她在上海交通大学学习。", {"上海交通大学": "organization"}),
    ("他想在国外读大学。", {}),
    ("王芳养了一只叫豆豆的猫。", {"王芳": "person", "豆豆": "other"}),
    ("SHOUT it. Tap Next, or the Archive tab. Mellom oss sagt.", {}),
    ("Antworte immer kurz. Répondre vite. Svara kort, tack.", {}),
    ("Hope Miller writes to NASA, and WHO answers on Friday.", {"Hope Miller": "person", "NASA": "organization"}),
    ("run /deploy and read /etc/hosts", {"/etc/hosts": "other"}),
    ("He bought Thai food and a shelf on Black Friday in May Street.", {}),
    ("The Sentry DSN lives in Vault.", {"Sentry DSN": "product", "Vault": "product"}),
    ("David's car is red.", {"David": "person"}),  # was read as "Davis"
    ("Joris wants a viola; he is Joris Claes.", {"Joris Claes": "person"}),
    (
        "We met Daniel Osei, then Daniel Reyes, and Daniel laughed.",
        dict.fromkeys(("Daniel Osei", "Daniel Reyes", "Daniel"), "person"),
    ),
]

OF_PROGRAMS: list[tuple[str, list[str]]] = [
    ("ask @mira in #release-notes", ["@mira", "#release-notes"]),
    ("logs are at https://logs.example.org/app and in /var/log/app", ["https://logs.example.org/app", "/var/log/app"]),
    ("`load_all` calls parse_line from scripts/read.py", ["load_all", "parse_line", "scripts/read.py"]),
    ("the race in InvoiceWorker.process() of checkout-api", ["InvoiceWorker.process()", "checkout-api"]),
    ("start it with `make run all` or with serve --port 80", []),
    ("error E-417 on A-4 paper, see /srv/data/家庭", ["E-417", "/srv/data/家庭"]),
    ("the forms are at \\\\files\\share", ["\\\\files\\share"]),
    ("join #dev:matrix.org", ["#dev:matrix.org"]),
    ("version v2.3.1 from 3/4 and/or 10.0.0.1", []),
    ("mail someone@example.org about number AB-12345", []),
]


def test_names_in_sentences() -> None:
    for text, names in SENTENCES:
        assert {entity.name: entity.type for entity in find_names(text, {})} == names, text


def test_names_that_programs_know() -> None:
    for text, names in OF_PROGRAMS:
        assert [entity.name for entity in find_names(text, {})] == names, text


@pytest.mark.few_by_day(10)
@pytest.mark.parametrize("text", ["`" * 4000, "Ab /" * 1000, "A@" * 2000, "理L" * 2000, "«A " * 1300, "同事王" * 1300])
def test_hostile_texts_name_little(text: str) -> None:
    assert len(find_names(text, {})) <= 1


def test_sentences_of_somebody_who_had_not_seen_the_rules() -> None:
    """First, 14 of 60 words that name nothing were taken for names, and 11 of 60 names were missed."""
    cases = json.loads((Path(__file__).parent / "names.json").read_text("utf-8"))

    def found(text: str) -> list[str]:
        return [entity.name for entity in find_names(text, {})]

    taken = [case for case in cases["not_names"] if any(case["token"] in name for name in found(case["text"]))]
    missed = [case for case in cases["names"] if case["name"] not in found(case["text"])]
    assert taken == []
    assert len(missed) <= 6, missed


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Tom Smith from the gym has two daughters.", ["Tom Smith"]),
        ("She plays in the Ghent Amateur Orchestra.", ["Ghent Amateur Orchestra"]),
        ("The Stripe API answers slowly.", ["Stripe"]),
        ("I met Tom Friday, and Tom's sister.", ["Tom"]),
        ("Sofia García plays the cello.", ["Sofia García"]),
        ("We met Sofia García's aunt, and Uncle García.", ["Sofia García", "García"]),
        ("Sofia García wohnt in Wels.", ["Sofia García", "Wels"]),
    ],
)
def test_a_known_name_that_is_part_of_a_longer_one_is_not_meant(text: str, names: list[str]) -> None:
    known: dict[str, EntityType] = {"tom": "person", "ghent": "place", "stripe": "organization", "garcía": "person"}
    assert [entity.name for entity in find_names(text, known)] == names


@pytest.mark.parametrize("long", ["https://example.org/" + "a/" * 200, "/srv/" + "b" * 300 + ".txt", "@" + "h" * 300])
def test_what_is_too_long_for_a_name_is_none(long: str) -> None:
    """Guards exports: a name of more than 256 characters cannot be imported."""
    assert [found.name for found in find_names(f"Ana Silva read {long} today", {})] == ["Ana Silva"]


@pytest.mark.parametrize(
    ("text", "key", "name"),
    [
        ("yesterday ana called", "ana", "ana"),
        ("Ana's bike is red", "ana", "Ana"),
        ("Annas Fahrrad ist rot", "anna", "Anna"),
        ("王小明喜欢喝茶", "王小明", "王小明"),
        ("昨日、山田太郎さんに会った", "山田太郎", "山田太郎"),
        ("지은이가 서울에 산다", "지은", "지은"),
        ("用Notion记笔记", "notion", "Notion"),
        ("理想L7的保险十月到期", "理想l7", "理想L7"),
        ("理想 L7 的保险", "理想 l7", "理想 L7"),
        ("OPAL에 올린다", "opal", "OPAL"),
        ("我爱K歌之王", "k歌之王", "K歌之王"),
    ],
)
def test_a_known_name_is_found(text: str, key: str, name: str) -> None:
    assert key in name_candidates(text)
    assert NamedEntity(name, "person") in find_names(text, {key: "person"})


def test_a_known_name_that_is_a_common_word_needs_its_capital() -> None:
    assert find_names("she will come", {"will": "person"}) == []
    assert find_names("she asked Will", {"will": "person"}) == [NamedEntity("Will", "person")]


def test_the_candidates_of_a_long_text_are_bounded() -> None:
    assert len(name_candidates("one two three four " * 10_000 + "山" * 10_000)) <= MAX_CANDIDATES


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("User's name is Lena Brandt.", "Lena Brandt"),
        ("The user is called Ana", "Ana"),
        ("My name is Jonas von Weber!", "Jonas von Weber"),
        ("Ich heiße Jonas", "Jonas"),
        ("Je m’appelle Zoé.", "Zoé"),  # noqa: RUF001 - a typographic apostrophe
        ("Me llamo Lucía", "Lucía"),
        ("Пользователя зовут Анна", "Анна"),
        ("用户叫林越。", "林越"),
        ("ユーザーの名前は佐藤健太です。", "佐藤健太"),
    ],
)
def test_a_text_that_only_says_what_the_user_is_called_tells_the_name(text: str, name: str) -> None:
    assert told_self_name(text) == name


@pytest.mark.parametrize(
    "text",
    [
        "User's name for the dog is Rex",
        "User is called every Monday",
        "User is named after his grandfather",
        "User is called Ana by her friends",
        "User's sister's name is Mia",
        "我是老师",
        "用户是工程师",
        "",
    ],
)
def test_other_texts_tell_none(text: str) -> None:
    assert told_self_name(text) == ""
