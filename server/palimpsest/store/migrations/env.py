"""Run the migrations on the connection and inside the transaction that `upgrade.py` passes in, or write their SQL."""

from alembic import context

from palimpsest.store.schema import metadata

attributes = context.config.attributes
if context.is_offline_mode():
    context.configure(url=attributes["url"], target_metadata=metadata, literal_binds=True)
else:
    context.configure(connection=attributes["connection"], target_metadata=metadata)
context.run_migrations()
