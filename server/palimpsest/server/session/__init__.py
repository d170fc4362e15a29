"""What lives as long as a process or a connection."""
