"""Measure how large a fresh installation is: install this checkout into a new environment and weigh each package.

`python benchmarks/install_size.py` needs the package index that pip is configured for. It prints the total, what of it
would go without Chroma, and the ten largest packages. Sizes are of the files that pip installed, in MB of 1,000,000
bytes; pip's compiled bytecode is not counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness import table

REPOSITORY = Path(__file__).parents[1]
OURS = "palimpsest-mcp"
LARGEST = 10

WEIGH = """
import importlib.metadata, json, os, re
from pip._vendor.packaging.requirements import Requirement

def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()

packages = {normal(package.metadata["Name"]): package for package in importlib.metadata.distributions()}
wanted = {name: [Requirement(text) for text in package.requires or ()] for name, package in packages.items()}
extras = {}
for need in sum(wanted.values(), []):
    extras.setdefault(normal(need.name), {""}).update(need.extras)
weighed = {}
for name, package in packages.items():
    files = [package.locate_file(file) for file in package.files or ()]
    size = sum(os.path.getsize(file) for file in files if os.path.isfile(file) and not str(file).endswith(".pyc"))
    asked = [{"extra": extra} for extra in extras.get(name, {""})]
    needs = [need for need in wanted[name] if not need.marker or any(map(need.marker.evaluate, asked))]
    weighed[name] = [size, [normal(need.name) for need in needs]]
print(json.dumps(weighed))
"""


def reachable(packages: Mapping[str, tuple[int, Sequence[str]]], left_out: str = "") -> set[str]:
    """Return the packages that ours needs, directly or not, if one is left out."""
    names, waiting = set[str](), [OURS]
    while waiting:
        name = waiting.pop()
        if name in packages and name not in names and name != left_out:
            names.add(name)
            waiting += packages[name][1]
    return names


def main() -> None:
    """Install, weigh and print."""
    with tempfile.TemporaryDirectory(prefix="palimpsest-size-") as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "Scripts/python.exe" if sys.platform == "win32" else "bin/python")
        quietly = ["--quiet", "--no-compile", "--disable-pip-version-check"]
        subprocess.run([python, "-m", "pip", "install", *quietly, REPOSITORY], check=True)
        printed = subprocess.run([python, "-c", WEIGH], check=True, capture_output=True, text=True).stdout
    packages: dict[str, tuple[int, list[str]]] = json.loads(printed)
    sizes = {name: packages[name][0] for name in reachable(packages)}
    total = sum(sizes.values()) / 1e6
    print(f"{len(sizes)} packages, {total:.0f} MB (Python {sys.version.split()[0]}, {sys.platform})")
    without = sum(sizes[name] for name in reachable(packages, "chromadb")) / 1e6
    print(f"chromadb and what nothing else needs: {total - without:.0f} MB\n")
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:LARGEST]
    print(table(("package", "MB"), *((name, size / 1e6) for name, size in largest)))


if __name__ == "__main__":
    main()
