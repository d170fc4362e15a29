"""Parts of the facade: what one can do with an open memory beside adding, searching and correcting."""
