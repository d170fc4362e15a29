"""Values that the tests of replies show as text and as JSON."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from palimpsest.core.models import Event, Hit, Provenance, Scope, Version
from tests.support.scripted_model import NOW, memory

SCOPE = Scope("ana", project="atlas")
SCOPE_NOTE = "scope: user ana, project atlas"
ID = "0a1b2c3d-4444-4555-8666-777788889999"
OTHER_ID = "ffeeddcc-4444-4555-8666-777788889999"
TEA = memory("Ana drinks\ngreen  tea.", ID)
PAST = replace(TEA, deleted_at=NOW, superseded_by=OTHER_ID, valid_until=NOW, valid_until_precision="month")
HIT = Hit(
    ID,
    "memory",
    "Ana drinks tea.",
    0.83456,
    NOW,
    NOW,
    NOW + timedelta(days=1),
    ("D1:3",),
    tags=("preference",),
    relevance=0.70512,
)
VERSION = Version(
    id="h1",
    memory_id=ID,
    old_memory=None,
    new_memory="Ana drinks tea.",
    event=Event.ADD,
    created_at=NOW,
    updated_at=NOW,
    is_deleted=False,
    actor_id="Ana",
    role="user",
    provenance=Provenance("decide", "scripted", "abcdef123456", "a client"),
    sources=("D1:3",),
)
