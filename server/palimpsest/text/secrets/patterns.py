"""The formats of keys and tokens that can be recognized without any context.

Each row of `TOKEN_FORMATS` describes one published format. The comment above a row says why the row looks as it does.
Three rules hold for all of them:

- A token is specific enough to be recognized alone: it has a fixed prefix, or a fixed layout with separators. Formats
  without either are left out. A pattern for "32 hexadecimal digits" would remove every hash and id.
- Repetitions are bounded, and no token starts right after an ASCII letter or digit. Each character is therefore read a
  bounded number of times, and the time is linear in the length of the text.
- The length is a lower bound. Providers have made their tokens longer several times.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class TokenFormat(NamedTuple):
    """One format of a key or token.

    `kind` is the name that the marker shows. `prefixes` are separated by spaces; an empty string means that the token
    has no fixed prefix. `rest` is a regular expression for what follows the prefix. If it has a group, only the group
    is secret; otherwise the prefix and the rest are.
    """

    kind: str
    prefixes: str
    rest: str


TOKEN_FORMATS = (
    # --- Language models and machine learning
    # `sk-` is shared. The longer prefixes come first so that the marker names the right provider.
    TokenFormat("anthropic key", "sk-ant-", r"[\w-]{20,300}"),
    TokenFormat("openrouter key", "sk-or-", r"[\w-]{20,300}"),
    # Also `sk-proj-` and `sk-svcacct-`. The sixteen letters or digits in a row exclude words joined by hyphens.
    TokenFormat("openai key", "sk-", r"(?=[\w-]{0,200}?[^\W_]{16})[\w-]{20,300}"),
    TokenFormat("groq key", "gsk_", r"[^\W_]{30,80}"),
    TokenFormat("xai key", "xai-", r"[^\W_]{30,120}"),
    TokenFormat("perplexity key", "pplx-", r"[^\W_]{30,80}"),
    TokenFormat("nvidia key", "nvapi-", r"[\w-]{40,100}"),
    TokenFormat("replicate token", "r8_", r"[^\W_]{30,50}"),
    TokenFormat("hugging face token", "hf_", r"[^\W_]{30,60}"),
    TokenFormat("langsmith key", "lsv2_pt_ lsv2_sk_", r"\w{30,80}"),
    # --- Clouds and hosting
    # The id of an AWS access key: a type of four letters, and sixteen letters or digits. `A3T` begins an old type.
    TokenFormat("aws access key", "AKIA ASIA ABIA ACCA", r"[0-9A-Z]{16}"),
    TokenFormat("aws access key", "A3T", r"[0-9A-Z]{17}"),
    # An AWS secret key is 40 characters of base64 and has no prefix. Only a nearby name tells it from a hash.
    TokenFormat(
        "aws access key",
        "aws AWS Aws",
        r"(?=[^\n\"']{0,30}(?i:key|secret|token|pass|pw))[^\n]{0,60}?[\"']([A-Za-z0-9+/]{40})[\"']",
    ),
    # An API key, an OAuth client secret and an OAuth access token.
    TokenFormat("google key", "AIza GOCSPX- ya29.", r"[\w-]{24,400}"),
    TokenFormat("digitalocean token", "dop_v1_ doo_v1_ dor_v1_", r"\w{40,80}"),
    TokenFormat("supabase key", "sbp_ sb_secret_", r"\w{20,60}"),
    TokenFormat("tailscale key", "tskey-", r"[\w-]{20,80}"),
    TokenFormat("databricks token", "dapi", r"[0-9a-f]{32}(?:-\d)?"),
    # The query parameter that authorizes an Azure shared access signature or a presigned Amazon S3 address.
    TokenFormat("signature", "sig=", r"([\w%+/]{30,120}=?)"),
    TokenFormat("signature", "X-Amz-Signature=", r"([0-9a-f]{64})"),
    # --- Source code and packages
    # Personal, OAuth, user-to-server, server-to-server and refresh tokens, and fine-grained personal tokens.
    TokenFormat("github token", "ghp_ gho_ ghu_ ghs_ ghr_", r"\w{36,300}"),
    TokenFormat("github token", "github_pat_", r"\w{22,255}"),
    # GitLab has one prefix for each purpose: personal, deploy, feed, OAuth application, runner, CI job, incoming mail,
    # pipeline trigger, agent, and application secret. `GR1348941` marks the older runner registration tokens.
    TokenFormat(
        "gitlab token",
        "glpat- gldt- glft- glsoat- glrt- glcbt- glimt- glptt- glagent- gloas- GR1348941",
        r"[\w-]{20,300}",
    ),
    TokenFormat("atlassian token", "ATATT3", r"[\w=-]{60,300}"),
    TokenFormat("npm token", "npm_", r"[^\W_]{30,60}"),
    TokenFormat("pypi token", "pypi-", r"[\w-]{50,300}"),
    TokenFormat("docker token", "dckr_pat_ dckr_oat_", r"[\w-]{20,60}"),
    TokenFormat("artifactory token", "AKCp", r"\w{60,80}"),
    # --- Messages and mail
    # Bot, user, app, refresh and rotating tokens all begin with `xox`, one letter and a hyphen.
    TokenFormat("slack token", "xox", r"[a-z](?:\.xox[a-z])?-[\w%+/=-]{10,400}"),
    TokenFormat("slack token", "xapp-", r"[\w-]{20,300}"),
    # Anyone who knows the address of a webhook can post to it.
    TokenFormat("slack token", "https://hooks.slack.com/services/", r"T\w{1,40}/B\w{1,40}/\w{1,100}"),
    TokenFormat("slack webhook", "hooks.slack.com/", r"(?:services|workflows|triggers)/([\w/-]{20,150})"),
    TokenFormat(
        "discord webhook", "discord.com/api/webhooks/ discordapp.com/api/webhooks/", r"(\d{15,22}/[\w-]{30,120})"
    ),
    # The base64 of the bot's numeric id, a time and a signature. The base64 of a digit begins with M, N or O.
    TokenFormat("discord bot token", "M N O", r"[\w-]{23,27}\.[\w-]{6}\.[\w-]{27,40}"),
    # The bot's numeric id and 35 characters. In the address of the API, `bot` stands right before the id.
    TokenFormat("telegram bot token", "", r"(?:bot)?(\d{8,10}:[\w-]{35})"),
    TokenFormat("sendgrid api key", "SG.", r"[\w-]{22}\.[\w-]{43}"),
    # The last part names the data center.
    TokenFormat("mailchimp access key", "", r"[0-9a-f]{32}-us\d{1,2}"),
    # The id of an account or of an API key: two letters and 32 hexadecimal digits.
    TokenFormat("twilio api key", "AC SK", r"[0-9a-f]{32}"),
    # --- Payments and shops
    # Secret and restricted keys, live and test, and the signing secret of a webhook.
    TokenFormat("stripe access key", "sk_live_ rk_live_ sk_test_ rk_test_ whsec_", r"[\w+/=]{16,250}"),
    TokenFormat("square oauth secret", "sq0csp-", r"[\w-]{43}"),
    TokenFormat("shopify token", "shpat_ shpss_ shpca_ shppa_", r"[0-9a-fA-F]{32}"),
    # --- Other services
    TokenFormat("vault token", "hvs. hvb.", r"[\w-]{24,300}"),
    TokenFormat("grafana token", "glsa_", r"\w{30,60}"),
    TokenFormat("notion token", "ntn_", r"[^\W_]{40,60}"),
    TokenFormat("linear key", "lin_api_", r"[^\W_]{30,60}"),
    # --- Formats of no single service
    TokenFormat("age secret key", "AGE-SECRET-KEY-1", r"\w{40,70}"),
    # A PEM file of a private key, encoded as base64 once more. The prefix is "-----BEGIN " and the alternatives are
    # "PRIV", "RSA ", "EC ", "ENCR" and "OPEN". Certificates and public keys begin differently.
    TokenFormat("private key", "LS0tLS1CRUdJTiB", r"(?:QUklW|SU0Eg|FQyB|FTkNS|PUEVOU)[\w+/]{40,9000}={0,2}"),
    # Two JSON objects and a signature, each in base64. `eyJ` is the base64 of `{"`. A hyphen or an underscore before it
    # belongs to the same run of characters, so that no character is read for two tokens.
    TokenFormat("json web token", "eyJ", r"(?<![\w-]eyJ)[\w-]{8,8000}\.[\w-]{4,8000}\.[\w.-]{8,8000}"),
)


def compiled_formats() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the kind and the compiled pattern of each format, one for each of its prefixes."""
    return tuple(
        (token_format.kind, _compiled(prefix, token_format.rest))
        for token_format in TOKEN_FORMATS
        for prefix in token_format.prefixes.split() or [""]
    )


def _compiled(prefix: str, rest: str) -> re.Pattern[str]:
    # The prefix stands before the assertion about what precedes it: `re` searches for a leading literal much faster.
    literal = re.escape(prefix)
    return re.compile(f"{literal}(?<![A-Za-z0-9]{literal}){rest}", re.ASCII)
