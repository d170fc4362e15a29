"""Measure how large a fresh installation is: install this checkout into a new environment and weigh each package.

`python benchmarks/install_size.py` needs the package index that pip is configured for. It prints the total and the ten
largest packages. Sizes are of the files that pip installed, in MB of 1,000,000 bytes; pip's compiled bytecode is not
counted, and neither is pip itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from harness import table

REPOSITORY = Path(__file__).parents[1]
LARGEST = 10

WEIGH = """
import importlib.metadata, json, os
sizes = {}
for package in importlib.metadata.distributions():
    files = [package.locate_file(file) for file in package.files or ()]
    sizes[package.metadata["Name"]] = sum(
        os.path.getsize(file) for file in files if os.path.isfile(file) and not str(file).endswith(".pyc")
    )
print(json.dumps({name: size for name, size in sizes.items() if name not in ("pip", "setuptools")}))
"""


def main() -> None:
    """Install, weigh and print."""
    with tempfile.TemporaryDirectory(prefix="palimpsest-size-") as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "Scripts/python.exe" if sys.platform == "win32" else "bin/python")
        quietly = ["--quiet", "--no-compile", "--disable-pip-version-check"]
        subprocess.run([python, "-m", "pip", "install", *quietly, REPOSITORY], check=True)
        printed = subprocess.run([python, "-c", WEIGH], check=True, capture_output=True, text=True).stdout
    sizes: dict[str, int] = json.loads(printed)
    total = sum(sizes.values()) / 1e6
    print(f"{len(sizes)} packages, {total:.0f} MB (Python {sys.version.split()[0]}, {sys.platform})\n")
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:LARGEST]
    print(table(("package", "MB"), *((name, size / 1e6) for name, size in largest)))


if __name__ == "__main__":
    main()
