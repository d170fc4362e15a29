"""Secrets taken out of a text before anything of it is stored: keys, tokens, passwords, private keys.

Four readers look at a text. A secret is known by its frame (a private key's BEGIN line), by its form (a token's
prefix: detect-secrets' patterns, and ours for what those do not know), by its place in an address, or by the words
before it. Each reader takes time linear in the text: repetitions are bounded, or cannot be entered twice at one place.

Not every plugin of detect-secrets is asked. The entropy plugins take hashes and ids for secrets. The keyword plugin
reads code only, takes placeholders, and needs a second for 4,000 characters of its own keywords; those for JWT, OpenAI,
npm, basic auth and assignments are quadratic or worse too, or yield a part of the secret only. What they look for is
read here. Nothing is ever verified, which would send the secret over the network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, cast

from palimpsest.core.errors import InputError
from palimpsest.text.secret_statements import REFERENCE, Span, is_mixed, kind_under, names_secret, statements

MAX_DEPTH = 100
"""How deep metadata may be nested."""

_PASSES = 4
"""Taking a secret out might bring another to light: a text is settled when a pass finds nothing. The second does."""

_MARKER = re.compile(r"\[secret removed: [a-z0-9 ]{1,40}\]")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Hold a text without its secrets, and what kinds were taken out, one word or phrase for each secret taken out."""

    text: str
    kinds: tuple[str, ...] = ()


def is_marker(text: str) -> bool:
    """Say whether a text is nothing but what stands for secrets that were taken out."""
    return _MARKER.search(text) is not None and not any(map(str.isalnum, _MARKER.sub("", text)))


def without_secrets(text: str) -> Cleaned:
    """Return a text with a marker in place of each secret. What was cleaned once comes back as it is."""
    kinds: list[str] = []
    for _ in range(_PASSES):
        spans = _found(text)
        if not spans:
            break
        parts: list[str] = []
        end = 0
        for span in spans:
            parts += text[end : span.start], f"[secret removed: {span.kind}]"
            end = span.end
        text = "".join(parts) + text[end:]
        kinds.extend(span.kind for span in spans)
    return Cleaned(text, tuple(kinds))


def without_secrets_in(value: Any) -> tuple[Any, tuple[str, ...]]:
    """Return a JSON value with a marker in place of each secret, and their kinds; what is given is not changed.

    A string under a key such as `password` or `api_key` is read as a statement of one. Raises InputError when the
    value is nested more than MAX_DEPTH deep.
    """
    kinds: list[str] = []
    return _cleaned_value(value, "", kinds, 0), tuple(kinds)


