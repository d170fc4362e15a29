"""Everything that knows SQLite's dialect."""
