"""What is kept beside memories and messages: what summaries rest on, links, uses, and the gists of pages."""
