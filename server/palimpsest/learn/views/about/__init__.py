"""What is known about one entity: read from the ledger, as lines, and as a short text of a model."""
