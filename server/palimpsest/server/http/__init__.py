"""MCP over HTTP and SSE."""
