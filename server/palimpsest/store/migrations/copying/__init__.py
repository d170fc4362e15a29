"""Copies of a whole ledger from one database to another, whatever their kinds."""
