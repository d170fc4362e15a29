"""Documents on the command line: learn files and folders, list, read and delete them."""

from __future__ import annotations

from pathlib import Path

from tests.support.command_line import palimpsest, palimpsest_json


def test_a_folder_is_learned_listed_read_and_deleted(tmp_path: Path) -> None:
    assert "no documents" in palimpsest(tmp_path, "documents")
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "hut.md").write_text("# Hut\n\nThe key hangs behind the barometer.\n", "utf-8")
    (notes / "bus.html").write_text("<h1>Bus</h1><p>The last bus leaves at 18:40.</p>", "utf-8")
    (notes / "photo.png").write_bytes(b"\x89PNG")
    (notes / "broken.pdf").write_bytes(b"no")
    told = palimpsest(tmp_path, "learn", "notes").splitlines()
    added = [line.partition(", 1 page")[0] for line in told if line.startswith("added")]
    assert added == ["added as a document: bus.html", "added as a document: hut.md"]
    assert "skipped: photo.png: not a document (.png)" in told
    assert any(line.startswith("skipped: broken.pdf: ") for line in told)
    assert "unchanged: 2 documents" in palimpsest(tmp_path, "learn", "notes")
    listed = palimpsest_json(tmp_path, "documents")["documents"]
    (hut,) = (item["id"] for item in listed if item["source"].endswith("hut.md"))
    assert "behind the barometer" in palimpsest(tmp_path, "documents", hut, "--page", "1")
    assert ", 1 page" in palimpsest(tmp_path, "documents", hut, "--delete")
    for arguments, problem in (
        (("documents", "--delete"), "need the ID of a document"),
        (("documents", hut), f"no document '{hut}'"),
        (("learn", "missing.md"), "cannot be read"),
        (("learn", "notes", "--dry-run"), "give a file, with --ask"),
    ):
        assert problem in palimpsest(tmp_path, *arguments, code=1), arguments
