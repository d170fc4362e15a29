"""Recognize what models write where they have nothing to say: "None", "N/A", "No relevant facts found.", "-"."""

from __future__ import annotations

import re

from palimpsest.core.validation import NO_VALUES
from palimpsest.text.stopwords import FUNCTION_WORDS

NOTHING = NO_VALUES | {"", "nothing", "na", "no", "false", "not applicable", "unknown"}
"""What stands for a missing value, in lower case."""

MAX_CHARS = 200
"""What is longer says something."""

MAX_BARE_WORDS = 3
"""How many words say nothing without naming what there is none of, as in "Not available"."""

_NO, _OF_WHAT, _BESIDE, _TELLING, _USER = (
    tuple(words.split())
    for words in (
        # words for "no" and "nothing"
        """no none nothing not nil null nan n/a na zero without kein keine keinen keiner keines nichts nicht ohne
        aucun aucune rien pas sans ningún ningun ninguna ninguno nada sin nessun nessuna nessuno niente nulla
        non senza nenhum nenhuma não sem geen niets niet zonder inga ingen inget inte ingenting utan brak
        żadnych żadne żaden nic nie bez нет ничего никаких не отсутствует отсутствуют""",
        # beginnings of words for what there is none of
        """fact fakt fait hecho fatt fato feit факт informa инфор detail détail detalj szczeg dato donnée dados
        daten memor mémoire souvenir recuerdo ricord erinnerung herinner minne wspomn воспомин preferen präferen
        voorkeur предпочт conversa gespräch unterhaltung gesprek samtal rozmow разговор messag mensaje mensage
        nachricht bericht meddelan wiadomo сообщен instruc anweisung dialog""",
        # beginnings of words that stand beside these
        """releva pertinent istot релевант neu new nouve nuev nuov nov nieuw nya nytt now нов importan wichtig
        belangrijk viktig ważn важн found find gefunden trouv encontr trovat gevonden hitta znalez найд extra
        wyodręb извле available verfügbar vorhanden disponib beschikbaar tillgäng dostęp имеет доступ applica
        zutreffend aplic toepass tillämp dotyczy применим remember store keep save worth note useful specific
        person additional further significan notable meaningful last identif mention provid shar state given
        present contain say said chang reveal disclos merk speicher garder retenir guardar recordar ricordare
        lembrar onthouden spara zapamięt запомн сохран persönlich key actionable détecté erkannt rilevant
        relativ""",
        # beginnings of words for what a user does with information
        "shar provid mention stat reveal disclos gave give contain",
        "user users human speaker nutzer benutzer utilisateur usuario usuário utente gebruiker пользователь",
    )
)
_FUNCTION_WORDS = frozenset[str]().union(*FUNCTION_WORDS.values()).difference(_NO)

_UNSPACED = re.compile(
    r"(?:暂?无|没有|未(?:发现|找到|提取到?)|不存在)(?:任何|可以?|新的?|相关的?|重要的?|有用的?|值得记[住录]的?|提取的?|用户的?|个人)*"
    r"(?:事实|信息|记忆|内容|偏好)?(?:可?(?:提取|记录|记住))?|不适用|空|未知"  # Chinese
    r"|(?:(?:関連|該当)する|新しい|重要な|記憶すべき|特に|該当)*(?:事実|情報|記憶|もの|内容)?(?:は|が|も)?"
    r"(?:なし|無し|ない|ありません(?:でした)?|見つかりません(?:でした)?)|不明"  # Japanese
    r"|(?:(?:관련된?|해당(?:되는)?|새로운|중요한|기억할|저장할)\s?)*(?:사실|정보|내용|기억|것)?(?:이|가|은|는)?\s?"
    r"(?:없음|없습니다|없다|찾을 수 없(?:음|습니다))"  # Korean
    r"|لا\s?(?:شيء|يوجد|توجد)(?:\s(?:أي|حقائق|معلومات|شيء|جديدة?|ذات|صلة|مهمة))*|غير\s(?:متوفر|متاح|معروف)"  # Arabic
)
_AROUND = " \t\r\n.,;:!?-\u2013\u2014_'\"`*()[]<>{}\u3002\uff01\u2026\u00ab\u00bb\u201c\u201d\u201e"
_WORD = re.compile(r"[^\W\d_](?:/[^\W\d_])?[^\W\d_]*|\d+")


def says_nothing(text: str) -> bool:
    """Return whether a text only says that there is nothing to say, in the languages of the function words and more."""
    if len(text) > MAX_CHARS:
        return False
    plain = text.casefold().strip(_AROUND)
    if plain in NOTHING or not any(map(str.isalnum, plain)) or _UNSPACED.fullmatch(plain):
        return True
    words = _WORD.findall(plain)
    if not any(word in _NO for word in words):
        return False
    names_what = any(word.startswith(_OF_WHAT) for word in words)
    if any(word in _USER for word in words) and not (names_what and _tells(words)):
        return False
    others = [word for word in words if word not in _NO and word not in _FUNCTION_WORDS and word not in _USER]
    if not all(word.startswith(_OF_WHAT + _BESIDE) for word in others):
        return False
    return names_what or len(words) <= MAX_BARE_WORDS


def _tells(words: list[str]) -> bool:
    """Return whether it is about what the user tells, or the user is not the one it is about."""
    return not any(word in _USER for word in words[:2]) or any(word.startswith(_TELLING) for word in words)
