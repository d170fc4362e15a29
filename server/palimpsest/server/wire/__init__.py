"""What arrives on a connection, before the MCP SDK sees it: JSON within limits, JSON-RPC messages, stdin and stdout."""
