"""Portraits: of the user, of a project, and of how an agent should work."""
