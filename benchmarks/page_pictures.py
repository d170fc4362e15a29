"""Take the pictures of docs/page.md: every page, light and dark, with a made-up year.

    python benchmarks/page_pictures.py

It writes `docs/pictures/page/`. It needs Debian's `chromium`, `fonts-dejavu-core` and `fonts-wqy-microhei`.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import anyio
from playwright.sync_api import Page

from chromium import chromium
from harness import DATA, PALIMPSEST, environment
from year import store_year

REPOSITORY = Path(__file__).parents[1]
PICTURES = REPOSITORY / "docs" / "pictures" / "page"
USER = "nora"
WIDTH, HEIGHT = 1000, 700
# Of JPEG: text stays sharp, and the largest picture has about 60 kB.
QUALITY = 60

# Each picture with the path of its page, and what is clicked on the page to get to what the picture shows.
SHOWN: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("page_pictures.json").read_text("utf-8"))

# How long a page is waited for until it stands still: a graph moves at first.
SETTLED_MS = 2_000

# Gives the folders of whoever takes the pictures the names that they would have for the made-up person.
REPLACE_PATHS = """(names) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  while (texts.nextNode()) {
    for (const [path, name] of names) texts.currentNode.data = texts.currentNode.data.replaceAll(path, name)
  }
}"""

Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")


def main() -> None:
    """Take all pictures anew."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="palimpsest-") as name:
        folder = Path(name)
        anyio.run(store_year, folder / DATA, USER)
        with serving(folder) as url, chromium() as browser:
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, locale="en-GB")
            page.goto(url)
            folders = [(name, "/home/nora"), (str(REPOSITORY), "/opt/palimpsest")]
            for picture in SHOWN["pages"]:
                take(page, url.partition("/enter")[0], picture, folders)


@contextmanager
def serving(folder: Path) -> Generator[str]:
    """Run `palimpsest ui` until the block ends; its first URL."""
    command, variables = [*PALIMPSEST, "ui", "--no-open"], environment(folder, USER) | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables, cwd=folder) as process:
        try:
            if process.stdout is None:
                raise RuntimeError("the page says no URL")
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def take(page: Page, base: str, name: str, folders: Sequence[tuple[str, str]]) -> None:
    """Take the pictures of one page. `folders` are paths and the names that they are shown by."""
    page.goto(base + SHOWN["pages"][name])
    if name in SHOWN["clicked"]:
        page.locator(SHOWN["clicked"][name]).first.click()
        page.wait_for_load_state()
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(SETTLED_MS)
        page.evaluate(REPLACE_PATHS, folders)
        file = PICTURES / f"{name}-{scheme}.jpg"
        page.screenshot(path=file, type="jpeg", quality=QUALITY)
        print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
