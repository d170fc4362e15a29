"""Start the server at once when that is all that is asked; everything else is the command line's."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Serve stdio when called without arguments on a pipe, or as plain `serve`; else run the command line."""
    os.umask(0o077)  # what Chroma and SQLite write beside our own files is nobody else's either
    arguments = sys.argv[1:]
    if arguments == ["serve"] or (not arguments and not sys.stdin.isatty()):
        from palimpsest.server.app import run_stdio, settings_loader  # noqa: PLC0415 - the command line's libraries would delay the handshake

        run_stdio(settings_loader())
        return
    from palimpsest.cli.app import app  # noqa: PLC0415 - see above

    app()


if __name__ == "__main__":
    main()
