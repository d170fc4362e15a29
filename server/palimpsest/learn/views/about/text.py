"""What `get_summary(kind="about:NAME")` returns: a model's text about an entity, or the lines of its dossier.

A model's text is kept under a kind that its lines are part of. So it is found again exactly as long as the ledger gives
these lines, and one that says what was changed, deleted or forgotten since is never found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from palimpsest.core.errors import ModelError, PromptError
from palimpsest.core.models import Provenance, Scope, Summary
from palimpsest.core.protocols import LanguageModel
from palimpsest.core.validation import one_line
from palimpsest.learn.engine import Engine
from palimpsest.learn.views.about.dossier import find_entities, quoted, read_dossier
from palimpsest.learn.views.about.lines import lines_of
from palimpsest.learn.views.kinds import LiveKind, SummaryResult
from palimpsest.learn.views.listing import is_cut
from palimpsest.llm.prompts import Prompt
from palimpsest.llm.views.about import about
from palimpsest.store.queries.index_log import newest_log_number
from palimpsest.store.queries.summaries import latest_summary
from palimpsest.store.writes.apply import Write

MAX_NAMESAKES = 4
"""How many entities of one name are told about. Each has its share of the tokens. Set by hand."""


@dataclass(frozen=True, slots=True)
class _Read:
    """What the ledger has on one entity, up to a number of its index log. `kept` is a model's text on just that.

    `sources` are the memories that the lines may quote, and `shown` the ids of those that are about the entity.
    """

    name: str
    lines: tuple[str, ...]
    seq: int
    kind: str
    kept: str | None
    sources: Mapping[str, int]
    shown: tuple[str, ...]


async def _text_about(engine: Engine, scope: Scope, name: str, caller: str) -> SummaryResult:
    """Return what is known about the entities of a name. Raises InputError if there is none."""
    prompt = _prompt(engine)
    fingerprint = prompt.fingerprint if isinstance(prompt, Prompt) else ""
    read, notes = await engine.run(lambda: _read(engine, scope, name, fingerprint))
    texts = [each.kept for each in read if each.kept is not None]
    if len(texts) < len(read):
        if isinstance(prompt, PromptError):
            return _plain(name, read, notes, f"the text could not be written ({prompt})")
        if engine.model is None:
            return _plain(name, read, notes, "there is no language model to ask")
        try:
            texts = [each.kept or await _written(engine, engine.model, prompt, scope, each, caller) for each in read]
        except ModelError as error:
            return _plain(name, read, notes, f"the text could not be written ({error})")
        read_again, notes = await engine.run(lambda: _read(engine, scope, name, fingerprint))
        if [each.kind for each in read_again] != [each.kind for each in read]:
            return _plain(name, read_again, notes, "memories changed while the text was written")
    lines = tuple(line for each in read for line in each.lines)
    told, cut = "\n\n".join(texts), is_cut("\n".join(lines))
    return SummaryResult(told, _asked(name), 0, notes, lines, _shown(read), is_cut=cut)


def _prompt(engine: Engine) -> Prompt | PromptError:
    try:
        return engine.prompts.get("about")
    except PromptError as error:
        return error


def _plain(name: str, read: Sequence[_Read], notes: tuple[str, ...], reason: str) -> SummaryResult:
    text = "\n".join(line for each in read for line in each.lines)
    notes = (f"{reason}: these are the memories themselves", *notes)
    return SummaryResult(text, _asked(name), 0, notes, sources=_shown(read), is_plain=True, is_cut=is_cut(text))


def _asked(name: str) -> str:
    return f"{ABOUT.name}:{name}"


def _shown(read: Sequence[_Read]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(memory_id for each in read for memory_id in each.shown))


async def _written(engine: Engine, model: LanguageModel, prompt: Prompt, scope: Scope, read: _Read, caller: str) -> str:
    """Let a model write the text about an entity, and keep it. Raises ModelError."""
    await engine.report_progress(f"asking the model about {read.name}")
    text = await about(model, prompt, name=read.name, lines=read.lines, now=engine.clock())
    provenance = Provenance("about", model.name, prompt.fingerprint, caller)
    summary = Summary(scope, read.kind, text, read.seq, engine.clock(), read.sources)
    write = Write(scope, provenance, summary=summary)
    await engine.write(lambda: engine.ledger.apply(write))
    return text


def _read(engine: Engine, scope: Scope, name: str, fingerprint: str) -> tuple[list[_Read], tuple[str, ...]]:
    """Return what the ledger has on the entities of a name, and a note if there are too many of them."""
    with engine.ledger.read() as conn:
        seq = newest_log_number(conn)
        found = find_entities(conn, scope, name)
        dossiers = [read_dossier(conn, scope, each, now=engine.clock()) for each in found[:MAX_NAMESAKES]]
        read: list[_Read] = []
        for dossier, lines in zip(dossiers, lines_of(dossiers), strict=True):
            kind = _kind(dossier.entity.id, lines, fingerprint)
            kept = latest_summary(conn, scope, kind)
            text = None if kept is None else kept.text
            sources, shown = quoted(conn, scope, dossier), tuple(each.id for each in (*dossier.holds, *dossier.held))
            read.append(_Read(one_line(dossier.entity.name), tuple(lines), seq, kind, text, sources, shown))
    notes = (f"{len(found) - MAX_NAMESAKES} more have this name",) if len(found) > MAX_NAMESAKES else ()
    return read, notes


def _kind(entity_id: str, lines: Sequence[str], fingerprint: str) -> str:
    """Return the kind of a text that rests on lines."""
    content = json.dumps([entity_id, fingerprint, *lines])
    return f"{ABOUT.name}:{entity_id[:8]}:{hashlib.blake2b(content.encode(), digest_size=8).hexdigest()}"


ABOUT = LiveKind("about", "NAME", _text_about)
