"""Kinds of summaries, and how each is written."""
