"""The page: look into a memory and correct it, in a browser."""
