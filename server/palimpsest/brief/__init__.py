"""What a session begins with, rendered before it begins, and what is recalled for a prompt."""
