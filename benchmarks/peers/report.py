"""The table of a comparison: a row a measure, a column a system, the best value of each row in bold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from peers.measures import Figures, Measured, middle

OURS = "palimpsest"
NONE = "-"

Take = Callable[[Figures], float | None]


@dataclass(frozen=True)
class Row:
    """Name a measure, take it from a system's figures, say how it is written and whether more is better."""

    label: str
    take: Take
    written: str = "{:.1f}"
    more: bool = False
    found: bool = False
    """Whether it tells how much was found, which is a bound where the best query is known from the answer."""

    def shown(self, figures: Figures) -> str | None:
        """Return the figure as it stands in the table, None where there is none."""
        value = self.take(figures)
        most = "≤ " if self.found and figures.bound and value else ""
        return None if value is None else most + self.written.format(value)


def rows(measured: Measured) -> list[Row]:
    """Return the rows of the table."""
    asked = next((figures.paraphrases[1] for figures in measured.values() if figures.paraphrases), 0)
    return [
        Row("LoCoMo recall@5", lambda f: f.recall.get(5), "{:.3f}", more=True, found=True),
        Row("LoCoMo recall@10", lambda f: f.recall.get(10), "{:.3f}", more=True, found=True),
        Row("paraphrase hits@5", _paraphrased, "{:.0f}/" + str(asked), more=True, found=True),
        Row("add p50, ms", lambda f: middle(f.add_ms)),
        Row("add p95, ms", lambda f: middle(f.add_ms, 0.95)),
        Row("add, one of 100 in a row, ms", lambda f: f.in_a_row_ms),
        Row("search p50, ms", lambda f: middle(f.search_ms)),
        Row("search p95, ms", lambda f: middle(f.search_ms, 0.95)),
        Row("start to `initialize`, s", lambda f: middle(f.initialize_s), "{:.2f}"),
        Row("start to first answer, s", lambda f: middle(f.first_answer_s), "{:.2f}"),
        Row("RSS after the load, MB", lambda f: _per(f.rss_bytes, 1e6), "{:.0f}"),
        Row("disk bytes per memory", lambda f: _per(f.disk_bytes, f.memories), "{:,.0f}"),
        Row("tool schemas, tokens", lambda f: f.schema_tokens, "{:,.0f}"),
        Row("reply with ten hits, text, tokens", lambda f: middle(f.reply_tokens), "{:,.0f}"),
        Row("reply with ten hits, whole result, tokens", lambda f: middle(f.whole_reply_tokens), "{:,.0f}"),
    ]


def _paraphrased(figures: Figures) -> float | None:
    return figures.paraphrases[0] if figures.paraphrases else None


def _per(value: float | None, count: float) -> float | None:
    return value / count if value is not None and count else None


def table(measured: Measured, labels: Mapping[str, str]) -> str:
    """Return the Markdown table, and under it the rows lost and our ratios to mem0."""
    lines = ["| | " + " | ".join(labels[name] for name in measured) + " |", "|---" * (len(measured) + 1) + "|"]
    lost: list[str] = []
    for row in rows(measured):
        shown = {name: row.shown(figures) for name, figures in measured.items()}
        best = _best(row, measured)
        cells = [f"**{text}**" if text is not None and text == best else text or NONE for text in shown.values()]
        if any(shown.values()):
            lines.append(f"| {row.label} | " + " | ".join(cells) + " |")
        if best is not None and shown.get(OURS) != best:
            lost.append(f"{row.label} ({shown.get(OURS) or 'nothing'} to {best})")
    if OURS in measured:
        lines += ["", f"rows lost: {'; '.join(lost) or 'none'}"]
    return "\n".join([*lines, *_ratios(measured)])


def _best(row: Row, measured: Measured) -> str | None:
    # Values that read alike are alike: what the table does not show decides nothing.
    taken = [(value, row.shown(figures)) for figures in measured.values() if (value := row.take(figures)) is not None]
    return (max if row.more else min)(taken, key=lambda pair: pair[0])[1] if len(taken) > 1 else None


def _ratios(measured: Measured) -> Iterator[str]:
    if not {OURS, "mem0"} <= set(measured):
        return
    us, them = measured[OURS], measured["mem0"]
    for what, ours, theirs in (("add", us.add_ms, them.add_ms), ("search", us.search_ms, them.search_ms)):
        above, below = middle(ours), middle(theirs)
        if above and below:
            yield f"{what} p50, Palimpsest to mem0: {above / below:.2f}"


def notes(measured: Measured, missing: Mapping[str, str]) -> Iterator[str]:
    """Yield what a reader has to know beside the figures."""
    for name, why in missing.items():
        yield f"{name} is missing: {why}"
    for name, figures in measured.items():
        for trouble, times in Counter(figures.troubles).items():
            yield f"{name} had trouble with {trouble}" + (f" ({times} times)" if times > 1 else "")
    if "mem0" in measured:
        vector = _beside(measured["mem0"], ", of which a request for one vector takes {:.1f} ms (p50)")
        yield f"mem0's latency holds that of an embeddings server on loopback{vector}; its start and RSS do not"
        yield "mem0 runs without its `nlp` extra, which downloads a spaCy model when it is used"
    if "server-memory" in measured:
        yield f"server-memory looks for substrings: {_by_phrase(measured['server-memory'])}"
    if OURS in measured:
        as_is = _beside(measured[OURS], "; with infer=false, as mem0 is asked here, an add takes {:.1f} ms (p50)")
        yield f"Palimpsest's adds are an agent's default call, which also looks for near duplicates{as_is}"
    yield "tokens are counted by `palimpsest.text.tokenizer.count_tokens`: four ASCII characters, or one other, are one"
    yield "mem0, Chroma and BM25 are libraries behind a pipe; the MCP servers are timed with the protocol they speak"


def _beside(figures: Figures, written: str) -> str:
    value = middle(figures.beside_ms)
    return written.format(value) if value is not None else ""


def _by_phrase(figures: Figures) -> str:
    said = ["≤ marks the best of the whole question and each of its content words, which only the answer can tell"]
    kinds = ("the whole question", "the question's rarest word that is there")
    said += [
        f"recall@10 with {kind} is {value:.3f}"
        for kind, value in zip(kinds, figures.by_phrase.get(10, []), strict=False)
    ]
    said += [
        f"paraphrases hit with {kind}: {hits}" for kind, hits in zip(kinds, figures.paraphrases_by_phrase, strict=False)
    ]
    return "; ".join(said) + "; timed searches take that word"
