"""A year in the life of one person, told to a memory day by day."""
