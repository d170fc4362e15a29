"""The way in: from messages and texts to decisions, and their application."""
