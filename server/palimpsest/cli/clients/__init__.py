"""Entries in the settings files of MCP clients."""
