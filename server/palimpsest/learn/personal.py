"""Tell what is about a person from what is about a project, by words alone.

Who works in a repository also says that they are allergic to nuts. That belongs to all of their projects.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import replace

from palimpsest.core.models import SELF_NAMES, Fact, Scope, name_key
from palimpsest.learn.document_pages import is_long
from palimpsest.learn.engine import Engine
from palimpsest.learn.summaries import portrait_signs
from palimpsest.llm.user_name import is_about_user
from palimpsest.store import entries, memories
from palimpsest.text.names.lexicon import is_given_name
from palimpsest.text.names.name_finder import find_names

_ALSO_OF_THINGS = """born aged age years lives lived moved home languages speaks raised grew native parents child
    children kids baby friend friends partner family twin father mother brother sister hometown
    alt jahre lebt zuhause heimat spricht gezogen umgezogen eltern kinder familie partnerin freund freunde mutter mama
    habite vit parle langue parents famille ans enfants né née vive habla idioma años padre padres hijos familia madre
    vicino padrone anni abita genitori figli fala mora anos jaar woont spreekt vriend år bor talar lat mieszka mówi
    matka лет живёт живет говорит переехал родители дети друг сосед мать"""
"""Words about people that are also said of things: child processes, parent classes, a library's home."""

_PRIVATE = portrait_signs.Signs(
    (portrait_signs.IDENTITY.words | portrait_signs.PEOPLE.words | portrait_signs.SAFETY.words)
    - frozenset(_ALSO_OF_THINGS.split()),
    ("过敏", "生日", "妻子", "丈夫", "儿子", "女儿", "妈妈", "爸爸", "アレルギー", "誕生日"),
)
"""Signs of what is about a person, whoever that is."""

_IS_CALLED = re.compile(r"(?:the )?user['\u2019]s (?:(?:first|last|full|given|family|middle) )?name\b", re.IGNORECASE)
_NAME = frozenset({"name", "called", "nickname", "heißt", "appelle", "llama", "chiama", "chama", "heet", "зовут"})
_OF_A_PERSON = (
    portrait_signs.IDENTITY,
    portrait_signs.PEOPLE,
    portrait_signs.PREFERENCES,
    portrait_signs.WORK,
    portrait_signs.HELP,
    portrait_signs.Signs(_NAME),
)
"""Signs of what is about a person if a person is the subject."""

_OF_PROJECTS = """repo repository repositories codebase branch branches commit commits changelog build builds ci
    pipeline release releases deploy deploys deployed deployment module modules package packages
    library framework function functions class classes test tests testing linter lint api apis
    server servers backend frontend database schema migration endpoint endpoints script scripts
    config docker container kubernetes cluster compiler runtime bug bugs feature refactoring merge
    rebase docs readme datenbank bibliothek modul zweig veröffentlichung projekt dépôt branche
    bibliothèque repositorio rama biblioteca репозиторий ветка сборка база тесты"""
_PROJECT = portrait_signs.Signs(
    frozenset(_OF_PROJECTS.split()), ("仓库", "代码库", "分支", "数据库", "构建", "リポジトリ", "ブランチ")
)
"""Signs of what is about a project, whoever the subject is."""

_CODE = re.compile(r"`|::|\(\)|(?<!\w)--\w|\w_\w|\w\.(?:py|js|ts|tsx|md|json|toml|ya?ml|rs|go|java|sh|sql|c|cpp|h)\b")
"""What only stands in texts about code: identifiers, options and file names."""


async def home_of(engine: Engine, scope: Scope, fact: Fact, replaces: Sequence[str]) -> Scope:
    """Return where a fact belongs that is told in a scope: with what is about a person, outside of the project.

    What replaces another memory belongs where that does. A long text, which is no fact, stays in the project, and so
    does what somebody says who does not see what is general.
    """
    if not _is_open(scope) or is_long(fact.text):
        return scope
    return await engine.run(lambda: _home_of(engine, scope, fact, replaces))


def personal_facts(engine: Engine, scope: Scope, facts: Sequence[Fact]) -> list[Fact]:
    """Return those of the facts told in a scope that belong outside of its project. Blocking."""
    if not _is_open(scope):
        return []
    with engine.ledger.read() as conn:
        own = _own_names(memories.name_of_user(conn, scope))
    return [fact for fact in facts if not is_long(fact.text) and is_personal(fact, own, scope.project)]


def _is_open(scope: Scope) -> bool:
    return bool(scope.project) and scope.with_general and not scope.agent_id and not scope.run_id


def _own_names(name: str) -> Set[str]:
    return {name_key(part) for part in (name, *name.split()[:1]) if part}


def _home_of(engine: Engine, scope: Scope, fact: Fact, replaces: Sequence[str]) -> Scope:
    with engine.ledger.read() as conn:
        own = _own_names(memories.name_of_user(conn, scope))
        replaced = [entries.find_memory(conn, scope, memory_id).scope.project for memory_id in replaces]
    if replaced:
        return scope if any(replaced) else replace(scope, project="")
    return replace(scope, project="") if is_personal(fact, own, scope.project) else scope


def is_personal(fact: Fact, own_names: Set[str], project: str = "") -> bool:
    """Return whether a fact is about a person: who they are, their family, health or taste, or a relation of the user.

    `own_names` are what the user is called, as `name_key` gives it. A text that begins with the name of the project is
    about that. In doubt a fact is about the project.
    """
    own = own_names | SELF_NAMES
    if any(name_key(relation.source) in own for relation in fact.relations):
        return True
    if _CODE.search(fact.text) or _PROJECT.count(fact.text) or portrait_signs.DECIDED.count(fact.text):
        return False
    return bool(_PRIVATE.count(fact.text)) or (
        _is_about_person(fact.text, own, project) and any(some.count(fact.text) for some in _OF_A_PERSON)
    )


def _is_about_person(text: str, own: Set[str], project: str) -> bool:
    """Return whether a text begins with the user, or with somebody's name."""
    if is_about_user(text) or _IS_CALLED.match(text):
        return True
    first = next((entity.name for entity in find_names(text, {}) if text.startswith(entity.name)), "")
    is_projects = first.casefold() in re.split(r"[/.]", project.casefold())
    return bool(first and not is_projects) and (name_key(first) in own or is_given_name(first.split(maxsplit=1)[0]))
