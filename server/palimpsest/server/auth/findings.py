"""What is found about access tokens, for `doctor`."""

from __future__ import annotations

from palimpsest.care.doctor import Finding
from palimpsest.core.errors import SettingsError
from palimpsest.core.settings import Settings
from palimpsest.server.auth.tokens import stored_tokens, undecided_text


def token_findings(settings: Settings) -> list[Finding]:
    """Return a finding on the access tokens if there is something to say about them."""
    try:
        text = undecided_text(stored_tokens(settings.data_dir), settings.http.tokens)
    except SettingsError as error:
        return [Finding("tokens", str(error), ok=False)]
    return [Finding("tokens", text)] if text else []
