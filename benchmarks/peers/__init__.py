"""The parts of `compare.py`: the peers, how each is installed, run and called, and what is measured."""
