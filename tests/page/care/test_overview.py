"""The first page of care: who sees what, and what is found about each part."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from palimpsest.page.page_context import Visitor
from palimpsest.server.access_tokens import Grant
from tests.support.page import OWNER, READER, Browser, OpenPage

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


async def test_what_is_not_in_order_has_a_mark_and_a_word(tmp_path: Path, page: OpenPage, browser: Browser) -> None:
    """Guards the table of the findings: by itself, as a part of the page, and with a damaged part."""
    await page.add("Alice has a boat")
    assert 'hx-get="/care/findings"' in (await browser.get("/care")).text
    whole = (await browser.get("/care/findings")).text
    assert "Every part is in order." in whole
    assert re.findall(r'<th scope="row">(\w+)</th>', whole)[:4] == ["scope", "settings", "prompts", "embedder"]
    own = tmp_path / "config.toml"
    own.write_text("", "utf-8")
    (tmp_path / "tokens.json").write_text("damaged", "utf-8")
    part = (await browser.get("/care/findings", headers={"hx-request": "true"})).text
    assert "<html" not in part
    assert "Not in order: tokens" in part
    assert re.search(r'<tr class="fault"><th scope="row">tokens</th>\s*<td><strong>.*degraded', part)