def _cleaned_value(value: Any, name: str, kinds: list[str], depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise InputError(f"metadata is nested more than {MAX_DEPTH} deep; nothing was stored. Send it flatter.")
    if isinstance(value, Mapping):
        cleaned: dict[Any, Any] = {}
        for key, held in cast("Mapping[Any, Any]", value).items():
            safe = _cleaned_value(key, "", kinds, depth + 1) if isinstance(key, str) else key
            while safe in cleaned:  # two secrets of one kind as keys: neither value may be lost
                safe += " again"
            cleaned[safe] = _cleaned_value(held, key if isinstance(key, str) else "", kinds, depth + 1)
        return cleaned
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return type(items)(_cleaned_value(item, name, kinds, depth + 1) for item in items)
    if name and isinstance(value, str | int) and not isinstance(value, bool):
        kind = kind_under(name, str(value))
        if kind:
            kinds.append(kind)
            return f"[secret removed: {kind}]"
    if not isinstance(value, str):
        return value
    found = without_secrets(value)
    kinds.extend(found.kinds)
    return found.text


def _found(text: str) -> list[Span]:
    """Return what is to be taken out, in order and apart; of what overlaps, the kind is that of the first."""
    # a marker is part of no value and ends no clause, so that it changes nothing for what stands beside it
    seen = _MARKER.sub(lambda marker: "\x00" * len(marker.group()), text) if "[secret removed: " in text else text
    spans: list[Span] = []
    for span in sorted((*_private_keys(seen), *_tokens(seen), *_addresses(seen), *statements(seen)), key=_place):
        if spans and span.start < spans[-1].end:
            spans[-1] = spans[-1]._replace(end=max(span.end, spans[-1].end))
        else:
            spans.append(span)
    return spans


def _place(span: Span) -> int:
    return span.start


# --- by frame

_BEGIN = re.compile(r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|PuTTY-User-Key-File-\d:")
_END = re.compile(r"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}|Private-MAC: ?[0-9a-f]{40,64}")
_BASE64 = re.compile(r"(?=[A-Za-z+/]{0,64}\d|[a-z+/]{0,64}[A-Z]|[A-Z+/]{1,64}[a-z])[A-Za-z0-9+/]{12,}")
_BODY = re.compile(
    r"(?:(?:\s|\\[rn]|[>|\"+])*+"
    r"(?:[A-Za-z0-9+/]{16,}+={0,2}|(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset):[^\n]*+))*+"
    r"(?:\s*+[A-Za-z0-9+/]{1,15}={1,2}|\s*+[A-Za-z0-9+/]{0,14}\d[A-Za-z0-9+/]{0,14}\s*\Z)?"
)
"""What follows a BEGIN whose END is missing: lines of base64 and of armour, and a last short one."""

_MAX_KEY_CHARS = 40_000


def _private_keys(text: str) -> Iterator[Span]:
    """Find whole private keys; one without its END goes as far as it looks like one, one without a body stays."""
    if "PRIVATE KEY" not in text and "PuTTY-User" not in text:
        return
    ends = [match.span() for match in _END.finditer(text)]
    begins = [match.span() for match in _BEGIN.finditer(text)]
    at = 0
    for (start, body), (following, _) in zip(begins, [*begins, (len(text), 0)][1:], strict=True):
        while at < len(ends) and ends[at][0] < body:
            at += 1
        if at < len(ends) and ends[at][0] < min(following, body + _MAX_KEY_CHARS):
            end = ends[at][1]
        else:
            match = _BODY.match(text, body, following)
            end = match.end() if match else body
        if _BASE64.search(text, body, end):
            yield Span(start, end, "private key")


# --- by form

_PLUGINS = (
    "aws.AWSKeyDetector discord.DiscordBotTokenDetector github_token.GitHubTokenDetector "
    "gitlab_token.GitLabTokenDetector mailchimp.MailchimpDetector pypi_token.PypiTokenDetector "
    "sendgrid.SendGridDetector slack.SlackDetector square_oauth.SquareOAuthDetector stripe.StripeDetector "
    "telegram_token.TelegramBotTokenDetector twilio.TwilioKeyDetector"
)

_FORMS = (
    ("anthropic key", "sk-ant-", r"[\w-]{20,300}"),
    ("openrouter key", "sk-or-", r"[\w-]{20,300}"),
    ("openai key", "sk-", r"(?=[\w-]{0,200}?[^\W_]{16})[\w-]{20,300}"),
    ("google key", "AIza GOCSPX- ya29.", r"[\w-]{24,400}"),
    ("github token", "github_pat_", r"\w{22,255}"),
    ("slack token", "xox", r"[a-z](?:\.xox[a-z])?-[\w%+/=-]{10,400}"),
    ("slack token", "xapp-", r"[\w-]{20,300}"),
    ("slack webhook", "hooks.slack.com/", r"(?:services|workflows|triggers)/([\w/-]{20,150})"),
    ("discord webhook", "discord.com/api/webhooks/ discordapp.com/api/webhooks/", r"(\d{15,22}/[\w-]{30,120})"),
    ("stripe access key", "sk_live_ rk_live_ sk_test_ rk_test_ whsec_", r"[\w+/=]{16,250}"),
    ("pypi token", "pypi-", r"[\w-]{50,300}"),
    ("npm token", "npm_", r"[^\W_]{30,60}"),
    ("hugging face token", "hf_", r"[^\W_]{30,60}"),
    ("groq key", "gsk_", r"[^\W_]{30,80}"),
    ("xai key", "xai-", r"[^\W_]{30,120}"),
    ("perplexity key", "pplx-", r"[^\W_]{30,80}"),
    ("nvidia key", "nvapi-", r"[\w-]{40,100}"),
    ("replicate token", "r8_", r"[^\W_]{30,50}"),
    ("langsmith key", "lsv2_pt_ lsv2_sk_", r"\w{30,80}"),
    ("age secret key", "AGE-SECRET-KEY-1", r"\w{40,70}"),
    ("digitalocean token", "dop_v1_ doo_v1_ dor_v1_", r"\w{40,80}"),
    ("databricks token", "dapi", r"[0-9a-f]{32}(?:-\d)?"),
    ("shopify token", "shpat_ shpss_ shpca_ shppa_", r"[0-9a-fA-F]{32}"),
    ("vault token", "hvs. hvb.", r"[\w-]{24,300}"),
    ("atlassian token", "ATATT3", r"[\w=-]{60,300}"),
    ("docker token", "dckr_pat_ dckr_oat_", r"[\w-]{20,60}"),
    ("grafana token", "glsa_", r"\w{30,60}"),
    ("supabase key", "sbp_ sb_secret_", r"\w{20,60}"),
    ("notion token", "ntn_", r"[^\W_]{40,60}"),
    ("linear key", "lin_api_", r"[^\W_]{30,60}"),
    ("tailscale key", "tskey-", r"[\w-]{20,80}"),
    ("private key", "LS0tLS1CRUdJTiB", r"(?:QUklW|SU0Eg|FQyB|FTkNS|PUEVOU)[\w+/]{40,9000}={0,2}"),
    ("artifactory token", "AKCp", r"\w{60,80}"),
    ("signature", "sig=", r"([\w%+/]{30,120}=?)"),
    ("signature", "X-Amz-Signature=", r"([0-9a-f]{64})"),
)
"""Kind, prefixes, and what follows one. A group is what goes; without one, all."""

_JWT = r"eyJ(?<![\w-]eyJ)[\w-]{8,8000}\.[\w-]{4,8000}\.[\w.-]{8,8000}"
"""It starts at the start of a run only, so that no character is read for two of them."""

_PLAIN = re.compile(r"[a-z0-9]+")
_LONG_WORD = re.compile(r"[!-~]{16}")
_REST = re.compile(r"[\w-]*+(?:\.[\w-]{9,})*+", re.ASCII)
"""What belongs to a token beyond what a pattern of fixed length has seen of it."""


@cache
def _forms() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Compile the patterns. Not before they are needed: detect-secrets takes a quarter of a second to import."""
    forms: list[tuple[str, re.Pattern[str]]] = []
    for name in _PLUGINS.split():
        module, detector = name.split(".")
        plugin: Any = getattr(import_module(f"detect_secrets.plugins.{module}"), detector)()
        # analyze_string yields neither places nor, where a pattern groups its prefix, the secret; the patterns do
        kind = " ".join(_PLAIN.findall(str(plugin.secret_type).lower()))
        forms += [(kind, pattern) for pattern in plugin.denylist]
    for kind, prefixes, body in _FORMS:
        for prefix in map(re.escape, prefixes.split()):
            # the prefix first: a literal is searched for at the speed of memory
            forms.append((kind, re.compile(f"{prefix}(?<![A-Za-z0-9]{prefix}){body}", re.ASCII)))
    return (*forms, ("json web token", re.compile(_JWT, re.ASCII)))


def _tokens(text: str) -> Iterator[Span]:
    if not _LONG_WORD.search(text):
        return
    for kind, pattern in _forms():
        end = 0
        for match in pattern.finditer(text):
            # a short group is a prefix
            group = 1 if pattern.groups and match.end(1) - match.start(1) > 15 else 0  # noqa: PLR2004 - no prefix is as long
            start = match.start(group)
            if start >= end and _is_token(text, start, match.group(group)):
                end = cast("re.Match[str]", _REST.match(text, match.end(group))).end()
                yield Span(start, end, kind)


def _is_token(text: str, start: int, token: str) -> bool:
    """Say whether a find stands alone and is neither masked (`sk-xxxx`) nor made of words (`sk-fade-in`)."""
    if start and text[start - 1].isalnum() and text[start - 1].isascii() and not text.endswith("bot", 0, start):
        return False
    return len(set(token[-12:])) > 2 and (is_mixed(token) or token.isupper())  # noqa: PLR2004 - `xX`, `x-`


# --- by place

_ADDRESS = re.compile(r"://[^\s\x00:/@?#\"'<>`]{0,100}:([^\s\x00/?#\"'<>`,;]{3,200})@(?=[\w\[.-])")


def _addresses(text: str) -> Iterator[Span]:
    if "://" in text:
        for match in _ADDRESS.finditer(text):
            if not names_secret(match[1]) and not REFERENCE.fullmatch(match[1]):
                yield Span(*match.span(1), "password")
