"""A folder -> the SQLite database in it, its format version, and the right to write to it.

The database is the truth: documents, their passages (the text, stored once), places of headings and
pages. It runs with a write-ahead log, so that readers keep the state they began with
while one process writes, and with secure deletion, so that removed text is overwritten.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from runtime.errors import (
    KnowledgeBaseDamaged,
    KnowledgeBaseError,
    KnowledgeBaseLocked,
    KnowledgeBaseNotFound,
    KnowledgeBaseNotReadable,
    KnowledgeBaseNotWritable,
    KnowledgeBaseOutdated,
    KnowledgeBaseTooNew,
)

DATABASE = "knowledge-base.sqlite"
LOCK = "writer.lock"
APPLICATION_ID = 0x53524147  # "SRAG", in the file's header
BUSY_TIMEOUT_S = 10.0

Migration = Callable[[sqlite3.Connection], None]


def _windows_are_derived(connection: sqlite3.Connection) -> None:
    """Format 1 kept windows and the tokenizer that cut them; now they are cut when asked for."""
    for statement in (
        "DROP TABLE windows",
        "DROP INDEX documents_by_tokenizer",
        "ALTER TABLE documents DROP COLUMN tokenizer",
        "ALTER TABLE documents DROP COLUMN windows",
        "ALTER TABLE documents ADD COLUMN passages INTEGER NOT NULL DEFAULT 0",
        "UPDATE documents SET passages = "
        "(SELECT count(*) FROM passages WHERE document_id = documents.id)",
    ):
        connection.execute(statement)


_REVISIONS = """CREATE TABLE revisions (
    document_id INTEGER PRIMARY KEY REFERENCES documents ON DELETE CASCADE,
    series TEXT NOT NULL,
    rank TEXT NOT NULL,
    label TEXT NOT NULL
);
CREATE INDEX revisions_by_series ON revisions (series, rank);
"""


def _revisions_are_known(connection: sqlite3.Connection) -> None:
    """Format 2 did not know which revision a document is; added again, documents say so."""
    for statement in filter(str.strip, _REVISIONS.split(";")):
        connection.execute(statement)


_FILES = """CREATE TABLE files (
    source TEXT PRIMARY KEY,
    content_sha256 TEXT NOT NULL,
    size INTEGER NOT NULL,
    modified_ns INTEGER NOT NULL,
    changed_ns INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE roots (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE);
"""


def _files_are_known(connection: sqlite3.Connection) -> None:
    """Format 3 did not know what the files looked like, nor which folders were added."""
    for statement in filter(str.strip, _FILES.split(";")):
        connection.execute(statement)


# Step i turns format i + 1 into format i + 2; each runs in a transaction of its own. The format of
# this version is one more than there are steps.
MIGRATIONS: tuple[Migration, ...] = (
    _windows_are_derived,
    _revisions_are_known,
    _files_are_known,
)

# `born` and `died` number the changes: a reader whose index stands at change s sees the documents
# with born <= s and not died <= s. A document that died is deleted once the index has left it.
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE documents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    source TEXT NOT NULL,
    title TEXT NOT NULL,
    media_type TEXT NOT NULL,
    content_sha256 TEXT NOT NULL,
    text_sha256 TEXT NOT NULL,
    size INTEGER NOT NULL,
    characters INTEGER NOT NULL,
    passages INTEGER NOT NULL,
    added_at TEXT NOT NULL,
    born INTEGER NOT NULL,
    died INTEGER
);
CREATE INDEX documents_by_source ON documents (source);
CREATE INDEX documents_by_birth ON documents (born);
CREATE INDEX documents_by_death ON documents (died) WHERE died IS NOT NULL;
CREATE TABLE passages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    document_id INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    start INTEGER NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX passages_by_document ON passages (document_id, start);
CREATE TABLE headings (
    document_id INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    ordinal INTEGER NOT NULL,
    start INTEGER NOT NULL,
    level INTEGER NOT NULL,
    title TEXT NOT NULL,
    PRIMARY KEY (document_id, ordinal)
) WITHOUT ROWID;
CREATE TABLE pages (
    document_id INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    ordinal INTEGER NOT NULL,
    start INTEGER NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (document_id, ordinal)
) WITHOUT ROWID;
CREATE TABLE flags (
    document_id INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE,
    ordinal INTEGER NOT NULL,
    kind TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (document_id, ordinal)
) WITHOUT ROWID;
CREATE TABLE failures (
    source TEXT PRIMARY KEY,
    what TEXT NOT NULL,
    fix TEXT NOT NULL,
    content_sha256 TEXT NOT NULL,
    failed_at TEXT NOT NULL
) WITHOUT ROWID;
"""


class WriterLock:
    """The right to write to a knowledge base: held by at most one process, freed when it dies."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._stream: IO[str] | None = None

    def acquire(self, wait_s: float, on_wait: Callable[[str], None] | None = None) -> None:
        """
        Args:
            wait_s: how long to wait for another writer.
            on_wait: told once, before waiting, who holds the lock.

        Raises:
            KnowledgeBaseLocked: another process still writes; says which, where, since when.
            KnowledgeBaseNotWritable: the folder cannot be written to.
        """
        try:
            stream = self._path.open("a+", encoding="utf-8")
        except OSError as error:
            raise not_writable(self._path.parent, error) from error
        deadline = time.monotonic() + wait_s
        told = False
        while not _try_lock(stream):
            if not told and on_wait is not None and wait_s > 0:
                on_wait(self._holder(stream))
                told = True
            if time.monotonic() >= deadline:
                holder = self._holder(stream)
                stream.close()
                raise KnowledgeBaseLocked(
                    f"Another process is writing to the knowledge base: {holder}",
                    where=str(self._path.parent),
                    fix="Wait until it has finished, or end that process",
                )
            time.sleep(0.05)
        self._stream = stream
        self._sign(stream)

    def _sign(self, stream: IO[str]) -> None:
        try:
            stream.seek(0)
            stream.truncate()
            signature = {
                "pid": os.getpid(),
                "host": socket.gethostname(),
                "since": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            stream.write(json.dumps(signature))
            stream.flush()
        except OSError as error:
            self.release()
            raise not_writable(self._path.parent, error) from error

    @staticmethod
    def _holder(stream: IO[str]) -> str:
        try:
            stream.seek(0)
            signature = json.loads(stream.read())
            return f"process {signature['pid']} on {signature['host']}, since {signature['since']}"
        except (OSError, ValueError, KeyError, TypeError):
            return "a process that has not given its name yet"

    def release(self) -> None:
        if self._stream is not None:
            # Closing unlocks; bytes still buffered on a full disk are only our signature.
            with contextlib.suppress(OSError):
                self._stream.close()
            self._stream = None


def _try_lock(stream: IO[str]) -> bool:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def create_database(folder: Path, meta: dict[str, str | int]) -> None:
    """Make a new database in `folder`, whole or not at all. The writer lock must be held.

    Raises:
        KnowledgeBaseNotWritable: read-only folder or full disk.
    """
    temporary = folder / f".{DATABASE}.new"
    try:
        temporary.unlink(missing_ok=True)
        with translated(folder), contextlib.closing(sqlite3.connect(temporary)) as connection:
            connection.executescript(f"BEGIN;{_SCHEMA}{_REVISIONS}{_FILES}")
            connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
            connection.commit()
        _sync(temporary)
        temporary.replace(folder / DATABASE)
        _sync(folder)
    except OSError as error:
        raise not_writable(folder, error) from error


def open_database(folder: Path, *, writable: bool) -> sqlite3.Connection:
    """A connection in autocommit mode, its format checked (and, if writable, migrated).

    Raises:
        KnowledgeBaseNotFound, KnowledgeBaseTooNew, KnowledgeBaseOutdated, KnowledgeBaseDamaged,
        KnowledgeBaseNotWritable
    """
    path = folder / DATABASE
    if not has_database(folder):
        raise KnowledgeBaseNotFound(
            "There is no knowledge base here",
            where=str(folder),
            fix="Make one by adding documents: specrag add PATH --kb DIR",
        )
    with translated(folder):
        connection = _connect(path, writable)
        try:
            _check_format(connection, folder, writable)
            if writable:
                _prepare_for_writing(connection)
        except BaseException:
            connection.close()
            raise
    return connection


def _connect(path: Path, writable: bool) -> sqlite3.Connection:
    if writable:
        return _open(path, "mode=rw")
    try:
        return _open(path, "mode=ro")
    except sqlite3.OperationalError:
        log = path.with_name(f"{path.name}-wal")
        if not is_read_only(path.parent):
            raise
        if log.exists() and log.stat().st_size > 0:
            raise KnowledgeBaseNotWritable(
                "The knowledge base was not closed before its medium became read-only",
                where=str(path.parent),
                fix="Open it once where it can be written, or copy the folder to such a place",
            ) from None
    # Read-only medium, cleanly closed: nobody can write, so no lock and no log are needed.
    return _open(path, "mode=ro&immutable=1")


def _open(path: Path, parameters: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?{parameters}",
        uri=True,
        isolation_level=None,
        timeout=BUSY_TIMEOUT_S,
        check_same_thread=False,
    )
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        # 16 MB. This reads the schema, so it fails here where the database cannot be read at all.
        connection.execute("PRAGMA cache_size = -16000")
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare_for_writing(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")


def _check_format(connection: sqlite3.Connection, folder: Path, writable: bool) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    current = len(MIGRATIONS) + 1
    if application != APPLICATION_ID or version < 1:
        raise KnowledgeBaseDamaged(
            f"{DATABASE} is not a knowledge base of specrag",
            where=str(folder),
            fix="Name another folder, or restore this one from a copy",
        )
    if version > current:
        raise KnowledgeBaseTooNew(
            f"The knowledge base has format {version}; this version of specrag reads {current}",
            where=str(folder),
            fix="Update specrag",
        )
    if version < current and not writable:
        raise KnowledgeBaseOutdated(
            f"The knowledge base has the older format {version}",
            where=str(folder),
            fix="Bring it up to date with any command that writes, such as specrag add",
        )
    for step in range(version, current):
        connection.execute("BEGIN IMMEDIATE")
        try:
            MIGRATIONS[step - 1](connection)
            connection.execute(f"PRAGMA user_version = {step + 1}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


@contextlib.contextmanager
def translated(folder: Path) -> Iterator[None]:
    """Errors of SQLite and the file system -> errors people can act on."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(folder, error) from error
    except OSError as error:
        raise not_writable(folder, error) from error


def _translate(folder: Path, error: sqlite3.Error) -> KnowledgeBaseError:
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return KnowledgeBaseLocked(
            "Another process is using the knowledge base's database",
            where=str(folder),
            fix="Try again when it has finished",
        )
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM) and not is_readable(folder):
        return not_readable(folder)
    unwritable = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR)
    if code in (*unwritable, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return not_writable(folder, error)
    return KnowledgeBaseDamaged(
        f"The database cannot be used: {error}",
        where=str(folder),
        fix="Restore it from a copy, or add the documents again to a new one",
    )


def not_readable(folder: Path) -> KnowledgeBaseNotReadable:
    return KnowledgeBaseNotReadable(
        "The knowledge base cannot be read: you have no right to",
        where=str(folder),
        fix="Ask its owner for the right to read the folder and the files in it",
    )


def has_database(folder: Path) -> bool:
    """Whether there is a knowledge base in `folder`.

    Raises:
        KnowledgeBaseNotReadable: the user has no right to know.
    """
    try:
        return (folder / DATABASE).is_file()
    except PermissionError as error:
        raise not_readable(folder) from error
    except OSError:  # no such path can be
        return False


def is_readable(folder: Path) -> bool:
    """Whether the database in `folder` may be read by this user."""
    return os.access(folder, os.R_OK | os.X_OK) and os.access(folder / DATABASE, os.R_OK)


def not_writable(folder: Path, error: BaseException) -> KnowledgeBaseNotWritable:
    if os.path.exists(folder) and not os.path.isdir(folder):
        return KnowledgeBaseNotWritable(
            "A knowledge base is a folder, and this is a file",
            where=str(folder),
            fix="Name another folder with --kb DIR",
        )
    return KnowledgeBaseNotWritable(
        f"The knowledge base cannot be written: {getattr(error, 'strerror', None) or error}",
        where=str(folder),
        fix="Free some space, or choose a folder that can be written; what was there is intact",
    )


def is_read_only(folder: Path) -> bool:
    """Whether nothing can be created in `folder`, whatever its permission bits say."""
    return not os.access(folder, os.W_OK) or bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def _sync(path: Path) -> None:
    """Have the kernel write a file or a folder's entries to the medium."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
