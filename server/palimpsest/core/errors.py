"""The exceptions this package raises.

    PalimpsestError
    ├── SettingsError            a setting is unknown, misspelt or of the wrong kind
    ├── PromptError              a prompt file cannot be used as it is
    ├── InputError               what the caller sent cannot be done as asked
    │   └── MemoryNotFoundError  no memory of this scope has that id
    ├── LedgerError              the ledger cannot be opened, read or written
    │   ├── LedgerTooNewError    it was written by a newer version of this package
    │   ├── StaleDecisionError   what a decision was made on has changed since
    │   └── FullTextError        the full text cannot be read; everything else can
    ├── VectorIndexError         the vector index cannot be opened or used
    ├── EmbedderError            the embedder failed or is not there
    └── ModelError               the language model failed
        ├── ModelUnreachableError   no answer: connection, time-out, server error
        ├── ModelRefusedError       it answered and declined: key, quota, content
        └── ReplyError              it answered, and the answer does not fit the stage

Every text says what happened, what was kept, and what to do next.
"""


class PalimpsestError(Exception):
    """Stand for every failure this package foresees."""


class SettingsError(PalimpsestError):
    """Report a setting that cannot be used."""


class PromptError(PalimpsestError):
    """Report a prompt file that cannot be used, by file and variable."""


class InputError(PalimpsestError):
    """Report what the caller sent and why it cannot be done."""


class MemoryNotFoundError(InputError):
    """Report an id that names no memory of the scope."""


class LedgerError(PalimpsestError):
    """Report that the ledger cannot be opened, read or written."""


class LedgerTooNewError(LedgerError):
    """Report a ledger whose schema this version does not know."""


class StaleDecisionError(LedgerError):
    """Report that memories changed after a decision read them; decide again."""


class FullTextError(LedgerError):
    """Report that the full text cannot be read; `palimpsest rebuild` makes it anew."""


class VectorIndexError(PalimpsestError):
    """Report that the vector index cannot be opened or used."""


class EmbedderError(PalimpsestError):
    """Report that texts could not be turned into vectors."""


class ModelError(PalimpsestError):
    """Report that the language model did not do its part."""


class ModelUnreachableError(ModelError):
    """Report that no answer came: connection, time-out or server error."""


class ModelRefusedError(ModelError):
    """Report that the model's side declined: key, quota, unknown model or content."""


class ReplyError(ModelError):
    """Report a reply that does not fit the stage, after one repair."""
