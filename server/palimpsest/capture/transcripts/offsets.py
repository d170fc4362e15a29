"""How far transcripts were read, in `transcripts.json`. Only the holder of the intake's lock reads and writes it."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from palimpsest.capture.transcripts.reading import Place
from palimpsest.core.files import replace_file
from palimpsest.hook import paths
from palimpsest.hook.private_files import make_private_folder

logger = logging.getLogger(__name__)

KEPT_COUNTS = 50
"""Of how many transcripts the counts are kept, those that were read last. Set by hand: of a session that goes on after
so many others, they are counted again."""

KEPT_FILES = 5_000
"""Of more transcripts, those that no longer exist are forgotten. Set by hand."""


class Counts(dict[str, tuple[int, tuple[str, ...]]]):
    """How often a text was met in a transcript, and the short names of the records with it, by a key of the text.

    Records are named and not counted, because one that was left out comes again if its reader is killed.
    """

    def forget_lines(self) -> None:
        """Count the texts of the transcript anew."""
        self.update({key: (0, records) for key, (_, records) in self.items()})


class _File(BaseModel):
    offset: int
    head: str
    counts: dict[str, tuple[int, tuple[str, ...]]] | None = None


class _State(BaseModel):
    files: dict[str, _File] = {}
    unknown: dict[str, dict[str, int]] = {}


@dataclass(slots=True)
class Offsets:
    """How far each transcript was read, by its path, and how many lines of unknown types were met, by client."""

    file: Path
    _state: _State = field(default_factory=_State)

    @classmethod
    def load(cls, data_dir: Path) -> Offsets:
        """Return what is written down. If that is damaged, all transcripts are read anew, and nothing is kept twice."""
        file = Path(paths.transcripts_file(str(data_dir)))
        try:
            return cls(file, _State.model_validate_json(file.read_bytes()))
        except FileNotFoundError:
            return cls(file)
        except (OSError, ValidationError) as error:
            logger.warning("%s cannot be read, so transcripts are read from their beginning: %s", file, error)
            return cls(file)

    def place(self, path: Path) -> Place:
        """Return how far a transcript was read."""
        known = self._state.files.get(str(path))
        return Place() if known is None else Place(known.offset, known.head)

    def counts(self, path: Path) -> Counts | None:
        """Return the counts of a transcript, or None if they have to be counted again."""
        known = self._state.files.get(str(path))
        if known is None:
            return Counts()
        return None if known.counts is None else Counts(known.counts)

    def move(self, path: Path, place: Place, counts: Counts) -> None:
        """Note how far a transcript was read."""
        self._state.files.pop(str(path), None)
        self._state.files[str(path)] = _File(offset=place.offset, head=place.head, counts=dict(counts))

    def count_unknown(self, client: str, unknown: Mapping[str, int]) -> None:
        """Add lines of unknown types."""
        known = Counter(self._state.unknown.get(client, {}))
        known.update(unknown)
        if known:
            self._state.unknown[client] = dict(known)

    @property
    def unknown(self) -> dict[str, dict[str, int]]:
        """Return how many lines of each unknown type were met, by client."""
        return self._state.unknown

    def save(self) -> None:
        """Write it down. Raises OSError."""
        files = self._state.files
        if len(files) > KEPT_FILES:
            files = {name: known for name, known in files.items() if Path(name).exists()}
        for name in list(files)[:-KEPT_COUNTS]:
            files[name].counts = None
        self._state.files = files
        content: dict[str, Any] = self._state.model_dump()
        make_private_folder(str(self.file.parent))
        with replace_file(self.file, durable=False) as file:
            json.dump(content, file)
