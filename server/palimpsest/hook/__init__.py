"""The program `palimpsest-hook`, which clients run at the events of a session, and what it shares with its readers."""
