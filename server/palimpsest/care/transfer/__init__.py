"""Take memories out of the ledger and back in: exports, imports of an export, and files that a person edits."""
