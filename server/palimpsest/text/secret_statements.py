"""Find statements of a secret, such as `my password is …`, `API_KEY=…` or `пароль: …`, by the words before the secret.

A statement is a name for a kind of secret (see `secret_names`), a joint that connects the name to a value (a sign, a
verb, a dash, or nothing), and the value. `secret_values` decides whether the value is a secret.

After each name a bounded stretch of text is read, and no value is read twice. The time is linear in the length of the
text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, cast

from palimpsest.text.stopwords import FUNCTION_WORDS, without_function_words
from palimpsest.text.word_lists import LazyPattern

# The words by which people and programs call a secret, in some thirty languages.

LOCAL_NAMES = (
    # Dutch, Polish, Czech and Slovak, Swedish, Danish and Norwegian, Finnish, Hungarian, Turkish, Romanian
    r"wachtwoord(?:en)?|hasł(?:o|a|em|u)|hesl(?:o|a|em|u)(?![a-zà-ž])|lösenord(?:et)?|adgangskode[nr]?|kodeord(?:et)?"
    r"|passord(?:et)?|salasana(?:ni|mme|n)?|jelsz(?:ó|av(?:am|unk|a)?)|parola(?:m|m\u0131z|s\u0131|n)?(?![a-zà-ž])"
    r"|şifre(?:m|miz|si|n)?"
    # Portuguese, Catalan, Croatian and Serbian, Lithuanian, Estonian, Indonesian, Vietnamese
    r"|palavra-passe|contrasenya|senha|lozink[aeu]|лозинк\w|slaptažod(?:is|žio|į)|parool(?:i)?(?![a-z])|kata sandi"
    r"|mật khẩu"
    # Greek, Hebrew, Arabic, Persian, Hindi, Bengali, Thai, Korean
    r"|κωδικ(?:ός|ό|ού)(?: πρόσβασης)?|συνθηματικό|סיסמ(?:ה|ת|א|תי)|كلمة (?:المرور|السر)|رمز عبور|पासवर्ड|পাসওয়ার্ড"
    r"|รหัสผ่าน|비밀\s?번호|비번|패스워드"
)
"""Names of passwords whose languages have joints of their own, and join no adjectives by hyphens."""

_NAMES = {
    "passphrase": r"pass[ _-]?phrase|seed[ _-](?:phrase|words)|recovery words|recovery phrase|phrase (?:de passe|secrète)|кодовая фраза"
    r"|парольная фраза|パスフレーズ|助记词",
    "api key": r"api[ _-]?(?:key|secret|token|schlüssel|ключ\w{0,2}|キー|密[钥鑰])|clé (?:d['\u2019])?api"
    r"|clave (?:de )?(?:la )?api|ключ\w{0,2} (?:от )?api",
    "private key": r"private[ _-]?key|privater schlüssel|clé privée|clave privada|приватн\w{2} ключ|закрыт\w{2} ключ"
    r"|私钥|秘密鍵",
    "secret key": r"secret[ _-]?(?:access[ _-]?)?key|access[ _-]?key|auth[ _-]?key|account[ _-]?key|encryption[ _-]?key"
    r"|signing[ _-]?key|pre-?shared[ _-]?key|master[ _-]?key|subscription[ _-]?key|geheimer schlüssel|clé secrète|clave secreta"
    r"|секретн\w{2} ключ|密[钥鑰]|秘钥|シークレットキー",
    "access code": r"door[ -]code|s(?<![a-z]s)afe[ -]code|tresor-?code"
    r"|c(?<![a-z]c)ode (?:for|of|to) (?:the|our|my) (?:[a-z]{1,12} )?(?:door|gate|safe|alarm|lock|garage)"
    r"|g(?<![a-z]g)ate[ -]code|alarm[ -]code|entry[ -]code|access[ -]code|garage[ -]code"
    r"|l(?<![a-z]l)ock[ -]code|türcode|zugangscode|alarmcode|digicode|code d['\u2019]accès|code (?:secret|de la porte)"
    r"|解錠番号|código (?:secreto|de acceso|de la puerta|de la alarma)|код от (?:двери|домофона|подъезда|сейфа|ворот)",
    "pin": r"p(?<![a-z]p)in(?:[ _-]?(?:code|number|nummer))?(?:码|碼|コード)?(?![a-z])|geheimzahl"
    r"|p(?<![a-z]p)uk(?:[ -]?code)?(?![a-z])|п(?<!\wп)ин(?:[ -]?код\w{0,2})?(?!\w)|暗証番号",
    "password": r"pass[ _-]?wor[dt]|passwd|passcode|kennwort|passwörter|kennwörter"
    r"|mots? de passe|m(?<![a-z]m)dp(?![a-z\d])|clave"
    r"|contrase(?:ñ|n\u0303?)a|парол(?:ь|я|и|ю|ем?)|密[码碼]|口令|パスワード|パスコード|pwd|p(?<![a-z]p)w(?![a-z])|p(?<![a-z]p)sk(?![a-z])"
    rf"|{LOCAL_NAMES}|парола|wi-?fi[ -]key|cl(?:é|ef) (?:du )?wi-?fi|chiave (?:del )?wi-?fi"
    r"|wlan-?schlüssel|p(?:(?<![^_/;(|,\n-]p)|(?<=[,;|(/] p))ass(?![a-z])|p(?<![a-z]p)ass(?==)",
    "token": r"token|bearer|authorization|токен\w{0,2}|jeton|令牌|トークン",
    "secret": r"secret(?![a-z])|シークレット",
}
"""The names of each kind of secret in lower-case text, in the order they are tried.

