"""An embedder or a reranker from a folder: `model.onnx` and `tokenizer.json`, as sentence-transformers exports them.

How the vectors of the tokens become that of a text, what precedes questions and passages, and how long a text may be
is read from the files beside them. The settings override each.
"""

import hashlib
import importlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

import numpy as np

from palimpsest.core.errors import EmbedderError, RerankerError, raised_as
from palimpsest.core.protocols import Vector
from palimpsest.core.settings import EmbedderConfig, RerankerConfig
from palimpsest.core.validation import well_formed
from palimpsest.embed.hub import RECORD
from palimpsest.embed.workers import PASSAGE, QUESTION, TINY, Workers, inference_session
from palimpsest.text.tokenizer import windows

Pooling: TypeAlias = Literal["mean", "cls", "last"]

# The longest window if the settings name none. Models that read more take seconds for a full one.
MAX_TOKENS = 512

# A text is cut at so many characters a token before it is tokenized. Hardly a token is longer.
MAX_TOKEN_CHARS = 16

# The names of a model's file in `onnx/`, after "model": the exact one, then those that a processor runs well.
VARIANTS = ("", "_quantized", "_int8", "_q4")

_T = TypeVar("_T")


class OnnxEmbedder:
    """The model in a folder, which `config.model` names. What else the settings leave open is read from its files.

    Raises EmbedderError if a file is missing, or is not what it should be.
    """

    def __init__(self, config: EmbedderConfig) -> None:
        self._folder = folder = Path(config.model or "").expanduser()
        model = _model_file(folder)
        prompts: dict[str, str] = _read(folder, "config_sentence_transformers.json").get("prompts") or {}
        self._query_prefix = _first(config.query_prefix, prompts.get("query"), "")
        self._passage_prefix = _first(config.passage_prefix, prompts.get("passage"), prompts.get("document"), "")
        self._pooling: Pooling = config.pooling or _pooling(folder)
        self._max_tokens = config.max_tokens or min(_max_tokens(folder), MAX_TOKENS)
        self._tokenizer: Any = _mapped(folder, lambda: _tokenizer(folder / "tokenizer.json", self._max_tokens))
        self._session: Any = _mapped(folder, lambda: inference_session(str(model)))
        # The session has threads of its own, which all work on one text.
        self._workers = Workers(1)
        self._dims = len(self._vector("a text to try the model with"))
        # A hash of the model's file and of how it is used is part of it.
        how = json.dumps([self._query_prefix, self._passage_prefix, self._pooling, self._max_tokens])
        self.fingerprint = f"onnx:{folder.name[:40]}:{_digest(folder, model, how)}:{self._dims}"

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return unit vectors of shape (len(texts), dims). Raises EmbedderError."""
        work = [partial(self._vector, self._query_prefix + text) for text in texts]
        return self._workers.vectors(QUESTION, work, self._dims, background=False)

    def embed_passages(self, texts: Sequence[str], *, background: bool = False) -> Vector:
        """Return unit vectors of shape (len(texts), dims). Raises EmbedderError."""
        work = [partial(self._vector, self._passage_prefix + text) for text in texts]
        return self._workers.vectors(PASSAGE, work, self._dims, background=background)

    def windows(self, text: str) -> list[str]:
        """Return the windows in which a text is embedded, each within the model's token limit."""
        return windows(text, MAX_TOKEN_CHARS * self._max_tokens, self._fits)

    def _fits(self, text: str) -> bool:
        encoding = _mapped(self._folder, lambda: self._tokenizer.encode(well_formed(self._passage_prefix + text)))
        return not encoding.overflowing

    def _vector(self, text: str) -> Vector:
        """Return the unit vector of a text with its prefix, of shape (dims,)."""
        cut = well_formed(text[: MAX_TOKEN_CHARS * self._max_tokens])
        output, mask = _mapped(self._folder, lambda: self._run(cut))
        if output.ndim == 3:  # noqa: PLR2004 - one vector for each token
            if not mask.any():  # an empty text, and a model without special tokens
                return np.zeros(int(output.shape[-1]), dtype=np.float32)
            tokens = output[0][mask]
            output = {"mean": tokens.mean(axis=0, keepdims=True), "cls": tokens[:1], "last": tokens[-1:]}[self._pooling]
        if output.ndim != 2 or not output.shape[1] or not np.isfinite(output).all():  # noqa: PLR2004 - a row of numbers
            raise EmbedderError(f"the model in {self._folder} returned no vector. Is it a sentence embedder?")
        vector = output[0].astype(np.float32)
        return np.asarray(vector / max(float(np.linalg.norm(vector)), TINY), dtype=np.float32)

    def _run(self, text: str) -> tuple[Vector, Any]:
        """Return what the model says of a text, of shape (1, dims) or (1, tokens, dims), and which tokens count."""
        encoding = self._tokenizer.encode(text)
        names = [item.name for item in self._session.get_outputs()]
        name = "sentence_embedding" if "sentence_embedding" in names else names[0]
        (output,) = self._session.run([name], _inputs(self._session, encoding))
        return np.asarray(output, dtype=np.float32), np.array(encoding.attention_mask, dtype=bool)


