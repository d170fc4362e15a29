"""The forms of the transcripts that clients write."""
