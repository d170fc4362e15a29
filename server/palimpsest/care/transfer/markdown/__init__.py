"""A folder of Markdown files that a person reads and edits, and the way back."""
