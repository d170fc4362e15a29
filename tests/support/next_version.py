"""A made-up next version of the program, whose schema has one more column, and the migration that adds it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from palimpsest.store import copying, upgrade
from palimpsest.store.schema import HEAD, KNOWN_REVISIONS
from palimpsest.store.sqlite import sqlite_database
from palimpsest.store.upgrade import MIGRATIONS

NEXT = "0015"
PURPOSE = "Remember in which mood a memory was told."
MIGRATION = f"""\"\"\"{PURPOSE}\"\"\"

import sqlalchemy as sa
from alembic import op

revision = "{NEXT}"
down_revision = "{HEAD}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("memories", sa.Column("mood", sa.String(16), nullable=False, server_default="calm"))
"""

# What a process runs first to be the next version. Its first argument is the folder of `write_migrations`.
AS_THE_NEXT_VERSION = f"""
import sys
from pathlib import Path
from palimpsest.store import copying, schema, upgrade
from palimpsest.store.sqlite import sqlite_database
upgrade.MIGRATIONS = Path(sys.argv[1])
upgrade.HEAD = copying.HEAD = "{NEXT}"
upgrade.KNOWN_REVISIONS = sqlite_database.KNOWN_REVISIONS = (*schema.KNOWN_REVISIONS, "{NEXT}")
"""


def write_migrations(folder: Path) -> Path:
    """Write the migrations of the next version below a folder, and return where they are."""
    copy = Path(shutil.copytree(MIGRATIONS, folder / "migrations", ignore=shutil.ignore_patterns("__pycache__")))
    (copy / "versions" / f"{NEXT}_mood.py").write_text(MIGRATION)
    return copy


def become_the_next_version(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make this process one of the next version until the test ends."""
    monkeypatch.setattr(upgrade, "MIGRATIONS", write_migrations(folder))
    for module in (upgrade, copying):
        monkeypatch.setattr(module, "HEAD", NEXT)
    for module in (upgrade, sqlite_database):
        monkeypatch.setattr(module, "KNOWN_REVISIONS", (*KNOWN_REVISIONS, NEXT))
