"""Run the migrations on the connection that `ledger.py` hands over; the transaction is its own."""

from alembic import context

from palimpsest.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
