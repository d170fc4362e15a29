"""The stages that write texts for people and agents to read: summaries, and texts about somebody."""
