"""The words by which people and programs call a secret, in some thirty languages."""

from __future__ import annotations

import re
from functools import lru_cache

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
    "passphrase": r"pass[ _-]?phrase|seed[ _-]phrase|recovery phrase|phrase (?:de passe|secrète)|кодовая фраза"
    r"|парольная фраза|パスフレーズ|助记词",
    "api key": r"api[ _-]?(?:key|secret|token|schlüssel|ключ\w{0,2}|キー|密[钥鑰])|clé (?:d['\u2019])?api"
    r"|clave (?:de )?(?:la )?api|ключ\w{0,2} (?:от )?api",
    "private key": r"private[ _-]?key|privater schlüssel|clé privée|clave privada|приватн\w{2} ключ|закрыт\w{2} ключ"
    r"|私钥|秘密鍵",
    "secret key": r"secret[ _-]?(?:access[ _-]?)?key|access[ _-]?key|auth[ _-]?key|account[ _-]?key|encryption[ _-]?key"
    r"|signing[ _-]?key|master[ _-]?key|subscription[ _-]?key|geheimer schlüssel|clé secrète|clave secreta"
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

NAME = re.compile("|".join(_NAMES.values()))
"""Any name of a secret, in text from `lower_case`."""

_KINDS = {kind: re.compile(names) for kind, names in _NAMES.items()}


@lru_cache(maxsize=1024)
def kind_of(name: str) -> str:
    """Return the kind of secret that a match of `NAME` stands for."""
    return next(kind for kind, names in _KINDS.items() if names.fullmatch(name))


def lower_case(text: str) -> str:
    """Return a text in lower case, with every character at the same place."""
    return text.replace("\u0130", "i").lower()  # the only letter whose lower case is two characters long
