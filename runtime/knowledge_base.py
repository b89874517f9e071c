"""Parsed documents -> a folder that keeps them, finds passages in them and names exact places.

The folder holds a SQLite database (the truth), a search index derived from it, and a lock file. A
change is published when the index commits it: until then every reader, and the writer too, sees the
state before. A process that dies in between leaves whole documents only; the next writer brings the
index up to date. The folder can be moved, and read from read-only media.

Not covered: network file systems without working locks, and platforms without `flock`.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from runtime import catalogue, integrity, records
from runtime.analysis import Analyzer
from runtime.catalogue import Failure, PassageRow, SeenFile, State
from runtime.documents import Citation, Document, ParsedDocument, Span, Window
from runtime.errors import (
    DamagedDocument,
    EmptyDocument,
    KnowledgeBaseDamaged,
    KnowledgeBaseError,
    KnowledgeBaseLocked,
    KnowledgeBaseNotReadable,
    KnowledgeBaseOutdated,
    SpecragError,
    UsageError,
)
from runtime.index import PassageHit, PassageIndex
from runtime.outline import Outline, contexts, heading_path
from runtime.passages import cut_passages
from runtime.records import MEMBER
from runtime.spellings import other_spellings
from runtime.storage import (
    DATABASE,
    WriterLock,
    create_database,
    has_database,
    not_writable,
    open_database,
    translated,
)
from runtime.windows import WindowSlice, WindowTokenizer, cut_windows

__all__ = ["MEMBER", "CutPassage", "Failure", "KnowledgeBase", "SeenFile", "Statistics"]

# A batch is published in parts of about this much text, so that a long add survives interruption.
_BATCH_CHARACTERS = 8_000_000
_SNAPSHOT_TIMEOUT_S = 10.0
_KNOWN_PASSAGES = 2_000  # whose windows are kept in memory, about 10 MB
_PLACES = 1 << 20  # for the windows of a passage in their numbers


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a knowledge base holds. Sizes in bytes on the medium; `flagged` counts documents."""

    documents: int
    passages: int
    characters: int
    flagged: int
    failures: int
    database_bytes: int
    index_bytes: int
    stemmer: str | None


