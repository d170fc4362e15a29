"""Word lists for names: given names, surnames, places, ordinary words, cues and well-known products."""

from __future__ import annotations

import gzip
import re
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeAlias, cast

import snowballstemmer  # pyright: ignore[reportMissingTypeStubs] - it ships none

from palimpsest.core.models import EntityType

# Words that show that a name is beside them and of what, and capitalized words that are no names. Set by hand.

CueType: TypeAlias = EntityType | Literal["pet"]


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


TITLES = _set(
    """mr mrs ms miss mx dr prof professor sir dame lord lady rev reverend inspector sergeant captain colonel judge detective
    sister brother aunt auntie uncle grandma grandpa granny nana coach saint st
    herr herrn frau dr. doktor pfarrer kommissar bruder schwester tante onkel oma opa
    monsieur madame mademoiselle mme mlle docteur maître oncle
    señor señora señorita sr sra srta don doña doctor doctora tío tía profesor profesora
    senhor senhora dom dona doutor doutora tio tia signor signora signorina dottor dottoressa dott zio zia
    meneer mevrouw oom pan pani господин госпожа доктор профессор дядя тётя бабушка дедушка"""
)
"""Words that stand before the name of a person, and are left out before a full name."""

PERSON = TITLES | _set(
    """mother father mum mom dad son daughter sister brother wife husband partner fiancé fiancée cousin niece nephew
    grandmother grandfather grandson granddaughter stepmother stepfather stepson stepdaughter mother-in-law father-in-law
    sister-in-law brother-in-law son-in-law daughter-in-law twin friend friends boyfriend girlfriend neighbour neighbor
    flatmate roommate housemate colleague colleagues coworker boss manager supervisor mentor teacher tutor doctor dentist
    therapist lawyer accountant adviser advisor editor agent author writer painter singer actor composer founder
    co-founder cofounder ceo cto cfo director president minister landlord landlady coach trainer nurse student intern
    maintainer client baby midwife vet plumber electrician cleaner nanny
    mutter vater mama papa sohn tochter ehefrau ehemann partnerin verlobte verlobter cousine vetter nichte neffe
    großmutter großvater enkel enkelin schwiegermutter schwiegervater schwager schwägerin schwiegersohn
    schwiegertochter zwilling freund freundin nachbar nachbarin mitbewohner mitbewohnerin kollege kollegin kollegen chef
    chefin vorgesetzte vorgesetzter lehrer lehrerin ärztin arzt hausarzt hausärztin zahnarzt zahnärztin kinderarzt
    kinderärztin anwalt anwältin steuerberater steuerberaterin trainer trainerin schüler schülerin hausmeister
    hebamme direktor direktorin schulleiter schulleiterin vermieter vermieterin autor autorin professorin mann
    mère père fils fille frère sœur femme mari cousin cousine nièce neveu grand-mère grand-père ami amie voisin voisine
    collègue patron patronne médecin dentiste avocat avocate professeure
    madre padre hijo hija hermano hermana esposa esposo marido primo prima sobrino sobrina abuela abuelo amigo amiga
    vecino vecina compañero compañera jefe jefa médico médica abogado abogada maestro maestra novio novia cuñado cuñada
    mãe pai filho filha irmão irmã mulher sobrinho sobrinha avó avô vizinho vizinha colega chefe
    figlio figlia fratello sorella moglie marito cugino cugina nonna nonno amico amica vicino vicina capo collega
    moeder vader zoon dochter broer zus vrouw man vriend vriendin buurman buurvrouw baas oma opa
    matka ojciec syn córka brat siostra żona mąż babcia dziadek przyjaciel przyjaciółka sąsiad sąsiadka kolega koleżanka szef
    мать отец мама папа сын дочь брат сестра жена муж внук внучка подруга друг сосед соседка коллега начальник начальница
    врач учитель учительница тёща свекровь зовут"""
)

PETS = _set(
    """dog cat puppy kitten horse pony rabbit parrot hamster tortoise spaniel whippet terrier labrador
    hund hündin katze kater welpe pferd pony hase kaninchen papagei hamster meerschweinchen schildkröte dackel
    chien chienne chat chatte perro perra gato gata cane gatto gatta hond kat pies kot собака кот кошка пёс"""
)

