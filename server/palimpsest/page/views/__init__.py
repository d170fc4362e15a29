"""What the page shows, a noun a file."""
