"""Palimpsest: long-term memory for chat and coding agents, over MCP."""

__version__ = "0.1.0"
