"""Access tokens on the page: created and shown once, listed without their text, revoked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from palimpsest.server.access_tokens import stored_tokens
from tests.support.page import Browser, done

pytestmark = pytest.mark.anyio


async def test_a_token_is_shown_once_and_revoked(tmp_path: Path, browser: Browser, stranger: Browser) -> None:
    """Guards the text of a token, which nothing may show again, and what the token allows."""
    given = {"user": "bob", "project": "shop", "days": "30", "read_only": "on", "with_general": "on"}
    asked = await browser.post("/care/tokens", data=given)
    assert "bob has no project &#39;shop&#39; yet. No token was created." in asked.text
    for kept in (
        'value="bob"',
        'value="shop"',
        'value="30"',
        'name="read_only" checked',
        'name="with_general" checked',
    ):
        assert kept in asked.text
    assert stored_tokens(tmp_path) == []
    given |= {"anyway": "shop"}
    created = await done(browser, "/care/tokens", given)
    (text,) = re.findall(r"palimpsest_[\w-]{20,}", created.text)
    assert created.headers["cache-control"] == "no-store"
    assert text not in (await browser.get(created.url)).text
    (stored,) = stored_tokens(tmp_path)
    assert (stored.user_id, stored.project, stored.read_only, stored.with_general) == ("bob", "shop", True, True)
    listed = (await browser.get("/care/tokens")).text
    assert (text in listed, stored.digest in listed, stored.id in listed) == (False, False, True)
    assert "shop + general<" in listed
    assert (await stranger.post("/sign-in", data={"token": text})).headers["location"] == "/"
    revoked = await done(browser, f"/care/tokens/{stored.id}/revoke")
    assert "The token is revoked." in revoked.text
    assert stored_tokens(tmp_path) == []
    assert (await stranger.get("/")).headers["location"] == "/sign-in"


async def test_what_is_no_token_is_refused(tmp_path: Path, browser: Browser) -> None:
    """Guards the form: no token is created with what the command would refuse."""
    for given in ({"days": "0"}, {"days": "-1"}, {"days": "9" * 30}, {"days": "x"}, {"user": "*"}):
        assert (await browser.post("/care/tokens", data=given)).status_code == 400, given
    assert stored_tokens(tmp_path) == []
    unknown = await browser.post("/care/tokens/12345678/revoke")
    assert (unknown.status_code, "there is no token" in unknown.text) == (400, True)
