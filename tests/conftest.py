"""What every test shares."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Run asynchronous tests on asyncio, the loop the server itself runs on."""
    return "asyncio"
