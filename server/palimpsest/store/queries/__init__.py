"""Read the ledger; every function takes a connection."""
