"""The ledger in a PostgreSQL database, which many servers share."""
