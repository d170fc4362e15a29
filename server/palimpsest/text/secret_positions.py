"""Find secrets by where they stand: after an option of a command, in a header, in the column of a table, in an answer.

Nothing near such a value needs to say what it is. What the place says instead is in the tables below. Each function
reads a bounded stretch of text for what it has found, so the time is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from palimpsest.text.secret_statements import (
    CHOSEN_KINDS,
    NAME,
    PIN,
    Span,
    Statement,
    is_placeholder,
    is_secret,
    kind_of,
    looks_random,
    lower_case,
)
from palimpsest.text.stopwords import FUNCTION_WORDS
from palimpsest.text.word_lists import LazyPattern

_PLAIN = r"[^\s\"'`|;&<>(){}\x00,]"
_VALUE = rf"(?:\"([^\"\n\x00]{{3,128}})\"|'([^'\n\x00]{{3,128}})'|((?:{_PLAIN}|[(){{}},](?=[^\s\"'`])){{3,128}}))"
_USER = r"[\"']?[\w.@+\\/-]{1,64}"
_IN_PAIR = r"([^\s\"'`|;<>\x00]{3,128})"
"""What stands after a user's name and a colon, in quotes or not."""


def _option(names: str) -> str:
    """Return the pattern of a value after one of these short options, with white space, "=" or nothing between."""
    return rf"(?<=\s)-(?:{names})(?:=|\s{{1,4}})?{_VALUE}"


def _separate(names: str) -> str:
    """Return the same for options that are never joined with their value."""
    return rf"(?<=\s)-(?:{names})(?:=|\s{{1,4}}){_VALUE}"


