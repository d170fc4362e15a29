"""Tests of what is PostgreSQL's own."""
