"""What hooks left behind, taken into the ledger: the spool and the transcripts of clients."""