_NAMES_OF_OTHERS = r"(?:user|name|host|port|url|db|database|region|email)"
_LOGIN = _separate("p")
_COMMANDS = (
    # of each row: commands, and where the secret stands in the rest of the command
    ("curl", rf"(?<=\s)(?:-[a-zA-Z]{{0,5}}[uU]|--user|--proxy-user)(?:=|\s{{1,4}})?{_USER}:{_IN_PAIR}"),
    ("curl", r"(?<=\s)(?:-b|--cookie)(?:=|\s{1,4})?[\"']?[\w.-]{1,64}=([^\s\"';]{6,})"),
    ("curl", rf"--(?:pass|proxy-pass|oauth2-bearer|tlspassword)(?:=|\s{{1,4}}){_VALUE}"),
    ("http https xh", rf"(?<=\s)(?:-a|--auth)(?:=|\s{{1,4}})?{_USER}:{_IN_PAIR}"),
    ("mysql mysqldump mysqladmin mysqlimport mysqlcheck mysqlsh mariadb mariadb-dump mycli", rf"(?<=\s)-p{_VALUE}"),
    ("sshpass", _option("p")),
    ("login", _LOGIN),
    ("mongosh mongo mongodump mongorestore mongoexport mongoimport mongostat", _separate("p")),
    ("redis-cli", _separate("a")),
    ("snmpwalk snmpget snmpset snmpbulkwalk snmptrap", _separate("[AX]")),
    ("zip unzip zipcloak ipmitool", _separate("P")),
    ("7z 7za 7zz", rf"(?<=\s)-p{_VALUE}"),
    ("rar unrar", rf"(?<=\s)-h?p{_VALUE}"),
    ("sqlcmd bcp osql isql tsql mosquitto_pub mosquitto_sub", _option("P")),
    (
        "htpasswd htdigest",
        rf"(?<=\s)-[a-zA-Z]{{0,5}}b[a-zA-Z]{{0,5}}(?:\s+-\w+)*\s+[^\s-]\S{{0,200}}\s+\S{{1,64}}\s+{_VALUE}",
    ),
    ("htpasswd", rf"(?<=\s)-(?:n[a-zA-Z]{{0,4}}b|b[a-zA-Z]{{0,4}}n)[a-zA-Z]{{0,4}}\s+\S{{1,64}}\s+{_VALUE}"),
    ("ldapsearch ldapadd ldapmodify ldapdelete ldapwhoami ldappasswd", _option("w")),
    (
        "smbclient smbmap rpcclient net crackmapexec winexe wmiexec",
        rf"(?<=\s)(?:-U|--user)(?:=|\s{{1,4}})?{_USER}%{_IN_PAIR}",
    ),
    ("smbmap crackmapexec evil-winrm rdesktop freerdp steghide psexec psexec64 PsExec PsExec64", _separate("p")),
    ("xfreerdp wfreerdp mstsc", rf"(?<=\s)/p:{_VALUE}"),
    ("lftp ncftp ncftpget ncftpput", rf"(?<=\s)-u\s{{1,4}}{_USER},{_IN_PAIR}"),
    ("openssl", rf"(?<=[\s\"'])pass:{_VALUE}"),
    ("openssl", _separate("k")),
    ("keytool jarsigner", rf"(?<=\s)-(?:storepass|keypass|srcstorepass|deststorepass|new)\s{{1,4}}{_VALUE}"),
    ("rclone nmcli", rf"(?<=\s)(?:pass|password|psk|[\w.-]{{1,40}}\.psk)(?:=|\s{{1,4}}){_VALUE}"),
    ("wpa_passphrase", rf"\s+(?:\"[^\"\n]{{1,64}}\"|'[^'\n]{{1,64}}'|\S{{1,64}})\s+{_VALUE}"),
    (
        "kubectl oc",
        rf"--from-literal(?:=|\s)[\"']?(?!(?:user|name|host|port|url|db|database|region"
        rf"|email)\w{{0,8}}=)[\w.-]{{1,80}}={_VALUE}",
    ),
    ("rabbitmqctl", rf"\s(?:add_user|change_password|authenticate_user)\s+\S{{1,64}}\s+{_VALUE}"),
    ("useradd usermod", _separate("p")),
    ("gh glab", rf"\ssecret\s+set\s[^\n]{{0,80}}?\s(?:-b|--body)(?:=|\s{{1,4}}){_VALUE}"),
    ("aws", rf"\sset\s+\S{{0,40}}(?:secret|token)\S{{0,40}}\s+{_VALUE}"),
    ("cf", rf"\sauth\s+\S{{1,64}}\s+{_VALUE}"),
    ("net", rf"\suser\s+[\w.-]{{1,64}}\s+(?!/){_VALUE}"),
    ("net", rf"\suse\s[^\n]{{0,100}}/(?i:user):\S{{1,64}}\s+(?!/){_VALUE}"),
    ("net", rf"\suse\s+(?:[A-Za-z*]:?\s+)?\\\\\S{{1,100}}\s+(?!/){_VALUE}"),
    ("schtasks", rf"(?<=\s)/(?i:rp|p)\s{{1,4}}{_VALUE}"),
    ("sqlplus impdp expdp sqlldr rman", r"\s[\w.-]{1,64}/([^\s\"'`|;<>@/\x00]{3,128})(?=[@\s]|\Z)"),
    (
        "dotnet",
        rf"\suser-secrets\s+set\s+[\"']?[\w:.-]{{0,60}}(?i:password|secret|key|token"
        rf"|pwd)[\w:.-]{{0,20}}[\"']?\s+{_VALUE}",
    ),
    ("ssh-keygen", _separate("[NP]")),
    ("security", rf"-password\s[^\n]{{0,200}}?(?<=\s)-w\s{{1,4}}{_VALUE}"),
    ("rsync lastpass bw op", rf"(?<=\s)--password(?:=|\s{{1,4}}){_VALUE}"),
    ("WITH USER ROLE IDENTIFIED", r"(?i:(?:\sBY|\sPASSWORD)\s+)'([^'\n]{3,128})'"),
)
_OPTIONS: dict[str, list[LazyPattern]] = {}
for _names, _pattern in _COMMANDS:
    for _name in _names.split():
        _OPTIONS.setdefault(_name, []).append(LazyPattern(_pattern))

_COMMAND = LazyPattern(
    rf"(?<![\w./=-])(?:[\w./~-]{{0,80}}/)?({'|'.join(sorted(map(re.escape, _OPTIONS), key=len, reverse=True))})(?=\s)"
)
_END_OF_COMMAND = LazyPattern(r"(?<!\\)\n|\s\|{1,2}\s|\s?&&|;\s|;$")
_MAX_COMMAND_CHARS = 400

