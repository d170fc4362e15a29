"""The fitted numbers of the ranking, and what reads them."""
