"""One file a stage: what its prompt is given, the form of its reply, one function. A stage writes nothing."""
