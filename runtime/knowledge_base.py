"""Parsed documents -> a folder that keeps them, finds passages in them and names exact places.

The folder holds a SQLite database (the truth), a search index derived from it, and a lock file. A
change is published when the index commits it: until then every reader, and the writer too, sees the
state before. A process that dies in between leaves whole documents only; the next writer brings the
index up to date. The folder can be moved, and read from read-only media.

Not covered: network file systems without working locks, and platforms without `flock`.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from runtime.analysis import Analyzer
from runtime.documents import (
    Citation,
    Document,
    Flag,
    Heading,
    ParsedDocument,
    Span,
    Window,
)
from runtime.errors import (
    DamagedDocument,
    EmptyDocument,
    KnowledgeBaseDamaged,
    KnowledgeBaseError,
    KnowledgeBaseLocked,
    SpecragError,
    StaleWindows,
    UsageError,
)
from runtime.index import PassageHit, PassageIndex
from runtime.passages import context_of, cut_passages, heading_path
from runtime.storage import (
    DATABASE,
    WriterLock,
    create_database,
    not_writable,
    open_database,
    translated,
)
from runtime.windows import (
    PackedTokens,
    WindowSlice,
    WindowTokenizer,
    cut_windows,
    pack,
    unpack,
)

# A batch is published in parts of about this much text, so that a long add survives interruption.
_BATCH_CHARACTERS = 16_000_000
_SNAPSHOT_TIMEOUT_S = 10.0
_SQL_VARIABLES = 500
MEMBER = "!/"  # between an archive's source and the name of a document in it

_VISIBLE = "born <= :at AND (died IS NULL OR died > :at)"


@dataclass(frozen=True, slots=True)
class Failure:
    """A source that could not be added: why, what to do, and the sha256 of its bytes (hex, or "")."""

    source: str
    what: str
    fix: str
    content_sha256: str
    failed_at: str


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a knowledge base holds. Sizes in bytes on the medium."""

    documents: int
    passages: int
    windows: int
    characters: int
    flagged: int
    stale: int
    failures: int
    database_bytes: int
    index_bytes: int
    stemmer: str | None


@dataclass(frozen=True, slots=True)
class _State:
    """The rows of `meta` that say where database and index stand."""

    sequence: int
    purged: int
    generation: int
    fingerprint: str
    stemmer: str | None


