"""The reranker at a `/rerank` endpoint, as Jina's and Cohere's are, and those of servers on one's own machine."""

import math
from collections.abc import Sequence
from typing import Any

import httpx

from palimpsest.core.errors import RerankerError
from palimpsest.core.settings import RerankerConfig, is_on_this_machine


class RerankEndpoint:
    """An endpoint at `base_url` + `/rerank`. There is one attempt, because a search waits."""

    def __init__(self, config: RerankerConfig) -> None:
        base_url, key = config.base_url or "", config.api_key
        self._url = f"{base_url.rstrip('/')}/rerank"
        self._model = {"model": config.model} if config.model else {}
        # A proxy of the environment would take what is for this machine to another one.
        headers = {"Authorization": f"Bearer {key.get_secret_value()}"} if key and key.get_secret_value() else {}
        self._client = httpx.Client(headers=headers, timeout=config.timeout, trust_env=not is_on_this_machine(base_url))

    def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return the endpoint's score of each text. Raises RerankerError."""
        request = {**self._model, "query": question, "documents": list(texts), "top_n": len(texts)}
        try:
            reply = self._client.post(self._url, json=request)
            reply.raise_for_status()
            results: Any = reply.json()["results"]
            found = {int(item["index"]): float(item["relevance_score"]) for item in results}
            scores = [found[index] for index in range(len(texts))]
        except httpx.HTTPError as error:
            reason = str(error).partition("\n")[0]
            raise RerankerError(f"the reranker at {self._url} cannot be used: {reason}") from error
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise RerankerError(f"the reranker at {self._url} sent a reply that is not in Cohere's format") from error
        if not all(map(math.isfinite, scores)):
            raise RerankerError(f"the reranker at {self._url} sent scores that are no numbers")
        return scores
