"""Run the migrations on the connection and inside the transaction that `upgrade.py` passes in."""

from alembic import context

from palimpsest.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