Every alternative begins with a letter, and looks behind only after it. The search can then skip all characters with
which no name begins."""

NAME = LazyPattern("|".join(_NAMES.values()))
"""Any name of a secret, in text from `lower_case`."""

_KINDS = {kind: LazyPattern(names) for kind, names in _NAMES.items()}


@lru_cache(maxsize=1024)
def kind_of(name: str) -> str:
    """Return the kind of secret that a match of `NAME` stands for."""
    return next(kind for kind, names in _KINDS.items() if names.fullmatch(name))


def lower_case(text: str) -> str:
    """Return a text in lower case, with every character at the same place."""
    return text.replace("\u0130", "i").lower()  # the only letter whose lower case is two characters long


# Decide whether a value that is stated to be a secret is one.
#
# People write far more about secrets than they write secrets ("the password is required"). So a value must look like
# a secret, and the weaker its connection to the name is, the more so.

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


PIN = LazyPattern(r"(?:\d{4,12}|\d(?:[ -]\d){3,7}|\d\d[ -]\d\d)(?![A-Za-z0-9_]|[.:/-]\d)")
_CONSTANT = LazyPattern(r"[A-Z][A-Z_]*\d{0,2}")

_STRONG = LazyPattern(r"\d{4,}|(?=.{5})(?:.*\d.*|.+[!@#$%^&*+=~|?].+)")
"""A value that is not a word, because it has digits or has punctuation inside."""

_CAPITALS = LazyPattern(r"(?=.{8}).*[a-z][A-Z].*")

_STRONGER = LazyPattern(r"(?=.{7})(?=.*\d)(?=.*[^\W\d])(?![A-Z]{2,}\d+\Z).*")
"""What a value without a joint must look like. Without it, an ordinary word with a digit could follow the name."""

_WEAK = LazyPattern(r"(?=.{4,40}\Z)(?![a-z]+(?:-[a-z]+){1,2}\Z)[^\W\d_]{2,}(?:[-_.][^\W\d_]+)*")
"""A word that can be a password, but only after a sign and at the end of a clause."""

_COMPOUND = LazyPattern(r"[^\W\d_]{3,20}(?:[-_][^\W\d_]{3,20}){1,4}")
_TICKET = LazyPattern(r"[A-Z]{2,6}-\d+")
_LONG_NUMBER = LazyPattern(r"\d{10,}")
_PUBLIC_ID = LazyPattern(r"[0-9a-f]{40}|[0-9A-F]{16,40}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
"""A SHA-1 hash, a key's fingerprint or a UUID."""

_PART = LazyPattern(r"[A-Za-z0-9]{6,}")
_CASE_CHANGE = LazyPattern(r"[a-z][A-Z]")

_MIN_LETTERS_ONLY = 16
_MIN_CASE_CHANGES = 3
"""A value of letters only looks random from this length and number of case changes on. Identifiers in camel case are
shorter or have fewer words."""

