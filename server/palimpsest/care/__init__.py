"""Looking after the ledger: checks, backups, erasing, moving."""
