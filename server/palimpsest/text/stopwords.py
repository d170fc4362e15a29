"""Function words, words of change and answer types, by language."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal, TypeAlias

# Function words by language: articles, pronouns, prepositions, conjunctions, auxiliaries, question words and
# particles.
#
# They build a sentence and say nothing about its subject. A question is searched without them, because in a small
# collection they are rare enough to look significant.

FUNCTION_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": """a about above after again against all also am an and any anybody anyone anything are aren as at be because
            been before being below between both but by can cannot could couldn did didn do does doesn doing don done
            down during each either else ever every everybody everyone everything few for from further get gets got
            had hadn has hasn have haven having he her here hers herself him himself his how i if in into is isn it
            its itself just kind let ll many may me might more most much must my myself neither no nobody none nor
            not nothing now of off on once one only or other ought our ours ourselves out over own per please quite
            rather re really same shall she should shouldn since so some somebody someone something sort still such
            than that the their theirs them themselves then there these they this those though through to too under
            until up upon us ve very was wasn we were weren what when where whether which while who whom whose why
            will with within without won would wouldn yes yet you your yours yourself yourselves""",
        "de": """aber alle als also am an auch auf aus bei beim bin bis bist da damit dann das dass dein deine dem den
            denn der des dich die dies diese diesem diesen dieser dir doch du durch ein eine einem einen einer eines er
            es euch euer für gegen gibt habe haben hat hatte hatten ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im in
            ist ja jede jeder jedes kann können man mein meine meinem meinen meiner mich mir mit muss nach nicht noch
            nur ob oder ohne schon sein seine seinem seinen seiner seit sich sie sind so soll über um und uns unser unsere
            unter vom von vor war waren warum was weil welche welchem welchen welcher welches wem wen wenn wer werden wessen
            wie wieder will wir wird wo wohin woher wurde wurden zu zum zur zwischen""",
        "fr": """à ai ainsi alors as au aucun aussi autre aux avait avant avec avez avoir avons c ce cela ces cet cette
            chaque comme comment d dans de depuis des donc dont du elle elles en encore entre es est et était étaient été
            être eu fait il ils j je l la laquelle le lequel les leur leurs lui m ma mais me même mes moi mon n ne ni
            nos notre nous on ont ou où par pas pendant peu plus pour pourquoi qu quand que quel quelle quelles quels qui
            quoi s sa sans se sera ses si son sont sous sur t ta te tes toi ton tous tout toute très tu un une vers
            vos votre vous y""",
        "es": """a al algo alguien algún ante antes aquel aquella así aún aunque cada como cómo con contra cual cuál cuando
            cuándo cuánto de del desde donde dónde durante e el él ella ellas ellos en entre era eran es esa ese eso esta está
            están este esto estos fue fueron ha había han hasta hay la las le les lo los más me mi mis mucho muy nada ni no
            nos nosotros nuestra nuestro o os otra otro para pero poco por porque qué que quien quién se sea ser si sí sin
            sobre son su sus también tan te tiene tienen todo tu tus un una uno unos usted y ya yo""",
        "it": """a ad agli ai al alla alle anche avere aveva c che chi ci come con contro cosa cui da dagli dal dalla de dei
            del della delle di dove dov e è ed era erano essere fra gli ha hanno ho i il in io la le lei li lo loro lui ma me
            mi mia mio molto ne nei nel nella no noi nostro o ogni per perché più poi quale quali quando quanto quella
            quello questa questo qui se sei si sia siamo sono su sua sui sul sulla suo te ti tra tu tua tuo tutti un una uno
            vi voi""",
        "pt": """a à ao aos as às até com como da das de dela dele delas deles depois do dos e é ela elas ele eles em entre era
            essa esse esta está estão este eu foi foram há isso isto já lhe mais mas me mesmo meu minha muito na não nas nem
            no nos nós nossa nosso num numa o onde os ou para pela pelo por porque qual quais quando quanto que quem se sem
            ser seu seus só sua suas também te tem têm um uma você vocês""",
        "nl": """aan al als bij dan dat de der deze die dit door een en er geen had heb hebben heeft het hier hij hoe hun ik in
            is ja je jij kan maar me meer men met mij mijn na naar niet nog nu of om omdat onder ons onze ook op over te tot
            u uit van veel voor waar waarom wanneer want waren was wat we wel welke werd wie wij worden zal ze zich zij
            zijn zo zonder""",
        "sv": """alla allt att av blev bli där de dem den denna deras dess det detta dig din dina ditt du då efter ej eller en
            er ett från för ha hade han hans har hennes hon honom hur här i inte jag kan man med men mig min mina mitt mot
            mycket ni nu när någon något och om oss på så sig sin sina sitt ska som till under upp ut vad var varför vara
            vem vi vid vilka vilken vilket är""",
        "pl": """a aby ale bo by być był była było były chce ci co czy dla do gdy gdzie go i ich ile im ja jak jaki jaka jakie
            je jego jej jest jestem już kiedy kto która które który ma mam mi mnie może mój my na nad nas nie nim o od on ona
            one oni po pod przed przez przy są się ta tak także tam te tego ten to tu ty w we wszystko z za ze że""",
        "ru": """а без бы был была были было в вам вас весь во вот все всё вы где да даже для до его ее её если есть еще ещё же
            за зачем и из или им их к как какая какие какой когда кого кому кто куда ли меня мне мой моя мы на над нам нас
            наш не него нее неё нет ни них но ну о об он она они оно от откуда по под почему при про с сам свой себя сколько со
            так также там те тебе тебя то того тоже той только том ты у уже чего чей чем что чтобы это этот эта эти я""",
    }.items()
}

_ASKING = """about describe detail details explain fact facts find info information know known learn learned list look
    mention mentioned memories memory note noted notes recall recalled remember remembered said say says search
    show stored talk talked tell thing things bekannt einzelheiten erinnerst erinnerungen erinnerung erzähl
    erzähle fakten finde gemerkt gesagt gespeichert informationen liste merken sag sage suche weiss weisst weiß
    weißt wissen zeig zeige connu connais détails dis dit dites faits informations liste montre raconte sais
    sait savoir souvenirs souviens conoces cuéntame dato datos detalles dicho dime información lista muestra
    recuerdas recuerdos sabe sabemos saber sabes conosci detto dettagli dimmi fatti informazioni mostra mostrami
    raccontami ricordi sa sai sapere sappiamo conta detalhes diga fatos informações lembra lembras mostre
    details feiten informatie onthoud toon vertel weet weten berätta detaljer fakta minns säg veta vet visa
    fakty informacje opowiedz pamiętasz pokaż powiedz szczegóły wiadomo wiemy wiesz знаем знаешь известно
    информация помнишь покажи расскажи скажи факты"""
ASKING_WORDS = frozenset(_ASKING.split())
"""Words by which a memory is asked, and not what it is asked about: "What do you know about Lina?" is about Lina."""

_NEGATION = re.compile(
    r"\b(?:no|not|never|none|cannot|stopped|avoid|don|doesn|didn|isn|aren|won|nicht|nie|niemals|kein\w{0,2}|pas|jamais|plus|aucune?"
    r"|nunca|jamás|non|mai|nessun\w?|não|jamais|niet|nooit|geen|inte|aldrig|ingen|nie|nigdy|не|нет|никогда|никаких)\b"
    r"|n['\u2019]t\b|不|没有|沒有|ない|ません|안 |않",
    re.IGNORECASE,
)
"""Words by which a sentence denies something, in the languages above and some others."""

MIN_FOREIGN_WORDS = 2
"""A question counts as another language than English only if it has this many of its function words.

