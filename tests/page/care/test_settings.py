"""The settings in effect on the page: their values, where they come from, and no secret."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

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


SHOWN = {
    "user_id": ("alice", "command line"),
    "llm.provider": ("none", "command line"),
    "llm.config.model": ("of-the-file", "settings file"),
    "llm.config.openai_base_url": ("http://********@127.0.0.1:9/v1", "settings file"),
    "summary.every": ("9", "environment"),
    "links": ("off", "default"),
}


@pytest.fixture(autouse=True)
def of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings.toml").write_text(FILE, "utf-8")
    monkeypatch.setenv("PALIMPSEST_CONFIG", str(tmp_path / "settings.toml"))
    monkeypatch.setenv("PALIMPSEST_SUMMARY__EVERY", "9")
    monkeypatch.setenv("PALIMPSEST_LEARN", '{"captured_calls_per_day": 3}')
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")


@pytest.mark.anyio
async def test_each_setting_says_where_it_comes_from(page: OpenPage) -> None:
    """Guards the order of the sources, name by name, that no secret is shown, and that there is no form."""
    at_the_machine = Visitor(Grant("alice"), reads_settings=True)
    async with page.browser(at_the_machine) as browser:
        shown = (await browser.get("/care/settings")).text
    rows = re.findall(r"<code>([\w.]+)</code></th>\s*<td[^>]*>(.*?)</td>\s*<td>([\w ]+)", shown)
    values = {name: (re.sub("<[^>]*>", "", value).strip(), origin.strip()) for name, value, origin in rows}
    assert {name: values[name] for name in SHOWN} == SHOWN
    assert '"user_id": "bob"' in html.unescape(values["http.tokens"][0])
    assert shown.count('method="post"') == 1, "to sign out"
    assert not any(secret in shown for secret in SECRETS)