NOT_A_SECRET = LazyPattern(
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

_STEM = LazyPattern(
    r"passw(?:or[dt]|d)|pass(?:phrase|code|\d?\Z)|_pass|pwd|secret|token|_key|key_|\Akey|apikey|(?-i:[a-z0-9]Key)|param"
    r"|value|input|field|contrase|парол",
    re.IGNORECASE,
)
"""What the name of a variable for a secret contains."""

_CALL = LazyPattern(r"[a-z_$@*&][\w$]*(?:(?:\.|->|::|\?\.)[a-z_$][\w$]*)*[(\[].*", re.IGNORECASE)
_ATTRIBUTE = LazyPattern(r"[a-z_$*&][\w$]*(?:(?:\.|->|::|\?\.)[a-z_$][\w$]*)+", re.IGNORECASE)
_IDENTIFIER = LazyPattern(r"[a-z_$*&][a-z_$]*(?:\d?|\d+[a-z_$]+)", re.IGNORECASE)

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

_DIGIT = LazyPattern(r"\d")
_WORDS = LazyPattern(r"[^\W\d_]+")
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


# Find the further values of a statement of a secret: `… is hunter2, and for the bank it's …`, `… are x1 and y2`.
#
# Whoever states one secret often states the next without its name. Such a value stands in a list with the one before
# it, or after words that say what else it is for ("for the bank it's", "celui du wifi est", "另一张卡的是"). It must look
# like a secret without any help: a word could be anything.
#
# A bounded stretch of text is read after each secret, so the time is linear in the length of the text.

_AND = r"(?:and|or|but|plus|while|und|oder|aber|sowie|et|ou|mais|puis|y|e|o|u|pero|и|или|а|но|then|also|dann|also|auch|también|тоже)"
_FOR = (
    r"(?:for|on|at|of|to|in|from|für|fürs|am|auf|im|in|bei|beim|vom|von|zum|zur|an|pour|sur|du|des|de|à|au|aux|para|en"
    r"|del|для|от|на|в|к|у|с)"
)
_ARTICLE = (
    r"(?:the|my|our|his|her|their|das|die|der|den|dem|mein\w{0,2}|unser\w{0,2}|le|la|les|l['\u2019]|el|los|las|mon|ma|mes"
    r"|mi|su)"
)
_OTHER = (
    r"(?:other|others|second|third|new|newer|old|older|last|ander\w{1,2}|zweit\w{1,2}|dritt\w{1,2}|neu\w{1,2}|alt\w{1,2}"
    r"|autre|seconde?|deuxième|nouve(?:au|lle)|ancien(?:ne)?|otr[oa]|segund[oa]|nuev[oa]|antigu[oa]|друг\w{2,3}|втор\w{2,3}"
    r"|нов\w{2,3}|стар\w{2,3})"
)
_THAT = r"(?:the one|that|those|das|der|die|celui|celle|ceux|la|el|los|las|тот|та|то)"
_MINE = r"(?:mine|ours|his|hers|theirs|yours|meins|seins|ihres|le mien|le sien|el mío|el suyo|мой|его|её)"
_WORD = r"[^\s,.;:!?=()<>\"\x00\u2013\u2014\uff0c\u3002\uff1a]{1,30}"

_LABEL = rf"(?:the\s{_WORD}\sone|(?:{_THAT}\s)?{_FOR}(?:\s{_WORD}){{1,4}}?|(?:{_ARTICLE}\s)?{_OTHER}(?:\s{_WORD}){{0,3}}?|{_MINE})"
"""What the further value is for, in a European language."""

_VERB_OF_NEXT = (
    r"(?:,?\s(?:(?:it|that|this)\s(?:is|was)|is|was|are|ist\ses|ist|war|lautet|c['\u2019]est|est|était|sont|es|era|son|это|был)"
    r"|,?\s(?:it|that)['\u2019]s)"
)
_EUROPEAN = LazyPattern(
    rf"(?:[\"'`*]{{0,3}}(?P<tail>\s(?:{_FOR}(?:\s{_WORD}){{1,4}}?|(?:as|als|comme|como)\s{_WORD}(?:\s{_WORD})?))?)"
    rf"(?P<stop>[.!?]?)(?P<list>(?:\s?[,;&/+])?(?:\s{_AND}\b){{0,2}}|\s(?=\())"
    rf"(?P<label>\s\(?{_LABEL})?(?P<verb>{_VERB_OF_NEXT})?(?P<sign>\s?[:=\u2013\u2014-](?=\s))?(?P<gap>\s{{1,2}})"
    r"(?P<value>[\"'`\u201c\u201e\u00ab]?(?=[^\s]{0,40}?\d)[^\s\"'`,;<>()\x00\u201c-\u201f\u00ab\u00bb\u3000-\u9fff]{4,60})",
    re.IGNORECASE,
)
_CJK = r"\u3040-\u30ff\u3400-\u9fff"
_EAST_ASIAN = LazyPattern(
    rf"(?:です|でした|だ)?\s?(?P<list>[,\uff0c\u3001;\uff1b\u3002]?\s?(?:で|と|や|和|以及|还有|跟|或者?|または|而)?[\u3001\uff0c]?)"
    rf"(?P<label>(?:[{_CJK}]|[A-Za-z-]){{0,12}}?(?:[的の](?:密码|密碼|パスワード)?|另一个|另一個))?"
    r"(?P<verb>是|为|為|は|が)?(?P<sign>\s?[:\uff1a])?\s?"
    r"(?P<value>[\"'`\u300c]?(?=[!-~]{0,40}?\d)[!-+\--:<-~]{4,60})"
)
_FOLLOWED_BY = LazyPattern(
    rf"[\"'`)\]*\u201d\u00bb\u300d]{{0,3}}(?:\s*\Z|\s*[\n,;)&/\u3001\u3002\uff0c\uff1b]|[.!?](?:\s|\Z)|\s(?:{_AND}|{_FOR})\b"
    rf"|[{_CJK}])",
    re.IGNORECASE,
)
_YEAR = LazyPattern(r"(?:19|20)\d\d")
_ASSIGNMENT = LazyPattern(r"[A-Za-z_][\w.-]{0,30}=[^=\s]")
"""Another option beside the one with the secret: "password=…,vers=3.0"."""

_LETTERS_THEN_DIGITS = LazyPattern(r"[A-Za-z]{1,5}\d{1,4}")
"""A room, a server, a model: too common beside a secret to be taken for another one."""

_MAX_CHARS = 200
"""How much of the text after a secret is read for the next: a clause is shorter."""


def further_secrets(text: str, end: int, kind: str, value: str) -> Iterator[tuple[int, int]]:
    """Yield the places of the values that follow a secret, which ends at `end`, and belong to the same statement."""
    while place := _next_value(text, end, kind, value):
        yield place
        end = place[1]


def _next_value(text: str, end: int, kind: str, before: str) -> tuple[int, int] | None:
    for pattern in (_EUROPEAN, _EAST_ASIAN):
        link = pattern.match(text, end, end + _MAX_CHARS)
        if link and _is_linked(link):
            opening = len(link["value"]) - len(link["value"].lstrip("\"'`\u201c\u201e\u00ab\u300c"))
            start = link.start("value") + opening
            stop = start + len(text[start : link.end("value")].rstrip(".:)]}*\u2026"))
            if _FOLLOWED_BY.match(text, stop) and _is_value(kind, text[start:stop], before, in_full=_is_in_full(link)):
                return start, stop
    return None


def _is_in_full(link: re.Match[str]) -> bool:
    """Return whether the text says what the value is for and that it is so: "for the bank it's …"."""
    return bool(link["label"] and (link["verb"] or link["sign"]))


def _is_linked(link: re.Match[str]) -> bool:
    """Return whether a value is said in full, or stands in a list with the secret before it."""
    if _is_in_full(link):
        return True
    if "stop" in link.groupdict() and link["stop"]:  # another sentence
        return False
    return bool(link["list"].strip()) and not link["verb"] and not link["sign"]


def _is_value(kind: str, value: str, before: str, *, in_full: bool) -> bool:
    """Return whether a value can be a further secret of this kind. Numbers follow only numbers."""
    if value.isdigit():
        fits = (kind == "pin" or before.isdigit()) and bool(PIN.fullmatch(value))
        return fits and (in_full or (len(value) == len(before) and not _YEAR.fullmatch(value)))
    if kind == "pin" or _TICKET.fullmatch(value) or _ASSIGNMENT.match(value):
        return False
    if kind in CHOSEN_KINDS and not in_full and _LETTERS_THEN_DIGITS.fullmatch(value):
        return False
    return is_secret(Statement(kind, "verb", value, quoted=False))


class Span(NamedTuple):
    """The place of a secret in a text, and its kind."""

    start: int
    end: int
    kind: str


_AFTER_NAME = (
    r"s?\d?(?:_(?:prod|production|dev|test|staging|live|main|root|admin|old|new|value|plain)\b)?"
    r"(?:\\?[\"'`]|\]|\*\*|__){0,3}"
    r"(?:\s\([^()\n\x00]{1,40}\)|\uff08[^\uff08\uff09\n\x00]{1,40}\uff09|\s(?:wi-?fi|wlan|admin|root"
    r"|server|router|ssh|gmail|google|apple|icloud|amazon|netflix|github|openai|paypal|windows"
    r"|antigu[oa]|anterior|nuev[oa]|actual|actuel)\b"
    r"| (?:for|of|to|on|at|in|from|für|fürs|vom|von|zum|zur|des|der|im|pour|du|de|del|della|dello|dell|do|da|para|en"
    r"|от|для|к|на|из|в|від|до"
    r"|that|which|i|we|you|he|she|they)"
    r"(?: (?:[^\s.,:;!?=\x00\"()<>]|[.:/](?=\w)){1,40}){1,5}?)??"
)
_SIGN = (
    r"\s{0,3}(?::\s?(?:str|string)\s?=|:=|=>|->|→|(?:!==?|={2,3})(?=\s?[\"'])|[:=\uff1a\uff1d](?![:=>~])"
    r"|>(?=[^<>\s]{1,100}</))"
)
_VERB = (
    r"\s?[\u2013\u2014]\s(?:это|c['\u2019]est)(?=\s)"
    r"|\s(?:is|was|will be|equals|are|were|ist|war|sind|waren|lautete?n?|heißt|heisst|est|était|sera|sont|étaient"
    r"|c['\u2019]est|es|era|será|son|eran|è|é|это|такой|был|теперь)(?:\s(?:either|now|still|currently"
    r"|set to|changed to|entweder|jetzt|nun|soit|maintenant|désormais|ahora|теперь))?"
    r"(?:\s?[:\uff1a]|(?=\s))"
    r"|,\s(?:c['\u2019]est|das ist|it['\u2019]s|it is)(?=\s)"
    r"|['\u2019]s(?=\s)|\s?已?(?:是|为|為|改成|改[为為]|设[为置]为?|設[為定]|[换換]成|は|が|を)[:\uff1a]?"
)
_JOINT = LazyPattern(
    rf"{_AFTER_NAME}(?:(?P<sign>{_SIGN})|(?P<verb>{_VERB})"
    r"|(?P<dash>\s?[\u2013\u2014]\s?|\s-{1,2}\s|\s\|\s)"
    r"|(?P<call>\((?=[\"'][^\"'\n]{1,100}[\"']\))))"
    r"(?:\*\*|__)?(?P<gap>\s{0,4})(?:\*\*|__)?(?:(?:bearer|basic|token)\s)?(?:[rbfu@](?=[\"']))?\\?"
)
"""What can stand between a name and its value, by the kind of joint. `gap` is the white space before the value."""

_LOCAL_JOINT = LazyPattern(
    r"(?:\s?\([^()\n\x00]{1,40}\))?(?:\s[^\s.,:;!?=\x00\"()<>]{1,30}){0,6}?"
    rf"(?:(?P<sign>{_SIGN})|(?P<verb>\s(?:is|was|luidt|to jest|to|jest|brzmi|je|znie|zní|er|är|on|este|e|é|és|yra|είναι"
    r"|adalah|là|คือ|है|হল|হলো|هي|هو|است|היא|הוא)(?:\s?[:\uff1a]|(?=\s))|\s?(?:คือ|은|는|이|가)[:\uff1a]?(?=\s))|(?P<dash>\s?[\u2013\u2014]\s))"
    r"(?P<gap>\s{0,4})"
)
"""The same for names in `LOCAL_NAMES`."""

_LOCAL_NAME = LazyPattern(LOCAL_NAMES)
_CHANGED_TO = LazyPattern(r"(?P<to>\s(?:to|auf|à|a|en|на)\s{1,2})")
_NO_JOINT = LazyPattern(r"(?<![\u3040-\u9fff])(?:\s(?:от|для|від|до)\s\w{1,20}| карты)?\s{1,2}|(?<=[\u3040-\u9fff])\s?")
_VALUE_BEFORE_NAME = LazyPattern(
    r"(?:^|[\s\"'`])([^\s\x00\"'`]{7,40})[\"'`]?\s(?:is|was|as|ist|war|als|est|es|como)"
    r"\s(?:my|our|his|her|their|the|mein|unser|das|mon|notre|le|mi|la)\s(?:[\w-]{1,20}\s){0,2}\Z",
    re.IGNORECASE,
)


_MAX_VALUE_CHARS = 128
"""How much of a value is read before it is known to be a secret. Only a secret is then read to its end."""

_MAX_CONTEXT_CHARS = 60
"""How much of the text before a name is read. It is enough for the clause that the name belongs to."""

_QUOTES = ('""', "''", "``", "\u201c\u201d", "\u201e\u201c", "\u00ab\u00bb", "\u2018\u2019", "\u300c\u300d")
_QUOTED = LazyPattern(
    "|".join(rf"{a}(?![\s)\]}},;:])((?:[^{a}{b}\n\x00\\]|\\(?!{b})){{1,200}})\\?{b}(?![A-Za-z0-9])" for a, b in _QUOTES)
)
_RUN = LazyPattern(
    r"[\"'`]?([^\s\x00\"'`<>,;\\\u201c-\u201f\u00ab\u00bb\u2018\u2019\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff01-\uff1f]+)"
)
"""A value without quotes, or with an opening quote only."""

_END_OF_ASSIGNED_VALUE = LazyPattern(r"[&)\]}]|=(?=[\w.])")
_PHRASE = LazyPattern(r"[^\W\d_]{2,14}(?:[ -][^\W\d_]{2,14}){3,23}(?=[.!]?\s*(?:\Z|[\n\"'`,;(]))")
_WORDS_IN_A_ROW = LazyPattern(r"[a-z]{3,8}(?: [a-z]{1,8}){11,27}")
_END_OF_CLAUSE = LazyPattern(
    r"[)\]}*]{0,3}(?:\s*(?:\Z|[\n\r,;|<&#(\u3001\u3002\uff0c\uff1b])|[\"'`\u201d\u00bb](?!\w)|[.!?](?:\s|\Z)|\s-{1,2}\w)"
)
_UNIT = LazyPattern(
    r"\s?-?(?:char|digit|bit|byte|day|year|time|user|account|zeichen|stell|caract|символ|знак|位|文字|%)"
)
_START_OF_ASSIGNMENT = LazyPattern(r"(?:^|[\n?&;]|--|\bexport )[\w.-]*\Z")
_PUBLIC = LazyPattern(r"(?::|(?:page|public_?key|design|continuation)[_ -]?)\Z")
"""What makes a name one of something public: a page token, a public key, a design token, a label inside a key."""

_POSTAL = LazyPattern(r"address|postal|street|road|nagar|district")
"""Words of an address, in which PIN is the Indian postal code."""

_CHANGED = LazyPattern(r"\b(?:set\b|chang|reset|updat|rotat|switch|geändert|setz|mis\b|cambi|помен|смен|измен)")


def secret_kind(key: str, value: str) -> str:
    """Return the kind of secret that a value under this key is, or an empty string if it is none."""
    low = lower_case(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key[:_MAX_VALUE_CHARS]))
    key_end = len(low.rstrip("s_0123456789"))  # the name must end the key: `password_hint` holds no password
    name = next((match.group() for match in NAME.finditer(low) if match.end() >= key_end), "")
    kind = kind_of(name) if name else ""
    return kind if kind and is_secret(Statement(kind, "sign", value.strip()[:_MAX_VALUE_CHARS])) else ""


