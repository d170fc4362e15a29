"""What is found about access tokens, for `doctor`."""

from __future__ import annotations

from palimpsest.care.doctor import Finding
from palimpsest.core.errors import SettingsError
from palimpsest.core.settings import Settings
from palimpsest.server.auth.access import GENERAL_CLAIM
from palimpsest.server.auth.tokens import stored_tokens, undecided_text

UNDECIDED_ISSUER = (
    f"tokens of http.issuer that name a project and lack the claim {GENERAL_CLAIM} also open what belongs to no "
    "project, and nobody ever said whether they should. To decide it, say http.issuer_with_general in the settings"
)


def token_findings(settings: Settings) -> list[Finding]:
    """Return a finding on the access tokens if there is something to say about them."""
    try:
        texts = [undecided_text(stored_tokens(settings.data_dir), settings.http.tokens)]
    except SettingsError as error:
        return [Finding("tokens", str(error), ok=False)]
    if settings.http.issuer and settings.http.issuer_with_general is None:
        texts.append(UNDECIDED_ISSUER)
    text = "; ".join(filter(None, texts))
    return [Finding("tokens", text)] if text else []
