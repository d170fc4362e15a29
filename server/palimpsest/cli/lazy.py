"""The modules that commands use, each imported when something of it is used: the help of a command needs none."""
# ruff: noqa: F401 - the commands import the names from here
# pyright: reportUnusedImport=false

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palimpsest import memory as facade
    from palimpsest.admin import backup, configuration, import_file, markdown_files, markdown_import
    from palimpsest.cli import output
    from palimpsest.cli.clients import catalog, config_files, installation
    from palimpsest.core import files, filters, models, settings_file, validation
    from palimpsest.core import settings as core_settings
    from palimpsest.hooks import intake
    from palimpsest.learn import browsing, document_pages, entity_graph, job_runner, readers
    from palimpsest.learn.summaries import dossier, summary_writer
    from palimpsest.llm import prompts as llm_prompts
    from palimpsest.recall import hits
    from palimpsest.server import access_tokens, advice, replies
else:

    class Lazy:
        """A module below `palimpsest` that is imported when something of it is used."""

        def __init__(self, name: str) -> None:
            self._name = f"palimpsest.{name}"

        def __getattr__(self, name: str) -> Any:
            """Return something of the module."""
            return getattr(importlib.import_module(self._name), name)

    core_settings, facade, llm_prompts = Lazy("core.settings"), Lazy("memory"), Lazy("llm.prompts")
    for _package, _names in {
        "admin": "backup configuration import_file markdown_files markdown_import",
        "cli": "output",
        "cli.clients": "catalog config_files installation",
        "core": "files filters models settings_file validation",
        "hooks": "intake",
        "learn": "browsing document_pages entity_graph job_runner readers",
        "learn.summaries": "dossier summary_writer",
        "recall": "hits",
        "server": "access_tokens advice replies",
    }.items():
        globals().update({_name: Lazy(f"{_package}.{_name}") for _name in _names.split()})
