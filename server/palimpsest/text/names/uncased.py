"""Find names in scripts without capitals: Chinese, Japanese, Korean and Arabic."""

from __future__ import annotations

import re
from collections.abc import Iterator

from palimpsest.core.models import EntityType
from palimpsest.text.names.known_names import Span, first_group
from palimpsest.text.names.lexicon import WELL_KNOWN_UNCASED, is_also_word, is_given_name, is_place, is_surname
from palimpsest.text.word_lists import LazyPattern, word_lists

_LISTS = word_lists("palimpsest.text.names", "uncased.txt")

# Find Arabic names: of people after words such as sister, of organizations and places by what they begin with.


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_AR_WORD = LazyPattern(r"[\u0621-\u064a\u064b-\u0652]+")
_AR_MARKS = LazyPattern(r"[\u064b-\u0652]")
_AR_ROLES = _set(_LISTS["ar roles"])
_AR_ORGS = _set(_LISTS["ar orgs"])
_AR_PLACES = _set(_LISTS["ar places"])
_AR_STOP = _set(_LISTS["ar stop"])


_AR_AT = ("في", "إلى", "من", "مدينة", "نحو")

MIN_PLACE = 4
"""Shorter places are also words."""


def arabic_spans(text: str) -> Iterator[Span]:
    """Yield the names in Arabic text."""
    words = list(_AR_WORD.finditer(text))
    plain = [_AR_MARKS.sub("", match[0]) for match in words]
    taken = -1
    for number, match in enumerate(words):
        if number <= taken:
            continue
        is_beside = number + 1 < len(words) and text[match.end() : words[number + 1].start()] == " "
        following = plain[number + 1] if is_beside else ""
        length, kind = _name(plain[number - 1] if number else "", plain[number], following)
        if length:
            taken = number + length - 1
            yield Span(match.start(), words[taken].end(), text[match.start() : words[taken].end()], kind)


def _name(before: str, word: str, following: str) -> tuple[int, EntityType]:
    """Return how many words a name has that begins with a word, 0 if none does, and its type."""
    if before in _AR_ROLES and word not in _AR_STOP and is_given_name(word):
        return (2 if is_given_name(following) else 1), "person"
    if word in _AR_ORGS:
        return (2 if following.startswith("ال") or is_given_name(following) else 0), "organization"
    if word in _AR_PLACES:
        return (2 if following and following not in _AR_STOP else 0), "place"
    if following and is_place(f"{word} {following}"):
        return 2, "place"
    is_known = len(word) >= MIN_PLACE and is_place(word) and not is_also_word(word)
    return (1 if is_known and before in _AR_AT else 0), "place"


# Find Chinese names: of people by their family names, of places and organizations by what they end with.

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\u3005"
_KATAKANA = "\u30a1-\u30fa\u30fc"


_ZH_AFTER = "在是的和与跟把说負负喜爱住叫有会會要不也都每从從出去来來做给給对對将將已就用习習觉覺很正打开開租写寫骑騎跑坐吃喝睡修改发發收拿看听聽问答等送寄交订參参加完提决決推辞辭升调調转轉获得毕畢结結离離患擅请請带帶负負希认認知说說回最想能早晚上下今昨明现現还還又再家常总因为為告让讓教学學养養买買换換搬没只一二两，。、；：！？,.;:!?）)（(\\s"
_SURNAMES_ZH = _LISTS["surnames zh"]
_COMMON_SURNAMES_ZH = (
    "王李张張刘劉陈陳杨楊赵趙黄黃吴吳徐孙孫胡朱林郭罗羅梁宋郑鄭谢謝韩韓唐冯馮董萧蕭曹袁邓鄧许許傅沈曾彭吕呂苏蘇卢盧蒋蔣蔡贾賈魏薛叶葉阎閻潘杜戴姜姚谭譚廖邹鄒"
    "陆陸邱秦顾顧侯邵孟"
)
_NO_NAMES_ZH = _set(_LISTS["no names zh"])
"""Words that begin with the character of a family name."""

