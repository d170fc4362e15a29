"""The ledger: the truth, in one database."""
