"""Learn from messages: piece by piece, in one extraction and one set of decisions each."""
