"""How many examples a property is tried with."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

LOCAL_PROFILE = "local"
FULL_PROFILE = "nightly"

# Bounds of the examples in the local profile.
FEWEST, MOST = 5, 10


def examples(full: int) -> settings:
    """Return the settings of a slow property: `full` examples at night, a quarter of them otherwise, 10 at most.

    The examples are the same in every run.
    """
    local = min(MOST, max(FEWEST, full // 4))
    return settings(
        max_examples=full if settings.get_current_profile_name() == FULL_PROFILE else local,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
