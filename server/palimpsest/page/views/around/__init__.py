"""What the page shows to look around: days, people, conversations, documents, summaries, and what is going on."""
