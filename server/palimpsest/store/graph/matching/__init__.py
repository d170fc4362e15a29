"""Which entities of a scope may be the same or be spoken of alike: what conflicts, and names with like vectors."""
