"""Documents on the command line: learn files and folders, list, read and delete them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import palimpsest
from tests.support.documents import write_pdf


def fill(folder: Path) -> Path:
    """Make a folder of documents and other files."""
    notes = folder / "notes"
    (notes / "old").mkdir(parents=True)
    (notes / "hut.md").write_text("# Hut\n\nThe key hangs behind the barometer.\n", "utf-8")
    (notes / "bus.html").write_text("<h1>Bus</h1><p>The last bus leaves at 18:40.</p>", "utf-8")
    write_pdf(notes / "policy.pdf", ["The deductible is 150 euros."])
    (notes / ".gitignore").write_text("old/\n*.txt\n!keep.txt\n", "utf-8")
    (notes / "old" / "hut.md").write_text("The key hangs in the shed.", "utf-8")
    (notes / "draft.txt").write_text("Nothing yet.", "utf-8")
    (notes / "keep.txt").write_text("The well is checked in May.", "utf-8")
    (notes / "photo.png").write_bytes(b"\x89PNG")
    (notes / "broken.pdf").write_bytes(b"no")
    return notes


@pytest.mark.nightly
def test_a_folder_is_learned_with_what_git_ignores_left_out(tmp_path: Path) -> None:
    notes = fill(tmp_path)
    told = palimpsest(tmp_path, "learn", str(notes)).splitlines()
    assert [line.partition(", 1 page")[0] for line in told if line.startswith("added")] == [
        "added as a document: bus.html",
        "added as a document: hut.md",
        "added as a document: keep.txt",
        "added as a document: policy.pdf",
    ]
    skipped = {line.removeprefix("skipped: ") for line in told if line.startswith("skipped")}
    assert {"draft.txt, old: ignored by .gitignore", "photo.png: not a document (.png)"} <= skipped
    assert any(line.startswith("broken.pdf: ") for line in skipped)
    (notes / "bus.html").unlink()
    assert "unchanged: 3 documents" in palimpsest(tmp_path, "learn", str(notes))


@pytest.mark.nightly
def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    assert "no documents" in palimpsest(tmp_path, "documents")
    for arguments, problem in (
        (("documents", "--delete"), "need the ID of a document"),
        (("documents", "12345678"), "no document '12345678'"),
        (("documents", "1234"), "too short for an id"),
        (("learn", "missing.md"), "cannot be read"),
        (("learn", "notes", "--dry-run"), "go with sessions"),
    ):
        assert problem in palimpsest(tmp_path, *arguments, code=1), arguments
