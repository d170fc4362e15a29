"""The schema of the first release."""

revision = "0013"
down_revision = None


def upgrade() -> None:
    """Do nothing: `create_tables` gives a new ledger the newest schema at once, and later versions begin here."""
