"""An environment of its own for every peer: pinned versions, from the registries that pip and npm are set to."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from peers.child import PeerError

MARK = "installed.json"


def python_with(folder: Path, name: str, requirements: Sequence[str]) -> str:
    """Return the interpreter of an environment that holds the requirements. Raises PeerError."""
    place = folder / name
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if _marked(place) != list(requirements):
        shutil.rmtree(place, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(place)], f"an environment for {name} could not be made")
        install = [str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir", *requirements]
        _run(install, f"pip could not install {' '.join(requirements)}")
        (place / MARK).write_text(json.dumps(list(requirements)), "utf-8")
    return str(python)


def npm_package(folder: Path, name: str, package: str, version: str) -> Path:
    """Return the folder of an npm package, installed with what it needs. Raises PeerError."""
    place = folder / name
    wanted = f"{package}@{version}"
    if _marked(place) != [wanted]:
        npm = shutil.which("npm")
        if npm is None or shutil.which("node") is None:
            raise PeerError("there is no node and npm on this machine")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        install = [npm, "install", "--prefix", str(place), "--cache", str(place / "cache"), "--no-audit", "--no-fund"]
        _run([*install, wanted], f"npm could not install {wanted}")
        (place / MARK).write_text(json.dumps([wanted]), "utf-8")
    return place / "node_modules" / package


def _marked(place: Path) -> list[str] | None:
    mark = place / MARK
    return json.loads(mark.read_text("utf-8")) if mark.is_file() else None


def _run(command: Sequence[str], trouble: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"{trouble}: {type(error).__name__}") from error
    if done.returncode:
        # What the tool said may name hosts and paths of this machine: it is shown, and kept out of the figures.
        print(done.stderr.strip()[-2000:], file=sys.stderr)
        raise PeerError(f"{trouble} (exit code {done.returncode})")
