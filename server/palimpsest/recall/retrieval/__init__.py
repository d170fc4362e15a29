"""Retrieve the candidates of a query."""
