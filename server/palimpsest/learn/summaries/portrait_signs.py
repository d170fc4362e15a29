"""Rank memories by what depends on them, and sort them into sections by plain words."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import IntEnum

from palimpsest.core.models import USER_NAME, Memory
from palimpsest.llm.user_name import is_about_user
from palimpsest.text.names.lexicon import PETS
from palimpsest.text.word_lists import LazyPattern, word_lists

_LISTS = word_lists("palimpsest.learn.summaries", "portrait_signs.txt")

# Plain words that show which section of a portrait a memory belongs to, in several languages.
#
# They are read where a memory has no tags, as those in an agent's words have none. Words are compared whole and in
# lower case; signs of Chinese and Japanese, which have no spaces, anywhere in the text. English comes first, then
# German, French, Spanish, Italian, Portuguese, Dutch, Swedish, Polish and Russian, as far as a word serves no other
# purpose.

_WORD = LazyPattern(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Signs:
    """The words of a section, and what stands for them in scripts without spaces."""

    words: frozenset[str]
    unspaced: tuple[str, ...] = ()

    def count(self, text: str) -> int:
        """Return how many different signs a text has."""
        plain = unicodedata.normalize("NFKC", text).casefold()
        return len(self.words.intersection(_WORD.findall(plain))) + sum(sign in plain for sign in self.unspaced)


def _signs(words: str, unspaced: str = "") -> Signs:
    return Signs(frozenset(words.split()), tuple(unspaced.split()))


HELP = _signs(
    _LISTS["help"],
    "纠正 回答 回复 解释 语气 简洁 返答 説明 口調",
)

IDENTITY = _signs(
    _LISTS["identity"],
    "出生 生日 岁 住在 搬到 国籍 母语 过敏 生まれ 誕生日 歳 住んで 引っ越 出身",
)

NAME = LazyPattern(
    r"(?:user['\u2019]s (?:full |first |given )?name|(?:the )?user (?:is (?:called|named)|goes by)"
    r"|my (?:full |first )?name|i(?:['\u2019]m| am) called|nutzer(?:in)? heißt|ich heiße|mein name"
    r"|l?['\u2019]?utilisat(?:eur|rice) s['\u2019]appelle|je m['\u2019]appelle|mon nom"
    r"|(?:el |la )?usuari[oa] se llama|me llamo|mi nombre|l?['\u2019]?utente si chiama|mi chiamo|il mio nome"
    r"|(?:o |a )?usuári[oa] (?:se )?chama|(?:eu )?me chamo|chamo-me|meu nome|(?:de )?gebruiker heet|ik heet|mijn naam"
    r"|användaren heter|jag heter|mitt namn|użytkowni(?:k|czka) (?:ma na imię|nazywa się)|nazywam się|mam na imię"
    r"|пользовател(?:ь|я|ьницу) зовут|меня зовут|моё имя)(?!\w)"
    r"|用户(?:名叫|叫|的名字)|我叫|我的名字|ユーザーの名前|私の名前",
    re.IGNORECASE,
)
"""How a memory begins that tells what the user is called, in an agent's words or in the user's own."""

WHO = _signs(
    _LISTS["who"],
    "生日 出生 名字 住在 地址 工作 职业 母语 誕生日 名前 住んで 住所 職業",
)
"""Who somebody is: name, birth, home, work and language."""

SAFETY = _signs(
    _LISTS["safety"],
    _LISTS["safety unspaced"],
)
ALLERGY = _signs("", "allerg alerg alérg аллерг anaphyla epipen 过敏 過敏 アレルギー 알레르기 حساسية")
"""What helps must respect, whatever else is left out: allergies, illnesses, medicines, and what access needs.

