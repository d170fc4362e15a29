"""Install every peer in its own environment: pinned versions, from the registries pip and npm are configured for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from peers.child import PeerError

MARKER = "installed.json"


def python_with(folder: Path, name: str, requirements: Sequence[str]) -> str:
    """Return the interpreter of an environment with the requirements. Raises PeerError."""
    environment = folder / name
    python = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if _marked(environment) != list(requirements):
        shutil.rmtree(environment, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(environment)], f"the environment for {name} could not be created")
        install = [str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir", *requirements]
        _run(install, f"pip could not install {' '.join(requirements)}")
        (environment / MARKER).write_text(json.dumps(list(requirements)), "utf-8")
    return str(python)


def npm_package(folder: Path, name: str, package: str, version: str) -> Path:
    """Return the folder of an npm package, installed with its dependencies. Raises PeerError."""
    environment = folder / name
    requirement = f"{package}@{version}"
    if _marked(environment) != [requirement]:
        npm = shutil.which("npm")
        if npm is None or shutil.which("node") is None:
            raise PeerError("node and npm are not on this machine")
        shutil.rmtree(environment, ignore_errors=True)
        environment.mkdir(parents=True)
        install = [
            npm,
            "install",
            "--prefix",
            str(environment),
            "--cache",
            str(environment / "cache"),
            "--no-audit",
            "--no-fund",
        ]
        _run([*install, requirement], f"npm could not install {requirement}")
        (environment / MARKER).write_text(json.dumps([requirement]), "utf-8")
    return environment / "node_modules" / package


def _marked(environment: Path) -> list[str] | None:
    marker = environment / MARKER
    return json.loads(marker.read_text("utf-8")) if marker.is_file() else None


def _run(command: Sequence[str], failure: str) -> None:
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"{failure}: {type(error).__name__}") from error
    if process.returncode:
        # The output may name hosts and paths of this machine. It is shown, but not written into the figures.
        print(process.stderr.strip()[-2000:], file=sys.stderr)
        raise PeerError(f"{failure} (exit code {process.returncode})")
