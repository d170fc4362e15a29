"""Words that show that a name is beside them and of what, and capitalized words that are no names. Set by hand."""

from __future__ import annotations

from typing import Literal, TypeAlias

from palimpsest.core.entities import EntityType

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
