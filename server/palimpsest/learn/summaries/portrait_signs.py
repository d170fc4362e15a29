"""Rank memories by what depends on them, and sort them into sections by plain words."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import IntEnum

from palimpsest.core.models import USER_NAME, Memory
from palimpsest.llm.user_name import is_about_user
from palimpsest.text.names.lexicon import PETS

# Plain words that show which section of a portrait a memory belongs to, in several languages. Set by hand.
#
# They are read where a memory has no tags, as those in an agent's words have none. Words are compared whole and in
# lower case; signs of Chinese and Japanese, which have no spaces, anywhere in the text. English comes first, then
# German, French, Spanish, Italian, Portuguese, Dutch, Swedish, Polish and Russian, as far as a word serves no other
# purpose.

_WORD = re.compile(r"[^\W\d_]+")


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
    """answer answers reply replies respond response responses explain explanation explanations tone wording verbose
    concise assistant corrected correction summaries bullet bullets emoji emojis jargon praise instruct instructions
    korrigiert korrektur antworte antworten antwort erkläre erklären erklärungen erklärung tonfall assistent assistentin
    knapp ausführlich anrede duzen siezen geduzt gesiezt höflichkeitsfloskeln floskeln
    corrigé correction réponse réponses réponds répondre explique explications assistant tutoyer vouvoyer
    corrigió respuesta respuestas responde responder explica explicaciones asistente tutear
    risposta risposte rispondere spiega spiegazioni assistente
    resposta respostas explicações antwoord antwoorden uitleg svar svara förklara odpowiedź odpowiedzi
    поправил поправила ответ ответы отвечать отвечай объяснять объясняй объяснения""",
    "纠正 回答 回复 解释 语气 简洁 返答 説明 口調",
)

IDENTITY = _signs(
    """born birthday age aged years lives lived moved home hometown native nationality citizen speaks languages raised
    grew pronouns allergic allergy diabetic asthma vegetarian vegan religion
    geboren geburtstag alt jahre wohnt lebt gezogen umgezogen zuhause heimat staatsbürger spricht muttersprache
    aufgewachsen allergisch allergie vegetarier vegetarierin veganer veganerin pronomen
    né née anniversaire ans habite vit déménagé nationalité parle langue maternelle
    nació nacido nacida cumpleaños años vive mudó mudado nacionalidad habla idioma alérgico alérgica
    nato nata compleanno anni abita nazionalità parla nasceu aniversário anos mora nacionalidade fala
    geboren verjaardag jaar woont spreekt född födelsedag år bor talar urodzony urodzona lat mieszka mówi
    родился родилась лет живёт живет переехал переехала говорит аллергия""",
    "出生 生日 岁 住在 搬到 国籍 母语 过敏 生まれ 誕生日 歳 住んで 引っ越 出身",
)

NAME = re.compile(
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
    """birthday born name named called pronouns lives live address hometown nationality citizen works work job
    profession retired native languages speaks speak geburtstag geboren heißt heiße pronomen wohnt wohne lebt
    lebe adresse arbeitet arbeite beruf muttersprache spricht spreche staatsbürger staatsbürgerin anniversaire
    né née appelle habite vit adresse travaille métier parle langue nationalité cumpleaños nació nací llama
    llamo vive vivo dirección trabaja trabajo profesión habla hablo compleanno nato nata chiama chiamo abita abito vive
    vivo indirizzo lavora lavoro parla parlo aniversário nasceu nasci chama mora moro endereço trabalha trabalho
    fala falo verjaardag geboren heet woont woon adres werkt werk beroep spreekt spreek födelsedag född heter
    bor adress jobbar arbetar yrke talar urodziny urodził urodziła nazywa nazywam imię mieszka mieszkam adres pracuje
    pracuję zawód mówi родился родилась зовут живёт живет живу адрес работает работаю профессия говорит""",
    "生日 出生 名字 住在 地址 工作 职业 母语 誕生日 名前 住んで 住所 職業",
)
"""Who somebody is: name, birth, home, work and language."""

SAFETY = _signs(
    """allergic allergy allergies allergen anaphylaxis anaphylactic epipen intolerant intolerance coeliac celiac
    diabetic diabetes epileptic epilepsy seizures asthmatic asthma insulin pacemaker haemophilia hemophilia
    pregnant wheelchair deaf blind colour-blind colorblind colourblind dyslexic dyslexia autistic autism
    immunosuppressed medication medications medicine medicines prescription antihistamine inhaler anticoagulant
    warfarin aspirin ibuprofen paracetamol metformin levothyroxine statin statins antibiotics penicillin
    amoxicillin antidepressant antidepressants thinner thinners dialysis chemotherapy chemo hypertension eczema
    migraine migraines arthritis thyroid dementia alzheimer parkinson cancer adhd pescatarian pollen pills
    migräne bluthochdruck tabletten schilddrüse heuschnupfen comprimés migraña hipertensión
    pastillas medicijn medicijnen nadciśnienie leki cukrzyca cukrzycę migrenę uczulony uczulona allergi
    аллергия аллергию диабет беременна астма лекарство лекарства таблетки
    braille captions allergisch allergische allergie allergien allergiker allergikerin nussallergie
    pollenallergie hausstauballergie laktoseintoleranz laktoseintolerant glutenunverträglichkeit
    unverträglichkeit verträgt zöliakie diabetiker diabetikerin epilepsie epileptiker asthmatiker
    herzschrittmacher bluter schwanger rollstuhl rollstuhlfahrer rollstuhlfahrerin gehörlos schwerhörig
    sehbehindert farbenblind legasthenie legasthenikerin legastheniker medikament medikamente medikamenten
    arznei blutverdünner notfallkontakt barrierefrei allergique allergies intolérant intolérante intolérance
    cœliaque coeliaque diabétique diabète épileptique épilepsie asthme asthmatique insuline enceinte sourd
    sourde malentendant malentendante aveugle malvoyant malvoyante daltonien daltonienne dyslexique médicament
    médicaments anticoagulants alérgico alérgica alérgicos alérgicas alergia alergias intolerante intolerancia
    celíaco celíaca celiaco celiaca diabético diabética epiléptico epiléptica epilepsia asma asmático asmática
    insulina marcapasos embarazada sordo sorda ciego ciega daltónico daltónica disléxico disléxica medicamento
    medicamentos medicación medicina medicinas anticoagulantes allergico allergica allergici allergia
    intollerante intolleranza celiaco celiaca celiachia diabetico diabetica epilettico epilettica asmatico
    asmatica incinta sordo sorda cieco cieca ipovedente daltonico daltonica dislessico dislessica farmaco
    farmaci medicinale medicine anticoagulante alérgica alergias intolerância diabetes epilético epiléctico
    grávida surdo surda cego cega daltônico daltónico disléxica remédio remédios medicação allergieën
    notenallergie lactose-intolerant glutenintolerantie coeliakie suikerziekte astma zwanger rolstoel
    slechthorend slechtziend kleurenblind dyslectisch medicijn medicijnen medicatie bloedverdunners allergiker
    nötallergi jordnötsallergi laktosintolerant glutenintolerant celiaki diabetiker epilepsi gravid rullstol döv
    hörselskadad synskadad färgblind dyslektiker medicin mediciner läkemedel blodförtunnande allergi alergię
    alergii uczulony uczulona uczulenie nietolerancja nietolerancję celiakia celiakię cukrzyca cukrzycę cukrzyk
    padaczka padaczkę astma astmę astmatyk insulinę rozrusznik ciąży inwalidzkim głuchy głucha niedosłyszący
    niewidomy niewidoma daltonista leki leków lekarstwo lekarstwa аллергия аллергию аллергии аллергик аллергична
    аллергичен непереносимость целиакия диабет диабета диабетик диабетом эпилепсия эпилепсией эпилепсии астма
    астмой астматик инсулин кардиостимулятор беременна инвалидной глухой глухая слабослышащий слабослышащая
    слепой слепая незрячий незрячая дальтоник лекарство лекарства таблетки alerjik alerjisi alerjim alerji
    laktoositon gluteeniton allerginen allergia""",
    "过敏 過敏 不耐受 乳糖不耐 糖尿病 癫痫 哮喘 胰岛素 怀孕 轮椅 耳聋 失明 盲人 视障 听障 色盲 吃药 服药 药物"
    " アレルギー 不耐症 てんかん 喘息 妊娠 車椅子 難聴 聴覚 視覚障害 色覚 服用 薬を飲 알레르기 알러지 당뇨 천식 휠체어"
    " حساسية allerg alerg alérg аллерг intoleran intolleran diabet diabét epilep epilép эпилеп anaphyla rollstuhl"
    " rullstol",
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
    """mother father mum mom dad parents son daughter child children kids baby sister brother twin wife husband spouse
    partner girlfriend boyfriend fiancé fiancée cousin niece nephew aunt uncle grandmother grandfather grandma grandpa
    grandson granddaughter friend friends neighbour neighbor flatmate roommate married family
    mutter vater mama papa eltern sohn tochter kinder schwester bruder zwilling frau mann ehefrau ehemann partnerin
    freund freundin freunde verlobte verlobter cousine nichte neffe tante onkel oma opa großmutter großvater enkel
    enkelin nachbar nachbarin mitbewohner mitbewohnerin verheiratet familie
    mère père parents fils fille enfants frère sœur femme mari conjoint ami amie voisin voisine marié mariée famille
        madre padre padres hijo hija hijos hermano hermana esposa esposo marido novio novia primo prima abuela
    abuelo amigo
    amiga vecino vecina casado casada familia
    genitori figlio figlia figli fratello sorella moglie nonna nonno amico amica vicino sposato sposata famiglia
        mãe pai filho filha filhos irmão irmã mulher avó avô vizinho família moeder vader zoon dochter broer zus
    vrouw vriend
    mamma pappa bror syster fru vän matka ojciec syn córka brat siostra żona mąż przyjaciel
        мать отец мама папа родители сын дочь дети брат сестра жена муж бабушка дедушка друг подруга сосед женат
    замужем""",
    "母亲 父亲 妈妈 爸爸 儿子 女儿 孩子 姐姐 哥哥 丈夫 朋友 邻居 结婚 母 父 息子 娘 兄 姉 妹 弟 妻 友人 友達 猫 犬 狗",
)
PEOPLE = Signs(_FAMILY.words | PETS, _FAMILY.unspaced)
"""A pet is part of the family."""

WORK = _signs(
    """work works worked working job employed employer employee company office boss manager colleague colleagues team
    engineer developer programmer teacher nurse doctor student studies studied studying certificate university
    school degree thesis career salary freelance freelancer self-employed startup client clients department
    professor researcher designer lawyer project role shift shifts retired apprentice
    arbeitet arbeite arbeit job beruf angestellt arbeitgeber firma büro chef chefin kollege kollegin kollegen team
    ingenieur ingenieurin entwickler entwicklerin lehrer lehrerin krankenpfleger krankenschwester arzt ärztin student
    studentin studiert studium universität schule abschluss gehalt selbstständig freiberuflich kunde kunden abteilung
    projekt ausbildung lehre schicht rentner rentnerin werkstatt
    travaille travail métier emploi entreprise bureau patron collègue équipe ingénieur professeur infirmière étudiant
        trabaja trabajo empleo empresa oficina jefe jefa compañero equipo ingeniero ingeniera profesor profesora
    estudiante
    lavora lavoro azienda ufficio capo collega ingegnere insegnante studente studia trabalha trabalho chefe engenheiro
    werkt werk bedrijf kantoor baas arbetar jobbar jobb företag pracuje praca firma biuro szef
        работает работа компания фирма офис начальник коллега инженер учитель учительница врач студент студентка
    учится""",
    "工作 公司 上班 同事 老板 工程师 老师 学生 大学 仕事 会社 働 同僚 上司 職場",
)

PREFERENCES = _signs(
    """likes loves love enjoys prefers prefer preferred favourite favorite dislikes hates hate fond hobby hobbies
    rather fan drinks eats listens reads collects
        mag liebt bevorzugt lieber lieblings liebsten hasst gern gerne ungern hobby hobbys trinkt isst liest
    sammelt hört
    aime adore préfère préféré déteste loisir gusta gustan encanta prefiere favorito favorita odia
    piace piacciono preferisce preferito ama odia gosta adora prefere preferido houdt liever gillar älskar föredrar
    lubi uwielbia woli любит нравится предпочитает любимый любимая обожает ненавидит""",
    "喜欢 喜歡 爱 偏好 讨厌 最爱 好き 嫌い 趣味",
)

ALWAYS = _signs(
    """always never must mustn should shouldn
    immer nie niemals muss müssen soll sollen sollte vermeide vermeiden
    toujours jamais doit devrait évite siempre nunca debe debería evita sempre mai deve dovrebbe evitare
    altijd nooit moet alltid aldrig zawsze nigdy musi всегда никогда должен нужно нельзя""",
    "总是 永远 从不 必须 不要 应该 必ず 決して べき しない",
)
"""How instructions and rules are worded."""

WORKED = _signs(
    """worked works fixed solved solves solution helps helped succeeded passes passed resolved
    funktioniert funktionierte geklappt klappt gelöst löst lösung behoben half hilft gelungen
    marche résolu résout funciona funcionó resuelto resuelve solucionó funziona risolto resolvido
    werkte opgelost fungerade löste działa rozwiązał сработало работает решило исправлено помогло""",
    "解决 成功 有效 修好 解決 直った 成功",
)

FAILED = _signs(
    """failed fails fail failure broke broken error errors crashed crashes crash bug wrong mistake mistaken regression
    timeout rejected
    fehlgeschlagen scheitert scheiterte gescheitert fehler kaputt abgestürzt falsch irrtum funktioniert
    échoué échoue erreur faux falló fallado falla errores equivocado fallito errore sbagliato falhou erro errado
    mislukt fout misslyckades fel nieudane błąd ошибка сломалось неудача неправильно упал""",
    "失败 错误 报错 失敗 エラー 間違",
)

DECIDED = _signs(
    """decided decision decides chose chosen agreed agree settled picked opted switched replaced
    entschieden entscheidung entschied beschlossen gewählt vereinbart geeinigt gewechselt umgestellt ersetzt
    décidé décision choisi convenu decidido decidió decisión eligió acordado deciso decisione scelto decidiu escolheu
    besloten beslissing gekozen beslutade valde zdecydowano wybrano решили решено выбрали договорились""",
    "决定 选择 商定 決定 決め 選ん",
)

STACK = _signs(
    """built uses use using written runs hosted deployed framework library database language stack backend frontend
    server api version compiler container cloud
    gebaut benutzt nutzt verwendet geschrieben läuft gehostet bibliothek datenbank sprache version
    utilise écrit hébergé bibliothèque usa utiliza escrito base datos biblioteca utilizza scritto libreria
    gebruikt geschreven använder skriven używa napisany использует написан база данных""",
    "使用 数据库 框架 版本 语言 使って データベース 言語",
)

_CONVENTIONS = _signs(
    """convention conventions style naming format formatted lint linter commits commit branch branches review reviews
    indent tests rule rules guideline policy konvention konventionen stil regel regeln einheitlich regla reglas règle
    règles regola regole правило""",
    "规范 规则 規約 ルール",
)
RULES = Signs(ALWAYS.words | _CONVENTIONS.words, (*ALWAYS.unspaced, *_CONVENTIONS.unspaced))
"""How the conventions of a project are worded."""

OPEN = _signs(
    """todo open pending unresolved unclear blocked waiting planned plans plan missing undecided
    deadline due

    offen offene ungeklärt unklar blockiert wartet geplant plant fehlt fehlen unentschieden frist fällig
        ouvert attente prévu manque reste pendiente pendientes abierto falta planeado aperto sospeso manca previsto
    pendente
    gepland öppen planerad otwarte brakuje план открыт осталось ждёт срок""",
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
