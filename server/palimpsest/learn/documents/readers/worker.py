"""A process that reads one HTML or PDF file: `python -m palimpsest.learn.documents.readers.worker FILE`.

Both formats let a small file ask for much work: PDF by compression, HTML by what its parser looks for in vain. So they
are read in a process of their own, with a limit on its memory, and its caller kills it after a while. What it read is
JSON on standard output: {"text": …} or {"error": …}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from palimpsest.core.errors import InputError
from palimpsest.learn.documents.readers.html import read_html
from palimpsest.learn.documents.readers.pdf import read_pdf

MAX_MEMORY = 1_500_000_000
"""How many bytes of address space the process may use. Set by hand: the largest file that is read takes a third."""

MAX_CHARS = 5_000_000
"""The most text that one document may have, in characters. Set by hand: several books, about 1,500 pages of ours."""


def read(file: Path) -> str:
    """Return the text of a file. Raises InputError, and whatever a broken file makes a parser raise."""
    data = file.read_bytes()
    return read_pdf(data, MAX_CHARS) if file.suffix.lower() == ".pdf" else read_html(data)


def _limit_memory() -> None:
    """Limit the memory of this process, where the system can: not on Windows."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - there is none on Windows

    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, most))


def main() -> None:
    """Read the file that the command line names."""
    _limit_memory()
    try:
        reply = {"text": read(Path(sys.argv[1]))}
    except InputError as error:
        reply = {"error": str(error)}
    except MemoryError:
        reply = {"error": "reading it takes too much memory"}
    except Exception as error:  # noqa: BLE001 - a broken PDF makes pypdf raise anything, and the reply says what
        reply = {"error": f"it is damaged: {str(error) or type(error).__name__}"}
    sys.stdout.write(json.dumps(reply))


if __name__ == "__main__":
    main()