_LONG_OPTION = LazyPattern(
    rf"(?<![\w-])--?(?:[a-z\d]{{1,20}}-){{0,4}}(?:password|passwd|passphrase|passwort|pass|pwd|psk)(?:="
    rf"|\s{{1,4}}){_VALUE}"
)
_VARIABLE = LazyPattern(
    r"(?<![A-Za-z\d])(?:[A-Z\d]{1,30}_){0,6}(?:[A-Z\d]{0,30}(?:PASSWORD|PASSWD|PASSPHRASE)|(?:DB|PG|FTP|SSH"
    r"|SMTP|MAIL|ROOT)?PASS"
    rf"|PWD|REDISCLI_AUTH)=(?!=){_VALUE}"
)
_PIPED = LazyPattern(
    rf"\b(?:echo|printf)\s+(?:-\w+\s+|'%s(?:\\n)?'\s+)?(?:{_VALUE})\s*\|\s*(?:sudo\s+(?:-\w+\s+)*-\w*S|[^\n"
    rf"|]{{0,80}}--?password-stdin"
    r"|(?:sudo\s+)?passwd\s+--stdin|(?:sudo\s+)?cryptsetup|[^\n|]{0,60}--passphrase-fd\s?0)"
)
_PIPED_PAIR = LazyPattern(
    rf"\b(?:echo|printf)\s+(?:-\w+\s+)?[\"']?[\w.-]{{1,64}}:{_IN_PAIR}[\"']?\s*\|\s*(?:sudo\s+)?chpasswd"
)
_HERE_STRING = LazyPattern(rf"\bsudo\s+(?:-\w+\s+){{0,4}}-\w*S\b[^\n|]{{0,60}}<<<\s?{_VALUE}")
_PROSE_WORDS: frozenset[str] = frozenset[str]().union(
    *(FUNCTION_WORDS[language] for language in ("en", "de", "fr", "es")),
    ("asks", "takes", "prompts", "warns", "reads", "means", "sets", "expects", "needs", "wants", "gives", "requires"),
    ("uses", "option", "options", "flag", "flags", "argument", "arguments", "switch", "param", "parameter", "value"),
    ("values", "works", "tells", "lets", "fehlt", "fragt", "erwartet", "nimmt"),
)
"""Words that show that an option is spoken of, and not given."""

_HEADER = LazyPattern(r"(?<![\w-])(?:set-)?cookie2?\s?:\s?(?=[\w.-]{1,64}=)([^\n\"']{1,4000})", re.IGNORECASE)
_COOKIE = LazyPattern(r"(?:(?<=[:;])|(?<=[:;]\s))([\w.-]{1,64})=([^\s;,]{8,4000})")
_COOKIE_ATTRIBUTES = (
    "path",
    "domain",
    "expires",
    "max-age",
    "samesite",
    "priority",
    "version",
    "lang",
    "language",
    "theme",
)
_AUTHORIZATION = LazyPattern(
    r"authorization[\"']?\s?[:=]\s?[\"']?(?:basic|digest|apikey|negotiate)\s([A-Za-z\d+/_=-]{8,2000})", re.IGNORECASE
)
_WIFI = LazyPattern(r"WIFI:(?=[^\n]{0,300};;)[^\n]{0,200}?\bP:((?:\\.|[^\\;\n]){3,80});")
_OTPAUTH = LazyPattern(r"otpauth://[^\s\"'<>]{1,300}?[?&]secret=([A-Za-z2-7]{8,200})")
_SECOND_FACTOR = LazyPattern(
    r"(?<![a-z])(?:totp|otp|2fa|mfa|two[- ]factor|second factor|authenticator|authy|zwei-?faktor|zweiter? faktor|"
    r"double authentification|doble factor|двухфактор|аутентификатор|验证器"
    r"|二段階|認証アプリ|einmalpass|2-step|setup key)"
)
_SEED = LazyPattern(
    r"(?<![A-Za-z\d+/_=-])(?:(?=[A-Z2-7]{0,63}[2-7])[A-Z2-7]{16,64}"
    r"|(?=(?:[A-Z]{4}[ -]){0,15}[A-Z]{0,3}[2-7])(?:[A-Z2-7]{4}[ -]){3,15}[A-Z2-7]{4}"
    r"|(?=(?:[a-z]{4}[ -]){0,8}[a-z]{0,3}[2-7])(?:[a-z2-7]{4}[ -]){3,15}[a-z2-7]{4})={0,6}(?![A-Za-z\d+/_-])"
)
_MAX_BEFORE_SEED = 80
_CARD = LazyPattern(
    r"(?<![\w.+/-])(?:[2-6]\d{3}([ -]?)\d{4}\1\d{4}\1\d{4}|3[47]\d{2}([ -]?)\d{6}\2\d{5})(?![\w]|[.,/-]\d|[ -]\d{2})"
)
_CARD_WORDS = LazyPattern(
    r"card|visa|master|amex|karte|carte|tarjeta|cartão|carta di|kaart|kort|karta|карт|カード|卡|카드|بطاقة|כרטיס",
    re.IGNORECASE,
)
_CODES = LazyPattern(
    r"(?:(?:backup|recovery|rescue|emergency|wiederherstellungs|notfall|ersatz)[ -]?codes?"
    r"|codes? de (?:secours|récupération)|códigos? de (?:respaldo|recuperación)|резервн\w{1,3} код\w{0,2}"
    r"|备用验证码|バックアップコード)[^\n:=\d]{0,40}"
    r"(?:[:=\uff1a]|\n(?=\s{0,3}\S[^\n]{0,30}\n))"
    r"(?P<codes>(?:(?:[\s,;]|[-*•]\s|\d\d?[.)]\s){1,4}"
    r"(?:\d{4}[ ]\d{4}|[a-z\d]{4,6}(?:-[a-z\d]{4,6}){1,3}|\d{6,10}|(?=[a-z]{0,12}\d)[a-z\d]{8,12})(?![\w-])){1,20})"
)
_CODE = LazyPattern(r"\d{4} \d{4}|(?=[^\s,;]*\d)[a-z\d-]{6,}")
_SIX_DIGITS = LazyPattern(r"(?<![\w-])\d{6}(?:-\d{6}){7}(?![\w-])")
"""The layout of a recovery key of BitLocker."""