_NOT_IN_NAMES_ZH = "在是的和与跟不没沒有要会會也都每从從了被把给給对對将將已就很还還又再个们"
_NOT_LAST_ZH = _NOT_IN_NAMES_ZH + "".join(
    char for char in _ZH_AFTER if char not in "明家学學正来來安心平文养養上能早晚\\s"
)
_TWO_AFTER_ZH = "正在|正好|正式|上[周个次班海学午网课]|能[用够不在]|早[上晨餐饭就]|晚[上饭餐]|来[自到了]|家[里在的有住]|学[习会过校]|明[年天早晚确]|安[排装]|平[时日常均]|心[脏里]|文[档件]"
"""Words that begin with a character with which names end, too."""
_ROLES_ZH = (
    "女儿|女兒|儿子|兒子|妻子|老婆|丈夫|老公|妈妈|媽媽|爸爸|母亲|父亲|姐姐|妹妹|哥哥|弟弟|姑姑|舅舅|叔叔|阿姨|外婆|外公|奶奶|爷爷|岳父|岳母|同事|朋友|好友|闺蜜|男友|女友|"
    "室友|同学|邻居|鄰居|老板|经理|經理|组长|主管|上司|领导|老师|老師|班主任|医生|醫生|导师|教练|律师|会计|客户|房东|保姆|师傅|工程师|设计师|主任|院长|校长|总监|负责人|联系人|作者|导演"
)
_ZH_ROLE_NAME = LazyPattern(
    rf"(?:{_ROLES_ZH})(?:叫|是|：|:)?([{_SURNAMES_ZH}](?![{_NOT_IN_NAMES_ZH}])[{_HAN}](?:(?![{_NOT_LAST_ZH}]|{_TWO_AFTER_ZH})[{_HAN}])?)(?=[{_ZH_AFTER}]|$)"
)
_ZH_INTRODUCED = LazyPattern(
    rf"(?:名叫|叫做|叫作|名字是|名字叫|全名是|名为|姓名是|取名|(?<![把被管])叫(?!醒|车|外卖|人|停|好|苦|嚷|喊|号|板|作|做)[他她它]?)((?:(?!的)[{_HAN}{_KATAKANA}·]){{2,4}})(?=[，。、；！？,.;!?（(\s]|$|的(?!时))"
)
_ZH_TITLE_AFTER = LazyPattern(
    rf"([{_SURNAMES_ZH}][{_HAN}]{{0,2}}?)(?:先生|女士|小姐|老师|医生|教授|博士|经理|主任|师傅|阿姨|叔叔|总监|工程师|律师|校长|院长|警官|同学)"
)
_ZH_SUBJECT = LazyPattern(
    rf"(?:^|(?<=[\s，。、；：！？“和跟与给找由让问])|(?<=[组队部司店校院班]的)|(?<=回答))([{_COMMON_SURNAMES_ZH}程周高何马金](?![{_NOT_IN_NAMES_ZH}])[{_HAN}](?:(?![{_NOT_LAST_ZH}]|{_TWO_AFTER_ZH})[{_HAN}])?)(?=[{_ZH_AFTER}]|$)"
)
_ZH_FAMILIAR = LazyPattern(
    rf"(?:^|(?<=[，。、；：和跟与给找由让是叫]))([小老阿][{_COMMON_SURNAMES_ZH}周])(?=[{_ZH_AFTER}]|$)"
)
_NOT_IN_STEM_ZH = "在是的了从從去到和与跟把被让讓给給对對就也很不没沒有个個每某这這那哪我他她你它着得过所为示用"
"""Function words, and verbs, which no name of a place or an organization has in it."""
_ZH_PLACE = LazyPattern(
    rf"(?:(?<=[在到去从從住于於至往])|^|(?<=[，。、；\s]))((?:(?![{_NOT_IN_STEM_ZH}]|(?<![成首京古])都)[{_HAN}]){{2,4}}?(?:市|省|县|縣|区|區|镇|鎮|路|街|村|湾|灣|岛|島|站))(?![{_HAN}]?者)"
)
_ORG_SUFFIX = "大学|大學|学院|學院|公司|集团|集團|银行|銀行|医院|醫院|中学|中學|小学|小學|幼儿园|研究所|研究院|出版社|事务所|博物馆|图书馆|俱乐部|基金会"
_ZH_ORG = LazyPattern(
    rf"(?:(?<=[在到去了从從读讀于於是进進为為考])|^|(?<=[，。、；：\s“]))((?:(?![{_NOT_IN_STEM_ZH}於于进進為读讀考]|(?<![成首京古])都)[{_HAN}]){{2,8}}?)({_ORG_SUFFIX})"
)
_ZH_EVENT = LazyPattern(r"(?:国际)?(?:马拉松|电影节|音乐节|博览会|奥运会|世博会)")
_NOT_IN_ORG = LazyPattern(
    r"[个個家所的这這那哪我他她它你本该某每一两几附新老同各大小当地]|儿子|女儿|孩子|自己|参观|拜访|访问|考察|学习|工作|上班|实习|应聘|面试|路过|申请|报考|毕业|公立|私立|母校|附近|社区"
    r"|^(?:国外|國外|海外|外地|外国|外國|重点|名牌|理想|一流|顶尖|普通|知名|著名|综合|老年)|[读讀上念考进去]$"
)
_KINDS_OF_ORG_ZH = LazyPattern(
    r"(?:搬家|物业|保险|广告|外贸|贸易|互联网|科技|软件|游戏|建筑|装修|快递|物流|旅行|旅游|出租车|汽车|电力|自来水|燃气|咨询|设计|制药|医药|食品|服装|房?地产|家政|律师|会计师?|"
    r"设计师|儿童|三甲|综合|专科|中医|口腔|牙科|眼科|妇幼|妇产科?|精神|宠物|动物|人民|中心|双语|国际|重点|普通|职业|师范|商业|投资|跨国|外资|国有|民营|创业|初创|上市|电商|传媒|"
    r"影视|直播|金融|证券|租赁|招聘|美术|音乐|体育|医科|理工|用户|客户|供应商|合作|子|分|总|市立|省立|实验|寄宿|私人|乡镇|县城|老家|国外|海外|国内|外地|本地|城里|老年|线上)*"
    rf"(?:{_ORG_SUFFIX})"
)
"""What says the kind of an organization only."""
_NOT_A_PLACE_ZH = LazyPattern(
    r"[的这那哪我他她个一两每几某]|小区|地区|城市|社区|网站|车站|道路|马路|公路|铁路|网路|线路|思路|全市|全省|市区|山区|景区|时区|分区|专区|校区|园区|厂区|逛街|大街|农村|半岛|路由|走路|上路|下站|终点站|加油站|工作站|[上下]班路|一路|半路|左|右|缓冲|[时整]?段路|全[省县区镇村]|外省|外地|新区|老区|赛道|地铁站|火车站$|高铁站$|公交站"
)


