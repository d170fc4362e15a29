"""What a scope says of entities: what conflicts, and what memories name."""