class KnowledgeBase:
    """One folder of documents. Open it with `KnowledgeBase.open`; use it as a context manager.

    Safe to share between threads: calls take turns.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        tokenizer: WindowTokenizer | None,
        lock: WriterLock | None,
    ) -> None:
        self.path = path
        self.tokenizer = tokenizer
        self._connection = connection
        self._lock = lock
        self._mutex = threading.RLock()
        self._index: PassageIndex | None = None
        self._index_stamp: tuple[int, ...] = ()
        self._generation = 0
        self._pending = 0  # characters added in the open transaction
        self._depth = 0  # of nested `batch`
        self._analyzer = Analyzer(self._state().stemmer)

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        tokenizer: WindowTokenizer | None = None,
        create: bool = False,
        writable: bool = False,
        stemmer: str | None = None,
        wait_s: float = 10.0,
        on_wait: Callable[[str], None] | None = None,
    ) -> KnowledgeBase:
        """Open the knowledge base in the folder `path`.

        Args:
            tokenizer: the drafter's; needed to add documents and to read windows.
            create: make it if there is none (implies `writable`).
            stemmer: a Snowball algorithm for a knowledge base that is created; kept with it.
            wait_s: how long to wait for another writer, in seconds; `on_wait` hears who it is.

        Raises:
            KnowledgeBaseNotFound, KnowledgeBaseLocked, KnowledgeBaseTooNew, KnowledgeBaseDamaged,
            KnowledgeBaseNotWritable, UsageError: no such stemmer.
        """
        folder = Path(path)
        if not (writable or create):
            opened = cls(folder, open_database(folder, writable=False), tokenizer, None)
            opened._or_close(opened._begin_snapshot)
            return opened
        if create:
            Analyzer(stemmer)
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise not_writable(folder, error) from error
        elif not (folder / DATABASE).is_file():
            open_database(folder, writable=True)  # says that there is none
        lock = WriterLock(folder)
        lock.acquire(wait_s, on_wait)
        try:
            if not (folder / DATABASE).exists():
                _create(folder, stemmer)
            opened = cls(folder, open_database(folder, writable=True), tokenizer, lock)
        except BaseException:
            lock.release()
            raise
        opened._or_close(opened._bring_up_to_date)
        return opened

    def _or_close(self, action: Callable[[], None]) -> None:
        try:
            action()
        except BaseException:
            self._discard()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the folder. Changes outside a `batch` are already published."""
        with self._mutex:
            self._discard()

    def _discard(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.rollback()
            self._connection.close()
            if self._index is not None:
                self._index.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    # Snapshots: which change readers stand at

    def refresh(self) -> None:
        """Let a reader see what was published since; a writer always does."""
        with self._mutex:
            if self._lock is None:
                self._begin_snapshot()

    def _begin_snapshot(self) -> None:
        """Start a read transaction in which database and index stand at the same change.

        The database may be ahead of the index (documents not yet published are not visible), but
        must still hold everything that the index knows.
        """
        deadline = time.monotonic() + _SNAPSHOT_TIMEOUT_S
        while True:
            problem: SpecragError
            with translated(self.path):
                if self._connection.in_transaction:
                    self._connection.commit()
                self._connection.execute("BEGIN")
                state = self._state()
            try:
                index = self._open_index(state)
                if state.purged <= index.sequence <= state.sequence:
                    return
                problem = KnowledgeBaseDamaged(
                    f"The search index stands at change {index.sequence}, the database at "
                    f"{state.sequence}",
                    where=str(self.path),
                    fix="Bring them together with any command that writes, such as specrag compact",
                )
            except KnowledgeBaseDamaged as error:  # also seen while a writer swaps the index
                problem = error
            if time.monotonic() > deadline:
                raise problem
            self._index_stamp = ()
            time.sleep(0.02)

    def _open_index(self, state: _State) -> PassageIndex:
        """The index of the current generation, looking at its newest commit."""
        path = _index_path(self.path, state.generation)
        stamp = _stamp(path)
        if self._index is None or state.generation != self._generation:
            if self._index is not None:
                self._index.close()
            self._index = None
            self._index = PassageIndex.open(path)
            self._generation = state.generation
        elif stamp != self._index_stamp:
            self._index.refresh()
        self._index_stamp = stamp
        return self._index

    @property
    def index(self) -> PassageIndex:
        """The search index, for statistics of terms."""
        if self._index is None:
            raise KnowledgeBaseError("The knowledge base is closed", where=str(self.path))
        return self._index

    @property
    def analyzer(self) -> Analyzer:
        """The analysis that this knowledge base searches with."""
        return self._analyzer

    def _state(self) -> _State:
        with translated(self.path):
            meta = dict(self._connection.execute("SELECT key, value FROM meta"))
        try:
            return _State(
                sequence=meta["sequence"],
                purged=meta["purged"],
                generation=meta["index_generation"],
                fingerprint=meta["index_fingerprint"],
                stemmer=meta["stemmer"] or None,
            )
        except KeyError as error:
            raise KnowledgeBaseDamaged(
                f"The database does not say its {error.args[0]}", where=str(self.path)
            ) from None

    # Reading

    def documents(self) -> list[Document]:
        """All documents, in the order they were added."""
        return self._documents("1", {})

    def document(self, document_id: int) -> Document:
        """
        Raises:
            KnowledgeBaseError: there is no such document (any more).
        """
        found = self._documents("id = :id", {"id": document_id})
        if not found:
            raise self._gone(document_id)
        return found[0]

    def find(self, source: str) -> Document | None:
        """The newest version of a source's document, if there is one; in a batch, also one that
        is not published yet."""
        found = self._documents("source = :source AND died IS NULL", {"source": source}, head=True)
        return found[0] if found else None

    def _documents(
        self, condition: str, values: dict[str, object], *, head: bool = False
    ) -> list[Document]:
        visible = "1" if head else _VISIBLE
        with self._reading() as connection:
            at = {"at": self.index.sequence, **values}
            rows = connection.execute(
                "SELECT id, source, title, media_type, content_sha256, size, characters, windows, "
                f"added_at FROM documents WHERE {condition} AND {visible} ORDER BY id",
                at,
            ).fetchall()
            flags: dict[int, list[Flag]] = {}
            for number, kind, detail in connection.execute(
                "SELECT document_id, kind, detail FROM flags WHERE document_id IN "
                f"(SELECT id FROM documents WHERE {condition} AND {visible}) "
                "ORDER BY document_id, ordinal",
                at,
            ):
                flags.setdefault(number, []).append(Flag(kind, detail))
        return [Document(*row, tuple(flags.get(row[0], ()))) for row in rows]

    def text(self, document_id: int) -> str:
        """The stored text of a document, to which all its spans refer."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT p.text FROM passages p JOIN documents d ON d.id = p.document_id "
                f"WHERE d.id = :id AND {_VISIBLE} ORDER BY p.start",
                {"id": document_id, "at": self.index.sequence},
            ).fetchall()
        if not rows:
            raise self._gone(document_id)
        return "".join(text for (text,) in rows)

    def citation(self, document_id: int, span: Span) -> Citation:
        """The place of `span` (in the document's text), with the page and headings it lies under.

        Raises:
            KnowledgeBaseError: no such document, or the span is not within its text.
        """
        with self._mutex:
            document = self.document(document_id)
            if not 0 <= span.start <= span.end <= document.characters:
                raise KnowledgeBaseError(
                    f"[{span.start}, {span.end}) is not a place in a text of "
                    f"{document.characters} characters",
                    where=document.source,
                )
            with self._reading() as connection:
                page = connection.execute(
                    "SELECT number FROM pages WHERE document_id = ? AND start <= ? "
                    "ORDER BY ordinal DESC LIMIT 1",
                    (document_id, span.start),
                ).fetchone()
            path = heading_path(span.start, self._headings(document_id))
            return Citation(
                document_id=document_id,
                source=document.source,
                title=document.title,
                span=span,
                quote=self._slice(document_id, span),
                page=page[0] if page else None,
                heading_path=tuple(heading.title for heading in path),
            )

    def _slice(self, document_id: int, span: Span) -> str:
        """`span` of the text, read from the passages it touches only."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT start, text FROM passages WHERE document_id = :id AND start < :stop "
                "AND start >= (SELECT max(start) FROM passages WHERE document_id = :id "
                "AND start <= :start) ORDER BY start",
                {"id": document_id, "start": span.start, "stop": max(span.end, span.start + 1)},
            ).fetchall()
        first = rows[0][0]
        return "".join(text for _, text in rows)[span.start - first : span.end - first]

    def _headings(self, document_id: int) -> tuple[Heading, ...]:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT start, level, title FROM headings WHERE document_id = ? ORDER BY ordinal",
                (document_id,),
            )
            return tuple(Heading(*row) for row in rows)

    def failures(self) -> list[Failure]:
        """The sources that could not be added and were not added or removed since."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT source, what, fix, content_sha256, failed_at FROM failures ORDER BY source"
            )
            return [Failure(*row) for row in rows]

    def statistics(self) -> Statistics:
        fingerprint = self.tokenizer.fingerprint if self.tokenizer else None
        with self._reading() as connection:
            at = {"at": self.index.sequence, "tokenizer": fingerprint}
            row = connection.execute(
                "SELECT count(*), total(windows), total(characters), "
                "total(tokenizer IS NOT coalesce(:tokenizer, tokenizer)) "
                f"FROM documents WHERE {_VISIBLE}",
                at,
            ).fetchone()
            flagged = connection.execute(
                "SELECT count(DISTINCT document_id) FROM flags WHERE document_id IN "
                f"(SELECT id FROM documents WHERE {_VISIBLE})",
                at,
            ).fetchone()[0]
            failures = connection.execute("SELECT count(*) FROM failures").fetchone()[0]
            return Statistics(
                documents=row[0],
                passages=self.index.passages,
                windows=int(row[1]),
                characters=int(row[2]),
                flagged=flagged,
                stale=int(row[3]),
                failures=failures,
                database_bytes=sum(file.stat().st_size for file in self.path.glob(f"{DATABASE}*")),
                index_bytes=_folder_bytes(_index_path(self.path, self._state().generation)),
                stemmer=self._analyzer.stemmer,
            )

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._mutex, translated(self.path):
            yield self._connection

    def _gone(self, document_id: int) -> KnowledgeBaseError:
        return KnowledgeBaseError(
            f"There is no document {document_id} (any more)",
            where=str(self.path),
            fix="See what there is with specrag list",
        )

    # Searching

    def search(
        self, question: str, limit: int, *, exclude_flagged: bool = False
    ) -> list[PassageHit]:
        """The best passages by BM25, best first; ties by passage number.

        Any text may be asked: it is analysed into terms, never parsed as a query.
        """
        with self._mutex:
            terms = self._analyzer.terms(question)
            if not exclude_flagged:
                return self.index.search(terms, limit)
            wanted = limit
            while True:
                hits = self.index.search(terms, wanted)
                kept = self._unflagged(hits)
                if len(kept) >= limit or len(hits) < wanted:
                    return kept[:limit]
                wanted *= 4

    def rarity(self, question: str) -> dict[str, float]:
        """The question's terms with BM25's inverse document frequency over passages."""
        with self._mutex:
            passages = self.index.passages
            frequencies = {
                term: self.index.document_frequency(term)
                for term in dict.fromkeys(self._analyzer.terms(question))
            }
        return {
            term: math.log1p((passages - n + 0.5) / (n + 0.5)) for term, n in frequencies.items()
        }

    def _unflagged(self, hits: list[PassageHit]) -> list[PassageHit]:
        flagged: set[int] = set()
        with self._reading() as connection:
            for numbers in _chunks([hit.passage_id for hit in hits]):
                flagged.update(
                    row[0]
                    for row in connection.execute(
                        f"SELECT id FROM passages WHERE id IN ({_marks(numbers)}) "
                        "AND document_id IN (SELECT document_id FROM flags)",
                        numbers,
                    )
                )
        return [hit for hit in hits if hit.passage_id not in flagged]

    @property
    def stale(self) -> bool:
        """Whether any window was cut for another tokenizer, length or overlap than this one's."""
        fingerprint = self._needed_tokenizer().fingerprint
        with self._reading() as connection:
            row = connection.execute(
                "SELECT 1 FROM documents WHERE (tokenizer < :tokenizer OR tokenizer > :tokenizer) "
                f"AND {_VISIBLE} LIMIT 1",  # two ranges, so that the index on it is used
                {"tokenizer": fingerprint, "at": self.index.sequence},
            ).fetchone()
        return row is not None

    def windows(self, passage_ids: Sequence[int]) -> list[Window]:
        """The windows of the passages, in the order given; within a passage, in order of place.

        Raises:
            StaleWindows: they were cut for another tokenizer.
        """
        with self._mutex:
            if self.stale:
                raise StaleWindows(
                    "The windows were cut for another drafter or window length",
                    where=str(self.path),
                    fix="Cut them anew with specrag rewindow",
                )
            numbers = list(dict.fromkeys(passage_ids))
            rows = self._window_rows(numbers)
            passages = self._passage_rows(numbers)
        return [
            _window(row, passages[number], number)
            for number in numbers
            for row in rows.get(number, ())
        ]

    def _window_rows(self, numbers: list[int]) -> dict[int, list[tuple[Any, ...]]]:
        rows: dict[int, list[tuple[Any, ...]]] = {}
        with self._reading() as connection:
            for chunk in _chunks(numbers):
                for row in connection.execute(
                    "SELECT passage_id, id, start, stop, tokens, token_ids, offsets FROM windows "
                    f"WHERE passage_id IN ({_marks(chunk)}) ORDER BY passage_id, start",
                    chunk,
                ):
                    rows.setdefault(row[0], []).append(row[1:])
        return rows

    def _passage_rows(self, numbers: list[int]) -> dict[int, tuple[int, int, str]]:
        """Document, start and text of passages."""
        rows: dict[int, tuple[int, int, str]] = {}
        with self._reading() as connection:
            for chunk in _chunks(numbers):
                for number, *rest in connection.execute(
                    "SELECT id, document_id, start, text FROM passages "
                    f"WHERE id IN ({_marks(chunk)})",
                    chunk,
                ):
                    rows[number] = (rest[0], rest[1], rest[2])
        return rows

    # Changing

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Publish several changes together, in parts of about 16 million characters.

        When the block raises, changes that were not published yet are undone.
        """
        with self._mutex:
            self._check_writable()
            self._depth += 1
            try:
                yield
            except BaseException:
                self._rollback()
                raise
            else:
                if self._depth == 1:
                    self._publish()
            finally:
                self._depth -= 1

    def add(self, parsed: ParsedDocument, *, content_sha256: str, size: int) -> Document:
        """Add a document, in place of an earlier version from the same source. All or nothing.

        Args:
            content_sha256, size: of the file's bytes (of the text's UTF-8 for added texts).

        Raises:
            EmptyDocument, DamagedDocument: there is no text in it, or not valid Unicode.
            KnowledgeBaseNotWritable: opened for reading, or the disk is full; nothing changed.
        """
        with self._mutex:
            self._check_writable()
            digest = _check_text(parsed)
            spans = cut_passages(parsed)
            texts = [span.of(parsed.text) for span in spans]
            windows = self._cut(texts)
            row = (
                parsed.source,
                parsed.title,
                parsed.media_type,
                content_sha256,
                digest,
                size,
                len(parsed.text),
                sum(map(len, windows)),
                self._needed_tokenizer().fingerprint,
                datetime.now(UTC).isoformat(timespec="seconds"),
            )
            with self._change(len(parsed.text)) as sequence:
                self._bury("source = ?", (parsed.source,), sequence)
                number = self._insert(parsed, (*row, sequence))
                for span, text, cut in zip(spans, texts, windows, strict=True):
                    self._insert_passage(number, span.start, text, cut)
            return self._documents("id = :id", {"id": number}, head=True)[0]

    def add_many(
        self,
        documents: Iterable[tuple[ParsedDocument, str, int]],
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Add documents given as (parsed, content_sha256, size) in one batch; returns how many.

        `progress` is told how many were added so far.
        """
        count = 0
        with self.batch():
            for parsed, content_sha256, size in documents:
                self.add(parsed, content_sha256=content_sha256, size=size)
                count += 1
                if progress is not None:
                    progress(count)
        return count

    def remove(self, source: str) -> int:
        """Remove the documents of a source, those inside it if it is an archive; returns how many.

        Their text leaves answers at once and the folder's files with `compact`.
        """
        with self._mutex:
            self._check_writable()
            with self._change(0) as sequence:
                return self._bury(
                    "(source = ? OR substr(source, 1, ?) = ?)",
                    (source, len(source) + len(MEMBER), source + MEMBER),
                    sequence,
                )

    def record_failure(self, source: str, error: SpecragError, content_sha256: str = "") -> None:
        """Remember that a source could not be added, until it is added or removed."""
        with self._mutex:
            self._check_writable()
            now = datetime.now(UTC).isoformat(timespec="seconds")
            with self._change(0):
                self._connection.execute(
                    "INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?)",
                    (source, error.what, error.fix or "", content_sha256, now),
                )

    def rewindow(
        self, tokenizer: WindowTokenizer, progress: Callable[[int, int], None] | None = None
    ) -> int:
        """Cut the windows of all documents anew where they are stale; returns of how many.

        Each document changes whole; after an interruption, the rest is left to do. `progress` is
        told documents done and documents to do.
        """
        with self._mutex:
            self._check_writable()
            with self._reading() as connection:
                stale = [
                    row[0]
                    for row in connection.execute(
                        "SELECT id FROM documents WHERE tokenizer != ? AND died IS NULL ORDER BY id",
                        (tokenizer.fingerprint,),
                    )
                ]
            self.tokenizer = tokenizer
            with self.batch():
                for done, number in enumerate(stale, 1):
                    self._rewindow_document(number, tokenizer)
                    if progress is not None:
                        progress(done, len(stale))
        return len(stale)

    def _rewindow_document(self, number: int, tokenizer: WindowTokenizer) -> None:
        with self._reading() as connection:
            passages = connection.execute(
                "SELECT id, text FROM passages WHERE document_id = ? ORDER BY start", (number,)
            ).fetchall()
        windows = self._cut([text for _, text in passages])
        with self._change(sum(len(text) for _, text in passages)):
            for (passage, _), cut in zip(passages, windows, strict=True):
                self._connection.execute("DELETE FROM windows WHERE passage_id = ?", (passage,))
                self._insert_windows(passage, cut)
            self._connection.execute(
                "UPDATE documents SET tokenizer = ?, windows = ? WHERE id = ?",
                (tokenizer.fingerprint, sum(map(len, windows)), number),
            )

    def compact(self) -> None:
        """Give space back, and leave no trace of removed text in any file of the folder.

        The index is built anew and the database rewritten. Needs room for a second copy of both.

        Raises:
            KnowledgeBaseLocked: a reader still holds an older state, whose text must stay for now.
            KnowledgeBaseNotWritable: full disk; everything is as it was.
        """
        with self._mutex:
            self._check_writable()
            if self._depth:
                raise UsageError("A knowledge base cannot be compacted within a batch")
            self._rebuild_index()
            with translated(self.path):
                self._connection.execute("VACUUM")
                busy = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            if busy:
                raise KnowledgeBaseLocked(
                    "Compacted, but a reader still uses the state before, so its text remains",
                    where=str(self.path),
                    fix="End the processes that read this knowledge base, then compact again",
                )

    def _cut(self, texts: list[str]) -> list[list[WindowSlice]]:
        tokenizer = self._needed_tokenizer()
        return [
            cut_windows(text, tokens, tokenizer.options)
            for text, tokens in zip(texts, tokenizer.encode_batch(texts), strict=True)
        ]

    def _insert(self, parsed: ParsedDocument, row: tuple[object, ...]) -> int:
        connection = self._connection
        number = connection.execute(
            "INSERT INTO documents (source, title, media_type, content_sha256, text_sha256, size, "
            "characters, windows, tokenizer, added_at, born) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
            row,
        ).lastrowid
        assert number is not None  # an INSERT into a table with a rowid always has one
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
        return number

    def _insert_passage(
        self, document_id: int, start: int, text: str, windows: list[WindowSlice]
    ) -> None:
        number = self._connection.execute(
            "INSERT INTO passages (document_id, start, text) VALUES (?, ?, ?)",
            (document_id, start, text),
        ).lastrowid
        assert number is not None
        self._insert_windows(number, windows)

    def _insert_windows(self, passage_id: int, windows: list[WindowSlice]) -> None:
        rows = [(window.span, pack(window)) for window in windows]
        self._connection.executemany(
            "INSERT INTO windows (passage_id, start, stop, tokens, token_ids, offsets) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            [
                (passage_id, span.start, span.end, packed.count, packed.ids, packed.offsets)
                for span, packed in rows
            ],
        )

    def _bury(self, condition: str, values: tuple[object, ...], sequence: int) -> int:
        """Mark documents as dead from `sequence` on; those born in it never were. Forget failures."""
        connection = self._connection
        connection.execute(
            f"DELETE FROM documents WHERE {condition} AND born = ?", (*values, sequence)
        )
        unborn = connection.execute("SELECT changes()").fetchone()[0]
        connection.execute(
            f"UPDATE documents SET died = ? WHERE {condition} AND died IS NULL",
            (sequence, *values),
        )
        dead = connection.execute("SELECT changes()").fetchone()[0]
        connection.execute(f"DELETE FROM failures WHERE {condition}", values)
        return int(unborn) + int(dead)

    # Publishing: database first, then the index, then what died is deleted

    @contextlib.contextmanager
    def _change(self, characters: int) -> Iterator[int]:
        """One change, whole or not at all; yields its number. Outside a batch it is published."""
        with translated(self.path):
            if not self._connection.in_transaction:
                self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("SAVEPOINT change")
            try:
                yield self._state().sequence + 1
                self._connection.execute("RELEASE change")
            except BaseException:
                if self._connection.in_transaction:  # a full disk ends the transaction by itself
                    self._connection.execute("ROLLBACK TO change")
                    self._connection.execute("RELEASE change")
                    if self._depth == 0:
                        self._rollback()
                raise
        self._pending += characters
        if self._depth == 0 or self._pending >= _BATCH_CHARACTERS:
            self._publish()

    def _publish(self) -> None:
        connection = self._connection
        if not connection.in_transaction:
            return
        self._pending = 0
        with translated(self.path):
            try:
                changed = connection.execute(
                    "SELECT 1 FROM documents, (SELECT value + 1 AS next FROM meta "
                    "WHERE key = 'sequence') WHERE born = next OR died = next LIMIT 1"
                ).fetchone()
                if changed:
                    connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'sequence'")
                connection.execute("COMMIT")
            except BaseException:
                self._rollback()
                raise
        if changed:
            self._catch_up()

    def _rollback(self) -> None:
        self._pending = 0
        if self._connection.in_transaction:
            self._connection.rollback()

    def _catch_up(self) -> None:
        """Bring the index to the database's change, then delete what died before it."""
        state, index = self._state(), self.index
        if index.sequence < state.sequence:
            with translated(self.path):
                died = self._connection.execute(
                    "SELECT p.id FROM passages p JOIN documents d ON d.id = p.document_id "
                    "WHERE d.died > ? AND d.born <= ?",
                    (index.sequence, index.sequence),
                ).fetchall()
            index.apply(
                (row[0] for row in died), self._new_passages(index.sequence), state.sequence
            )
        with translated(self.path):
            self._purge(state.sequence)

    def _new_passages(self, after: int) -> Iterator[tuple[int, list[str]]]:
        """Number and terms of the passages that the index lacks, in order."""
        with translated(self.path):
            documents = self._connection.execute(
                "SELECT id, title FROM documents WHERE born > ? AND died IS NULL ORDER BY id",
                (after,),
            ).fetchall()
            for document_id, title in documents:
                headings = self._headings(document_id)
                for number, start, text in self._connection.execute(
                    "SELECT id, start, text FROM passages WHERE document_id = ? ORDER BY start",
                    (document_id,),
                ):
                    context = context_of(Span(start, start + len(text)), title, headings)
                    yield number, self._analyzer.terms(f"{context}\n{text}")

    def _purge(self, sequence: int) -> None:
        connection = self._connection
        dead = "died IS NOT NULL AND died <= ?"
        if connection.execute(f"SELECT 1 FROM documents WHERE {dead}", (sequence,)).fetchone():
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.execute(f"DELETE FROM documents WHERE {dead}", (sequence,))
                connection.execute("UPDATE meta SET value = ? WHERE key = 'purged'", (sequence,))
                connection.execute("COMMIT")
            except BaseException:
                self._rollback()
                raise

    def _bring_up_to_date(self) -> None:
        """What the last writer may have left half-done: finish it, or build the index anew."""
        state = self._state()
        for leftover in self.path.glob("index-*"):
            if leftover != _index_path(self.path, state.generation):
                shutil.rmtree(leftover, ignore_errors=True)
        try:
            index = self._open_index(state)
            usable = (
                state.fingerprint == self._analyzer.fingerprint
                and state.purged <= index.sequence <= state.sequence
            )
        except KnowledgeBaseDamaged:
            usable = False
        if usable:
            self._catch_up()
        else:
            self._rebuild_index()

    def _rebuild_index(self) -> None:
        """Build a new generation of the index from the database, then switch to it."""
        state = self._state()
        path = _index_path(self.path, state.generation + 1)
        shutil.rmtree(path, ignore_errors=True)
        try:
            rebuilt = PassageIndex.create(path)
            rebuilt.apply((), self._new_passages(-1), state.sequence)
            with translated(self.path):
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.executemany(
                    "UPDATE meta SET value = ? WHERE key = ?",
                    [
                        (state.generation + 1, "index_generation"),
                        (self._analyzer.fingerprint, "index_fingerprint"),
                    ],
                )
                self._connection.execute("COMMIT")
        except BaseException:
            self._rollback()
            shutil.rmtree(path, ignore_errors=True)
            raise
        if self._index is not None:
            self._index.close()
        self._index, self._generation = rebuilt, state.generation + 1
        shutil.rmtree(_index_path(self.path, state.generation), ignore_errors=True)
        with translated(self.path):
            self._purge(state.sequence)

    def _check_writable(self) -> None:
        if self._lock is None:
            raise UsageError("The knowledge base was opened for reading", where=str(self.path))

    def _needed_tokenizer(self) -> WindowTokenizer:
        if self.tokenizer is None:
            raise UsageError(
                "The knowledge base was opened without the drafter's tokenizer",
                where=str(self.path),
            )
        return self.tokenizer


