"""Tests of learn/links."""
