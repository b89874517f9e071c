"""Rows of the database -> documents, passages and places, as they stood at one change.

Only reads. `at` is the change up to which the search index goes: what was born later is not there
yet, and what died later still is.
"""

# ruff: noqa: S608 - what is put into statements is constant; values are always bound.

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from runtime.documents import Document, Flag, Heading, Span
from runtime.errors import KnowledgeBaseDamaged
from runtime.flags import HARMLESS, SUPERSEDED
from runtime.outline import Outline

# The plus keeps SQLite from using the index on `born`, which nearly all documents match.
_VISIBLE = "+born <= :at AND (died IS NULL OR died > :at)"
_SQL_VARIABLES = 500
_NEWEST = 2**62  # a change after all others
# The documents of which a newer revision is visible, with their and its labels.
_OLDER_REVISIONS = (
    "SELECT older.document_id, older.label, newer.label, source FROM revisions AS older "
    "JOIN revisions AS newer ON newer.series = older.series AND newer.rank > older.rank "
    f"JOIN documents ON documents.id = newer.document_id WHERE {_VISIBLE}"
)


@dataclass(frozen=True, slots=True)
class State:
    """The rows of `meta` that say where database and index stand."""

    sequence: int
    purged: int
    generation: int
    fingerprint: str
    stemmer: str | None


@dataclass(frozen=True, slots=True)
class Failure:
    """A source that could not be added: why, what to do, and the sha256 of its bytes (or "")."""

    source: str
    what: str
    fix: str
    content_sha256: str
    failed_at: str


@dataclass(frozen=True, slots=True)
class SeenFile:
    """What a file looked like when it was read.

    Attributes:
        content_sha256: of its bytes; "" if they were not read, as of a kind without a reader.
        size: bytes.
        modified_ns, changed_ns: as in `runtime.readers.FoundFile`.
    """

    source: str
    content_sha256: str
    size: int
    modified_ns: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over documents."""

    documents: int
    characters: int
    flagged: int
    failures: int


@dataclass(frozen=True, slots=True)
class PassageRow:
    """A passage: its document, where it starts in it, and its text."""

    id: int
    document_id: int
    start: int
    text: str

    @property
    def span(self) -> Span:
        return Span(self.start, self.start + len(self.text))


def read_state(connection: sqlite3.Connection) -> State:
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    try:
        return State(
            sequence=meta["sequence"],
            purged=meta["purged"],
            generation=meta["index_generation"],
            fingerprint=meta["index_fingerprint"],
            stemmer=meta["stemmer"] or None,
        )
    except KeyError as error:
        raise KnowledgeBaseDamaged(
            f"The database does not say its {error.args[0]}",
            fix="Restore the knowledge base from a copy, or add the documents to a new one",
        ) from None


def documents(connection: sqlite3.Connection, at: int) -> list[Document]:
    """All documents, in the order they were added."""
    return _documents(connection, _VISIBLE, {"at": at})


def document(connection: sqlite3.Connection, at: int, document_id: int) -> Document | None:
    found = _documents(connection, f"id = :id AND {_VISIBLE}", {"id": document_id, "at": at})
    return found[0] if found else None


def newest(connection: sqlite3.Connection, source: str) -> Document | None:
    """The newest document of a source, published or not."""
    found = _documents(
        connection, f"source = :source AND {_VISIBLE}", {"source": source, "at": _NEWEST}
    )
    return found[0] if found else None


def _documents(
    connection: sqlite3.Connection, condition: str, values: dict[str, object]
) -> list[Document]:
    flags: dict[int, list[Flag]] = {}
    for number, kind, detail in connection.execute(
        "SELECT document_id, kind, detail FROM flags "
        f"WHERE document_id IN (SELECT id FROM documents WHERE {condition}) "
        "ORDER BY document_id, ordinal",
        values,
    ):
        flags.setdefault(number, []).append(Flag(kind, detail))
    for number, flag in _newer_revisions(connection, condition, values).items():
        flags.setdefault(number, []).append(flag)
    rows: Iterable[tuple[int, str, str, str, str, int, int, int, str]] = connection.execute(
        "SELECT id, source, title, media_type, content_sha256, size, characters, passages, "
        f"added_at FROM documents WHERE {condition} ORDER BY id",
        values,
    )
    return [Document(*row, tuple(flags.get(row[0], ()))) for row in rows]


def _newer_revisions(
    connection: sqlite3.Connection, condition: str, values: dict[str, object]
) -> dict[int, Flag]:
    """For the documents of which a newer revision is there: a flag that names the newest."""
    rows = connection.execute(
        f"{_OLDER_REVISIONS} AND older.document_id IN "
        f"(SELECT id FROM documents WHERE {condition}) ORDER BY newer.rank, newer.document_id",
        values,
    )
    return {
        number: Flag(SUPERSEDED, f"{label}; there is {newer}", source)
        for number, label, newer, source in rows
    }


def page_at(connection: sqlite3.Connection, document_id: int, position: int) -> int | None:
    """The number of the page that `position` lies on, where pages are known."""
    row = connection.execute(
        "SELECT number FROM pages WHERE document_id = ? AND start <= ? "
        "ORDER BY ordinal DESC LIMIT 1",
        (document_id, position),
    ).fetchone()
    return row[0] if row else None


def headings(connection: sqlite3.Connection, document_id: int) -> tuple[Heading, ...]:
    rows = connection.execute(
        "SELECT start, level, title FROM headings WHERE document_id = ? ORDER BY ordinal",
        (document_id,),
    )
    return tuple(Heading(*row) for row in rows)


def outlines(connection: sqlite3.Connection, rows: Sequence[PassageRow]) -> dict[int, Outline]:
    """What each passage lies under and holds: by the passage's number."""
    titles: dict[int, str] = {}
    for chunk in _chunks(list({row.document_id for row in rows})):
        found = f"SELECT id, title FROM documents WHERE id IN ({_marks(chunk)})"
        titles.update(connection.execute(found, chunk))
    return {
        row.id: Outline(titles[row.document_id], _headings_around(connection, row)) for row in rows
    }