_PASSWORD_FILE_LINE = LazyPattern(
    r"(?<![^\s\"'`])(?:[\w-]{1,60}(?:\.[\w-]{1,60}){0,8}|\*):(?:\d{2,5}"
    r"|\*):[\w*-]{1,60}:[\w.@*-]{1,60}:([^\s:\"'`\x00]{3,128})(?!\S)"
)
"""A line of `.pgpass`: host, port, database, user, password."""

_READS = LazyPattern(
    r"(?:kennwort|passwort)(?:\s[^\s.,:;!?]{1,30}){0,5}?\s(?:lautet|ist(?=\s\S{4,60}\sund\s?(?:der|mein|dein"
    r"|euer|unser)?\s?"
    r"(?:benutzer|nutzer|login|username)))\s(?!(?:wie|anders|immer|noch|jetzt|nun|also|folgender\w*|nicht|seit)\b)"
    r"[\"'„“»]?([^\s\"'`,;:<>()\x00„“»«]{4,60})"
)
"""A password that is a word, in German: "lautet" says nothing but a value, and a user's name stands beside another."""

_LOCK_WORDS = (
    # English; German; French; Spanish; Italian; Swedish, Danish and Norwegian; Dutch; Polish
    r"(?:safe|strongbox|alarm|padlock|lock|locker|door|gate|garage|suitcase|key ?safe|key ?box|lockbox|shed|intercom"
    r"|tresor|alarmanlage|haustür|wohnungstür|tür|tor|fahrradschloss|zahlenschloss|schloss|koffer|schließfach|spind"
    r"|coffre(?:-fort)?|alarme|porte|portail|cadenas|immeuble|antivol|valise|garaje"
    r"|caja fuerte|alarma|puerta|portal|candado|maleta|portón"
    r"|cassaforte|allarme|porta|portone|cancello|lucchetto|valigia"
    r"|larmet|porten|dörren|ytterdörren|kassaskåpet|cykellåset|låset|grinden|alarmen|døren|pengeskabet|hengelåsen"
    r"|kluis|deur|voordeur|poort|fietsslot|slot|hangslot"
    r"|sejfu?|alarmu|drzwi|bramy|furtki|domofonu|kłódki|roweru)"
)
_CODE_WORDS = (
    r"(?:codes?|combination|combo|kombination|zahlenkombination|zahlencode|combinaison|combinación|clave"
    r"|código|codice|combinazione|kod|koden|kode|combinatie|cijfercode|szyfr)"
)
_LOCK_VALUE = (
    r"((?:#?\d{3,8}[#*]?|(?=[a-z]{0,6}\d)(?=\d{0,6}[a-z])[a-z\d]{4,8}|\d{1,2}(?:\s?[-\u2013.]\s?\d{1,2}){2,4}"
    r"|(?:\d ){2,7}\d)"
    r"(?![\w:/-]|[.,]\d|\s?(?:[€$£%]|(?:eur|usd|sek|kr|zł|euros?|mm|cm|kg|m|km|h|days?|people|words)\b)))"
)
_OTHER_WORD = r"[^\s.,;:!?=\d]{1,16}"
_ELIDED = r"(?:[a-z]{1,4}['\u2019])?"
_LOCK_CODES = LazyPattern(
    # "the code for the garage is 4711"
    rf"(?<![\w-])(?<!pin ){_CODE_WORDS}\s(?:{_OTHER_WORD}\s){{0,4}}?{_ELIDED}{_LOCK_WORDS}(?![^\W_])"
    rf"(?:\s{_OTHER_WORD}){{0,3}}?"
    r"(?:\s?[:=\u2013\u2014-]|,?\s(?:is|are|was|ist|lautet|est|c['\u2019]est|es|è|é|är|er|to|jest|to jest"
    r"|is nu))\s{1,2}"
    rf"(?:(?:now|jetzt|nu|maintenant|ahora|teraz|ora)\s)?{_LOCK_VALUE}"
    # "portkoden hos farmor är 1745"
    rf"|(?<![^\W_])(?:port|dörr|larm|grind|lås|tür|tor|haus|garagen)[ck]ode?(?:n)?(?:\s{_OTHER_WORD}){{0,3}}?"
    rf"(?:\s?[:=]|\s(?:är|er|ist|lautet))\s{{1,2}}{_LOCK_VALUE}"
    # "the safe opens with 4711", "the lock is set to 417", "the lift needs 5591 typed in"
    rf"|(?<![^\W_]){_LOCK_WORDS}(?![^\W_])(?:\s{_OTHER_WORD}){{0,5}}?\s"
    r"(?:(?:opens?|opened|unlocks?|unlocked|disarms?|disarmed|(?:geht|lässt sich) (?:auf )?|öffnet(?: sich)?"
    r"|s['\u2019]ouvre|se abre|si apre|öppnas|åpnes|åbnes|gaat open|opent|otwiera się)\s?"
    rf"(?:with|by|on|using|mit|avec|con|med|met|kodem|na)\s(?:{_OTHER_WORD}\s){{0,2}}?"
    r"|(?:is |are )?set to\s|(?:you\s)?(?:punch|type|key|tap|dial|enter)(?: in)?\s|needs\s(?=\S{3,8} (?:typed"
    r"|punched|keyed)))"
    rf"{_LOCK_VALUE}"
    # "6152 gets you into the garage"
    rf"|(?<![\w.,-]){_LOCK_VALUE}\s(?:gets you (?:in|into|through)|opens|unlocks|disarms)\s(?:{_OTHER_WORD}\s){{0,3}}?"
    rf"{_LOCK_WORDS}(?![^\W_])"
    # "bike lock: 3-7-1", "locker combination is 12-34-8", "locker at the gym, combination 12-28-06"
    r"|(?<![^\W_])(?:(?:safe|padlock|(?:bike|bicycle|combination|suitcase|locker)[ -]lock|fahrradschloss"
    rf"|zahlenschloss|cadenas|candado|lucchetto|cykellåset|fietsslot)(?:\s{_CODE_WORDS})?"
    rf"|{_LOCK_WORDS}[ -]{_CODE_WORDS}|(?:phone|screen|tablet|laptop|ipad) unlock(?: code)?)"
    rf"(?:\s?[:=]|\s(?:is|ist|est|es|è|är))\s{{1,2}}{_LOCK_VALUE}"
    rf"|(?<![^\W_]){_LOCK_WORDS}(?![^\W_])(?:\s{_OTHER_WORD}){{0,4}}?,\s{_CODE_WORDS}\s{_LOCK_VALUE}"
)
"""The code of a lock: "the code for the garage is …", "the safe opens with …", "bike lock: …"."""

