"""Products and companies that everybody knows by name, so that a text need not say what they are. Set by hand."""

from __future__ import annotations

from palimpsest.core.entities import EntityType


def _set(words: str) -> frozenset[str]:
    return frozenset(name.strip() for name in words.replace("\n", ",").split(",") if name.strip())


_PRODUCTS = _set(
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
_ORGANIZATIONS = _set(
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

_UNCASED_PRODUCTS = _set(
    """
    微信, 企业微信, 支付宝, 淘宝, 天猫, 抖音, 小红书, 飞书, 钉钉, 知乎, 微博, 哔哩哔哩, 高德地图, 百度地图, 滴答清单, 印象笔记, 有道云笔记, 石墨文档, 腾讯文档, 腾讯会议, 语雀, 网易云音乐, 美团
    拼多多, 大众点评, 携程, 得物, 闲鱼, 特斯拉, ミクシィ, メルカリ, クックパッド, カカオトーク, 카카오톡, 카카오맵, 네이버, 쿠팡, 배달의민족
    """
)
_UNCASED_ORGANIZATIONS = _set(
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
    for name in _set(
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
