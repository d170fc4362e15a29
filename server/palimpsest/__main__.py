"""The entry point. It starts the stdio server directly, and runs the command line for everything else."""

import gc
import os
import sys


def main() -> None:
    """Serve MCP over stdio if called as `serve`, or without arguments on a pipe. Else run the command line."""
    os.umask(0o077)  # so that other users cannot read the files of Chroma and SQLite either
    # NumPy reads it when it is imported. The matrices here are small, and threads that share one wait for each other:
    # on a busy machine a search of 13 ms then takes 31.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    arguments = sys.argv[1:]
    if arguments == ["serve"] or (not arguments and not sys.stdin.isatty()):
        from palimpsest.server.app import run_stdio  # noqa: PLC0415 - the command line's libraries would delay the handshake

        run_stdio()
        return
    # What a command imports lives to its end. Looking for garbage in it again and again takes an eighth of the time.
    gc.set_threshold(100_000)
    from palimpsest.cli.console import app, prepare_streams  # noqa: PLC0415 - see above

    prepare_streams()
    app()


if __name__ == "__main__":
    main()
