"""How jobs change inside a transaction."""
