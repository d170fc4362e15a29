"""Statements of a secret: `my password is …`, `API_KEY=…`, `пароль: …`, found by the words before the secret.

A statement is a name for a kind of secret, what joins it to a value (a sign, a verb, a dash, nothing), and the value.
People write far more about secrets than secrets ("the password is required"), so a value has to look like one: the
weaker the joint, the more. What decides is in `_is_secret`.

At each name a bounded stretch is read, and what was taken is not read again: the time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, cast

from palimpsest.text.stopwords import FUNCTION_WORDS, without_function_words


class Span(NamedTuple):
    """Hold where a secret stands in a text, and its kind."""

    start: int
    end: int
    kind: str


_NAMES = {
    "passphrase": r"pass[ _-]?phrase|seed[ _-]phrase|recovery phrase|phrase (?:de passe|secrète)|кодовая фраза"
    r"|парольная фраза|パスフレーズ|助记词",
    "api key": r"api[ _-]?(?:key|secret|token|schlüssel|ключ\w{0,2}|キー|密[钥鑰])|clé (?:d['\u2019])?api"
    r"|clave (?:de )?(?:la )?api|ключ\w{0,2} (?:от )?api",
    "private key": r"private[ _-]?key|privater schlüssel|clé privée|clave privada|приватн\w{2} ключ|закрыт\w{2} ключ"
    r"|私钥|秘密鍵",
    "secret key": r"secret[ _-]?(?:access[ _-]?)?key|access[ _-]?key|auth[ _-]?key|account[ _-]?key|encryption[ _-]?key"
    r"|signing[ _-]?key|master[ _-]?key|subscription[ _-]?key|geheimer schlüssel|clé secrète|clave secreta"
    r"|секретн\w{2} ключ|密[钥鑰]|秘钥|シークレットキー",
    "access code": r"door[ -]code|g(?<![a-z]g)ate[ -]code|alarm[ -]code|entry[ -]code|access[ -]code|garage[ -]code"
    r"|l(?<![a-z]l)ock[ -]code|türcode|zugangscode|alarmcode|digicode|code d['\u2019]accès|code (?:secret|de la porte)"
    r"|解錠番号|código (?:secreto|de acceso|de la puerta|de la alarma)|код от (?:двери|домофона|подъезда|сейфа|ворот)",
    "pin": r"p(?<![a-z]p)in(?:[ _-]?(?:code|number|nummer))?(?:码|碼|コード)?(?![a-z])|geheimzahl"
    r"|п(?<!\wп)ин(?:[ -]?код\w{0,2})?(?!\w)|暗証番号",
    "password": r"pass[ _-]?wor[dt]|passwd|passcode|kennwort|mot de passe|m(?<![a-z]m)dp(?![a-z\d])|senha|clave"
    r"|contrase(?:ñ|n\u0303?)a|парол(?:ь|я|ю|ем?)|密[码碼]|口令|パスワード|パスコード|pwd|p(?<![a-z]p)w(?![a-z])"
    r"|wi-?fi[ -]key|wlan-?schlüssel|p(?:(?<![^_/;(|,\n-]p)|(?<=[,;|(/] p))ass(?![a-z])|p(?<![a-z]p)ass(?==)",
    "token": r"token|bearer|authorization|токен\w{0,2}|jeton|令牌|トークン",
    "secret": r"secret(?![a-z])|シークレット",
}
"""What each kind is called in lower-case text, in the order of trial. Every alternative begins with a letter and looks
back only from behind it, so that the search passes over characters with which no name begins."""

_NAME = re.compile("|".join(_NAMES.values()))
_KINDS = {kind: re.compile(names) for kind, names in _NAMES.items()}

_CHOSEN = ("password", "passphrase", "access code")
"""Kinds that people make up; the others are drawn at random, and look it."""

_AFTER_NAME = (
    r"s?\d?(?:_(?:prod|production|dev|test|staging|live|main|root|admin|old|new|value|plain)\b)?"
    r"(?:\\?[\"'`]|\]|\*\*|__){0,3}"
    r"(?:\s\([^()\n\x00]{1,40}\)|\uff08[^\uff08\uff09\n\x00]{1,40}\uff09|\s(?:wi-?fi|wlan|admin|root"
    r"|server|router|ssh|gmail|google|apple|icloud|amazon|netflix|github|openai|paypal|windows)\b"
    r"| (?:for|of|to|on|at|in|from|für|fürs|vom|von|zum|zur|des|der|im|pour|du|de|del|para|en|от|для|к|на|из|в"
    r"|that|which|i|we|you|he|she|they)"
    r"(?: (?:[^\s.,:;!?=\x00\"()<>]|[.:/](?=\w)){1,40}){1,5}?)??"
)
_SIGN = (
    r"\s{0,3}(?::\s?(?:str|string)\s?=|:=|=>|->|→|(?:!==?|={2,3})(?=\s?[\"'])|[:=\uff1a\uff1d](?![:=>~])"
    r"|>(?=[^<>\s]{1,100}</))"
)
_VERB = (
    r"\s?[\u2013\u2014]\s(?:это|c['\u2019]est)(?=\s)"
    r"|\s(?:is|was|will be|equals|ist|war|lautete?|heißt|heisst|est|était|sera|c['\u2019]est|es|era|será|è|é|это|такой"
    r"|был|теперь)(?:\s(?:now|still|currently|set to|changed to|jetzt|nun|maintenant|désormais|ahora|теперь))?"
    r"(?:\s?[:\uff1a]|(?=\s))"
    r"|['\u2019]s(?=\s)|\s?已?(?:是|为|為|改成|改[为為]|设[为置]为?|設[為定]|[换換]成|は|が|を)[:\uff1a]?"
)
_SAYS = re.compile(
    rf"{_AFTER_NAME}(?:(?P<sign>{_SIGN})|(?P<verb>{_VERB})"
    r"|(?P<dash>\s?[\u2013\u2014]\s?|\s-{1,2}\s|\s\|\s)"
    r"|(?P<call>\((?=[\"'][^\"'\n]{1,100}[\"']\))))"
    r"(?:\*\*|__)?(?P<gap>\s{0,4})(?:\*\*|__)?(?:(?:bearer|basic|token)\s)?(?:[rbfu@](?=[\"']))?\\?"
)
_CHANGES_TO = re.compile(r"(?P<to>\s(?:to|auf|à|a|en|на)\s{1,2})")
_SAYS_NOTHING = re.compile(r"(?<![\u3040-\u9fff])(?:\s(?:от|для)\s\w{1,20}| карты)?\s{1,2}|(?<=[\u3040-\u9fff])\s?")
_REVERSED = re.compile(
    r"(?:^|[\s\"'`])([^\s\x00\"'`]{7,40})[\"'`]?\s(?:is|was|as|ist|war|als|est|es|como)"
    r"\s(?:my|our|his|her|their|the|mein|unser|das|mon|notre|le|mi|la)\s(?:[\w-]{1,20}\s){0,2}\Z",
    re.IGNORECASE,
)

_MAX_VALUE = 128
"""As far as a value is read before it is known for a secret."""

_MAX_BEFORE = 60

_QUOTES = ('""', "''", "``", "\u201c\u201d", "\u201e\u201c", "\u00ab\u00bb", "\u2018\u2019", "\u300c\u300d")
_QUOTED = re.compile(
    "|".join(rf"{a}(?![\s)\]}},;:])((?:[^{a}{b}\n\x00\\]|\\(?!{b})){{1,200}})\\?{b}(?![A-Za-z0-9])" for a, b in _QUOTES)
)
_RUN = re.compile(
    r"[\"'`]?([^\s\x00\"'`<>,;\\\u201c-\u201f\u00ab\u00bb\u2018\u2019\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff01-\uff1f]+)"
)
"""A value without quotes, or with one that is never closed."""

_CUT = re.compile(r"[&)\]}]|=(?=[\w.])")
_PIN = re.compile(r"(?:\d{4,12}|\d(?:[ -]\d){3,7}|\d\d[ -]\d\d)(?![A-Za-z0-9_]|[.:/-]\d)")
_PHRASE = re.compile(r"[^\W\d_]{2,14}(?:[ -][^\W\d_]{2,14}){3,23}(?=[.!]?\s*(?:\Z|[\n\"'`,;(]))")
_ENDED = re.compile(
    r"[)\]}*]{0,3}(?:\s*(?:\Z|[\n\r,;|<&#(\u3001\u3002\uff0c\uff1b])|[\"'`\u201d\u00bb](?!\w)|[.!?](?:\s|\Z)|\s-{1,2}\w)"
)
_CONSTANT = re.compile(r"[A-Z][A-Z_]*\d{0,2}")
_UNIT = re.compile(
    r"\s?-?(?:char|digit|bit|byte|day|year|time|user|account|zeichen|stell|caract|символ|знак|位|文字|%)"
)
_ALONE = re.compile(r"(?:^|[\n?&;]|--|\bexport )[\w.-]*\Z")
_PUBLIC = re.compile(r"(?::|(?:page|public_?key|design|continuation)[_ -]?)\Z")
_POSTAL = re.compile(r"address|postal|street|road|nagar|district")
_CHANGED = re.compile(r"\b(?:set\b|chang|reset|updat|rotat|switch|geändert|setz|mis\b|cambi|помен|смен|измен)")

_STRONG = re.compile(r"\d{4,}|(?=.{5})(?:.*\d.*|.+[!@#$%^&*+=~|?].+)")
"""No word: by digits, or by punctuation inside it."""

_CAPITALS = re.compile(r"(?=.{8}).*[a-z][A-Z].*")

_STRONGER = re.compile(r"(?=.{7})(?=.*\d)(?=.*[^\W\d])(?![A-Z]{2,}\d+\Z).*")
_WEAK = re.compile(r"(?=.{4,40}\Z)(?![a-z]+(?:-[a-z]+){1,2}\Z)[^\W\d_]{2,}(?:[-_.][^\W\d_]+)*")
_TICKET = re.compile(r"[A-Z]{2,6}-\d+")
_LONG_NUMBER = re.compile(r"\d{10,}")
_PUBLIC_ID = re.compile(r"[0-9a-f]{40}|[0-9A-F]{16,40}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PART = re.compile(r"[A-Za-z0-9]{6,}")
_TURN = re.compile(r"[a-z][A-Z]")
_LONG = 16

REFERENCE = re.compile(
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
    |(?:sha-?\d{1,3}|aes-?\d{3}|md5|rsa-?\d{4}|3?des|base\d\d|utf-?\d\d?|argon2|pbkdf2|oauth2|rot13|[hre]s\d{3}|ed\d{3,5}
    |x509|blake\d|tls1|ipv\d|http\d|rfc-?\d{3,4}|v\d+|s3|ec2|k8s|i18n|bcrypt|1password|lastpass|keepass\w*|bitlocker|icloud
    |onedrive|github|gitlab|postgresql|(?:java|type)script|(?:camel|pascal)case|wordpress|paypal|youtube|2fa|mfa)
    (?:[-_/].*|[a-z]{0,4})""",
    re.IGNORECASE | re.VERBOSE,
)
"""What stands in a secret's place and is none: a variable, a mask, an address, a path, a date, an amount, a method."""

