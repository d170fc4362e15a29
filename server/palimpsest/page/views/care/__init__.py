"""Look after the memory: what is found about it, backups, import and export, tokens, settings, prompts."""