def _create(folder: Path, stemmer: str | None) -> None:
    """The index first: where there is a database, there is an index."""
    path = _index_path(folder, 1)
    shutil.rmtree(path, ignore_errors=True)
    PassageIndex.create(path).close()
    create_database(
        folder,
        {
            "sequence": 0,
            "purged": 0,
            "index_generation": 1,
            "index_fingerprint": Analyzer(stemmer).fingerprint,
            "stemmer": stemmer or "",
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    )


def _check_text(parsed: ParsedDocument) -> str:
    """The sha256 (hex) of the text's UTF-8.

    Raises:
        EmptyDocument, DamagedDocument
    """
    if not parsed.text.strip():
        raise EmptyDocument("There is no text in it", where=parsed.source)
    try:
        return hashlib.sha256(parsed.text.encode("utf-8")).hexdigest()
    except UnicodeEncodeError as error:
        raise DamagedDocument(
            f"Its text is not valid Unicode at character {error.start}",
            where=parsed.source,
            fix="Convert it to UTF-8",
        ) from error


def _window(row: tuple[Any, ...], passage: tuple[int, int, str], passage_id: int) -> Window:
    number, start, stop, count, ids, offsets = row
    document_id, passage_start, passage_text = passage
    tokens = unpack(PackedTokens(count, ids, offsets))
    return Window(
        id=number,
        document_id=document_id,
        passage_id=passage_id,
        span=Span(start, stop).shifted(passage_start),
        text=passage_text[start:stop],
        token_ids=tokens.ids,
        offsets=tokens.offsets,
        passage=Span(passage_start, passage_start + len(passage_text)),
        passage_text=passage_text,
    )


def _index_path(folder: Path, generation: int) -> Path:
    return folder / f"index-{generation}"


def _stamp(index: Path) -> tuple[int, ...]:
    """Differs when the index was committed to since."""
    try:
        status = (index / "meta.json").stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ino, status.st_size


def _folder_bytes(folder: Path) -> int:
    total = 0
    for file in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # a merge may have just removed it
            total += file.stat().st_size
    return total


def _chunks(numbers: Sequence[int]) -> Iterator[list[int]]:
    for start in range(0, len(numbers), _SQL_VARIABLES):
        yield list(numbers[start : start + _SQL_VARIABLES])


def _marks(numbers: Sequence[int]) -> str:
    return ",".join("?" * len(numbers))