_ORGANIZATION = _set(
    """company firm employer start-up startup publisher agency charity union supplier vendor provider client customer
    bank insurer brewery bakery club team choir band orchestra school hospital clinic nursery university college
    firma unternehmen verein kunde kundin anbieter verlag agentur hersteller werkstatt versicherung krankenkasse schule
    gymnasium grundschule klinik krankenhaus pflegeheim kita kindergarten praxis chor band orchester hotel restaurant
    café kneipe brauerei bäckerei
    entreprise société empresa compañía azienda ditta bedrijf firmy компания компании фирма фирме банк издательство
    mühle apotheke buchhandlung gärtnerei metzgerei kanzlei hochschule akademie genossenschaft druckerei molkerei spedition tischlerei
    brasserie librairie boulangerie librería panadería
    gmbh ag se kg ltd inc llc corp co plc sa sas sarl srl spa bv nv oy ab as kk"""
)

_PLACE = _set(
    """city town village street road lane island lake river mountain valley beach district county region
    stadt dorf straße insel see fluss berg ort gemeinde ville village île ciudad pueblo isla calle plaza barrio cidade
    rua praia città paese via piazza isola stad dorp miasto wieś город городе село деревня улица"""
)

_DOCUMENT = _set(
    """book novel story poem film movie series song album play paper article report thesis newspaper magazine podcast
    buch roman geschichte gedicht film serie lied album stück artikel bericht zeitung zeitschrift
    livre roman film chanson libro novela película canción revista filme canzone boek книга роман фильм песня"""
)

_PROJECT = _set("""project codename projekt projet proyecto progetto projeto project проект проекта проекте""")

_PRODUCT = _set(
    """app tool library framework package router server service software database engine language printer laptop phone
    camera car bike bicycle plugin extension editor compiler model platform
    portal plattform software programm bibliothek datenbank drucker handy kamera auto fahrrad paket sprache
    logiciel outil application voiture vélo herramienta aplicación programa coche bicicleta programma macchina bici
    приложение программа машина велосипед"""
)

_EVENT = _set(
    """conference festival fair tournament race marathon meetup workshop konferenz messe turnier conférence conferencia"""
)

CUES: dict[str, CueType] = {
    **dict.fromkeys(_PRODUCT, "product"),
    **dict.fromkeys(_EVENT, "event"),
    **dict.fromkeys(_PLACE, "place"),
    **dict.fromkeys(_DOCUMENT, "document"),
    **dict.fromkeys(_ORGANIZATION, "organization"),
    **dict.fromkeys(_PROJECT, "project"),
    **dict.fromkeys(PERSON, "person"),
    **dict.fromkeys(PETS, "pet"),
}
"""What a word says about the name that follows it, by the word in lower case."""

INTRODUCING = _set(
    """called named nicknamed titled entitled namens genannt heißt heissen heißen nommé nommée appelé appelée s'appelle
    appelle llamado llamada llama chamado chamada chama chiamato chiamata chiama genaamd heet nazywa imieniem zwany
    зовут называется называют"""
)
"""Words after which a name stands. What it is of, the noun before them says."""

LAST_WORDS: dict[str, EntityType] = {
    **dict.fromkeys(
        _set(
            """gmbh ag se kg ltd inc llc corp plc sa sas sarl srl bv oy ab university college school academy institute
            hospital clinic bank press publishing ventures capital partners partner group holding labs systems software
            technologies solutions foundation society association council committee ministry department agency union
            club united fc orchestra choir church museum library brothers sons media energy airlines insurance brewery
            bakery cafe café bistro pub inn hotel farm mill studio studios fund trust consulting acoustics logistics foods records company theatre theater
            universität gymnasium klinik verlag stiftung verein stadtwerke schule grundschule werke"""
        ),
        "organization",
    ),
    **dict.fromkeys(
        _set(
            """street road avenue lane square drive court close park garden gardens station airport bridge river lake
            mountain bay beach island islands valley hill hills castle county city town village harbour harbor port pier
            straße platz allee gasse bahnhof"""
        ),
        "place",
    ),
    **dict.fromkeys(
        _set("""marathon festival conference summit cup olympics championship championships awards con fest expo"""),
        "event",
    ),
}
"""What the last word of a name says about it, by the word in lower case."""

