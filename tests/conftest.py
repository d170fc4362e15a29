"""What every test shares: the event loop, the embedder, and how many examples a property is tried with.

How long an example takes is not tested: machines differ.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Generator

import hypothesis
import pytest

from palimpsest.embed import static
from tests.support.environment import STATIC_EMBEDDER
from tests.support.examples import FULL_PROFILE, LOCAL_PROFILE

hypothesis.settings.register_profile(LOCAL_PROFILE, max_examples=25, deadline=None)
hypothesis.settings.register_profile(FULL_PROFILE, max_examples=100, deadline=None)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", LOCAL_PROFILE)
hypothesis.settings.load_profile(PROFILE)


def pytest_xdist_auto_num_workers() -> int | None:
    """Start two workers for each core outside CI: half of the tests wait for a process most of the time."""
    return None if PROFILE == FULL_PROFILE else 2 * (os.cpu_count() or 1)


def pytest_report_header() -> str:
    """Name the profile that decides how many examples are tried."""
    return f"hypothesis profile of the examples: {PROFILE} (HYPOTHESIS_PROFILE={FULL_PROFILE} tries all)"


@pytest.fixture
def anyio_backend() -> str:
    """Run asynchronous tests on asyncio, the loop the server itself runs on."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def one_embedder() -> Generator[None]:
    """Choose the static embedder, which is quick, and load it once. It keeps no state but a cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*STATIC_EMBEDDER)
        patch.setattr(static, "StaticEmbedder", functools.cache(static.StaticEmbedder))
        yield
