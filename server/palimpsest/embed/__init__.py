"""Embedders: adapters that turn texts into vectors, one per file."""
