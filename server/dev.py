"""The server for `mcp dev` and `mcp run`, which look for it in a global of this file.

They load the file under a name that is not importable. The annotations of tools defined here could not be resolved.
"""

from palimpsest.server.app import build_server, settings_loader

mcp = build_server(settings_loader())
