"""What is made of the memories to be read at a glance: summaries, days, the portrait of a person."""
