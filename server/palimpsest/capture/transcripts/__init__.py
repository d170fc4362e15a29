"""The transcripts that clients write: their forms, and how far they were read."""
