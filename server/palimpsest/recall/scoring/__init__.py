"""Score candidates, order them, and say how relevant they are."""
