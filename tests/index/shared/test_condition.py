"""What the doctor says of an index on a Chroma server."""

from __future__ import annotations

from pathlib import Path

import pytest

from palimpsest.admin.doctor import examine
from palimpsest.core.errors import SettingsError
from tests.support.chroma_server import ChromaProcess


def test_an_address_that_is_no_host_is_refused(chroma: ChromaProcess, tmp_path: Path) -> None:
    """Guards a URL in place of a host: the error names the setting."""
    with pytest.raises(SettingsError, match=r"vector_store\.config\.host"):
        chroma.settings(tmp_path, host="http://somewhere")


@pytest.mark.nightly
@pytest.mark.anyio
async def test_doctor_says_what_condition_the_index_is_in(own_chroma: ChromaProcess, tmp_path: Path) -> None:
    """It builds nothing, and so it can say that nothing is there."""
    settings = own_chroma.settings(tmp_path)

    async def found() -> tuple[str, bool]:
        (finding,) = [item for item in await examine(settings) if item.part == "index"]
        return finding.text, finding.ok

    assert await found() == (
        f"Chroma server http://127.0.0.1:{own_chroma.port}: no whole index yet; a server builds it at its first search",
        True,
    )
    own_chroma.kill()
    text, ok = await found()
    assert ("could not be reached" in text, ok) == (True, False)
