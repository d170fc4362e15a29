"""Decide whether a value that is stated to be a secret is one.

People write far more about secrets than they write secrets ("the password is required"). So a value must look like a
secret, and the weaker its connection to the name is, the more so.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from palimpsest.text.secrets.names import NAME, lower_case
from palimpsest.text.stopwords import FUNCTION_WORDS, without_function_words

CHOSEN_KINDS = ("password", "passphrase", "access code")
"""The kinds of secrets that people choose. The other kinds, except PINs, are generated at random and look like it."""


class Statement(NamedTuple):
    """A value that a text states to be a secret.

    `joint` is how the value is connected to the name: `sign` (`:` or `=`), `verb` ("is"), `dash`, `call`
    (`password("x")`), `to` ("changed my password to"), or `bare` (nothing). `plural` is true if a list of values may
    follow the name. `ended` is true if the clause ends after the value. `assigned` is true if the sign contains `=`.
    `alone` is false if such an assignment is part of a longer expression. `local` is true if the name is of a language
    that joins no adjectives by hyphens, so that `abacaxi-azul` is a value.
    """

    kind: str
    joint: str
    value: str
    quoted: bool = True
    plural: bool = False
    ended: bool = True
    assigned: bool = False
    alone: bool = True
    local: bool = False


PIN = re.compile(r"(?:\d{4,12}|\d(?:[ -]\d){3,7}|\d\d[ -]\d\d)(?![A-Za-z0-9_]|[.:/-]\d)")
_CONSTANT = re.compile(r"[A-Z][A-Z_]*\d{0,2}")

_STRONG = re.compile(r"\d{4,}|(?=.{5})(?:.*\d.*|.+[!@#$%^&*+=~|?].+)")
"""A value that is not a word, because it has digits or has punctuation inside."""

_CAPITALS = re.compile(r"(?=.{8}).*[a-z][A-Z].*")

_STRONGER = re.compile(r"(?=.{7})(?=.*\d)(?=.*[^\W\d])(?![A-Z]{2,}\d+\Z).*")
"""What a value without a joint must look like. Without it, an ordinary word with a digit could follow the name."""

_WEAK = re.compile(r"(?=.{4,40}\Z)(?![a-z]+(?:-[a-z]+){1,2}\Z)[^\W\d_]{2,}(?:[-_.][^\W\d_]+)*")
"""A word that can be a password, but only after a sign and at the end of a clause."""

_COMPOUND = re.compile(r"[^\W\d_]{3,20}(?:[-_][^\W\d_]{3,20}){1,4}")
_TICKET = re.compile(r"[A-Z]{2,6}-\d+")
_LONG_NUMBER = re.compile(r"\d{10,}")
_PUBLIC_ID = re.compile(r"[0-9a-f]{40}|[0-9A-F]{16,40}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""A SHA-1 hash, a key's fingerprint or a UUID."""

_PART = re.compile(r"[A-Za-z0-9]{6,}")
_CASE_CHANGE = re.compile(r"[a-z][A-Z]")

_MIN_LETTERS_ONLY = 16
_MIN_CASE_CHANGES = 3
"""A value of letters only looks random from this length and number of case changes on. Identifiers in camel case are
shorter or have fewer words."""

NOT_A_SECRET = re.compile(
    r"""[<\[{(].*|\$\w+|\$[({].*|%\w+%|%\(?[sd].*|([a-z])\1{3,}|[x*.\u2022\u00b7_\-\#?\u2026]+
    |(?:your|some|insert|enter|replace|add|put)[-_ ].*(?:key|token|secret|pass|pwd|pin|here|value).*
    |(?:your|change|replace|enter|insert)[-_ ]?(?:me|this|here|api|key|token|secret|pass|pwd|value).*
    |.*(?:placeholder|redacted|example|_here|-here)\W*
    |(?:[a-z][a-z0-9+.-]*://|arn:|op:|env:|file:|vault:|ssm:|aws4-).*
    |.*(?:&(?:quot|amp|lt|gt|\#)|%20).*|[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}
    |[a-z_.-]+(?:/[a-z_.-]+)+|(?:~|\.{1,2})?/[\w.~@-]*[a-z].*|[a-z]:\\.*
    |\#?[\w./-]+\.(?:txt|md|json|ya?ml|env|pem|key|py|js|ts|toml|ini|kdbx|pdf)
    |v?\d+(?:\.\d+)+[\w.-]*|\d{1,4}[./-]\d\d?[./-]\d{1,4}(?:t.*)?|\d\d?:\d\d.*|[$€£\#~\u2248]\d.*|\d[\d.,/-]*[+%]
    |\d+-\d+|\d+-?(?:st|nd|rd|th|x|h|m|s|k|[kmg]b|ms|min|sec)|\d+-?[a-z]{2,}(?:-[a-z]+)+|\d+-[a-z]+
    |\d+(?:char|digit|bit|byte|day|year|hour)\w*|@[a-z_]+|0x[0-9a-f]{40}|\#[0-9a-f]{3,8}
    |(?:s3|ec2)(?:[-_/].*)?
    |(?:sha-?\d{1,3}|aes-?\d{3}|md5|rsa-?\d{4}|3?des|base\d\d|utf-?\d\d?|argon2|pbkdf2|oauth2|rot13|[hre]s\d{3}|ed\d{3,5}
    |x509|blake\d|tls1|ipv\d|http\d|rfc-?\d{3,4}|v\d+|k8s|i18n|bcrypt|1password|lastpass|keepass\w*|bitlocker|icloud
    |onedrive|github|gitlab|postgresql|(?:java|type)script|(?:camel|pascal)case|wordpress|paypal|youtube|2fa|mfa)
    (?:[-_/].*|[a-z]{0,4})""",
    re.IGNORECASE | re.VERBOSE,
)
"""What stands in the place of a secret without being one.

A variable, a mask, a placeholder, an address, a path, a date, an amount, or the name of a method or product."""

