"""Prompts on the page: their difference to the shipped ones, and one's own, which are never lost."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from palimpsest.llm.prompts import shipped_directory
from tests.support.page import Browser, done, page_in

pytestmark = pytest.mark.anyio

SHIPPED = (shipped_directory() / "extract.md").read_text("utf-8")
EDITED = SHIPPED.replace("## system\n", "## system\nAnswer <b>tersely</b>.\n")


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "prompts"
    folder.mkdir()
    monkeypatch.setenv("PALIMPSEST_PROMPTS_DIR", str(folder))
    return folder


async def test_a_prompt_of_ones_own_is_saved_and_shown(tmp_path: Path, own: Path) -> None:
    """The next call uses it, and each text of a person stays beside it."""
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


async def test_a_prompt_that_cannot_be_used_is_not_saved(tmp_path: Path, own: Path) -> None:
    """Guards the memory, which a wrong prompt would keep from opening, and files outside of the folder of prompts.

    What was typed is shown again.
    """
    wrong = {
        "": "front matter",
        EDITED.replace("name: extract", "name: decide"): "must be",
        EDITED.replace("$", ""): "the text names",
        EDITED + "\n$secret": "secret",
    }
    async with page_in(tmp_path / "data") as page, page.browser() as browser:
        for text, reason in wrong.items():
            refused = await browser.post("/care/prompts/extract", data={"text": text})
            assert (refused.status_code, reason in refused.text, files_in(own)) == (400, True, []), reason
            assert "tersely" in refused.text or not text
        for name in ("..%2Fextract", "%2Fetc%2Fpasswd", "nothing", "README"):
            answer = await browser.post(f"/care/prompts/{name}", data={"text": EDITED})
            assert answer.status_code == 404, name
        assert files_in(own) == []


async def test_without_a_folder_there_is_no_form(browser: Browser) -> None:
    """Guards the shipped files: the page says which setting names a folder for one's own."""
    assert "prompts_dir" in (await browser.get("/care/prompts")).text
    assert "<textarea" not in (await browser.get("/care/prompts/extract")).text
    refused = await browser.post("/care/prompts/extract", data={"text": EDITED})
    assert (refused.status_code, "prompts_dir" in refused.text) == (400, True)
    assert (shipped_directory() / "extract.md").read_text("utf-8") == SHIPPED


@pytest.mark.usefixtures("own")
async def test_a_second_save_of_a_prompt_overwrites_no_other_unseen(tmp_path: Path) -> None:
    async with page_in(tmp_path / "data") as page, page.browser() as browser:
        path = "/care/prompts/extract"
        opened = read_of(await browser.get(path))
        first, second = (EDITED.replace("tersely", word) for word in ("FIRST", "SECOND"))
        for _ in range(2):
            saved = await browser.post(path, data={"text": first, "read": opened})
            assert saved.status_code == 303
        refused = await browser.post(path, data={"text": second, "read": opened})
        assert (refused.status_code, "was changed after you had opened it" in refused.text) == (409, True)
        assert "FIRST" in refused.text
        assert "SECOND" in refused.text
        again = await browser.post(path, data={"text": second, "read": read_of(refused)})
        assert again.status_code == 303


def read_of(shown: httpx.Response) -> str:
    (digest,) = re.findall(r'name="read" value="([0-9a-f]+)"', shown.text)
    return digest
