"""A graph database outside that follows the graph of the ledger by Bolt. Nobody reads from it here."""
