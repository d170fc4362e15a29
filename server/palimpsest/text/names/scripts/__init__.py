"""Names by the script they are written in."""
