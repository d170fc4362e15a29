"""Who is who: entities, what mentions them, and the relations that memories state."""