_STEM = re.compile(
    r"passw(?:or[dt]|d)|pass(?:phrase|code|\d?\Z)|_pass|pwd|secret|token|_key|key_|\Akey|apikey|(?-i:[a-z0-9]Key)|param"
    r"|value|input|field|contrase|парол",
    re.IGNORECASE,
)
_CALL = re.compile(r"[a-z_$@*&][\w$]*(?:(?:\.|->|::|\?\.)[a-z_$][\w$]*)*[(\[].*", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"[a-z_$*&][\w$]*(?:(?:\.|->|::|\?\.)[a-z_$][\w$]*)+", re.IGNORECASE)
_IDENTIFIER = re.compile(r"[a-z_$*&][a-z_$]*(?:\d?|\d+[a-z_$]+)", re.IGNORECASE)

_NO_SECRETS = frozenset(
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
_DIGIT = re.compile(r"\d")
_WORDS = re.compile(r"[^\W\d_]+")
_MAX_WORDS = 8
_SEED_WORDS = (12, 15, 18, 21, 24)
"""How many words a wallet's seed has (BIP 39)."""

_SHORTEST = {"sign": 6, "bare": 20}
_SHORTEST_IN_PROSE = 8
_SHORTEST_IN_LIST = 16


class _Said(NamedTuple):
    """Hold what is said to be a secret, and how: what joins it to its name, and what stands around it."""

    kind: str
    way: str
    value: str
    quoted: bool = True
    plural: bool = False
    ended: bool = True
    assigned: bool = False
    alone: bool = True


def kind_under(name: str, value: str) -> str:
    """Return the kind of secret that a value is under a key of that name; an empty string if it is none."""
    low = _lower(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[:_MAX_VALUE]))
    last = len(low.rstrip("s_0123456789"))
    word = next((match.group() for match in _NAME.finditer(low) if match.end() >= last), "")
    kind = _kind_of(word) if word else ""
    return kind if kind and _is_secret(_Said(kind, "sign", value.strip()[:_MAX_VALUE])) else ""


