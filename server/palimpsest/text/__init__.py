"""Text in any language: search tokens, function words, word-by-word comparison, and redaction of secrets."""
