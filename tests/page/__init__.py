"""The page: what a browser gets, and what it may do."""
