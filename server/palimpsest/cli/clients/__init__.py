"""Add the server to the configuration files of MCP clients."""
