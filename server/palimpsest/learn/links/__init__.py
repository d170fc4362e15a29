"""Links between memories: each new one is held against those that are nearest to it, in the background (A-Mem)."""