def stated_secrets(text: str) -> Iterator[Span]:
    """Yield the values that a text states to be passwords, PINs, keys or tokens, from left to right."""
    low = lower_case(text)
    position = 0
    while name := NAME.search(low, position):
        position = name.end()
        patterns = (_CHANGED_TO, _JOINT, _LOCAL_JOINT if _LOCAL_NAME.fullmatch(name.group()) else _JOINT, _NO_JOINT)
        joints = (pattern.match(low, position) for pattern in dict.fromkeys(patterns))
        spans = (_value_after_name(text, low, name, joint) for joint in joints if joint)
        span = next((span for span in spans if span), None) or _value_before_name(text, low, name)
        if span:
            yield span
            position = max(position, span.end)
            for start, end in further_secrets(text, position, span.kind, text[span.start : span.end]):
                yield Span(start, end, span.kind)
                position = end


def _value_after_name(text: str, low: str, name: re.Match[str], link: re.Match[str]) -> Span | None:
    """Return the place of the value that follows a name and the text `link`, if it is a secret."""
    position = link.end()
    quoted = _QUOTED.match(text, position)
    value = quoted or _RUN.match(text, position, position + _MAX_VALUE_CHARS)
    if not value:
        return None
    kind = kind_of(name.group())
    parts = link.groupdict("")
    joint = next((joint for joint in ("sign", "verb", "dash", "call", "to") if parts.get(joint)), "bare")
    if _is_other_use(text, low, name, joint):
        return None
    phrase = _PHRASE.match(text, position) if kind in CHOSEN_KINDS and joint in ("sign", "verb") else None
    if phrase is None and kind == "passphrase" and joint in ("sign", "verb"):
        words = _WORDS_IN_A_ROW.match(text, position)
        count = wallet_words(words.group().lower().split()) if words else 0
        if words and count:
            return Span(position, position + len(" ".join(words.group().split(" ")[:count])), kind)
    if phrase and is_phrase(phrase.group().lower().split(), kind, joint):
        return Span(*phrase.span(), kind)
    start, end = value.span(value.lastindex or 0)
    assigned = "=" in parts.get("sign", "")
    complete = True
    if not quoted and kind == "pin":
        pin = PIN.match(text, start)
        end = pin.end() if pin else start
    elif not quoted:
        cut = _END_OF_ASSIGNED_VALUE.search(text, start, end) if assigned else None
        complete = bool(cut) or end < position + _MAX_VALUE_CHARS
        end = _without_punctuation(text, start, cut.start() if cut else end)
    statement = Statement(
        kind,
        joint,
        text[start:end],
        quoted=bool(quoted),
        plural=low.startswith("s", name.end()) or name.group() == "clave",
        ended=(assigned or parts.get("gap", "") in (" ", "  ")) and bool(_END_OF_CLAUSE.match(text, end)),
        assigned=assigned,
        local=bool(_LOCAL_NAME.fullmatch(name.group())) or name.group().startswith("contrase"),
        alone=not assigned or bool(_START_OF_ASSIGNMENT.search(low, *_before(name, _MAX_CONTEXT_CHARS))),
    )
    if not is_secret(statement) or (statement.value.isdigit() and _UNIT.match(low, end)):
        return None
    if not complete:  # a value that is no secret is not read to its end, so that no text is read twice
        end = _without_punctuation(text, start, cast("re.Match[str]", _RUN.match(text, position)).end())
    return Span(start, end, kind)


