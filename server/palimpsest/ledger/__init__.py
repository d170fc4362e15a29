"""The truth: memories, messages, history and vectors in one SQLite file, written in one place."""
