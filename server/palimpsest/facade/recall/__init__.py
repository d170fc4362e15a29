"""A search, and what follows it: what fades, and which memories came back for which question."""
