"""The commands that move a memory: backup, restore, export and import."""
