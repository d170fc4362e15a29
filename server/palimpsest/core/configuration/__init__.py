"""What the settings are made of: the sections of a settings file, and the file itself."""
