"""What becomes of a fact: topics that are not kept, what is near it, and what a model decides."""
