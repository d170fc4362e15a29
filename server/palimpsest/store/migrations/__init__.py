"""The ledger's schema, one file a step, carried out by Alembic."""