def names_secret(value: str) -> bool:
    """Say whether a value only names what should stand in its place: `password`, `your_token`."""
    return bool(_NAME.search(_lower(value))) and not _DIGIT.search(value)


def statements(text: str) -> Iterator[Span]:
    """Find the values that a text states to be passwords, PINs, keys or tokens, from left to right."""
    low = _lower(text)
    at = 0
    while name := _NAME.search(low, at):
        at = name.end()
        joints = (joint.match(low, at) for joint in (_CHANGES_TO, _SAYS, _SAYS_NOTHING))
        spans = (_said(text, low, name, joint) for joint in joints if joint)
        span = next((span for span in spans if span), None) or _said_before(text, low, name)
        if span:
            at = max(at, span.end)
            yield span


def _lower(text: str) -> str:
    return text.replace("\u0130", "i").lower()  # the one letter that is two in lower case: places must stay


@lru_cache(maxsize=1024)
def _kind_of(name: str) -> str:
    return next(kind for kind, names in _KINDS.items() if names.fullmatch(name))


def _said(text: str, low: str, name: re.Match[str], link: re.Match[str]) -> Span | None:
    """Return the value that a name and what joins it to the value state, if it is a secret."""
    at = link.end()
    quoted = _QUOTED.match(text, at)
    value = quoted or _RUN.match(text, at, at + _MAX_VALUE)
    if not value:
        return None
    kind = _kind_of(name.group())
    parts = link.groupdict("")
    way = next((way for way in ("sign", "verb", "dash", "call", "to") if parts.get(way)), "bare")
    if _is_about_else(text, low, name, way):
        return None
    phrase = _PHRASE.match(text, at) if kind in _CHOSEN and way in ("sign", "verb") else None
    if phrase and _is_phrase(phrase.group().lower().split(), kind, way):
        return Span(*phrase.span(), kind)
    start, end = value.span(value.lastindex or 0)
    assigned = "=" in parts.get("sign", "")
    whole = True
    if not quoted and kind == "pin":
        pin = _PIN.match(text, start)
        end = pin.end() if pin else start
    elif not quoted:
        cut = _CUT.search(text, start, end) if assigned else None
        whole = bool(cut) or end < at + _MAX_VALUE
        end = _trimmed(text, start, cut.start() if cut else end)
    said = _Said(
        kind,
        way,
        text[start:end],
        quoted=bool(quoted),
        plural=low.startswith("s", name.end()) or name.group() == "clave",
        ended=(assigned or parts.get("gap", "") in (" ", "  ")) and bool(_ENDED.match(text, end)),
        assigned=assigned,
        alone=not assigned or bool(_ALONE.search(low, max(0, name.start() - _MAX_BEFORE), name.start())),
    )
    if not _is_secret(said) or (said.value.isdigit() and _UNIT.match(low, end)):
        return None
    if not whole:  # only here: a run that is refused is not read to its end, so that none is read twice
        end = _trimmed(text, start, cast("re.Match[str]", _RUN.match(text, at)).end())
    return Span(start, end, kind)


