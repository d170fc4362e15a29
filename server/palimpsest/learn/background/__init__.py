"""Work that no caller waits for."""
