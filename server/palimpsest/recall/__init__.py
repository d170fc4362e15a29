"""The way out: from a query to hits."""
