"""What `mcp dev` and `mcp run` take: the server as a global of a file of its own.

They load a file under a name that Python does not know, which the tools' annotations cannot be resolved in.
"""

from palimpsest.server.tools import mcp

__all__ = ["mcp"]