One is not enough: many short words, such as "die" and "me", are function words of several languages."""


def is_denial(text: str) -> bool:
    """Return whether a text denies something."""
    return _NEGATION.search(text) is not None


def without_function_words(words: Sequence[str]) -> list[str]:
    """Return the words of a question without its function words, or all of them if it has no other words.

    `words` are case-folded and not stemmed. The language is the one with the most function words in the question.
    """
    function_words = FUNCTION_WORDS[_language_of(words)]
    return [word for word in words if word not in function_words] or list(words)


def is_english(words: Sequence[str]) -> bool:
    """Return whether a question has English function words, and no other language has more of them."""
    return _language_of(words) == "en" and any(word in FUNCTION_WORDS["en"] for word in words)


def _language_of(words: Sequence[str]) -> str:
    counts = {
        language: sum(word in function_words for word in words) for language, function_words in FUNCTION_WORDS.items()
    }
    best = max(counts, key=lambda language: counts[language])
    return "en" if counts[best] < MIN_FOREIGN_WORDS or counts[best] <= counts["en"] else best


# Words that say that something has changed, and words that ask for how it was before, by language.
#
# The first are signs that a new fact replaces an older one: "since", "moved", "no longer". The second turn the order
# of two such facts around: "before", "used to", "originally".

CHANGE_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": """since now nowadays currently instead longer anymore again new newly after until lately recently became
            become becomes began begun started stopped quit ended ends dropped left went gave moved moves changed
            changes switched switches shifted replaced replaces raised rose raises increased lowered reduced cut
            fell upgraded downgraded migrated renamed retired sold bought postponed rescheduled extended cancelled
            canceled returned turned grew took handed promoted transferred broke separated closed opened put""",
        "de": """seit seitdem jetzt nun inzwischen mittlerweile statt stattdessen anstatt mehr ab neu neue neuer neues
            neuen wieder nach künftig wurde wird geworden begann begonnen aufgehört beendet verlassen ging gegangen
            zog gezogen umgezogen geändert wechselte gewechselt umgestellt ersetzt ersetzte erhöht stieg gestiegen
            gesenkt gesunken verkauft gekauft verlegt verschoben umbenannt abgelöst übernahm übernommen gekündigt
            getrennt geschlossen untergebracht""",
        "fr": """depuis maintenant désormais dorénavant plutôt plus nouveau nouvelle nouveaux nouvelles après récemment
            devenu devenue commencé arrêté quitté parti partie déménagé changé changée passé passée remplacé
            remplacée remplace augmenté baissé réduit vendu acheté reporté reportée déplacé déplacée renommé remis
            repris fermé""",
        "es": """desde ahora actualmente ya más nuevo nueva nuevos nuevas después tras recientemente hizo volvió empezó
            dejó terminó fue mudó cambió cambiado cambiaron pasó sustituyó reemplazó sustituido reemplazado subió
            bajó aumentó redujo vendió compró aplazó aplazado trasladó trasladado renombró cerró abrió""",
        "it": """da adesso ora ormai attualmente invece più nuovo nuova nuovi nuove dopo recentemente diventato
            diventata cominciato iniziato smesso lasciato andato trasferito trasferita cambiato cambiata
            passato passata
            sostituito sostituita aumentato ridotto abbassato venduto comprato rinviato spostato rinominato chiuso""",
        "pt": """desde agora atualmente já mais novo nova novos novas depois após recentemente tornou começou parou
            deixou terminou foi mudou mudado mudaram passou substituiu substituído substituída subiu baixou aumentou
            reduziu vendeu comprou adiou adiado adiada transferiu transferido renomeado fechou abriu""",
        "nl": """sinds nu tegenwoordig inmiddels voortaan plaats meer nieuw nieuwe opnieuw weer na recent onlangs werd
            wordt geworden begon begonnen gestopt verlaten ging gegaan verhuisd verhuisde veranderd veranderde
            gewisseld overgestapt vervangen vervangt verhoogd gestegen verlaagd gedaald verkocht gekocht verzet
            uitgesteld hernoemd overgenomen gesloten""",
        "sv": """sedan nu numera istället längre ny nya nytt igen efter nyligen blev blivit började börjat slutade
            slutat lämnade lämnat gick flyttade flyttat ändrade ändrat ändrats bytte bytt ersatte ersatt höjdes höjt
            sänktes sänkt sålde sålt köpte köpt uppskjuten senarelagd döptes tog stängde""",
        "pl": """odkąd teraz obecnie już zamiast więcej nowy nowa nowe nowych ponownie znowu po niedawno stał stała
            został została zaczął zaczęła przestał przestała odszedł odeszła przeniósł przeniosła przeprowadził
            przeprowadziła zmienił zmieniła zmieniono zastąpił zastąpiła zastąpiono podniesiono wzrosła wzrósł
            obniżono spadła sprzedał sprzedała kupił kupiła przełożono przesunięto""",
        "ru": """теперь сейчас ныне вместо больше новый новая новое новые новую снова опять после недавно стал стала
            стало стали начал начала перестал перестала бросил бросила ушёл ушел ушла переехал переехала перешёл
            перешел перешла изменил изменила изменился изменилась сменил сменила поменял поменяла заменил заменила
            заменили повысили вырос выросла снизили упала продал продала купил купила перенесли перенёс перенес""",
    }.items()
}

CHANGE_SIGNS = (
    *(
        "改",
        "换",
        "換",
        "搬",
        "替",
        "调",
        "新",
        "不再",
        "现在",
        "現在",
        "以后",
        "之后",
        "升级",
        "降",
        "涨",
        "从",
        "変",
        "移",
    ),
    *("辞", "今は", "から", "もう"),
)
"""The same in Chinese and Japanese, which have no spaces: characters and pairs of them."""

PAST_WORDS = frozenset(
    [
        "before",
        "previously",
        "previous",
        "formerly",
        "former",
        "originally",
        "original",
        "earlier",
        "initially",
        "früher",
        "vorher",
        "zuvor",
        "damals",
        "ursprünglich",
        "bisher",
        "ehemals",
        "einst",
        "avant",
        "auparavant",
        "autrefois",
        "jadis",
        "précédemment",
        "initialement",
        "antes",
        "anteriormente",
        "antiguamente",
        "originalmente",
        "prima",
        "precedentemente",
        "originariamente",
        "inizialmente",
        "antigamente",
        "inicialmente",
        "vroeger",
        "voorheen",
        "eerder",
        "oorspronkelijk",
        "destijds",
        "förut",
        "tidigare",
        "innan",
        "ursprungligen",
        "wcześniej",
        "przedtem",
        "dawniej",
        "kiedyś",
        "pierwotnie",
        "раньше",
        "прежде",
        "ранее",
        "первоначально",
        "изначально",
    ]
)

PAST_SIGNS = (
    *("used to", "vor dem ", "vor der ", "à l'origine", "до того"),
    *("以前", "之前", "原来", "原本", "曾", "从前", "前は", "かつて", "もともと", "元々"),
)

_WORD = re.compile(r"[^\W\d_]+")


def change_words(text: str) -> int:
    """Return how many different words of a text say that something has changed."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    words = set(_WORD.findall(plain))
    signs = 0 if plain.isascii() else sum(sign in plain for sign in CHANGE_SIGNS)
    if _ALL_CHANGE_WORDS.isdisjoint(words):
        return signs
    return max(len(words & known) for known in CHANGE_WORDS.values()) + signs