LAST_PARTS: dict[str, EntityType] = {
    "straße": "place",
    "strasse": "place",
    "platz": "place",
    "torget": "place",
    "gatan": "place",
    "gymnasium": "organization",
    "grundschule": "organization",
}
"""What the end of a compound says about the name that it is."""

CUES_AFTER: dict[str, EntityType] = {
    **dict.fromkeys(_set("app library router database dashboard server topics cluster code"), "product"),
    **dict.fromkeys(_set("team office staff"), "organization"),
    **dict.fromkeys(_set("lives likes wants loves hates prefers moved married works plays studies"), "person"),
}
"""What a word says about the name before it."""

FIRST_WORDS: dict[str, EntityType] = {
    **dict.fromkeys(
        _set(
            """universidad universidade università université universität universiteit hospital hôpital ospedale banco
            banca banque bank ministerio ministère ministry institut instituto istituto colegio escuela école lycée
            collège university klinikum grundschule gymnasium club cafe café bistro hotel brasserie pizzeria pub restaurante ristorante restaurant landesbibliothek stadtbibliothek kantorei bäckerei
            brauerei apotheke buchhandlung gärtnerei tischlerei schreinerei metzgerei molkerei mühle akademie hochschule editorial teatro théâtre museo musée museum"""
        ),
        "organization",
    ),
    **dict.fromkeys(
        _set(
            """calle avenida plaza rue avenue place via piazza rua praça lake mount mt cape isle port san santa saint-"""
        ),
        "place",
    ),
}
"""What the first word of a name says about it, by the word in lower case."""

NUMBERED = _set(
    """chapter room section figure table page part step level grade class floor gate platform terminal line flat
    apartment unit version phase week day year quarter appendix annex item number volume episode season sprint track
    ward bed bay shelf extension exit"""
)
"""Nouns that are written with a capital before a number or a letter, and then are no names."""

PLACE_PREPOSITIONS = _set(
    """in at from near to towards around outside leaving nach aus bei in à en de desde a em da di do из в во под около na w
    z do naar uit"""
)