MAX_PERSON = 3
"""How many characters the name of a person has at most."""

_PEOPLE_BEFORE = "，。、；：！？和跟与给找由让被对向请约问是的在 "
"""What may stand before a name with a title. Elsewhere the family name may be the end of a word."""


def chinese_spans(text: str) -> Iterator[Span]:
    """Yield the names in Chinese text, the surest first."""
    for match in _ZH_INTRODUCED.finditer(text):
        is_person = match[1][0] in _SURNAMES_ZH and len(match[1]) <= MAX_PERSON
        yield first_group(match, "person" if is_person else "other")
    for match in _ZH_EVENT.finditer(text):
        starts = range(max(0, match.start() - 4), match.start() - 1)
        start = next((start for start in starts if is_place(text[start : match.start()])), None)
        if start is not None:
            yield Span(start, match.end(), text[start : match.end()], "event")
    for match in _ZH_ORG.finditer(text):
        if not _NOT_IN_ORG.search(match[1]) and not _KINDS_OF_ORG_ZH.fullmatch(match[0]):
            yield Span(match.start(), match.end(), match[0], "organization")
    for match in _ZH_PLACE.finditer(text):
        if not _NOT_A_PLACE_ZH.search(match[1]):
            yield first_group(match, "place")
    yield from _people(text)


_ZH_DOUBLED = LazyPattern(
    rf"(?:^|(?<=[，。、；：和跟与给让是叫]))([豆乐圆团果糖朵贝萌妞嘟婷娜琳涵萱莹妮琪瑶彤苗])\1(?=[{_ZH_AFTER}]|$)"
)
"""A doubled character that is a pet name, of a child mostly."""


def _people(text: str) -> Iterator[Span]:
    for match in _ZH_TITLE_AFTER.finditer(text):
        if not match.start() or text[match.start() - 1] in _PEOPLE_BEFORE:
            yield Span(match.start(), match.end(), match[0], "person")
    for pattern in (_ZH_ROLE_NAME, _ZH_SUBJECT):
        for match in pattern.finditer(text):
            if match[1][:2] not in _NO_NAMES_ZH:
                yield first_group(match, "person")
    for match in _ZH_DOUBLED.finditer(text):
        yield Span(match.start(), match.end(), match[0], "person")
    for match in _ZH_FAMILIAR.finditer(text):
        yield first_group(match, "person")


# Find Japanese names: of people by what stands beside them, of places and organizations by what they end with.