_IDENTITY_NAMES = (
    r"(?i:personal (?:identity |id )?number|personnummer|personnr|samordningsnummer|fødselsnummer|cpr-?(?:nummer|nr)"
    r"|henkilötunnus|social security (?:number|no)|ssn|national insurance (?:number|no)|ni number"
    r"|national id(?: number)?"
    r"|steuer-?id(?:entifikationsnummer)?|sozialversicherungsnummer|rentenversicherungsnummer|svnr|ahv-?nummer"
    r"|numéro (?:de )?(?:sécurité sociale|sécu)|número de (?:la )?seguridad social|dni|codice fiscale|cpf"
    r"|burgerservicenummer|bsn|pesel|numer pesel|rodné číslo)"
)
_IDENTITY = LazyPattern(
    rf"(?<![^\W_]){_IDENTITY_NAMES}(?![^\W_])"
    rf"(?:,?(?:\s{_OTHER_WORD}){{0,5}}?)(?:\s?[:=#\u2013\u2014-])?\s{{1,2}}"
    r"((?=(?:\D{0,4}\d){5})(?:[A-Z]{1,6}[ -]?)?\d[\dA-Z]*(?:[ ./+-]?(?=[A-Z]{0,3}\d)[\dA-Z]{1,10}){0,8}"
    r"(?:[ -]?[A-Z](?![\w]))?)(?!\w)"
)
_TAX_CODE = LazyPattern(r"(?<![A-Za-z\d])[A-Z]{6}\d\d[A-EHLMPRST]\d\d[A-Z]\d{3}[A-Z](?![A-Za-z\d])")
"""The layout of an Italian tax code, which no other word has."""

