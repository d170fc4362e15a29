"""Write the table of a comparison: a row for each measure, a column for each system, the best values in bold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from peers.measures import Figures, Measured, quantile

OURS = "palimpsest"
NONE = "-"

Take = Callable[[Figures], float | None]


@dataclass(frozen=True)
class Row:
    """One row of the table: how its figure is taken and formatted, and whether more is better.

    `recall` marks a figure that is an upper bound if only someone who knows the answer could choose the best query.
    """

    label: str
    take: Take
    number_format: str = "{:.1f}"
    more_is_better: bool = False
    recall: bool = False

    def shown(self, figures: Figures) -> str | None:
        """Return the figure as the table shows it, or None if there is none."""
        value = self.take(figures)
        prefix = "≤ " if self.recall and figures.bound and value else ""
        return None if value is None else prefix + self.number_format.format(value)


def rows(measured: Measured) -> list[Row]:
    """Return the rows of the table."""
    count = next((figures.paraphrases[1] for figures in measured.values() if figures.paraphrases), 0)
    return [
        Row("LoCoMo recall@5", lambda f: f.recall.get(5), "{:.3f}", more_is_better=True, recall=True),
        Row("LoCoMo recall@10", lambda f: f.recall.get(10), "{:.3f}", more_is_better=True, recall=True),
        Row("paraphrase hits@5", _paraphrased, "{:.0f}/" + str(count), more_is_better=True, recall=True),
        Row("add p50, ms", lambda f: quantile(f.add_ms)),
        Row("add p95, ms", lambda f: quantile(f.add_ms, 0.95)),
        Row("add, one of 100 in a row, ms", lambda f: f.in_a_row_ms),
        Row("search p50, ms", lambda f: quantile(f.search_ms)),
        Row("search p95, ms", lambda f: quantile(f.search_ms, 0.95)),
        Row("start to `initialize`, s", lambda f: quantile(f.initialize_s), "{:.2f}"),
        Row("start to first answer, s", lambda f: quantile(f.first_answer_s), "{:.2f}"),
        Row("RSS after the load, MB", lambda f: _per(f.rss_bytes, 1e6), "{:.0f}"),
        Row("disk bytes per memory", lambda f: _per(f.disk_bytes, f.memories), "{:,.0f}"),
        Row("tool schemas, tokens", lambda f: f.schema_tokens, "{:,.0f}"),
        Row("reply with ten hits, text, tokens", lambda f: quantile(f.reply_tokens), "{:,.0f}"),
        Row("reply with ten hits, whole result, tokens", lambda f: quantile(f.whole_reply_tokens), "{:,.0f}"),
    ]


def _paraphrased(figures: Figures) -> float | None:
    return figures.paraphrases[0] if figures.paraphrases else None


def _per(value: float | None, count: float) -> float | None:
    return value / count if value is not None and count else None


def table(measured: Measured, labels: Mapping[str, str]) -> str:
    """Return the Markdown table, the rows in which Palimpsest is not the best, and its ratios to mem0."""
    lines = ["| | " + " | ".join(labels[name] for name in measured) + " |", "|---" * (len(measured) + 1) + "|"]
    rows_not_best: list[str] = []
    for row in rows(measured):
        shown = {name: row.shown(figures) for name, figures in measured.items()}
        best = _best(row, measured)
        cells = [f"**{text}**" if text is not None and text == best else text or NONE for text in shown.values()]
        if any(shown.values()):
            lines.append(f"| {row.label} | " + " | ".join(cells) + " |")
        if best is not None and shown.get(OURS) != best:
            rows_not_best.append(f"{row.label} ({shown.get(OURS) or 'nothing'} to {best})")
    if OURS in measured:
        lines += ["", f"Palimpsest is not the best in these rows: {'; '.join(rows_not_best) or 'none'}."]
    return "\n".join([*lines, *_ratios(measured)])


def _best(row: Row, measured: Measured) -> str | None:
    # Values that the table shows as equal count as equal.
    taken = [(value, row.shown(figures)) for figures in measured.values() if (value := row.take(figures)) is not None]
    return (max if row.more_is_better else min)(taken, key=lambda pair: pair[0])[1] if len(taken) > 1 else None


def _ratios(measured: Measured) -> Iterator[str]:
    theirs = next((name for name in measured if name.startswith("mem0")), None)
    if OURS not in measured or theirs is None:
        return
    palimpsest, mem0 = measured[OURS], measured[theirs]
    pairs = (("add", palimpsest.add_ms, mem0.add_ms), ("search", palimpsest.search_ms, mem0.search_ms))
    ratios: list[str] = []
    for operation, our_times, mem0_times in pairs:
        our_median, mem0_median = quantile(our_times), quantile(mem0_times)
        if our_median and mem0_median:
            ratios.append(f"{operation} p50 {our_median / mem0_median:.2f}")
    if ratios:
        yield f"\nRatios of Palimpsest to mem0: {', '.join(ratios)}."


def notes(measured: Measured, missing: Mapping[str, str]) -> Iterator[str]:
    """Yield the notes that explain the figures."""
    for name, reason in missing.items():
        yield f"{name} is missing from the comparison: {reason}."
    for name, figures in measured.items():
        for failure, times in Counter(figures.failures).items():
            yield f"{name} failed in {failure}" + (f" ({times} times)" if times > 1 else "")
    if "mem0" in measured:
        vector = _extra(measured["mem0"], ", where a request for one vector takes {:.1f} ms (p50)")
        yield (
            f"mem0's latency includes that of an embeddings server on loopback{vector}, and so does Chroma's. "
            "Their start times and RSS do not include that server."
        )
        yield "mem0 runs without its `nlp` extra, which downloads a spaCy model when it is used."
    if "server-memory" in measured:
        yield f"server-memory searches for substrings. {_by_phrase(measured['server-memory'])}"
    if OURS in measured:
        without_inference = _extra(
            measured[OURS], " With `infer=false`, as mem0 is called here, an add takes {:.1f} ms (p50)."
        )
        yield (
            f"Palimpsest's adds are an agent's default call, which also looks for near-duplicates.{without_inference}"
        )
    yield (
        "Tokens are counted with `palimpsest.text.tokenizer.count_tokens`: "
        "four ASCII characters, or one other character, are one token."
    )
    yield "mem0, Chroma and BM25 are libraries behind a pipe. The MCP servers are timed with the protocol they speak."


def _extra(figures: Figures, number_format: str) -> str:
    value = quantile(figures.extra_ms)
    return number_format.format(value) if value is not None else ""


def _by_phrase(figures: Figures) -> str:
    sentences = [
        "≤ marks the best result of the whole question and each of its content words; "
        "only someone who knows the answer could choose that word"
    ]
    kinds = ("the whole question", "the question's rarest word that occurs in the memories")
    sentences += [
        f"recall@10 with {kind} is {value:.3f}"
        for kind, value in zip(kinds, figures.by_phrase.get(10, []), strict=False)
    ]
    sentences += [
        f"With {kind} it finds {hits} paraphrases"
        for kind, hits in zip(kinds, figures.paraphrases_by_phrase, strict=False)
    ]
    return ". ".join(sentences) + ". The timed searches use that word."
