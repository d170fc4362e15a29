"""What `fuzz.py` sends, to whom, and what it expects in return."""
