"""What extraction finds in a model's reply: facts, requests to forget, and the names and relations of facts."""
