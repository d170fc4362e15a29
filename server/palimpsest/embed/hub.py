"""Fetch models from their hub: a catalogue of pinned revisions, and the folder that each becomes.

A folder of a fetched model is one like any other that `onnx` takes. How tokens are pooled and what precedes questions
is written beside the model, in the files that sentence-transformers has for it.
"""

import hashlib
import importlib
import json
import shutil
import tomllib
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from pydantic import TypeAdapter

from palimpsest.core.errors import InputError, ModelFetchError, raised_as
from palimpsest.core.files import replace_file
from palimpsest.core.protocols import Progress

# The catalogue. Its head says where the values are from.
CATALOGUE = files("palimpsest.embed") / "hub_models.toml"

# The file of a folder that says where its model is from, with the hash of each file. It is written last.
RECORD = "fetched.json"

# How much room a download leaves on the disk, so that the ledger can still be written.
SPARE_BYTES = 200_000_000

MEGABYTE = 1_000_000

# The time limit for the hub's first answer. That a machine is offline shows at once in most cases.
HEAD_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a model: its hash, and its size in bytes."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model of the catalogue, with its files by their paths in the repository.

    `terms` is the address of a licence that a person must accept, or "".
    """

    name: str
    kind: Literal["embedder", "reranker"]
    repository: str
    revision: str
    licence: str
    languages: str
    files: Mapping[str, HubFile] = field(repr=False)
    terms: str = ""
    dimensions: int = 0
    pooling: str = ""
    query_prefix: str = ""
    passage_prefix: str = ""

    @property
    def megabytes(self) -> int:
        """Return the size of the download."""
        return sum(file.size for file in self.files.values()) // MEGABYTE

    @property
    def record(self) -> dict[str, Any]:
        """Return the content of the folder's record."""
        hashes = {path: file.sha256 for path, file in self.files.items()}
        origin = {"kind": self.kind, "repository": self.repository, "revision": self.revision}
        return {**origin, "licence": self.licence, "files": hashes}


def catalogue() -> dict[str, HubModel]:
    """Return the models that can be fetched, by their names."""
    tables = tomllib.loads(CATALOGUE.read_text("utf-8"))
    named = {name: {"name": name, **table} for name, table in tables.items()}
    return TypeAdapter(dict[str, HubModel]).validate_python(named)


def is_fetched(model: HubModel, folder: Path) -> bool:
    """Return whether a folder has this revision of a model, whole."""
    with suppress(OSError, ValueError):
        return json.loads((folder / RECORD).read_text("utf-8")) == model.record
    return False


def fetch(model: HubModel, folder: Path, progress: Progress, *, endpoint: str = "") -> None:
    """Fetch what a folder lacks of a model, and check each file. Blocking.

    What an earlier call left unfinished is continued. `progress` receives megabytes. `endpoint` is the address of the
    hub or of a mirror. Raises ModelFetchError; what was downloaded is kept, except for a file with a wrong hash.
    """
    lacking = {path: file for path, file in model.files.items() if _sha256(folder / path) != file.sha256}
    with raised_as(ModelFetchError, f"{folder} cannot be written", ". Nothing was changed.", OSError):
        folder.mkdir(parents=True, exist_ok=True)
        left = sum(file.size - _size(_partial(folder / path, file)) for path, file in lacking.items())
        free = shutil.disk_usage(folder).free
        if free < left + SPARE_BYTES:
            room = f"{left // MEGABYTE:,} MB more, and {folder} has {free // MEGABYTE:,} MB free"
            raise ModelFetchError(f"{model.name} takes {room}. Make room, or move data_dir. Nothing was downloaded.")
        done = sum(file.size for file in model.files.values()) - left
        for path in lacking:
            progress(done // MEGABYTE, model.megabytes)

            def received(count: int) -> None:
                nonlocal done
                done += count
                progress(min(done // MEGABYTE, model.megabytes), model.megabytes)

            _download(model, path, folder / path, received, endpoint)
        _describe(model, folder)


def _download(model: HubModel, path: str, target: Path, received: Callable[[int], None], endpoint: str) -> None:
    """Download a file beside its place, and put it there if its hash is right.

    `received` is told how many bytes came; a negative number takes some back.
    """
    import httpx2  # noqa: PLC0415 - slow, and only a download needs it

    hub: Any = importlib.import_module("huggingface_hub.file_download")  # likewise
    # Else the library would tell the hub which agent runs this process.
    hub.constants.HF_HUB_DISABLE_TELEMETRY = True

    def bar(**_: Any) -> Any:
        return nullcontext(SimpleNamespace(update=received))

    file, partial = model.files[path], _partial(target, model.files[path])
    url: str = hub.hf_hub_url(model.repository, path, revision=model.revision, endpoint=endpoint or None)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if _size(partial) > file.size:
            partial.unlink()
        # Without it, a machine that is offline would show that only after five attempts.
        hub.get_hf_file_metadata(url, token=False, timeout=HEAD_SECONDS)
        # `hf_hub_download` begins anew after an interruption.
        with partial.open("ab") as stream:
            hub.http_get(
                url,
                stream,
                resume_size=stream.tell(),
                headers=hub.build_hf_headers(token=False),  # a person's key is for nothing here
                expected_size=file.size,
                tqdm_class=bar,
            )
    except (OSError, httpx2.HTTPError) as error:  # the hub's errors are both
        folder, reason = target.parents[path.count("/")], str(error).rstrip(". ") or type(error).__name__
        raise ModelFetchError(
            f"{model.name} could not be fetched from {url}: {reason}; the same command continues it. HTTPS_PROXY names "
            f"a proxy, HF_ENDPOINT a mirror; to a machine without a network, copy {folder} from another one."
        ) from error
    found = _sha256(partial)
    if found != file.sha256:
        partial.unlink()
        pinned = f"not that of revision {model.revision} of {model.repository}"
        raise ModelFetchError(f"{path} has the sha256 {found}, {pinned}. It is not used. Is HF_ENDPOINT a mirror?")
    partial.replace(target)


def _describe(model: HubModel, folder: Path) -> None:
    """Write the files that say how the model is used, and last the record."""
    described: dict[str, Any] = {}
    if model.kind == "embedder":
        prompts = {"query": model.query_prefix, "document": model.passage_prefix}
        described["config_sentence_transformers.json"] = {"prompts": prompts}
    if model.pooling:
        key = {"cls": "cls_token", "last": "lasttoken"}[model.pooling]
        described["1_Pooling/config.json"] = {f"pooling_mode_{key}": True}
    for name, content in {**described, RECORD: model.record}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        with replace_file(folder / name) as stream:
            stream.write(json.dumps(content, indent=2) + "\n")


def model_of(name: str, kind: str) -> HubModel:
    """Return a model of the catalogue. Raises InputError if there is none of this kind."""
    if (model := catalogue().get(name)) is None or model.kind != kind:
        raise InputError(f"there is no {kind} '{name}'; palimpsest {kind} lists them. Nothing was changed")
    return model


def _partial(target: Path, file: HubFile) -> Path:
    """Return where a download is kept until it is whole. The hash keeps another revision from being continued."""
    return target.with_name(f"{target.name}.{file.sha256[:12]}.partial")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _sha256(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
