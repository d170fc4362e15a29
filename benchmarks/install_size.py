"""Measure how large a fresh installation is: install this checkout into a new environment and weigh each package.

`python benchmarks/install_size.py` needs the package index that pip is configured for. It prints the total, the ten
largest packages, and for each direct dependency what would go if it alone were left out: itself, and what nothing else
needs. Sizes are of the files that pip installed, in MB of 1,000,000 bytes; pip's compiled bytecode is not counted.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
OURS = "palimpsest-mcp"
LARGEST = 10
MB = 1e6

WEIGH = """
import importlib.metadata as metadata, json, os
packages = {}
for package in metadata.distributions():
    files = [package.locate_file(file) for file in package.files or ()]
    size = sum(os.path.getsize(file) for file in files if os.path.isfile(file) and not str(file).endswith(".pyc"))
    packages[package.metadata["Name"]] = {"size": size, "requires": package.requires or []}
from pip._vendor.packaging.requirements import Requirement
for package in packages.values():
    needed = [Requirement(text) for text in package["requires"]]
    package["requires"] = [[need.name, sorted(need.extras), str(need.marker or "")] for need in needed]
print(json.dumps(packages))
"""


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package: its size in bytes, and the names of the packages it needs."""

    name: str
    size: int
    needs: frozenset[str]


def main() -> None:
    """Install, weigh and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default="", help="weigh the environment of this interpreter, and install nothing")
    python = parser.parse_args().python
    if python:
        report(weighed(Path(python)))
        return
    with tempfile.TemporaryDirectory(prefix="palimpsest-size-") as folder:
        report(weighed(installed(Path(folder))))


def installed(folder: Path) -> Path:
    """Install this checkout into a new environment in a folder and return its interpreter."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    command = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", REPOSITORY]
    subprocess.run(command, check=True)
    return python


def weighed(python: Path) -> dict[str, Package]:
    """Return the packages of an environment that ours needs, by name. Raises SystemExit if ours is not there."""
    printed = subprocess.run([python, "-c", WEIGH], check=True, capture_output=True, text=True).stdout
    found: dict[str, dict[str, Any]] = {normal(name): package for name, package in json.loads(printed).items()}
    if OURS not in found:
        raise SystemExit(f"{OURS} is not installed for {python}")
    extras = {normal(name): set(asked) for package in found.values() for name, asked, _ in package["requires"] if asked}
    packages = {
        name: Package(name, package["size"], _needs(package["requires"], extras.get(name, set()), set(found)))
        for name, package in found.items()
    }
    return {name: packages[name] for name in reachable(packages, set())}


def normal(name: str) -> str:
    """Return the normalized name of a package (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _needs(requirements: list[Any], extras: set[str], present: set[str]) -> frozenset[str]:
    """Return which installed packages the requirements name: those of an extra only if it was asked for."""
    return frozenset(
        normal(name)
        for name, _, marker in requirements
        if normal(name) in present
        and ("extra ==" not in marker or any(re.search(rf"extra == ['\"]{extra}['\"]", marker) for extra in extras))
    )


def reachable(packages: dict[str, Package], left_out: set[str]) -> set[str]:
    """Return the packages that ours needs, directly or not, if some of its own dependencies are left out."""
    names: set[str] = set()
    waiting = [OURS]
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += packages[name].needs - (left_out if name == OURS else set())
    return names


def report(packages: dict[str, Package]) -> None:
    """Print the total, the largest packages, and what each direct dependency brings."""
    total = sum(package.size for package in packages.values())
    print(f"{len(packages)} packages, {total / MB:.0f} MB (Python {sys.version.split()[0]}, {sys.platform})\n")
    for package in sorted(packages.values(), key=lambda package: -package.size)[:LARGEST]:
        print(f"{package.size / MB:7.1f} MB  {package.name}")
    print("\nwithout one direct dependency, and what only it needs:")
    saved = {name: packages.keys() - reachable(packages, {name}) for name in packages[OURS].needs}
    sizes = {name: sum(packages[gone].size for gone in names) for name, names in saved.items()}
    for name in sorted(sizes, key=lambda name: -sizes[name])[:LARGEST]:
        print(f"{sizes[name] / MB:7.1f} MB  {name} ({len(saved[name])}): {', '.join(sorted(saved[name] - {name}))}")


if __name__ == "__main__":
    main()
