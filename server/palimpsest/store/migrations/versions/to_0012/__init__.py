"""The steps up to 0012, oldest first."""
