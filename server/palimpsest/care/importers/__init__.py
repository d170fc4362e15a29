"""Files of other tools, read as memories and messages."""
