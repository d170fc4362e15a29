"""What every package uses: models, errors, settings, time, protocols, validation."""
