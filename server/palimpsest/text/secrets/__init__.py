"""Find passwords, keys and tokens in texts, and replace them."""
