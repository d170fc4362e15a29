"""Plain words that show which section of a portrait a memory belongs to, in several languages. Set by hand.

They are read where a memory has no tags, as those in an agent's words have none. Words are compared whole and in lower
case; signs of Chinese and Japanese, which have no spaces, anywhere in the text. English comes first, then German,
French, Spanish, Italian, Portuguese, Dutch, Swedish, Polish and Russian, as far as a word serves no other purpose.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from palimpsest.text.names.lexicon.cues import PETS

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