Most of them serve a machine, too ("fault-intolerant", "a blind test"), so they count where a text is about a person;
those of `ALLERGY` do not."""

COMMANDS = _signs(
    """command commands deploy deploys install lint migrate befehl befehle kommando kommandos ausführen commande
    commandes lancer comando comandos ejecutar eseguire executar uitvoeren polecenie uruchom команда запускать""",
    "命令 运行 コマンド 実行",
)
"""How the commands of a project are worded."""

_FAMILY = _signs(
    _LISTS["family"],
    "母亲 父亲 妈妈 爸爸 儿子 女儿 孩子 姐姐 哥哥 丈夫 朋友 邻居 结婚 母 父 息子 娘 兄 姉 妹 弟 妻 友人 友達 猫 犬 狗",
)
PEOPLE = Signs(_FAMILY.words | PETS, _FAMILY.unspaced)
"""A pet is part of the family."""

WORK = _signs(
    _LISTS["work"],
    "工作 公司 上班 同事 老板 工程师 老师 学生 大学 仕事 会社 働 同僚 上司 職場",
)

PREFERENCES = _signs(
    _LISTS["preferences"],
    "喜欢 喜歡 爱 偏好 讨厌 最爱 好き 嫌い 趣味",
)

ALWAYS = _signs(
    _LISTS["always"],
    "总是 永远 从不 必须 不要 应该 必ず 決して べき しない",
)
"""How instructions and rules are worded."""

WORKED = _signs(
    _LISTS["worked"],
    "解决 成功 有效 修好 解決 直った 成功",
)

FAILED = _signs(
    _LISTS["failed"],
    "失败 错误 报错 失敗 エラー 間違",
)

DECIDED = _signs(
    _LISTS["decided"],
    "决定 选择 商定 決定 決め 選ん",
)

STACK = _signs(
    _LISTS["stack"],
    "使用 数据库 框架 版本 语言 使って データベース 言語",
)

_CONVENTIONS = _signs(
    _LISTS["conventions"],
    "规范 规则 規約 ルール",
)
RULES = Signs(ALWAYS.words | _CONVENTIONS.words, (*ALWAYS.unspaced, *_CONVENTIONS.unspaced))
"""How the conventions of a project are worded."""

OPEN = _signs(
    _LISTS["open"],
    "待办 未解决 计划 还没 截止 未定 予定 課題 まだ",
)


# How much depends on a memory, judged by its words and tags: what must be in view wherever little fits.

RULE_TAGS = frozenset({"instruction", "style", "procedure", "correction"})
"""Tags of how something is to be done."""

BEGINNING = 3
"""Within how many words a text names whom it is about."""


class Rank(IntEnum):
    """How much depends on a memory. What is in front is shown first, however old it is and however much is pinned."""

    SAFETY = 0
    NAME = 1
    IDENTITY = 2
    HELP = 3
    OTHER = 4


MUST = Rank.IDENTITY
"""The last rank that never yields to what is pinned or new."""


def rank_of(memory: Memory, user_name: str) -> Rank:
    """Return how much depends on a memory. `user_name` may be ""."""
    if is_safety(memory, user_name):
        return Rank.SAFETY
    if USER_NAME in memory.metadata or NAME.match(memory.text):
        return Rank.NAME
    if memory.happened_at is None and is_about(memory, user_name) and WHO.count(memory.text):
        beginning = " ".join(memory.text.split(maxsplit=BEGINNING)[:BEGINNING])
        return Rank.OTHER if PEOPLE.count(beginning) else Rank.IDENTITY  # "User's brother lives in Bern"
    is_help = is_rule(memory, user_name) or HELP.count(memory.text)
    return Rank.HELP if is_help else Rank.OTHER


def is_safety(memory: Memory, user_name: str) -> bool:
    """Return whether somebody's health or access depends on a memory. Most of the words may be about a machine."""
    if not SAFETY.count(memory.text):
        return False
    is_of_person = is_about(memory, user_name) or any(entity.type == "person" for entity in memory.entities)
    is_sure = not memory.scope.project and ALLERGY.count(memory.text) > 0
    return is_of_person or is_sure or PEOPLE.count(memory.text) > 0


def is_rule(memory: Memory, user_name: str) -> bool:
    """Return whether a memory says how something is to be done, by its tags or words. "User always …" is a habit."""
    is_worded = ALWAYS.count(memory.text) > 0 and not is_about(memory, user_name)
    return is_worded or not RULE_TAGS.isdisjoint(memory.all_tags)


def is_about(memory: Memory, user_name: str) -> bool:
    """Return whether the user is the subject of a memory: it begins with "User" or "I", or with the user's name."""
    first_name = user_name.split(maxsplit=1)[0] if user_name.strip() else ""
    return is_about_user(memory.text) or bool(first_name and memory.text.startswith(first_name))
