"""A knowledge base's database and index -> what is wrong with them, in words; nothing if whole.

Proven: SQLite's own structure; every text against its sha256; that passages join without a gap;
that the index holds the same passages, and that its files have the checksums they carry.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from runtime import catalogue
from runtime.catalogue import PassageRow
from runtime.index import PassageIndex, segment_files

_FOOTER = struct.Struct("<II")  # length of the JSON before it, magic number
_FOOTER_MAGIC = 1337


def database_problems(connection: sqlite3.Connection, at: int) -> Iterator[str]:
    """What is wrong in the database, as it stands at the change `at`."""
    for (message,) in connection.execute("PRAGMA integrity_check"):
        if message != "ok":
            yield f"database: {message}"
    for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check"):
        yield f"database: row {row} of {table} belongs to no row of {parent}"
    for number, source, sha256, characters, count in connection.execute(
        "SELECT id, source, text_sha256, characters, passages FROM documents "
        "WHERE born <= :at AND (died IS NULL OR died > :at) ORDER BY id",
        {"at": at},
    ).fetchall():
        try:
            rows = catalogue.passages_of(connection, number)
        except sqlite3.Error as error:
            yield f"{source}: {error}"
            continue
        if len(rows) != count:
            yield f"{source}: it has {len(rows)} passages instead of {count}"
        yield from (f"{source}: {problem}" for problem in _text_problems(rows, sha256, characters))


def _text_problems(rows: list[PassageRow], sha256: str, characters: int) -> Iterator[str]:
    text = "".join(row.text for row in rows)
    if hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() != sha256:
        yield "its text differs from its checksum"
    if len(text) != characters:
        yield f"its text has {len(text)} characters instead of {characters}"
    place = 0
    for row in rows:
        if row.start != place:
            yield f"passage {row.id} begins at {row.start} instead of {place}"
        place = row.start + len(row.text)


def index_problems(
    connection: sqlite3.Connection, at: int, index: PassageIndex, folder: Path
) -> Iterator[str]:
    """What is wrong with the index, whose files lie in `folder`."""
    indexed = index.passage_ids()
    stored = catalogue.passage_ids(connection, at)
    if len(indexed) != len(set(indexed)):
        yield "index: it holds passages twice"
    missing, foreign = stored - set(indexed), set(indexed) - stored
    if missing:
        yield f"index: it lacks {len(missing)} passages, the first is {min(missing)}"
    if foreign:
        yield f"index: it holds {len(foreign)} passages that are not stored"
    for file in _files_in_use(folder):
        if not _has_its_checksum(file):
            yield f"index: {file.name} differs from its checksum"


def _files_in_use(folder: Path) -> list[Path]:
    try:
        return sorted(folder / name for name in segment_files(folder))
    except FileNotFoundError:  # a compaction in another process has just replaced them all
        return []


def _has_its_checksum(file: Path) -> bool:
    """Whether a file of tantivy's has the CRC-32 that its footer (JSON, length, magic) names."""
    try:
        raw = memoryview(file.read_bytes())
        length, magic = _FOOTER.unpack(raw[-_FOOTER.size :])
        end = len(raw) - _FOOTER.size - length
        footer = json.loads(bytes(raw[end : -_FOOTER.size]))
        return bool(magic == _FOOTER_MAGIC and footer["crc"] == zlib.crc32(raw[:end]))
    except FileNotFoundError:  # a merge in another process has just replaced it
        return True
    except (OSError, struct.error, ValueError, KeyError, TypeError):
        return False
