"""Words that say that something has changed, and words that ask for how it was before, by language.

The first are signs that a new fact replaces an older one: "since", "moved", "no longer". The second turn the order of
two such facts around: "before", "used to", "originally".
"""

from __future__ import annotations

import re
import unicodedata

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
