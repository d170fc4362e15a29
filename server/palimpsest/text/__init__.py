"""Words in any language: tokens, stop words, secrets in a text."""
