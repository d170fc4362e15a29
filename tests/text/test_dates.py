"""Dates in questions and texts: a table of cases for each language, and what must not be read as a date."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.text.dates.date_finder import dates_in

NOW = datetime(2026, 5, 8, 12, tzinfo=UTC)
"""A Friday."""

ENGLISH = """
what did we do in March | 2026-03-01 2026-04-01
what happened in may | 2026-05-01 2026-06-01
Where were we last March? | 2026-03-01 2026-04-01
last June | 2025-06-01 2025-07-01
next June | 2026-06-01 2026-07-01
the March 2024 report | 2024-03-01 2024-04-01
sales in march 2024 | 2024-03-01 2024-04-01
in March of last year | 2025-03-01 2025-04-01
in January | 2026-01-01 2026-02-01
January sales | 2026-01-01 2026-02-01
in December | 2025-12-01 2026-01-01
What will happen in December? | 2026-12-01 2027-01-01
dec 2024 | 2024-12-01 2025-01-01
on 3 May | 2026-05-03 2026-05-04
on may 3 | 2026-05-03 2026-05-04
on the 3rd of May | 2026-05-03 2026-05-04
May 3rd, 2025 | 2025-05-03 2025-05-04
3 May 2025 | 2025-05-03 2025-05-04
on Oct. 13, 2023 | 2023-10-13 2023-10-14
on 8th December, 2023 | 2023-12-08 2023-12-09
on 29 February | 2024-02-29 2024-03-01
from 3-5 May | 2026-05-03 2026-05-06
31 January 1953 | 1953-01-31 1953-02-01
on 2025-03-04 | 2025-03-04 2025-03-05
2025-03-04T10:00:00Z | 2025-03-04 2025-03-05
the 2025-03 invoice | 2025-03-01 2025-04-01
2024/05/03 | 2024-05-03 2024-05-04
05/25/2025 and 25/05/2025 | 2025-05-25 2025-05-26 | 2025-05-25 2025-05-26
in 2023 | 2023-01-01 2024-01-01
in the year 1999 | 1999-01-01 2000-01-01
since 2023, until 2025 | 2023-01-01 2024-01-01 | 2025-01-01 2026-01-01
yesterday | 2026-05-07 2026-05-08
the day before yesterday | 2026-05-06 2026-05-07
what do I have today | 2026-05-08 2026-05-09
last night | 2026-05-07 2026-05-08
tomorrow's meeting | 2026-05-09 2026-05-10
last week | 2026-04-27 2026-05-04
the week before last | 2026-04-20 2026-04-27
this week | 2026-05-04 2026-05-11
next week | 2026-05-11 2026-05-18
last month | 2026-04-01 2026-05-01
last year | 2025-01-01 2026-01-01
last weekend | 2026-05-02 2026-05-04
two weeks ago | 2026-04-20 2026-04-27
a couple of days ago | 2026-05-06 2026-05-07
3 days ago | 2026-05-05 2026-05-06
a month ago | 2026-04-01 2026-05-01
in two weeks | 2026-05-18 2026-05-25
three days from now | 2026-05-11 2026-05-12
in the last two weeks | 2026-04-20 2026-05-09
next Friday | 2026-05-15 2026-05-16
last Friday | 2026-05-01 2026-05-02
last Tuesday | 2026-05-05 2026-05-06
on Monday | 2026-05-04 2026-05-05
I will go on Monday | 2026-05-11 2026-05-12
last summer | 2025-06-01 2025-09-01
in spring 2024 | 2024-03-01 2024-06-01
in the autumn | 2025-09-01 2025-12-01
this winter | 2025-12-01 2026-03-01
the first week of June | 2025-06-01 2025-06-08
the last week of June 2025 | 2025-06-24 2025-07-01
the second Monday of June 2025 | 2025-06-09 2025-06-10
we met the weekend before. | 2026-05-02 2026-05-04
the weekend before April 10, 2023 | 2023-04-08 2023-04-10
in the week before 16 November 2023 | 2023-11-06 2023-11-13
two weeks before 16 November 2023 | 2023-10-30 2023-11-06
from 24 to 26 March 2026 | 2026-03-24 2026-03-27
by mid September? | 2025-09-11 2025-09-21
the Friday before 15 July 2023 | 2023-07-14 2023-07-15
Q3 2025 | 2025-07-01 2025-10-01
in the third quarter of 2025 | 2025-07-01 2025-10-01
last quarter | 2026-01-01 2026-04-01
early 2024 | 2024-01-01 2024-05-01
by the end of May | 2026-05-21 2026-06-01
mid-June 2025 | 2025-06-11 2025-06-21
in the nineties | 1990-01-01 2000-01-01
in the 1980s | 1980-01-01 1990-01-01
"""

GERMAN = """
am 3. Mai | 2026-05-03 2026-05-04
am 3. Mai 2024 | 2024-05-03 2024-05-04
am 3.5.2025 | 2025-05-03 2025-05-04
am 3.5. waren wir da | 2026-05-03 2026-05-04
im März | 2026-03-01 2026-04-01
im Maerz 2024 | 2024-03-01 2024-04-01
im März letzten Jahres | 2025-03-01 2025-04-01
Anfang Mai | 2026-05-01 2026-05-11
Ende 2024 | 2024-09-01 2025-01-01
im Jahr 2023 | 2023-01-01 2024-01-01
seit 2023 | 2023-01-01 2024-01-01
letzte Woche | 2026-04-27 2026-05-04
letzten Montag | 2026-05-04 2026-05-05
am Montag | 2026-05-04 2026-05-05
Montag letzter Woche | 2026-04-27 2026-04-28
nächsten Freitag | 2026-05-15 2026-05-16
vorletzte Woche | 2026-04-20 2026-04-27
vor zwei Wochen | 2026-04-20 2026-04-27
vor 3 Tagen | 2026-05-05 2026-05-06
vor einem Jahr | 2025-01-01 2026-01-01
in zwei Wochen | 2026-05-18 2026-05-25
vorgestern | 2026-05-06 2026-05-07
Was steht morgen an? | 2026-05-09 2026-05-10
übermorgen | 2026-05-10 2026-05-11
heute Morgen | 2026-05-08 2026-05-09
im Frühjahr | 2026-03-01 2026-06-01
letzten Sommer | 2025-06-01 2025-09-01
Sommer 2024 | 2024-06-01 2024-09-01
vom 8. bis 12. Juni 2025 | 2025-06-08 2025-06-13
bis zum 31. Juli 2025 | 2025-07-31 2025-08-01
am letzten Wochenende | 2026-05-02 2026-05-04
erste Woche im Juni | 2025-06-01 2025-06-08
im 3. Quartal 2025 | 2025-07-01 2025-10-01
in den 90ern | 1990-01-01 2000-01-01
"""

FRENCH = """
le 3 mai | 2026-05-03 2026-05-04
le 1er mai 2025 | 2025-05-01 2025-05-02
en mars | 2026-03-01 2026-04-01
en mars 2024 | 2024-03-01 2024-04-01
en mars de l'année dernière | 2025-03-01 2025-04-01
au mois de mai | 2026-05-01 2026-06-01
début avril | 2026-04-01 2026-04-11
fin d\u2019avril | 2026-04-21 2026-05-01
qu'est-ce que j'ai fait hier | 2026-05-07 2026-05-08
avant-hier | 2026-05-06 2026-05-07
qu'avons-nous fait aujourd'hui | 2026-05-08 2026-05-09
il y a deux ans | 2024-01-01 2025-01-01
il y a trois jours | 2026-05-05 2026-05-06
dans deux semaines | 2026-05-18 2026-05-25
la semaine dernière | 2026-04-27 2026-05-04
le mois dernier | 2026-04-01 2026-05-01
l'année dernière | 2025-01-01 2026-01-01
mardi dernier | 2026-05-05 2026-05-06
vendredi prochain | 2026-05-15 2026-05-16
l'été dernier | 2025-06-01 2025-09-01
au printemps 2024 | 2024-03-01 2024-06-01
en 2023 | 2023-01-01 2024-01-01
les deux dernières semaines | 2026-04-20 2026-05-09
"""

SPANISH = """
el 3 de mayo | 2026-05-03 2026-05-04
el 3 de mayo de 2025 | 2025-05-03 2025-05-04
en marzo | 2026-03-01 2026-04-01
en marzo del año pasado | 2025-03-01 2025-04-01
el pasado marzo | 2026-03-01 2026-04-01
a principios de abril | 2026-04-01 2026-04-11
ayer | 2026-05-07 2026-05-08
anteayer | 2026-05-06 2026-05-07
mañana por la mañana | 2026-05-09 2026-05-10
la semana pasada | 2026-04-27 2026-05-04
el mes pasado | 2026-04-01 2026-05-01
el año pasado | 2025-01-01 2026-01-01
hace tres días | 2026-05-05 2026-05-06
hace un mes | 2026-04-01 2026-05-01
dentro de dos semanas | 2026-05-18 2026-05-25
el lunes pasado | 2026-05-04 2026-05-05
el próximo viernes | 2026-05-15 2026-05-16
el verano pasado | 2025-06-01 2025-09-01
la primavera de 2024 | 2024-03-01 2024-06-01
en 2023 | 2023-01-01 2024-01-01
el fin de semana pasado | 2026-05-02 2026-05-04
"""

ITALIAN = """
il 3 maggio | 2026-05-03 2026-05-04
a marzo | 2026-03-01 2026-04-01
nel marzo 2024 | 2024-03-01 2024-04-01
ieri | 2026-05-07 2026-05-08
l'altro ieri | 2026-05-06 2026-05-07
la settimana scorsa | 2026-04-27 2026-05-04
la scorsa settimana | 2026-04-27 2026-05-04
il mese scorso | 2026-04-01 2026-05-01
l'anno scorso | 2025-01-01 2026-01-01
due giorni fa | 2026-05-06 2026-05-07
tra due settimane | 2026-05-18 2026-05-25
lunedì scorso | 2026-05-04 2026-05-05
venerdì prossimo | 2026-05-15 2026-05-16
dove siamo stati in estate | 2025-06-01 2025-09-01
l'estate scorsa | 2025-06-01 2025-09-01
nel 2023 | 2023-01-01 2024-01-01
"""

PORTUGUESE = """
em 3 de maio | 2026-05-03 2026-05-04
3 de maio de 2025 | 2025-05-03 2025-05-04
em março | 2026-03-01 2026-04-01
em março do ano passado | 2025-03-01 2025-04-01
ontem | 2026-05-07 2026-05-08
anteontem | 2026-05-06 2026-05-07
amanhã | 2026-05-09 2026-05-10
na semana passada | 2026-04-27 2026-05-04
no mês passado | 2026-04-01 2026-05-01
no ano passado | 2025-01-01 2026-01-01
há dois dias | 2026-05-06 2026-05-07
dois anos atrás | 2024-01-01 2025-01-01
na segunda-feira passada | 2026-05-04 2026-05-05
no verão passado | 2025-06-01 2025-09-01
em 2023 | 2023-01-01 2024-01-01
"""

DUTCH = """
op 3 mei | 2026-05-03 2026-05-04
in maart | 2026-03-01 2026-04-01
in maart 2024 | 2024-03-01 2024-04-01
begin april | 2026-04-01 2026-04-11
gisteren | 2026-05-07 2026-05-08
eergisteren | 2026-05-06 2026-05-07
vorige week | 2026-04-27 2026-05-04
vorige maand | 2026-04-01 2026-05-01
vorig jaar | 2025-01-01 2026-01-01
twee dagen geleden | 2026-05-06 2026-05-07
over twee weken | 2026-05-18 2026-05-25
afgelopen maandag | 2026-05-04 2026-05-05
op maandag | 2026-05-04 2026-05-05
vorige zomer | 2025-06-01 2025-09-01
in 2023 | 2023-01-01 2024-01-01
"""

SWEDISH = """
den 3 maj | 2026-05-03 2026-05-04
i mars | 2026-03-01 2026-04-01
i mars 2024 | 2024-03-01 2024-04-01
igår | 2026-05-07 2026-05-08
i förrgår | 2026-05-06 2026-05-07
i morgon | 2026-05-09 2026-05-10
förra veckan | 2026-04-27 2026-05-04
förra månaden | 2026-04-01 2026-05-01
förra året | 2025-01-01 2026-01-01
i fjol | 2025-01-01 2026-01-01
för två veckor sedan | 2026-04-20 2026-04-27
om två veckor | 2026-05-18 2026-05-25
i måndags | 2026-05-04 2026-05-05
på fredag | 2026-05-08 2026-05-09
i somras | 2025-06-01 2025-09-01
sommaren 2024 | 2024-06-01 2024-09-01
"""

POLISH = """
3 maja | 2026-05-03 2026-05-04
3 maja 2025 | 2025-05-03 2025-05-04
w marcu | 2026-03-01 2026-04-01
w marcu zeszłego roku | 2025-03-01 2025-04-01
wczoraj | 2026-05-07 2026-05-08
przedwczoraj | 2026-05-06 2026-05-07
jutro | 2026-05-09 2026-05-10
w zeszłym tygodniu | 2026-04-27 2026-05-04
w zeszłym miesiącu | 2026-04-01 2026-05-01
w ubiegłym roku | 2025-01-01 2026-01-01
dwa dni temu | 2026-05-06 2026-05-07
rok temu | 2025-01-01 2026-01-01
za dwa tygodnie | 2026-05-18 2026-05-25
w poniedziałek | 2026-05-04 2026-05-05
latem 2024 | 2024-06-01 2024-09-01
"""

RUSSIAN = """
3 мая | 2026-05-03 2026-05-04
3 мая 2025 года | 2025-05-03 2025-05-04
в марте | 2026-03-01 2026-04-01
в марте прошлого года | 2025-03-01 2025-04-01
вчера | 2026-05-07 2026-05-08
позавчера | 2026-05-06 2026-05-07
завтра | 2026-05-09 2026-05-10
на прошлой неделе | 2026-04-27 2026-05-04
в прошлом месяце | 2026-04-01 2026-05-01
в прошлом году | 2025-01-01 2026-01-01
два дня назад | 2026-05-06 2026-05-07
год назад | 2025-01-01 2026-01-01
через две недели | 2026-05-18 2026-05-25
в понедельник | 2026-05-04 2026-05-05
в прошлую пятницу | 2026-05-01 2026-05-02
прошлым летом | 2025-06-01 2025-09-01
летом 2024 года | 2024-06-01 2024-09-01
в 2023 году | 2023-01-01 2024-01-01
"""

CHINESE = """
去年我们去了哪里？ | 2025-01-01 2026-01-01
2023年 | 2023-01-01 2024-01-01
二〇二三年 | 2023-01-01 2024-01-01
2024年5月3日 | 2024-05-03 2024-05-04
5月3日 | 2026-05-03 2026-05-04
五月三号 | 2026-05-03 2026-05-04
三月份 | 2026-03-01 2026-04-01
去年三月 | 2025-03-01 2025-04-01
上个月 | 2026-04-01 2026-05-01
上周 | 2026-04-27 2026-05-04
上周五做了什么 | 2026-05-01 2026-05-02
上周日 | 2026-05-03 2026-05-04
上周末 | 2026-05-02 2026-05-04
下星期一 | 2026-05-11 2026-05-12
昨天 | 2026-05-07 2026-05-08
前天 | 2026-05-06 2026-05-07
三天前 | 2026-05-05 2026-05-06
两周前 | 2026-04-20 2026-04-27
3个月前 | 2026-02-01 2026-03-01
两年前 | 2024-01-01 2025-01-01
去年夏天 | 2025-06-01 2025-09-01
三月底 | 2026-03-21 2026-04-01
去年年底 | 2025-09-01 2026-01-01
"""

JAPANESE = """
昨日は何をした？ | 2026-05-07 2026-05-08
一昨日 | 2026-05-06 2026-05-07
明日の予定 | 2026-05-09 2026-05-10
先週 | 2026-04-27 2026-05-04
先々週 | 2026-04-20 2026-04-27
先週の金曜日 | 2026-05-01 2026-05-02
来週の月曜日 | 2026-05-11 2026-05-12
先月 | 2026-04-01 2026-05-01
去年の3月 | 2025-03-01 2025-04-01
昨年 | 2025-01-01 2026-01-01
５月３日 | 2026-05-03 2026-05-04
2024年5月 | 2024-05-01 2024-06-01
3日前 | 2026-05-05 2026-05-06
二週間前 | 2026-04-20 2026-04-27
3ヶ月前 | 2026-02-01 2026-03-01
去年の夏 | 2025-06-01 2025-09-01
"""

ARABIC = """
في مارس | 2026-03-01 2026-04-01
3 مايو 2025 | 2025-05-03 2025-05-04
أمس | 2026-05-07 2026-05-08
غدا | 2026-05-09 2026-05-10
الأسبوع الماضي | 2026-04-27 2026-05-04
الشهر الماضي | 2026-04-01 2026-05-01
العام الماضي | 2025-01-01 2026-01-01
قبل ثلاثة أيام | 2026-05-05 2026-05-06
قبل أسبوعين | 2026-04-20 2026-04-27
في عام 2023 | 2023-01-01 2024-01-01
"""

CASES = [
    (text.strip(), [tuple(span.split()) for span in spans if span.strip()])
    for table in (
        ENGLISH,
        GERMAN,
        FRENCH,
        SPANISH,
        ITALIAN,
        PORTUGUESE,
        DUTCH,
        SWEDISH,
        POLISH,
        RUSSIAN,
        CHINESE,
        JAPANESE,
        ARABIC,
    )
    for text, *spans in (line.split("|") for line in table.strip().splitlines())
]

NOT_DATES = """
we
May I submit the form?
may I submit
March on!
I can march
this may help
They march in step
the second attempt
port 8048
version 2023.1
v1.2.3
10.5.2
call Sun's office
Sat down
Wed to Anna
What did April say?
Ask June about Augustus
Jan told August
Mai Nguyen
user's friend Mai likes tea
LDG-1170
LDG-2024
ticket 2024
at 10:30
it costs $2024
it costs 2024 €
1,312 customers
03/05/2025
2025-13-40
31 February 2024
30.02.2024
every week
three weeks of holiday
the day of the week
spring boot
a second
the fall of Rome
in the middle of nowhere
the last one
the first week
hold the mayo
Marco is here
Mars is a planet
https://example.org/2024/05/03/post
10.0.0.1:8080
every Wednesday at 10:00
Guten Morgen
am Morgen
vor dem Haus
de la mañana
Ana wohnt seit Jahren hier
Ze woont hier
the papers are in estate planning
у Марта есть кот
日本
星期
月
年会
0000-00-00
99999999999999999999 days ago
2024 days ago
a few weeks ago
compared with the day before.
on Sunday mornings
los lunes
每周一上午
每逢周三去
毎週金曜
am Wochenende davor
il passato
""".strip().splitlines()


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text for text, _ in CASES])
def test_a_date_is_read(text: str, expected: list[tuple[str, ...]]) -> None:
    found = [(f"{span.start:%Y-%m-%d}", f"{span.end:%Y-%m-%d}") for span in dates_in(text, NOW)]
    assert found == expected


@pytest.mark.parametrize("text", NOT_DATES)
def test_what_only_looks_like_a_date_is_none(text: str) -> None:
    assert dates_in(text, NOW) == ()


@pytest.mark.parametrize(
    ("text", "is_relative", "is_year_guessed"),
    [
        ("we met yesterday", True, False),
        ("last March", True, False),
        ("on Monday", True, False),
        ("two weeks ago", True, False),
        ("vor zwei Wochen", True, False),
        ("in March", False, True),
        ("5月3日", False, True),
        ("on 3 May 2025", False, False),
        ("in 2023", False, False),
    ],
)
def test_it_is_said_what_a_date_depends_on(text: str, is_relative: bool, is_year_guessed: bool) -> None:  # noqa: FBT001 - columns of a table
    (span,) = dates_in(text, NOW)
    assert (span.is_relative, span.is_year_guessed) == (is_relative, is_year_guessed)


@pytest.mark.parametrize(
    ("text", "relation"),
    [
        ("the plan before October", "before"),
        ("bis März", "before"),
        ("since last March", "since"),
        ("nach dem 3. Mai", "since"),
        ("in March", "in"),
        ("vor zwei Wochen", "in"),
    ],
)
def test_a_preposition_says_on_which_side_of_a_date(text: str, relation: str) -> None:
    (span,) = dates_in(text, NOW)
    assert span.relation == relation


def test_a_date_knows_its_place_in_the_text() -> None:
    text = "Yesterday we planned the trip of 3 May 2027, and on Monday we booked it."
    assert [text[span.position :].startswith(span.phrase) for span in dates_in(text, NOW)] == [True] * 3
    assert [span.phrase for span in dates_in(text, NOW)] == ["Yesterday", "3 May 2027", "Monday"]


def test_a_date_is_read_on_the_day_of_the_text() -> None:
    new_year = datetime(2025, 1, 1, tzinfo=UTC)
    assert [f"{span.start:%Y-%m-%d}" for span in dates_in("yesterday, last month, in December", new_year)] == [
        "2024-12-31",
        "2024-12-01",
        "2024-12-01",
    ]


WORDS = sorted({word for table in (ENGLISH, GERMAN, FRENCH, RUSSIAN, CHINESE, ARABIC) for word in table.split()})


@given(st.one_of(st.text(), st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)), st.datetimes())
def test_any_text_at_any_time_has_sound_dates(text: str, now: datetime) -> None:
    for span in dates_in(text, now.replace(tzinfo=UTC)):
        assert span.start < span.end
        assert text[span.position : span.position + len(span.phrase)] == span.phrase != ""
