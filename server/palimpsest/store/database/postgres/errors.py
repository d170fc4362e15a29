"""PostgreSQL's errors as ours, with what to do."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import psycopg
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoFreeConnectionError

from palimpsest.core.errors import LedgerError

MAX_CAUSE_CHARS = 200
"""PostgreSQL quotes values, and they may be long."""

ADVICE = {
    "28": "Check the user and the password in ledger_url, and what this user may do",
    "3D": "Create the database that ledger_url names",
    "40P01": "Another write was in the way. Try again",
    "42501": "Give the user of ledger_url the right to create and change tables in the database",
    "42P01": "A table of the ledger is missing. Restore the database from a backup",
    "53100": "The disk of the database is full. Free some space, then try again",
    "53300": "The database has no free connection. Let it allow more of them (max_connections), or run fewer servers",
    "53": "The database has not enough resources. Try again in a moment",
    "54000": "A name is too long for an index of the database. Shorten it",
    "55P03": "Another server has been writing for this user all the time. Try again in a moment",
    "57014": "The database took too long. Try again in a moment",
    "57P": "The database is stopping or starting. Try again in a moment",
    "08": "The database cannot be reached. Check that it runs, then try again",
    "25P03": "This server was held up for too long in the middle of a call. Try again",
    "25006": "The database only allows reading now, as a standby does. Try again once it is the primary",
    "22P05": "The text has a character that PostgreSQL cannot store. Leave it out",
    "22021": "The text has a character that PostgreSQL cannot store. Leave it out",
}
"""What to do, by the beginning of PostgreSQL's error code (its manual, appendix A), the longest that fits."""

REFUSALS = {
    "password authentication failed": ADVICE["28"],
    "no password supplied": ADVICE["28"],
    "does not exist": ADVICE["3D"],
    "too many": ADVICE["53300"],
    "starting up": ADVICE["57P"],
    "not yet accepting": ADVICE["57P"],
    "shutting down": ADVICE["57P"],
}
"""What to do if a connection is refused, by a part of the message, because the driver gives no code then."""

UNREACHABLE = "The database cannot be reached. Check that it runs and that ledger_url is right, then try again"

UNREADABLE_ROW = (ValueError, LookupError, TypeError, SQLAlchemyError)
"""What reading a row raises if its content is not what was written."""


NOTHING = "Nothing was written."

NOTHING_BY_THIS_STEP = "Nothing was written by this step."
"""What a read says: an earlier step of the same call may have written."""


@contextmanager
def as_ledger_errors(location: str, written: str = NOTHING) -> Generator[None]:
    """Raise PostgreSQL's errors as LedgerError. `written` says what was written when one occurs."""
    try:
        yield
    except NoFreeConnectionError as error:
        raise LedgerError(
            f"the ledger {location} could not be used: all connections of this server were in use for too long. "
            f"{written} Try again in a moment."
        ) from error
    except DBAPIError as error:
        raise LedgerError(f"the ledger {location} could not be used: {_with_advice(error.orig, written)}") from error
    except psycopg.Error as error:
        raise LedgerError(f"the ledger {location} could not be used: {_with_advice(error, written)}") from error
    except UNREADABLE_ROW as error:
        cause = f"a row cannot be read ({type(error).__name__}: {str(error)[:MAX_CAUSE_CHARS]})"
        raise LedgerError(f"the ledger {location} could not be used: {cause}. {written}") from error


def is_lost(error: BaseException | None) -> bool:
    """Return whether an error says that the connection is gone, or the server is stopping or starting."""
    code = _code(error)
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and (
        not code or code.startswith(("08", "57P0"))
    )


def _code(error: BaseException | None) -> str:
    return (error.sqlstate or "") if isinstance(error, psycopg.Error) else ""


def _with_advice(error: BaseException | None, written: str) -> str:
    """Return PostgreSQL's message, what was written, and what to do."""
    code = _code(error)
    advice = next((ADVICE[code[:length]] for length in (5, 3, 2) if code[:length] in ADVICE), "")
    if not code:
        advice = next((advice for part, advice in REFUSALS.items() if part in str(error)), "")
    if not advice and is_lost(error):
        advice = UNREACHABLE
    message = " ".join(str(error).split())[:MAX_CAUSE_CHARS].rstrip(".")
    return f"{message}. {written}{f' {advice}.' if advice else ''}"
