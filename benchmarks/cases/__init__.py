"""Written cases of what a careful person would learn, run through the pipeline with a script or a real model."""