_JA_HONORIFIC = LazyPattern(
    rf"([{_HAN}]{{1,5}}|[{_KATAKANA}]{{2,}}(?:・[{_KATAKANA}]+)*)(さん|氏|くん|ちゃん|先生|教授|博士|課長|部長|社長|店長|係長|先輩|選手|監督)"
)
_NO_PEOPLE_JA = LazyPattern(
    r"[お御]|父|母|兄|姉|弟|妹|娘|息子|夫|妻|奥|旦那|祖|孫|医者|看護|店員|社員|社長|先生|部長|課長|店長|大家|隣|皆|客|同僚|友|上司|部下|担任|主治|校長|学生|運転|本屋|花屋|パン屋|八百屋|魚屋|肉屋|業者|大工|不動産|警|郵便|司書|彼|担当|管理|赤|新人|^子$|編集|大学|高校|人事|営業|技術|名誉|准|副|外科|内科|歯科|獣医|^[のは]"
)
_ROLES_JA = "同僚|友人|友達|親友|娘|長女|次女|息子|長男|次男|妻|夫|兄|姉|弟|妹|上司|部下|先輩|後輩|母|父|祖母|祖父|叔父|叔母|従兄弟|担任|恋人|彼氏|彼女|隣人|大家|主治医|部長|課長|係長|社長|店長|院長|校長|園長|リーダー|新人|猫|犬|愛犬|愛猫|飼い猫|飼い犬"
_JA_ROLE_NAME = LazyPattern(
    rf"({_ROLES_JA})の([{_HAN}]{{2,4}}|[{_KATAKANA}]{{2,}}(?:・[{_KATAKANA}]+)*)(?=[はがとをにもの、。]|さん|くん|ちゃん)"
)
_NO_ROLE_NAMES_JA = LazyPattern(
    r"誕生日|名前|仕事|家族|会社|病院|電話|住所|学校|趣味|大学|職場|部屋|実家|結婚|写真|入院|退院|留学|転職|引越|手術|料理|影響|紹介|勧め|全員|一人|二人|時間|意見|命日|自宅|世話|介護|年齢|車|好物|専門"
)
_NAME_ENDS_JA = LazyPattern(
    r"[子美奈菜香花恵江代里音乃衣沙紗咲葵結莉凛桜穂帆緒佳加世貴太郎一二三介輔助斗翔真也哉彦夫雄男樹希紀馬平司志吾悟之久光輝大陸蓮湊朔涼]$"
)
"""Characters with which given names end, and everyday nouns seldom do."""
_PETS_JA = ("猫", "犬", "愛犬", "愛猫", "飼い猫", "飼い犬")
_PET_THINGS_JA = LazyPattern(
    r"エサ|トイレ|ケージ|リード|シャンプー|ワクチン|フード|トリミング|ブラシ|ベッド|ドア|サークル|ゲージ"
)
_JA_INTRODUCED = LazyPattern(rf"([{_KATAKANA}A-Za-z]{{2,}}|[{_HAN}]{{2,6}})(?:という|と言う|っていう|と名付け|と呼ば)")
_NO_INTRODUCED_JA = LazyPattern(
    r"必要|可能|大変|無理|中止|禁止|重要|不要|最高|最低|危険|安全|便利|不便|十分|以上|以下|未満|^[一二三四五六七八九十]|苦手|嫌い|好き|賛成|反対|延期|キャンセル|ダメ|オーケー"
)
_JA_SUFFIX = LazyPattern(
    rf"([{_HAN}]{{2,5}}?|[{_KATAKANA}]{{2,}})(大学|高校|高等学校|中学校|小学校|病院|銀行|株式会社|出版社|駅|空港|支社|市|区|県|府|町|村)(?![{_HAN}])"
)
_JA_QUOTED = LazyPattern(rf"([{_HAN}{_KATAKANA}]+)「([^「」。、！？\n]{{2,16}})」(?!と(?:言|思|い|聞|答|書|の))")
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
_NO_SUFFIX_JA = LazyPattern(
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


_JA_IS = LazyPattern(rf"は([{_HAN}]{{3,5}})(?:です|だ|でした|と申し|といい)")
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


_RANKS_JA = LazyPattern(r"[長ー任]$|新人")
_SURNAME_ENDS_JA = LazyPattern(r"(?<![手見絵基日])[田山川野村井本原口島崎藤沢谷木橋林森岡松]$")
"""Characters with which family names end."""


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


# Find Korean names, without the particles that are written to them.

_PARTICLES_KO = LazyPattern(
    r"(?:입니다|이에요|예요|이었습니다|에서는|에서|에게|으로|까지|부터|처럼|보다|이라는|라는|이다|은|는|이|가|을|를|에|의|와|과|도|로|랑|씨는|씨가|씨)$"
)
_ROLES_KO = _set(_LISTS["roles ko"])
_AFTER_NAME_KO = LazyPattern(r"\s?(?:씨|님|선생님|교수|대리|과장|부장|팀장|차장|사장|박사)")
_ORG_KO = LazyPattern(r".{2,}(?:대학교|대학|병원|전자|은행|그룹|초등학교|중학교|고등학교|연구소|출판사|자동차)")
_PLACE_KO = LazyPattern(r".{2,}(?:시|군|구|동|역|도|섬)")
_HANGUL_WORD = LazyPattern(r"[\uac00-\ud7af]{2,}")


FULL_NAME = 3
"""How many characters most full names have: a family name of one and a given name of two."""


def korean_spans(text: str) -> Iterator[Span]:
    """Yield the names in Korean text."""
    words = list(_HANGUL_WORD.finditer(text))
    for number, match in enumerate(words):
        word = _PARTICLES_KO.sub("", match[0])
        before = _PARTICLES_KO.sub("", words[number - 1][0]) if number else ""
        end = match.start() + len(word)
        if _is_person(word, before, text[end : end + 5]):
            yield Span(match.start(), end, word, "person")
        elif _ORG_KO.fullmatch(word):
            yield Span(match.start(), end, word, "organization")
        elif _is_place(word) or (_PLACE_KO.fullmatch(word) and _is_place(word[:-1])):
            yield Span(match.start(), end, word, "place")


def _is_person(word: str, before: str, after: str) -> bool:
    has_surname = FULL_NAME - 1 <= len(word) <= FULL_NAME + 1 and (is_surname(word[:1]) or is_surname(word[:2]))
    if before in _ROLES_KO:
        return word not in _ROLES_KO and (is_given_name(word) or has_surname)
    if not has_surname or len(word) != FULL_NAME:
        return False
    return bool(_AFTER_NAME_KO.match(after)) or (is_given_name(word[1:]) and not is_also_word(word[1:]))


def _is_place(word: str) -> bool:
    return len(word) > 1 and is_place(word) and not is_also_word(word)


# Find names in scripts without capitals: Chinese, Japanese, Korean and Arabic, and Latin words inside of them.
#
# A name is found by a list, by its form (a family name, a suffix such as that of a university), and by a word beside
# it that introduces a name.

_KANA = "\u3041-\u3096"

_HAS_UNCASED = LazyPattern(rf"[{_HAN}{_KANA}{_KATAKANA}\uac00-\ud7af\u0620-\u064a]")
_IS_JAPANESE = LazyPattern(rf"[{_KANA}]")

_TITLES_QUOTED = LazyPattern(r"《([^《》\n]{1,40})》|『([^『』\n]{1,40})』")
_NAMED_QUOTED = LazyPattern(
    r"「([^「」。、\n]{1,24})」(?=という|と呼|って(?:名|い)|的(?:项目|項目|书|書|店))|(?<=[叫名])[「“]([^「」“”。，\n]{1,24})[」”]"
)


_WELL_KNOWN = LazyPattern(
    rf"(?<![{_KATAKANA}])(?:" + "|".join(sorted(WELL_KNOWN_UNCASED, key=len, reverse=True)) + rf")(?![{_KATAKANA}])"
)


def uncased_spans(text: str) -> Iterator[Span]:
    """Yield the names of a text in scripts without capitals, the surest first."""
    if not _HAS_UNCASED.search(text):
        return
    for match in (*_TITLES_QUOTED.finditer(text), *_NAMED_QUOTED.finditer(text)):
        yield first_group(match, "document" if match[0][0] in "《『" else "other")
    for match in _WELL_KNOWN.finditer(text):
        yield Span(match.start(), match.end(), match[0], WELL_KNOWN_UNCASED[match[0]])
    if _IS_JAPANESE.search(text):
        yield from japanese_spans(text)
    elif re.search(rf"[{_HAN}]", text):
        yield from chinese_spans(text)
    yield from korean_spans(text)
    yield from arabic_spans(text)
    yield from _known_places(text)


def _known_places(text: str) -> Iterator[Span]:
    """Yield listed places in Chinese and Japanese, and places in Katakana, the longest first."""
    for run in re.finditer(rf"[{_KATAKANA}・]{{2,}}", text):
        if is_place(run[0]):
            yield Span(run.start(), run.end(), run[0], "place")
    for run in re.finditer(rf"[{_HAN}]{{2,}}", text):
        start = run.start()
        while start < run.end() - 1:
            for end in range(min(start + 6, run.end()), start + 1, -1):
                if is_place(text[start:end]) and not is_also_word(text[start:end]):
                    yield Span(start, end, text[start:end], "place")
                    start = end - 1
                    break
            start += 1
