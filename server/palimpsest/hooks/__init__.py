"""What clients' hooks run, what is captured from them, and what sessions begin with."""