def _trimmed(text: str, start: int, end: int) -> int:
    """Return where a value ends without the punctuation of the sentence it stands in."""
    return start + len(text[start:end].rstrip(".:)]}*\u2026"))


def _said_before(text: str, low: str, name: re.Match[str]) -> Span | None:
    """Return the value of `hunter2 is my password`."""
    if low[name.start() - 1 : name.start()] != " " or not _ENDED.match(low, name.end()):
        return None
    start = max(0, name.start() - 2 * _MAX_BEFORE)
    value = _REVERSED.search(text, start, name.start())
    kind = _kind_of(name.group())
    if not value or kind not in _CHOSEN or not _is_secret(_Said(kind, "bare", value[1], quoted=False)):
        return None
    return Span(*value.span(1), kind)


def _is_about_else(text: str, low: str, name: re.Match[str], way: str) -> bool:
    """Say whether a name is a verb, or what stands before it speaks against a statement."""
    start = max(0, name.start() - _MAX_BEFORE)
    if way == "to":
        return not _CHANGED.search(low, start, name.start())
    if way == "bare" and name.group() in ("pin", "pass") and not text.startswith("PIN", name.start()):
        return True
    if name.group() == "pass" and text.startswith("PASS", name.start()) and low[name.start() - 1 : name.start()] != "_":
        return True  # of a test
    if _PUBLIC.search(low, start, name.start()):
        return True
    return name.group().startswith("pin") and bool(_POSTAL.search(low, start, name.start()))


