"""Correct many memories at once, what is stored twice, what contradicts, and a hit in its place."""
