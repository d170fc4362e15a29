"""The parts of `compare.py`: the compared systems, what is measured of them, and a worker around each library."""
