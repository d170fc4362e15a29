"""An index on a Chroma server, which several processes and hosts share."""