_CARD_CODE = LazyPattern(
    r"(?<![a-z])(?:cvv2?|cvc2?|cvn|prüfziffer|kartenprüfnummer|cryptogramme|security code|código de seguridad)(?![a-z])"
    r"(?:\s?(?:is|ist|est|es|:|=|—|-)?\s{0,2})(\d{3,4})(?![\w.-])"
    r"|digits on the back(?: of (?:the|my|our) (?:\w{1,12} )?card)?\s(?:are|is)\s(?P<back>\d{3,4})(?!\d)"
)
_LOGIN_PAIR = LazyPattern(
    r"(?<![a-z])(?:(?:вход|anmeldung|log(?:in|ged in|[ -]?on)?|sign(?:ed)? in)"
    r"(?:\s(?:as|with|is|mit|als|avec|con))?\s?[:=]?\s[\"'`]?[\w.@+-]{1,64}(?:\s[/:]\s|:)|(?:credentials|creds"
    r"|zugangsdaten|anmeldedaten|identifiants|credenciales|credenziali"
    r"|логин и пароль)(?:\s(?:are|is|sind|sont|son|sono))?\s?[:=]?\s[\"'`]?[\w.@+-]{1,64}\s?[/:]\s?)"
    r"(?=[^\s\"'`]{0,40}\d)(?=[^\s\"'`]{0,40}[A-Za-z])([^\s\"'`/,;<>\x00]{6,60})"
)
_ANSWER = LazyPattern(
    r"(?!\s?(?:manager|polic|field|reset|length|strength|hint|prompt|hash|file|generator|feature"
    r"|rule))[^\n?\uff1f\x00]{0,60}[?\uff1f][\s\"'\u00bb\u00ab\u201c\u201d\u2013\u2014>*_-]{0,12}"
    r"(?:[^\W\d_][\w .-]{0,20}[:\uff1a]\s{0,2})?[\"'\u00bb\u00ab\u201c]?"
    r"(?:(?:sure|yes|ok|okay|ja|oui|sí|si|да|klar|of course)[,.!:]?\s)?"
    r"(?:(?:it|that)(?:['\u2019]s|\sis)|it was|(?:das|es) ist|c['\u2019]est|es|è|é|это|to|to jest"
    r"|het is|det är|det er|se on|je to)?\s{0,2}[:]?\s{0,2}"
    r"[\"'`\u00ab\u201c\u201e*]{0,2}([^\s\"'`,;<>()\x00\u201c-\u201f\u00ab\u00bb*]{4,60})",
    re.IGNORECASE,
)
_STRONG_ANSWER = LazyPattern(r"(?=.*\d)(?=.*[^\W\d_]).{5,}|.*[^\W\d_][!@#$%^&*+=~|].+|.*[a-z][A-Z].*")
_QUOTED_PASS = LazyPattern(r"[\"']pass[\"']\s?:\s?[\"']((?=[^\"'\n]{0,60}[\d!@#$%^&*A-Z])[^\"'\n]{4,60})[\"']")


def placed_secrets(text: str) -> Iterator[Span]:
    """Yield the secrets that their place makes known; they may overlap."""
    low = lower_case(text)
    yield from _in_commands(text)
    yield from _in_headers(text, low)
    yield from _second_factors(text, low)
    yield from _cards(text, low)
    yield from _identity_numbers(text)
    for match in _LOCK_CODES.finditer(low):
        group = match.lastindex or 0
        yield Span(*match.span(group), "access code")
    yield from _in_tables(text)
    yield from _answers(text, low)
    for match in _CODES.finditer(low):
        for code in _CODE.finditer(low, *match.span("codes")):
            yield Span(*code.span(), "recovery code")
    for match in _SIX_DIGITS.finditer(text):
        yield Span(*match.span(), "recovery key")
    for match in _PASSWORD_FILE_LINE.finditer(text):
        yield from _chosen(text, match, "password")
    if "wort" in low:
        for match in _READS.finditer(low):
            yield from _chosen(text, match, "password")
    for match in _LOGIN_PAIR.finditer(low):
        yield from _chosen(text, match, "password")
    if "pass" in low:
        for match in _QUOTED_PASS.finditer(text):
            yield from _chosen(text, match, "password")


