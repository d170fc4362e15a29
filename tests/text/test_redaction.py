"""Redaction: which secrets are removed from a text before it is stored, what stays, and what replaces a secret.

The credentials are assembled from parts, so that no scanner reports this file as a leak. No provider ever issued them.
"""

from __future__ import annotations

import base64
import copy
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palimpsest.core.errors import InputError
from palimpsest.text import redaction
from palimpsest.text.redaction import Redacted, redact, redact_json, token_formats

ALNUM = "a1B2c3D4e5F6g7H8i9J0k"
HEX = "9f86d081884c7d65"
PROPERTY_SETTINGS = settings(
    max_examples=400, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)


def body(length: int) -> str:
    """Return letters and digits that look like those of a token."""
    return (ALNUM * (length // len(ALNUM) + 1))[:length]


def jwt_part(value: dict[str, Any]) -> str:
    """Return one part of a JSON web token."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


TOKENS = {
    "sk-" + body(48): "openai key",
    "sk-proj-" + body(40) + "_" + body(60) + "-" + body(20): "openai key",
    "sk-svcacct-" + body(100): "openai key",
    "sk-" + HEX * 2: "openai key",
    "sk-ant-" + "api03-" + body(90) + "-AA": "anthropic key",
    "sk-or-" + "v1-" + HEX * 4: "openrouter key",
    "AIza" + "Sy" + body(33): "google key",
    "GOCSPX-" + body(28): "google key",
    "ghp_" + body(36): "github token",
    "gho_" + body(36): "github token",
    "ghu_" + body(36): "github token",
    "ghs_" + body(36): "github token",
    "ghr_" + body(76): "github token",
    "github_pat_" + body(22) + "_" + body(59): "github token",
    "glpat-" + body(20): "gitlab token",
    "glpat-" + body(27) + "." + body(9): "gitlab token",
    "xoxb-" + "123456789012-123456789012-" + body(24): "slack token",
    "xoxe." + "xoxp-1-" + body(40): "slack token",
    "https://hooks.slack.com/services/" + "T0123ABCD/B0123ABCD/" + body(24): "slack token",
    "xapp-" + "1-A0123456789-1234567890123-" + body(40): "slack token",
    "sk_live_" + body(99): "payment key",
    "rk_live_" + body(24): "payment key",
    "sk_test_" + body(24): "payment key",
    "whsec_" + body(32): "payment key",
    "npm_" + body(36): "npm token",
    "pypi-" + "AgEIcHlwaS5vcmc" + body(90): "pypi token",
    "hf_" + body(34): "hugging face token",
    "gsk_" + body(52): "groq key",
    "xai-" + body(80): "xai key",
    "SG." + body(22) + "." + body(43): "sendgrid api key",
    "SK" + HEX * 2: "twilio api key",
    "123456789:" + "AA" + body(33): "telegram bot token",
    "MTAx" + body(20) + "." + body(6) + "." + body(27): "discord bot token",
    "AKIA" + "Q3EGRIT5HVLN2WPX": "aws access key",
    "ASIA" + "Q3EGRIT5HVLN2WPX": "aws access key",
    HEX * 2 + "-us12": "mailchimp access key",
    "sq0csp-" + body(43): "square oauth secret",
    "AGE-SECRET-KEY-1" + "QPZRY9X8GF" * 5 + "QPZRY9X8": "age secret key",
    "dop_v1_" + HEX * 4: "digitalocean token",
    "dapi" + HEX * 2: "databricks token",
    "shpat_" + HEX * 2: "shopify token",
    "hvs." + body(90): "vault token",
    "pplx-" + body(48): "perplexity key",
    "nvapi-" + body(64): "nvidia key",
    "r8_" + body(37): "replicate token",
    "lsv2_pt_" + HEX * 2 + "_" + HEX[:10]: "langsmith key",
    "ATATT3" + "xFfGF0" + body(180) + "=" + HEX[:8]: "atlassian token",
    "dckr_pat_" + body(27): "docker token",
    "glsa_" + body(32) + "_" + HEX[:8]: "grafana token",
    "sbp_" + HEX[:8] * 5: "supabase key",
    "ntn_" + body(46): "notion token",
    "lin_api_" + body(40): "linear key",
    "tskey-" + "auth-" + body(17) + "-" + body(32): "tailscale key",
    "AKCp" + body(69): "artifactory token",
    "GR1348941" + body(20): "gitlab token",
    "glagent-" + body(50): "gitlab token",
    "A3TX" + "Q3EGRIT5HVLN2WPX": "aws access key",
    base64.b64encode(f"-----BEGIN EC PRIVATE KEY-----\n{body(90)}".encode()).decode(): "private key",
    ".".join((jwt_part({"alg": "HS256"}), jwt_part({"sub": "1234", "name": "Ana"}), body(43))): "json web token",
}
"""Tokens that are recognized by their format alone, and their kinds."""

STATEMENTS = [
    # English
    ("my password is {}", "hunter2", "password"),
    ("my password is {}.", "Tr0ub4dor&3", "password"),
    ("the wifi password: {}", "Blue-Kettle-44", "password"),
    ("The password for example.com is {} since May.", "hunter2", "password"),
    ("The password I use for the bank is {}", "kitty4ever", "password"),
    ("password to unlock the laptop is {}", "kitty4ever", "password"),
    ("I changed my password to {} yesterday", "kitty4ever", "password"),
    ("username bob, password {}", "hunter2", "password"),
    ("login: bob, pass: {}", "hunter2", "password"),
    ("user=bob pass={}", "hunter2", "password"),
    ("The password's {}, mind the capital", "Kitty4ever", "password"),
    ("Use {} as the wifi password.", "kitty4ever", "password"),
    ("**Password:** {}", "hunter2", "password"),
    ("Password (guest): {}\nUser: bob", "sunshine", "password"),
    ('the password is "{}", all small', "sunshine", "password"),
    ("My password is \u201c{}\u201d.", "open sesame", "password"),
    ("Password:\n  {}", "hunter2", "password"),
    ("PIN is {}", "4921", "pin"),
    ("the pin code for the door is {}", "4921", "pin"),
    ("bank PIN {}, card in the drawer", "884213", "pin"),
    ("PIN: {}", "49 21", "pin"),
    ("The gate code is {}, then the hash", "4921", "access code"),
    ("passphrase = {}", "correct horse battery staple", "passphrase"),
    ("My passphrase is {}.\nUser likes tea.", "purple monkey dishwasher tango", "passphrase"),
    ("seed phrase: {}", "apple river stone cloud tiger maple ocean piano zebra lemon candle orbit", "passphrase"),
    ("api key: {}", HEX * 2, "api key"),
    ("Here is my API key {} for the weather", HEX * 2, "api key"),
    ("The access token is {}, valid for a year", body(24), "token"),
    # German
    ("Das Passwort ist {}", "Sommer2024!", "password"),
    ("Mein WLAN-Passwort lautet {}.", "Apfel#Kuchen", "password"),
    ("Passwort f\u00fcr das WLAN: {}", "Blau-Kessel-44", "password"),
    ("PIN-Code f\u00fcr die T\u00fcr lautet {}", "4921", "pin"),
    ("API-Schl\u00fcssel: {}", HEX, "api key"),
    # French
    ("Le mot de passe du wifi est {}", "Bleu-44!", "password"),
    ("mot de passe : {}", "soleil", "password"),
    ("Mon code PIN est {}", "4921", "pin"),
    ("cl\u00e9 API : {}", HEX, "api key"),
    # Spanish
    ("La contrase\u00f1a es {}", "Azul-44", "password"),
    ("contrasen\u0303a: {}", "tetera44", "password"),
    ("La clave del wifi es {}", "Azul-44", "password"),
    ("el PIN de la tarjeta es {}", "4921", "pin"),
    # Russian
    ("пароль: {}", "hunter2", "password"),
    ("пароль — {}", "hunter2", "password"),
    ("Мой пароль {}", "hunter2", "password"),
    ("пароль от вайфая: {}", "Жираф77", "password"),  # noqa: RUF001 - Cyrillic
    ("пин-код от карты: {}", "4921", "pin"),
    ("токен: {}", HEX, "token"),
    # Chinese
    ("我的密码是{}。", "abc12345", "password"),
    ("密码\uff1a{}\uff0c别忘了", "hunter2", "password"),
    ("PIN码是{}", "4921", "pin"),
    ("API密钥\uff1a{}", HEX, "api key"),
    # Japanese
    ("パスワードは{}です", "hunter2", "password"),
    ("Wi-Fiのパスワードは「{}」です。", "Blue-Kettle-44", "password"),
    ("暗証番号は{}です", "4921", "pin"),
    ("APIキーは{}です", HEX, "api key"),
    # code, settings, addresses
    ('password = "{}"', "hunter2", "password"),
    ("DB_PASSWORD={}\nDEBUG=1", "hunter2", "password"),
    ("mysql --password={} -u root", "sunshine", "password"),
    ('{{"user": "bob", "password": "{}"}}', "hunter2", "password"),
    ('{{\\"password\\": \\"{}\\"}}', "hunter2", "password"),
    ("<password>{}</password>", "hunter2", "password"),
    ("| password | {} |", "hunter2", "password"),
    ("if password == '{}':", "hunter2", "password"),
    ("Server=db;User Id=sa;Password={};Encrypt=yes", "Passw0rd", "password"),
    ("export API_KEY={}", HEX, "api key"),
    ('os.environ["API_KEY"] = "{}"', HEX, "api key"),
    ("AccountName=x;AccountKey={};EndpointSuffix=core", body(86) + "==", "secret key"),
    ("aws_secret_access_key = {}", "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYa1b2c3d4e5", "secret key"),
    ("Authorization: Bearer {}", body(20), "token"),
    ("Authorization: Basic {}", "dXNlcjpodW50ZXIy", "token"),
    ("GET /me?access_token={}&page=2", body(24), "token"),
    ("postgres://bob:{}@db.example.com:5432/app", "hunter2", "password"),
    ("https://bob:{}@example.com/", "p@ss-w0rd", "password"),
    ("https://hooks.slack.com/triggers/{}", "T0123ABCD/1234567890123/" + body(32), "slack webhook"),
    ("https://discord.com/api/webhooks/{}", "123456789012345678/" + body(68), "discord webhook"),
    ("X-Amz-SignedHeaders=host&X-Amz-Signature={}", HEX * 4, "signature"),
    ("https://x.blob.core.windows.net/c?sv=2024-05-04&sig={}", body(43) + "%3D", "signature"),
    ("aws credentials: access token '{}'", "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYa1b2c3d4e5", "aws access key"),
    ("https://api.telegram.org/bot{}/getMe", "123456789:" + "AA" + body(33), "telegram bot token"),
]
"""Texts, the secret in each, and the kind of the secret."""

HARMLESS_TEXTS = [
    # sentences about secrets
    "User forgot the password",
    "User's password manager is Bitwarden",
    "User wants to reset their password tomorrow",
    "the password is stored in 1Password",
    "password is required",
    "Password: optional",
    "the password is too weak",
    "The password is the name of my first dog",
    "the password is at least 12 characters",
    "The password is 90 days old",
    "the password is case-sensitive",
    "the password is hashed with SHA-256",
    "The password is SHA256-hashed",
    "password policy is NIST-800-63b",
    "The wifi password is on the fridge",
    "The password for the lab is in room B2-114",
    "My account: email anna@example.com, password reset pending",
    "People use 123456 as a password",
    "Password1 is the most common password",
    'The error was "password is required"',
    "the token limit is 8000",
    "max_tokens: 4096, tokens used: 128000",
    "The token is a JWT signed with RS256",
    "access tokens are valid for 3600 seconds",
    "design token: blue-500",
    "Token: ERC20",
    "token: 0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48",
    "api key rotation is every 90 days",
    "The API key goes into the file config/settings.yaml",
    "API key: ask Tom",
    "The private key never leaves the YubiKey5",
    "the secret is to let the dough rest",
    "secret ingredient: cardamom",
    "Secret Santa is on Friday",
    "The passphrase is usually four random words",
    "User pinned 4921 photos; Connect pin 13 to GND; pin numpy 2.2.0",
    "The PIN has 4 digits",
    "Address: MG Road, Bengaluru, PIN 560001",
    "surrogate code U+DF42",
    "boarding pass: XK4421AB",
    "PASS: test_login2",
    # in other languages
    "Das Passwort ist abgelaufen, es liegt im Tresor",
    "Passwort vergessen",
    "Le mot de passe est obligatoire",
    "Mot de passe : voir coffre",
    "La contrase\u00f1a es obligatoria",
    "la clave es la paciencia; clave: constancia",
    "Пароль — это важно. Пароль: неизвестен",
    "Забыла пароль от почты",
    "密码是必填项\uff0c长度为8到16位",
    "密码是SHA256加密的",
    "パスワードは8文字以上です",
    "パスワードは1Passwordに保存",
    # public values that look like secrets
    "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    "id 550e8400-e29b-41d4-a716-446655440000",
    "image python:3.11-slim@sha256:" + HEX * 4,
    "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUgAA" * 40,
    "ISBN 978-3-16-148410-0",
    "phone +49 170 1234567",
    "IBAN DE89 3704 0044 0532 0130 00 or DE89370400440532013000",
    "passport number C01X00T47, order 4921-8832",
    "signing key 19882D92DDA4C400C22C0D56CC2AF4472167BE03",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJx4 ana@laptop",
    "HostKeyAlgorithms sk-ssh-ed25519-cert-v01@openssh.com",
    "class sk-circle-fade-animation-2, file task-sk-report-generation-2024-final",
    "https://example.com/a-very-long-path/with-parts/2024/05/index.html?next=/home",
    "http://localhost:8080/@user and git@github.com:user/repo.git",
    "certificate-authority-data: " + base64.b64encode(f"-----BEGIN CERTIFICATE-----\n{body(90)}".encode()).decode(),
    "public-key-data: " + base64.b64encode(f"-----BEGIN PUBLIC KEY-----\n{body(90)}".encode()).decode(),
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A\n-----END PUBLIC KEY-----",
    "The file starts with -----BEGIN PRIVATE KEY----- as usual",
    # code and placeholders
    "password = get_password()",
    "password = user.password",
    'token = response.json()["token"]',
    "const token = await login()",
    "{ username: username, password: userPassword }",
    "type Props = { password: string; token?: string }",
    "def login(user: str, password: str = Field(...)) -> Token:",
    '"secret": "V1SecretVolumeSource"',
    '{"password": "Enter your password", "confirm": "Password"}',
    'os.environ["API_KEY"]',
    'input("Password: ") or getenv("X1y2z3")',
    "print('password:', password)",
    "password: z.string().min(8)",
    "API_KEY=\nDEBUG=1",
    "api_key = YOUR_API_KEY",
    "token: your-token-here",
    "password: <password>, ${DB_PASSWORD}, {{ password }}",
    "PASSWORD=$DB_PASS",
    "password: xxxxxxxx and password: ********",
    "postgres://user:password@localhost/db and https://user:${TOKEN}@host/",
    "ghp_" + "x" * 36 + " and sk-" + "X" * 40,
    "sk-" + "your-api-key-goes-here-please",
    "secret: arn:aws:secretsmanager:us-east-1:123:secret:prod/db-AbCdEf",
    "password: op://vault/item/field1 or /run/secrets/db_password1",
]
"""Texts that are about secrets, or look like them, and contain none. They stay as they are."""

KEY_LINES = "\n".join(("MIIEowIBAAKCAQEA" + body(48), body(64), "q7" + body(20) + "=="))


ORDINARY = st.one_of(
    st.sampled_from(
        (
            "Ana likes tea",
            "zwei Katzen",
            "il est midi",
            "es azul",
            "живёт в Берлине",
            "我住在北京",
            "東京は",
            "is",
            "to",
        )
    ),
    st.sampled_from((" ", ": ", "=", " — ", '"', "'", ".", ", ", "hunter2", "Blue-Kettle-44", "4921", "= get(x)")),
    st.text(st.characters(exclude_categories=["L", "Cs"]), max_size=12),
)
"""Parts of texts: words that do not name a secret, possible values, and characters that are not letters."""


class TestWhatIsRemoved:
    @pytest.mark.parametrize(("secret", "kind"), TOKENS.items(), ids=[secret[:9] for secret in TOKENS])
    @pytest.mark.parametrize(
        "template", ["{}", "Deploy with {}, please.", 'key="{}"', "密码库\uff1a{}。好的", "a\n{}\nb"]
    )
    def test_a_token_is_recognized_by_its_format(self, secret: str, kind: str, template: str) -> None:
        """The whole token is removed wherever it stands, and nothing around it."""
        assert redact(template.format(secret)) == Redacted(template.format(f"[secret removed: {kind}]"), (kind,))

    def test_each_kind_of_token_has_an_example(self) -> None:
        """A new row in the table of formats needs a token here that it recognizes."""
        examples = {*TOKENS.values(), *(kind for _, _, kind in STATEMENTS)}

        assert {kind for kind, _ in token_formats()} <= examples

    @pytest.mark.parametrize(("text", "secret", "kind"), STATEMENTS, ids=[text[:24] for text, _, _ in STATEMENTS])
    def test_a_secret_is_recognized_by_the_words_before_it(self, text: str, secret: str, kind: str) -> None:
        """In sentences and in settings files, the value is removed and the words around it stay."""
        assert redact(text.format(secret)) == Redacted(text.format(f"[secret removed: {kind}]"), (kind,))

    @pytest.mark.parametrize(
        "name",
        ["RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "PRIVATE KEY", "PGP PRIVATE KEY BLOCK"],
    )
    @pytest.mark.parametrize("lines", [KEY_LINES, "Proc-Type: 4,ENCRYPTED\n\n" + KEY_LINES], ids=["plain", "armour"])
    def test_a_whole_private_key_is_removed(self, name: str, lines: str) -> None:
        """All lines are removed, with an END line and without, at the end of a text and before more text."""
        begin, end = f"-----BEGIN {name}-----\n", f"\n-----END {name}-----"
        marker = "[secret removed: private key]"

        assert redact(f"My key:\n{begin}{lines}{end}\nKeep it.").text == f"My key:\n{marker}\nKeep it."
        assert redact(f"My key:\n{begin}{lines}").text == f"My key:\n{marker}"
        assert redact(f"My key:\n{begin}{lines}\n\nKeep it.").text == f"My key:\n{marker}\n\nKeep it."

    def test_two_private_keys_are_removed_separately(self) -> None:
        """The text between two keys stays, even if the first has no END line. A key inside JSON is removed."""
        begin, end = "-----BEGIN EC PRIVATE KEY-----\n", "\n-----END EC PRIVATE KEY-----"
        two_keys = redact(f"{begin}{KEY_LINES}\nand the other one:\n{begin}{KEY_LINES}{end}")
        in_json = redact(json.dumps({"private_key": begin + KEY_LINES + end, "id": 7}))

        assert two_keys.text == "[secret removed: private key]\nand the other one:\n[secret removed: private key]"
        assert two_keys.kinds == ("private key", "private key")
        assert in_json.text == '{"private_key": "[secret removed: private key]", "id": 7}'

    def test_several_secrets_in_a_text(self) -> None:
        """The kinds are in the order of the secrets, and the words between the secrets stay."""
        text = f"user: bob, password: hunter2; key ghp_{body(36)} and db://bob:s3cr3t@host. PIN is 4921. Tea at 5."

        assert redact(text) == Redacted(
            "user: bob, password: [secret removed: password]; key [secret removed: github token] and "
            "db://bob:[secret removed: password]@host. PIN is [secret removed: pin]. Tea at 5.",
            ("password", "github token", "password", "pin"),
        )

    def test_a_token_keeps_its_kind_if_it_is_called_a_password(self) -> None:
        """A token that is recognized in two ways is one secret, and its format decides the kind."""
        assert redact(f"my password is ghp_{body(36)}").kinds == ("github token",)

    @pytest.mark.parametrize("quote", ["", '"'])
    def test_a_long_value_is_removed_to_its_end(self, quote: str) -> None:
        """The rest of a value goes too if the value is longer than the part that is read to recognize it."""
        assert redact(f"token: {quote}{body(900)}{quote}, done").text == (
            f"token: {quote}[secret removed: token]{quote}, done"
        )


class TestWhatStays:
    @pytest.mark.parametrize("text", HARMLESS_TEXTS, ids=[text[:24] for text in HARMLESS_TEXTS])
    def test_a_harmless_text_stays_as_it_is(self, text: str) -> None:
        """Ordinary memories keep their words about secrets, ids, numbers, code and placeholders."""
        assert redact(text) == Redacted(text)

    @pytest.mark.parametrize(
        "text", ["", " \n", "\x00", "\ud83d", "\u0130stanbul \u0130yi", "[secret removed: ", "password"]
    )
    def test_a_text_without_a_secret_may_be_anything(self, text: str) -> None:
        """Empty texts, lone surrogates, letters that get longer in lower case and incomplete markers stay."""
        assert redact(text) == Redacted(text)

    def test_offsets_are_right_after_a_letter_that_gets_longer_in_lower_case(self) -> None:
        """The lower case of U+0130 is two characters long, and must not shift what is removed."""
        assert redact("\u0130\u0130 password: hunter2.").text == "\u0130\u0130 password: [secret removed: password]."

    @given(st.lists(ORDINARY, max_size=12).map("".join))
    @PROPERTY_SETTINGS
    def test_a_text_without_names_and_formats_stays_as_it_is(self, text: str) -> None:
        """Nothing is removed from a text that names no secret and contains no token."""
        assert redact(text) == Redacted(text)

    def test_redaction_imports_only_the_standard_library(self) -> None:
        """Redaction loads no other library, so it is fast to start and makes no network connection."""
        code = (
            "import sys; loaded = set(sys.modules);"
            "from palimpsest.text.redaction import redact;"
            f"redact('my password is hunter2, my key is ghp_{body(36)}');"
            "roots = {name.split('.')[0] for name in set(sys.modules) - loaded};"
            "print(sorted(roots - sys.stdlib_module_names))"
        )
        process = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

        assert process.stdout.strip() == "['palimpsest']"


FRAGMENTS = st.sampled_from(
    [text.format(secret) for text, secret, _ in STATEMENTS]
    + [*HARMLESS_TEXTS, *TOKENS, KEY_LINES, "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"]
    + ["password", "token", "PIN", "pin", "secret", "api key", "пароль", "密码", "パスワード", ", pass", "is my "]
    + [" ", "\n", ": ", "=", " is ", " to ", " — ", "(", ")", "]", "'", '"', "`", "**", ".", ",", ";", "&", "@", "://"]
    + ["a1", "hunter2", "4921", "sunshine", "changed the ", "for the wifi ", "[secret removed: password]", "\x00"]
)


class TestMarkers:
    @pytest.mark.parametrize(("text", "secret", "kind"), STATEMENTS, ids=[text[:24] for text, _, _ in STATEMENTS])
    def test_a_marker_is_not_a_secret(self, text: str, secret: str, kind: str) -> None:
        """A redacted text can be read, edited and stored again without a change."""
        redacted = redact(text.format(secret)).text

        assert redact(redacted) == Redacted(redacted)
        assert redact(f"password: [secret removed: {kind}] {redacted}").kinds == ()

    @given(st.lists(FRAGMENTS, max_size=10).map("".join))
    @PROPERTY_SETTINGS
    def test_redacting_twice_is_redacting_once(self, text: str) -> None:
        """A marker is no secret in any context, and nothing except the secrets is lost or moved."""
        redacted = redact(text)

        assert redact(redacted.text) == Redacted(redacted.text)
        position = 0
        for part in re.split(r"\[secret removed: [a-z ]+\]", redacted.text):
            position = text.find(part, position) + len(part)
            assert position >= len(part)
        assert (redacted.text == text) == (not redacted.kinds)


class TestMetadata:
    def test_a_value_is_redacted_by_its_key_and_by_its_text(self) -> None:
        """Metadata of any shape is redacted: under keys that name a secret, in lists under them, and in other texts."""
        metadata: dict[str, Any] = {
            "password": "hunter2",
            "dbPassword": "sunshine",
            "api_key": HEX,
            "auth": {"token": body(20), "user": "bob"},
            "passwords": ["hunter2", "sunshine"],
            "pin": 4921,
            "notes": ["my password is hunter2", "tea", 7, None, True, 1.5],
            "ghp_" + body(36): "a key of a key",
        }
        original = copy.deepcopy(metadata)
        marker = "[secret removed: password]"

        redacted, kinds = redact_json(metadata)

        assert redacted == {
            "password": marker,
            "dbPassword": marker,
            "api_key": "[secret removed: api key]",
            "auth": {"token": "[secret removed: token]", "user": "bob"},
            "passwords": [marker, marker],
            "pin": "[secret removed: pin]",
            "notes": [f"my password is {marker}", "tea", 7, None, True, 1.5],
            "[secret removed: github token]": "a key of a key",
        }
        assert kinds == (
            "password",
            "password",
            "api key",
            "token",
            "password",
            "password",
            "pin",
            "password",
            "github token",
        )
        assert metadata == original

    @pytest.mark.parametrize(
        "value",
        [
            {"password": "required"},
            {"password": "stored in 1Password"},
            {"password": "${DB_PASSWORD}"},
            {"password": ""},
            {"password": None, "token": 8000, "secret": True},
            {"password_hint": "hunter2", "token_limit": "a1b2c3d4e5", "tokens": 4096},
            {"pin": 13, "compass": "N42E13", "team": "red"},
            ["tea", ["green"], {}],
            "User forgot the password",
            7,
            None,
        ],
        ids=str,
    )
    def test_metadata_without_a_secret_stays(self, value: Any) -> None:
        """Counts, flags, references and words stay, even under a key that names a secret."""
        assert redact_json(value) == (value, ())

    def test_redacted_metadata_stays(self) -> None:
        """Redacted metadata can be read, edited and stored again without a change."""
        redacted, _ = redact_json({"password": "hunter2", "a": [f"key ghp_{body(36)}"]})
        assert redact_json(redacted) == (redacted, ())

    def test_two_secret_keys_keep_both_values(self) -> None:
        """No value is lost if two keys become the same marker."""
        redacted, kinds = redact_json({"ghp_" + body(36): 1, "gho_" + body(36): 2})

        assert sorted(redacted.values()) == [1, 2]
        assert kinds == ("github token",) * 2

    def test_metadata_that_is_nested_too_deep_is_refused(self) -> None:
        """The deepest allowed nesting is accepted; one level more would risk the interpreter's stack."""
        nested: Any = "tea"
        for _ in range(redaction.MAX_DEPTH):
            nested = [nested]

        assert redact_json(nested) == (nested, ())
        with pytest.raises(InputError, match="more than 100 deep"):
            redact_json([nested])


HOSTILE_PARTS = [
    *("a", " ", "a1B2", "eyJ", "eyJ-", "sk-", "sk-_", "xoxb-1-", "://a:", "://:@", "-----BEGIN PRIVATE KEY-----\n"),
    *("-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEA1234", "password", "password=", 'password: "', "password is "),
    *("password for a b c d e f ", "token=", "pin: 1 ", "密码是", "пароль ", "is my password ", "passphrase: word "),
    *("password: " + "1." * 60 + "! ", "password: " + "a-" * 60 + "! ", "password: " + "a.a/" * 30 + "( "),
    *("token: " + "aA" * 60 + "! ", "password: a@" + "b." * 60 + "! ", "password: '" + "a b " * 40),
    *(
        'aws_key "',
        "aws_key = '" + "a1B2" * 9,
        "AKIA",
        "M-",
        "M" * 27 + ".",
        "12345678:",
        "0a" * 16 + "-us",
        "SK0a",
        "SG.",
    ),
]
"""Parts of texts on which a pattern that backtracks, or that starts again at each character, takes too long."""


class TestRunningTime:
    @pytest.mark.few_by_day(10)
    @pytest.mark.parametrize("part", HOSTILE_PARTS)
    def test_a_long_hostile_text_is_redacted(self, part: str) -> None:
        """A text as long as the largest conversation is read to its end. Catastrophic backtracking would never end."""
        text = (part * (200_000 // len(part) + 1))[:200_000]
        redacted = redact(text)

        assert redact(redacted.text).kinds == ()

    @pytest.mark.few_by_day(1)
    @pytest.mark.parametrize("part", HOSTILE_PARTS)
    def test_a_text_twice_as_long_takes_at_most_twice_the_calls(self, part: str) -> None:
        """The number of Python and C calls is linear: text read for one name is not read again for the next."""
        redact(FIRST_LONG_WORD)

        assert call_count(part * 800) <= 2.2 * call_count(part * 400) + 200


FIRST_LONG_WORD = "x" * 20
"""A word long enough that the token formats are compiled, which happens only once."""


def call_count(text: str) -> int:
    """Return the number of Python and C calls that redacting a text takes."""
    count = 0

    def counter(*event: object) -> None:
        nonlocal count
        count += event[1] in ("call", "c_call")

    sys.setprofile(counter)
    try:
        redact(text)
    finally:
        sys.setprofile(None)
    return count


PLACES: dict[str, Any] = json.loads((Path(__file__).parent / "secret_places.json").read_text("utf-8"))
"""Secrets that their place makes known, with what must stay readable beside each, and lines that have none."""


@pytest.mark.parametrize("case", PLACES["secret"], ids=lambda case: ascii(case["text"][:40]))
def test_a_secret_is_known_by_its_place(case: dict[str, str]) -> None:
    """Guards options of commands, headers, tables, answers and statements in other languages than English."""
    redacted = redact(case["text"])
    assert case["secret"] not in redacted.text
    assert case["keep"] in redacted.text
    assert redact(redacted.text).text == redacted.text


@pytest.mark.parametrize("rule", ["|---|---|", "| :--- | ---: |", "+------+----------+", "|======|======|"])
def test_the_rule_of_a_table_stays_and_each_secret_is_counted_once(rule: str) -> None:
    redacted = redact(f"| user | password |\n{rule}\n| anna | Tide77high |\n| bank | Ahorn!99 |")
    marker = "[secret removed: password]"
    assert redacted.text == f"| user | password |\n{rule}\n| anna | {marker} |\n| bank | {marker} |"
    assert redacted.kinds == ("password", "password")


@pytest.mark.parametrize("text", PLACES["harmless"], ids=lambda text: ascii(text[:40]))
def test_what_only_looks_like_the_place_of_a_secret_stays(text: str) -> None:
    assert redact(text).text == text


@pytest.mark.few_by_day(1)
@pytest.mark.parametrize(
    "unit",
    [
        *("curl -u a:", "docker login -p ", "Cookie: a=b; ", "totp ABCD ", "4111 1111 1111 1112 ", "password,user\n"),
        *(
            "a,b\n",
            "password? ",
            "echo a | ",
            "--password ",
            "A_PASS",
            "WIFI:P:",
            "backup codes: abcd-1234 ",
            "heslo a ",
        ),
    ],
)
def test_places_are_looked_at_in_linear_time(unit: str) -> None:
    """Guards the server from a text made to keep it busy; with a quadratic search these take minutes."""
    redact(unit * (100_000 // len(unit)))
