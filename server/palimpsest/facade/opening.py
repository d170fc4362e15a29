"""Open the parts of a memory: the ledger, the embedder, the index, the model, the prompts. Blocking."""

from __future__ import annotations

from palimpsest.capture.hook_settings import write_hook_settings
from palimpsest.core.clock import Clock
from palimpsest.core.settings import Settings
from palimpsest.core.threads import Threads
from palimpsest.facade.projects import in_its_project
from palimpsest.index.kept_keys import KeptKeys
from palimpsest.index.sync import Projection
from palimpsest.learn.engine import Engine
from palimpsest.learn.factory import open_embedder, open_model, open_projection, open_prompts
from palimpsest.store.ledger import open_ledger


def open_parts(
    settings: Settings, clock: Clock, threads: Threads, *, background: bool
) -> tuple[Settings, Engine, Projection, KeptKeys]:
    """Return the parts of a memory, and the settings with the project that the ledger knows.

    With `background` it may learn after its calls. Raises PalimpsestError.
    """
    prompts = open_prompts(settings)
    zones = settings.zones
    ledger = open_ledger(settings.ledger_place, clock, settings.max_memories, data_dir=settings.data_dir, zones=zones)
    try:
        write_hook_settings(settings)
        settings = in_its_project(settings, ledger)
        embedder = open_embedder(settings)
        projection = open_projection(settings, ledger, embedder.fingerprint)
        index = KeptKeys(ledger, projection)
        engine = Engine(
            ledger,
            embedder,
            open_model(settings),
            prompts,
            zones.clock(clock, settings.user_id),
            index,
            threads,
            keep_secrets=settings.keep_secrets,
            excluded_topics=settings.excludes,
            learns_in_background=background and bool(settings.learn.in_background),
            captured_calls_per_day=settings.learn.captured_calls_per_day,
            background=settings.background,
            summary_every=settings.summary.every,
            has_links=settings.links == "on",
        )
    except BaseException:
        ledger.close()
        raise
    return settings, engine, projection, index