def _in_commands(text: str) -> Iterator[Span]:
    commands = list(_COMMAND.finditer(text))
    for command, following in pairwise([*commands, None]):
        if command is None:
            continue
        limit = min(command.end() + _MAX_COMMAND_CHARS, len(text) if following is None else following.start())
        stop = _END_OF_COMMAND.search(text, command.end(), limit)
        end = stop.start() if stop else limit
        for pattern in _OPTIONS[command[1]]:
            for match in pattern.finditer(text, command.end(), end):
                yield from _given(text, match, end)
    for pattern in (_LONG_OPTION, _PIPED, _PIPED_PAIR, _HERE_STRING):
        for match in pattern.finditer(text):
            yield from _given(text, match, match.end() + 40)
    for match in _VARIABLE.finditer(text):
        for span in _chosen(text, match, "password"):
            if is_secret(Statement("password", "sign", text[span.start : span.end])):
                yield span


def _given(text: str, match: re.Match[str], end: int) -> Iterator[Span]:
    """Yield the value of an option, unless the option is only spoken of."""
    for span in _chosen(text, match, "password"):
        value = text[span.start : span.end]
        spoken = text[span.start : min(end, span.end + 60)].partition("#")[0].split()[:5]
        is_word = value.isalpha() and (value.islower() or value.istitle())
        if not (is_word and any(word.strip(".,").lower() in _PROSE_WORDS for word in spoken)):
            yield span


def _chosen(text: str, match: re.Match[str], kind: str) -> Iterator[Span]:
    """Yield the group of a match that is a value, unless something stands in its place."""
    number = match.lastindex or 0
    start, end = match.span(number)
    if number and text[start - 1 : start] not in ("'", '"'):
        end = start + len(text[start:end].rstrip(".,:`)]}\"'"))
    value = text[start:end]
    if end - start >= len("abc") and not value.startswith("-") and not is_placeholder(value):
        yield Span(start, end, kind)


def _in_headers(text: str, low: str) -> Iterator[Span]:
    if "cookie" in low:
        for header in _HEADER.finditer(text):
            for cookie in _COOKIE.finditer(text, header.start(1), header.end(1)):
                if cookie[1].lower() not in _COOKIE_ATTRIBUTES and not is_placeholder(cookie[2]):
                    yield Span(*cookie.span(2), "cookie")
    if "uthorization" in low:
        for match in _AUTHORIZATION.finditer(text):
            yield from _chosen(text, match, "token")
    for match in _WIFI.finditer(text):
        yield from _chosen(text, match, "password")


def _second_factors(text: str, low: str) -> Iterator[Span]:
    for match in _OTPAUTH.finditer(text):
        yield Span(*match.span(1), "totp secret")
    named = [match.end() for match in _SECOND_FACTOR.finditer(low)]
    if not named:
        return
    seeds = _SEED.finditer(text)
    place = 0
    for seed in seeds:
        while place + 1 < len(named) and named[place + 1] <= seed.start():
            place += 1
        if 0 <= seed.start() - named[place] <= _MAX_BEFORE_SEED:
            yield Span(*seed.span(), "totp secret")


def _cards(text: str, low: str) -> Iterator[Span]:
    for match in _CARD.finditer(text):
        is_grouped = bool(match[1] or match[2])
        around = text[max(0, match.start() - 60) : match.end() + 30]
        if _is_card_number(match[0]) and (is_grouped or _CARD_WORDS.search(around)):
            yield Span(*match.span(), "card number")
    for match in _CARD_CODE.finditer(low):
        yield Span(*match.span(match.lastindex or 0), "card code")


def _identity_numbers(text: str) -> Iterator[Span]:
    """Yield the numbers by which a state knows a person; those of passports and bank accounts are shown and stay."""
    for match in _IDENTITY.finditer(text):
        yield Span(*match.span(1), "identity number")
    for match in _TAX_CODE.finditer(text):
        yield Span(*match.span(), "identity number")


def _is_card_number(number: str) -> bool:
    """Return whether the last digit is that of a card number (Luhn, ISO/IEC 7812)."""
    digits = [int(char) for char in number if char.isdigit()][::-1]
    doubled = (2 * digit - 9 * (digit > 4) for digit in digits[1::2])  # noqa: PLR2004 - twice 5 has two digits
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0 and len(set(digits)) > 1


# --- Tables

_SEPARATORS = "|\t;,"
_RULE = LazyPattern(r"[\s|:+=-]*-[\s|:+=-]*")
_MAX_HEADER_CHARS = 300
_OF_LOGIN = LazyPattern(
    r"(?:user|login|log-in|account|e-?mail|host|server|service|site|website|url|system|device|network|ssid"
    r"|wi-?fi|wlan|app|konto"
    r"|benutzer|nutzer|dienst|gerät|netz|seite|name|nom|utilisateur|compte|serveur|usuario|cuenta|servidor"
    r"|utente|gebruiker"
    r"|użytkownik|uživatel|логин|пользователь|сервис|сайт|用户|账号|ユーザー|サービス|사용자|계정|アカウント).{0,20}"
)
"""What else heads a column where there are passwords in another."""