NEVER = _set(
    """true false null none todo fixme note warning error
    bitte danke heute morgen gestern übermorgen immer niemals vielleicht demain hier aujourd'hui toujours jamais merci
    mañana hoy ayer siempre nunca gracias quizás sempre mai domani oggi ieri grazie forse amanhã hoje ontem obrigado obrigada
    talvez altijd nooit vandaag gisteren misschien bedankt alltid aldrig imorgon idag igår kanske tack altid måske kanskje
    zawsze nigdy jutro dziś dzisiaj wczoraj może dziękuję proszę yarın bugün dün belki daima asla lütfen vždy nikdy zítra
    dnes včera možná prosím aina huomenna tänään eilen ehkä mindig soha holnap tegnap talán mâine azi întotdeauna
    завтра сегодня вчера всегда никогда спасибо пожалуйста може завжди ніколи сьогодні
    january february march april may june july august september october november december jan feb mar apr jun jul aug
    sep sept oct nov dec monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays
    fridays saturdays sundays mon tue tues wed thu thur thurs fri sat sun
    januar februar märz mai juni juli oktober dezember jänner montag dienstag mittwoch donnerstag freitag samstag
    sonnabend sonntag montags dienstags mittwochs donnerstags freitags samstags sonntags
    easter christmas halloween thanksgiving ramadan eid diwali hanukkah lent whitsun advent xmas ostern weihnachten
    birthday pfingsten silvester neujahr fasching karneval navidad noël pâques pasqua natale natal
    english german french spanish italian portuguese dutch polish russian chinese japanese korean arabic hebrew hindi
    turkish greek latin welsh irish scottish swedish norwegian danish finnish czech hungarian romanian ukrainian catalan
    basque gaelic mandarin cantonese thai vietnamese indonesian swahili persian farsi british american european african
    asian australian canadian mexican brazilian indian swiss austrian belgian israeli egyptian catholic protestant
    christian muslim jewish buddhist hindu
    deutsch englisch französisch spanisch italienisch portugiesisch niederländisch polnisch russisch chinesisch japanisch
    koreanisch arabisch türkisch griechisch latein schwedisch dänisch
    euro euros dollar dollars pound pounds franc francs yen yuan rupee kronor krone kronen złoty rubel peso pesos
    internet wi-fi wifi wlan bluetooth ethernet web email e-mail god ok okay
    ai api apis ascii asap atm auc bbc bios blob bpm cad cbt cd cdn ceo cfo cgi ci cli cms cpu cpus cqrs crm crud csrf css
    csv cto cv cvs ddos dhcp diy dna dns dpi dvd ecg eeg eta etl eu eur faq fps ftp gb gbp gcse gdp gdpr ghz gmt gp gpa gps
    gpu gpus gui hd hdd hdmi hr html http https hz id ide ids ieee imap io ip iq isbn iso isp it jit jpeg json jwt kb
    kg khz km kpi kpis kw kwh lan lcd led llm llms lte mac mae mape mb mba mhz ml mp mri mse mvp nas nda nfc nfs nlp nosql
    oauth ocr okr okrs orm os pc pcb pcs pdf phd php pin pm png poc pos pr prs ps psu qa qr ram rdf rest rfc rgb rmse
    roc roi rpc rpm rss sdk sep sla sli slo sms smtp soap sop sos spa sql ssd ssh ssl sso stem sudo svg tb tcp tdd tls tts
    tv ui uk unesco url urls us usa usb usd utc ux uv-b vat vip vlan vm vms vpn vps wan wc wip www xml xss yaml zip
    abi bafög bzw dsgvo ggf kfz lkw mwst ok pkw tüv usw zb iban bic sim ssid sku soc
    spi i2c uart usart dma dsp jtag gpio adc dac pwm fft rtos rom eeprom fpga asic soc mcu bms can emi emc esd nvme hil sil cnc lipo oled amoled nand
    wps lte gsm ble rssi ssid cve sca sast dast saml ldap oidc mfa totp rbac dmarc spf dkim smb dlp hvac hipaa ehr emr mri icu nicu picu ekg adhd ptsd ocd ibs uti tb ms rn lpn ent hdl ldl bmi
    vip hq rsvp byob eob eod eow tbd tba fyi ooo wfh hoa pto pta rv suv atv gmo npk ph uht led dj mc lp ep cc bcc re fwd
    satb midi daw dslr raw iso fov hdr fps rpg mmo npc wysiwyg ascii ide ux dom spa cta seo sem crm erp mrr arr cac ltv nps okr raci swot smart nlp ocr asr rag llm rlhf
    phev ev abs esp gps obd awd fwd cv jd llc phd msc bsc ma ba mba md do llb ielts toefl ects gpa sat gre gmat stem
    sbz agb dau edv ekg mrt ct oz plz gez kita hno zvb agb rz ag wlan kg m2
    português español français italiano deutsch türkçe urdu bengali tamil punjabi malay tagalog hungarian slovak slovene croatian serbian bulgarian estonian latvian lithuanian icelandic yiddish
    anglican lutheran sunni shia buddhism islam christianity eid pentecost epiphany passover purim kwanzaa sankt-martin totensonntag reformationstag rosenmontag
    gpg pgp dco cla dag msrv uuid guid cron kib mib gib tib iot pii kyc ddl dml ack acl ttl rtt mtu cidr lru ean snake_case camelcase"""
)
"""Capitalized words that are no names: dates, languages, nations, currencies, and acronyms of general things."""

PERSON_VERBS = _set(
    """lives works wants likes loves hates prefers moved married called said says thinks studies plays teaches runs
    bought sold got has had is was joined left became grew drinks eats hopes needs takes keeps sits owns asked sleeps joins leads
    does manages handles starts writes helps designs builds signs"""
)
"""What a person does and a thing seldom: after it, a word such as Mark or Rose at the beginning is a person."""

JOINING = _set("van von der den de del della di da dos do du des la le el al bin ibn ten ter zu y")
"""Words inside of a name, which are in lower case."""


# Lists of names and words, which tell a name from a word where the spelling does not.
#
# `benchmarks/fitting/word_lists.py` wrote them. Each says in its first line what it was made from. A list is
# unpacked when it is first needed, and searched as it is: making sets of all lists would take 60 ms, and unpacking
# them takes 5.

_FOLDER = Path(__file__).parent / "data"


_LOCK = Lock()
"""A stemmer keeps the word it works on."""

_STEMMERS = {language: cast("Any", snowballstemmer).stemmer(language) for language in ("english", "german")}

