"""Times and days in zones: what a text means in one, how long a day is, and which zone the system has."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import pytest

from palimpsest.core.clock import parse_instant, parse_span, parse_until, system_zone, zone_named
from palimpsest.core.errors import InputError, SettingsError
from palimpsest.core.settings import load_settings

SHANGHAI, NEW_YORK, VIENNA = ZoneInfo("Asia/Shanghai"), ZoneInfo("America/New_York"), ZoneInfo("Europe/Vienna")


@pytest.mark.parametrize(
    ("text", "zone", "instant", "day"),
    [
        ("2026-06-13T02:00", SHANGHAI, "2026-06-12T18:00", "2026-06-13"),
        ("2026-06-12T18:00:00Z", SHANGHAI, "2026-06-12T18:00", "2026-06-13"),
        ("2026-06-13T02:00+08:00", NEW_YORK, "2026-06-12T18:00", "2026-06-13"),
        ("2026-06-13", NEW_YORK, "2026-06-13T04:00", "2026-06-13"),
    ],
)
def test_a_time_is_one_of_its_offset_or_else_of_the_zone(text: str, zone: tzinfo, instant: str, day: str) -> None:
    read = parse_instant(text, "at", zone)
    assert f"{read.astimezone(UTC):%Y-%m-%dT%H:%M}" == instant
    assert f"{read:%Y-%m-%d}" == day


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-06-12", 24), ("2026-10-25", 25)])
def test_a_day_is_as_long_as_the_clocks_make_it(day: str, hours: int) -> None:
    span = parse_span(day, "at", VIENNA)
    assert span.last - span.first == timedelta(hours=hours) - timedelta(microseconds=1)
    assert parse_until(day, "as_of", VIENNA).date() == date.fromisoformat(day)


def test_the_zone_of_the_system_counts_unless_the_settings_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    at = datetime(2026, 6, 12, 18, tzinfo=UTC)
    assert at.astimezone(system_zone("Asia/Shanghai")).day == 13
    assert at.astimezone(load_settings(user_id="alice").zones.of("alice")).day == 13
    settings = load_settings(user_id="alice", timezone="America/New_York", user_timezones={"bob": "Asia/Shanghai"})
    assert [settings.zones.of(user) for user in ("alice", "bob")] == [NEW_YORK, SHANGHAI]


def test_a_zone_that_is_none_is_refused_with_what_to_do() -> None:
    for name in ("Mars/Olympus", "../etc/passwd", "+02:00"):
        with pytest.raises(InputError, match="use an IANA name, such as Europe/Vienna"):
            zone_named(name)
    with pytest.raises(SettingsError, match=r"timezone: .*'CEST2' is no time zone"):
        load_settings(timezone="CEST2")
    with pytest.raises(SettingsError, match=r"user_timezones.bob: .*'Nowhere' is no time zone"):
        load_settings(user_timezones={"bob": "Nowhere"})


@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31", "9999"])
def test_the_ends_of_the_calendar_are_within_it_in_every_zone(text: str) -> None:
    for zone in (SHANGHAI, NEW_YORK):
        span = parse_span(text, "at", zone)
        assert span.first < span.last