def _in_tables(text: str) -> Iterator[Span]:
    """Yield the values in a column that is headed by the name of a secret, in Markdown and in CSV."""
    if "\n" not in text or not NAME.search(lower_case(text)):
        return
    columns: list[tuple[int, str]] = []
    separator, width, place, is_login = "", 0, 0, False
    for line in text.split("\n"):
        start, place = place, place + len(line) + 1
        cells = _cells(line, start, separator) if separator else []
        if columns and len(cells) == width:
            if not _RULE.fullmatch(line):
                for column, kind in columns:
                    yield from _in_cell(text, *cells[column], kind, is_login=is_login)
            continue
        columns, separator, is_login = [], "", False
        if len(line) > _MAX_HEADER_CHARS:
            continue
        for sign in _SEPARATORS:
            if sign not in line:
                continue
            cells = _cells(line, start, sign)
            found = [(number, _kind_of_column(text[a:b])) for number, (a, b) in enumerate(cells)]
            columns = [(number, kind) for number, kind in found if kind]
            if columns and len(cells) > 1:
                separator, width = sign, len(cells)
                is_login = any(_OF_LOGIN.fullmatch(lower_case(text[a:b])) for a, b in cells)
                break
            columns = []


def _cells(line: str, start: int, separator: str) -> list[tuple[int, int]]:
    """Return where the cells of a line begin and end, without the white space, quotes and marks around them."""
    begin, end = start, start + len(line)
    if separator == "|":
        stripped = line.strip()
        if stripped.startswith("|"):
            begin = start + line.index("|") + 1
        if stripped.endswith("|") and len(stripped) > 1:
            end = start + line.rindex("|")
    cells: list[tuple[int, int]] = []
    at = begin
    for part in line[begin - start : end - start].split(separator):
        left = len(part) - len(part.lstrip(" \t\r\"'`*"))
        cells.append((at + left, max(at + left, at + len(part.rstrip(" \t\r\"'`*")))))
        at += len(part) + 1
    return cells


def _kind_of_column(heading: str) -> str:
    """Return the kind of secret in a column, or "". The name must be all of the heading but for a word or two."""
    low = lower_case(heading.strip())
    name = NAME.search(low)
    if name is None or len(low.split()) > 3 or len(low) > 40:  # noqa: PLR2004 - "wifi password (guest)"
        return ""
    rest = low[name.end() :].strip("s ")
    return kind_of(name.group()) if not rest or rest.startswith("(") else ""


def _in_cell(text: str, start: int, end: int, kind: str, *, is_login: bool) -> Iterator[Span]:
    value = text[start:end]
    if not value or is_placeholder(value) or len(value) > 128 or not value.strip("-\u2013\u2014x*. "):  # noqa: PLR2004
        return
    if kind == "pin":
        if PIN.fullmatch(value):
            yield Span(start, end, kind)
    elif kind in CHOSEN_KINDS and " " not in value:
        statement = Statement(kind, "sign", value, quoted=True)
        is_likely = _STRONG_ANSWER.fullmatch(value) or (is_login and value.lower() not in _PROSE_WORDS)
        if is_likely and is_secret(statement):
            yield Span(start, end, kind)
    elif kind not in CHOSEN_KINDS and looks_random(value) and is_secret(Statement(kind, "sign", value)):
        yield Span(start, end, kind)


# --- Questions and their answers


def _answers(text: str, low: str) -> Iterator[Span]:
    """Yield what answers a question for a secret, in the same line or the next."""
    if "?" not in text and "\uff1f" not in text:
        return
    end = 0
    for name in NAME.finditer(low):
        if name.start() < end:
            continue
        kind = kind_of(name.group())
        answer = _ANSWER.match(text, name.end(), name.end() + 220)
        if answer is None:
            continue
        start = answer.start(1)
        stop = start + len(answer[1].rstrip(".,:!?"))
        value = text[start:stop]
        if kind == "pin":
            fits = bool(PIN.fullmatch(value))
        elif kind in CHOSEN_KINDS:
            fits = bool(_STRONG_ANSWER.fullmatch(value)) or (kind == "access code" and value.isdigit())
        else:
            fits = looks_random(value) and len(value) >= 12  # noqa: PLR2004 - a generated one is longer
        if fits and is_secret(Statement(kind, "verb", value)):
            yield Span(start, stop, kind)
            end = stop