_ALSO_WORDS = _set(
    """
    amber april art august autumn basil bill bishop brook buck carol chance chase cherry chuck cliff clay coral
    crystal daisy dale dawn dean dell destiny drew duke earl early ernest eve faith fern flora frank gene ginger
    glen grace grant guy harmony hazel heath heather henna holly honor hope hunter ice iris ivy jade jasmine jay
    jewel joy june justice king lance laurel lily lux major marina mark mason may melody mercy merit miles
    miller misty noble north olive opal parker pat patience pearl penny piper poppy porter preston price prince
    queen ray reed rich rob robin rod rose rosemary royal ruby rusty sage sandy scout serenity shepherd sierra
    sky sterling stone storm summer sue tanner taylor terry tiger trinity tucker van violet wade ward west will
    willow winter wood woody young bach bär beate dirk ernst falk falke falter gold graf heide herbst herr jahr
    jung kai kaiser karl klaus klee könig lang linde lob mai mandel mut nelke ostern rabe reich reiner rita rosa
    sommer sonne star stern tanne tor treu viola wolf wolke zug linse perle blume bath battle bury buffalo como
    corona deal derby essen füssen gera halle hamm hof hull lens lima mali male man march marl mobile most nice
    nome orange plan police poole reading regen rye sale salt singen split tours ware wells worms baden bergen
    buchen norden weiden celle kiel zeit singles date data faro mayor sur central union victoria florence
    independence liberty paradise enterprise granada mercedes laredo chester eagle phoenix ferrol aurora lena
    bella angel cruz león luz paz mar sol rio flor gloria socorro dolores pilar consuelo esperanza alba blanca
    clara mesa france ada api con dos las los para sin pan вера надежда любовь роман роза слава лев мир мира
    орёл майя дата яна лада كريم جميل سعيد أمل نور حسن سالم فرح هدى وفاء حياة سلام رحمة عادل صالح أمين ماجد بسمة
    سعاد منى هبة مريم محمود ناصر حكيم شريف عزيز فريد خالد راشد سامي 사랑 하늘 구름 바다 이슬 보람 나라 우리 지금 수도 上海道 中央 一般 高原
    """
)
"""Given names and places that are also words, in lower case. They are names only where something else shows it. Set by
hand: what is common as a word, in sentences about everyday life."""


_ENGLISH_WORDS = _set(
    """
    made gun among per jail odd tone mate bent yoga ants server ninja wage valid roar mist canal beta paw ion hind much most hang wedding normal soul
    surprise mission island lend bend temple horn barking brick limo reunion grenade chili lime sunrise springs sparks shaping cork dual rugby plantation
    uptown tyre mango pest little love said ever long lot else friend son job case reason till baby worth true beat less line red lucky marry lady sister
    doctor carry sing mad brain kick rock green press boss peace sad judge floor innocent roll cash captain wash lies general add tiny tea fancy park river
    harm bird page fate precious trace joke silver bell heaven golden journey rush mile nail treasure brown hall forest comfort loyal link pleasant candy loan
    rice fairy unknown skip unique miracle media pink princess constant council minor toy chip lean wing gray math jet fleet governor liberty colonel ties sole
    cap branch greet doll raid blessing sunshine harsh lemon sunny infant icy graves urban essence ham handy kit sincere hence shade bush cinnamon
    meadow windy junior til delta metro canyon arch peer gauge blossom haven loot mentor marvel rim aura champ butler garrison bud ale velvet echo
    cord bunk ridge purity ash lantern barley clover saffron peaches honey reef marsh moor cove port vale ocean lake bay
    """
)
_GERMAN_WORDS = _set(
    """
    einer lasse beste rein bitten davor per tage dick wage malen ritt made helle fügen hege mist tore waren dabei kamen langen normal leiden leer
    ungern klang ende senden lehrte enger springe siegen rissen mission most bade frechen lage mal dann davon sage eben allen anders ab leider solange hart
    darin lies reine major fern lady landen prima brennen loyal wilder wende art handy kläre hellen traute lila chance tod roll general edel eitel lot boss
    park ferne junior olive mitte neubau
    """
)
"""Given names and places somewhere that are frequent words of a language, so that the lists of words leave them out. They
were read from the most frequent 12,000 words, and those left out that are mostly names. Set by hand."""

