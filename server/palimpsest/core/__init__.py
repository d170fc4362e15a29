"""What every part speaks of: values, errors, settings, time, protocols."""
