"""What `compare.py` compares: the peers, how each is installed, run and asked, and what is measured of it."""
