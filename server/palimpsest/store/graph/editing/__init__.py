"""Edits of entities: carried out, and taken back."""
