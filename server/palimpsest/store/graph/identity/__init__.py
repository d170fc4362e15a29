"""Which entity is which: their names, merges and namesakes."""
