"""The server's log on stderr, which people read in a terminal."""

from __future__ import annotations

import logging

from palimpsest.text.control_characters import visible


def show_control_characters() -> None:
    """Let the log show control characters as escapes, because what clients send is in some of its lines."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(_visible)


def _visible(record: logging.LogRecord) -> bool:
    """Make the text of a log line visible. Return True: no line is left out."""
    record.msg, record.args = visible(record.getMessage()), ()
    return True
