"""Find Japanese names: of people by what stands beside them, of places and organizations by what they end with."""

from __future__ import annotations

import re
from collections.abc import Iterator

from palimpsest.core.entities import EntityType
from palimpsest.text.names.lexicon.lists import is_given_name, is_surname
from palimpsest.text.names.span import Span, first_group

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\u3005"
_KATAKANA = "\u30a1-\u30fa\u30fc"

_JA_HONORIFIC = re.compile(
    rf"([{_HAN}]{{1,5}}|[{_KATAKANA}]{{2,}}(?:・[{_KATAKANA}]+)*)(さん|氏|くん|ちゃん|先生|教授|博士|課長|部長|社長|店長|係長|先輩|選手|監督)"
)
_NO_PEOPLE_JA = re.compile(
    r"[お御]|父|母|兄|姉|弟|妹|娘|息子|夫|妻|奥|旦那|祖|孫|医者|看護|店員|社員|社長|先生|部長|課長|店長|大家|隣|皆|客|同僚|友|上司|部下|担任|主治|校長|学生|運転|本屋|花屋|パン屋|八百屋|魚屋|肉屋|業者|大工|不動産|警|郵便|司書|彼|担当|管理|赤|新人|^子$|編集|大学|高校|人事|営業|技術|名誉|准|副|外科|内科|歯科|獣医|^[のは]"
)
_ROLES_JA = "同僚|友人|友達|親友|娘|長女|次女|息子|長男|次男|妻|夫|兄|姉|弟|妹|上司|部下|先輩|後輩|母|父|祖母|祖父|叔父|叔母|従兄弟|担任|恋人|彼氏|彼女|隣人|大家|主治医|部長|課長|係長|社長|店長|院長|校長|園長|リーダー|新人|猫|犬|愛犬|愛猫|飼い猫|飼い犬"
_JA_ROLE_NAME = re.compile(
    rf"({_ROLES_JA})の([{_HAN}]{{2,4}}|[{_KATAKANA}]{{2,}}(?:・[{_KATAKANA}]+)*)(?=[はがとをにもの、。]|さん|くん|ちゃん)"
)
_NO_ROLE_NAMES_JA = re.compile(
    r"誕生日|名前|仕事|家族|会社|病院|電話|住所|学校|趣味|大学|職場|部屋|実家|結婚|写真|入院|退院|留学|転職|引越|手術|料理|影響|紹介|勧め|全員|一人|二人|時間|意見|命日|自宅|世話|介護|年齢|車|好物|専門"
)
_NAME_ENDS_JA = re.compile(
    r"[子美奈菜香花恵江代里音乃衣沙紗咲葵結莉凛桜穂帆緒佳加世貴太郎一二三介輔助斗翔真也哉彦夫雄男樹希紀馬平司志吾悟之久光輝大陸蓮湊朔涼]$"
)
"""Characters with which given names end, and everyday nouns seldom do. Set by hand."""
_PETS_JA = ("猫", "犬", "愛犬", "愛猫", "飼い猫", "飼い犬")
_PET_THINGS_JA = re.compile(
    r"エサ|トイレ|ケージ|リード|シャンプー|ワクチン|フード|トリミング|ブラシ|ベッド|ドア|サークル|ゲージ"
)
_JA_INTRODUCED = re.compile(rf"([{_KATAKANA}A-Za-z]{{2,}}|[{_HAN}]{{2,6}})(?:という|と言う|っていう|と名付け|と呼ば)")
_NO_INTRODUCED_JA = re.compile(
    r"必要|可能|大変|無理|中止|禁止|重要|不要|最高|最低|危険|安全|便利|不便|十分|以上|以下|未満|^[一二三四五六七八九十]|苦手|嫌い|好き|賛成|反対|延期|キャンセル|ダメ|オーケー"
)
_JA_SUFFIX = re.compile(
    rf"([{_HAN}]{{2,5}}?|[{_KATAKANA}]{{2,}})(大学|高校|高等学校|中学校|小学校|病院|銀行|株式会社|出版社|駅|空港|支社|市|区|県|府|町|村)(?![{_HAN}])"
)
_JA_QUOTED = re.compile(rf"([{_HAN}{_KATAKANA}]+)「([^「」。、！？\n]{{2,16}})」(?!と(?:言|思|い|聞|答|書|の))")
"""A quotation directly after a noun is the name of what the noun says."""
_QUOTED_TYPES_JA: tuple[tuple[str, EntityType], ...] = (
    (
        r"会社|企業|社|メーカー|店|屋|局|病院|学校|大学|教室|団体|ホテル|カフェ|チーム|バンド|合唱団|レストラン|クラブ|サークル",
        "organization",
    ),
    (r"本|小説|映画|曲|漫画|誌|新聞|書|作|番組|ドラマ|アルバム", "document"),
    (r"アプリ|ソフト|機|器|車|製品|商品|サービス|ツール|ゲーム|システム", "product"),
    (r"計画|プロジェクト|案件", "project"),
    (r"祭り?|大会|会|フェス", "event"),
)
_NO_SUFFIX_JA = re.compile(
    r"[この前後次最毎各全同当近都地]$|^(?:株式|総合|動物|大学|国立|私立|公立|近所|地元|最寄り?|隣|都|地方|城下|下|商店|港)$|^[今来昨先毎同]"
)


