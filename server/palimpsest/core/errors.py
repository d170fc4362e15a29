"""The exceptions this package raises.

    PalimpsestError
    ├── SettingsError            a setting is unknown, misspelt or not valid
    ├── PromptError              a prompt file is not valid
    ├── InputError               an argument of the caller is not valid
    │   ├── MemoryNotFoundError  no memory of this scope has that id
    │   └── ChangedMeanwhileError  a memory changed after its caller had read it
    ├── LedgerError              the ledger cannot be opened, read or written
    │   ├── LedgerTooNewError    a newer version of this package wrote the ledger
    │   ├── StaleDecisionError   memories changed after a decision had read them
    │   └── FullTextError        the full-text index cannot be read; everything else can
    ├── VectorIndexError         the vector index cannot be opened or used
    ├── GraphStoreError          the graph database outside cannot be used; the graph in the ledger can
    ├── EmbedderError            the embedder failed or cannot be loaded
    ├── RerankerError            the reranker failed, cannot be loaded, or takes too long
    ├── ModelFetchError          a model could not be fetched from its hub
    └── ModelError               the language model failed
        ├── ModelUnreachableError   no answer: connection, time-out, server error
        ├── ModelRefusedError       an answer that declines: key, quota, unknown model, content
        ├── DailyLimitError         our own limit on calls a day is reached
        ├── CallTimeError           our own limit on the time of a call is reached
        └── ReplyError              an answer that does not fit the stage

Every text says what happened, what was kept, and what to do next. Where that is a tool's call for an
agent and a command for a person, the error has a `Remedy`, and the door that reports it says it in its own words.
"""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum


class Remedy(StrEnum):
    """What the caller can do about an error. The door that reports the error words it."""

    RESTORE = "restore the memory"
    DELETE = "delete the message, which cannot be edited"
    REPLACE_NEWEST = "name the memory that took the place of the one to replace"
    REPLACE_NOTHING = "add the text without naming the memory to replace"
    NAME_SCOPE = "name the scope that the memory was found in"
    NOT_A_FILTER = "give a part of the scope as such"
    ONE_ID = "give one id"
    ADD_MESSAGES = "add a long text as a conversation"
    KEEP_ELSEWHERE = "store where the secret can be found"
    UNPIN = "shorten or unpin one of the pinned memories"


class PalimpsestError(Exception):
    """The base class of all errors that this package raises on purpose.

    `owner_id` is the short id of the memory or message that the remedy is about.
    """

    def __init__(self, text: str, remedy: Remedy | None = None, owner_id: str = "") -> None:
        super().__init__(text)
        self.remedy = remedy
        self.owner_id = owner_id


@contextmanager
def raised_as(kind: type[PalimpsestError], fault: str, advice: str, *causes: type[Exception]) -> Generator[None]:
    """Raise an error of this kind in place of a cause: the fault, the text of the cause, and the advice."""
    try:
        yield
    except causes as error:
        raise kind(f"{fault}: {error}{advice}") from error


class SettingsError(PalimpsestError):
    """A setting is unknown or not valid, or the settings file cannot be read."""


class PromptError(PalimpsestError):
    """A prompt file is not valid. The text names the file and the variable."""


class InputError(PalimpsestError):
    """An argument of the caller is not valid. The text says which one and why."""


class MemoryNotFoundError(InputError):
    """No memory of the scope has this id."""


class ChangedMeanwhileError(InputError):
    """A memory is no longer the revision that its caller has read. Nothing was changed."""


class LedgerError(PalimpsestError):
    """The ledger cannot be opened, read or written."""


class LedgerTooNewError(LedgerError):
    """A newer version of this package wrote the ledger, with a schema this version does not know."""


class StaleDecisionError(LedgerError):
    """Memories changed after a decision had read them. The caller decides again."""


@contextmanager
def logged(logger: logging.Logger, what: str, *causes: type[Exception]) -> Generator[None]:
    """Log what follows from an error of these kinds, by default a LedgerError, and its text, in place of raising it."""
    kinds = causes or (LedgerError,)
    try:
        yield
    except kinds as error:
        logger.warning("%s: %s", what, error)


class FullTextError(LedgerError):
    """The full-text index cannot be read. `palimpsest rebuild` rebuilds it."""


class VectorIndexError(PalimpsestError):
    """The vector index cannot be opened or used."""


class GraphStoreError(PalimpsestError):
    """The graph database outside cannot be used. `is_refusal` means that it answered, and refused a statement."""

    def __init__(self, text: str, *, is_refusal: bool = False) -> None:
        super().__init__(text)
        self.is_refusal = is_refusal


class EmbedderError(PalimpsestError):
    """Texts could not be embedded."""


class RerankerError(PalimpsestError):
    """Texts could not be judged. The search keeps its own order."""


class ModelFetchError(PalimpsestError):
    """A model could not be fetched from its hub, or is not the one that the catalogue names."""


class ModelError(PalimpsestError):
    """The language model failed."""


class ModelUnreachableError(ModelError):
    """The language model did not answer: connection, time-out or server error."""


class ModelRefusedError(ModelError):
    """The endpoint or the model declined: key, quota, unknown model or content."""


class DailyLimitError(ModelError):
    """The model was not asked, because the calls that the settings allow for a day were made."""


class CallTimeError(ModelError):
    """The model was not asked any longer, because clients wait no longer for the answer to a call."""


class ReplyError(ModelError):
    """The reply does not fit the stage, after one attempt to repair it."""


class EmptyReplyError(ReplyError):
    """The reply ended, and there is nothing in it."""


class CutOffReplyError(ReplyError):
    """The reply reached the limit on its length. `reply` is what there is of it."""

    def __init__(self, text: str, reply: str) -> None:
        super().__init__(text)
        self.reply = reply
