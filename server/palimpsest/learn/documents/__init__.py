"""Documents: files and long texts, kept as pages that search finds beside the memories."""
