"""Administer a memory: doctor, backups, export and import, configuration."""
