"""The databases a ledger can live in, and what it needs of them."""
