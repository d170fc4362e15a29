"""Find Japanese names: of people by what stands beside them, of places and organizations by what they end with."""

from __future__ import annotations

import re
from collections.abc import Iterator

from palimpsest.text.names.span import Span, first_group

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\u3005"
_KATAKANA = "\u30a1-\u30fa\u30fc"

_JA_HONORIFIC = re.compile(
    rf"([{_HAN}]{{1,5}}|[{_KATAKANA}]{{2,}}(?:・[{_KATAKANA}]+)*)(さん|氏|くん|ちゃん|先生|教授|博士|課長|部長|社長|店長|係長|先輩|選手|監督)"
)
_NO_PEOPLE_JA = re.compile(
    r"[お御]|父|母|兄|姉|弟|妹|娘|息子|夫|妻|奥|旦那|祖|孫|医者|看護|店員|社員|社長|先生|部長|課長|店長|大家|隣|皆|客|同僚|友|上司|部下|担任|主治|校長|学生|運転|本屋|花屋|パン屋|八百屋|魚屋|肉屋|業者|大工|不動産|警|郵便|司書|彼|担当|管理|赤|新人|子|編集|大学|高校|人事|営業|技術|名誉|准|副|外科|内科|歯科|獣医|^[のは]"
)
_ROLES_JA = "同僚|友人|友達|親友|娘|長女|次女|息子|長男|次男|妻|夫|兄|姉|弟|妹|上司|部下|先輩|後輩|母|父|祖母|祖父|叔父|叔母|従兄弟|担任|恋人|彼氏|彼女|隣人|大家|主治医|猫|犬|愛犬|愛猫|飼い猫|飼い犬"
_JA_ROLE_NAME = re.compile(
    rf"({_ROLES_JA})(?:の|、|は)([{_HAN}]{{2,4}}|[{_KATAKANA}]{{2,}}(?:・[{_KATAKANA}]+)*)(?=[はがとをにもの、。]|さん|くん|ちゃん)"
)
_NO_ROLE_NAMES_JA = re.compile(
    r"誕生日|名前|仕事|家族|会社|病院|電話|住所|学校|趣味|大学|職場|部屋|実家|結婚|写真|入院|退院|留学|転職|引越|手術|料理|影響|紹介|勧め|全員|一人|二人|時間|意見|命日|自宅|世話|介護|年齢|車|好物|専門"
)
_JA_INTRODUCED = re.compile(rf"([{_KATAKANA}A-Za-z]{{2,}}|[{_HAN}]{{2,6}})(?:という|と言う|っていう|と名付け|と呼ば)")
_NO_INTRODUCED_JA = re.compile(
    r"必要|可能|大変|無理|中止|禁止|重要|不要|最高|最低|危険|安全|便利|不便|十分|以上|以下|未満|^[一二三四五六七八九十]|苦手|嫌い|好き|賛成|反対|延期|キャンセル|ダメ|オーケー"
)
_JA_SUFFIX = re.compile(
    rf"([{_HAN}]{{2,5}}?|[{_KATAKANA}]{{2,}})(大学|高校|高等学校|中学校|小学校|病院|銀行|株式会社|出版社|駅|空港|支社|市|区|県|府|町|村)(?![{_HAN}])"
)
_NO_SUFFIX_JA = re.compile(
    r"[この前後次最毎各全同当近都地]$|^(?:株式|総合|動物|大学|国立|私立|公立|近所|地元|最寄り?|隣|都|地方|城下|下|商店|港)$|^[今来昨先毎同]"
)


def japanese_spans(text: str) -> Iterator[Span]:
    """Yield the names in Japanese text, the surest first."""
    for match in _JA_ROLE_NAME.finditer(text):
        if not _NO_ROLE_NAMES_JA.search(match[2]) and not re.search(_ROLES_JA, match[2]):
            is_pet = "猫" in match[1] or "犬" in match[1]
            yield Span(match.start(2), match.end(2), match[2], "other" if is_pet else "person")
    for match in _JA_HONORIFIC.finditer(text):
        if not _NO_PEOPLE_JA.search(match[1]):
            yield Span(match.start(1), match.end(1), match[1], "person")
    for match in _JA_INTRODUCED.finditer(text):
        if not _NO_INTRODUCED_JA.search(match[1]):
            yield first_group(match, "other")
    for match in _JA_SUFFIX.finditer(text):
        if _NO_SUFFIX_JA.search(match[1]):
            continue
        is_place_name = match[2] in "駅市区県府町村" or match[2] == "空港"
        yield Span(match.start(), match.end(), match[0], "place" if is_place_name else "organization")
