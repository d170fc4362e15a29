"""Entities, the mentions of them, and the relations that memories state."""