def _headings_around(connection: sqlite3.Connection, row: PassageRow) -> tuple[Heading, ...]:
    """Those that are open where a passage begins, outermost first, and those that begin in it.

    Each open one is the last before the one below it that stands above it. A document may have
    thousands: they are passed over once, and each search goes on where the one before has ended.
    """
    path: list[Heading] = []
    ordinal, level = sys.maxsize, sys.maxsize
    following = 0  # the ordinal of the first that does not begin before the passage
    while found := connection.execute(
        "SELECT ordinal, start, level, title FROM headings WHERE document_id = ? AND ordinal < ? "
        "AND start < ? AND level < ? ORDER BY ordinal DESC LIMIT 1",
        (row.document_id, ordinal, row.start, level),
    ).fetchone():
        ordinal, *heading = found
        path.append(Heading(*heading))
        level = path[-1].level
        following = max(following, ordinal + 1)
    rest = connection.execute(
        "SELECT start, level, title FROM headings WHERE document_id = ? AND ordinal >= ? "
        "ORDER BY ordinal",
        (row.document_id, following),
    )
    inside = takewhile(lambda one: one.start < row.span.end, (Heading(*one) for one in rest))
    return (*path[::-1], *inside)


def slice_of(connection: sqlite3.Connection, document_id: int, span: Span) -> str:
    """`span` of the document's text, read from the passages that it touches only."""
    rows = connection.execute(
        "SELECT start, text FROM passages WHERE document_id = :id AND start < :stop AND start >= "
        "(SELECT max(start) FROM passages WHERE document_id = :id AND start <= :start) "
        "ORDER BY start",
        {"id": document_id, "start": span.start, "stop": max(span.end, span.start + 1)},
    ).fetchall()
    first = rows[0][0]
    return "".join(text for _, text in rows)[span.start - first : span.end - first]


def passages_of(connection: sqlite3.Connection, document_id: int) -> list[PassageRow]:
    """All passages of a document, in order; joined, their texts are its text."""
    rows = connection.execute(
        "SELECT id, document_id, start, text FROM passages WHERE document_id = ? ORDER BY start",
        (document_id,),
    )
    return [PassageRow(*row) for row in rows]


