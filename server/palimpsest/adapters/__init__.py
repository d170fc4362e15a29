"""One file a vendor; the vendor's errors become ours here. Siblings never import each other."""
