"""What a process loads whose memory is in a file: nothing that is for PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import palimpsest
from tests.support.environment import clean_environment

REPORT_MODULES = """
import atexit, runpy, sys
atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))
runpy.run_module("palimpsest", run_name="__main__")
"""


@pytest.mark.nightly
def test_nothing_for_postgresql_is_loaded(tmp_path: Path) -> None:
    """Guards how long everything takes to start. Only migrations load SQLAlchemy's dialect, through Alembic."""
    palimpsest(tmp_path, "add", "Nora plays the cello")
    command = [sys.executable, "-c", REPORT_MODULES, "search", "cello"]
    done = subprocess.run(
        command, env=clean_environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, check=True
    )
    modules = done.stderr.split()
    assert "Nora plays the cello" in done.stdout
    assert "palimpsest.store.schema" in modules
    assert [name for name in modules if "postgres" in name or "psycopg" in name] == []
