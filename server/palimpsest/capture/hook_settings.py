"""Tell hooks what they must know of the settings: they cannot read settings files. Blocking."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from palimpsest.core.files import replace_file
from palimpsest.core.settings import Settings
from palimpsest.hook import paths
from palimpsest.hook.private_files import make_private_folder

logger = logging.getLogger(__name__)


def write_hook_settings(settings: Settings) -> None:
    """Write the file that hooks read, if it says something else.

    No file says the same as the defaults. If it cannot be written, the log says so: nothing else depends on it.
    """
    excluded = [str(Path(folder).expanduser()) for folder in settings.hooks_excluded_folders]
    content = json.dumps({"mode": settings.hooks, "excluded_folders": excluded})
    file = Path(paths.settings_file(str(settings.data_dir)))
    try:
        if (file.read_text("utf-8") if file.exists() else _DEFAULTS) == content:
            return
        make_private_folder(str(file.parent))
        with replace_file(file) as stream:
            stream.write(content)
    except (OSError, UnicodeDecodeError) as error:
        logger.warning("%s cannot be written, so hooks do not know of hooks = %r: %s", file, settings.hooks, error)


_DEFAULTS = json.dumps({"mode": "on", "excluded_folders": []})