def _without_punctuation(text: str, start: int, end: int) -> int:
    """Return where a value ends without the punctuation of the sentence around it."""
    return start + len(text[start:end].rstrip(".:)]}*\u2026"))


def _before(name: re.Match[str], chars: int) -> tuple[int, int]:
    """Return the bounds of the text before a name, at most `chars` long."""
    return max(0, name.start() - chars), name.start()


def _value_before_name(text: str, low: str, name: re.Match[str]) -> Span | None:
    """Return the place of the value in statements such as `hunter2 is my password`."""
    if low[name.start() - 1 : name.start()] != " " or not _END_OF_CLAUSE.match(low, name.end()):
        return None
    value = _VALUE_BEFORE_NAME.search(text, *_before(name, 2 * _MAX_CONTEXT_CHARS))
    kind = kind_of(name.group())
    if not value or kind not in CHOSEN_KINDS or not is_secret(Statement(kind, "bare", value[1], quoted=False)):
        return None
    return Span(*value.span(1), kind)


def _is_other_use(text: str, low: str, name: re.Match[str], joint: str) -> bool:
    """Return whether a name is a verb, the result of a test, or a name of something public."""
    word, (start, end) = name.group(), _before(name, _MAX_CONTEXT_CHARS)
    if joint == "to":
        return not _CHANGED.search(low, start, end)
    if joint == "bare" and word in ("pin", "pass") and not text.startswith("PIN", end):
        return True  # a verb
    if word == "pass" and text.startswith("PASS", end) and low[end - 1 : end] != "_":
        return True  # the result of a test
    if _PUBLIC.search(low, start, end):
        return True
    return word.startswith("pin") and bool(_POSTAL.search(low, start, end))
