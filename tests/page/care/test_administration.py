"""Care on the page: who sees what, the state of each part, the settings, access tokens and prompts."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from palimpsest.llm.prompts import shipped_directory
from palimpsest.page.page_context import Visitor
from palimpsest.server.access_tokens import Grant
from tests.support.page import OWNER, READER, OpenPage, done, page_in

pytestmark = pytest.mark.anyio


GUEST = Visitor(Grant("alice"))
OF_SHOP = Visitor(Grant("alice", project="shop"))
AT_THE_MACHINE = Visitor(Grant("alice"), reads_settings=True)

OF_THE_MACHINE = ("/care/findings", "/care/backups", "/care/backups/restore?file=ledger.db", "/care/tokens")
OF_THE_SETTINGS = ("/care/settings", "/care/prompts", "/care/prompts/extract")
EXPORTS = ("/care/export",)
WRITES = (
    "/care/backups",
    "/care/backups/restore",
    "/care/tokens",
    "/care/tokens/12345678/revoke",
    "/care/prompts/extract",
    "/care/prompts/extract/shipped",
)


VISITORS: tuple[tuple[Visitor, set[str]], ...] = (
    (OWNER, {*OF_THE_MACHINE, *OF_THE_SETTINGS, *EXPORTS, "/care/import"}),
    (AT_THE_MACHINE, {*OF_THE_SETTINGS, *EXPORTS, "/care/import"}),
    (GUEST, {*EXPORTS, "/care/import"}),
    (READER, {*EXPORTS}),
    (OF_SHOP, set()),
)


async def test_everybody_gets_what_is_theirs(page: OpenPage) -> None:
    """Guards what belongs to the machine: others find no link to it, and its paths do not exist for them."""
    paths = (*OF_THE_MACHINE, *OF_THE_SETTINGS, *EXPORTS, "/care/import")
    await page.add("Alice has a boat")
    for visitor, open_paths in VISITORS:
        async with page.browser(visitor) as browser:
            links = set(re.findall(r'href="(/care/[^"]+)"', (await browser.get("/care")).text))
            linked = {path for path in open_paths if path.count("/") == 2 or "export" in path}
            assert links & set(paths) == linked, visitor
            for path in paths:
                status = (await browser.get(path)).status_code
                named_in_vain = path.startswith("/care/backups/restore") and visitor is OWNER
                expected = {400} if named_in_vain else {200} if path in open_paths else {403, 404}
                assert status in expected, (visitor, path)
            if visitor is not OWNER:
                assert {(await browser.post(path)).status_code for path in WRITES} == {404}, visitor


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


SHIPPED = (shipped_directory() / "extract.md").read_text("utf-8")
EDITED = SHIPPED.replace("## system\n", "## system\nAnswer <b>tersely</b>.\n")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "prompts"
    folder.mkdir()
    monkeypatch.setenv("PALIMPSEST_PROMPTS_DIR", str(folder))
    return folder


async def test_a_prompt_of_ones_own_is_saved_shown_and_left_again(tmp_path: Path, own: Path) -> None:
    """Guards the way there: the next call uses it, and each text of a person stays beside it."""
    file = own / "extract.md"
    async with page_in(tmp_path / "data") as page, page.browser() as browser:
        assert "as shipped" in (await browser.get("/care/prompts/extract")).text
        sent = {"text": EDITED.replace("\n", "\r\n")}
        saved = (await done(browser, "/care/prompts/extract", sent)).text
        assert "Your prompt is saved." in saved
        assert re.findall(r"<(ins|del)>(.*?)</", saved) == [("ins", "Answer &lt;b&gt;tersely&lt;/b&gt;.")]
        assert file.read_text("utf-8") == EDITED
        assert "tersely" in page.memory.engine.prompts.get("extract").system
        again = (await done(browser, "/care/prompts/extract", {"text": SHIPPED})).text
        assert "extract.md.old" in again
        assert (own / "extract.md.old").read_text("utf-8") == EDITED
        file.unlink()
        listed = (await browser.get("/care/prompts")).text
        assert listed.count("as shipped") == len(page.memory.engine.prompts.needed)
