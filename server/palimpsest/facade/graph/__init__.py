"""Who is who in an open memory, and forms in which a graph is written."""
