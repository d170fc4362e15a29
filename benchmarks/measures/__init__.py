"""The measures of `quality.py`, one file for each family."""
