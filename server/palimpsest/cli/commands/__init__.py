"""The commands, grouped by what they are about. `cli/app.py` puts them together."""
