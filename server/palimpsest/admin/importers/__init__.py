"""Readers of other tools' files."""