_STEM = re.compile(
    r"passw(?:or[dt]|d)|pass(?:phrase|code|\d?\Z)|_pass|pwd|secret|token|_key|key_|\Akey|apikey|(?-i:[a-z0-9]Key)|param"
    r"|value|input|field|contrase|парол",
    re.IGNORECASE,
)
"""What the name of a variable for a secret contains."""

_CALL = re.compile(r"[a-z_$@*&][\w$]*(?:(?:\.|->|::|\?\.)[a-z_$][\w$]*)*[(\[].*", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"[a-z_$*&][\w$]*(?:(?:\.|->|::|\?\.)[a-z_$][\w$]*)+", re.IGNORECASE)
_IDENTIFIER = re.compile(r"[a-z_$*&][a-z_$]*(?:\d?|\d+[a-z_$]+)", re.IGNORECASE)

_WORDS_ABOUT_SECRETS = frozenset(
    word
    for words in (
        "required optional string str text varchar bool boolean number true false null none nil undefined unknown",
        "empty missing invalid valid incorrect wrong weak strong expired hash hashed encrypted encoded stored",
        "saved secure safe hidden masked removed changed updated reset rotated set unset unchanged forgotten lost",
        "done yes no not ok todo pending same default public private manager policy security see below above here",
        "ask data minimum maximum characters words letters digits plain plaintext prompt disabled enabled",
        "bitwarden keychain dashlane vault await async function return new self this any bytes object type",
        "protected generated sensitive only based added deprecated supported failed const let var erforderlich",
        "keins keine unbekannt vergessen leer geändert falsch richtig sicher pflichtfeld siehe gespeichert",
        "abgelaufen requis obligatoire inconnu oublié aucun changé vide incorrecte obligatoria desconocida",
        "olvidada ninguna requerida cambiada vacía неизвестен забыт нет обязателен пустой неверный изменён",
        "изменен сменён истёк",
    )
    for word in words.split()
)
"""A value with one of these words says something about a secret, unless it also has digits."""

_DIGIT = re.compile(r"\d")
_WORDS = re.compile(r"[^\W\d_]+")
_MAX_PHRASE_WORDS = 8
_MIN_PHRASE_WORDS = 4
"""A passphrase in quotes of so many words may have function words: "four green lamps over Vienna"."""

_ANDS = ("and", "und", "et", "y", "e", "и", "en", "i", "och", "og", "for", "für", "pour", "para")
_WALLET_PHRASE_WORDS = (12, 15, 18, 21, 24)
"""The numbers of words that the recovery phrase of a wallet can have (BIP 39)."""

_MIN_GENERATED_CHARS = {"sign": 6, "bare": 20}
_MIN_GENERATED_CHARS_IN_PROSE = 8
_MIN_GENERATED_CHARS_IN_LIST = 16
"""The shortest generated secret by joint. The weaker the joint, the longer the value must be, because short ids are
frequent in prose and in lists."""


def is_placeholder(value: str) -> bool:
    """Return whether a value stands in the place of a secret, as `$DB_PASSWORD`, `your_token` and `password` do."""
    named = NAME.search(lower_case(value)) and not _DIGIT.search(value)
    return bool(named or NOT_A_SECRET.fullmatch(value))


def looks_random(value: str) -> bool:
    """Return whether a value mixes digits and letters within a part, or capital and small letters within a long one."""
    mixed = any(not part.isalpha() and not part.isdigit() for part in _PART.findall(value))
    return mixed or (len(value) >= _MIN_LETTERS_ONLY and len(_CASE_CHANGE.findall(value)) >= _MIN_CASE_CHANGES)


