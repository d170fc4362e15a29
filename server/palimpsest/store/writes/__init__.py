"""Change the ledger, inside one transaction."""
