"""Commands that look around in the graph, draw it and correct it."""