MAX_GIVEN = 3
"""How many characters a given name has at most."""


def japanese_spans(text: str) -> Iterator[Span]:
    """Yield the names in Japanese text, the surest first."""
    yield from _people_and_pets(text)
    for match in _JA_QUOTED.finditer(text):
        for nouns, kind in _QUOTED_TYPES_JA:
            if re.search(f"(?:{nouns})$", match[1]):
                yield Span(match.start(2), match.end(2), match[2], kind)
                break
    for match in _JA_INTRODUCED.finditer(text):
        if not _NO_INTRODUCED_JA.search(match[1]):
            yield first_group(match, "other")
    for match in _JA_SUFFIX.finditer(text):
        if _NO_SUFFIX_JA.search(match[1]):
            continue
        is_place_name = match[2] in "駅市区県府町村" or match[2] == "空港"
        yield Span(match.start(), match.end(), match[0], "place" if is_place_name else "organization")


_JA_IS = re.compile(rf"は([{_HAN}]{{3,5}})(?:です|だ|でした|と申し|といい)")
"""Who somebody is: a whole name at the end of a sentence."""


def _people_and_pets(text: str) -> Iterator[Span]:
    for match in _JA_IS.finditer(text):
        if any(is_surname(match[1][:length]) for length in (1, 2, 3)) and not _NO_PEOPLE_JA.search(match[1]):
            yield first_group(match, "person")
    for match in _JA_ROLE_NAME.finditer(text):
        if _is_role_name(match[2], match[1]):
            yield Span(match.start(2), match.end(2), match[2], "other" if match[1] in _PETS_JA else "person")
    for match in _JA_HONORIFIC.finditer(text):
        if not _NO_PEOPLE_JA.search(match[1]):
            yield Span(match.start(1), match.end(1), match[1], "person")


_RANKS_JA = re.compile(r"[長ー任]$|新人")
_SURNAME_ENDS_JA = re.compile(r"(?<![手見絵基日])[田山川野村井本原口島崎藤沢谷木橋林森岡松]$")
"""Characters with which family names end. Set by hand."""


def _is_role_name(name: str, role: str) -> bool:
    """Return whether what belongs to a relative, a colleague or a pet is a name: "娘の美咲", not "娘の自転車"."""
    if _NO_ROLE_NAMES_JA.search(name) or re.search(_ROLES_JA, name):
        return False
    if role in _PETS_JA and not re.match(rf"[{_HAN}]", name):
        return not _PET_THINGS_JA.search(name)
    has_surname = any(is_surname(name[:length]) for length in (2, 3))
    if _RANKS_JA.search(role) and len(name) <= MAX_GIVEN and _SURNAME_ENDS_JA.search(name):
        return True
    return is_given_name(name) or has_surname or (len(name) <= MAX_GIVEN and _NAME_ENDS_JA.search(name) is not None)
