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
    Webpack, WebStorm, WhatsApp, Windows, Woodpecker, WordPress, Xcode, YouTube, Zendesk, Zoom, Zotero, Zsh
    """
)
_ORGANIZATIONS = _set(
    """
    Adidas, Adobe, Airbus, Aldi, Alibaba, Allianz, Amazon, Anthropic, Apple, Asus, Audi, BASF, Bayer, BMW, Boeing, Bosch
    Canon, Cisco, Citroën, Dell, Deutsche Bahn, DHL, Edeka, eBay, Facebook, FedEx, Fiat, Ford, Fujitsu, Google, Hermes
    Hitachi, Honda, Huawei, Hyundai, IBM, Ikea, Intel, Kia, Lenovo, Lidl, Lufthansa, Mastercard, Mazda, McDonald's
    Microsoft, Miele, Mozilla, NASA, Nestlé, Nike, Nikon, Nintendo, Nissan, Nokia, Nvidia, Opel, OpenAI, Oracle, Panasonic
    PayPal, Peugeot, Philips, Porsche, Puma, Red Hat, Renault, Rewe, Ryanair, Samsung, SAP, Seat, Shell, Siemens, Skoda
    Sony, Stripe, Subaru, Suzuki, Telekom, Tencent, Tesla, Tesco, Toshiba, Toyota, UPS, Vaillant, Viessmann, Visa
    Vodafone, Volkswagen, Volvo, Walmart, Xiaomi
    """
)

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