class OnnxReranker:
    """The cross-encoder in a folder, which reads a question and a text together.

    The first search loads it, so that other commands don't wait. Texts are judged one by one: in a batch, the padding
    changes the numbers of a quantized model.
    """

    def __init__(self, config: RerankerConfig) -> None:
        self._folder, self._timeout = Path(config.folder or "").expanduser(), config.timeout
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None

    def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return the logit of each text. Raises RerankerError."""
        try:
            found = _mapped(self._folder, lambda: self._judge(question, texts), "reranker.config.folder")
        except EmbedderError as error:
            raise RerankerError(str(error)) from error
        done = f"judged {len(found)} of {len(texts)} texts in {self._timeout:g} seconds (reranker.config.timeout)"
        if len(found) < len(texts):
            raise RerankerError(f"the reranker in {self._folder} {done}")
        if not np.isfinite(found).all():
            raise RerankerError(f"the reranker in {self._folder} returned no number. Is it a cross-encoder?")
        return found

    def _judge(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return the logits of as many texts as are judged in time."""
        with self._lock:
            if self._loaded is None:
                model = _model_file(self._folder, "reranker.config.folder")
                _digest(self._folder, model, "")
                tokenizer = _tokenizer(self._folder / "tokenizer.json", min(_max_tokens(self._folder), MAX_TOKENS))
                self._loaded = tokenizer, inference_session(str(model))
        tokenizer, session = self._loaded
        ends_at, found = time.monotonic() + self._timeout, list[float]()
        for text in itertools.takewhile(lambda _: time.monotonic() < ends_at, texts):
            encoding = tokenizer.encode(well_formed(question), well_formed(text[: MAX_TOKEN_CHARS * MAX_TOKENS]))
            output = session.run(None, _inputs(session, encoding))[0]
            found.append(float(np.asarray(output).reshape(-1)[-1]))
        return found


def _mapped(folder: Path, work: Callable[[], _T], setting: str = "embedder.config.model") -> _T:
    """Do some work of onnxruntime or of the tokenizer, and raise its errors as ours."""
    try:
        return work()
    except EmbedderError:
        raise
    except Exception as error:  # both raise plain exceptions
        raise EmbedderError(f"the model in {folder}, which {setting} names, failed: {str(error)[:300]}") from error


def _inputs(session: Any, encoding: Any) -> dict[str, Any]:
    """Return what a model is given for the tokens of a text. A decoder begins with an empty cache of earlier tokens."""
    ids = np.array([encoding.ids], dtype=np.int64)
    values: dict[str, Any] = {
        "input_ids": ids,
        "attention_mask": np.array([encoding.attention_mask], dtype=np.int64),
        "token_type_ids": np.array([encoding.type_ids], dtype=np.int64),
        "position_ids": np.arange(ids.shape[1], dtype=np.int64)[None],
    }
    for item in session.get_inputs():
        if item.name.startswith("past_key_values"):  # of shape (texts, heads, earlier tokens, numbers)
            _, heads, _, numbers = item.shape
            kind = np.float16 if "float16" in item.type else np.float32
            values[item.name] = np.zeros((1, heads, 0, numbers), dtype=kind)
    return {item.name: values[item.name] for item in session.get_inputs()}


def _model_file(folder: Path, setting: str = "embedder.config.model") -> Path:
    for file in (folder / "model.onnx", *(folder / "onnx" / f"model{variant}.onnx" for variant in VARIANTS)):
        if file.is_file() and (folder / "tokenizer.json").is_file():
            return file
    raise EmbedderError(f"{folder}, which {setting} names, lacks a model.onnx (also in its onnx/) or a tokenizer.json.")


def _read(folder: Path, name: str) -> dict[str, Any]:
    """Return the content of a JSON file of the folder, or nothing if there is no such file. Raises EmbedderError."""
    if not (folder / name).exists():
        return {}
    with raised_as(EmbedderError, f"{folder / name} cannot be read", "", OSError, ValueError):
        content: Any = json.loads((folder / name).read_text("utf-8"))
    return cast("dict[str, Any]", content) if isinstance(content, dict) else {}


def _first(*values: str | None) -> str:
    return next((value for value in values if value is not None), "")


def _pooling(folder: Path) -> Pooling:
    """Return how sentence-transformers pools the tokens, by keys such as "pooling_mode_cls_token": the mean if none."""
    named = [name for name, is_on in _read(folder, "1_Pooling/config.json").items() if is_on is True]
    modes = [name.removeprefix("pooling_mode_") for name in named if name.startswith("pooling_mode_")]
    for pooling in get_args(Pooling):
        if all(mode.startswith(pooling) for mode in modes):
            return cast("Pooling", pooling)
    raise EmbedderError(f"{folder} pools by {', '.join(sorted(named))}. Set embedder.config.pooling.")


def _max_tokens(folder: Path) -> int:
    for name, key in (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        value = _read(folder, name).get(key)
        if isinstance(value, int | float) and value > 0:
            return int(value)
    return MAX_TOKENS


def _tokenizer(file: Path, max_tokens: int) -> Any:
    tokenizer: Any = importlib.import_module("tokenizers").Tokenizer.from_file(str(file))
    tokenizer.enable_truncation(max_tokens)
    tokenizer.no_padding()
    return tokenizer


def _digest(folder: Path, model: Path, how: str) -> str:
    """Return a short hash of the model's files, and of how they are used. Raises EmbedderError for changed files."""
    digest, record = hashlib.sha256(how.encode()), _read(folder, RECORD)
    for file in sorted(path for path in model.parent.glob(f"{model.name}*") if path.suffix != ".partial"):
        with file.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256")
        if record and record["files"].get(file.relative_to(folder).as_posix()) != found.hexdigest():
            again = f"palimpsest {record['kind']} use {folder.name} fetches it again."
            raise EmbedderError(f"{file} is not what was fetched. {again}")
        digest.update(found.digest())
    return digest.hexdigest()[:16]
