"""Commands that learn from files and old sessions, and that show what is learned in the background."""
