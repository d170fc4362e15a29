"""Palimpsest: long-term memory for chat and coding agents, over MCP."""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from palimpsest.library import AsyncMemory as AsyncMemory
    from palimpsest.library import Memory as Memory
    from palimpsest.memory import open_memory as open_memory


def __getattr__(name: str) -> object:
    """Import what somebody asks for; whoever imports the package for another reason does not pay for it."""
    if name in ("AsyncMemory", "Memory"):
        from palimpsest import library  # noqa: PLC0415 - as above

        return getattr(library, name)
    if name == "open_memory":
        from palimpsest.memory import open_memory  # noqa: PLC0415 - as above

        return open_memory
    raise AttributeError(f"module 'palimpsest' has no attribute '{name}'")