_SHORT_ENDS = (
    "tag",
    "rad",
    "amt",
    "zug",
    "weg",
    "hof",
    "bus",
    "tor",
    "öl",
    "eis",
    "tee",
    "uhr",
    "bad",
    "bau",
    "see",
    "ort",
    "bar",
    "rat",
    "typ",
    "abo",
)
"""German nouns of two or three letters with which compounds end. Set by hand."""


@cache
def _read(name: str) -> bytes:
    """Return a list: sorted lines in UTF-8, without the first one, between line ends."""
    text = gzip.decompress((_FOLDER / f"{name}.txt.gz").read_bytes())
    return text[text.index(b"\n") :]


@lru_cache(maxsize=16_384)
def _has(name: str, entry: str) -> bool:
    """Return whether a list has an entry, by halving the part where it may be."""
    lines, wanted = _read(name), entry.encode("utf-8", "surrogatepass")
    low, high = 0, len(lines) - 1  # line ends, between which the entry may be
    while low < high:
        end = lines.find(b"\n", (low + high) // 2 + 1)
        start = lines.rfind(b"\n", low, end)
        line = lines[start + 1 : end]
        if line == wanted:
            return True
        low, high = (end, high) if line < wanted else (low, start)
    return False


def is_given_name(word: str) -> bool:
    """Return whether a word is a given name in some language."""
    return _has("given", word)


def is_place(name: str) -> bool:
    """Return whether a name is that of a country or a city."""
    return _has("places", name)


def is_surname(name: str) -> bool:
    """Return whether a name is a family name in China, Korea or Japan."""
    return _has("surnames", name)


def is_also_word(word: str) -> bool:
    """Return whether a given name or a place is also a common word."""
    folded = word.casefold()
    return folded in _ALSO_WORDS or folded in _ENGLISH_WORDS or folded in _GERMAN_WORDS


_NEWER_WORDS = _set("""webhook webhooks backend backends frontend frontends endpoint endpoints changelog middleware codebase codebases
    refactoring refactor linter linters formatter hotfix hotfixes rollout rollouts rollback rollbacks onboarding offboarding
    standup standups retrospective retrospectives kanban scrum sprint sprints timestamp timestamps namespace namespaces
    workflow workflows repo repos commit commits dataset datasets hyperparameter hyperparameters tokenizer dropdown tooltip
    checkbox homepage podcast podcasts smartphone smartphones chatbot chatbots vegan glutenfree sourdough unittest
    screenshot screenshots spreadsheet spreadsheets dashboard dashboards login logins signup username usernames config configs
    runtime uptime downtime autoscaling serverless microservice microservices monorepo submodule submodules whitelist
    blacklist allowlist blocklist throughput latency async mutex semaphore regex json yaml url urls plugins addon addons
    matcha hummus tofu pesto chai quinoa yoga pilates kombucha kimchi sushi ramen falafel couscous norovirus hackathon varroa pinkel
    sudoku karaoke zumba crossfit pho miso tahini granola muesli smoothie latte espresso cappuccino barista ciabatta focaccia brioche
    childcare daycare eczema hayfever penicillin ibuprofen paracetamol insulin antihistamine antihistamines homeschool
    crowdfunding freelancer freelancers coworking invoicing payroll ebike scooter scooters allotment vaping""")
"""English words that are rare in the subtitles of films, which the list was made from. Set by hand."""

_GERMAN_NOUN = re.compile(
    r"(?:ung|heit|keit|schaft|tion|tät|ment|ling|chen|nis|ismus|iat|thie|nie|gie|phie|trie|lie|enz|anz|innen|rei|erin|arin|orin|eur|gramm"
    r"|ik|iker|ismus|ium|är|logie|loge|eile|itis|ur|ler|thekar|thekarin)(?:e?[ns])?$"
)
"""How German nouns end, and names seldom do. Set by hand."""


@lru_cache(maxsize=8_192)
def is_english_word(word: str, *, compounds: bool = False) -> bool:
    """Return whether a word is a form of an English word, or, with `compounds`, of two of them."""
    folded = word.casefold()
    if folded in _NEWER_WORDS or folded in _ENGLISH_WORDS or _is_listed("english", folded):
        return True
    return compounds and any(
        _is_listed("english", folded[:middle]) and _is_listed("english", folded[middle:])
        for middle in range(3, len(folded) - 3)
    )


@lru_cache(maxsize=8_192)
def is_german_word(word: str, *, compounds: bool = True) -> bool:
    """Return whether a word is a form of a German word, or, with `compounds`, of one that ends with one."""
    folded = word.casefold()
    if folded in _NEWER_WORDS or folded in _GERMAN_WORDS or _is_listed("german", folded):
        return True
    if not compounds:
        return False
    if folded.endswith(_SHORT_ENDS) or _GERMAN_NOUN.search(folded):
        return True
    return any(folded[n:] in _GERMAN_WORDS or _is_listed("german", folded[n:]) for n in range(2, len(folded) - 3))


def _is_listed(language: str, word: str) -> bool:
    with _LOCK:
        stem = str(_STEMMERS[language].stemWord(word))
    return _has(language, stem) or _has(language, word)


# Products and companies that everybody knows by name, so that a text need not say what they are. Set by hand.


def _names(words: str) -> frozenset[str]:
    return frozenset(name.strip() for name in words.replace("\n", ",").split(",") if name.strip())


_PRODUCTS = _names(
    """
    Airflow, Airtable, Alembic, Android, Angular, Anki, Ansible, Arduino, Asana, Astro, Azure, Babel, Bash, Bazel, BigQuery
    Bitbucket, Blender, Bootstrap, Bun, C++, C#, Calibre, Canva, Cargo, Cassandra, Celery, Chrome, Chromium, Clang
    ClickHouse, Clojure, CMake, Confluence, Consul, Cypress, Dart, Databricks, Datadog, dbt, Debian, Deno, Discord
    Django, Docker, Dropbox, DuckDB, Elasticsearch, Electron, Elixir, Emacs, Erlang, ESLint, Etcd, Excel, Express
    FastAPI, Fedora, Figma, Firefox, Flask, Flink, Flutter, Forgejo, Fortran, Garmin, GCC, Ghost, Gimp, Git, Gitea
    GitHub, GitLab, Gmail, Go, Gradle, Grafana, GraphQL, Groovy, gRPC, Hadoop, Haskell, Helm, Heroku, Hugo, iCloud
    Inkscape, iPad, iPhone, InfluxDB, IntelliJ, iOS, Jaeger, Java, JavaScript, Jenkins, Jest, Jira, Jupyter, Kafka, Keras
    Keycloak, Kibana, Kindle, Kotlin, Kubernetes, Laravel, LibreOffice, Linear, Linux, Lua, MacBook, macOS, MariaDB
    Markdown, Matlab, Mattermost, Maven, Memcached, Mercurial, MinIO, Miro, MLflow, MongoDB, Moodle, MySQL, Neo4j
    Neovim, Netflix, Nextcloud, Nginx, Node, Node.js, Nomad, Notion, NumPy, Obsidian, OCaml, Outlook, OpenStreetMap
    Pandas, Perl, PHP, Photoshop, Playwright, Podman, Poetry, Polars, Postgres, PostgreSQL, Postman, PowerPoint, Prisma
    Prometheus, Pulumi, PyCharm, Pydantic, Pytest, Python, PyTorch, RabbitMQ, Rails, Raspberry Pi, React, Redis, Redshift
    Redux, Rollup, Ruby, Ruff, Rust, Salesforce, Sass, Scala, Selenium, Sentry, Shopify, Signal, Skype, Slack, Snowflake
    Solr, Spark, Spotify, SQLAlchemy, SQLite, Stata, Svelte, Swagger, Swift, Tableau, Tailwind, Teams, Telegram
    TensorFlow, Terraform, ThinkPad, Thunderbird, Todoist, Toggl, Trello, TypeScript, Ubuntu, Unity, Vault, Vim, Vite, Vue
    Twitter, Reddit, LinkedIn, Instagram, TikTok, Pinterest, Mastodon, Bluesky, Netlify, Vercel, KiCad, Weblate, QuickBooks
    Webpack, WebStorm, WhatsApp, Windows, Woodpecker, WordPress, Xcode, YouTube, Zendesk, Zoom, Zotero, Zsh
    """
)
_ORGANIZATIONS = _names(
    """
    Adidas, Adobe, Airbus, Aldi, Alibaba, Allianz, Amazon, Anthropic, Apple, Asus, Audi, BASF, Bayer, BMW, Boeing, Bosch
    Cloudflare, DATEV, DigitalOcean, Hetzner, Lexware
    Canon, Cisco, Citroën, Dell, Deutsche Bahn, DHL, Edeka, eBay, Facebook, FedEx, Fiat, Ford, Fujitsu, Google, Hermes
    Hitachi, Honda, Huawei, Hyundai, IBM, Ikea, Intel, Kia, Lenovo, Lidl, Lufthansa, Mastercard, Mazda, McDonald's
    Microsoft, Miele, Mozilla, NASA, Nestlé, Nike, Nikon, Nintendo, Nissan, Nokia, Nvidia, Opel, OpenAI, Oracle, Panasonic
    PayPal, Peugeot, Philips, Porsche, Puma, Red Hat, Renault, Rewe, Ryanair, Samsung, SAP, Seat, Shell, Siemens, Skoda
    Sony, Stripe, Subaru, Suzuki, Telekom, Tencent, Tesla, Tesco, Toshiba, Toyota, UPS, Vaillant, Viessmann, Visa
    Vodafone, Volkswagen, Volvo, Walmart, Xiaomi
    """
)

_UNCASED_PRODUCTS = _names(
    """
    微信, 企业微信, 支付宝, 淘宝, 天猫, 抖音, 小红书, 飞书, 钉钉, 知乎, 微博, 哔哩哔哩, 高德地图, 百度地图, 滴答清单, 印象笔记, 有道云笔记, 石墨文档, 腾讯文档, 腾讯会议, 语雀, 网易云音乐, 美团
    拼多多, 大众点评, 携程, 得物, 闲鱼, 特斯拉, ミクシィ, メルカリ, クックパッド, カカオトーク, 카카오톡, 카카오맵, 네이버, 쿠팡, 배달의민족
    """
)
_UNCASED_ORGANIZATIONS = _names(
    """
    网易, 腾讯, 阿里巴巴, 京东, 百度, 字节跳动, 华为, 滴滴, 比亚迪, 蔚来, 大疆, 海尔, 东软, 金蝶, 谷歌, 微软, 亚马逊, 索尼, 丰田, 奔驰, 宝马, 西门子, 博世, 英特尔, 英伟达, 富士康, 宁德时代, 顺丰, 同程, 招商银行
    ソニー, トヨタ, ホンダ, 任天堂, 楽天, パナソニック, 日立, 東芝, 富士通, シャープ, キヤノン, ニトリ, 無印良品, ユニクロ, グーグル, アマゾン, マイクロソフト, ヤマト運輸, 佐川急便
    삼성전자, 현대자동차, 지멘스, 카카오, 구글, 엘지전자, 아마존, 마이크로소프트, 이케아, 스타벅스
    """
)
WELL_KNOWN_UNCASED: dict[str, EntityType] = {
    **dict.fromkeys(_UNCASED_PRODUCTS, "product"),
    **dict.fromkeys(_UNCASED_ORGANIZATIONS, "organization"),
}
"""The type of each name in a script without capitals. None of them is also a common word, or part of one."""

WELL_KNOWN: dict[str, EntityType] = {
    **dict.fromkeys(_PRODUCTS, "product"),
    **dict.fromkeys(_ORGANIZATIONS, "organization"),
}
"""The type of each name, as it is written."""

UNMISTAKABLE = frozenset(
    name.lower()
    for name in _names(
        """
        Alembic, Ansible, Cassandra, ClickHouse, CMake, Django, Docker, DuckDB, Elasticsearch, ESLint, FastAPI, Forgejo, GitHub
        GitLab, Gitea, Grafana, GraphQL, gRPC, InfluxDB, Jupyter, Keycloak, Kibana, Kubernetes, LibreOffice, MariaDB, MinIO
        MLflow, MongoDB, MySQL, Neovim, Nextcloud, Nginx, NumPy, Podman, Postgres, PostgreSQL, Pydantic, Pytest, PyTorch
        RabbitMQ, Redis, SQLAlchemy, SQLite, TensorFlow, Terraform, TypeScript, Webpack, WhatsApp, kubectl, pnpm, npm, mypy
        pyright, scipy, matplotlib, rclone, rsync, ffmpeg, systemd, tmux, openssl
        """
    )
)
"""Names of programs that are nothing else in lower case, in which they are often written."""
