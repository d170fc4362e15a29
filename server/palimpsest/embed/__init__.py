"""Texts to vectors, one adapter a file."""