_ALL_CHANGE_WORDS = frozenset[str]().union(*CHANGE_WORDS.values())


def asks_for_the_past(question: str) -> bool:
    """Return whether a question asks how something was before it changed."""
    plain = unicodedata.normalize("NFKC", question).casefold()
    return not PAST_WORDS.isdisjoint(_WORD.findall(plain)) or any(sign in plain for sign in PAST_SIGNS)


# What sort of answer a question asks for, and whether a text can hold one: a number, a time, or a person.
#
# "When was Biscuit born?" cannot be answered by a text without a date. Question words of the languages of the
# function words, of Chinese and of Japanese are known; any other question asks for nothing in particular.

AnswerType: TypeAlias = Literal["number", "time", "person"]

_QUESTION_PHRASES: dict[AnswerType, str] = {
    "number": """how many, how much, how old, how long, how big, how far, how often, how tall, how large, how high,
        how fast, phone, telephone, extension, price, salary, isbn, postcode, zip code, wie viel, wie viele,
        wie alt, wie lange, wie hoch, wie groß, wie oft, wie weit, kostet, telefonnummer, durchwahl, preis,
        gehalt, combien, cuánto, cuánta, cuántos, cuántas, quanto, quanta, quanti, quante, quantos, quantas,
        hoe veel, hoeveel, hoe oud, hoe lang, hoe vaak, hur många, hur mycket, hur gammal, hur länge, hur
        ofta, ile, сколько""",
    "time": """when, what time, what date, which day, what day, birthday, wann, uhrzeit, geburtstag, quand, à
        quelle heure, anniversaire, cuándo, a qué hora, cumpleaños, quando, a che ora, compleanno,
        aniversário, wanneer, hoe laat, verjaardag, när, födelsedag, kiedy, o której, urodziny, когда, день
        рождения""",
    "person": """who, whom, whose, wer, wem, wen, wessen, qui, quién, quiénes, chi, quem, wie is, vem, kto, кто,
        кого, кому""",
}
_QUESTION_SIGNS: dict[AnswerType, str] = {
    "number": "多少 几 幾 多大 多久 多长 号码 价格 工资 月薪 いくつ いくら 何人 何個 電話番号 値段",
    "time": "什么时候 何时 哪天 几点 几号 生日 いつ 何時 誕生日",
    "person": "谁 誰 だれ",
}
"""The same in Chinese and Japanese, which have no spaces."""