def is_secret(statement: Statement) -> bool:
    """Return whether the value of a statement looks like a secret, rather than like a word about one."""
    value = statement.value
    has_digit = bool(_DIGIT.search(value))
    if not has_digit and _WORDS_ABOUT_SECRETS.intersection(_WORDS.findall(value.casefold())):
        return False
    if statement.kind == "pin":
        likely = bool(PIN.fullmatch(value))
    elif statement.kind not in CHOSEN_KINDS:
        likely = _looks_generated(statement)
    elif " " in value:
        likely = _is_quoted_phrase(statement, has_digit=has_digit)
    else:
        likely = _looks_chosen(statement)
    if not likely or NOT_A_SECRET.fullmatch(value):
        return False
    return statement.quoted or not _is_code(statement, has_digit=has_digit)


def wallet_words(words: list[str]) -> int:
    """Return how many of some words are the recovery phrase of a wallet, before an "and" goes on; 0 if none are."""
    end = next((place for place, word in enumerate(words) if word in _ANDS), len(words))
    return end if end in _WALLET_PHRASE_WORDS else 0


def is_phrase(words: list[str], kind: str, joint: str) -> bool:
    """Return whether words without quotes are a secret of several words, such as a recovery phrase."""
    if kind == "passphrase" and len(words) in _WALLET_PHRASE_WORDS:
        return True
    if _WORDS_ABOUT_SECRETS.intersection(words) or NAME.search(" ".join(words)):
        return False
    if without_function_words(words) != words or len(words) > _MAX_PHRASE_WORDS:
        return False
    return (kind == "passphrase" or joint == "sign") and not words[0].endswith("ly")  # "usually four random words"


def _is_code(statement: Statement, *, has_digit: bool) -> bool:
    """Return whether a value is a call, a subscript, an attribute, or the name of a variable for a secret."""
    value = statement.value
    if _CALL.fullmatch(value):
        return True
    if _ATTRIBUTE.fullmatch(value):
        return statement.assigned or not has_digit or bool(_STEM.search(value))
    return bool(_IDENTIFIER.fullmatch(value) and _STEM.search(value))


def _looks_generated(statement: Statement) -> bool:
    value, joint = statement.value, statement.joint
    if " " in value or _is_camel_case_name(value) or _CONSTANT.fullmatch(value):
        return False
    if joint == "bare" and _PUBLIC_ID.fullmatch(value):
        return False
    if _LONG_NUMBER.fullmatch(value):
        return joint == "sign" and statement.kind.endswith("key")
    shortest = _MIN_GENERATED_CHARS.get(joint, _MIN_GENERATED_CHARS_IN_PROSE)
    return len(value) >= (_MIN_GENERATED_CHARS_IN_LIST if statement.plural else shortest) and looks_random(value)


def _is_camel_case_name(value: str) -> bool:
    """Return whether a value is the name of a variable for a secret: `userPassword`, `V1SecretVolume`."""
    return value.isidentifier() and bool(_CASE_CHANGE.search(value) and _STEM.search(value))


def _looks_chosen(statement: Statement) -> bool:
    value, joint = statement.value, statement.joint
    if _is_camel_case_name(value) and not _DIGIT.search(value):
        return False
    if _STRONG.fullmatch(value) or (_CAPITALS.fullmatch(value) and (statement.ended or joint != "sign")):
        if joint == "bare":
            stronger = _STRONGER.fullmatch(value) and not _TICKET.fullmatch(value)
            return statement.kind == "access code" or bool(stronger)
        return joint == "sign" or not _TICKET.fullmatch(value)
    if statement.kind == "access code" or _STEM.search(value) or NAME.fullmatch(value.lower()):
        return False
    if statement.quoted:
        return joint in ("sign", "verb") and len(value) > len("bar")
    if statement.local and joint in ("sign", "verb") and _COMPOUND.fullmatch(value):
        return True
    if joint != "sign" or not statement.ended or statement.plural or not statement.alone or not _WEAK.fullmatch(value):
        return False
    return not any(value.lower() in words for words in FUNCTION_WORDS.values())


def _is_quoted_phrase(statement: Statement, *, has_digit: bool) -> bool:
    """Return whether several words are a password. Labels, and sentences about passwords, have function words."""
    words = statement.value.casefold().split()
    if statement.joint not in ("sign", "verb") or len(words) > _MAX_PHRASE_WORDS or statement.value[-1] in "?:":
        return False
    is_long = statement.kind == "passphrase" and len(words) >= _MIN_PHRASE_WORDS
    likely = has_digit or is_long or without_function_words(words) == words
    return likely and not NAME.search(lower_case(statement.value))