def _is_phrase(words: list[str], kind: str, way: str) -> bool:
    if kind == "passphrase" and len(words) in _SEED_WORDS:
        return True
    about = _NO_SECRETS.intersection(words) or _NAME.search(" ".join(words))
    plain = not about and without_function_words(words) == words
    return plain and len(words) <= _MAX_WORDS and (kind == "passphrase" or way == "sign") and words[0][-2:] != "ly"


def _is_secret(said: _Said) -> bool:
    """Say whether what is said to be a secret looks like one, rather than like a word about it."""
    value = said.value
    numbered = bool(_DIGIT.search(value))
    if not numbered and _NO_SECRETS.intersection(_WORDS.findall(value.casefold())):
        return False
    if said.kind == "pin":
        alike = bool(_PIN.fullmatch(value))
    elif said.kind not in _CHOSEN:
        alike = _is_drawn(said)
    else:
        alike = _is_chosen_phrase(said, numbered=numbered) if " " in value else _is_chosen(said)
    return alike and not REFERENCE.fullmatch(value) and (said.quoted or not _is_code(said, numbered=numbered))


def _is_code(said: _Said, *, numbered: bool) -> bool:
    """Say whether a value is a call, a subscript, an attribute, or a name that says it holds a secret."""
    if _CALL.fullmatch(said.value):
        return True
    if _ATTRIBUTE.fullmatch(said.value):
        return said.assigned or not numbered or bool(_STEM.search(said.value))
    return bool(_IDENTIFIER.fullmatch(said.value) and _STEM.search(said.value))


def _is_drawn(said: _Said) -> bool:
    value = said.value
    named = _is_camel_name(value) or _CONSTANT.fullmatch(value) or (said.way == "bare" and _PUBLIC_ID.fullmatch(value))
    if " " in value or named:
        return False
    if _LONG_NUMBER.fullmatch(value):
        return said.way == "sign" and said.kind.endswith("key")
    shortest = _SHORTEST_IN_LIST if said.plural else _SHORTEST.get(said.way, _SHORTEST_IN_PROSE)
    return len(value) >= shortest and is_mixed(value)


def _is_camel_name(value: str) -> bool:
    """Say whether a value names what holds a secret, as programs do: `userPassword`, `V1SecretVolume`."""
    return value.isidentifier() and bool(_TURN.search(value) and _STEM.search(value))


def is_mixed(value: str) -> bool:
    """Say whether digits and letters are mixed within a part, or small and capital letters within a long one."""
    mixed = any(not part.isalpha() and not part.isdigit() for part in _PART.findall(value))
    return mixed or (len(value) >= _LONG and len(_TURN.findall(value)) > len("aB"))


def _is_chosen(said: _Said) -> bool:
    value = said.value
    if _is_camel_name(value) and not _DIGIT.search(value):
        return False
    if _STRONG.fullmatch(value) or (_CAPITALS.fullmatch(value) and (said.ended or said.way != "sign")):
        if said.way == "bare":
            return said.kind == "access code" or bool(_STRONGER.fullmatch(value) and not _TICKET.fullmatch(value))
        return said.way == "sign" or not _TICKET.fullmatch(value)
    if said.kind == "access code" or _STEM.search(value) or _NAME.fullmatch(value.lower()):
        return False
    if said.quoted:
        return said.way in ("sign", "verb") and len(value) > len("bar")
    weak = said.way == "sign" and said.ended and not said.plural and said.alone and _WEAK.fullmatch(value)
    return bool(weak) and not any(value.lower() in words for words in FUNCTION_WORDS.values())


def _is_chosen_phrase(said: _Said, *, numbered: bool) -> bool:
    """Say whether several words in quotes are a password: a label or a sentence about one has function words."""
    words = said.value.casefold().split()
    plain = numbered or without_function_words(words) == words
    stated = said.way in ("sign", "verb") and len(words) <= _MAX_WORDS and said.value[-1] not in "?:"
    return stated and plain and not _NAME.search(_lower(said.value))