_ANSWER_WORDS: dict[AnswerType, str] = {
    "number": """one two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty
        hundred half once twice double daily weekly every eins zwei drei vier fünf sechs sieben acht neun
        zehn elf zwölf zwanzig dreißig halb einmal zweimal jede jeden jeder jedes""",
    "time": """january february march april may june july august september october november december monday tuesday
        wednesday thursday friday saturday sunday noon midnight morning evening night week weekend month
        year spring summer autumn winter easter christmas daily weekly mondays tuesdays wednesdays thursdays
        fridays saturdays sundays januar februar märz mai juni juli oktober dezember montag montags dienstag
        dienstags mittwoch mittwochs donnerstag donnerstags freitag freitags samstag samstags sonntag
        sonntags mittag mittags morgens abends nachts woche monat jahr frühling sommer herbst ostern
        weihnachten""",
}
_ANSWER_SIGNS: dict[AnswerType, str] = {
    "number": "一二三四五六七八九十百千万两半每",
    "time": "年月日号點点周週星期春夏秋冬早晚夜午",
}
"""Characters of Chinese and Japanese that numbers and times are written with."""

_FIRST_LETTER = re.compile(r"[^\W\d_]")


def _asking(kind: AnswerType) -> re.Pattern[str]:
    phrases = [re.escape(" ".join(phrase.split())) for phrase in _QUESTION_PHRASES[kind].split(",")]
    return re.compile(rf"\b(?:{'|'.join(phrases)})\b|{'|'.join(_QUESTION_SIGNS[kind].split())}")


def _answering(kind: AnswerType) -> re.Pattern[str]:
    return re.compile(rf"\d|\b(?:{'|'.join(_ANSWER_WORDS[kind].split())})\b|[{_ANSWER_SIGNS[kind]}]")


_ASKS: dict[AnswerType, re.Pattern[str]] = {kind: _asking(kind) for kind in _QUESTION_PHRASES}
_ANSWERS: dict[AnswerType, re.Pattern[str]] = {kind: _answering(kind) for kind in _ANSWER_WORDS}


def asked_types(question: str) -> frozenset[AnswerType]:
    """Return what sorts of answer a question asks for."""
    plain = _plain(question)
    return frozenset(kind for kind, pattern in _ASKS.items() if pattern.search(plain))


def can_hold(text: str, kind: AnswerType) -> bool:
    """Return whether a text, less the words of the question, can hold an answer of a sort.

    A person has a capital letter. Scripts without capital letters can always hold one.
    """
    if kind == "person":
        letters = [word[0] for word in text.split() if _FIRST_LETTER.match(word)]
        return any(letter.isupper() or not (letter.isupper() or letter.islower()) for letter in letters)
    return bool(_ANSWERS[kind].search(_plain(text)))


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()
