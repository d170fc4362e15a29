"""The spool: whole files for their owner only, within a bound."""

from __future__ import annotations

import json
import os
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palimpsest.hooks import spool

needs_posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions and links")


def record(text: str = "I moved to Lisbon.") -> dict[str, str | int]:
    return spool.new_record("claude-code", "prompt", "s1", role="user", text=text, cwd="/home/nadia")


def spooled(data_dir: Path) -> list[Path]:
    return sorted(Path(spool.spool_dir(str(data_dir))).glob("*.json"))


def test_a_record_is_one_file_of_json(tmp_path: Path) -> None:
    path = spool.write_record(str(tmp_path), record())
    assert [str(file) for file in spooled(tmp_path)] == [path]
    content = json.loads(Path(path).read_text("utf-8"))
    at = datetime.fromisoformat(content.pop("at"))
    assert timedelta(0) <= datetime.now(UTC) - at < timedelta(minutes=5)
    assert content == {
        "v": 1,
        "client": "claude-code",
        "event": "prompt",
        "session": "s1",
        "message_id": "",
        "role": "user",
        "text": "I moved to Lisbon.",
        "transcript": "",
        "cwd": "/home/nadia",
        "user": "",
        "detail": "",
    }


def test_an_event_without_text_has_neither_role_nor_text() -> None:
    assert {"role", "text"} & spool.new_record("codex", "end", "s1").keys() == set()


def test_a_text_that_has_no_utf_8_is_kept(tmp_path: Path) -> None:
    path = spool.write_record(str(tmp_path), record("half a pair: \ud83d"))
    assert json.loads(Path(path).read_bytes())["text"] == "half a pair: \ud83d"


@needs_posix
def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    path = Path(spool.write_record(str(tmp_path / "new"), record()))
    modes = {stat.S_IMODE(os.stat(place).st_mode) for place in (path.parent, path.parent.parent)}
    assert modes == {0o700}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@needs_posix
def test_an_open_folder_is_closed(tmp_path: Path) -> None:
    folder = Path(spool.spool_dir(str(tmp_path)))
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    folder.parent.chmod(0o755)
    spool.write_record(str(tmp_path), record())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@needs_posix
@pytest.mark.parametrize("level", ["hooks", "hooks/spool"])
def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path, level: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    link = tmp_path / "data" / level
    link.parent.mkdir(parents=True, mode=0o700)
    link.symlink_to(elsewhere)
    with pytest.raises(OSError, match="exists"):
        spool.write_record(str(tmp_path / "data"), record())
    assert list(elsewhere.iterdir()) == []


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    def write(number: int) -> str:
        return spool.write_record(str(tmp_path), record(f"text {number}"))

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(write, range(100)))
    assert {json.loads(file.read_bytes())["text"] for file in spooled(tmp_path)} == {f"text {n}" for n in range(100)}


def test_a_spool_with_too_many_files_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MAX_FILES", 3)
    for _ in range(3):
        spool.write_record(str(tmp_path), record())
    with pytest.raises(spool.SpoolFullError):
        spool.write_record(str(tmp_path), record())
    assert len(spooled(tmp_path)) == 3


def test_a_spool_with_too_many_bytes_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "FEW_FILES", 1)
    monkeypatch.setattr(spool, "MAX_SPOOL_BYTES", 2_000)
    spool.write_record(str(tmp_path), record("x" * 1_000))
    spool.write_record(str(tmp_path), record("x" * 1_000))
    with pytest.raises(spool.SpoolFullError):
        spool.write_record(str(tmp_path), record())
    assert len(spooled(tmp_path)) == 2


def test_a_refusal_is_noted(tmp_path: Path) -> None:
    spool.note_refusal(str(tmp_path), "full")
    spool.note_refusal(str(tmp_path), "large")
    lines = Path(spool.refused_file(str(tmp_path))).read_text("utf-8").splitlines()
    assert [line.split(" ")[1] for line in lines] == ["full", "large"]
    assert datetime.fromisoformat(lines[0].split(" ")[0]).utcoffset() == timedelta(0)


def test_a_short_path_lies_in_the_data_directory() -> None:
    assert spool.sockets_dir("/home/a/data") == os.path.join("/home/a/data", "hooks", "sockets")


@needs_posix
def test_a_long_path_is_replaced_by_a_short_one_of_its_own() -> None:
    long = spool.sockets_dir("/home/" + "a" * 90)
    assert len(long) < 70
    assert long != spool.sockets_dir("/home/" + "b" * 90)
    assert f"palimpsest-{os.getuid()}" in long
