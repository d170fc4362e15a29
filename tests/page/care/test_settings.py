"""The settings in effect on the page: their values, where they come from, and no secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from palimpsest.admin.configuration import SettingInEffect, settings_in_effect
from palimpsest.core.settings import load_settings
from palimpsest.core.settings_file import Origin
from palimpsest.page.page_context import Visitor
from palimpsest.server.access_tokens import Grant
from tests.support.page import OpenPage

SECRETS = ("sk-of-the-file", "sk-of-openai", "token-of-the-file-1", "password-in-url")

FILE = """
[llm.config]
model = "of-the-file"
api_key = "sk-of-the-file"
openai_base_url = "http://me:password-in-url@127.0.0.1:9/v1"
[summary]
every = 7
[http]
tokens = [{token = "token-of-the-file-1", user_id = "bob"}]
"""


@pytest.fixture(autouse=True)
def of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALIMPSEST_SUMMARY__EVERY", "9")
    monkeypatch.setenv("PALIMPSEST_LEARN", '{"captured_calls_per_day": 3}')
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")


def test_each_setting_says_where_it_comes_from(tmp_path: Path) -> None:
    """Guards the order of the sources, name by name, and that no secret is shown."""
    file = tmp_path / "settings.toml"
    file.write_text(FILE, "utf-8")
    settings = load_settings(file, data_dir=tmp_path, user_id="alice", llm={"provider": "none"})
    shown = {setting.name: setting for setting in settings_in_effect(settings)}
    assert shown["user_id"] == SettingInEffect("user_id", "alice", Origin.COMMAND_LINE)
    assert shown["llm.provider"].origin is Origin.COMMAND_LINE
    assert shown["llm.config.model"] == SettingInEffect("llm.config.model", "of-the-file", Origin.FILE)
    every = SettingInEffect("summary.every", "9", Origin.ENVIRONMENT)
    assert shown["summary.every"] == every
    assert shown["links"] == SettingInEffect("links", "off", Origin.DEFAULT)
    assert shown["llm.config.openai_base_url"].value == "http://********@127.0.0.1:9/v1"
    assert '"user_id": "bob"' in shown["http.tokens"].value
    assert not any(secret in repr(shown) for secret in SECRETS)
    assert settings.with_project("shop").origins == settings.origins


@pytest.mark.anyio
async def test_the_page_lists_them(page: OpenPage) -> None:
    """Guards the table, and that there is no form in it: settings are not changed over HTTP."""
    at_the_machine = Visitor(Grant("alice"), reads_settings=True)
    async with page.browser(at_the_machine) as browser:
        shown = (await browser.get("/care/settings")).text
        rows = dict(re.findall(r"<code>([\w.]+)</code></th>\s*<td[^>]*>.*?</td>\s*<td>([\w ]+)", shown))
        assert (rows["llm.provider"], rows["links"]) == ("command line", "default")
        assert rows["summary.every"].strip() == "environment"
        assert shown.count('method="post"') == 1, "to sign out"
        assert not any(secret in shown for secret in SECRETS)
