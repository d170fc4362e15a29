"""Results as they are shown: as text for a person or a model, and as JSON for programs."""
