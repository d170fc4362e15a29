"""Vector indexes, which follow the ledger and can be rebuilt from it."""
