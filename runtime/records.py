"""Documents and passages -> rows of the database. Each runs in its caller's transaction."""

# ruff: noqa: S608 - what is put into statements is constant; values are always bound.

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import astuple
from datetime import UTC, datetime

from runtime.catalogue import SeenFile
from runtime.documents import ParsedDocument, Span
from runtime.errors import SpecragError

MEMBER = "!/"  # between an archive's source and the name of a document in it
# That a source is this one, or lies in the archive or folder that it is.
_INSIDE = (
    "({0} = :source OR ({0} >= :member AND {0} < :after_members) "
    "OR ({0} >= :below AND {0} < :after_below))"
)


def insert_document(
    connection: sqlite3.Connection,
    parsed: ParsedDocument,
    passages: Sequence[Span],
    *,
    content_sha256: str,
    size: int,
    sequence: int,
) -> None:
    """Insert a document, cut into `passages`, as born in the change `sequence`.

    `content_sha256` and `size` are of the file's bytes.
    """
    number = connection.execute(
        "INSERT INTO documents (source, title, media_type, content_sha256, text_sha256, size, "
        "characters, passages, added_at, born) VALUES (?,?,?,?,?,?,?,?,?,?) RETURNING id",
        (
            parsed.source,
            parsed.title,
            parsed.media_type,
            content_sha256,
            hashlib.sha256(parsed.text.encode("utf-8")).hexdigest(),
            size,
            len(parsed.text),
            len(passages),
            now(),
            sequence,
        ),
    ).fetchone()[0]
    _insert_structure(connection, number, parsed)
    connection.executemany(
        "INSERT INTO passages (document_id, start, text) VALUES (?, ?, ?)",
        [(number, span.start, span.of(parsed.text)) for span in passages],
    )


def _insert_structure(connection: sqlite3.Connection, number: int, parsed: ParsedDocument) -> None:
    connection.executemany(
        "INSERT INTO headings VALUES (?, ?, ?, ?, ?)",
        [(number, i, h.start, h.level, h.title) for i, h in enumerate(parsed.headings)],
    )
    connection.executemany(
        "INSERT INTO pages VALUES (?, ?, ?, ?)",
        [(number, i, page.start, page.number) for i, page in enumerate(parsed.pages)],
    )
    connection.executemany(
        "INSERT INTO flags VALUES (?, ?, ?, ?)",
        [(number, i, flag.kind, flag.detail) for i, flag in enumerate(parsed.flags)],
    )
    if (revision := parsed.revision) is not None:
        connection.execute(
            "INSERT INTO revisions VALUES (?, ?, ?, ?)",
            (number, revision.series, revision.rank, revision.label),
        )


def bury(
    connection: sqlite3.Connection, source: str, sequence: int, *, members: bool = False
) -> int:
    """Let the documents of `source` die in the change `sequence`; returns how many.

    Those born in the same change were never seen and are deleted at once. With `members`, the
    documents inside `source`, if it is an archive or a folder, go as well, and what is known of its
    files. Failures are forgotten.
    """
    condition = _INSIDE.format("source") if members else "source = :source"
    values = {**_inside(source), "sequence": sequence}
    # The plus keeps SQLite from looking through all documents of the change, which may be many.
    unborn = connection.execute(
        f"DELETE FROM documents WHERE {condition} AND +born = :sequence", values
    ).rowcount
    dead = connection.execute(
        f"UPDATE documents SET died = :sequence WHERE {condition} AND died IS NULL", values
    ).rowcount
    connection.execute(f"DELETE FROM failures WHERE {condition}", values)
    if members:
        connection.execute(f"DELETE FROM files WHERE {condition}", values)
        connection.execute(f"DELETE FROM roots WHERE {_INSIDE.format('path')}", values)
    return unborn + dead


def _inside(source: str) -> dict[str, object]:
    """The values of `_INSIDE`."""
    folder = source.rstrip("/")
    return {
        "source": source,
        "member": source + MEMBER,
        "after_members": source + "!0",  # what follows a slash
        "below": folder + "/",
        "after_below": folder + "0",
    }


def purge(connection: sqlite3.Connection, sequence: int) -> None:
    """Delete what died up to the change `sequence`, and note that it is gone."""
    deleted = connection.execute("DELETE FROM documents WHERE died <= ?", (sequence,)).rowcount
    if deleted:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'purged'", (sequence,))


def record_failure(
    connection: sqlite3.Connection, source: str, error: SpecragError, content_sha256: str
) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?)",
        (source, error.what, error.fix or "", content_sha256, now()),
    )


def forget_failures(connection: sqlite3.Connection, source: str) -> None:
    """Of the source and of what lies in it, and what its file looked like then."""
    for table in ("failures", "files"):
        connection.execute(f"DELETE FROM {table} WHERE {_INSIDE.format('source')}", _inside(source))


def record_file(connection: sqlite3.Connection, file: SeenFile) -> None:
    connection.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", astuple(file))
    connection.execute("DELETE FROM roots WHERE path = ?", (file.source,))


def remember_root(connection: sqlite3.Connection, path: str) -> None:
    connection.execute("INSERT OR IGNORE INTO roots (path) VALUES (?)", (path,))


def advance(connection: sqlite3.Connection) -> bool:
    """Count the open change, if documents were born or died in it; returns whether."""
    changed = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM documents WHERE born = next) "
        "OR EXISTS (SELECT 1 FROM documents WHERE died = next) "
        "FROM (SELECT value + 1 AS next FROM meta WHERE key = 'sequence')"
    ).fetchone()[0]
    if changed:
        connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'sequence'")
    return bool(changed)


def touch(connection: sqlite3.Connection) -> None:
    """Write without changing anything."""
    connection.execute("UPDATE meta SET value = value WHERE key = 'sequence'")


def switch_index(connection: sqlite3.Connection, generation: int, fingerprint: str) -> None:
    connection.execute("UPDATE meta SET value = ? WHERE key = 'index_generation'", (generation,))
    connection.execute("UPDATE meta SET value = ? WHERE key = 'index_fingerprint'", (fingerprint,))


def now() -> str:
    """ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
