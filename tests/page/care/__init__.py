"""Tests of what the page looks after."""
