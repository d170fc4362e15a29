"""The outside services that Palimpsest uses: a language model, an embedder, a reranker and a vector index.

To add one, write a class with the methods below in `llm/`, `embed/` or `index/`, and build it where the settings choose
a provider. A class needs no base class: Python and pyright compare the methods. Rules for all:

- Turn every failure into the error named here, with a text that says what to do. Never return an empty result instead.
- Never put a key into an error text.
- Import slow packages inside the class, so that the server answers its first request without them.

The shipped implementations are `llm/openai.py` and `llm/sampling.py`; `embed/e5.py`, `embed/static.py`,
`embed/onnx.py`, `embed/openai.py` and `embed/chroma.py`; `embed/rerank_endpoint.py`; `index/chroma_folder.py` and
`index/sync.py`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

# One embedding of shape (dims,), or several of shape (n, dims). Always float32; each embedding has length 1.
Vector: TypeAlias = npt.NDArray[np.float32]

# A callback for long work. It receives how many items are done and how many there are in total.
Progress: TypeAlias = Callable[[int, int], None]


def unseen(_done: int, _total: int) -> None:
    """Show no progress."""


# A callback for a long call. It receives a few words that say what the call is doing.
ReportProgress: TypeAlias = Callable[[str], Awaitable[None]]


class LanguageModel(Protocol):
    """A chat model that answers prompts. Its methods run in the event loop and must not block it."""

    @property
    def name(self) -> str:
        """Return the model's name, which every edit in the history records."""
        ...

    async def complete(self, messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None) -> str:
        """Return the text of the model's reply to `[{"role": …, "content": …}]`.

        `schema` is the JSON schema of the reply, or None for free text. Pass it to the endpoint if the endpoint
        supports structured output, else ignore it: the prompts describe the format too, and the caller validates every
        reply and asks once more if it does not fit.

        Raises ModelUnreachableError if no answer arrives, ModelRefusedError if the endpoint or the model declines,
        ReplyError if the reply has no text, and CutOffReplyError with the text if the reply reached its limit.
        """
        ...

    async def check(self) -> None:
        """Raise ModelError if the model cannot be used now. `palimpsest doctor` calls this; it should cost nothing."""
        ...

    async def aclose(self) -> None:
        """Close the connections. The model is not used again."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors. Its methods block, so they run in worker threads, several at a time."""

    @property
    def fingerprint(self) -> str:
        """Return provider, model and dimensions as one text, such as "local:wordllama-l2-supercat:256".

        Only vectors with the same fingerprint are compared. After it changes, the stored texts are embedded again in
        the background.
        """
        ...

    def embed_queries(self, texts: Sequence[str]) -> Vector:
        """Return one unit vector per question, in order: shape (len(texts), dims). Raises EmbedderError.

        Many models are trained to embed a question otherwise than the passage that answers it, for example with
        another prefix. A model that makes no difference embeds it like a passage.
        """
        ...

    def embed_passages(self, texts: Sequence[str], *, background: bool = False) -> Vector:
        """Return one unit vector per stored text, in order: shape (len(texts), dims). Raises EmbedderError.

        The texts may be empty or very long. Of a long text only the first window is read, so that the work for one
        text is bounded. Work in the background must not delay a question; an embedder that takes no time ignores it.
        """
        ...

    def windows(self, text: str) -> list[str]:
        """Return the parts of a text that are embedded one by one, in order; most texts are one part.

        The vector of a long text is the mean of the vectors of its windows.
        """
        ...


class Reranker(Protocol):
    """Judges how well texts answer a question, by reading each together with it. It blocks, for a few seconds."""

    def scores(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        """Return a number for each text, in order: the higher, the better it answers. Raises RerankerError."""
        ...


class VectorIndex(Protocol):
    """Finds the nearest vectors of one user. Its methods block, so they run in worker threads.

    The numbers (`seqs`) are the entry numbers of the ledger. The ledger also keeps every vector, so an index may lose
    its content: it is rebuilt from the ledger. Users must be kept apart: a query never returns another user's entries.
    Every method raises VectorIndexError if the index cannot be used.
    """

    def upsert(self, user_id: str, seqs: Sequence[int], vectors: Vector) -> None:
        """Store vectors of shape (len(seqs), dims) under their numbers, replacing those stored before."""
        ...

    def delete(self, user_id: str, seqs: Sequence[int]) -> None:
        """Delete vectors by number. Unknown numbers are ignored."""
        ...

    def query(self, user_id: str, vector: Vector, limit: int) -> list[int]:
        """Return the numbers of at most `limit` vectors by cosine similarity to `vector`, the nearest first."""
        ...

    def fetch(self, user_id: str, seqs: Sequence[int]) -> dict[int, Vector]:
        """Return the stored vectors of shape (dims,) by number, without the unknown numbers."""
        ...

    def count(self) -> int:
        """Return how many vectors are stored for all users together."""
        ...

    def close(self) -> None:
        """Release files and connections. The index is not used again."""
        ...