def passages(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, PassageRow]:
    """The passages with these numbers that exist."""
    rows: dict[int, PassageRow] = {}
    for chunk in _chunks(numbers):
        for row in connection.execute(
            f"SELECT id, document_id, start, text FROM passages WHERE id IN ({_marks(chunk)})",
            chunk,
        ):
            rows[row[0]] = PassageRow(*row)
    return rows


def passage_ids(connection: sqlite3.Connection, at: int) -> set[int]:
    """The passages of the documents at the change `at`."""
    rows = connection.execute(
        f"SELECT p.id FROM documents d JOIN passages p ON p.document_id = d.id WHERE {_VISIBLE}",
        {"at": at},
    )
    return {number for (number,) in rows}


def flagged(connection: sqlite3.Connection, numbers: Sequence[int]) -> set[int]:
    """Which of these passages lie in documents with flags about safety."""
    found: set[int] = set()
    for chunk in _chunks(numbers):
        rows = connection.execute(
            f"SELECT id FROM passages WHERE id IN ({_marks(chunk)}) "
            "AND document_id IN "
            f"(SELECT document_id FROM flags WHERE kind NOT IN ({_marks(HARMLESS)}))",
            (*chunk, *HARMLESS),
        )
        found.update(number for (number,) in rows)
    return found


def failures(connection: sqlite3.Connection) -> list[Failure]:
    rows = connection.execute(
        "SELECT source, what, fix, content_sha256, failed_at FROM failures ORDER BY source"
    )
    return [Failure(*row) for row in rows]


def seen_files(connection: sqlite3.Connection) -> dict[str, SeenFile]:
    """By source."""
    rows = connection.execute(
        "SELECT source, content_sha256, size, modified_ns, changed_ns FROM files"
    )
    return {row[0]: SeenFile(*row) for row in rows}


def roots(connection: sqlite3.Connection) -> list[str]:
    """In the order they were remembered."""
    return [path for (path,) in connection.execute("SELECT path FROM roots ORDER BY id")]


def totals(connection: sqlite3.Connection, at: int) -> Totals:
    """Sums over the documents at a change."""
    values = {"at": at}
    count, of_characters = connection.execute(
        f"SELECT count(*), total(characters) FROM documents WHERE {_VISIBLE}", values
    ).fetchone()
    of_flagged = connection.execute(
        "SELECT count(*) FROM (SELECT document_id FROM flags UNION "
        f"SELECT document_id FROM ({_OLDER_REVISIONS})) "
        f"WHERE document_id IN (SELECT id FROM documents WHERE {_VISIBLE})",
        values,
    ).fetchone()[0]
    of_failures = connection.execute("SELECT count(*) FROM failures").fetchone()[0]
    return Totals(
        documents=count,
        characters=int(of_characters),
        flagged=of_flagged,
        failures=of_failures,
    )


def has_dead(connection: sqlite3.Connection, at: int) -> bool:
    """Whether there are documents that died up to the change `at`."""
    row = connection.execute("SELECT 1 FROM documents WHERE died <= ? LIMIT 1", (at,)).fetchone()
    return row is not None


def passages_that_died(connection: sqlite3.Connection, after: int) -> list[int]:
    """Passages that an index at change `after` holds and that are dead now."""
    rows = connection.execute(
        "SELECT p.id FROM documents d JOIN passages p ON p.document_id = d.id "
        "WHERE d.died > :after AND d.born <= :after",
        {"after": after},
    )
    return [number for (number,) in rows]


def documents_born(connection: sqlite3.Connection, after: int) -> list[tuple[int, str]]:
    """Number and title of the living documents that an index at change `after` lacks."""
    return connection.execute(
        "SELECT id, title FROM documents WHERE born > ? AND died IS NULL ORDER BY id", (after,)
    ).fetchall()


def _chunks(numbers: Sequence[int]) -> Iterator[list[int]]:
    for start in range(0, len(numbers), _SQL_VARIABLES):
        yield list(numbers[start : start + _SQL_VARIABLES])


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))
