"""Dates in questions and texts."""