@dataclass(frozen=True, slots=True, eq=False)
class CutPassage:
    """A passage and its windows, in order of place."""

    row: PassageRow
    slices: list[WindowSlice]
    outline: Outline

    def window(self, place: int) -> Window:
        """The window at `place` among those of the passage, counted from 0."""
        cut = self.slices[place]
        return Window(
            id=self.row.id * _PLACES + place,
            document_id=self.row.document_id,
            passage_id=self.row.id,
            span=cut.span.shifted(self.row.start),
            text=cut.span.of(self.row.text),
            token_ids=cut.token_ids,
            offsets=cut.offsets,
            passage=self.row.span,
            passage_text=self.row.text,
            outline=self.outline,
        )


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
        # By passage, cut with `_cut_with`.
        self._known_windows: dict[int, tuple[list[WindowSlice], Outline]] = {}
        self._cut_with: WindowTokenizer | None = None
        self._generation = 0
        self._pending = 0  # characters changed in the open transaction
        self._depth = 0  # of nested `batch`
        self._is_closed = False
        self._analyzer = Analyzer(self._state().stemmer)

    # Opening and closing

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
            tokenizer: the drafter's; needed to read windows, which are cut when they are asked for.
            create: make it if there is none (implies `writable`).
            stemmer: a Snowball algorithm for a knowledge base that is created; kept with it.
            wait_s: how long to wait for another writer, in seconds; `on_wait` hears who it is.

        Raises:
            KnowledgeBaseNotFound, KnowledgeBaseLocked, KnowledgeBaseTooNew, KnowledgeBaseOutdated,
            KnowledgeBaseDamaged, KnowledgeBaseNotReadable, KnowledgeBaseNotWritable,
            UsageError: no such stemmer.
        """
        folder = Path(path)
        lock = None
        try:
            if create:
                _make_folder(folder)
            if create or writable:
                lock = _lock(folder, create, wait_s, on_wait)
            if create and not has_database(folder):
                _create(folder, stemmer)
            connection = open_database(folder, writable=lock is not None)
            try:
                opened = cls(folder, connection, tokenizer, lock)
                opened._begin()
            except BaseException:
                connection.close()
                raise
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        return opened

    def _begin(self) -> None:
        if self._lock is None:
            self._begin_snapshot()
        else:
            self._bring_up_to_date()

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
        """Let go of the folder; once more does nothing. Published changes are safe before this."""
        with self._mutex:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self._rollback()
                self._connection.close()
                if self._index is not None:
                    self._index.close()
                    self._index = None
            finally:
                if self._lock is not None:
                    self._lock.release()

    # Snapshots: which change a reader stands at

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Self]:
        """The newest published state, the same for all calls within the block."""
        with self._mutex:
            self.refresh()
            yield self

    def refresh(self) -> None:
        """Let a reader see what was published since; a writer always does."""
        with self._mutex:
            if self._lock is None:
                self._begin_snapshot()

    def _begin_snapshot(self) -> None:
        """Start a read transaction in which database and index stand at the same change.

        The database may be ahead of the index (documents not yet published are not visible), but
        must still hold everything that the index knows. In the instants when a writer publishes or
        swaps the index they may not agree, or only its owner may read it; then it is tried again.
        """
        deadline = time.monotonic() + _SNAPSHOT_TIMEOUT_S
        while True:
            with translated(self.path):
                self._rollback()
                self._connection.execute("BEGIN")
                state = self._state()
            self._check_analysis(state)
            try:
                if _agree(state, self._open_index(state)):
                    return
                raise KnowledgeBaseDamaged(
                    "The search index and the database are at different changes",
                    where=str(self.path),
                    fix="Bring them together with any command that writes, such as specrag compact",
                )
            except (KnowledgeBaseDamaged, KnowledgeBaseNotReadable):
                if time.monotonic() > deadline:
                    raise
            self._index_stamp = ()
            time.sleep(0.02)

    def _check_analysis(self, state: State) -> None:
        """Questions analysed otherwise than the passages were would find less and say nothing."""
        if not self._analyzer.agrees_with(state.fingerprint):
            raise KnowledgeBaseOutdated(
                "The search index was made by another version of specrag",
                where=str(self.path),
                fix="Where it can be written, any command that writes indexes it anew, such as "
                "specrag compact",
            )

    def _open_index(self, state: State) -> PassageIndex:
        """The index of the current generation, at its newest commit."""
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
        """The search index, for its statistics of terms."""
        if self._index is None:
            raise KnowledgeBaseError("The knowledge base is closed", where=str(self.path))
        return self._index

    @property
    def analyzer(self) -> Analyzer:
        """The analysis that this knowledge base searches with."""
        return self._analyzer

    def _state(self) -> State:
        with translated(self.path):
            return catalogue.read_state(self._connection)

    # Reading

    def documents(self) -> list[Document]:
        """All documents, in the order they were added."""
        with self._reading() as connection:
            return catalogue.documents(connection, self.index.sequence)

    def document(self, document_id: int) -> Document:
        """
        Raises:
            KnowledgeBaseError: there is no such document (any more).
        """
        with self._reading() as connection:
            found = catalogue.document(connection, self.index.sequence, document_id)
        if found is None:
            raise KnowledgeBaseError(
                f"There is no document {document_id} (any more)",
                where=str(self.path),
                fix="See what there is with specrag list",
            )
        return found

    def is_superseded(self, window: Window) -> bool:
        """Whether the window's document is no longer in force, as far as is known.

        Raises:
            KnowledgeBaseError: as `document`.
        """
        return self.document(window.document_id).superseded is not None

    def find(self, source: str) -> Document | None:
        """The newest document of a source; within a batch, also one not published yet."""
        with self._reading() as connection:
            return catalogue.newest(connection, source)

    def text(self, document_id: int) -> str:
        """The stored text of a document, to which all its spans refer."""
        with self._reading() as connection:
            self.document(document_id)
            return "".join(row.text for row in catalogue.passages_of(connection, document_id))

    def citation(self, document_id: int, span: Span) -> Citation:
        """The place of `span` (in the document's text), with the page and headings it lies under.

        Raises:
            KnowledgeBaseError: no such document, or the span is not within its text.
        """
        with self._reading() as connection:
            document = self.document(document_id)
            if not 0 <= span.start <= span.end <= document.characters:
                raise KnowledgeBaseError(
                    f"[{span.start}, {span.end}) is not a place in a text of "
                    f"{document.characters} characters",
                    where=document.source,
                    fix=f"Name characters from 0 to {document.characters}, the smaller first",
                )
            path = heading_path(span.start, catalogue.headings(connection, document_id))
            return Citation(
                document_id=document_id,
                source=document.source,
                title=document.title,
                span=span,
                quote=catalogue.slice_of(connection, document_id, span),
                page=catalogue.page_at(connection, document_id, span.start),
                heading_path=tuple(heading.title for heading in path),
                superseded=document.superseded,
            )

    def verify(self) -> tuple[str, ...]:
        """What is damaged, in words; empty if the knowledge base is whole. Reads everything."""
        with self._reading() as connection:
            at = self.index.sequence
            path = _index_path(self.path, self._generation)
            return (
                *integrity.database_problems(connection, at),
                *integrity.index_problems(connection, at, self.index, path),
            )

    def failures(self) -> list[Failure]:
        """The sources that could not be added and were not added or removed since."""
        with self._reading() as connection:
            return catalogue.failures(connection)

    def seen_files(self) -> dict[str, SeenFile]:
        """What the files that were added, or could not be, looked like then; by source."""
        with self._reading() as connection:
            return catalogue.seen_files(connection)

    def roots(self) -> list[str]:
        """The folders that were added, and the files that are to be and were not read yet."""
        with self._reading() as connection:
            return catalogue.roots(connection)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to answer from."""
        with self._mutex:
            return self.index.passages == 0

    def statistics(self) -> Statistics:
        with self._reading() as connection:
            totals = catalogue.totals(connection, self.index.sequence)
            return Statistics(
                documents=totals.documents,
                passages=self.index.passages,
                characters=totals.characters,
                flagged=totals.flagged,
                failures=totals.failures,
                database_bytes=_bytes(self.path.glob(f"{DATABASE}*")),
                index_bytes=_bytes(_index_path(self.path, self._generation).iterdir()),
                stemmer=self._analyzer.stemmer,
            )

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._mutex, translated(self.path):
            if self._is_closed:
                raise KnowledgeBaseError("The knowledge base is closed", where=str(self.path))
            yield self._connection

    # Searching

    def search(
        self, question: str, limit: int, *, exclude_flagged: bool = False
    ) -> list[PassageHit]:
        """The best passages by BM25, best first; ties by passage number.

        Any text may be asked: it is analysed into terms, never parsed as a query.
        """
        with self._reading() as connection:
            terms = self._terms_asked(question)
            wanted = limit
            while True:
                hits = self.index.search(terms, wanted)
                if not exclude_flagged:
                    return hits
                flagged = catalogue.flagged(connection, [hit.passage_id for hit in hits])
                kept = [hit for hit in hits if hit.passage_id not in flagged]
                if len(kept) >= limit or len(hits) < wanted:
                    return kept[:limit]
                wanted *= 4

    def _terms_asked(self, question: str) -> list[str]:
        """The question's terms, and those that other spellings of its measures and codes add."""
        terms = self._analyzer.terms(question)
        known = set(terms)
        return terms + [
            term for term in self._analyzer.terms(other_spellings(question)) if term not in known
        ]

    def rarity(self, question: str) -> dict[str, float]:
        """The question's terms with BM25's inverse document frequency over passages."""
        with self._mutex:
            passages = self.index.passages
            frequencies = {
                term: self.index.document_frequency(term)
                for term in dict.fromkeys(self._terms_asked(question))
            }
        return {
            term: math.log1p((passages - n + 0.5) / (n + 0.5)) for term, n in frequencies.items()
        }

    def indexed_terms(self) -> Iterator[tuple[int, list[str]]]:
        """Number and terms of every passage, as they are indexed."""
        with self._reading():
            for number, terms in self._terms_of_born(-1):
                yield number, terms.split()

    def windows(self, passage_ids: Sequence[int]) -> list[Window]:
        """The windows of the passages, in the order given; within a passage, in order of place.

        Raises:
            UsageError: as `cut`.
        """
        passages = self.cut(passage_ids)
        return [one.window(place) for one in passages for place in range(len(one.slices))]

    def cut(self, passage_ids: Sequence[int]) -> list[CutPassage]:
        """The passages that exist, each once, in the order given, and where their windows are.

        They are cut here, with the tokenizer that the knowledge base was opened with or given.

        Raises:
            UsageError: it has none.
        """
        with self._reading() as connection:
            if self.tokenizer is None:
                raise UsageError(
                    "The knowledge base was opened without the drafter's tokenizer",
                    where=str(self.path),
                )
            numbers = list(dict.fromkeys(passage_ids))
            found = catalogue.passages(connection, numbers)
            rows = [found[number] for number in numbers if number in found]
            cut = self._cut(connection, self.tokenizer, rows)
            return [CutPassage(row, *cut[row.id]) for row in rows]

    def _cut(
        self,
        connection: sqlite3.Connection,
        tokenizer: WindowTokenizer,
        rows: Sequence[PassageRow],
    ) -> dict[int, tuple[list[WindowSlice], Outline]]:
        """The windows of each passage and what it lies under.

        A number never stands for another text, so they are kept.
        """
        if tokenizer is not self._cut_with or len(self._known_windows) > _KNOWN_PASSAGES:
            self._known_windows, self._cut_with = {}, tokenizer
        known = self._known_windows
        new = [row for row in rows if row.id not in known]
        outlines = catalogue.outlines(connection, new)
        for row, tokens in zip(new, tokenizer.encode_batch([r.text for r in new]), strict=True):
            windows = cut_windows(row.text, tokens, tokenizer.options)
            known[row.id] = windows, outlines[row.id]
        return known

    # Changing

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Publish several changes together, in parts of about 8 million characters.

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
            KnowledgeBaseNotWritable: the disk is full; nothing changed.
            UsageError: opened for reading.
        """
        with self._mutex:
            self._check_writable()
            _check_text(parsed)
            passages = cut_passages(parsed)
            with self._change(len(parsed.text)) as sequence:
                records.bury(self._connection, parsed.source, sequence)
                records.insert_document(
                    self._connection,
                    parsed,
                    passages,
                    content_sha256=content_sha256,
                    size=size,
                    sequence=sequence,
                )
            added = self.find(parsed.source)
            assert added is not None
            return added

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
        """Remove the documents of a source, and those inside it if it is an archive or a folder,
        which is forgotten; returns how many.

        Their text leaves answers at once and the folder's files with `compact`.
        """
        with self._mutex:
            self._check_writable()
            with self._change(0) as sequence:
                return records.bury(self._connection, source, sequence, members=True)

    def record_failure(self, source: str, error: SpecragError, content_sha256: str = "") -> None:
        """Remember that a source could not be added, until it is added or removed."""
        with self._mutex:
            self._check_writable()
            with self._change(0):
                records.record_failure(self._connection, source, error, content_sha256)

    def forget_failures(self, source: str) -> None:
        """Forget that a source, or what lies in it, could not be added; its documents stay."""
        with self._mutex:
            self._check_writable()
            with self._change(0):
                records.forget_failures(self._connection, source)

    def record_file(self, file: SeenFile) -> None:
        """Remember what a file looked like when it was read, or was not."""
        with self._mutex:
            self._check_writable()
            with self._change(0):
                records.record_file(self._connection, file)

    def remember_root(self, path: str) -> None:
        """Remember that the files of a folder, or this file, are to be added: until `remove`, or
        for a file until `record_file`."""
        with self._mutex:
            self._check_writable()
            with self._change(0):
                records.remember_root(self._connection, path)

    def compact(self) -> None:
        """Give space back, and leave no trace of removed text in any file of the folder.

        The index is built anew and the database rewritten. Needs room for a second copy of both.

        Raises:
            KnowledgeBaseLocked: a reader holds a state, whose text must stay for now. Nothing was
                done, unless the reader came in the meantime; the message says which.
            KnowledgeBaseNotWritable: full disk; everything is as it was.
        """
        with self._mutex:
            self._check_writable()
            if self._depth:
                raise UsageError("A knowledge base cannot be compacted within a batch")
            with self._transaction():
                records.touch(self._connection)  # what a reader holds is now an older state
            self._empty_log("Not compacted: a reader still uses the knowledge base")
            self._rebuild_index()
            with translated(self.path):
                self._connection.execute("VACUUM")
            self._empty_log("Compacted, but a reader uses the state before, so its text remains")

    def _empty_log(self, held: str) -> None:
        """Move the write-ahead log into the database, which only readers of older states prevent.

        Raises:
            KnowledgeBaseLocked: there are such; `held` is what happened.
        """
        with translated(self.path):
            busy = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise KnowledgeBaseLocked(
                held,
                where=str(self.path),
                fix="End the processes that read this knowledge base, then compact again",
            )

    # Publishing: the database first, then the index, then what died is deleted

    @contextlib.contextmanager
    def _change(self, characters: int) -> Iterator[int]:
        """One change, whole or not at all; yields its number. Outside a batch it is published."""
        connection = self._connection
        with translated(self.path):
            if not connection.in_transaction:
                connection.execute("BEGIN IMMEDIATE")
            connection.execute("SAVEPOINT change")
            try:
                yield self._state().sequence + 1
                connection.execute("RELEASE change")
            except BaseException:
                self._undo_change()
                raise
        self._pending += characters
        if self._depth == 0 or self._pending >= _BATCH_CHARACTERS:
            self._publish()

    def _undo_change(self) -> None:
        """Undo the open change; in a batch, those before it stay in the transaction."""
        if self._depth and self._connection.in_transaction:  # a full disk may have ended it
            self._connection.execute("ROLLBACK TO change")
            self._connection.execute("RELEASE change")
        else:
            self._rollback()

    def _publish(self) -> None:
        if not self._connection.in_transaction:
            return
        with self._transaction():
            changed = records.advance(self._connection)
        self._pending = 0
        if changed:
            self._catch_up()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit the block's changes together with those of the open transaction, or undo all."""
        with translated(self.path):
            try:
                if not self._connection.in_transaction:
                    self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self._rollback()
                raise

    def _rollback(self) -> None:
        self._pending = 0
        if self._connection.in_transaction:
            self._connection.rollback()

    def _catch_up(self) -> None:
        """Bring the index to the database's change, then delete what died before it."""
        sequence, index = self._state().sequence, self.index
        if index.sequence < sequence:
            with translated(self.path):
                died = catalogue.passages_that_died(self._connection, index.sequence)
                index.apply(died, self._terms_of_born(index.sequence), sequence)
        self._purge(sequence)

    def _terms_of_born(self, after: int) -> Iterator[tuple[int, str]]:
        """Number and spaced terms of the passages that an index at change `after` lacks."""
        for document_id, title in catalogue.documents_born(self._connection, after):
            headings = catalogue.headings(self._connection, document_id)
            rows = catalogue.passages_of(self._connection, document_id)
            above = contexts((row.span for row in rows), title, headings)
            for row, context in zip(rows, above, strict=True):
                yield row.id, self._analyzer.spaced_terms(f"{context}\n{row.text}")

    def _purge(self, sequence: int) -> None:
        with translated(self.path):
            has_dead = catalogue.has_dead(self._connection, sequence)
        if has_dead:
            with self._transaction():
                records.purge(self._connection, sequence)

    def _bring_up_to_date(self) -> None:
        """What the last writer may have left half-done: finish it, or build the index anew."""
        state = self._state()
        for leftover in self.path.glob("index-*"):
            if leftover != _index_path(self.path, state.generation):
                shutil.rmtree(leftover, ignore_errors=True)
        try:
            is_usable = _agree(state, self._open_index(state))
        except (KnowledgeBaseDamaged, KnowledgeBaseNotReadable):
            is_usable = False
        if is_usable and state.fingerprint == self._analyzer.fingerprint:
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
            with translated(self.path):
                rebuilt.apply((), self._terms_of_born(-1), state.sequence)
            with self._transaction():
                records.switch_index(
                    self._connection, state.generation + 1, self._analyzer.fingerprint
                )
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        if self._index is not None:
            self._index.close()
        self._index, self._generation = rebuilt, state.generation + 1
        self._index_stamp = _stamp(path)
        shutil.rmtree(_index_path(self.path, state.generation), ignore_errors=True)
        self._purge(state.sequence)

    def _check_writable(self) -> None:
        if self._lock is None:
            raise UsageError("The knowledge base was opened for reading", where=str(self.path))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(folder, error) from error


def _lock(
    folder: Path, create: bool, wait_s: float, on_wait: Callable[[str], None] | None
) -> WriterLock | None:
    """The writer lock; None where there is nothing to lock, which opening then says better."""
    if not create and not has_database(folder):
        return None
    lock = WriterLock(folder)
    lock.acquire(wait_s, on_wait)
    return lock


def _create(folder: Path, stemmer: str | None) -> None:
    """The index first: where there is a database, there is an index."""
    analyzer = Analyzer(stemmer)
    path = _index_path(folder, 1)
    shutil.rmtree(path, ignore_errors=True)
    PassageIndex.create(path).close()
    create_database(
        folder,
        {
            "sequence": 0,
            "purged": 0,
            "index_generation": 1,
            "index_fingerprint": analyzer.fingerprint,
            "stemmer": stemmer or "",
            "created_at": records.now(),
        },
    )


def _agree(state: State, index: PassageIndex) -> bool:
    """Whether the database still holds, and already holds, all that the index knows."""
    return state.purged <= index.sequence <= state.sequence


def _check_text(parsed: ParsedDocument) -> None:
    """
    Raises:
        EmptyDocument, DamagedDocument
    """
    if not parsed.text.strip():
        raise EmptyDocument("There is no text in it", where=parsed.source)
    try:
        parsed.text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DamagedDocument(
            f"Its text is not valid Unicode at character {error.start}",
            where=parsed.source,
            fix="Convert it to UTF-8",
        ) from error


def _index_path(folder: Path, generation: int) -> Path:
    return folder / f"index-{generation}"


def _stamp(index: Path) -> tuple[int, ...]:
    """Differs when the index was committed to since."""
    try:
        status = (index / "meta.json").stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ino, status.st_size


def _bytes(files: Iterable[Path]) -> int:
    total = 0
    for file in files:
        with contextlib.suppress(FileNotFoundError):  # a merge may have just removed it
            total += file.stat().st_size
    return total
