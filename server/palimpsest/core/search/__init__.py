"""What a search is asked, and what it finds."""
