"""Read the ledger. Every function takes a connection of `Ledger.read` and changes nothing."""
