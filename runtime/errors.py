"""The errors a user can meet, all of one shape: what happened, where, what to do.

SpecragError
├── UsageError                     a command or option that cannot be carried out as given
├── QuestionError                  a question that cannot be asked
├── DocumentError                  one document could not be read; the others go on
│   ├── UnsupportedDocument        no reader for this kind of file
│   ├── EmptyDocument              nothing to read in it
│   ├── DamagedDocument            truncated, broken or not what its name says
│   ├── EncryptedDocument          needs a password
│   ├── DocumentTooLarge           over a limit of size, time or memory
│   ├── DocumentChanged            changed while it was read
│   └── ScanNotIndexed             pictures of text, and the OCR extra is not installed
├── ReaderNotStarted               no document can be read now, whatever it is
├── KnowledgeBaseError
│   ├── KnowledgeBaseNotFound
│   ├── KnowledgeBaseEmpty
│   ├── KnowledgeBaseLocked        another process is writing
│   ├── KnowledgeBaseTooNew        written by a newer version
│   ├── KnowledgeBaseOutdated      written or indexed by another version; a writer updates it
│   ├── KnowledgeBaseDamaged
│   ├── KnowledgeBaseNotReadable   the user has no right to read it
│   └── KnowledgeBaseNotWritable   read-only folder or full disk
├── BundleError
│   ├── BundleNotFound
│   ├── BundleDamaged              a file is missing or its checksum differs
│   └── BundleIncompatible         readable, but not usable for what was asked
├── SessionError
│   ├── ProviderUnavailable        the named hardware cannot be used
│   ├── RunTimedOut                a run was stopped at its deadline
│   ├── RemoteUnavailable          the other box does not answer
│   └── RemoteRefused              the other box answered with an error
├── MissingExtra                   an optional dependency is not installed
└── ExportError                    a model cannot become a bundle
    └── GateFailed                 the accuracy gate was not met
"""

from __future__ import annotations

from typing import Any


class SpecragError(Exception):
    """Base of all errors meant for people.

    Args:
        what: what happened, one sentence without a full stop.
        where: the file, folder, address or option concerned.
        fix: what the user can do about it.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        fix = f". {self.fix}" if self.fix else ""
        return f"{self.what}{where}{fix}"

    def to_json(self) -> dict[str, Any]:
        """As `error` in the JSON of commands; subclasses may add what else they know."""
        kind = type(self).__name__
        return {"what": self.what, "where": self.where, "fix": self.fix, "kind": kind}

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross from the reader's child process; keyword-only arguments need this to pickle.
        return _rebuild, (type(self), self.what, self.where, self.fix)


def _rebuild(
    kind: type[SpecragError], what: str, where: str | None, fix: str | None
) -> SpecragError:
    return kind(what, where=where, fix=fix)


class UsageError(SpecragError):
    """A command or option that cannot be carried out as given."""

    exit_code = 2


class QuestionError(SpecragError):
    """A question that cannot be asked: empty, too long, or without a word in it."""

    exit_code = 2


class DocumentError(SpecragError):
    """One document could not be read; the others go on."""


class UnsupportedDocument(DocumentError):
    """No reader for this kind of file."""


class EmptyDocument(DocumentError):
    """Nothing to read in it."""


class DamagedDocument(DocumentError):
    """Truncated, broken, or not what its name says."""


class EncryptedDocument(DocumentError):
    """Needs a password."""


class DocumentTooLarge(DocumentError):
    """Over a limit of size, time or memory."""


class DocumentChanged(DocumentError):
    """Changed while it was read."""


class ScanNotIndexed(DocumentError):
    """Pictures of text, and the OCR extra is not installed."""


class ReaderNotStarted(SpecragError):
    """The process that reads files did not start: no file is at fault."""


class KnowledgeBaseError(SpecragError):
    """The knowledge base cannot do what was asked."""


class KnowledgeBaseNotFound(KnowledgeBaseError):
    """No knowledge base in that folder."""


class KnowledgeBaseEmpty(KnowledgeBaseError):
    """Nothing was added to it yet."""


class KnowledgeBaseLocked(KnowledgeBaseError):
    """Another process is writing."""


class KnowledgeBaseTooNew(KnowledgeBaseError):
    """Written by a newer version of specrag."""


class KnowledgeBaseOutdated(KnowledgeBaseError):
    """Written or indexed by another version of specrag; any command that writes updates it."""


class KnowledgeBaseDamaged(KnowledgeBaseError):
    """Its files do not agree with each other or cannot be read."""


class KnowledgeBaseNotReadable(KnowledgeBaseError):
    """The user has no right to read its folder, or a file in it."""


class KnowledgeBaseNotWritable(KnowledgeBaseError):
    """Read-only folder or full disk."""


class BundleError(SpecragError):
    """A model bundle cannot be used."""


class BundleNotFound(BundleError):
    """No manifest in that folder."""


class BundleDamaged(BundleError):
    """A file is missing or differs from its checksum."""


class BundleIncompatible(BundleError):
    """Readable, but not usable for what was asked."""


class SessionError(SpecragError):
    """A model cannot be run."""


class ProviderUnavailable(SessionError):
    """The named hardware cannot be used here."""


class RunTimedOut(SessionError):
    """A run was stopped at its deadline; the session can be used again."""


class RemoteUnavailable(SessionError):
    """The other box does not answer."""


class RemoteRefused(SessionError):
    """The other box answered with an error."""


class MissingExtra(SpecragError):
    """An optional dependency is not installed; `fix` is the command that installs it."""


class ExportError(SpecragError):
    """A model cannot become a bundle."""


class GateFailed(ExportError):
    """The accuracy gate was not met; no bundle is left behind."""
