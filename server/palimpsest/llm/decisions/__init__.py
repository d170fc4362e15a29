"""What becomes of facts: the decisions that follow from what a model says and from the times of facts."""
