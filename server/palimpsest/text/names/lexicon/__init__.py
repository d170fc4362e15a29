"""The words and names by which names are told: lists that were made, and words set by hand."""
