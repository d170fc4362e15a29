"""Names in a text, found without a language model."""
