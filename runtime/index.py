"""Passages' terms -> a persistent BM25 index, derived from the database and never the truth.

The index is tantivy's: k1 = 1.2, b = 0.75, passage lengths rounded to its one-byte scale. It holds
no text, only terms and passage numbers. Every commit also says up to which change of the database
it goes, in one document of its own (passage 0), so that after a crash the difference is known.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tantivy

from runtime.errors import KnowledgeBaseDamaged, KnowledgeBaseNotReadable
from runtime.storage import DATABASE, is_read_only, not_readable, not_writable

_HEAP_BYTES = 64_000_000
_MARKER = 0  # the passage number of the document that holds the sequence
_MOST_FREQUENCIES = 10_000  # of terms, kept; every question has many of its terms from others
MOST_TERMS = 64  # of one question; the rarest are kept


@dataclass(frozen=True, slots=True)
class PassageHit:
    """A passage and its BM25 score (no unit, higher is better)."""

    passage_id: int
    score: float


class PassageIndex:
    """One generation of the index: a folder of tantivy's files."""

    def __init__(self, path: Path, index: tantivy.Index, shadow: _Shadow | None = None) -> None:
        self._path = path
        self._index = index
        self._schema = index.schema
        self._shadow = shadow
        self._writer: tantivy.IndexWriter | None = None
        index.config_reader("manual")
        self.refresh()

    @classmethod
    def create(cls, path: Path) -> PassageIndex:
        """An empty index at sequence 0 in the new folder `path`.

        Raises:
            KnowledgeBaseNotWritable: read-only folder or full disk.
        """
        builder = tantivy.SchemaBuilder()
        builder.add_unsigned_field("passage", indexed=True, fast=True)
        builder.add_unsigned_field("sequence", fast=True)
        builder.add_text_field("terms", tokenizer_name="whitespace", index_option="freq")
        try:
            path.mkdir(parents=True)
            created = cls(path, tantivy.Index(builder.build(), path=str(path), reuse=False))
        except (OSError, ValueError) as error:
            raise not_writable(path.parent, error) from error
        created.apply((), (), 0)
        return created

    @classmethod
    def open(cls, path: Path) -> PassageIndex:
        """
        Raises:
            KnowledgeBaseDamaged: the folder is missing or cannot be read as an index.
            KnowledgeBaseNotReadable: the user has no right to.
        """
        shadow = None
        try:
            shadow = _Shadow(path) if path.is_dir() and is_read_only(path) else None
            return cls(path, tantivy.Index.open(str(shadow.path if shadow else path)), shadow)
        except BaseException as error:
            if shadow is not None:
                shadow.close()
            if isinstance(error, OSError | ValueError):
                raise _unusable(path, error) from error
            raise

    @property
    def passages(self) -> int:
        return int(self._searcher.num_docs) - 1

    def refresh(self) -> None:
        """See what was committed last, by this process or another.

        Raises:
            KnowledgeBaseDamaged, KnowledgeBaseNotReadable: as `open`.
        """
        try:
            self._index.reload()
        except ValueError as error:
            raise _unusable(self._path, error) from error
        self._searcher = self._index.searcher()
        self._frequencies: dict[str, int] = {}
        marker = tantivy.Query.term_query(self._schema, "passage", _MARKER)
        hits = self._searcher.search(marker, 1, count=False).hits
        values = self._searcher.fast_field_values("sequence", [place for _, place in hits])
        self.sequence = int(values[0] or 0) if values else -1

    def document_frequency(self, term: str) -> int:
        """How many passages hold `term`."""
        known = self._frequencies.get(term)
        if known is None:
            if len(self._frequencies) >= _MOST_FREQUENCIES:
                self._frequencies.clear()
            known = self._frequencies[term] = int(self._searcher.doc_freq("terms", term))
        return known

    def search(self, terms: Sequence[str], limit: int) -> list[PassageHit]:
        """The best passages, by falling score, then by number.

        Terms that occur nowhere are left out, and of very many only the rarest are used. Repeated
        terms count once.
        """
        frequencies = {term: self.document_frequency(term) for term in dict.fromkeys(terms)}
        known = sorted((n, term) for term, n in frequencies.items() if n)[:MOST_TERMS]
        if not known or limit <= 0:
            return []
        query = tantivy.Query.boolean_query(
            [
                (
                    tantivy.Occur.Should,
                    tantivy.Query.term_query(self._schema, "terms", term, "freq"),
                )
                for _, term in known
            ]
        )
        hits = self._searcher.search(query, limit, count=False).hits
        numbers = self._searcher.fast_field_values("passage", [place for _, place in hits])
        found = [
            PassageHit(int(number or 0), float(score))
            for (score, _), number in zip(hits, numbers, strict=True)
        ]
        return sorted(found, key=lambda hit: (-hit.score, hit.passage_id))

    def passage_ids(self) -> list[int]:
        """The passages that the index holds, in no order."""
        total = int(self._searcher.num_docs)
        hits = self._searcher.search(tantivy.Query.all_query(), max(total, 1), count=False).hits
        numbers = self._searcher.fast_field_values("passage", [place for _, place in hits])
        return [int(number or 0) for number in numbers if number != _MARKER]

    def apply(
        self,
        removed: Iterable[int],
        added: Iterable[tuple[int, str]],
        sequence: int,
    ) -> None:
        """Remove and add passages, and publish the result as `sequence`: all of it, or nothing.

        Args:
            added: number and terms of each, white space between the terms.

        Raises:
            KnowledgeBaseNotWritable: read-only folder or full disk; the index is as before.
        """
        try:
            self._apply(removed, added, sequence)
        except BaseException as error:
            # Its uncommitted changes go with the writer; the next call opens another one.
            self._writer = None
            if isinstance(error, OSError | ValueError):
                raise not_writable(self._path.parent, error) from error
            raise
        self.refresh()

    def _apply(
        self, removed: Iterable[int], added: Iterable[tuple[int, str]], sequence: int
    ) -> None:
        if self._writer is None:
            _sweep(self._path)
            self._writer = self._index.writer(heap_size=_HEAP_BYTES, num_threads=1)
        writer = self._writer
        for number in removed:
            self._delete(writer, number)
        for number, terms in added:
            document = tantivy.Document()
            document.add_unsigned("passage", number)
            document.add_text("terms", terms)
            writer.add_document(document)
        self._delete(writer, _MARKER)
        marker = tantivy.Document()
        marker.add_unsigned("passage", _MARKER)
        marker.add_unsigned("sequence", sequence)
        writer.add_document(marker)
        writer.commit()
        _share(self._path)

    def _delete(self, writer: tantivy.IndexWriter, number: int) -> None:
        # By query: by term, tantivy's Python binding finds no unsigned number and deletes nothing.
        writer.delete_documents_by_query(tantivy.Query.term_query(self._schema, "passage", number))

    def close(self) -> None:
        """Finish merges in the background and let go of the files."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            try:
                writer.wait_merging_threads()
            except ValueError as error:  # a failed merge loses nothing: its sources stay
                raise not_writable(self._path.parent, error) from error
            _share(self._path)
        if self._shadow is not None:
            self._shadow.close()


def segment_files(path: Path) -> set[str]:
    """The names of the files that the last commit of the index at `path` refers to, or may."""
    segments = json.loads((path / "meta.json").read_text("utf-8"))["segments"]
    stems = {segment["segment_id"].replace("-", ""): segment["deletes"] for segment in segments}
    kept = set()
    for file in path.iterdir():
        stem, *rest = file.name.split(".")
        deletes = stems.get(stem)
        if stem in stems and (
            rest[-1] != "del" or (deletes and rest[0] == str(deletes["opstamp"]))
        ):
            kept.add(file.name)
    return kept


def _share(path: Path) -> None:
    """Let whoever may read the database read the index.

    tantivy makes the files that it replaces readable for their owner only. Not covered: those that
    a merge in the background has just replaced, until the next commit or the end.
    """
    # Where there is no database yet, the folder says what the user grants to others.
    granting = path.parent / DATABASE
    mode = (granting if granting.exists() else path).stat().st_mode & 0o666
    for file in path.iterdir():
        with contextlib.suppress(FileNotFoundError, PermissionError):  # merged; another user's
            if file.stat().st_mode & 0o777 != mode:
                file.chmod(mode)


def _sweep(path: Path) -> None:
    """Remove what a killed or failed writer left behind; the writer lock must be held.

    tantivy would number its next files the same and refuse to write over these.
    """
    kept = segment_files(path)
    for file in path.iterdir():
        is_ours = file.suffix == ".json" or file.name.endswith(".lock")
        if not is_ours and file.name not in kept:
            file.unlink(missing_ok=True)


class _Shadow:
    """Links to the files of an index on a read-only medium, in a folder where tantivy can lock.

    tantivy creates a lock file next to an index that it only reads. Nothing is copied.
    """

    def __init__(self, path: Path) -> None:
        files = list(path.resolve().iterdir())
        self._folder = tempfile.TemporaryDirectory(prefix="specrag-index-")
        self.path = Path(self._folder.name)
        for file in files:
            if not file.name.endswith(".lock"):
                os.symlink(file, self.path / file.name)

    def close(self) -> None:
        self._folder.cleanup()


def _unusable(path: Path, error: BaseException) -> KnowledgeBaseDamaged | KnowledgeBaseNotReadable:
    if not _is_readable(path):
        return not_readable(path.parent)
    return KnowledgeBaseDamaged(
        f"The search index cannot be read: {error}",
        where=str(path),
        fix="Rebuild it from the stored documents: specrag compact",
    )


def _is_readable(path: Path) -> bool:
    """Whether this user may read the folder and every file in it, as far as they are there."""
    if not os.path.lexists(path):
        return True
    return os.access(path, os.R_OK | os.X_OK) and all(
        os.access(file, os.R_OK) or not file.exists()  # a merge may have just removed it
        for file in path.iterdir()
    )
