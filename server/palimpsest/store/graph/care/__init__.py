"""Looking after the graph: exports, imports, purges, moves of projects, and the comparison with the memories."""
